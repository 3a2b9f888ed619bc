// Reads single traces, and resolves what a traces query names: stores, filters, ranges and the budget.
import type { Site, SpanPart } from "../../access/sites.ts";
import { mapAtOnce } from "../../core/async/concurrency.ts";
import { holdEach } from "../../core/async/held-bytes.ts";
import { takeSteps } from "../../core/async/turns.ts";
import type { NonEmpty } from "../../core/collections.ts";
import { createMissingPartError, Refused } from "../../core/errors.ts";
import type { Span } from "../../core/rows.ts";
import {
  allTime,
  endOfMilli,
  fromMillis,
  type Instant,
  later,
  type TimeRange,
  toInclusiveEnd,
} from "../../core/time.ts";
import type { SpanStore, TraceFilter } from "../../store/span-analytics.ts";
import type { Budget, SpanLookup, SpanSource } from "../../store/spans.ts";
import { parseTraceQuery } from "../../tracing/listing/trace-query.ts";
import { createBudget } from "../../tracing/spans/read-budget.ts";
import { chooseDocuments } from "../../tracing/spans/repeated-spans.ts";
import type { Context } from "../runtime/operation.ts";
import type { TracesQuery } from "./query-schema.ts";

/** Sources that one store answers for together. */
interface StoreGroup {
  readonly store: SpanStore;
  readonly sources: NonEmpty<SpanSource>;
}

/** @throws {Refused} for a site without traces */
export function groupByStore(ids: readonly string[], context: Context): readonly StoreGroup[] {
  const groups = new Map<SpanStore, [SpanSource, ...SpanSource[]]>();
  for (const { store, source } of listSpanParts(ids, context)) {
    const sources = groups.get(store);
    if (sources === undefined) groups.set(store, [source]);
    else sources.push(source);
  }
  return [...groups].map(([store, sources]) => ({ store, sources }));
}

export function listSpanParts(ids: readonly string[], context: Context): readonly SpanPart[] {
  return [...new Set(ids)].flatMap((id) => {
    const { traces, reports } = context.sites.get(id) ?? {};
    const parts = [traces, reports].filter((part) => part !== undefined);
    if (parts.length === 0) throw createNoTracesError();
    return parts;
  });
}

export function createNoTracesError(): Refused<"not_supported_by_backend"> {
  return createMissingPartError("traces", "A site has no traces");
}

/** The spans of a trace that the requested sites hold. @throws {Refused} `result_too_large` over `limits.spans` */
export function readTrace(
  ids: readonly string[],
  id: string,
  budget: Budget,
  context: Context,
): Promise<readonly Span[]> {
  return readTraces(ids, [id], budget, context);
}

/** The same of several traces, which `limits.spans` bounds together; in no order. */
export function readTraces(
  ids: readonly string[],
  traceIds: readonly string[],
  budget: Budget,
  context: Context,
): Promise<readonly Span[]> {
  const which = traceIds.length === 1 ? "The trace has" : "The traces have together";
  return readSpans(ids, { by: "trace", traceIds, select: "all" }, which, budget, context);
}

/** The spans of a look-up, which `limits.spans` bounds together; in no order. `which` begins the sentence of a refusal. */
export async function readSpans(
  ids: readonly string[],
  of: SpanLookup["of"],
  which: string,
  budget: Budget,
  context: Context,
): Promise<readonly Span[]> {
  const spans: Span[] = [];
  const { spans: limit } = context.limits;
  const held = context.held?.openPart();
  const read = async ({ store, sources }: StoreGroup, signal: AbortSignal): Promise<void> => {
    for await (const batch of store.find({ sources, of, budget }, signal)) {
      for (const span of batch) spans.push(span);
      if (held !== undefined) await holdEach(held, batch, signal);
      if (spans.length <= limit) continue;
      const message = `${which} more than ${limit} spans`;
      throw new Refused("result_too_large", message, { limit });
    }
  };
  // It may be read again without what has failed.
  await mapAtOnce(groupByStore(ids, context), read, context.signal).catch((error: unknown) => {
    held?.release();
    throw error;
  });
  return takeSteps(chooseDocuments(spans), context.signal);
}

export function createRequestBudget({ limits, progress, held }: Context): Budget {
  return createBudget(limits.documents, progress, held);
}

export function buildFilter(request: TracesQuery): TraceFilter {
  const { trace_id, namespace, action_name: action, duration, duration_ms, digests, query } = request;
  const shortest = duration ?? duration_ms;
  const [first, ...others] = digests ?? [];
  return {
    traceId: trace_id,
    namespace,
    action,
    minDuration: shortest === undefined ? undefined : findLeastNanos(shortest),
    digests: first === undefined ? undefined : [first, ...others],
    query: parseTraceQuery(query ?? ""),
  };
}

/** The range of each of the requested sites: their retention may differ. */
export function resolveRanges(
  request: TracesQuery,
  context: Context,
): readonly { readonly ids: readonly string[]; readonly range: TimeRange }[] {
  const { from, to, ttl, trace_id, site_ids } = request;
  const now = context.now();
  const last = to === undefined ? undefined : toInclusiveEnd(to.instant);
  const oldest = ttl === undefined ? undefined : shiftBack(now, ttl * 1_000);
  const findStart = (id: string): Instant => {
    const site = context.sites.get(id);
    const start =
      from?.instant ?? (trace_id === undefined && site ? findRetentionStart(site, now) : allTime.from);
    return oldest === undefined ? start : later(oldest, start);
  };
  const end = last ?? (trace_id === undefined ? endOfMilli(now) : allTime.to);
  return [...Map.groupBy(site_ids, findStart)].map(([start, ids]) => ({
    ids,
    range: { from: start, to: end },
  }));
}

function findRetentionStart({ retention }: Site, now: Instant): Instant {
  return shiftBack(now, retention);
}

function shiftBack(now: Instant, millis: number): Instant {
  const start = now - fromMillis(Math.min(Math.round(millis), Number.MAX_SAFE_INTEGER));
  return later(start as Instant, allTime.from);
}

/** The range of a request on one site, its retention and now where it has no bounds. */
export function resolveRange(site: Site, now: Instant, from?: Instant, to?: Instant): TimeRange {
  return {
    from: from ?? findRetentionStart(site, now),
    to: to === undefined ? endOfMilli(now) : toInclusiveEnd(to),
  };
}

/** The shortest duration that is answered as this many milliseconds or more. */
export function findLeastNanos(millis: number): bigint {
  // Half a nanosecond is where doubles of this size begin to round: from there on the nearest is all that can be told.
  if (millis > 4e9) return BigInt(Math.round(Math.min(millis * 1e6, Number.MAX_VALUE)));
  let nanos = Math.max(0, Math.floor(millis * 1e6) - 1);
  while (nanos / 1e6 < millis) nanos += 1;
  return BigInt(nanos);
}
