// Reads the candidates of a listing and chooses from them. Of requests a candidate is an entry that the filter accepts; of
// errors it is a span with an accepted exception. The row of an error comes from the entry above it.

import { visitInTurns } from "../../core/async/turns.ts";
import { compare, type Span } from "../../core/rows.ts";
import { allTime, type TimeRange } from "../../core/time.ts";
import type { ListingQuery } from "../../store/span-analytics.ts";
import type { SpanPushdown, SpanReader } from "../../store/spans.ts";
import { findSpans, formatEntryKey, loadAncestors, readAllSpans } from "../spans/entry-lookup.ts";
import { listExceptions, type SpanException } from "../spans/exceptions.ts";
import {
  compareRequests,
  deriveNames,
  formatActionKey,
  isRequest,
  listTraceIds,
  toSummaryRow,
} from "../spans/requests.ts";
import { isRowAccepted, type TraceRow } from "./trace-query.ts";

/** A query with what its filter requires. */
export interface Listing extends ListingQuery {
  /** The only traces that can have rows. Absent where any may. */
  readonly traceIds?: readonly string[] | undefined;
  readonly pushdown: SpanPushdown;
  /** What earlier windows of this listing have answered. */
  readonly read?: ReadRows;
}

export interface ReadRows {
  /** Of the rows. */
  readonly keys: Set<string>;
  /** Whether the row would lie in one of these windows. */
  isRead(row: TraceRow): boolean;
}

export interface Candidate {
  readonly row: TraceRow;
  readonly span: Span;
  /** The entry that the row describes. Absent where the span's site has none above it. */
  readonly entry: Span | undefined;
  /** Of errors: the first exception that the filter accepts. */
  readonly exception?: SpanException;
}

/** Nanoseconds, inclusive. */
export interface DurationBounds {
  readonly min: bigint;
  readonly max: bigint | undefined;
}

/** The chosen rows that end in a window of the query's range. */
export async function readRows(
  reader: SpanReader,
  query: Listing,
  window: TimeRange,
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const reading = readEntries(reader, query, window, signal);
  if (query.candidates === "errors") return chooseErrors(reader, query, window, reading, signal);
  const all = await readCompetingEntries(reader, query, await reading, signal);
  return chooseWithin(query, await acceptRequests(reader, query, all, signal), window);
}

// ---- Choice ---------------------------------------------------------------------------------------------------

/** Chooses from all candidates, and returns the rows that end in the window. */
function chooseWithin(
  query: Listing,
  candidates: readonly Candidate[],
  window: TimeRange,
): readonly Candidate[] {
  return chooseCandidates(query, candidates).filter(({ row }) => isInRange(row.time, window));
}

/**
 * One candidate for each site and trace, or for each of its actions or errors, without those that have a row already. A candidate
 * in a part that was read before, and has no row, has come since: the row is that of another one.
 */
function chooseCandidates(query: Listing, candidates: readonly Candidate[]): readonly Candidate[] {
  const { read } = query;
  const chosen = new Map<string, Candidate>();
  for (const candidate of candidates) {
    const key = formatRowKey(query, candidate);
    if (read?.keys.has(key) === true || read?.isRead(candidate.row) === true) continue;
    const other = chosen.get(key);
    if (other === undefined || compareCandidates(candidate, other) < 0) chosen.set(key, candidate);
  }
  return [...chosen.values()];
}

/** What a listing has one row of. */
export function formatRowKey(
  { byAction, byError }: Pick<Listing, "byAction" | "byError">,
  { row: { site_id, trace_id, namespace, action_name: action }, exception }: Candidate,
): string {
  const names = byAction ? formatActionKey({ namespace, action }) : "";
  return `${site_id} ${trace_id} ${byError ? exception?.digest : names}`;
}

/** The candidate that represents the trace comes first. */
function compareCandidates(a: Candidate, b: Candidate): number {
  if (a.exception === undefined || b.exception === undefined) return compareRequests(a.span, b.span);
  return compare(a.exception.time, b.exception.time) || compare(a.span.span_id, b.span.span_id);
}

export function isInRange(time: bigint, { from, to }: TimeRange): boolean {
  return time >= from && time <= to;
}

// ---- Requests -------------------------------------------------------------------------------------------------

