// Spans with their events. What a layout keeps in documents of its own is put back into its span before anybody sees it,
// and where none of its spans is kept it may be a span of its own.

import { mergeConcurrent } from "../../../src/core/concurrency.ts";
import type { Span, SpanEvent } from "../../../src/core/rows.ts";
import type { Budget, SpanId, SpanSource } from "../../../src/store/spans.ts";
import { readAllSpans } from "../../../src/tracing/spans/entry-lookup.ts";
import { formatSpanKey, isPreferredOwner } from "../../../src/tracing/spans/requests.ts";
import { allOf } from "../client/query-dsl.ts";
import { decodeSeparateEvent, type SeparateEvent, sortEvents } from "../layout/event-decoder.ts";
import { decodeSpan, decodeStandaloneSpan } from "../layout/span-decoder.ts";
import type { EventForm } from "../layout/span-layout.ts";
import { buildIdQuery } from "../query/span-upper-bounds.ts";
import { addIfNew, addSpanIfNew, createSeenSpans, type SeenSpans } from "./seen-spans.ts";
import type { Condition, SearchPlan, SpanDocuments } from "./span-documents.ts";
import {
  chunkIds,
  chunkSpans,
  findOrphanedSpanIds,
  listTraceAndSpanIds,
  matchEventsOfTraces,
  matchSpans,
  matchStandaloneSpans,
  type SpanMatcher,
  type StandaloneMatcher,
  toEventOwners,
} from "./span-matchers.ts";

/** The sources of one site, and what is shared by all reading of it for one call. */
export interface ReadContext {
  readonly sources: readonly SpanSource[];
  readonly budget: Budget;
  readonly signal: AbortSignal;
  readonly seen: SeenSpans;
}
type IdentifiedEvent = SeparateEvent & { readonly id: string };

interface SpanAssembler {
  /** As their own documents tell them. */
  readSpansWithoutEvents(
    wanted: SpanMatcher,
    reading: ReadContext,
    plan?: SearchPlan,
  ): AsyncGenerator<readonly Span[]>;
  /** With the events of other documents. */
  readSpansWithEvents(wanted: SpanMatcher, reading: ReadContext): AsyncGenerator<readonly Span[]>;
  /** Those that events are of which no span is kept, by the ids that they then have. */
  readStandaloneSpans(
    ids: readonly SpanId[],
    reading: ReadContext,
    accepts?: StandaloneMatcher["accepts"],
  ): AsyncGenerator<readonly Span[]>;
  /** Whether an index may hold events of such a form in documents of their own. */
  hasEventForm(reading: ReadContext, which: (form: EventForm) => boolean): Promise<boolean>;
  hasSeparateEvents(reading: ReadContext): Promise<boolean>;
  /** Each once, also where two sources hold its document. */
  readSeparateEvents(condition: Condition<EventForm>, reading: ReadContext): AsyncGenerator<IdentifiedEvent>;
}

