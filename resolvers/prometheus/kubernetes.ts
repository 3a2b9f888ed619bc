// Kubernetes rows from Prometheus. What is asked is in questions.ts, how the answers become rows in pods.ts, usage.ts
// and nodes.ts; here is the reading: rows are counted first, so that a too large answer never burdens the source, and
// read in slices of bounded size, each with the snapshot before it for the deltas.
import { setImmediate as nextTurn } from "node:timers/promises";
import { Refused } from "../../src/errors.ts";
import { comparePods, overviewFilter, podFilter } from "../../src/kubernetes.ts";
import type { Buckets, NodesRow, PodOverviewRow, PodsRow } from "../../src/model.ts";
import type {
  KubernetesStore,
  NodeFilter,
  OverviewFilter,
  PodFilter,
  SnapshotQuery,
} from "../../src/store.ts";
import type { Millis } from "../../src/time.ts";
import type { Fold } from "./answer.ts";
import type { Door, Moments } from "./door.ts";
import { readRestarted, successions } from "./network.ts";
import { nodeRows } from "./nodes.ts";
import { overviewRows, presentPods } from "./pods.ts";
import type { Expression } from "./promql.ts";
import {
  askFigures,
  askIdentity,
  askNodes,
  askState,
  countNodes,
  countPods,
  listPods,
  type PodScope,
  type Questions,
  type Wall,
} from "./questions.ts";
import { type Answers, layOver, type Track } from "./tracks.ts";
import { podRows } from "./usage.ts";

export type Source = Pick<Door, "query" | "edge">;

/** Snapshots of one request; a source answers at most 11,000. */
const chunkSnapshots = 10_000;
/** Rows that one slice reads, and pods that a list of them reads, at a time. */
const sliceRows = 5_000;
const listedPods = 100_000;
/** Questions of one answer that are under way together: the source has others to serve. */
const askedAtOnce = 6;
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
  const wall = { match, edge: await source.edge(signal) };
  const { largest, sum } = await countMoments(source, countNodes(wall), query, signal);
  const least = total(node === undefined ? largest : largest.map((size) => Math.min(size, 1)));
  if (least > rowLimit) throw tooLarge(rowLimit, least);
  const rows = joinNodes(source, wall, query, slices(snapshots, largest, sliceRows), signal);
  // Several sources may tell of more nodes together than each alone. Nothing is sent before that is known.
  yield* node === undefined && sum > rowLimit ? heldWithin(rows, rowLimit) : rows;
}

