// What links of traces, requests and actions ask for. As in `link-operations.ts`, what many rows ask for is read in one request to a
// source.
import { mapInTurns, takeSteps, yieldToEventLoop } from "../core/async/turns.ts";
import { Refused } from "../core/errors.ts";
import { compare, type Span } from "../core/rows.ts";
import { type Millis, printMillis, type TimeRange, toMillis } from "../core/time.ts";
import type { ListingQuery } from "../store/span-analytics.ts";
import { readActionSeries } from "../tracing/duration-series.ts";
import { parseTraceQuery } from "../tracing/listing/trace-query.ts";
import { findSlowEventsByAction } from "../tracing/slow-events.ts";
import { encodeActionDigest } from "../tracing/spans/digest.ts";
import { listExceptions, type SpanException } from "../tracing/spans/exceptions.ts";
import { type ActionNames, formatActionKey, formatSpanKey } from "../tracing/spans/requests.ts";
import { normaliseId } from "../tracing/spans/span-ids.ts";
import { buildTraceDetail } from "../tracing/trace-detail.ts";
import { cacheByKey, collectPerAsker, prepareLink, type Row } from "./link-operations.ts";
import { readRows } from "./runtime/collected-rows.ts";
import { type Context, type PreparedOperation, rowsPerChunk } from "./runtime/operation.ts";
import { addDigest } from "./traces/analytics.ts";
import { maxTiedRows } from "./traces/listing-page.ts";
import { createRequestBudget, readSpans, readTraces } from "./traces/read-traces.ts";
import { joinRows, type RowMembers, toSlowEventRow, toSpanRow, toSummaryRow } from "./traces/row-writer.ts";

/** The spans of each trace, as `tracing.trace` orders them; null where the site has no traces. */
export function prepareLinkedSpans(
  site: string,
  traceIds: readonly string[],
): PreparedOperation<Promise<unknown>> {
  return prepareLink("tracing", site, async (context) => {
    const { traces, reports } = context.sites.get(site) ?? {};
    if (traces === undefined && reports === undefined) return traceIds.map(() => null);
    // A line has its id in the spelling of whoever wrote it.
    const ids = traceIds.map((id) => normaliseId(id, 32));
    const spans = await readTraces([site], [...new Set(ids)], createRequestBudget(context), context);
    const byTrace = Map.groupBy(spans, (span: Span) => span.trace_id);
    const rowsOf = cacheByKey(async (id: string) => {
      const detail = await takeSteps(buildTraceDetail(byTrace.get(id) ?? []), context.signal);
      return toRows(detail.map(toSpanRow));
    });
    return Promise.all(ids.map(rowsOf));
  });
}

/** The rows as they are answered, some in each turn of the event loop. */
async function toRows(members: readonly RowMembers[]): Promise<unknown[]> {
  const rows: unknown[] = [];
  for (let first = 0; first < members.length; first += rowsPerChunk) {
    if (first > 0) await yieldToEventLoop();
    rows.push(...readRows(joinRows(members.slice(first, first + rowsPerChunk))));
  }
  return rows;
}

/** The newest requests of each action in the range, by the action's digest; null where the site has no traces. */
export function prepareLinkedRequests(
  site: string,
  range: TimeRange,
  limit: number,
  digests: readonly string[],
): PreparedOperation<Promise<unknown>> {
  return prepareLink("tracing", site, async (context) => {
    const { traces } = context.sites.get(site) ?? {};
    const [first, ...others] = [...new Set(digests)];
    if (traces === undefined || first === undefined) return digests.map(() => null);
    const filter = { digests: [first, ...others] as const, query: parseTraceQuery("") };
    const found = collectPerAsker<string, RowMembers>([first, ...others], () => limit);
    const listing: ListingQuery = {
      sources: [traces.source],
      candidates: "requests",
      range,
      filter,
      byAction: true,
      by: "time",
      order: "desc",
      expectedRows: limit * filter.digests.length,
      tieLimit: maxTiedRows,
      budget: createRequestBudget(context),
    };
    for await (const batch of traces.store.summaries(listing, context.signal)) {
      for (const row of batch) {
        const digest = encodeActionDigest({ namespace: row.namespace, action: row.action_name });
        if (found.isWaiting(digest)) found.add(digest, toSummaryRow(row));
      }
      if (found.isComplete()) break;
    }
    return Promise.all(digests.map((digest) => toRows(found.rowsOf(digest))));
  });
}

