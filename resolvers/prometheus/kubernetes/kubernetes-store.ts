// Kubernetes rows from Prometheus. What is asked is in questions.ts, how the answers become rows in pods.ts, usage.ts
// and nodes.ts; here is the reading: rows are counted first, so that a too large answer never burdens the source, and
// read in slices of bounded size, each with the snapshot before it for the deltas.
import { setImmediate as nextTurn } from "node:timers/promises";
import { mapConcurrent } from "../../../src/core/concurrency.ts";
import { Refused } from "../../../src/core/errors.ts";
import type { Buckets, NodesRow, PodOverviewRow, PodsRow } from "../../../src/core/rows.ts";
import { type Millis, minute } from "../../../src/core/time.ts";
import {
  comparePods,
  createOverviewFilter,
  createPodFilter,
  toMinuteBuckets,
} from "../../../src/store/kubernetes-rules.ts";
import type {
  ForcedLabels,
  KubernetesStore,
  NodeFilter,
  OverviewFilter,
  OverviewQuery,
  PodFilter,
  SnapshotQuery,
} from "../../../src/store/store.ts";
import type { EvaluationTime, PrometheusClient, ServerTraits } from "../client/client.ts";
import type { Expression } from "../client/promql.ts";
import type { SeriesFold } from "../client/response-scanner.ts";
import { findSandboxChanges, isInterfaceCounter, readRestartSamples } from "./network.ts";
import { buildNodeRows } from "./node-usage.ts";
import { formatPodKey, joinOverviewRows, joinPodState } from "./pod-state.ts";
import { joinPodRows } from "./pod-usage.ts";
import {
  buildIdentityQueries,
  buildNodeCounts,
  buildNodeQueries,
  buildPodCount,
  buildPodList,
  buildStateQueries,
  buildUsageQueries,
  freshness,
  type PodScope,
  type QueryScope,
} from "./queries.ts";
import { alignToSnapshots, type SnapshotAnswers, type SnapshotSeries } from "./snapshot-series.ts";

export type QueryClient = Pick<PrometheusClient, "query" | "readTraits">;

/** Snapshots of one request; a source answers at most 11,000. */
const maxSnapshotsPerQuery = 10_000;
/** Rows that one slice reads, and pods that a list of them reads, at a time. */
const rowsPerSlice = 5_000;
const podsPerList = 100_000;
/** Questions of one answer that are under way together: the source has others to serve. */
const concurrentQueries = 6;
/** Windows that a range is looked through by, and pods × minutes that are read together. */
const maxTiles = 200;
const maxPodMinutes = 100_000;
/** Names that are sent as a filter; with more the filter is applied to what comes back. */
const maxFilterNames = 250;

export function createKubernetesStore(source: QueryClient): KubernetesStore {
  return {
    nodes: (query, signal) => readNodes(source, query, signal),
    pods: (query, signal) => readPods(source, query, signal),
    overview: (query, signal) => readOverview(source, query, signal),
  };
}

async function* readNodes(
  source: QueryClient,
  query: SnapshotQuery & NodeFilter,
  signal: AbortSignal,
): AsyncGenerator<readonly NodesRow[]> {
  const { match, snapshots, rowLimit, node } = query;
  const forcedLabels = await readScope(source, match, signal);
  const { largest, sum } = await countPerSnapshot(source, buildNodeCounts(forcedLabels), query, signal);
  const least = sumSizes(node === undefined ? largest : largest.map((size) => Math.min(size, 1)));
  if (least > rowLimit) throw createTooManyRowsError(rowLimit, least);
  const rows = readNodeRows(
    source,
    forcedLabels,
    query,
    sliceSnapshots(snapshots, largest, rowsPerSlice),
    signal,
  );
  // Several sources may tell of more nodes together than each alone. Nothing is sent before that is known.
  yield* node === undefined && sum > rowLimit ? holdWithinLimit(rows, rowLimit) : rows;
}

type ClusterScope = QueryScope & Pick<ServerTraits, "hidesRestarts">;

/** What a source that hides restarts would look through many samples for, and find none. */
const withoutRestarts = { restarts: undefined };

async function readScope(
  source: QueryClient,
  match: ForcedLabels,
  signal: AbortSignal,
): Promise<ClusterScope> {
  return { match, ...(await source.readTraits(signal)) };
}

