// The listing of traces: one row for each site and trace, chosen from all its candidates in the range. The range is read in
// windows, so that a page costs about what it shows; batches never split rows that are tied in the order.

import { sortInSteps, takeSteps } from "../../core/async/turns.ts";
import { Refused } from "../../core/errors.ts";
import { compare, type ErrorOccurrence, type TraceSummary } from "../../core/rows.ts";
import { floorToMilli, type Instant } from "../../core/time.ts";
import type { ListingQuery } from "../../store/span-analytics.ts";
import type { SpanReader } from "../../store/spans.ts";
import { findSpans, formatEntryKey } from "../spans/entry-lookup.ts";
import type { SpanException } from "../spans/exceptions.ts";
import { findEntriesWithNpo } from "../spans/n-plus-one.ts";
import { listTraceIds } from "../spans/requests.ts";
import type { Candidate } from "./candidates.ts";
import { derivePushdown, findNamedSpanId, findNamedTraceId } from "./pushdown.ts";
import type { TraceRow } from "./trace-query.ts";
import { readInOrder } from "./windows.ts";

/** Rows of a batch, to which the rest of the last tie is added. */
const batchSize = 500;

/** `SpanAnalytics.summaries`. */
export async function* listSummaries(
  reader: SpanReader,
  query: ListingQuery,
  signal: AbortSignal,
): AsyncGenerator<readonly TraceSummary[]> {
  const pushdown = derivePushdown(query.filter);
  const traceIds = await findNamedTraceIds(reader, query, signal);
  for await (const candidates of readInOrder(reader, { ...query, pushdown, traceIds }, signal)) {
    const beyond = candidates.filter(({ row }) => isBeyond(query, row));
    const sorting = sortInSteps(beyond, (a, b) => compareRows(query, toOrderedRow(a), toOrderedRow(b)));
    const sorted = await takeSteps(sorting, signal);
    for (const batch of cutBetweenTies(sorted, query)) {
      const traceIds = listTraceIds(batch.map(({ row }) => row));
      const withNpo = query.byError
        ? new Set<string>()
        : await findEntriesWithNpo(reader, query.sources, traceIds, query.budget, signal);
      signal.throwIfAborted();
      yield batch.map(({ row, entry, exception }) => ({
        ...row,
        has_npo: entry !== undefined && withNpo.has(formatEntryKey(entry)),
        ...(query.byError && exception && { exception: toOccurrence(exception) }),
      }));
    }
  }
}

/** The traces that the filter names, by trace id or span id. Undefined where it names none. */
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
  return listTraceIds(await findSpans(reader, { sources, of, budget }, signal));
}

/** A trace may have a row for each of its errors. */
function toOrderedRow({ row, exception }: Candidate): TraceRow {
  return exception === undefined ? row : { ...row, exception };
}

function toOccurrence({ digest, name, message, stacktrace }: SpanException): ErrorOccurrence {
  return { digest, name, message, stacktrace };
}

// ---- Order --------------------------------------------------------------------------------------------------

type Ordering = Pick<ListingQuery, "by" | "order">;

/** Orders rows by time or duration, then by site, trace id and digest of the error. `desc` reverses all of these. */
export function compareRows(
  { by, order }: Ordering,
  a: Pick<TraceSummary, "time" | "duration" | "site_id" | "trace_id" | "exception">,
  b: Pick<TraceSummary, "time" | "duration" | "site_id" | "trace_id" | "exception">,
): number {
  const ascending =
    compare(a[by], b[by]) ||
    compare(a.site_id, b.site_id) ||
    compare(a.trace_id, b.trace_id) ||
    compare(a.exception?.digest ?? "", b.exception?.digest ?? "");
  return order === "asc" ? ascending : -ascending;
}

function isBeyond({ by, order, beyond }: ListingQuery, row: TraceRow): boolean {
  if (beyond === undefined) return true;
  return order === "asc" ? row[by] > beyond : row[by] < beyond;
}

/** The value that tied rows share, which no page may split: a millisecond, or a duration. */
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

/** A tie is never split, so one that exceeds a page is refused. */
export function createTieLimitError({ by, tieLimit: limit }: Pick<ListingQuery, "by" | "tieLimit">): Refused {
  const what = by === "time" ? "end in one millisecond" : "have one duration";
  return new Refused("result_too_large", `More than ${limit} traces ${what}; narrow the filters`, { limit });
}
