// Reads the range of a listing window by window. A page is mostly found in the first part of the range, or among the longest
// or shortest requests. Only the rows of a window are read in full; other entries of their traces are looked up.

import { floorToMilli, fromMillis, type Instant, second, type TimeRange } from "../../core/time.ts";
import type { ListingQuery } from "../../store/span-analytics.ts";
import type { SpanPushdown, SpanReader } from "../../store/spans.ts";
import {
  createBudgetShare,
  idsPerBudgetUnit,
  suppressShareSpent,
  trackBudget,
} from "../spans/read-budget.ts";
import {
  type Candidate,
  type DurationBounds,
  formatRowKey,
  isInRange,
  isWithinBounds,
  type Listing,
  listAllFailedTraceIds,
  listFailedTraceIds,
  type ReadRows,
  readAllErrors,
  readErrorsOfDuration,
  readErrorsOfTraces,
  readRequestsOfDuration,
  readRows,
} from "./candidates.ts";

/** The chosen rows of the listing, in groups that follow each other in its order. Rows of a group are in no order. */
export async function* readInOrder(
  reader: SpanReader,
  query: Listing,
  signal: AbortSignal,
): AsyncGenerator<readonly Candidate[]> {
  const { by, candidates, traceIds } = query;
  if (by === "time" && traceIds === undefined) {
    yield* readByTime(reader, query, signal);
    return;
  }
  if (traceIds !== undefined) {
    yield* yieldWindow(query, (held) => readRows(reader, held, query.range, signal));
    return;
  }
  if (candidates === "requests") {
    yield* readByDuration(reader, query, signal);
    return;
  }
  yield* readErrorsByDuration(reader, query, signal);
}

/** Yields the rows of a window, whose spans are held until the next rows are asked for, and returns them. */
async function* yieldWindow(
  query: Listing,
  read: (query: Listing) => Promise<readonly Candidate[]>,
): AsyncGenerator<readonly Candidate[], readonly Candidate[]> {
  const { budget } = query;
  const held = budget.held?.openPart();
  try {
    const rows = await read({ ...query, budget: { ...budget, held } });
    yield rows;
    return rows;
  } finally {
    held?.release();
  }
}

// ---- Windows of time ------------------------------------------------------------------------------------------

const firstWindow: bigint = fromMillis(second);
const maxWindowGrowth = 16;
/** Parts of a range differ in how many rows they have. */
const rowsMargin = 1.25;
/** The percentage of the budget that may be spent on searching the requests of windows for errors. */
const windowBudgetPercent = 25;
/** So many documents are read in less time than failed traces are listed. */
const maxReadsWithoutListing = 1_000;
/** Documents that are read in the time in which a failed trace is listed, looked up and read. */
const readsPerFailedTrace = 2;

/** Each window is as long as those before suggest for the rest of a page. */
async function* readByTime(
  reader: SpanReader,
  query: Listing,
  signal: AbortSignal,
): AsyncGenerator<readonly Candidate[]> {
  const { order, candidates } = query;
  const { budget, spent } = trackBudget(query.budget);
  let rest: TimeRange | undefined = deriveRemainingRange(query);
  const done = { length: 0n, rows: 0 };
  let listedAt = maxReadsWithoutListing;
  let failed: readonly string[] | undefined;
  const all = rest;
  const read: ReadRows = {
    keys: new Set(),
    isRead: ({ time }) =>
      all !== undefined && rest !== undefined && isInRange(time, all) && !isInRange(time, rest),
  };
  for (let size = firstWindow; rest !== undefined; ) {
    const window = cutWindow(rest, size, order);
    if (candidates === "errors" && failed === undefined && done.length > 0n) {
      const reads = estimateReads(query, rest, done, spent());
      if (reads >= listedAt) {
        failed = await listFewFailedTraceIds(reader, query, reads, signal);
        // A list that was too long stays so until there is far more to read.
        listedAt = reads * 4;
      }
      const next = (spent() * Number(measureLength(window))) / Number(done.length);
      if (failed === undefined && spent() + next > (budget.limit * windowBudgetPercent) / 100) {
        // Few requests fail: all exceptions together cost less than the requests that would have to be read.
        failed = await listAllFailedTraceIds(reader, query, signal);
        if (failed === undefined) {
          const last = rest;
          yield* yieldWindow({ ...query, read }, (held) => readAllErrors(reader, held, last, signal));
          return;
        }
      }
    }
    const ofTraces = failed;
    const rows = yield* yieldWindow({ ...query, budget, read }, (held) =>
      ofTraces === undefined
        ? readRows(reader, held, window, signal)
        : readErrorsOfTraces(reader, held, ofTraces, window, signal),
    );
    for (const row of rows) read.keys.add(formatRowKey(query, row));
    done.length += measureLength(window);
    done.rows += rows.length;
    size *= BigInt(deriveGrowth(query.expectedRows, done.rows, rows.length));
    rest = removeWindow(rest, window, order);
  }
}

