// The listing of traces, from the two primitives. A trace's row is chosen from all its candidates in the range before
// anything is cut; the range is read in windows, of time or of lengths, so that a page costs what it shows.
import { Refused } from "../../core/errors.ts";
import { compare, type Span, type TraceSummary } from "../../core/rows.ts";
import { allTime, floorToMilli, fromMillis, type Instant, second, type TimeRange } from "../../core/time.ts";
import type { ListingQuery } from "../../store/span-analytics.ts";
import type { SpanPushdown, SpanReader } from "../../store/spans.ts";
import { findEntriesWithNpo, formatEntryKey, loadAncestors, readAllSpans } from "../spans/entry-lookup.ts";
import { listExceptions, type SpanException } from "../spans/exceptions.ts";
import { trackBudget } from "../spans/read-budget.ts";
import { compareRequests, deriveNames, formatActionKey, isRequest, toSummaryRow } from "../spans/requests.ts";
import { deriveNarrowing, findNamedSpanId, findNamedTraceId } from "./pushdown.ts";
import { isRowAccepted, type TraceRow } from "./trace-query.ts";

interface Candidate {
  readonly row: TraceRow;
  readonly span: Span;
  /** The entry that the row tells of; absent where its site has none. */
  readonly entry: Span | undefined;
  /** The first exception that the filters accept; of errors. */
  readonly exception?: SpanException;
}

/** A query with what its filters say for sure. */
interface Listing extends ListingQuery {
  /** The only traces of which there can be rows; absent where any may be. */
  readonly traceIds?: readonly string[] | undefined;
  readonly pushdown: SpanPushdown;
}

/** Which of two candidates stands for their trace. */
function compareCandidates(a: Candidate, b: Candidate): number {
  if (a.exception === undefined || b.exception === undefined) return compareRequests(a.span, b.span);
  return compare(a.exception.time, b.exception.time) || compare(a.span.span_id, b.span.span_id);
}

/** Rows of a batch, but for the rest of its last millisecond or duration. */
const batchSize = 500;

/** `summaries` of the contract. */
export async function* listSummaries(
  reader: SpanReader,
  query: ListingQuery,
  signal: AbortSignal,
): AsyncGenerator<readonly TraceSummary[]> {
  const pushdown = deriveNarrowing(query.filter);
  const traceIds = await findNamedTraceIds(reader, query, signal);
  for await (const candidates of readInOrder(reader, { ...query, pushdown, traceIds }, signal)) {
    const sorted = candidates
      .filter(({ row }) => isBeyond(query, row))
      .sort((a, b) => compareRows(query, a.row, b.row));
    for (const batch of cutBetweenTies(sorted, query)) {
      const traceIds = listTraceIds(batch.map(({ row }) => row));
      const withNpo = await findEntriesWithNpo(reader, query.sources, traceIds, query.budget, signal);
      signal.throwIfAborted();
      yield batch.map(({ row, entry }) => ({
        ...row,
        has_npo: entry !== undefined && withNpo.has(formatEntryKey(entry)),
      }));
    }
  }
}

/** The traces that the filters name, by their ids or by a span's; undefined where they name none. */
async function findNamedTraceIds(
  reader: SpanReader,
  { sources, filter, budget }: ListingQuery,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  const traceId = findNamedTraceId(filter);
  if (traceId !== undefined) return [traceId];
  const spanId = findNamedSpanId(filter);
  if (spanId === undefined) return undefined;
  const of = { by: "id", spanIds: [spanId] } as const;
  return listTraceIds(await readAllSpans(reader.find({ sources, of, budget }, signal)));
}

// ---- Windows ------------------------------------------------------------------------------------------------
// By time a page is found in the first part of its range, so the range is read window by window, each as large as the
// ones before say that it must be. Only a window's own rows are read in full, and what competes with them for
// their trace's place is looked up.

const firstWindow: bigint = fromMillis(second);
const maxWindowGrowth = 16;
/** The part of the budget, in percent, that may go into looking for errors among the requests of windows. */
const windowBudgetPercent = 25;

