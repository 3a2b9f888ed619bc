// The Kubernetes store of Prometheus: nodes and pods at the snapshots of a range, and the pod overview. Snapshots are read
// in slices, each with the snapshot before it for the growth of counters.

import type { Buckets, NodesRow, PodsRow } from "../../../src/core/rows.ts";
import type {
  KubernetesStore,
  NodeFilter,
  PodAtTime,
  PodFilter,
  SnapshotQuery,
} from "../../../src/store/kubernetes.ts";
import { createPodFilter } from "../../../src/store/kubernetes-rules.ts";
import type { ForcedLabels } from "../../../src/store/metrics.ts";
import { readLabel } from "../counters/series-reader.ts";
import {
  findSandboxChanges,
  isInterfaceCounter,
  isInterfaceSpelling,
  readRestartSamples,
} from "./network.ts";
import { type InterfaceOwner, listPlainSpellings, type MetricSpelling } from "./network-queries.ts";
import { buildNodeRows } from "./node-usage.ts";
import {
  buildOtelNamesQuery,
  buildOtelNodeCounts,
  buildOtelPodQueries,
  listOtelSpellings,
  normaliseOtelLabels,
  type OtelPodQueryName,
  readOtelNames,
} from "./otel.ts";
import { readOverview } from "./pod-overview.ts";
import { formatPodKey, joinPodState } from "./pod-state.ts";
import { joinPodRows } from "./pod-usage.ts";
import {
  buildNodeCounts,
  buildNodeQueries,
  buildPodCount,
  buildPodList,
  buildPodUsageList,
  buildStateQueries,
  buildUsageQueries,
  nodeQueryOrder,
  podQueryOrder,
} from "./queries.ts";
import { matchPods, otelLabels, type PodLabels, type PodScope, plainLabels } from "./selectors.ts";
import {
  type ClusterScope,
  chunkSnapshots,
  countPerSnapshot,
  createNameTaker,
  createTooManyRowsError,
  type QueryClient,
  queryAll,
  readInScope,
  readScope,
  sliceSnapshots,
  yieldRows,
} from "./snapshot-reader.ts";
import { hasValue, type SnapshotAnswers, type SnapshotSeries } from "./snapshot-series.ts";

/** Rows that are read at a time. */
const rowsPerSlice = 5_000;

export function createKubernetesStore(backend: string, client: QueryClient): KubernetesStore {
  const readRows = <Rows>(
    match: ForcedLabels,
    signal: AbortSignal,
    read: (cluster: ClusterScope) => AsyncIterable<Rows>,
  ): AsyncGenerator<Rows> => readInScope(backend, client, match, signal, read);
  return {
    nodes: (query, signal) =>
      readRows(query.match, signal, (cluster) => readNodes(client, cluster, query, signal)),
    pods: (query, signal) =>
      readRows(query.match, signal, (cluster) => readPods(client, cluster, query, signal)),
    overview: (query, signal) =>
      readRows(query.match, signal, (cluster) => readOverview(client, cluster, query, signal)),
    listOrphanedUsage: (query, signal) => listOrphanedUsage(client, query, signal),
  };
}

async function* readNodes(
  client: QueryClient,
  cluster: ClusterScope,
  query: SnapshotQuery & NodeFilter,
  signal: AbortSignal,
): AsyncGenerator<readonly NodesRow[]> {
  const { snapshots, rowLimit, node } = query;
  const otel = await readOtelSpellings(client, cluster, "nodes", snapshots, signal);
  const counts = [...buildNodeCounts(cluster), ...buildOtelNodeCounts(cluster, otel)];
  const { largest, sum } = await countPerSnapshot(client, counts, snapshots, signal);
  const least = sumSizes(node === undefined ? largest : largest.map((size) => Math.min(size, 1)));
  if (least > rowLimit) throw createTooManyRowsError(rowLimit, least);
  const slices = sliceSnapshots(snapshots, largest, rowsPerSlice);
  const rows = readNodeRows(client, cluster, query, otel, slices, signal);
  // Several exporters may know more nodes together than each of them. No row is sent before that is known.
  yield* node === undefined && sum > rowLimit ? holdWithinLimit(rows, rowLimit) : rows;
}

function sumSizes(sizes: Float64Array): number {
  return sizes.reduce((sum, size) => sum + size, 0);
}

