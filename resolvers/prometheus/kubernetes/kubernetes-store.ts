// Kubernetes rows from Prometheus. What is asked is in questions.ts, how the answers become rows in pods.ts, usage.ts
// and nodes.ts; here is the reading: rows are counted first, so that a too large answer never burdens the source, and
// read in slices of bounded size, each with the snapshot before it for the deltas.
import { setImmediate as nextTurn } from "node:timers/promises";
import { parallel } from "../../../src/core/concurrency.ts";
import { Refused } from "../../../src/core/errors.ts";
import type { Buckets, NodesRow, PodOverviewRow, PodsRow } from "../../../src/core/rows.ts";
import { type Millis, minute } from "../../../src/core/time.ts";
import { comparePods, minutesOf, overviewFilter, podFilter } from "../../../src/store/kubernetes-rules.ts";
import type {
  KubernetesStore,
  Match,
  NodeFilter,
  OverviewFilter,
  OverviewQuery,
  PodFilter,
  SnapshotQuery,
} from "../../../src/store/store.ts";
import type { Door, Habits, Moments } from "../client/client.ts";
import type { Expression } from "../client/promql.ts";
import type { Fold } from "../client/response-scanner.ts";
import { isInterface, readRestarted, successions } from "./network.ts";
import { nodeRows } from "./node-usage.ts";
import { nameKey, overviewRows, presentPods } from "./pod-state.ts";
import { podRows } from "./pod-usage.ts";
import {
  askFigures,
  askIdentity,
  askNodes,
  askState,
  countNodes,
  countPods,
  freshness,
  listPods,
  type PodScope,
  type Wall,
} from "./queries.ts";
import { type Answers, layOver, type Track } from "./snapshot-series.ts";

export type Source = Pick<Door, "query" | "habits">;

/** Snapshots of one request; a source answers at most 11,000. */
const chunkSnapshots = 10_000;
/** Rows that one slice reads, and pods that a list of them reads, at a time. */
const sliceRows = 5_000;
const listedPods = 100_000;
/** Questions of one answer that are under way together: the source has others to serve. */
const askedAtOnce = 6;
/** Windows that a range is looked through by, and pods × minutes that are read together. */
const mostTiles = 200;
const groupedMoments = 100_000;
/** Names that are sent as a filter; with more the filter is applied to what comes back. */
const mostNames = 250;

export function createKubernetesStore(source: Source): KubernetesStore {
  return {
    nodes: (query, signal) => readNodes(source, query, signal),
    pods: (query, signal) => readPods(source, query, signal),
    overview: (query, signal) => readOverview(source, query, signal),
  };
}

async function* readNodes(
  source: Source,
  query: SnapshotQuery & NodeFilter,
  signal: AbortSignal,
): AsyncGenerator<readonly NodesRow[]> {
  const { match, snapshots, rowLimit, node } = query;
  const wall = await wallOf(source, match, signal);
  const { largest, sum } = await countMoments(source, countNodes(wall), query, signal);
  const least = total(node === undefined ? largest : largest.map((size) => Math.min(size, 1)));
  if (least > rowLimit) throw tooLarge(rowLimit, least);
  const rows = joinNodes(source, wall, query, slices(snapshots, largest, sliceRows), signal);
  // Several sources may tell of more nodes together than each alone. Nothing is sent before that is known.
  yield* node === undefined && sum > rowLimit ? heldWithin(rows, rowLimit) : rows;
}

type WallOf = Wall & Pick<Habits, "hidesRestarts">;

/** What a source that hides restarts would look through many samples for, and find none. */
const unasked = { restarts: undefined };

async function wallOf(source: Source, match: Match, signal: AbortSignal): Promise<WallOf> {
  return { match, ...(await source.habits(signal)) };
}

async function* joinNodes(
  source: Source,
  wall: WallOf,
  { node }: NodeFilter,
  parts: Iterable<Buckets>,
  signal: AbortSignal,
): AsyncGenerator<readonly NodesRow[]> {
  for (const slice of parts) {
    const moments = withBefore(slice);
    const questions = { ...askNodes(wall, moments.step), ...(wall.hidesRestarts && unasked) };
    const answers = await askAll(source, questions, moments, signal);
    const { restarts, roots, exporters, otel } = answers;
    const read = wall.hidesRestarts ? [...roots, ...exporters, ...otel].filter(isInterface) : restarts;
    const restarted = await readRestarted(source, wall, "nodes", read, moments, signal);
    for (let index = 1; index < moments.count; index += 1) {
      const rows = nodeRows(answers, restarted, moments, index);
      yield* turn(node === undefined ? rows : rows.filter(({ node_name }) => node_name === node), signal);
    }
  }
}

async function* heldWithin<Row>(
  batches: AsyncIterable<readonly Row[]>,
  rowLimit: number,
): AsyncGenerator<readonly Row[]> {
  const held: (readonly Row[])[] = [];
  let count = 0;
  for await (const batch of batches) {
    count += batch.length;
    if (count > rowLimit) throw tooLarge(rowLimit);
    held.push(batch);
  }
  yield* held;
}