/** The rows of the listing, chosen, in groups that follow each other in its order. */
async function* readInOrder(
  reader: SpanReader,
  query: Listing,
  signal: AbortSignal,
): AsyncGenerator<readonly Candidate[]> {
  const { by, order: direction, candidates, traceIds } = query;
  if (by === "duration" && candidates === "requests" && traceIds === undefined) {
    yield* readByDuration(reader, query, signal);
    return;
  }
  if (by === "duration" || traceIds !== undefined) {
    const failed = traceIds === undefined ? await listFailedTraceIds(reader, query, signal) : undefined;
    yield failed === undefined
      ? await readRows(reader, query, query.range, signal)
      : await readErrorsOfTraces(reader, query, failed, query.range, signal);
    return;
  }
  const { budget, spent } = trackBudget(query.budget);
  let rest: TimeRange | undefined = deriveRemainingRange(query);
  let passed = 0n;
  for (let size = firstWindow; rest !== undefined; ) {
    const window = cutWindow(rest, size, direction);
    const length = window.to - window.from + 1n;
    const expected = passed === 0n ? 0 : (spent() * Number(length)) / Number(passed);
    if (candidates === "errors" && spent() + expected > (budget.limit * windowBudgetPercent) / 100) {
      // Few requests fail: all exceptions that there are cost less than the requests that would have to be read.
      yield await readAllErrors(reader, query, rest, signal);
      return;
    }
    const rows = await readRows(reader, { ...query, budget }, window, signal);
    yield rows;
    passed += length;
    const missing = rows.length === 0 ? maxWindowGrowth : Math.ceil(query.expectedRows / rows.length);
    size *= BigInt(Math.min(missing, maxWindowGrowth));
    const left: TimeRange =
      direction === "asc"
        ? { from: (window.to + 1n) as Instant, to: rest.to }
        : { from: rest.from, to: (window.from - 1n) as Instant };
    rest = left.from <= left.to ? left : undefined;
  }
}

/** Lengths in nanoseconds, both bounds inclusive. */
interface DurationBounds {
  readonly min: bigint;
  readonly max: bigint | undefined;
}
const maxSplitPointRank = 10_000;

/** By duration a window is a part of all lengths, cut where the source says that enough requests lie before it. */
async function* readByDuration(
  reader: SpanReader,
  query: Listing,
  signal: AbortSignal,
): AsyncGenerator<readonly Candidate[]> {
  const { order: direction, beyond, filter, sources, range, budget } = query;
  let rest: DurationBounds = { min: filter.minDuration ?? 0n, max: undefined };
  if (beyond !== undefined) rest = direction === "asc" ? keepLonger(rest, beyond) : keepShorter(rest, beyond);
  for (let nth = Math.min(Math.max(2 * query.expectedRows, 100), maxSplitPointRank); ; ) {
    if (rest.max !== undefined && rest.max < rest.min) return;
    const pushdown = { ...query.pushdown, ...narrowPastUnit(rest, direction) };
    const scan = {
      sources,
      range,
      select: "entries",
      pushdown,
      budget,
      by: "duration",
      order: direction,
    } as const;
    const found = await reader.findSplitPoint?.({ ...scan, nth }, signal);
    const cut = found !== undefined && isWithinBounds(found, rest) ? found : undefined;
    const window: DurationBounds =
      cut === undefined
        ? rest
        : direction === "asc"
          ? { min: rest.min, max: cut }
          : { min: cut, max: rest.max };
    const entries = await readEntries(reader, query, range, signal, window);
    const all = isUnbounded(window, filter)
      ? entries
      : await readCompetingEntries(reader, query, entries, signal);
    const rows = chooseCandidates(query, await acceptRequests(reader, query, all, signal));
    yield rows.filter(({ row }) => isWithinBounds(row.duration, window));
    if (cut === undefined) return;
    rest = direction === "asc" ? keepLonger(rest, cut) : keepShorter(rest, cut);
    nth = Math.min(nth * 4, maxSplitPointRank);
  }
}

/**
 * Where to look for a cut. A source may hold whole microseconds only, and of a bound within one finds all of it: spans
 * that were read already, and there may be more of these than a cut is asked for.
 */