/** How many times as long the next window is, so that it has the rest of the page, or another page. */
function deriveGrowth(expected: number, found: number, rows: number): number {
  const missing = Math.min(rowsMargin * countMissing(expected, found), expected);
  if (rows === 0) return maxWindowGrowth;
  // Whoever reads on after a page wants more than pages of this length.
  const least = found < expected ? 1 : 2;
  return Math.min(Math.max(least, Math.ceil(missing / rows)), maxWindowGrowth);
}

/** How many rows the page lacks, or the page after it. */
function countMissing(expected: number, found: number): number {
  return found < expected ? expected - found : expected;
}

/** How many documents further windows would read: for the rest of a page, or of the range if that is less. */
function estimateReads(
  { expectedRows }: Listing,
  rest: TimeRange,
  done: { readonly length: bigint; readonly rows: number },
  spent: number,
): number {
  const ofRange = (spent * Number(measureLength(rest))) / Number(done.length);
  const ofPage =
    done.rows === 0 ? Number.POSITIVE_INFINITY : (spent * Math.max(expectedRows - done.rows, 1)) / done.rows;
  return Math.min(ofRange, ofPage);
}

/** The traces with exceptions of all times; undefined where reading so many documents costs less than their list. */
async function listFewFailedTraceIds(
  reader: SpanReader,
  query: Listing,
  reads: number,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  const budget = createBudgetShare(query.budget, Math.ceil(reads / readsPerFailedTrace / idsPerBudgetUnit));
  return suppressShareSpent(listAllFailedTraceIds(reader, { ...query, budget }, signal));
}

function measureLength({ from, to }: TimeRange): bigint {
  return to - from + 1n;
}

/** The part of the range beyond the page position. Undefined where nothing is left. */
function deriveRemainingRange({ range: { from, to }, beyond, order }: ListingQuery): TimeRange | undefined {
  if (beyond === undefined) return toRange(from, to);
  return order === "asc"
    ? toRange(beyond + 1n > from ? beyond + 1n : from, to)
    : toRange(from, beyond - 1n < to ? beyond - 1n : to);
}

function removeWindow(
  { from, to }: TimeRange,
  window: TimeRange,
  order: ListingQuery["order"],
): TimeRange | undefined {
  return order === "asc" ? toRange(window.to + 1n, to) : toRange(from, window.from - 1n);
}

function toRange(from: bigint, to: bigint): TimeRange | undefined {
  return from <= to ? { from: from as Instant, to: to as Instant } : undefined;
}

/** The first part of the range, in whole milliseconds, so that no tie is split. */
function cutWindow({ from, to }: TimeRange, size: bigint, order: ListingQuery["order"]): TimeRange {
  if (order === "asc") {
    const end = floorToMilli((from + size) as Instant) - 1n;
    return { from, to: (end < to ? end : to) as Instant };
  }
  const start = floorToMilli((to - size) as Instant);
  return { from: start > from ? start : from, to };
}

// ---- Windows of durations -------------------------------------------------------------------------------------

/** The greatest `nth` of a split point. */
const maxSplitPointRank = 10_000;

/** Each window is cut where the store says that enough requests lie before it. */
async function* readByDuration(
  reader: SpanReader,
  query: Listing,
  signal: AbortSignal,
): AsyncGenerator<readonly Candidate[]> {
  const { order } = query;
  const all = deriveBounds(query);
  let rest = all;
  const read = createReadDurations(all, () => rest);
  for (let nth = Math.min(Math.max(2 * query.expectedRows, 100), maxSplitPointRank); ; ) {
    if (rest.max !== undefined && rest.max < rest.min) return;
    const cut = await findCut(reader, query, rest, nth, signal);
    const window = cut === undefined ? rest : cutDurations(rest, cut, order);
    const rows = yield* yieldWindow({ ...query, read }, (held) =>
      readRequestsOfDuration(reader, held, window, signal),
    );
    if (cut === undefined) return;
    for (const row of rows) read.keys.add(formatRowKey(query, row));
    rest = removeDurations(rest, cut, order);
    nth = Math.min(nth * 4, maxSplitPointRank);
  }
}