/** A server that hides restarts would read many samples and find none. */
const withoutRestarts = { restarts: undefined };

async function* readNodeRows(
  client: QueryClient,
  cluster: ClusterScope,
  { node }: NodeFilter,
  otel: readonly MetricSpelling[],
  slices: Iterable<Buckets>,
  signal: AbortSignal,
): AsyncGenerator<readonly NodesRow[]> {
  const isAsked = ({ node_name: name }: NodesRow): boolean => node === undefined || name === node;
  for (const slice of slices) {
    const snapshots = includePrevious(slice);
    const queries = {
      ...buildNodeQueries(cluster, snapshots.step, otel),
      ...(cluster.hidesRestarts && withoutRestarts),
    };
    const found = await queryAll(client, queries, snapshots, signal, nodeQueryOrder);
    const answers = {
      ...found,
      otel: await normaliseOtelLabels(found.otel, signal),
      restarts: await normaliseOtelLabels(found.restarts, signal),
    };
    const restarting = cluster.hidesRestarts
      ? [...answers.roots, ...answers.exporters, ...answers.windows, ...answers.otel].filter(
          isInterfaceCounter,
        )
      : answers.restarts;
    const spellings = [...listPlainSpellings("nodes"), ...otel.filter(isInterfaceSpelling)];
    const samples = await readRestartSamples(
      client,
      cluster,
      "nodes",
      spellings,
      restarting,
      snapshots,
      signal,
    );
    for (let index = 1; index < snapshots.count; index += 1) {
      const rows = buildNodeRows(answers, samples, snapshots, index);
      yield* yieldRows(rows, (row) => row, isAsked, signal);
    }
  }
}

/** Yields the batches after the last one was read. @throws {Refused} over the limit */
async function* holdWithinLimit<Row>(
  batches: AsyncIterable<readonly Row[]>,
  rowLimit: number,
): AsyncGenerator<readonly Row[]> {
  const held: (readonly Row[])[] = [];
  let count = 0;
  for await (const batch of batches) {
    count += batch.length;
    if (count > rowLimit) throw createTooManyRowsError(rowLimit);
    held.push(batch);
  }
  yield* held;
}

/** The part of a filter that is sent. All of it is applied to the rows. */
function buildSentScope(
  cluster: ClusterScope,
  { namespaces, pods = [] }: Pick<PodFilter, "namespaces" | "pods">,
): PodScope {
  const take = createNameTaker(cluster);
  return {
    pods: take({ namespaces: [], pods }) ? pods : [],
    namespaces: take({ namespaces, pods: [] }) ? namespaces : [],
  };
}

async function* readPods(
  client: QueryClient,
  cluster: ClusterScope,
  query: SnapshotQuery & PodFilter,
  signal: AbortSignal,
): AsyncGenerator<readonly PodsRow[]> {
  const scope = buildSentScope(cluster, query);
  const accepts = createPodFilter(query);
  const counts = [buildPodCount(cluster, scope)];
  const { largest, sum } = await countPerSnapshot(client, counts, query.snapshots, signal);
  if (sum > query.rowLimit) throw createTooManyRowsError(query.rowLimit, sum);
  for (const slice of sliceSnapshots(query.snapshots, largest, rowsPerSlice)) {
    const snapshots = includePrevious(slice);
    const queries = {
      ...buildStateQueries(cluster, scope),
      ...buildUsageQueries(cluster, scope, snapshots.step),
      ...(cluster.hidesRestarts && withoutRestarts),
    };
    const found = await queryAll(client, queries, snapshots, signal, podQueryOrder);
    const otel = listOtelSpellings(readOtelNames(found.otelNames));
    const answers = { ...found, ...(await readOtelUsage(client, cluster, scope, otel, snapshots, signal)) };
    const { restarts, podInterfaces, otelInterfaces, otelRestarts } = answers;
    const restarting = cluster.hidesRestarts
      ? [...podInterfaces, ...otelInterfaces]
      : [...restarts, ...otelRestarts, ...(await findSandboxChanges(podInterfaces, snapshots, signal))];
    const spellings = [...listPlainSpellings("pods"), ...otel.filter(isInterfaceSpelling)];
    const samples = await readRestartSamples(
      client,
      cluster,
      "pods",
      spellings,
      restarting,
      snapshots,
      signal,
    );
    const listPods = await joinPodState(answers, snapshots, signal);
    const prepareRows = await joinPodRows(answers, samples, snapshots, signal);
    for (let index = 1; index < snapshots.count; index += 1) {
      yield* yieldRows(listPods(index), prepareRows(index), accepts, signal);
    }
  }
}

