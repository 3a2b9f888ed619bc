// A log store over the log stores of several backends. It answers as one store would that holds the lines of all: streams
// of whole milliseconds are merged, so order, pages and the parts of a crowded millisecond stay what they are.
import { combineSignals, mapAtOnce } from "../core/async/concurrency.ts";
import { BackendError } from "../core/errors.ts";
import { limitTies, mergeStreams } from "../core/line-order.ts";
import { addLineCounts, createLineCounts, type LineCounts } from "../core/line-tally.ts";
import type { LogLine } from "../core/rows.ts";
import { floorToMilli } from "../core/time.ts";
import type { LineCountQuery, LogQuery, LogSource, LogStore, SourcePlan } from "../store/logs.ts";

/** One place of a source's lines. */
interface LogPlace {
  readonly backend: string;
  readonly store: LogStore;
  /** As the backend reads it. */
  readonly source: LogSource;
}

export interface FederatedSource {
  readonly places: readonly LogPlace[];
  /** Whether a line with an id that an earlier place has too is a copy of that line. */
  readonly dedupe?: "id" | undefined;
}

/** A place of a query, and how its lines are told from those of other places. */
interface ReadPlace extends LogPlace {
  /** Stands before the ids of its lines: an earlier place may have the same ids. */
  readonly prefix: string;
  /** Its position among the places of a source whose copies are left out. */
  readonly rank: number;
  readonly isDeduplicated: boolean;
}

/**
 * `sources` are those of a site, by their ids. Queries may name only these. What is in `missing` backends is not read; the
 * lines of others have the ids that they have otherwise.
 */
export function createFederatedLogs(
  sources: ReadonlyMap<string, FederatedSource>,
  missing: ReadonlySet<string> = new Set(),
): LogStore {
  const listOwnPlaces = (id: string) =>
    listReadPlaces(sources.get(id)).filter(({ backend }) => !missing.has(backend));
  const listPlaces = (query: LogQuery) => {
    const places = query.sources.flatMap(({ id }) => listOwnPlaces(id));
    if (places.length === 0 && missing.size > 0) throw createNoPlaceError();
    return places;
  };
  return {
    lines(query, signal) {
      const places = listPlaces(query);
      const [only] = places;
      if (only === undefined || places.length > 1 || only.prefix !== "")
        return readLines(places, query, signal);
      return only.store.lines({ ...query, sources: [only.source] }, signal);
    },
    isWithinLimits: (query, signal) => areWithinLimits(listPlaces(query), query, signal),
    count: (query, signal) => countLines(listOwnPlaces(query.source.id), query, signal),
    explain: async (query, signal) =>
      (await mapAtOnce(listPlaces(query), (place, own) => explainPlace(place, query, own), signal)).flat(),
  };
}

/** No place is left of any source that is asked for: an empty answer would look whole. */
function createNoPlaceError(): BackendError {
  return new BackendError("federation", "unreachable", "no backend is left of the sources asked for");
}

function listReadPlaces(source: FederatedSource | undefined): readonly ReadPlace[] {
  const isDeduplicated = source?.dedupe === "id";
  return (source?.places ?? []).map((place, rank) => ({
    ...place,
    // No name of an index holds this character, and no name of a backend a slash, so no two ids become equal.
    prefix: rank === 0 || isDeduplicated ? "" : `${place.backend}|`,
    rank,
    isDeduplicated,
  }));
}

async function* readLines(
  places: readonly ReadPlace[],
  query: LogQuery,
  signal: AbortSignal,
): AsyncGenerator<readonly LogLine[]> {
  // A place that fails fails the answer, and nobody waits for the others.
  const failed = new AbortController();
  const both = combineSignals(signal, failed.signal);
  const budget = query.budget ?? { documents: 0 };
  const ranks = new WeakMap<LogLine, number>();
  // Places whose lines are copies of one another give as many lines as one of them.
  const parts = new Set(places.map((place) => (place.isDeduplicated ? place.source.id : place))).size;
  const own: LogQuery = { ...query, budget, expectedShare: 1 / parts };
  // Of equal lines the merge yields the one of the earlier stream first.
  const streams = places
    .toSorted((a, b) => a.rank - b.rank)
    .map((place) => readPlace(place, own, ranks, both, failed));
  const merged = mergeStreams(streams, query.order);
  const isDeduplicated = places.some((place) => place.isDeduplicated);
  yield* limitTies(isDeduplicated ? omitCopies(merged, places, ranks) : merged, query.tieLimit);
}