async function* joinNodes(
  source: Source,
  wall: Wall,
  { node }: NodeFilter,
  parts: Iterable<Buckets>,
  signal: AbortSignal,
): AsyncGenerator<readonly NodesRow[]> {
  for (const slice of parts) {
    const moments = withBefore(slice);
    const answers = await askAll(source, askNodes(wall, moments.step), moments, signal);
    const restarted = await readRestarted(source, wall, "nodes", answers.restarts, moments, signal);
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
  const wall = { match: query.match, edge: await source.edge(signal) };
  const scope: PodScope = {
    namespaces: query.namespaces.length > mostNames ? [] : query.namespaces,
    pods: query.pod === undefined ? [] : [query.pod],
  };
  const accepts = podFilter(query);
  const { largest: sizes, sum } = await countMoments(source, [countPods(wall, scope)], query, signal);
  if (sum > query.rowLimit) throw tooLarge(query.rowLimit, sum);
  for (const slice of slices(query.snapshots, sizes, sliceRows)) {
    const moments = withBefore(slice);
    const questions = { ...askState(wall, scope), ...askFigures(wall, scope, moments.step) };
    const answers = await askAll(source, questions, moments, signal);
    const restarts = [...answers.restarts, ...successions(answers.podInterfaces, moments)];
    const restarted = await readRestarted(source, wall, "pods", restarts, moments, signal);
    const present = presentPods(answers, moments);
    await nextTurn();
    const rows = podRows(answers, restarted, moments);
    for (let index = 1; index < moments.count; index += 1) {
      yield* turn(rows(present(index), index).filter(accepts), signal);
    }
  }
}

/**
 * Each pod at its last snapshot. Which snapshot that is, is found first, for names alone; then pods are read in the
 * order of their rows, all that are still there at the very last snapshot in one go.
 */
async function* readOverview(
  source: Source,
  query: SnapshotQuery & OverviewFilter,
  signal: AbortSignal,
): AsyncGenerator<readonly PodOverviewRow[]> {
  const wall = { match: query.match, edge: await source.edge(signal) };
  const namespaces = query.namespaces.length > mostNames ? [] : query.namespaces;
  const scope: PodScope = { namespaces, pods: [] };
  const accepts = overviewFilter(query);
  const seen = await findLast(source, wall, scope, query, signal);
  if (seen.length > query.rowLimit) throw tooLarge(query.rowLimit, seen.length);
  const { start, step, count } = query.snapshots;
  const end = start + (count - 1) * step;
  const gone = seen.filter(({ last }) => last < end);
  const groups: Group[] = [...groupGone(gone, step)];
  if (gone.length < seen.length) groups.push({ scope, pods: seen.slice(gone.length) });
  for (const { scope: whole, pods } of groups) {
    const names: PodScope = whole ?? {
      namespaces: [...new Set(pods.map(({ namespace }) => namespace))],
      pods: [...new Set(pods.map(({ name }) => name))],
    };
    const first = pods[0]?.last ?? end;
    const moments = { start: first, step, count: ((pods.at(-1)?.last ?? end) - first) / step + 1 };
    const answers = await askAll(
      source,
      { ...askState(wall, names), ...askIdentity(wall, names) },
      moments,
      signal,
    );
    const present = presentPods(answers, moments);
    const rowsOf = overviewRows(answers);
    const lastOf = new Map(pods.map(({ namespace, name, last }) => [`${namespace}/${name}`, last]));
    for (let index = 0; index < moments.count; index += 1) {
      const time = first + index * step;
      const ending = present(index).filter(
        ({ namespace, name }) => lastOf.get(`${namespace}/${name}`) === time,
      );
      yield* turn(rowsOf(ending, index).filter(accepts).sort(comparePods), signal);
    }
  }
}
/** Pods that are read together: all of a scope, or these by name. */
interface Group {
  readonly scope: PodScope | undefined;
  readonly pods: readonly Seen[];
}

/** Pods whose last snapshots lie close enough for one request. */
function* groupGone(gone: readonly Seen[], step: Millis): Generator<Group> {
  let pods: Seen[] = [];
  for (const pod of gone) {
    const span = pods[0] === undefined ? 0 : (pod.last - pods[0].last) / step;
    if (pods.length === mostNames || span >= chunkSnapshots) {
      yield { scope: undefined, pods };
      pods = [];
    }
    pods.push(pod);
  }
  if (pods.length > 0) yield { scope: undefined, pods };
}

interface Seen {
  readonly namespace: string;
  readonly name: string;
  readonly last: Millis;
}

/** Every pod with the last snapshot that it is in, in the order of rows. */
async function findLast(
  source: Source,
  wall: Wall,
  scope: PodScope,
  query: SnapshotQuery,
  signal: AbortSignal,
): Promise<readonly Seen[]> {
  const { largest: sizes } = await countMoments(source, [countPods(wall, scope)], query, signal);
  const pods = new Map<string, Seen>();
  for (const slice of slices(query.snapshots, sizes, listedPods)) {
    const fold = (): Fold<readonly Seen[]> => {
      const found: Seen[] = [];
      return {
        series: ({ labels: { namespace = "", pod: name = "" }, times }) => {
          const last = times.at(-1);
          if (last !== undefined) found.push({ namespace, name, last });
        },
        result: () => found,
      };
    };
    for (const pod of await source.query(listPods(wall, scope), momentsOf(slice), fold, signal)) {
      pods.set(`${pod.namespace}/${pod.name}`, pod);
    }
  }
  return [...pods.values()].sort((a, b) =>
    comparePods(
      { timestamp: a.last, pod_namespace: a.namespace, pod_name: a.name },
      { timestamp: b.last, pod_namespace: b.namespace, pod_name: b.name },
    ),
  );
}

// ---- Asking -------------------------------------------------------------------------------------------------

async function askAll<Name extends string>(
  source: Source,
  questions: Questions<Name>,
  snapshots: Buckets,
  signal: AbortSignal,
): Promise<Answers<Name>> {
  // The first failure ends the others.
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  const names = Object.keys(questions) as Name[];
  const answers = new Map<string, readonly Track[]>();
  const ask = async (): Promise<void> => {
    for (let name = names.shift(); name !== undefined; name = names.shift()) {
      answers.set(
        name,
        await source.query(questions[name], momentsOf(snapshots), layOver(snapshots), either),
      );
    }
  };
  try {
    await Promise.all(Array.from({ length: askedAtOnce }, ask));
    return Object.fromEntries(answers) as Answers<Name>;
  } catch (error) {
    failed.abort(error);
    throw error;
  }
}

function momentsOf({ start, step, count }: Buckets): Moments {
  return count === 1 ? { at: start } : { start, end: start + (count - 1) * step, step };
}

// ---- Counting and slicing -----------------------------------------------------------------------------------

/** For each snapshot the largest of the counts, and the sum of all. */
async function countMoments(
  source: Source,
  counts: readonly Expression[],
  { snapshots: { start, step, count } }: SnapshotQuery,
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
