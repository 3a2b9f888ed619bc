// A Kubernetes store over the Kubernetes stores of several backends. Each row is of one backend, which has all series of the
// node, or of the pod and its node. Rows are in the order of the contract.
//
// Two backends may have a row of one time and name: two scrapers watch one cluster, or two clusters have names in common. Only
// `replica` says that it is the former, and then the first backend's row counts. Without it the rows are refused.
//
// One backend may also have the pods and another their usage. No row could be put together of what both answer, and the rows
// of the former would say that nothing is used: they are refused as well.

import { mapAtOnce } from "../core/async/concurrency.ts";
import { readOwn, zip } from "../core/collections.ts";
import { createUnsupportedError, Refused } from "../core/errors.ts";
import type { NodesRow, PodOverviewRow } from "../core/rows.ts";
import type { KubernetesStore } from "../store/kubernetes.ts";
import {
  compareNodes,
  comparePods,
  createOverviewFilter,
  createPodFilter,
} from "../store/kubernetes-rules.ts";
import type { ForcedLabels } from "../store/metrics.ts";

/** One place of a site's nodes and pods. */
interface KubernetesPlace {
  readonly backend: string;
  readonly store: KubernetesStore;
  readonly match: ForcedLabels;
  /** The label that distinguishes the scrapers of one cluster. */
  readonly replica?: string | undefined;
}

/** The forced labels are those of each place: those of a query are not used. */
export function createFederatedKubernetes(places: readonly KubernetesPlace[]): KubernetesStore {
  // A place's own filter would let the row of another place through where the first one's is left out.
  const filtersHere = places.some(({ replica }) => replica !== undefined);
  return {
    nodes: (query, signal) =>
      readMerged(places, query.rowLimit, signal, {
        read: ({ store, match }, own) => store.nodes({ ...query, match }, own),
        nameOf: nameNode,
        keyOf: (row) => `${row.timestamp} ${nameNode(row)}`,
        compareRows: compareNodes,
        accepts: () => true,
        hasUsage: createUsageTest(nodeUsage),
      }),
    pods: (query, signal) =>
      readMerged(places, query.rowLimit, signal, {
        read: ({ store, match }, own) => {
          const filter = filtersHere ? { ...query, nodes: [], state: undefined } : query;
          return store.pods({ ...filter, match }, own);
        },
        nameOf: namePod,
        keyOf: (row) => `${row.timestamp} ${namePod(row)}`,
        compareRows: comparePods,
        accepts: filtersHere ? createPodFilter(query) : () => true,
        hasUsage: createUsageTest(podUsage),
        listOrphans: async ({ store, match }, own) => {
          const orphans = (await store.listOrphanedUsage?.({ ...query, match }, own)) ?? [];
          return orphans.map((pod) => `${pod.timestamp} ${namePod(pod)}`);
        },
      }),
    overview: (query, signal) =>
      readMerged(places, query.rowLimit, signal, {
        read: ({ store, match }, own) =>
          store.overview({ ...query, ...(filtersHere && { text: "" }), match }, own),
        nameOf: namePod,
        keyOf: namePod,
        compareRows: comparePods,
        accepts: filtersHere ? createOverviewFilter(query) : () => true,
        isNewer: (a, b) => a.timestamp > b.timestamp,
      }),
  };
}

const podUsage = [
  "cpu_usage_nano_cores",
  "cpu_usage_core_nano_seconds",
  "memory_usage_bytes",
  "memory_working_set_bytes",
  "memory_rss_bytes",
] as const;
const nodeUsage = podUsage.filter((name) => name !== "cpu_usage_core_nano_seconds");

function createUsageTest<Name extends string>(names: readonly Name[]) {
  return (row: Readonly<Record<Name, number>>): boolean => names.some((name) => row[name] > 0);
}

type PodName = Pick<PodOverviewRow, "pod_namespace" | "pod_name">;

const nameNode = ({ node_name: name }: NodesRow): string => `the node ${name}`;
const namePod = ({ pod_namespace: namespace, pod_name: name }: PodName): string =>
  `the pod ${namespace}/${name}`;

/** How rows of one kind are read and merged. */
interface RowMerge<Row> {
  readonly read: (place: KubernetesPlace, signal: AbortSignal) => AsyncIterable<readonly Row[]>;
  /** For people. */
  readonly nameOf: (row: Row) => string;
  /** Equal for rows of which the answer may have one. */
  readonly keyOf: (row: Row) => string;
  readonly compareRows: (a: Row, b: Row) => number;
  /** What the places did not filter themselves. */
  readonly accepts: (row: Row) => boolean;
  /** Whether a row counts instead of an earlier place's. */
  readonly isNewer?: (row: Row, other: Row) => boolean;
  /** Whether anything is known of what it uses. Absent for rows without usage. */
  readonly hasUsage?: (row: Row) => boolean;
  /** The keys of rows that a place would have if it had more than their usage. */
  readonly listOrphans?: (place: KubernetesPlace, signal: AbortSignal) => Promise<readonly string[]>;
}