async function* readPlace(
  { store, source, prefix, rank, isDeduplicated }: ReadPlace,
  query: LogQuery,
  ranks: WeakMap<LogLine, number>,
  signal: AbortSignal,
  failed: AbortController,
): AsyncGenerator<readonly LogLine[]> {
  try {
    for await (const lines of store.lines({ ...query, sources: [source] }, signal)) {
      if (isDeduplicated && rank > 0) for (const line of lines) ranks.set(line, rank);
      yield prefix === "" ? lines : lines.map((line) => ({ ...line, id: prefix + line.id }));
    }
  } catch (error) {
    failed.abort(error);
    throw error;
  }
}

/**
 * Leaves out each line of which an earlier place has a copy: a line of the same id in the same millisecond, of which every
 * batch holds all.
 */
async function* omitCopies(
  batches: AsyncIterable<readonly LogLine[]>,
  places: readonly ReadPlace[],
  ranks: WeakMap<LogLine, number>,
): AsyncGenerator<readonly LogLine[]> {
  const deduplicated = new Set(
    places.flatMap(({ isDeduplicated, source }) => (isDeduplicated ? source.id : [])),
  );
  const readRank = (line: LogLine) => ranks.get(line) ?? 0;
  for await (const lines of batches) {
    const kept = new Map<string, LogLine>();
    for (const line of lines) {
      if (!deduplicated.has(line.source_id)) continue;
      const key = formatCopyKey(line);
      const other = kept.get(key);
      if (other === undefined || readRank(line) < readRank(other)) kept.set(key, line);
    }
    yield lines.filter((line) => !deduplicated.has(line.source_id) || kept.get(formatCopyKey(line)) === line);
  }
}

function formatCopyKey({ time, source_id, id }: LogLine): string {
  return `${floorToMilli(time)} ${JSON.stringify([source_id, id])}`;
}

/** Whether the documents of all places together are within the limits. */
async function areWithinLimits(
  places: readonly ReadPlace[],
  query: LogQuery,
  signal: AbortSignal,
): Promise<boolean> {
  const budget = query.budget ?? { documents: 0 };
  const isWithin = async ({ store, source }: ReadPlace, own: AbortSignal): Promise<boolean> =>
    (await store.isWithinLimits?.({ ...query, sources: [source], budget }, own)) ?? false;
  return (await mapAtOnce(places, isWithin, signal)).every(Boolean);
}

/** Where copies are left out, only reading finds them. */
async function countLines(
  places: readonly ReadPlace[],
  query: LineCountQuery,
  signal: AbortSignal,
): Promise<LineCounts | undefined> {
  if (places.some(({ isDeduplicated }) => isDeduplicated)) return undefined;
  const count = async ({ store, source }: ReadPlace, own: AbortSignal) =>
    store.count?.({ ...query, source }, own);
  const all = await mapAtOnce(places, count, signal);
  const sum = createLineCounts(query.hasGroupBuckets === true);
  for (const counts of all) {
    if (counts === undefined) return undefined;
    addLineCounts(sum, counts);
  }
  return sum;
}

async function explainPlace(
  { backend, store, source, rank, isDeduplicated }: ReadPlace,
  query: LogQuery,
  signal: AbortSignal,
): Promise<readonly SourcePlan[]> {
  const plans = (await store.explain?.({ ...query, sources: [source] }, signal)) ?? [];
  const copies =
    isDeduplicated && rank > 0 ? ["lines of which an earlier backend has the id are left out"] : [];
  return plans.map((plan) => ({ ...plan, backend, notes: [...plan.notes, ...copies] }));
}