function narrowPastUnit({ min: least, max: most }: DurationBounds, direction: "asc" | "desc"): SpanPushdown {
  const within = 999n;
  if (direction === "asc") return { minDuration: least + within, maxDuration: most };
  return { minDuration: least, maxDuration: most === undefined || most < within ? most : most - within };
}

function keepLonger({ min: least, max: most }: DurationBounds, length: bigint): DurationBounds {
  return { min: length + 1n > least ? length + 1n : least, max: most };
}

function keepShorter({ min: least, max: most }: DurationBounds, length: bigint): DurationBounds {
  return { min: least, max: most === undefined || length - 1n < most ? length - 1n : most };
}

function isWithinBounds(length: bigint, { min: least, max: most }: DurationBounds): boolean {
  return length >= least && (most === undefined || length <= most);
}

/** Whether a window leaves out nothing that the filter accepts. */
function isUnbounded(
  { min: least, max: most }: DurationBounds,
  { minDuration = 0n }: ListingQuery["filter"],
): boolean {
  return least <= minDuration && most === undefined;
}

/** What of the range lies beyond the position; undefined when nothing does. */
function deriveRemainingRange({
  range: { from, to },
  beyond,
  order: direction,
}: ListingQuery): TimeRange | undefined {
  const rest: TimeRange =
    beyond === undefined
      ? { from, to }
      : direction === "asc"
        ? { from: (beyond + 1n > from ? beyond + 1n : from) as Instant, to }
        : { from, to: (beyond - 1n < to ? beyond - 1n : to) as Instant };
  return rest.from <= rest.to ? rest : undefined;
}

/** The first part of the range, of whole milliseconds, so that no tie is parted. */
function cutWindow({ from, to }: TimeRange, size: bigint, direction: "asc" | "desc"): TimeRange {
  if (direction === "asc") {
    const end = floorToMilli((from + size) as Instant) - 1n;
    return { from, to: (end < to ? end : to) as Instant };
  }
  const start = floorToMilli((to - size) as Instant);
  return { from: start > from ? start : from, to };
}

/** So many requests are read sooner than failed traces of all times are listed. */
const maxRequestsToRead = 10_000;

/** The traces that failed, where they are known and the range's requests are not few. */
async function listFailedTraceIds(
  reader: SpanReader,
  { sources, range, pushdown: narrow, budget }: Listing,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  if (reader.findTraceIdsWithExceptions === undefined) return undefined;
  const requests = await reader.count?.(
    { sources, range, select: "entries", pushdown: narrow, budget },
    signal,
  );
  if (requests !== undefined && requests <= maxRequestsToRead) return undefined;
  return reader.findTraceIdsWithExceptions({ sources, errors: narrow.errors, budget }, signal);
}

// ---- Candidates ---------------------------------------------------------------------------------------------

/** The chosen rows that end in a window of the query's range. */
async function readRows(
  reader: SpanReader,
  query: Listing,
  window: TimeRange,
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const reading = readEntries(reader, query, window, signal);
  if (query.candidates === "errors") {
    const traceIds = await findTraceIdsWithErrors(reader, query, window, reading, signal);
    return chooseWithin(query, await readErrors(reader, query, traceIds, signal), window);
  }
  const entries = await reading;
  const isWhole = window.from <= query.range.from && window.to >= query.range.to;
  const all = isWhole ? entries : await readCompetingEntries(reader, query, entries, signal);
  return chooseWithin(query, await acceptRequests(reader, query, all, signal), window);
}

/**
 * The rows of errors in a part of the range: from the entries there of the traces that failed at any time, or from all
 * exceptions where the source cannot list these.
 */
async function readAllErrors(
  reader: SpanReader,
  query: Listing,
  part: TimeRange,
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const { sources, pushdown: narrow, budget } = query;
  const { errors } = narrow;
  const failed = await reader.findTraceIdsWithExceptions?.({ sources, errors, budget }, signal);
  if (failed !== undefined) return readErrorsOfTraces(reader, query, failed, part, signal);
  const scan = { sources, range: allTime, select: "exceptions", pushdown: { errors }, budget } as const;
  const spans = await readAllSpans(reader.scan(scan, signal));
  return chooseWithin(query, await acceptErrors(reader, query, spans, signal), part);
}