/** Rows per batch. */
const batchSize = 1_000;

/** Holds all rows, since a store refuses before its first batch or not at all. */
async function* readMerged<Row>(
  places: readonly KubernetesPlace[],
  rowLimit: number,
  signal: AbortSignal,
  merge: RowMerge<Row>,
): AsyncGenerator<readonly Row[]> {
  let count = 0;
  const read = async (place: KubernetesPlace, own: AbortSignal): Promise<readonly Row[]> => {
    const rows: Row[] = [];
    for await (const batch of merge.read(place, own)) {
      count += batch.length;
      if (count > rowLimit * places.length) throw createTooManyRowsError(rowLimit);
      for (const row of batch) rows.push(row);
    }
    return rows;
  };
  const { listOrphans = async () => [] } = merge;
  // Where one question fails, all others are given up.
  const found = await mapAtOnce(
    places,
    (place, own) => Promise.all([read(place, own), listOrphans(place, own)]),
    signal,
  );
  const orphans = found.map(([, own]) => own);
  const chosen = chooseRows(
    places,
    found.map(([rows]) => rows),
    merge,
  );
  refuseDividedRows(chosen, zip(places, orphans), merge);
  const rows = [...chosen.values()].map(({ row }) => row);
  const accepted = rows.filter(merge.accepts).sort(merge.compareRows);
  if (accepted.length > rowLimit) throw createTooManyRowsError(rowLimit);
  for (let at = 0; at < accepted.length; at += batchSize) {
    yield accepted.slice(at, at + batchSize);
    signal.throwIfAborted();
  }
}

/** @throws {Refused} where two places have a row of one key, and not both say that it may be so */
function chooseRows<Row>(
  places: readonly KubernetesPlace[],
  all: readonly (readonly Row[])[],
  { keyOf, nameOf, isNewer, hasUsage = () => true }: RowMerge<Row>,
): ReadonlyMap<string, ChosenRow<Row>> {
  const chosen = new Map<string, ChosenRow<Row>>();
  for (const [place, rows] of zip(places, all)) {
    for (const row of rows) {
      const key = keyOf(row);
      const other = chosen.get(key);
      if (other !== undefined && !areReplicas(other.place, place))
        throw createEqualRowsError([other.place, place], nameOf(row));
      // A replica may miss what an object uses. The row of one that has it is whole.
      const isFuller = other !== undefined && hasUsage(row) && !hasUsage(other.row);
      if (other === undefined || isFuller || isNewer?.(row, other.row) === true)
        chosen.set(key, { row, place });
    }
  }
  return chosen;
}

/** Places that force different values of a label have objects of different clusters. */
function areReplicas(one: KubernetesPlace, other: KubernetesPlace): boolean {
  if (one.replica === undefined || other.replica === undefined) return false;
  return Object.entries(one.match).every(
    ([label, value]) =>
      label === one.replica || label === other.replica || (readOwn(other.match, label) ?? value) === value,
  );
}

interface ChosenRow<Row> {
  readonly row: Row;
  readonly place: KubernetesPlace;
}

/** @throws {Refused} where a place has usage of a row of another. Replicas have rows with usage of their own. */
function refuseDividedRows<Row>(
  chosen: ReadonlyMap<string, ChosenRow<Row>>,
  orphans: readonly (readonly [place: KubernetesPlace, keys: readonly string[]])[],
  { nameOf, hasUsage = () => true }: RowMerge<Row>,
): void {
  for (const [place, keys] of orphans) {
    for (const key of keys) {
      const owner = chosen.get(key);
      if (owner === undefined || owner.place === place) continue;
      if (!areReplicas(owner.place, place) || !hasUsage(owner.row))
        throw createDividedRowError(owner.place, place, nameOf(owner.row));
    }
  }
}

function createDividedRowError(
  owner: KubernetesPlace,
  place: KubernetesPlace,
  object: string,
): Refused<"not_supported_by_backend"> {
  const backends = `${owner.backend}, ${place.backend}`;
  const feature = `${object} is in ${owner.backend}, and its usage in ${place.backend}. Keep both in one backend`;
  return createUnsupportedError(backends, feature);
}

function createEqualRowsError(
  places: readonly KubernetesPlace[],
  object: string,
): Refused<"not_supported_by_backend"> {
  const backends = [...new Set(places.map(({ backend }) => backend))].join(", ");
  const advice = places.some(({ replica }) => replica === undefined)
    ? "If both watch one cluster, name the label that distinguishes them in `replica`"
    : "They force different values of one label, as servers of different clusters do";
  return createUnsupportedError(backends, `${object} is in ${backends}. ${advice}`);
}

function createTooManyRowsError(limit: number): Refused {
  const message = `More than ${limit} rows would have to be read; narrow the range or the filters`;
  return new Refused("result_too_large", message, { limit });
}