/** The chosen requests with durations within the bounds. */
export async function readRequestsOfDuration(
  reader: SpanReader,
  query: Listing,
  bounds: DurationBounds,
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const entries = await readEntries(reader, narrowDurations(query, bounds), query.range, signal);
  const all = await readCompetingEntries(reader, query, entries, signal);
  const chosen = chooseCandidates(query, await acceptRequests(reader, query, all, signal));
  return chosen.filter(({ row }) => isWithinBounds(row.duration, bounds));
}

/** The same listing, of which a store may leave out what has other durations. */
function narrowDurations(query: Listing, { min, max }: DurationBounds): Listing {
  return { ...query, pushdown: { ...query.pushdown, minDuration: min, maxDuration: max } };
}

export function isWithinBounds(duration: bigint, { min, max }: DurationBounds): boolean {
  return duration >= min && (max === undefined || duration <= max);
}

/** The entries of the window, or of the traces that the query names. */
async function readEntries(
  reader: SpanReader,
  { sources, traceIds, pushdown, budget }: Listing,
  range: TimeRange,
  signal: AbortSignal,
): Promise<Span[]> {
  if (traceIds !== undefined) {
    const of = { by: "trace", traceIds, select: "entries" } as const;
    return findSpans(reader, { sources, of, withoutEvents: true, budget }, signal);
  }
  const scan = { sources, range, select: "entries", pushdown, withoutEvents: true, budget } as const;
  return readAllSpans(reader.scan(scan, signal), budget);
}

/**
 * All entries of the traces that have an accepted one here: another entry may represent the trace, and another document may
 * stand for the entry.
 */
async function readCompetingEntries(
  reader: SpanReader,
  query: Listing,
  entries: readonly Span[],
  signal: AbortSignal,
): Promise<readonly Span[]> {
  const { sources, budget } = query;
  const candidates = await acceptRequests(reader, query, entries, signal);
  const traceIds = listTraceIds(candidates.map(({ row }) => row));
  if (traceIds.length === 0) return [];
  const of = { by: "trace", traceIds, select: "entries" } as const;
  return findSpans(reader, { sources, of, withoutEvents: true, budget }, signal);
}

/** The requests among the entries that the filter accepts. */
async function acceptRequests(
  reader: SpanReader,
  query: Listing,
  entries: readonly Span[],
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const { range, filter } = query;
  const requests = entries.filter((span) => isRequest(span) && isInRange(span.end, range));
  const digests = await readErrorDigests(reader, query, requests, signal);
  const accepted: Candidate[] = [];
  const accept = (span: Span): void => {
    const row = toSummaryRow(span, span.span_id);
    const own = digests.get(formatEntryKey(span)) ?? [];
    if (isRowAccepted(filter, row, own)) accepted.push({ row, span, entry: span });
  };
  await visitInTurns(requests, accept, signal);
  return accepted;
}