async function* readPods(
  source: Source,
  query: SnapshotQuery & PodFilter,
  signal: AbortSignal,
): AsyncGenerator<readonly PodsRow[]> {
  const wall = await wallOf(source, query.match, signal);
  const scope: PodScope = {
    namespaces: query.namespaces.length > mostNames ? [] : query.namespaces,
    pods: query.pod === undefined ? [] : [query.pod],
  };
  const accepts = podFilter(query);
  const { largest: sizes, sum } = await countMoments(source, [countPods(wall, scope)], query, signal);
  if (sum > query.rowLimit) throw tooLarge(query.rowLimit, sum);
  for (const slice of slices(query.snapshots, sizes, sliceRows)) {
    const moments = withBefore(slice);
    const figures = { ...askFigures(wall, scope, moments.step), ...(wall.hidesRestarts && unasked) };
    const questions = { ...askState(wall, scope), ...figures };
    const answers = await askAll(source, questions, moments, signal);
    const { restarts, podInterfaces, otelInterfaces } = answers;
    const read = wall.hidesRestarts
      ? [...podInterfaces, ...otelInterfaces]
      : [...restarts, ...successions(podInterfaces, moments)];
    const restarted = await readRestarted(source, wall, "pods", read, moments, signal);
    const present = presentPods(answers, moments);
    await nextTurn();
    const rows = podRows(answers, restarted, moments);
    for (let index = 1; index < moments.count; index += 1) {
      yield* turn(rows(present(index), index).filter(accepts), signal);
    }
  }
}

/**
 * Each pod when it was seen last. When that was is found first, for names alone; then pods are read in the order of
 * their rows, all that are there at the end in one go.
 */
async function* readOverview(
  source: Source,
  query: OverviewQuery & OverviewFilter,
  signal: AbortSignal,
): AsyncGenerator<readonly PodOverviewRow[]> {
  const wall = await wallOf(source, query.match, signal);
  const namespaces = query.namespaces.length > mostNames ? [] : query.namespaces;
  const scope: PodScope = { namespaces, pods: [] };
  const accepts = overviewFilter(query);
  const end: Buckets = { start: query.to, step: minute, count: 1 };
  const present = await listSeen(source, wall, scope, end, freshness, signal);
  const gone = (await findGone(source, wall, scope, query, signal)).filter(({ key }) => !present.has(key));
  const seen = present.size + gone.length;
  if (seen > query.rowLimit) throw tooLarge(query.rowLimit, seen);
  const parts = [...groups(gone)].map((pods) => ({ scope: scopeOf(pods), minutes: spanOf(pods), pods }));
  if (present.size > 0) parts.push({ scope, minutes: end, pods: [...present.values()] });
  for (const { scope, minutes, pods } of parts) {
    const questions = { ...askState(wall, scope), ...askIdentity(wall, scope) };
    const answers = await askAll(source, questions, minutes, signal);
    const presentAt = presentPods(answers, minutes);
    const rowsOf = overviewRows(answers);
    const lastOf = new Map(pods.map(({ key, last }) => [key, last]));
    for (let index = 0; index < minutes.count; index += 1) {
      const time = minutes.start + index * minutes.step;
      const ending = presentAt(index).filter((pod) => lastOf.get(nameKey(pod.namespace, pod.name)) === time);
      yield* turn(rowsOf(ending, index).filter(accepts).sort(comparePods), signal);
    }
  }
}