/** The slow events within the requests of each action, greatest impact first; null where the site has no traces. */
export function prepareLinkedSlowEvents(
  site: string,
  range: TimeRange,
  limit: number,
  actions: readonly ActionNames[],
): PreparedOperation<Promise<unknown>> {
  return prepareLink("tracing", site, async (context) => {
    const { traces } = context.sites.get(site) ?? {};
    if (traces === undefined) return actions.map(() => null);
    const query = { sources: [traces.source] as const, range, budget: createRequestBudget(context) };
    const found = await findSlowEventsByAction(traces.store, query, limit, context.signal);
    return Promise.all(
      actions.map((action) =>
        toRows((found.get(formatActionKey(action)) ?? []).map((event) => toSlowEventRow(addDigest(event)))),
      ),
    );
  });
}

/** How many requests of each action ended in each bucket, and their mean; null where the site has no traces. */
export function prepareLinkedDurations(
  site: string,
  range: TimeRange,
  width: Millis,
  actions: readonly ActionNames[],
): PreparedOperation<Promise<unknown>> {
  const run = async (context: Context) => {
    const { traces } = context.sites.get(site) ?? {};
    if (traces === undefined) return actions.map(() => null);
    const start = Math.floor(toMillis(range.from) / width) * width;
    const count = Math.max(0, Math.floor((toMillis(range.to) - start) / width) + 1);
    const { points: limit } = context.limits;
    if (count * actions.length > limit) {
      const message = `The series would have more than ${limit} points; ask for wider buckets or a shorter range`;
      throw new Refused("result_too_large", message, { limit, wanted: count * actions.length });
    }
    const scan = { sources: [traces.source] as const, range, budget: createRequestBudget(context) };
    const found = await readActionSeries(traces.store, scan, width, context.signal);
    return actions.map((action) => {
      const buckets = found.get(formatActionKey(action));
      return Array.from({ length: count }, (_, at) => {
        const figures = buckets?.get(start + at * width);
        return {
          timestamp: printMillis(start + at * width),
          throughput: figures?.count() ?? 0,
          mean: figures?.mean() ?? null,
        };
      });
    });
  };
  return { ...prepareLink("tracing", site, run), countsPoints: true };
}

/** A span of a listing's row, and what the digests of its exceptions are made of. */
interface LinkedExceptionsQuery extends ActionNames {
  readonly trace_id: string;
  readonly span_id: string;
}

/** The exceptions of each span, the earliest first; null where the site has no traces. */
export function prepareLinkedExceptions(
  site: string,
  questions: readonly LinkedExceptionsQuery[],
): PreparedOperation<Promise<unknown>> {
  return prepareLink("tracing", site, async (context) => {
    const { traces, reports } = context.sites.get(site) ?? {};
    if (traces === undefined && reports === undefined) return questions.map(() => null);
    const ids = new Map(
      questions.map(({ trace_id, span_id }) => {
        return [formatSpanKey({ trace_id, span_id }), { trace_id, span_id }];
      }),
    );
    const of = { by: "span", spans: [...ids.values()] } as const;
    const budget = createRequestBudget(context);
    const spans = await readSpans([site], of, "The rows have together", budget, context);
    const byId = Map.groupBy(spans, formatSpanKey);
    const answer = ({ trace_id, span_id, ...names }: LinkedExceptionsQuery): readonly Row[] => {
      // Both sides of a call may have one id.
      const own = byId.get(formatSpanKey({ trace_id, span_id })) ?? [];
      const exceptions = own.flatMap((span) => listExceptions(span, names));
      return exceptions.toSorted((a, b) => compare(a.time, b.time)).map(toExceptionRow);
    };
    return mapInTurns(questions, answer, context.signal);
  });
}

function toExceptionRow({ digest, name, message, stacktrace }: SpanException): Row {
  return { digest, name, message: message ?? null, stacktrace: stacktrace ?? null };
}