async function readErrorsOfTraces(
  reader: SpanReader,
  query: Listing,
  failed: readonly string[],
  part: TimeRange,
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const { sources, pushdown, budget } = query;
  const of = { by: "trace", traceIds: failed, select: "entries" } as const;
  const within = { range: part, pushdown };
  const entries = readAllSpans(reader.find({ sources, of, within, withoutEvents: true, budget }, signal));
  const here = entries.then((found) => found.filter(({ end }) => end >= part.from && end <= part.to));
  const traceIds = await findTraceIdsWithErrors(reader, query, part, here, signal);
  return chooseWithin(query, await readErrors(reader, query, traceIds, signal), part);
}

function chooseWithin(
  query: Listing,
  candidates: readonly Candidate[],
  { from, to }: TimeRange,
): readonly Candidate[] {
  return chooseCandidates(query, candidates).filter(({ row: { time } }) => time >= from && time <= to);
}

/** One of each site and trace, or of each of its actions. */
function chooseCandidates({ byAction }: Listing, candidates: readonly Candidate[]): readonly Candidate[] {
  const chosen = new Map<string, Candidate>();
  for (const candidate of candidates) {
    const { site_id, trace_id, namespace, action_name: action } = candidate.row;
    const key = `${site_id} ${trace_id} ${byAction ? formatActionKey({ namespace, action }) : ""}`;
    const rival = chosen.get(key);
    if (rival === undefined || compareCandidates(candidate, rival) < 0) chosen.set(key, candidate);
  }
  return [...chosen.values()];
}

/** The entries of the window, or of the traces that are asked for. */
async function readEntries(
  reader: SpanReader,
  query: Listing,
  range: TimeRange,
  signal: AbortSignal,
  lengths?: DurationBounds,
): Promise<Span[]> {
  const { sources, traceIds, budget } = query;
  if (traceIds !== undefined) {
    const of = { by: "trace", traceIds, select: "entries" } as const;
    return readAllSpans(reader.find({ sources, of, withoutEvents: true, budget }, signal));
  }
  const pushdown = {
    ...query.pushdown,
    ...(lengths && { minDuration: lengths.min, maxDuration: lengths.max }),
  };
  return readAllSpans(
    reader.scan(
      { sources, range, select: "entries", pushdown: pushdown, withoutEvents: true, budget },
      signal,
    ),
  );
}

/** All entries of the traces that have an accepted one here: another of them may be its trace's row. */
async function readCompetingEntries(
  reader: SpanReader,
  query: Listing,
  entries: readonly Span[],
  signal: AbortSignal,
): Promise<readonly Span[]> {
  const { sources, budget } = query;
  const candidates = await acceptRequests(reader, query, entries, signal);
  const of = {
    by: "trace",
    traceIds: listTraceIds(candidates.map(({ row }) => row)),
    select: "entries",
  } as const;
  return of.traceIds.length === 0
    ? []
    : readAllSpans(reader.find({ sources, of, withoutEvents: true, budget }, signal));
}

async function acceptRequests(
  reader: SpanReader,
  query: Listing,
  entries: readonly Span[],
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const { range, filter } = query;
  const requests = entries.filter(
    (span) => isRequest(span) && span.end >= range.from && span.end <= range.to,
  );
  const digests = await readErrorDigests(reader, query, requests, signal);
  return requests.flatMap((span) => {
    const row = toSummaryRow(span, span.span_id);
    return isRowAccepted(filter, row, digests.get(formatEntryKey(span)) ?? [])
      ? [{ row, span, entry: span }]
      : [];
  });
}

