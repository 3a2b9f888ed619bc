// The pod overview: each pod when it was last seen in a range. That time is found first, by names alone. Then the pods are
// read in the order of their rows, all that are still there at the end in one go.
import { sortInSteps, takeSteps, visitInTurns } from "../../../src/core/async/turns.ts";
import { requireFirst, requireLast } from "../../../src/core/collections.ts";
import type { Buckets, PodOverviewRow } from "../../../src/core/rows.ts";
import { type Millis, minute } from "../../../src/core/time.ts";
import type { OverviewFilter, OverviewQuery } from "../../../src/store/kubernetes.ts";
import { comparePods, createOverviewFilter, toMinuteBuckets } from "../../../src/store/kubernetes-rules.ts";
import type { SeriesFold } from "../client/response-scanner.ts";
import { formatPodKey, joinOverviewRows, joinPodState } from "./pod-state.ts";
import {
  buildIdentityQueries,
  buildPodCount,
  buildPodList,
  buildStateQueries,
  podQueryOrder,
} from "./queries.ts";
import { freshness, type PodScope } from "./selectors.ts";
import {
  type ClusterScope,
  countPerSnapshot,
  createNameTaker,
  createTooManyRowsError,
  maxSnapshotsPerQuery,
  type QueryClient,
  queryAll,
  sliceSnapshots,
  toEvaluationTime,
  yieldRows,
} from "./snapshot-reader.ts";

/** Pods that a list of them reads at a time. */
const podsPerList = 100_000;
/** In how many windows a range is searched at first. */
const maxTiles = 200;
/** Pods × minutes that are read together. */
const maxPodMinutes = 100_000;

/** A pod, with the first and the last minute in which it may be seen last. */
interface SeenPod {
  readonly key: string;
  readonly namespace: string;
  readonly name: string;
  readonly first: Millis;
  readonly last: Millis;
}

/** Pods whose last minutes are read with one set of queries. */
interface OverviewPart {
  readonly scope: PodScope;
  readonly minutes: Buckets;
  /** By `formatPodKey`. */
  readonly pods: ReadonlyMap<string, SeenPod>;
}

/** Rows by time, namespace and name. @throws {Refused} over the limit of rows @throws {BackendError} */
export async function* readOverview(
  client: QueryClient,
  cluster: ClusterScope,
  query: OverviewQuery & OverviewFilter,
  signal: AbortSignal,
): AsyncGenerator<readonly PodOverviewRow[]> {
  const named: PodScope = { namespaces: query.namespaces, pods: [] };
  const scope = createNameTaker(cluster)(named) ? named : { namespaces: [], pods: [] };
  const accepts = createOverviewFilter(query);
  const end: Buckets = { start: query.to, step: minute, count: 1 };
  const present = await listSeenPods(client, cluster, scope, end, freshness, signal);
  const seen = await findLastMinutes(client, cluster, scope, query, signal);
  const gone: SeenPod[] = [];
  const addGone = (pod: SeenPod): void => {
    if (!present.has(pod.key)) gone.push(pod);
  };
  await visitInTurns(seen, addGone, signal);
  const rowCount = present.size + gone.length;
  if (rowCount > query.rowLimit) throw createTooManyRowsError(query.rowLimit, rowCount);
  const parts: OverviewPart[] = [];
  const addPart = (pods: readonly SeenPod[]): void => {
    const byKey = new Map(pods.map((pod) => [pod.key, pod]));
    parts.push({ scope: buildPodScope(pods), minutes: coverMinutes(pods), pods: byKey });
  };
  await visitInTurns(groupPods(cluster, gone), addPart, signal);
  if (present.size > 0) parts.push({ scope, minutes: end, pods: present });
  for (const { scope, minutes, pods } of parts) {
    const queries = { ...buildStateQueries(cluster, scope), ...buildIdentityQueries(cluster, scope) };
    const answers = await queryAll(client, queries, minutes, signal, podQueryOrder);
    const listPods = await joinPodState(answers, minutes, signal);
    const buildRow = await joinOverviewRows(answers);
    for (let index = 0; index < minutes.count; index += 1) {
      const time = minutes.start + index * minutes.step;
      const ending = listPods(index, (key) => pods.get(key)?.last === time);
      yield* yieldRows(ending, (pod) => buildRow(pod, index), accepts, signal);
    }
  }
}

/**
 * Every pod that a full minute of the range has, with the last such minute, in the order of rows. Long ranges are not
 * listed minute by minute: first in windows that tile the range, and then minute by minute where a pod was seen last.
 */