function createReadDurations(all: DurationBounds, deriveRest: () => DurationBounds): ReadRows {
  return {
    keys: new Set(),
    isRead: ({ duration }) => isWithinBounds(duration, all) && !isWithinBounds(duration, deriveRest()),
  };
}

/** So many windows are read in the time in which all errors of the range are. */
const windowsPerRange = 6;

/** Windows as of requests, as long as a few of them have a page; then all other errors at once. */
async function* readErrorsByDuration(
  reader: SpanReader,
  query: Listing,
  signal: AbortSignal,
): AsyncGenerator<readonly Candidate[]> {
  const { range, order, expectedRows } = query;
  const all = deriveBounds(query);
  let rest = all;
  const read = createReadDurations(all, () => rest);
  let cut = await findCut(reader, query, rest, maxSplitPointRank, signal);
  const failed =
    cut === undefined
      ? await listFailedTraceIds(reader, query, signal)
      : await listAllFailedTraceIds(reader, query, signal);
  if (failed === undefined) {
    yield* yieldWindow(query, (held) => readRows(reader, held, range, signal));
    return;
  }
  if (failed.length < expectedRows * windowsPerRange) cut = undefined;
  for (let found = 0; ; ) {
    const window = cut === undefined ? rest : cutDurations(rest, cut, order);
    const rows = yield* yieldWindow({ ...query, read }, (held) =>
      readErrorsOfDuration(reader, held, failed, window, signal),
    );
    if (cut === undefined) return;
    for (const row of rows) read.keys.add(formatRowKey(query, row));
    found += rows.length;
    rest = removeDurations(rest, cut, order);
    const needsFew = rows.length * windowsPerRange >= countMissing(expectedRows, found);
    cut = needsFew ? await findCut(reader, query, rest, maxSplitPointRank, signal) : undefined;
  }
}

/** A duration within the bounds, with about `nth` requests before it. Undefined where the store knows none. */
async function findCut(
  reader: SpanReader,
  query: Listing,
  rest: DurationBounds,
  nth: number,
  signal: AbortSignal,
): Promise<bigint | undefined> {
  const { sources, range, budget, order } = query;
  const pushdown = { ...query.pushdown, ...narrowPastUnit(rest, order) };
  const scan = { sources, range, select: "entries", pushdown, budget } as const;
  const found = await reader.findSplitPoint?.({ ...scan, by: "duration", order, nth }, signal);
  return found !== undefined && isWithinBounds(found, rest) ? found : undefined;
}

/**
 * Where to search for a cut. A store may keep whole microseconds only, and finds all spans of the microsecond that a bound
 * lies in. These are read already, and may be more than a split point can count.
 */
function narrowPastUnit({ min, max }: DurationBounds, order: ListingQuery["order"]): SpanPushdown {
  const within = 999n;
  if (order === "asc") return { minDuration: min + within, maxDuration: max };
  return { minDuration: min, maxDuration: max === undefined || max < within ? max : max - within };
}

/** What the filter leaves, beyond the page position. */
function deriveBounds({ filter, beyond, order }: ListingQuery): DurationBounds {
  const all = { min: filter.minDuration ?? 0n, max: undefined };
  return beyond === undefined ? all : removeDurations(all, beyond, order);
}

/** The first part of the bounds, up to and with `cut`. */
function cutDurations(
  { min, max }: DurationBounds,
  cut: bigint,
  order: ListingQuery["order"],
): DurationBounds {
  return order === "asc" ? { min, max: cut } : { min: cut, max };
}

/** The rest of the bounds beyond `cut`. */
function removeDurations(
  { min, max }: DurationBounds,
  cut: bigint,
  order: ListingQuery["order"],
): DurationBounds {
  if (order === "asc") return { min: cut + 1n > min ? cut + 1n : min, max };
  return { min, max: max === undefined || cut - 1n < max ? cut - 1n : max };
}