/** A pod, with the first and the last of the minutes of which one is the last that has it. */
interface Seen {
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
async function findGone(
  source: Source,
  wall: Wall,
  scope: PodScope,
  range: OverviewQuery,
  signal: AbortSignal,
): Promise<readonly Seen[]> {
  const minutes = minutesOf(range);
  if (minutes === undefined) return [];
  const end = minutes.start + (minutes.count - 1) * minute;
  const step = Math.ceil(minutes.count / mostTiles) * minute;
  const tiled = Math.floor(end / step) * step;
  const start = Math.ceil(minutes.start / step) * step;
  const tiles = { start, step, count: (tiled - start) / step + 1 };
  const list = (window: Buckets, length: Millis): Promise<ReadonlyMap<string, Seen>> =>
    listSeen(source, wall, scope, window, freshness + length - minute, signal);
  const found = new Map<string, Seen>();
  if (tiles.count > 0) {
    const count = countPods(wall, scope, freshness + step - minute);
    const { largest } = await countMoments(source, [count], { snapshots: tiles }, signal);
    for (const slice of slices(tiles, largest, listedPods)) {
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
  const pods = [...found.values()].sort(compareSeen);
  if (step === minute) return pods;
  const exact = new Map<string, Seen>();
  for (const group of groups(pods)) {
    const keys = new Set(group.map(({ key }) => key));
    const listed = await listSeen(source, wall, scopeOf(group), spanOf(group), freshness, signal);
    for (const [key, pod] of listed) if (keys.has(key)) exact.set(key, pod);
  }
  return [...exact.values()].sort(compareSeen);
}

function compareSeen(a: Seen, b: Seen): number {
  return comparePods(
    { timestamp: a.last, pod_namespace: a.namespace, pod_name: a.name },
    { timestamp: b.last, pod_namespace: b.namespace, pod_name: b.name },
  );
}

/** The pods of some moments, with the last moment that has each. */
function listSeen(
  source: Source,
  wall: Wall,
  scope: PodScope,
  moments: Buckets,
  reach: Millis,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, Seen>> {
  const fold = (): Fold<ReadonlyMap<string, Seen>> => {
    const found = new Map<string, Seen>();
    return {
      series: ({ labels: { namespace = "", pod: name = "" }, times }) => {
        const last = times.at(-1);
        const key = nameKey(namespace, name);
        if (last !== undefined) found.set(key, { key, namespace, name, first: last, last });
      },
      result: () => found,
    };
  };
  return source.query(listPods(wall, scope, reach), momentsOf(moments), fold, signal);
}

/** Pods, in order, whose minutes lie close enough for one request. */
function* groups(pods: readonly Seen[]): Generator<readonly Seen[]> {
  let group: Seen[] = [];
  for (const pod of pods) {
    const { count } = spanOf([...group.slice(0, 1), pod]);
    const full = group.length === mostNames || (group.length + 1) * count > groupedMoments;
    if (group.length > 0 && (full || count > chunkSnapshots)) {
      yield group;
      group = [];
    }
    group.push(pod);
  }
  if (group.length > 0) yield group;
}

/** From the first minute of the first pod to the last one of the last. */
function spanOf(pods: readonly Seen[]): Buckets {
  const start = pods[0]?.first ?? 0;
  return { start, step: minute, count: ((pods.at(-1)?.last ?? start) - start) / minute + 1 };
}

const scopeOf = (pods: readonly Seen[]): PodScope => ({
  namespaces: [...new Set(pods.map(({ namespace }) => namespace))],
  pods: [...new Set(pods.map(({ name }) => name))],
});

// ---- Asking -------------------------------------------------------------------------------------------------

async function askAll<Name extends string>(
  source: Source,
  questions: Readonly<Record<Name, Expression | undefined>>,
  snapshots: Buckets,
  signal: AbortSignal,
): Promise<Answers<Name>> {
  const ask = async (name: Name, either: AbortSignal): Promise<readonly [Name, readonly Track[]]> => {
    const question = questions[name];
    if (question === undefined) return [name, []];
    return [name, await source.query(question, momentsOf(snapshots), layOver(snapshots), either)];
  };
  const answers = await parallel(Object.keys(questions) as Name[], askedAtOnce, ask, signal);
  return Object.fromEntries(answers) as Answers<Name>;
}

function momentsOf({ start, step, count }: Buckets): Moments {
  return count === 1 ? { at: start } : { start, end: start + (count - 1) * step, step };
}

// ---- Counting and slicing -----------------------------------------------------------------------------------

/** For each snapshot the largest of the counts, and the sum of all. */
async function countMoments(
  source: Source,
  counts: readonly Expression[],
  { snapshots: { start, step, count } }: Pick<SnapshotQuery, "snapshots">,
  signal: AbortSignal,
): Promise<{ readonly largest: Float64Array; readonly sum: number }> {
  const largest = new Float64Array(count);
  let sum = 0;
  for (let first = 0; first < count; first += chunkSnapshots) {
    const chunk = { start: start + first * step, step, count: Math.min(chunkSnapshots, count - first) };
    const answers = await Promise.all(
      counts.map((expression) => source.query(expression, momentsOf(chunk), layOver(chunk), signal)),
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

const total = (sizes: Float64Array): number => sizes.reduce((sum, size) => sum + size, 0);

/** Runs of snapshots that have rows, each of about `most` rows and at most a chunk. */
function* slices({ start, step }: Buckets, sizes: Float64Array, most: number): Generator<Buckets> {
  let first = 0;
  let rows = 0;
  for (const [index, size] of sizes.entries()) {
    const full = rows + size > most || index - first >= chunkSnapshots;
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

const withBefore = ({ start, step, count }: Buckets): Buckets => ({
  start: start - step,
  step,
  count: count + 1,
});

/** A snapshot's rows, if it has any; then others get their turn. */
async function* turn<Row>(rows: readonly Row[], signal: AbortSignal): AsyncGenerator<readonly Row[]> {
  if (rows.length > 0) yield rows;
  await nextTurn();
  signal.throwIfAborted();
}

function tooLarge(limit: number, wanted?: number): Refused {
  const told = wanted === undefined ? "" : ` (${wanted})`;
  const message = `More than ${limit} rows${told} would have to be read; narrow the range or the filters`;
  return new Refused("result_too_large", message, { limit, ...(wanted !== undefined && { wanted }) });
}
