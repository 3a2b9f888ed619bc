// Spans with their events. What a layout keeps in documents of its own is put back into its span before anybody sees it,
// and where none of its spans is kept it may be a span of its own.
import type { Span, SpanEvent } from "../../../src/core/rows.ts";
import type { Budget, SpanId, SpanSource } from "../../../src/store/span-reader.ts";
import { collect } from "../../../src/tracing/spans/entry-lookup.ts";
import { isNearer, spanKey } from "../../../src/tracing/spans/requests.ts";
import { every } from "../client/query-dsl.ts";
import { type LooseEvent, readAlone, readEvent, readSpan, sortEvents } from "../layout/span-decoder.ts";
import type { EventForm } from "../layout/span-layout.ts";
import { holdsId } from "../query/span-upper-bounds.ts";
import { type Given, isNew, isNewSpan, nothingGiven } from "./dedup.ts";
import { together } from "./merge-concurrent.ts";
import type { Condition, Documents, Plan } from "./span-documents.ts";
import {
  aloneOf,
  eventsIn,
  groups,
  lost,
  namedBy,
  parts,
  partsOf,
  placementOf,
  type Wanted,
  type WantedAlone,
} from "./span-lookups.ts";

/** The sources of one site, and what is shared by all reading of it for one call. */
export interface Reading {
  readonly sources: readonly SpanSource[];
  readonly budget: Budget;
  readonly signal: AbortSignal;
  readonly given: Given;
}
type StoredEvent = LooseEvent & { readonly id: string };

interface Spans {
  /** As their own documents tell them. */
  bareSpans(wanted: Wanted, reading: Reading, plan?: Plan): AsyncGenerator<readonly Span[]>;
  /** With the events of other documents. */
  wholeSpans(wanted: Wanted, reading: Reading): AsyncGenerator<readonly Span[]>;
  /** Those that events are of which no span is kept, by the ids that they then have. */
  spansAlone(
    ids: readonly SpanId[],
    reading: Reading,
    accepts?: WantedAlone["accepts"],
  ): AsyncGenerator<readonly Span[]>;
  /** Whether an index may hold events of such a form in documents of their own. */
  hasEvents(reading: Reading, which: (form: EventForm) => boolean): Promise<boolean>;
  hasLooseEvents(reading: Reading): Promise<boolean>;
  /** Each once, also where two sources hold its document. */
  looseEvents(condition: Condition<EventForm>, reading: Reading): AsyncGenerator<StoredEvent>;
}