async function findLastMinutes(
  client: QueryClient,
  cluster: ClusterScope,
  scope: PodScope,
  range: OverviewQuery,
  signal: AbortSignal,
): Promise<readonly SeenPod[]> {
  const minutes = toMinuteBuckets(range);
  if (minutes === undefined) return [];
  const step = Math.ceil(minutes.count / maxTiles) * minute;
  const found = await searchTiles(client, cluster, scope, minutes, step, signal);
  const pods = await takeSteps(sortInSteps(found, compareSeenPods), signal);
  if (step === minute) return pods;
  const exact = new Map<string, SeenPod>();
  for (const group of groupPods(cluster, pods)) {
    const keys = new Set(group.map(({ key }) => key));
    const window = coverMinutes(group);
    const listed = await listSeenPods(client, cluster, buildPodScope(group), window, freshness, signal);
    for (const [key, pod] of listed) if (keys.has(key)) exact.set(key, pod);
  }
  return takeSteps(sortInSteps([...exact.values()], compareSeenPods), signal);
}

/** Every pod of the range, with the tile of `step` that has its last minute. */
async function searchTiles(
  client: QueryClient,
  cluster: ClusterScope,
  scope: PodScope,
  minutes: Buckets,
  step: Millis,
  signal: AbortSignal,
): Promise<SeenPod[]> {
  const end = minutes.start + (minutes.count - 1) * minute;
  const tiledUntil = Math.floor(end / step) * step;
  const start = Math.ceil(minutes.start / step) * step;
  const tiles = { start, step, count: (tiledUntil - start) / step + 1 };
  const list = (window: Buckets, length: Millis): Promise<ReadonlyMap<string, SeenPod>> =>
    listSeenPods(client, cluster, scope, window, freshness + length - minute, signal);
  const found = new Map<string, SeenPod>();
  if (tiles.count > 0) {
    const counts = [buildPodCount(cluster, scope, freshness + step - minute)];
    const { largest } = await countPerSnapshot(client, counts, tiles, signal);
    for (const slice of sliceSnapshots(tiles, largest, podsPerList)) {
      for (const [key, pod] of await list(slice, step)) {
        found.set(key, { ...pod, first: Math.max(minutes.start, pod.last - step + minute) });
      }
    }
  }
  // What the tiles leave over at the end of the range.
  const rest = end - Math.max(tiledUntil, minutes.start - minute);
  if (rest > 0) {
    for (const [key, pod] of await list({ start: end, step: minute, count: 1 }, rest)) {
      found.set(key, { ...pod, first: end - rest + minute });
    }
  }
  return [...found.values()];
}

function compareSeenPods(a: SeenPod, b: SeenPod): number {
  return comparePods(
    { timestamp: a.last, pod_namespace: a.namespace, pod_name: a.name },
    { timestamp: b.last, pod_namespace: b.namespace, pod_name: b.name },
  );
}

/** The pods of some times, each with the last of them that has it. `reach` is how old a sample may be. */
function listSeenPods(
  client: QueryClient,
  cluster: ClusterScope,
  scope: PodScope,
  times: Buckets,
  reach: Millis,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, SeenPod>> {
  return client.query(buildPodList(cluster, scope, reach), toEvaluationTime(times), collectPods, signal);
}

function collectPods(): SeriesFold<ReadonlyMap<string, SeenPod>> {
  const found = new Map<string, SeenPod>();
  return {
    series: ({ labels: { namespace = "", pod: name = "" }, times }) => {
      const last = times.at(-1);
      const key = formatPodKey(namespace, name);
      if (last !== undefined) found.set(key, { key, namespace, name, first: last, last });
    },
    result: () => found,
  };
}

/** Groups of pods, in their order, whose minutes lie close enough for one set of queries. */
function* groupPods(cluster: ClusterScope, pods: readonly SeenPod[]): Generator<readonly SeenPod[]> {
  let group: SeenPod[] = [];
  let take = createNameTaker(cluster);
  for (const pod of pods) {
    const { count } = coverMinutes([...group.slice(0, 1), pod]);
    const isFull = (group.length + 1) * count > maxPodMinutes || !take(buildPodScope([pod]));
    if (group.length > 0 && (isFull || count > maxSnapshotsPerQuery)) {
      yield group;
      group = [];
      take = createNameTaker(cluster);
      take(buildPodScope([pod]));
    }
    group.push(pod);
  }
  if (group.length > 0) yield group;
}

/** From the first minute of the first pod to the last one of the last. `pods` must not be empty. */
function coverMinutes(pods: readonly SeenPod[]): Buckets {
  const start = requireFirst(pods).first;
  return { start, step: minute, count: (requireLast(pods).last - start) / minute + 1 };
}

function buildPodScope(pods: readonly SeenPod[]): PodScope {
  return {
    namespaces: [...new Set(pods.map(({ namespace }) => namespace))],
    pods: [...new Set(pods.map(({ name }) => name))],
  };
}