/** By entry key: the digests of the exceptions below each request. Empty where no filter needs them. */
async function readErrorDigests(
  reader: SpanReader,
  { sources, filter, budget }: ListingQuery,
  requests: readonly Span[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, readonly string[]>> {
  const digests = new Map<string, string[]>();
  if (filter.digests === undefined || requests.length === 0) return digests;
  const of = { by: "trace", traceIds: listTraceIds(requests), select: "exceptions" } as const;
  const spans = await findSpans(reader, { sources, of, budget }, signal);
  const ancestors = await loadAncestors(reader, sources, spans, budget, signal);
  const addDigests = (span: Span): void => {
    const entry = ancestors.findEntry(span);
    if (entry === undefined) return;
    const key = formatEntryKey(entry);
    const found = digests.get(key) ?? [];
    found.push(...listExceptions(span, deriveNames(entry)).map(({ digest }) => digest));
    digests.set(key, found);
  };
  await visitInTurns(spans, addDigests, signal);
  return digests;
}

// ---- Errors ---------------------------------------------------------------------------------------------------

/** Up to so many requests, reading them costs less than listing the traces with exceptions of all times. */
const maxRequestsToRead = 10_000;

/** The traces with exceptions of all times. Undefined where the store cannot list them, or the range has few requests. */
export async function listFailedTraceIds(
  reader: SpanReader,
  query: Listing,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  const { sources, range, pushdown, budget } = query;
  if (reader.findTraceIdsWithExceptions === undefined) return undefined;
  const scan = { sources, range, select: "entries", pushdown, budget } as const;
  const requests = await reader.count?.(scan, signal);
  if (requests !== undefined && requests <= maxRequestsToRead) return undefined;
  return listAllFailedTraceIds(reader, query, signal);
}

/** The traces with exceptions of all times, however many. Undefined where the store cannot list them. */
export async function listAllFailedTraceIds(
  reader: SpanReader,
  { sources, pushdown: { errors }, budget }: Listing,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  return reader.findTraceIdsWithExceptions?.({ sources, errors, budget }, signal);
}

/** The chosen errors in a window, from all exceptions of any time. */
export async function readAllErrors(
  reader: SpanReader,
  query: Listing,
  window: TimeRange,
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const { sources, budget } = query;
  const { errors } = query.pushdown;
  const scan = { sources, range: allTime, select: "exceptions", pushdown: { errors }, budget } as const;
  const spans = await readAllSpans(reader.scan(scan, signal), budget);
  return chooseWithin(query, await acceptErrors(reader, query, spans, signal), window);
}

/** The chosen errors of a window, if all traces with exceptions are among `failed`. */
export function readErrorsOfTraces(
  reader: SpanReader,
  query: Listing,
  failed: readonly string[],
  window: TimeRange,
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const { sources, pushdown, budget } = query;
  const of = { by: "trace", traceIds: failed, select: "entries" } as const;
  const within = { range: window, pushdown };
  const reading = findSpans(reader, { sources, of, within, withoutEvents: true, budget }, signal);
  const entries = reading.then((found) => found.filter(({ end }) => isInRange(end, window)));
  return chooseErrors(reader, query, window, entries, signal);
}

/** As `readErrorsOfTraces` of the whole range, with durations within the bounds. */
export async function readErrorsOfDuration(
  reader: SpanReader,
  query: Listing,
  failed: readonly string[],
  bounds: DurationBounds,
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const narrowed = narrowDurations(query, bounds);
  const rows = await readErrorsOfTraces(reader, narrowed, failed, query.range, signal);
  return rows.filter(({ row }) => isWithinBounds(row.duration, bounds));
}

/**
 * The chosen errors of a window. An error lies where the entry above it ends, so that the entries of the window lead to it;
 * an error without an entry lies where its own span ends.
 */
async function chooseErrors(
  reader: SpanReader,
  query: Listing,
  window: TimeRange,
  entries: Promise<readonly Span[]>,
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const { sources, pushdown, budget } = query;
  const scan = { sources, range: window, select: "exceptions", pushdown, budget } as const;
  const spans = query.traceIds === undefined ? readAllSpans(reader.scan(scan, signal), budget) : [];
  const found = await Promise.all([entries, spans]);
  const traceIds = query.traceIds ?? listTraceIds(found.flat());
  if (traceIds.length === 0) return [];
  const of = { by: "trace", traceIds, select: "exceptions" } as const;
  const failed = await findSpans(reader, { sources, of, budget }, signal);
  return chooseWithin(query, await acceptErrors(reader, query, failed, signal), window);
}

/** The spans in the query's range with an exception that the filter accepts. */
async function acceptErrors(
  reader: SpanReader,
  { sources, range, filter, byError, budget }: ListingQuery,
  spans: readonly Span[],
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const ancestors = await loadAncestors(reader, sources, spans, budget, signal);
  const candidates: Candidate[] = [];
  const addErrors = (span: Span): void => {
    const entry = ancestors.findEntry(span);
    const row = toSummaryRow(entry ?? span, span.span_id);
    if (!isInRange(row.time, range)) return;
    const accepted = listExceptions(span, deriveNames(entry ?? span)).filter(({ digest }) =>
      isRowAccepted(filter, row, [digest]),
    );
    const firsts = new Map(accepted.toReversed().map((exception) => [exception.digest, exception]));
    for (const exception of byError ? firsts.values() : accepted.slice(0, 1))
      candidates.push({ row, span, entry, exception });
  };
  await visitInTurns(spans, addErrors, signal);
  return candidates;
}
