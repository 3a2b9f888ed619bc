// Span matchers: a candidate query plus a predicate applied to the decoded span. Also who owns separately stored events.
import type { Span } from "../../../src/core/rows.ts";
import type { TimeRange } from "../../../src/core/time.ts";
import type { SpanId, SpanLookup } from "../../../src/store/spans.ts";
import { createCalleeTest } from "../../../src/tracing/spans/callees.ts";
import { formatSpanKey } from "../../../src/tracing/spans/requests.ts";
import { isInSelection } from "../../../src/tracing/spans/selection.ts";
import { allOf, matchAll, matchNone, not, type Query } from "../client/query-dsl.ts";
import type { SeparateEvent } from "../layout/event-decoder.ts";
import type { PlacedForm } from "../layout/form-placement.ts";
import { type EventForm, listEventTraceNames, type SpanForm } from "../layout/span-layout.ts";
import { buildCertainEndTimeQuery } from "../query/span-lower-bounds.ts";
import {
  buildCalleeQuery,
  buildChildQuery,
  buildIdQuery,
  buildLinkedTraceQuery,
  buildSelectionQuery,
  buildTraceCalleeQuery,
  maxIdsPerSearch,
} from "../query/span-upper-bounds.ts";
import type { Condition } from "./span-search.ts";

export interface SpanMatcher {
  readonly condition: Condition<SpanForm>;
  /** Applied to the span as its own document has it, without separate events. */
  readonly accepts: (span: Span) => boolean;
  /** Spans are de-duplicated by their documents, and not by their ids. */
  readonly byDocument?: boolean;
  /** Nothing else is read for the call. A single source returns each document once then, so that no keys are kept. */
  readonly isSingleRead?: boolean;
  /** Set where all spans of these traces match: their separate events can be read at the same time. */
  readonly completeTraceIds?: readonly string[];
  /** The documents are expected to exceed one response. */
  readonly exceedsFirstSearch?: boolean;
}

/** Events that are spans of their own where none of their owners is stored. */
export interface StandaloneMatcher {
  readonly condition: Condition<EventForm>;
  readonly accepts: (span: Span) => boolean;
}

export interface EventMatcher {
  readonly condition: Condition<EventForm>;
  readonly accepts: (event: SeparateEvent) => boolean;
}

/** Events that, as standalone spans, match. */
export function matchStandaloneSpans({ condition, accepts }: SpanMatcher): StandaloneMatcher {
  return {
    condition: (placed, source) => {
      const { alone } = placed.form;
      return alone === undefined ? matchNone : condition({ ...placed, form: alone }, source);
    },
    accepts,
  };
}

export function matchSpans(ids: readonly SpanId[]): SpanMatcher {
  const sought = new Set(ids.map(formatSpanKey));
  const { traceIds, spanIds } = listTraceAndSpanIds(ids);
  return {
    condition: ({ group, form }) =>
      allOf([buildIdQuery(group, form.span_id, spanIds), buildIdQuery(group, form.trace_id, traceIds)]),
    accepts: (span) => sought.has(formatSpanKey(span)),
  };
}

/** Spans with these ids, in any trace. */
export function matchSpanIds(spanIds: readonly string[]): SpanMatcher {
  const sought = new Set(spanIds);
  return {
    condition: ({ group, form }) => buildIdQuery(group, form.span_id, spanIds),
    accepts: ({ span_id }) => sought.has(span_id),
  };
}

/**
 * Where hardly any of the traces has a hit, long lists cost a server far less than many searches. Each id has up to four
 * spellings, and servers accept 65,536 terms.
 */
export const maxTracesPerSearch = 5_000;

/**
 * Matchers for the requests that these spans called, a search each: as the other side under the same id, as a child or by a
 * link; and for the callers among their children. Outside of a range that has been read few requests of the same traces are left,
 * so that traces are searched for there, which are far fewer than spans. Where all spans of these traces have been read, only
 * links are searched for.
 */
