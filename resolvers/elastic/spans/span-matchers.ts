// Which spans and events are wanted, as a condition for the index and as a test of what it found.
import type { Span } from "../../../src/core/rows.ts";
import type { SpanId } from "../../../src/store/spans.ts";
import { formatSpanKey, isCalleeSide } from "../../../src/tracing/spans/requests.ts";
import { isInSelection } from "../../../src/tracing/spans/selection.ts";
import { allOf, matchNone } from "../client/query-dsl.ts";
import type { SeparateEvent } from "../layout/event-decoder.ts";
import { type EventForm, listEventTraceNames, type SpanForm } from "../layout/span-layout.ts";
import {
  buildCalleeQuery,
  buildChildQuery,
  buildIdQuery,
  buildSelectionQuery,
  maxIdsPerSearch,
} from "../query/span-upper-bounds.ts";
import type { Condition } from "./span-documents.ts";

export interface SpanMatcher {
  readonly condition: Condition<SpanForm>;
  /** Decided without the events of other documents. */
  readonly accepts: (span: Span) => boolean;
  /** Whether spans are told apart by their documents, and not by what they are. */
  readonly byDocument?: boolean;
  /** Nothing else is read for the call: of what one source gives, each document once, no keys are kept. */
  readonly isSingleRead?: boolean;
  /** Set where all spans of these traces are wanted: their events can be read at the same time. */
  readonly completeTraceIds?: readonly string[];
  /** More than one answer holds, as far as is known. */
  readonly exceedsFirstSearch?: boolean;
}

/** Events that are spans of their own. */
export interface StandaloneMatcher {
  readonly condition: Condition<EventForm>;
  readonly accepts: (span: Span) => boolean;
}

/** The events that would be such spans. */
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
  const [traceIds, spanIds] = listTraceAndSpanIds(ids);
  return {
    condition: ({ group, form }) =>
      allOf([buildIdQuery(group, form.span_id, spanIds), buildIdQuery(group, form.trace_id, traceIds)]),
    accepts: (span) => sought.has(formatSpanKey(span)),
  };
}

export function matchSpanIds(spanIds: readonly string[]): SpanMatcher {
  const sought = new Set(spanIds);
  return {
    condition: ({ group, form }) => buildIdQuery(group, form.span_id, spanIds),
    accepts: ({ span_id }) => sought.has(span_id),
  };
}

export function matchCallees(ids: readonly SpanId[]): SpanMatcher {
  const callers = new Set(ids.map(formatSpanKey));
  const [traceIds, spanIds] = listTraceAndSpanIds(ids);
  return {
    condition: (placed) =>
      allOf([buildSelectionQuery(placed, "entries"), buildCalleeQuery(placed, traceIds, spanIds)]),
    accepts: (span) => {
      const { trace_id, parent_span_id: span_id, links } = span;
      const isOther = isCalleeSide(span) && callers.has(formatSpanKey(span));
      const isChild = span_id !== undefined && callers.has(formatSpanKey({ trace_id, span_id }));
      const isCalled = isOther || isChild || links.some((link) => callers.has(formatSpanKey(link)));
      return isInSelection("entries", span) && isCalled;
    },
  };
}

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

export function listTraceAndSpanIds(ids: readonly SpanId[]): readonly [readonly string[], readonly string[]] {
  return [[...new Set(ids.map(({ trace_id }) => trace_id))], [...new Set(ids.map(({ span_id }) => span_id))]];
}

export function* chunkIds<T>(ids: readonly T[]): Generator<readonly T[]> {
  for (let at = 0; at < ids.length; at += maxIdsPerSearch) yield ids.slice(at, at + maxIdsPerSearch);
}

/** Batches as groups of spans about which one search can ask, or a batch more. */
export async function* chunkSpans(batches: AsyncIterable<readonly Span[]>): AsyncGenerator<readonly Span[]> {
  let group: Span[] = [];
  for await (const batch of batches) {
    group.push(...batch);
    if (group.length < maxIdsPerSearch) continue;
    yield group;
    group = [];
  }
  if (group.length > 0) yield group;
}

/** Events of these traces. */
export function matchEventsOfTraces(
  ids: readonly string[],
): readonly [Condition<EventForm>, (event: SeparateEvent) => boolean] {
  const sought = new Set(ids);
  return [
    ({ group, form }) => buildIdQuery(group, listEventTraceNames(form), ids),
    ({ trace_id }) => sought.has(trace_id),
  ];
}

// ---- where events belong --------------------------------------------------------------------------------------

/** The spans that an event may belong to, the nearest first, and the one that it is where none of these is there. */
export interface EventOwners {
  readonly spans: readonly SpanId[];
  readonly standalone: SpanId | undefined;
}

export function toEventOwners({
  trace_id,
  spanIds: spans,
  standaloneId: alone,
}: Omit<SeparateEvent, "event">): EventOwners {
  return {
    spans: spans.map((span_id) => ({ trace_id, span_id })),
    standalone: alone === undefined ? undefined : { trace_id, span_id: alone },
  };
}

/** What those events are of which no span was met. */
export function findOrphanedSpanIds(
  places: readonly EventOwners[],
  met: ReadonlySet<string>,
): readonly SpanId[] {
  const alone = places.filter(({ spans }) => !spans.some((span) => met.has(formatSpanKey(span))));
  return deduplicateIds(alone.flatMap((place) => place.standalone ?? []));
}

export function deduplicateIds(ids: readonly SpanId[]): readonly SpanId[] {
  return [...new Map(ids.map((id) => [formatSpanKey(id), id])).values()];
}