async function* readNodeRows(
  source: QueryClient,
  forcedLabels: ClusterScope,
  { node }: NodeFilter,
  parts: Iterable<Buckets>,
  signal: AbortSignal,
): AsyncGenerator<readonly NodesRow[]> {
  for (const slice of parts) {
    const moments = includePrevious(slice);
    const questions = {
      ...buildNodeQueries(forcedLabels, moments.step),
      ...(forcedLabels.hidesRestarts && withoutRestarts),
    };
    const answers = await queryAll(source, questions, moments, signal);
    const { restarts, roots, exporters, otel } = answers;
    const read = forcedLabels.hidesRestarts
      ? [...roots, ...exporters, ...otel].filter(isInterfaceCounter)
      : restarts;
    const restarted = await readRestartSamples(source, forcedLabels, "nodes", read, moments, signal);
    for (let index = 1; index < moments.count; index += 1) {
      const rows = buildNodeRows(answers, restarted, moments, index);
      yield* yieldRows(
        node === undefined ? rows : rows.filter(({ node_name }) => node_name === node),
        signal,
      );
    }
  }
}

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

async function* readPods(
  source: QueryClient,
  query: SnapshotQuery & PodFilter,
  signal: AbortSignal,
): AsyncGenerator<readonly PodsRow[]> {
  const forcedLabels = await readScope(source, query.match, signal);
  const scope: PodScope = {
    namespaces: query.namespaces.length > maxFilterNames ? [] : query.namespaces,
    pods: query.pod === undefined ? [] : [query.pod],
  };
  const accepts = createPodFilter(query);
  const { largest: sizes, sum } = await countPerSnapshot(
    source,
    [buildPodCount(forcedLabels, scope)],
    query,
    signal,
  );
  if (sum > query.rowLimit) throw createTooManyRowsError(query.rowLimit, sum);
  for (const slice of sliceSnapshots(query.snapshots, sizes, rowsPerSlice)) {
    const moments = includePrevious(slice);
    const figures = {
      ...buildUsageQueries(forcedLabels, scope, moments.step),
      ...(forcedLabels.hidesRestarts && withoutRestarts),
    };
    const questions = { ...buildStateQueries(forcedLabels, scope), ...figures };
    const answers = await queryAll(source, questions, moments, signal);
    const { restarts, podInterfaces, otelInterfaces } = answers;
    const read = forcedLabels.hidesRestarts
      ? [...podInterfaces, ...otelInterfaces]
      : [...restarts, ...findSandboxChanges(podInterfaces, moments)];
    const restarted = await readRestartSamples(source, forcedLabels, "pods", read, moments, signal);
    const present = joinPodState(answers, moments);
    await nextTurn();
    const rows = joinPodRows(answers, restarted, moments);
    for (let index = 1; index < moments.count; index += 1) {
      yield* yieldRows(rows(present(index), index).filter(accepts), signal);
    }
  }
}

/**
 * Each pod when it was seen last. When that was is found first, for names alone; then pods are read in the order of
 * their rows, all that are there at the end in one go.
 */
async function* readOverview(
  source: QueryClient,
  query: OverviewQuery & OverviewFilter,
  signal: AbortSignal,
): AsyncGenerator<readonly PodOverviewRow[]> {
  const forcedLabels = await readScope(source, query.match, signal);
  const namespaces = query.namespaces.length > maxFilterNames ? [] : query.namespaces;
  const scope: PodScope = { namespaces, pods: [] };
  const accepts = createOverviewFilter(query);
  const end: Buckets = { start: query.to, step: minute, count: 1 };
  const present = await listSeenPods(source, forcedLabels, scope, end, freshness, signal);
  const gone = (await findGonePods(source, forcedLabels, scope, query, signal)).filter(
    ({ key }) => !present.has(key),
  );
  const seen = present.size + gone.length;
  if (seen > query.rowLimit) throw createTooManyRowsError(query.rowLimit, seen);
  const parts = [...groupPods(gone)].map((pods) => ({
    scope: buildPodScope(pods),
    minutes: coverMinutes(pods),
    pods,
  }));
  if (present.size > 0) parts.push({ scope, minutes: end, pods: [...present.values()] });
  for (const { scope, minutes, pods } of parts) {
    const questions = {
      ...buildStateQueries(forcedLabels, scope),
      ...buildIdentityQueries(forcedLabels, scope),
    };
    const answers = await queryAll(source, questions, minutes, signal);
    const presentAt = joinPodState(answers, minutes);
    const rowsOf = joinOverviewRows(answers);
    const lastOf = new Map(pods.map(({ key, last }) => [key, last]));
    for (let index = 0; index < minutes.count; index += 1) {
      const time = minutes.start + index * minutes.step;
      const ending = presentAt(index).filter(
        (pod) => lastOf.get(formatPodKey(pod.namespace, pod.name)) === time,
      );
      yield* yieldRows(rowsOf(ending, index).filter(accepts).sort(comparePods), signal);
    }
  }
}

