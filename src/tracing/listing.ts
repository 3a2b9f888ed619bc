// The listing of traces, from the two primitives. Rows are chosen per site and trace before anything is cut, so all
// candidates of the range are read and sorted; the budget bounds them.
import { Refused } from "../errors.ts";
import type { Span, TraceSummary } from "../model.ts";
import type { ListingQuery, SpanReader } from "../store.ts";
import { floorToMilli, type Instant } from "../time.ts";
import { type Exception, exceptionsOf } from "./exception.ts";
import { acceptsRow, type Row } from "./filter.ts";
import { climb, collect, entryKey, findEntriesWithNpo } from "./lookup.ts";
import { compareRequests, isRequest, namesOf, order, rowOf } from "./request.ts";

interface Candidate {
  readonly row: Row;
  readonly span: Span;
  /** The entry that the row tells of; absent where its site has none. */
  readonly entry: Span | undefined;
  /** The first exception that the filters accept; of errors. */
  readonly exception?: Exception;
}

/** Which of two candidates stands for their trace. */
function compareRivals(a: Candidate, b: Candidate): number {
  if (a.exception === undefined || b.exception === undefined) return compareRequests(a.span, b.span);
  return order(a.exception.time, b.exception.time) || order(a.span.span_id, b.span.span_id);
}

/** Rows of a batch, but for the rest of its last millisecond or duration. */
const batchSize = 500;

/** `summaries` of the contract. */
export async function* listSummaries(
  reader: SpanReader,
  query: ListingQuery,
  signal: AbortSignal,
): AsyncGenerator<readonly TraceSummary[]> {
  const candidates =
    query.candidates === "requests"
      ? await findRequests(reader, query, signal)
      : await findErrors(reader, query, signal);
  const chosen = new Map<string, Candidate>();
  for (const candidate of candidates) {
    const key = `${candidate.row.site_id} ${candidate.row.trace_id}`;
    const rival = chosen.get(key);
    if (rival === undefined || compareRivals(candidate, rival) < 0) chosen.set(key, candidate);
  }
  const rows = [...chosen.values()]
    .filter(({ row }) => isBeyond(query, row))
    .sort((a, b) => compareRows(query, a.row, b.row));
  for (const batch of cutBetweenTies(rows, query)) {
    const traceIds = [...new Set(batch.map(({ row }) => row.trace_id))];
    const { sources, budget } = query;
    const withNpo = await findEntriesWithNpo(reader, sources, traceIds, budget, signal);
    signal.throwIfAborted();
    yield batch.map(({ row, entry }) => ({
      ...row,
      has_npo: entry !== undefined && withNpo.has(entryKey(entry)),
    }));
  }
}

// ---- Candidates ---------------------------------------------------------------------------------------------

async function findRequests(
  reader: SpanReader,
  query: ListingQuery,
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const { range, filter } = query;
  const requests = (await readEntries(reader, query, signal)).filter(
    (span) => isRequest(span) && span.end >= range.from && span.end <= range.to,
  );
  const digests = await errorDigestsOf(reader, query, requests, signal);
  return requests.flatMap((span) => {
    const row = rowOf(span, span.span_id);
    if (!acceptsRow(filter, row, digests.get(entryKey(span)) ?? [])) return [];
    return [{ row, span, entry: span }];
  });
}

/** The entries of the range, or of the one trace that is asked for. */
async function readEntries(reader: SpanReader, query: ListingQuery, signal: AbortSignal): Promise<Span[]> {
  const { sources, range, filter, budget } = query;
  if (filter.traceId !== undefined) {
    const of = { by: "trace", traceIds: [filter.traceId], select: "entries" } as const;
    return collect(reader.find({ sources, of, budget }, signal));
  }
  const narrow = {
    namespaces: filter.namespace === undefined ? undefined : [filter.namespace],
    action: filter.action,
    minDuration: filter.minDuration,
  };
  return collect(reader.scan({ sources, range, select: "entries", narrow, budget }, signal));
}