export function listCalleeMatchers(
  { spans: ids, areTracesRead = false }: CallerLookup,
  outside: TimeRange | undefined,
): readonly SpanMatcher[] {
  if (outside === undefined && !areTracesRead) {
    return [...chunkIds(ids)].map((chunk) => {
      const { traceIds, spanIds } = listTraceAndSpanIds(chunk);
      return matchCallees(chunk, (placed) => buildCalleeQuery(placed, traceIds, spanIds));
    });
  }
  const idsByTrace = Map.groupBy(ids, ({ trace_id }) => trace_id);
  return [...chunkIds([...idsByTrace.keys()], maxTracesPerSearch)].map((traceIds) => {
    const own = traceIds.flatMap((id) => idsByTrace.get(id) ?? []);
    const buildQuery = areTracesRead ? buildLinkedTraceQuery : buildTraceCalleeQuery;
    return matchCallees(own, (placed) =>
      allOf([
        buildQuery(placed, traceIds),
        outside === undefined ? matchAll : not(buildCertainEndTimeQuery(placed, outside)),
      ]),
    );
  });
}

export type CallerLookup = Extract<SpanLookup["of"], { readonly by: "caller" }>;

function matchCallees(
  ids: readonly SpanId[],
  buildQuery: (placed: PlacedForm<SpanForm>) => Query,
): SpanMatcher {
  return { condition: buildQuery, accepts: createCalleeTest(ids) };
}

/** Database calls below these spans, in any trace. */
export function matchStatementChildren(spanIds: readonly string[]): SpanMatcher {
  const parents = new Set(spanIds);
  return {
    condition: (placed) =>
      allOf([buildSelectionQuery(placed, "statements"), buildChildQuery(placed, spanIds)]),
    accepts: (span) =>
      span.parent_span_id !== undefined &&
      parents.has(span.parent_span_id) &&
      isInSelection("statements", span),
  };
}

export function matchEventsOfTraces(traceIds: readonly string[]): EventMatcher {
  const sought = new Set(traceIds);
  return {
    condition: ({ group, form }) => buildIdQuery(group, listEventTraceNames(form), traceIds),
    accepts: ({ trace_id }) => sought.has(trace_id),
  };
}

// ---- Ids ------------------------------------------------------------------------------------------------------

/** The distinct trace ids and the distinct span ids. */
export function listTraceAndSpanIds(ids: readonly SpanId[]): {
  readonly traceIds: readonly string[];
  readonly spanIds: readonly string[];
} {
  return {
    traceIds: [...new Set(ids.map(({ trace_id }) => trace_id))],
    spanIds: [...new Set(ids.map(({ span_id }) => span_id))],
  };
}

export function deduplicateIds(ids: readonly SpanId[]): readonly SpanId[] {
  return [...new Map(ids.map((id) => [formatSpanKey(id), id])).values()];
}

/** Chunks that fit one search each. */
export function* chunkIds<T>(ids: readonly T[], size = maxIdsPerSearch): Generator<readonly T[]> {
  for (let start = 0; start < ids.length; start += size) yield ids.slice(start, start + size);
}

/** Joins batches until they have enough spans for one look-up by id; a chunk exceeds that by a batch at most. */
export async function* chunkSpans(batches: AsyncIterable<readonly Span[]>): AsyncGenerator<readonly Span[]> {
  let chunk: Span[] = [];
  for await (const batch of batches) {
    chunk.push(...batch);
    if (chunk.length < maxIdsPerSearch) continue;
    yield chunk;
    chunk = [];
  }
  if (chunk.length > 0) yield chunk;
}

// ---- Owners of events -----------------------------------------------------------------------------------------

export interface EventOwners {
  /** The spans that the event may belong to, the nearest first. */
  readonly spans: readonly SpanId[];
  /** The span that the event itself is where none of them is stored. */
  readonly standalone: SpanId | undefined;
}

export function toEventOwners({
  trace_id,
  spanIds,
  standaloneId,
}: Omit<SeparateEvent, "event">): EventOwners {
  return {
    spans: spanIds.map((span_id) => ({ trace_id, span_id })),
    standalone: standaloneId === undefined ? undefined : { trace_id, span_id: standaloneId },
  };
}

/** The standalone spans of events that have no owner among `stored`, which holds span keys. */
export function findOrphanedSpanIds(
  owners: readonly EventOwners[],
  stored: ReadonlySet<string>,
): readonly SpanId[] {
  return deduplicateIds(
    owners.flatMap(({ spans, standalone }) => {
      const isOwned = spans.some((span) => stored.has(formatSpanKey(span)));
      return isOwned || standalone === undefined ? [] : [standalone];
    }),
  );
}