async function readOtelUsage(
  client: QueryClient,
  cluster: ClusterScope,
  scope: PodScope,
  spellings: readonly MetricSpelling[],
  snapshots: Buckets,
  signal: AbortSignal,
): Promise<SnapshotAnswers<OtelPodQueryName>> {
  const queries = {
    ...buildOtelPodQueries(cluster, scope, snapshots.step, spellings),
    ...(cluster.hidesRestarts && { otelRestarts: undefined }),
  };
  const { otelValues, otelInterfaces, otelRestarts, otelDisks } = await queryAll(
    client,
    queries,
    snapshots,
    signal,
    { otelRestarts: ["otelInterfaces"] },
  );
  return {
    otelValues: await normaliseOtelLabels(otelValues, signal),
    otelInterfaces: await normaliseOtelLabels(otelInterfaces, signal),
    otelRestarts: await normaliseOtelLabels(otelRestarts, signal),
    otelDisks: await normaliseOtelLabels(otelDisks, signal),
  };
}

/** The spellings of OpenTelemetry's metrics that are there at any snapshot. @throws {BackendError} */
async function readOtelSpellings(
  client: QueryClient,
  cluster: ClusterScope,
  owner: InterfaceOwner,
  snapshots: Buckets,
  signal: AbortSignal,
): Promise<readonly MetricSpelling[]> {
  const names = new Set<string>();
  for (const chunk of chunkSnapshots(snapshots)) {
    const queries = { names: buildOtelNamesQuery(cluster, owner) };
    const answer = await queryAll(client, queries, chunk, signal);
    for (const name of readOtelNames(answer.names)) names.add(name);
  }
  return listOtelSpellings(names);
}

function includePrevious({ start, step, count }: Buckets): Buckets {
  return { start: start - step, step, count: count + 1 };
}

/** The pods that the server knows by their usage alone. @throws {BackendError} */
async function listOrphanedUsage(
  client: QueryClient,
  query: SnapshotQuery & Pick<PodFilter, "namespaces" | "pods">,
  signal: AbortSignal,
): Promise<readonly PodAtTime[]> {
  const cluster = await readScope(client, query.match, signal);
  const scope = buildSentScope(cluster, query);
  const orphans: PodAtTime[] = [];
  for (const snapshots of chunkSnapshots(query.snapshots)) {
    const queries = {
      pods: buildPodList(cluster, scope),
      usage: buildPodUsageList(cluster, matchPods(scope)),
      names: buildOtelNamesQuery(cluster, "pods"),
    };
    const { pods, usage, names } = await queryAll(client, queries, snapshots, signal);
    const spellings = listOtelSpellings(readOtelNames(names));
    const { otelValues } = buildOtelPodQueries(cluster, scope, snapshots.step, spellings);
    const { otel } = await queryAll(client, { otel: otelValues }, snapshots, signal);
    orphans.push(
      ...findOrphans(pods, usage, plainLabels, snapshots),
      ...findOrphans(pods, await normaliseOtelLabels(otel, signal), otelLabels, snapshots),
    );
  }
  return orphans;
}

function findOrphans(
  pods: readonly SnapshotSeries[],
  usage: readonly SnapshotSeries[],
  { namespace, pod }: PodLabels,
  { start, step, count }: Buckets,
): PodAtTime[] {
  const known = new Map(
    pods.map((series) => [
      formatPodKey(
        readLabel(series.labels, plainLabels.namespace),
        readLabel(series.labels, plainLabels.pod),
      ),
      series,
    ]),
  );
  const indices = Array.from({ length: count }, (_, index) => index);
  return usage.flatMap((series) => {
    const pod_namespace = readLabel(series.labels, namespace);
    const pod_name = readLabel(series.labels, pod);
    const own = known.get(formatPodKey(pod_namespace, pod_name));
    return indices
      .filter((index) => hasValue(series, index) && !hasValue(own, index))
      .map((index) => ({ timestamp: start + index * step, pod_namespace, pod_name }));
  });
}