/** Of each request, the digests of the exceptions below it; empty when no filter asks for them. */
async function errorDigestsOf(
  reader: SpanReader,
  { sources, filter, budget }: ListingQuery,
  requests: readonly Span[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, readonly string[]>> {
  const digests = new Map<string, string[]>();
  if (filter.digests === undefined || requests.length === 0) return digests;
  const traceIds = [...new Set(requests.map(({ trace_id }) => trace_id))];
  const of = { by: "trace", traceIds, select: "exceptions" } as const;
  const spans = await collect(reader.find({ sources, of, budget }, signal));
  const family = await climb(reader, sources, spans, budget, signal);
  for (const span of spans) {
    const entry = family.entryOf(span);
    if (entry === undefined) continue;
    const key = entryKey(entry);
    const found = digests.get(key) ?? [];
    found.push(...exceptionsOf(span, namesOf(entry)).map(({ digest }) => digest));
    digests.set(key, found);
  }
  return digests;
}

/**
 * An error is in the range by the end of the entry above it, so the entries of the range lead to their exceptions;
 * those without an entry are in it by their own end.
 */
async function findErrors(
  reader: SpanReader,
  query: ListingQuery,
  signal: AbortSignal,
): Promise<readonly Candidate[]> {
  const { sources, range, filter, budget } = query;
  const traceIds =
    filter.traceId === undefined
      ? [...new Set((await readEntries(reader, query, signal)).map(({ trace_id }) => trace_id))]
      : [filter.traceId];
  const of = { by: "trace", traceIds, select: "exceptions" } as const;
  const spans = traceIds.length === 0 ? [] : await collect(reader.find({ sources, of, budget }, signal));
  if (filter.traceId === undefined) {
    const known = new Set(spans.map(entryKey));
    const others = await collect(reader.scan({ sources, range, select: "exceptions", budget }, signal));
    spans.push(...others.filter((span) => !known.has(entryKey(span))));
  }
  const family = await climb(reader, sources, spans, budget, signal);
  return spans.flatMap((span) => {
    const entry = family.entryOf(span);
    const row = rowOf(entry ?? span, span.span_id);
    if (row.time < range.from || row.time > range.to) return [];
    const exception = exceptionsOf(span, namesOf(entry ?? span)).find(({ digest }) =>
      acceptsRow(filter, row, [digest]),
    );
    return exception === undefined ? [] : [{ row, span, entry, exception }];
  });
}

// ---- Order --------------------------------------------------------------------------------------------------

type Ordering = Pick<ListingQuery, "by" | "order">;

/** The order of the contract. */
export function compareRows(
  { by, order: direction }: Ordering,
  a: Pick<TraceSummary, "time" | "duration" | "site_id" | "trace_id">,
  b: Pick<TraceSummary, "time" | "duration" | "site_id" | "trace_id">,
): number {
  const ascending = order(a[by], b[by]) || order(a.site_id, b.site_id) || order(a.trace_id, b.trace_id);
  return direction === "asc" ? ascending : -ascending;
}

function isBeyond({ by, order: direction, beyond }: ListingQuery, row: Row): boolean {
  if (beyond === undefined) return true;
  return direction === "asc" ? row[by] > beyond : row[by] < beyond;
}

/** What rows share that no page may part: a millisecond, or a duration. */
export function tieOf({ by }: Pick<Ordering, "by">, row: Pick<TraceSummary, "time" | "duration">): bigint {
  return by === "time" ? floorToMilli(row.time as Instant) : row.duration;
}

function* cutBetweenTies(rows: readonly Candidate[], query: ListingQuery): Generator<readonly Candidate[]> {
  let batch: Candidate[] = [];
  let tie: bigint | undefined;
  let tied = 0;
  for (const candidate of rows) {
    const next = tieOf(query, candidate.row);
    if (next !== tie) {
      if (batch.length >= Math.min(batchSize, query.wanted)) {
        yield batch;
        batch = [];
      }
      tie = next;
      tied = 0;
    }
    tied += 1;
    if (tied > query.tieLimit) throw tooManyTied(query);
    batch.push(candidate);
  }
  if (batch.length > 0) yield batch;
}

/** One millisecond or duration cannot be cut into pages, so it cannot be answered when it is too large for one. */
export function tooManyTied({ by, tieLimit: limit }: Pick<ListingQuery, "by" | "tieLimit">): Refused {
  const what = by === "time" ? "end in one millisecond" : "have one duration";
  return new Refused("result_too_large", `More than ${limit} traces ${what}; narrow the filters`, { limit });
}
