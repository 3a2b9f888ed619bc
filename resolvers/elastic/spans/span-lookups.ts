// Which spans and events are wanted, as a condition for the index and as a test of what it found.
import type { Span } from "../../../src/core/rows.ts";
import type { SpanId } from "../../../src/store/span-reader.ts";
import { isOtherSide, spanKey } from "../../../src/tracing/spans/requests.ts";
import { selects } from "../../../src/tracing/spans/selection.ts";
import { every, none } from "../client/query-dsl.ts";
import type { LooseEvent } from "../layout/span-decoder.ts";
import { type EventForm, type SpanForm, tracesOfEvent } from "../layout/span-layout.ts";
import { holdsId, idsOfOneSearch, isCalledBy, isChildOf, isSelected } from "../query/span-upper-bounds.ts";
import type { Condition } from "./span-documents.ts";

export interface Wanted {
  readonly condition: Condition<SpanForm>;
  /** Decided without the events of other documents. */
  readonly accepts: (span: Span) => boolean;
  /** Whether spans are told apart by their documents, and not by what they are. */
  readonly byDocument?: boolean;
  /** Nothing else is read for the call: of what one source gives, each document once, no keys are kept. */
  readonly once?: boolean;
  /** Set where all spans of these traces are wanted: their events can be read at the same time. */
  readonly whole?: readonly string[];
  /** More than one answer holds, as far as is known. */
  readonly many?: boolean;
}

/** Events that are spans of their own. */
export interface WantedAlone {
  readonly condition: Condition<EventForm>;
  readonly accepts: (span: Span) => boolean;
}

/** The events that would be such spans. */
export function aloneOf({ condition, accepts }: Wanted): WantedAlone {
  return {
    condition: (placed, source) => {
      const { alone } = placed.form;
      return alone === undefined ? none : condition({ ...placed, form: alone }, source);
    },
    accepts,
  };
}

export function namedBy(ids: readonly SpanId[]): Wanted {
  const sought = new Set(ids.map(spanKey));
  const [traceIds, spanIds] = partsOf(ids);
  return {
    condition: ({ group, form }) =>
      every([holdsId(group, form.span_id, spanIds), holdsId(group, form.trace_id, traceIds)]),
    accepts: (span) => sought.has(spanKey(span)),
  };
}

export function withId(spanIds: readonly string[]): Wanted {
  const sought = new Set(spanIds);
  return {
    condition: ({ group, form }) => holdsId(group, form.span_id, spanIds),
    accepts: ({ span_id }) => sought.has(span_id),
  };
}

export function calledBy(ids: readonly SpanId[]): Wanted {
  const callers = new Set(ids.map(spanKey));
  const [traceIds, spanIds] = partsOf(ids);
  return {
    condition: (placed) => every([isSelected(placed, "entries"), isCalledBy(placed, traceIds, spanIds)]),
    accepts: (span) => {
      const { trace_id, parent_span_id: span_id, links } = span;
      const isOther = isOtherSide(span) && callers.has(spanKey(span));
      const isChild = span_id !== undefined && callers.has(spanKey({ trace_id, span_id }));
      const isCalled = isOther || isChild || links.some((link) => callers.has(spanKey(link)));
      return selects("entries", span) && isCalled;
    },
  };
}

export function childrenOf(spanIds: readonly string[]): Wanted {
  const parents = new Set(spanIds);
  return {
    condition: (placed) => every([isSelected(placed, "statements"), isChildOf(placed, spanIds)]),
    accepts: (span) =>
      span.parent_span_id !== undefined && parents.has(span.parent_span_id) && selects("statements", span),
  };
}

export function partsOf(ids: readonly SpanId[]): readonly [readonly string[], readonly string[]] {
  return [[...new Set(ids.map(({ trace_id }) => trace_id))], [...new Set(ids.map(({ span_id }) => span_id))]];
}

export function* parts<T>(ids: readonly T[]): Generator<readonly T[]> {
  for (let at = 0; at < ids.length; at += idsOfOneSearch) yield ids.slice(at, at + idsOfOneSearch);
}

/** Batches as groups of spans about which one search can ask, or a batch more. */
export async function* groups(batches: AsyncIterable<readonly Span[]>): AsyncGenerator<readonly Span[]> {
  let group: Span[] = [];
  for await (const batch of batches) {
    group.push(...batch);
    if (group.length < idsOfOneSearch) continue;
    yield group;
    group = [];
  }
  if (group.length > 0) yield group;
}

/** Events of these traces. */
export function eventsIn(
  ids: readonly string[],
): readonly [Condition<EventForm>, (event: LooseEvent) => boolean] {
  const sought = new Set(ids);
  return [
    ({ group, form }) => holdsId(group, tracesOfEvent(form), ids),
    ({ trace_id }) => sought.has(trace_id),
  ];
}

// ---- where events belong --------------------------------------------------------------------------------------

/** The spans that an event may belong to, the nearest first, and the one that it is where none of these is there. */
export interface Placement {
  readonly spans: readonly SpanId[];
  readonly alone: SpanId | undefined;
}

export function placementOf({ trace_id, spans, alone }: Omit<LooseEvent, "event">): Placement {
  return {
    spans: spans.map((span_id) => ({ trace_id, span_id })),
    alone: alone === undefined ? undefined : { trace_id, span_id: alone },
  };
}

/** What those events are of which no span was met. */
export function lost(places: readonly Placement[], met: ReadonlySet<string>): readonly SpanId[] {
  const alone = places.filter(({ spans }) => !spans.some((span) => met.has(spanKey(span))));
  return distinctIds(alone.flatMap((place) => place.alone ?? []));
}

export function distinctIds(ids: readonly SpanId[]): readonly SpanId[] {
  return [...new Map(ids.map((id) => [spanKey(id), id])).values()];
}