/** A pod, with the first and the last of the minutes of which one is the last that has it. */
interface SeenPod {
  readonly key: string;
  readonly namespace: string;
  readonly name: string;
  readonly first: Millis;
  readonly last: Millis;
}

/**
 * Every pod that some full minute of the range has, with the last one, in the order of rows. It is found in two steps,
 * so that long ranges are not listed minute by minute: by windows that tile the range, then minute by minute in those.
 */
async function findGonePods(
  source: QueryClient,
  forcedLabels: QueryScope,
  scope: PodScope,
  range: OverviewQuery,
  signal: AbortSignal,
): Promise<readonly SeenPod[]> {
  const minutes = toMinuteBuckets(range);
  if (minutes === undefined) return [];
  const end = minutes.start + (minutes.count - 1) * minute;
  const step = Math.ceil(minutes.count / maxTiles) * minute;
  const tiled = Math.floor(end / step) * step;
  const start = Math.ceil(minutes.start / step) * step;
  const tiles = { start, step, count: (tiled - start) / step + 1 };
  const list = (window: Buckets, length: Millis): Promise<ReadonlyMap<string, SeenPod>> =>
    listSeenPods(source, forcedLabels, scope, window, freshness + length - minute, signal);
  const found = new Map<string, SeenPod>();
  if (tiles.count > 0) {
    const count = buildPodCount(forcedLabels, scope, freshness + step - minute);
    const { largest } = await countPerSnapshot(source, [count], { snapshots: tiles }, signal);
    for (const slice of sliceSnapshots(tiles, largest, podsPerList)) {
      for (const [key, pod] of await list(slice, step)) {
        found.set(key, { ...pod, first: Math.max(minutes.start, pod.last - step + minute) });
      }
    }
  }
  // What the grid of tiles leaves of the range's end.
  const rest = end - Math.max(tiled, minutes.start - minute);
  if (rest > 0) {
    for (const [key, pod] of await list({ start: end, step: minute, count: 1 }, rest)) {
      found.set(key, { ...pod, first: end - rest + minute });
    }
  }
  const pods = [...found.values()].sort(compareSeenPods);
  if (step === minute) return pods;
  const exact = new Map<string, SeenPod>();
  for (const group of groupPods(pods)) {
    const keys = new Set(group.map(({ key }) => key));
    const listed = await listSeenPods(
      source,
      forcedLabels,
      buildPodScope(group),
      coverMinutes(group),
      freshness,
      signal,
    );
    for (const [key, pod] of listed) if (keys.has(key)) exact.set(key, pod);
  }
  return [...exact.values()].sort(compareSeenPods);
}

function compareSeenPods(a: SeenPod, b: SeenPod): number {
  return comparePods(
    { timestamp: a.last, pod_namespace: a.namespace, pod_name: a.name },
    { timestamp: b.last, pod_namespace: b.namespace, pod_name: b.name },
  );
}