export function createSpanAssembler(documents: SpanDocuments): SpanAssembler {
  async function* readSpansWithEvents(
    asked: SpanMatcher,
    reading: ReadContext,
  ): AsyncGenerator<readonly Span[]> {
    const few =
      asked.completeTraceIds === undefined
        ? undefined
        : await readSmallTraces(asked, asked.completeTraceIds, reading);
    if (few !== undefined) {
      yield* yieldNonEmpty(few);
      return;
    }
    const wanted = {
      ...asked,
      exceedsFirstSearch: asked.completeTraceIds !== undefined && reading.sources.length === 1,
    };
    if (!(await hasSeparateEvents(reading))) {
      yield* readSpansWithoutEvents(wanted, reading);
      return;
    }
    const { completeTraceIds: whole } = wanted;
    const ofTraces = whole === undefined ? undefined : readEventsOfTraces(whole, reading);
    // It may fail before the spans are there; it is met when they are.
    ofTraces?.catch(() => undefined);
    const events = new Map<string, IdentifiedEvent>();
    const met = new Set<string>();
    /** Both sides of a call may have one id, so who has the events of an id is known when all are there. */
    const named: Span[] = [];
    for await (const group of chunkSpans(readSpansWithoutEvents(wanted, reading))) {
      const found = (await ofTraces) ?? (await readEventsOfSpans(group, reading));
      const ids = new Set(found.flatMap((event) => toEventOwners(event).spans.map(formatSpanKey)));
      for (const event of found) events.set(event.id, event);
      if (ofTraces !== undefined) for (const span of group) met.add(formatSpanKey(span));
      const isNamed = (span: Span): boolean => ids.has(formatSpanKey(span));
      named.push(...group.filter(isNamed));
      yield* yieldNonEmpty(group.filter((span) => !isNamed(span)));
    }
    if (named.length > 0) yield await attachSeparateEvents(named, reading, [...events.values()]);
    if (ofTraces !== undefined)
      yield* readStandaloneSpans(findOrphanedSpanIds((await ofTraces).map(toEventOwners), met), reading);
  }

  /** Traces that one answer holds whole, their events included; undefined where it does not. */
  async function readSmallTraces(
    { condition, accepts }: SpanMatcher,
    ids: readonly string[],
    reading: ReadContext,
  ): Promise<readonly Span[] | undefined> {
    const { sources, budget, signal, seen: given } = reading;
    const [source, ...others] = sources;
    // Several sources may hold the same documents: which, is told while they are read.
    if (source === undefined || others.length > 0) return undefined;
    const [inTraces, isSought] = matchEventsOfTraces(ids);
    const found = await documents.readInOneSearch(source, condition, inTraces, budget, signal);
    if (found === undefined) return undefined;
    const spans: Span[] = [];
    /** By id: a document may have the form of several events. */
    const events = new Map<string, IdentifiedEvent>();
    for await (const batch of found) {
      for (const { index, id, document, form } of batch) {
        if (form.holds === "span") {
          const span = decodeSpan(document, form, source);
          if (span !== undefined && accepts(span) && addSpanIfNew(given, span)) spans.push(span);
        } else {
          const key = `${index}/${id}`;
          const event = events.has(key) ? undefined : decodeSeparateEvent(document, form);
          if (event !== undefined && isSought(event)) events.set(key, { ...event, id: key });
        }
      }
    }
    if (events.size === 0) return spans;
    const own = [...events.values()];
    const met = new Set(spans.map(formatSpanKey));
    const alone = await readAllSpans(
      readStandaloneSpans(findOrphanedSpanIds(own.map(toEventOwners), met), reading),
    );
    return [...(await attachSeparateEvents(spans, reading, own)), ...alone];
  }

  async function* readSpansWithoutEvents(
    { condition, accepts, byDocument, isSingleRead: once, exceedsFirstSearch }: SpanMatcher,
    { sources, budget, signal, seen: given }: ReadContext,
    plan?: SearchPlan,
  ): AsyncGenerator<readonly Span[]> {
    const isFlat = once && sources.length === 1;
    const found = sources.map(
      (source) =>
        async function* (): AsyncGenerator<readonly Span[]> {
          for await (const batch of documents.readSpans(source, condition, budget, signal, {
            plan,
            exceedsFirstSearch: exceedsFirstSearch,
          })) {
            const spans: Span[] = [];
            // A document may have several forms, which come together.
            const known = isFlat ? createSeenSpans() : given;
            for (const { index, id, document, form } of batch) {
              const span = decodeSpan(document, form, source);
              if (span === undefined || !accepts(span)) continue;
              if (byDocument ? addIfNew(known, `${index}/${id}`) : addSpanIfNew(known, span))
                spans.push(span);
            }
            if (spans.length > 0) yield spans;
          }
        },
    );
    yield* mergeConcurrent(found);
  }

  async function hasEventForm(
    { sources, signal }: ReadContext,
    which: (form: EventForm) => boolean,
  ): Promise<boolean> {
    const layouts = await Promise.all(sources.map((source) => documents.readLayout(source, signal)));
    return layouts.some(({ events }) => events.some(({ form }) => which(form)));
  }

  function hasSeparateEvents(reading: ReadContext): Promise<boolean> {
    return hasEventForm(reading, () => true);
  }

  async function* readSeparateEvents(
    condition: Condition<EventForm>,
    { sources, budget, signal }: ReadContext,
  ): AsyncGenerator<IdentifiedEvent> {
    const given = new Set<string>();
    const found = sources.map((source) => () => documents.readEvents(source, condition, budget, signal));
    for await (const batch of mergeConcurrent(found)) {
      for (const { index, id: own, document, form } of batch) {
        const id = `${index}/${own}`;
        const event = given.has(id) ? undefined : decodeSeparateEvent(document, form);
        if (event === undefined) continue;
        given.add(id);
        yield { ...event, id };
      }
    }
  }

  async function readEventsOfTraces(
    ids: readonly string[],
    reading: ReadContext,
  ): Promise<readonly IdentifiedEvent[]> {
    const [inTraces, isSought] = matchEventsOfTraces(ids);
    const found: IdentifiedEvent[] = [];
    for await (const event of readSeparateEvents(inTraces, reading)) if (isSought(event)) found.push(event);
    return found;
  }

  async function readEventsOfSpans(
    spans: readonly Span[],
    reading: ReadContext,
  ): Promise<readonly IdentifiedEvent[]> {
    const [traceIds, spanIds] = listTraceAndSpanIds(spans);
    const condition: Condition<EventForm> = ({ group, form }) =>
      allOf([buildIdQuery(group, form.trace_id, traceIds), buildIdQuery(group, form.span, spanIds)]);
    const found: IdentifiedEvent[] = [];
    for await (const event of readSeparateEvents(condition, reading)) found.push(event);
    return found;
  }

  /** The spans with their events, which are among those given. */
  async function attachSeparateEvents(
    spans: readonly Span[],
    reading: ReadContext,
    events: readonly IdentifiedEvent[],
  ): Promise<readonly Span[]> {
    if (events.length === 0) return spans;
    const here = new Map<string, Span>();
    for (const span of spans) {
      const other = here.get(formatSpanKey(span));
      if (other === undefined || isPreferredOwner(span, other)) here.set(formatSpanKey(span), span);
    }
    const found: { readonly id: string; readonly event: SpanEvent; readonly keys: readonly string[] }[] = [];
    const elsewhere = new Map<string, SpanId>();
    for (const { id, trace_id, spanIds: ids, event } of events) {
      const keys = ids.map((span_id) => formatSpanKey({ trace_id, span_id }));
      const first = keys.findIndex((key) => here.has(key));
      if (first < 0) continue;
      found.push({ id, event, keys });
      // A nearer span that is not among these has the event, if there is such a span.
      for (const span_id of ids.slice(0, first)) {
        elsewhere.set(formatSpanKey({ trace_id, span_id }), { trace_id, span_id });
      }
    }
    if (found.length === 0) return spans;
    const existing = new Set<string>();
    for (const part of chunkIds([...elsewhere.values()])) {
      for await (const batch of readSpansWithoutEvents(matchSpans(part), {
        ...reading,
        seen: createSeenSpans(),
      })) {
        for (const span of batch) existing.add(formatSpanKey(span));
      }
    }
    const added = Map.groupBy(
      found.toSorted((a, b) => (a.id < b.id ? -1 : 1)),
      ({ keys }) => keys.find((key) => here.has(key) || existing.has(key)),
    );
    return spans.map((span) => {
      const own = here.get(formatSpanKey(span)) === span ? added.get(formatSpanKey(span)) : undefined;
      if (own === undefined) return span;
      return { ...span, events: sortEvents([...span.events, ...own.map(({ event }) => event)]) };
    });
  }

  async function* readStandaloneSpans(
    ids: readonly SpanId[],
    { sources, budget, signal, seen: given }: ReadContext,
    accepts: StandaloneMatcher["accepts"] = () => true,
  ): AsyncGenerator<readonly Span[]> {
    for (const part of chunkIds(ids)) {
      const { condition, accepts: isSought } = matchStandaloneSpans(matchSpans(part));
      const read = (source: SpanSource) =>
        async function* (): AsyncGenerator<readonly Span[]> {
          for await (const batch of documents.readEvents(source, condition, budget, signal)) {
            const spans = batch.flatMap(
              ({ document, form }) => decodeStandaloneSpan(document, form, source) ?? [],
            );
            yield* yieldNonEmpty(
              spans.filter((span) => isSought(span) && accepts(span) && addSpanIfNew(given, span)),
            );
          }
        };
      yield* mergeConcurrent(sources.map(read));
    }
  }

  return {
    readSpansWithoutEvents,
    readSpansWithEvents,
    readStandaloneSpans,
    hasEventForm,
    hasSeparateEvents,
    readSeparateEvents,
  };
}

/** A batch as batches, of which none is empty. */
export function* yieldNonEmpty<T>(batch: readonly T[]): Generator<readonly T[]> {
  if (batch.length > 0) yield batch;
}