export function createSpans(documents: Documents): Spans {
  async function* wholeSpans(asked: Wanted, reading: Reading): AsyncGenerator<readonly Span[]> {
    const few = asked.whole === undefined ? undefined : await fewTraces(asked, asked.whole, reading);
    if (few !== undefined) {
      yield* nonEmpty(few);
      return;
    }
    const wanted = { ...asked, many: asked.whole !== undefined && reading.sources.length === 1 };
    if (!(await hasLooseEvents(reading))) {
      yield* bareSpans(wanted, reading);
      return;
    }
    const { whole } = wanted;
    const ofTraces = whole === undefined ? undefined : eventsOfTraces(whole, reading);
    // It may fail before the spans are there; it is met when they are.
    ofTraces?.catch(() => undefined);
    const events = new Map<string, StoredEvent>();
    const met = new Set<string>();
    /** Both sides of a call may have one id, so who has the events of an id is known when all are there. */
    const named: Span[] = [];
    for await (const group of groups(bareSpans(wanted, reading))) {
      const found = (await ofTraces) ?? (await eventsOfSpans(group, reading));
      const ids = new Set(found.flatMap((event) => placementOf(event).spans.map(spanKey)));
      for (const event of found) events.set(event.id, event);
      if (ofTraces !== undefined) for (const span of group) met.add(spanKey(span));
      const isNamed = (span: Span): boolean => ids.has(spanKey(span));
      named.push(...group.filter(isNamed));
      yield* nonEmpty(group.filter((span) => !isNamed(span)));
    }
    if (named.length > 0) yield await withLooseEvents(named, reading, [...events.values()]);
    if (ofTraces !== undefined) yield* spansAlone(lost((await ofTraces).map(placementOf), met), reading);
  }

  /** Traces that one answer holds whole, their events included; undefined where it does not. */
  async function fewTraces(
    { condition, accepts }: Wanted,
    ids: readonly string[],
    reading: Reading,
  ): Promise<readonly Span[] | undefined> {
    const { sources, budget, signal, given } = reading;
    const [source, ...others] = sources;
    // Several sources may hold the same documents: which, is told while they are read.
    if (source === undefined || others.length > 0) return undefined;
    const [inTraces, isSought] = eventsIn(ids);
    const found = await documents.few(source, condition, inTraces, budget, signal);
    if (found === undefined) return undefined;
    const spans: Span[] = [];
    /** By id: a document may have the form of several events. */
    const events = new Map<string, StoredEvent>();
    for await (const batch of found) {
      for (const { index, id, document, form } of batch) {
        if (form.holds === "span") {
          const span = readSpan(document, form, source);
          if (span !== undefined && accepts(span) && isNewSpan(given, span)) spans.push(span);
        } else {
          const key = `${index}/${id}`;
          const event = events.has(key) ? undefined : readEvent(document, form);
          if (event !== undefined && isSought(event)) events.set(key, { ...event, id: key });
        }
      }
    }
    if (events.size === 0) return spans;
    const own = [...events.values()];
    const met = new Set(spans.map(spanKey));
    const alone = await collect(spansAlone(lost(own.map(placementOf), met), reading));
    return [...(await withLooseEvents(spans, reading, own)), ...alone];
  }

  async function* bareSpans(
    { condition, accepts, byDocument, once, many }: Wanted,
    { sources, budget, signal, given }: Reading,
    plan?: Plan,
  ): AsyncGenerator<readonly Span[]> {
    const isFlat = once && sources.length === 1;
    const found = sources.map(
      (source) =>
        async function* (): AsyncGenerator<readonly Span[]> {
          for await (const batch of documents.spans(source, condition, budget, signal, { plan, many })) {
            const spans: Span[] = [];
            // A document may have several forms, which come together.
            const known = isFlat ? nothingGiven() : given;
            for (const { index, id, document, form } of batch) {
              const span = readSpan(document, form, source);
              if (span === undefined || !accepts(span)) continue;
              if (byDocument ? isNew(known, `${index}/${id}`) : isNewSpan(known, span)) spans.push(span);
            }
            if (spans.length > 0) yield spans;
          }
        },
    );
    yield* together(found);
  }

  async function hasEvents(
    { sources, signal }: Reading,
    which: (form: EventForm) => boolean,
  ): Promise<boolean> {
    const layouts = await Promise.all(sources.map((source) => documents.layout(source, signal)));
    return layouts.some(({ events }) => events.some(({ form }) => which(form)));
  }

  function hasLooseEvents(reading: Reading): Promise<boolean> {
    return hasEvents(reading, () => true);
  }

  async function* looseEvents(
    condition: Condition<EventForm>,
    { sources, budget, signal }: Reading,
  ): AsyncGenerator<StoredEvent> {
    const given = new Set<string>();
    const found = sources.map((source) => () => documents.events(source, condition, budget, signal));
    for await (const batch of together(found)) {
      for (const { index, id: own, document, form } of batch) {
        const id = `${index}/${own}`;
        const event = given.has(id) ? undefined : readEvent(document, form);
        if (event === undefined) continue;
        given.add(id);
        yield { ...event, id };
      }
    }
  }

  async function eventsOfTraces(ids: readonly string[], reading: Reading): Promise<readonly StoredEvent[]> {
    const [inTraces, isSought] = eventsIn(ids);
    const found: StoredEvent[] = [];
    for await (const event of looseEvents(inTraces, reading)) if (isSought(event)) found.push(event);
    return found;
  }

  async function eventsOfSpans(spans: readonly Span[], reading: Reading): Promise<readonly StoredEvent[]> {
    const [traceIds, spanIds] = partsOf(spans);
    const condition: Condition<EventForm> = ({ group, form }) =>
      every([holdsId(group, form.trace_id, traceIds), holdsId(group, form.span, spanIds)]);
    const found: StoredEvent[] = [];
    for await (const event of looseEvents(condition, reading)) found.push(event);
    return found;
  }

  /** The spans with their events, which are among those given. */
  async function withLooseEvents(
    spans: readonly Span[],
    reading: Reading,
    events: readonly StoredEvent[],
  ): Promise<readonly Span[]> {
    if (events.length === 0) return spans;
    const here = new Map<string, Span>();
    for (const span of spans) {
      const other = here.get(spanKey(span));
      if (other === undefined || isNearer(span, other)) here.set(spanKey(span), span);
    }
    const found: { readonly id: string; readonly event: SpanEvent; readonly keys: readonly string[] }[] = [];
    const elsewhere = new Map<string, SpanId>();
    for (const { id, trace_id, spans: ids, event } of events) {
      const keys = ids.map((span_id) => spanKey({ trace_id, span_id }));
      const first = keys.findIndex((key) => here.has(key));
      if (first < 0) continue;
      found.push({ id, event, keys });
      // A nearer span that is not among these has the event, if there is such a span.
      for (const span_id of ids.slice(0, first)) {
        elsewhere.set(spanKey({ trace_id, span_id }), { trace_id, span_id });
      }
    }
    if (found.length === 0) return spans;
    const existing = new Set<string>();
    for (const part of parts([...elsewhere.values()])) {
      for await (const batch of bareSpans(namedBy(part), { ...reading, given: nothingGiven() })) {
        for (const span of batch) existing.add(spanKey(span));
      }
    }
    const added = Map.groupBy(
      found.toSorted((a, b) => (a.id < b.id ? -1 : 1)),
      ({ keys }) => keys.find((key) => here.has(key) || existing.has(key)),
    );
    return spans.map((span) => {
      const own = here.get(spanKey(span)) === span ? added.get(spanKey(span)) : undefined;
      if (own === undefined) return span;
      return { ...span, events: sortEvents([...span.events, ...own.map(({ event }) => event)]) };
    });
  }

  async function* spansAlone(
    ids: readonly SpanId[],
    { sources, budget, signal, given }: Reading,
    accepts: WantedAlone["accepts"] = () => true,
  ): AsyncGenerator<readonly Span[]> {
    for (const part of parts(ids)) {
      const { condition, accepts: isSought } = aloneOf(namedBy(part));
      const read = (source: SpanSource) =>
        async function* (): AsyncGenerator<readonly Span[]> {
          for await (const batch of documents.events(source, condition, budget, signal)) {
            const spans = batch.flatMap(({ document, form }) => readAlone(document, form, source) ?? []);
            yield* nonEmpty(
              spans.filter((span) => isSought(span) && accepts(span) && isNewSpan(given, span)),
            );
          }
        };
      yield* together(sources.map(read));
    }
  }

  return { bareSpans, wholeSpans, spansAlone, hasEvents, hasLooseEvents, looseEvents };
}

/** A batch as batches, of which none is empty. */
export function* nonEmpty<T>(batch: readonly T[]): Generator<readonly T[]> {
  if (batch.length > 0) yield batch;
}