/** Of each request, the digests of the exceptions below it; empty when no filter asks for them. */
async function readErrorDigests(
  reader: SpanReader,
  { sources, filter, budget }: ListingQuery,
  requests: readonly Span[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, readonly string[]>> {
  const digests = new Map<string, string[]>();
  if (filter.digests === undefined || requests.length === 0) return digests;
  const of = { by: "trace", traceIds: listTraceIds(requests), select: "exceptions" } as const;
  const spans = await readAllSpans(reader.find({ sources, of, budget }, signal));
  const family = await loadAncestors(reader, sources, spans, budget, signal);
  for (const span of spans) {
    const entry = family.findEntry(span);
    if (entry === undefined) continue;
    const key = formatEntryKey(entry);
    const found = digests.get(key) ?? [];
    found.push(...listExceptions(span, deriveNames(entry)).map(({ digest }) => digest));
    digests.set(key, found);
  }
  return digests;
}

/**
 * An error is in the range by the end of the entry above it, so the entries of a window lead to it; one without an
 * entry is in it by its own end.
 */
async function findTraceIdsWithErrors(
  reader: SpanReader,
  { sources, traceIds, pushdown, budget }: Listing,
  range: TimeRange,
  entries: Promise<readonly Span[]>,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const own = { sources, range, select: "exceptions", pushdown, budget } as const;
  const found = await Promise.all([entries, traceIds ? [] : readAllSpans(reader.scan(own, signal))]);
  return traceIds ?? listTraceIds(found.flat());
}

async function readErrors(
  reader: SpanReader,
  query: Listing,
  traceIds: readonly string[],
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const { sources, budget } = query;
  if (traceIds.length === 0) return [];
  const of = { by: "trace", traceIds, select: "exceptions" } as const;
  return acceptErrors(
    reader,
    query,
    await readAllSpans(reader.find({ sources, of, budget }, signal)),
    signal,
  );
}

async function acceptErrors(
  reader: SpanReader,
  { sources, range, filter, budget }: ListingQuery,
  spans: readonly Span[],
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const family = await loadAncestors(reader, sources, spans, budget, signal);
  return spans.flatMap((span) => {
    const entry = family.findEntry(span);
    const row = toSummaryRow(entry ?? span, span.span_id);
    if (row.time < range.from || row.time > range.to) return [];
    const exception = listExceptions(span, deriveNames(entry ?? span)).find(({ digest }) =>
      isRowAccepted(filter, row, [digest]),
    );
    return exception === undefined ? [] : [{ row, span, entry, exception }];
  });
}

function listTraceIds(spans: readonly Pick<Span, "trace_id">[]): readonly string[] {
  return [...new Set(spans.map(({ trace_id }) => trace_id))];
}

// ---- Order --------------------------------------------------------------------------------------------------

type Ordering = Pick<ListingQuery, "by" | "order">;

/** The order of the contract. */
export function compareRows(
  { by, order: direction }: Ordering,
  a: Pick<TraceSummary, "time" | "duration" | "site_id" | "trace_id">,
  b: Pick<TraceSummary, "time" | "duration" | "site_id" | "trace_id">,
): number {
  const ascending = compare(a[by], b[by]) || compare(a.site_id, b.site_id) || compare(a.trace_id, b.trace_id);
  return direction === "asc" ? ascending : -ascending;
}

function isBeyond({ by, order: direction, beyond }: ListingQuery, row: TraceRow): boolean {
  if (beyond === undefined) return true;
  return direction === "asc" ? row[by] > beyond : row[by] < beyond;
}

/** What rows share that no page may part: a millisecond, or a duration. */
export function deriveTie(
  { by }: Pick<Ordering, "by">,
  row: Pick<TraceSummary, "time" | "duration">,
): bigint {
  return by === "time" ? floorToMilli(row.time as Instant) : row.duration;
}

function* cutBetweenTies(rows: readonly Candidate[], query: ListingQuery): Generator<readonly Candidate[]> {
  let batch: Candidate[] = [];
  let tie: bigint | undefined;
  let tied = 0;
  for (const candidate of rows) {
    const next = deriveTie(query, candidate.row);
    if (next !== tie) {
      if (batch.length >= Math.min(batchSize, query.expectedRows)) {
        yield batch;
        batch = [];
      }
      tie = next;
      tied = 0;
    }
    tied += 1;
    if (tied > query.tieLimit) throw createTieLimitError(query);
    batch.push(candidate);
  }
  if (batch.length > 0) yield batch;
}

/** One millisecond or duration cannot be cut into pages, so it cannot be answered when it is too large for one. */
export function createTieLimitError({ by, tieLimit: limit }: Pick<ListingQuery, "by" | "tieLimit">): Refused {
  const what = by === "time" ? "end in one millisecond" : "have one duration";
  return new Refused("result_too_large", `More than ${limit} traces ${what}; narrow the filters`, { limit });
}