/** The pods of some moments, with the last moment that has each. */
function listSeenPods(
  source: QueryClient,
  forcedLabels: QueryScope,
  scope: PodScope,
  moments: Buckets,
  reach: Millis,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, SeenPod>> {
  const fold = (): SeriesFold<ReadonlyMap<string, SeenPod>> => {
    const found = new Map<string, SeenPod>();
    return {
      series: ({ labels: { namespace = "", pod: name = "" }, times }) => {
        const last = times.at(-1);
        const key = formatPodKey(namespace, name);
        if (last !== undefined) found.set(key, { key, namespace, name, first: last, last });
      },
      result: () => found,
    };
  };
  return source.query(buildPodList(forcedLabels, scope, reach), toEvaluationTime(moments), fold, signal);
}

/** Pods, in order, whose minutes lie close enough for one request. */
function* groupPods(pods: readonly SeenPod[]): Generator<readonly SeenPod[]> {
  let group: SeenPod[] = [];
  for (const pod of pods) {
    const { count } = coverMinutes([...group.slice(0, 1), pod]);
    const full = group.length === maxFilterNames || (group.length + 1) * count > maxPodMinutes;
    if (group.length > 0 && (full || count > maxSnapshotsPerQuery)) {
      yield group;
      group = [];
    }
    group.push(pod);
  }
  if (group.length > 0) yield group;
}

/** From the first minute of the first pod to the last one of the last. */
function coverMinutes(pods: readonly SeenPod[]): Buckets {
  const start = pods[0]?.first ?? 0;
  return { start, step: minute, count: ((pods.at(-1)?.last ?? start) - start) / minute + 1 };
}

const buildPodScope = (pods: readonly SeenPod[]): PodScope => ({
  namespaces: [...new Set(pods.map(({ namespace }) => namespace))],
  pods: [...new Set(pods.map(({ name }) => name))],
});

// ---- Asking -------------------------------------------------------------------------------------------------

async function queryAll<Name extends string>(
  source: QueryClient,
  questions: Readonly<Record<Name, Expression | undefined>>,
  snapshots: Buckets,
  signal: AbortSignal,
): Promise<SnapshotAnswers<Name>> {
  const ask = async (
    name: Name,
    either: AbortSignal,
  ): Promise<readonly [Name, readonly SnapshotSeries[]]> => {
    const question = questions[name];
    if (question === undefined) return [name, []];
    return [
      name,
      await source.query(question, toEvaluationTime(snapshots), alignToSnapshots(snapshots), either),
    ];
  };
  const answers = await mapConcurrent(Object.keys(questions) as Name[], concurrentQueries, ask, signal);
  return Object.fromEntries(answers) as SnapshotAnswers<Name>;
}

function toEvaluationTime({ start, step, count }: Buckets): EvaluationTime {
  return count === 1 ? { at: start } : { start, end: start + (count - 1) * step, step };
}

// ---- Counting and slicing -----------------------------------------------------------------------------------

/** For each snapshot the largest of the counts, and the sum of all. */
async function countPerSnapshot(
  source: QueryClient,
  counts: readonly Expression[],
  { snapshots: { start, step, count } }: Pick<SnapshotQuery, "snapshots">,
  signal: AbortSignal,
): Promise<{ readonly largest: Float64Array; readonly sum: number }> {
  const largest = new Float64Array(count);
  let sum = 0;
  for (let first = 0; first < count; first += maxSnapshotsPerQuery) {
    const chunk = { start: start + first * step, step, count: Math.min(maxSnapshotsPerQuery, count - first) };
    const answers = await Promise.all(
      counts.map((expression) =>
        source.query(expression, toEvaluationTime(chunk), alignToSnapshots(chunk), signal),
      ),
    );
    for (const { values } of answers.flat()) {
      for (const [index, value] of values.entries()) {
        if (Number.isNaN(value)) continue;
        sum += value;
        largest[first + index] = Math.max(largest[first + index] ?? 0, value);
      }
    }
  }
  return { largest, sum };
}

const sumSizes = (sizes: Float64Array): number => sizes.reduce((sum, size) => sum + size, 0);

/** Runs of snapshots that have rows, each of about `most` rows and at most a chunk. */
function* sliceSnapshots({ start, step }: Buckets, sizes: Float64Array, most: number): Generator<Buckets> {
  let first = 0;
  let rows = 0;
  for (const [index, size] of sizes.entries()) {
    const full = rows + size > most || index - first >= maxSnapshotsPerQuery;
    if (index > first && (size === 0 || full)) {
      yield { start: start + first * step, step, count: index - first };
      first = index;
      rows = 0;
    }
    if (size === 0) first = index + 1;
    rows += size;
  }
  if (first < sizes.length) yield { start: start + first * step, step, count: sizes.length - first };
}

const includePrevious = ({ start, step, count }: Buckets): Buckets => ({
  start: start - step,
  step,
  count: count + 1,
});

/** A snapshot's rows, if it has any; then others get their turn. */
async function* yieldRows<Row>(rows: readonly Row[], signal: AbortSignal): AsyncGenerator<readonly Row[]> {
  if (rows.length > 0) yield rows;
  await nextTurn();
  signal.throwIfAborted();
}

function createTooManyRowsError(limit: number, wanted?: number): Refused {
  const told = wanted === undefined ? "" : ` (${wanted})`;
  const message = `More than ${limit} rows${told} would have to be read; narrow the range or the filters`;
  return new Refused("result_too_large", message, { limit, ...(wanted !== undefined && { wanted }) });
}
