// Reads spans with their events. A layout may store events in documents of their own: they are attached to their spans here.
// An event without a stored owner may be a span of its own, a standalone span.

import { mapSources, mergeConcurrent } from "../../../src/core/async/concurrency.ts";
import type { AttributeValue, Span, SpanEvent } from "../../../src/core/rows.ts";
import type { Budget, SpanId, SpanSource } from "../../../src/store/spans.ts";
import { readAllSpans } from "../../../src/tracing/spans/entry-lookup.ts";
import { formatSpanKey, isPreferredOwner } from "../../../src/tracing/spans/requests.ts";
import { allOf } from "../client/query-dsl.ts";
import { decodeSeparateEvent, type SeparateEvent, sortEvents } from "../layout/event-decoder.ts";
import { decodeSpan, decodeStandaloneSpan } from "../layout/span-decoder.ts";
import type { EventForm, SpanForm } from "../layout/span-layout.ts";
import { buildIdQuery } from "../query/span-upper-bounds.ts";
import type { SearchPlan } from "./search-plan.ts";
import { addIfNew, addSpanIfNew, createSeenSpans, type SeenSpans } from "./seen-spans.ts";
import type { FoundDocument, SpanDocuments } from "./span-documents.ts";
import {
  chunkIds,
  chunkSpans,
  type EventMatcher,
  findOrphanedSpanIds,
  listTraceAndSpanIds,
  matchEventsOfTraces,
  matchSpans,
  matchStandaloneSpans,
  type SpanMatcher,
  type StandaloneMatcher,
  toEventOwners,
} from "./span-matchers.ts";
import type { Condition } from "./span-search.ts";

/** One call's read of the sources of one site. */
export interface ReadContext {
  readonly documents: SpanDocuments;
  readonly sources: readonly SpanSource[];
  readonly budget: Budget;
  readonly signal: AbortSignal;
  readonly seen: SeenSpans;
}

/** Batches are in no order and never empty. */
export type SpanBatches = AsyncGenerator<readonly Span[]>;

/** A batch as batches, of which none is empty. */
export function* yieldNonEmpty<T>(batch: readonly T[]): Generator<readonly T[]> {
  if (batch.length > 0) yield batch;
}

// ---- Without events -------------------------------------------------------------------------------------------

/** Matching spans as their own documents have them. With `plan`, only its indices are read. */
export function readSpansWithoutEvents(
  matcher: SpanMatcher,
  context: ReadContext,
  plan?: SearchPlan,
): SpanBatches {
  const reads = context.sources.map((source) => () => readSource(source, matcher, context, plan));
  return mergeConcurrent(reads);
}

async function* readSource(
  source: SpanSource,
  matcher: SpanMatcher,
  { documents, sources, budget, signal, seen }: ReadContext,
  plan: SearchPlan | undefined,
): SpanBatches {
  const { condition, exceedsFirstSearch, isSingleRead } = matcher;
  // A document may have several forms, which come in one batch, and else comes once.
  const isForgetful = isSingleRead && sources.length === 1;
  const read = { source, condition, plan, exceedsFirstSearch };
  for await (const batch of documents.readSpans(read, budget, signal)) {
    const spans = decodeSpans(batch, source, matcher, isForgetful ? createSeenSpans() : seen);
    if (spans.length > 0) yield spans;
  }
}

function decodeSpans(
  batch: readonly FoundDocument<SpanForm>[],
  source: SpanSource,
  { accepts, byDocument }: SpanMatcher,
  seen: SeenSpans,
): readonly Span[] {
  const spans: Span[] = [];
  for (const { index, id, document, form } of batch) {
    const span = decodeSpan(document, form, source);
    if (span === undefined || !accepts(span)) continue;
    if (byDocument ? addIfNew(seen.keys, `${index}/${id}`) : addSpanIfNew(seen, span)) spans.push(span);
  }
  return spans;
}

// ---- With events ----------------------------------------------------------------------------------------------

/** Matching spans with all their events. */
export async function* readSpansWithEvents(matcher: SpanMatcher, context: ReadContext): SpanBatches {
  const { completeTraceIds } = matcher;
  if (completeTraceIds === undefined) {
    if (await hasSeparateEvents(context)) yield* readAndAttachEvents(matcher, context);
    else yield* readSpansWithoutEvents(matcher, context);
    return;
  }
  const spans = await readSmallTraces(matcher, completeTraceIds, context);
  if (spans !== undefined) {
    yield* yieldNonEmpty(spans);
    return;
  }
  // Of a single source it is known by now that the spans exceed one response.
  const large = { ...matcher, exceedsFirstSearch: context.sources.length === 1 };
  if (await hasSeparateEvents(context)) yield* readTracesAndEvents(large, completeTraceIds, context);
  else yield* readSpansWithoutEvents(large, context);
}

/** Looks up the events of each chunk of spans. */
async function* readAndAttachEvents(matcher: SpanMatcher, context: ReadContext): SpanBatches {
  const owners = createOwners();
  for await (const chunk of chunkSpans(readSpansWithoutEvents(matcher, context))) {
    yield* yieldNonEmpty(takeOwners(owners, chunk, await readEventsOfSpans(chunk, context)));
  }
  yield* attachToOwners(owners, context);
}

/** Reads all events of the traces at the same time as the spans. What no stored span owns comes as standalone spans. */
async function* readTracesAndEvents(
  matcher: SpanMatcher,
  traceIds: readonly string[],
  context: ReadContext,
): SpanBatches {
  const reading = readEventsOfTraces(traceIds, context);
  // A failure is reported where the events are awaited; until then it must not count as unhandled.
  reading.catch(() => undefined);
  const owners = createOwners();
  const stored = new Set<string>();
  for await (const chunk of chunkSpans(readSpansWithoutEvents(matcher, context))) {
    const events = await reading;
    for (const span of chunk) stored.add(formatSpanKey(span));
    yield* yieldNonEmpty(takeOwners(owners, chunk, events));
  }
  yield* attachToOwners(owners, context);
  const orphaned = findOrphanedSpanIds((await reading).map(toEventOwners), stored);
  yield* readStandaloneSpans(orphaned, context);
}

/**
 * Spans with separate events. They are kept until all spans are read: the two sides of a call may share an id, and only one
 * of them owns the events.
 */
interface Owners {
  readonly spans: Span[];
  readonly events: Map<string, IdentifiedEvent>;
}

function createOwners(): Owners {
  return { spans: [], events: new Map() };
}

/** Keeps the spans that these events name. Returns the others. */
function takeOwners(
  owners: Owners,
  spans: readonly Span[],
  events: readonly IdentifiedEvent[],
): readonly Span[] {
  const keys = new Set(events.flatMap((event) => toEventOwners(event).spans.map(formatSpanKey)));
  for (const event of events) owners.events.set(event.id, event);
  const isOwner = (span: Span): boolean => keys.has(formatSpanKey(span));
  owners.spans.push(...spans.filter(isOwner));
  return spans.filter((span) => !isOwner(span));
}

async function* attachToOwners({ spans, events }: Owners, context: ReadContext): SpanBatches {
  if (spans.length > 0) yield await attachEvents(spans, [...events.values()], context);
}

/** Traces that one response holds, with their events. Undefined where they exceed it. */
async function readSmallTraces(
  { condition, accepts }: SpanMatcher,
  traceIds: readonly string[],
  context: ReadContext,
): Promise<readonly Span[] | undefined> {
  const { documents, sources, budget, signal, seen } = context;
  const [source, ...others] = sources;
  // Several sources may return the same documents, which only the reads one by one de-duplicate.
  if (source === undefined || others.length > 0) return undefined;
  const ofTraces = matchEventsOfTraces(traceIds);
  const found = await documents.readInOneSearch(source, condition, ofTraces.condition, budget, signal);
  if (found === undefined) return undefined;
  const spans: Span[] = [];
  /** By document, which may have several forms of events. */
  const events = new Map<string, IdentifiedEvent>();
  for await (const batch of found) {
    for (const { index, id, document, form } of batch) {
      if (form.holds === "span") {
        const span = decodeSpan(document, form, source);
        if (span !== undefined && accepts(span) && addSpanIfNew(seen, span)) spans.push(span);
      } else addEvent(events, `${index}/${id}`, document, form, ofTraces.accepts);
    }
  }
  if (events.size === 0) return spans;
  const own = [...events.values()];
  const orphaned = findOrphanedSpanIds(own.map(toEventOwners), new Set(spans.map(formatSpanKey)));
  const standalone = await readAllSpans(readStandaloneSpans(orphaned, context));
  return [...(await attachEvents(spans, own, context)), ...standalone];
}

function addEvent(
  events: Map<string, IdentifiedEvent>,
  id: string,
  document: AttributeValue,
  form: EventForm,
  accepts: EventMatcher["accepts"],
): void {
  const event = events.has(id) ? undefined : decodeSeparateEvent(document, form);
  if (event !== undefined && accepts(event)) events.set(id, { ...event, id });
}

// ---- Separate events ------------------------------------------------------------------------------------------

/** `id` identifies the document within the cluster. */
type IdentifiedEvent = SeparateEvent & { readonly id: string };

/** Whether an index may hold separate events of such a form. */
export async function hasEventForm(
  { documents, sources, signal }: ReadContext,
  accepts: (form: EventForm) => boolean,
): Promise<boolean> {
  const placed = await mapSources(sources, (source, own) => documents.readForms(source, own), signal);
  return placed.some(({ events }) => events.some(({ form }) => accepts(form)));
}

/** Whether an index may hold separate events. */
export function hasSeparateEvents(context: ReadContext): Promise<boolean> {
  return hasEventForm(context, () => true);
}

/** Separate events that match, each once, also where two sources hold its document. */
export async function* readSeparateEvents(
  condition: Condition<EventForm>,
  { documents, sources, budget, signal }: ReadContext,
): AsyncGenerator<IdentifiedEvent> {
  const seen = new Set<string>();
  const reads = sources.map((source) => () => documents.readEvents(source, condition, budget, signal));
  for await (const batch of mergeConcurrent(reads)) {
    for (const { index, id, document, form } of batch) {
      const key = `${index}/${id}`;
      const event = seen.has(key) ? undefined : decodeSeparateEvent(document, form);
      if (event === undefined) continue;
      seen.add(key);
      yield { ...event, id: key };
    }
  }
}

async function readEventsOfTraces(
  traceIds: readonly string[],
  context: ReadContext,
): Promise<readonly IdentifiedEvent[]> {
  const { condition, accepts } = matchEventsOfTraces(traceIds);
  const events: IdentifiedEvent[] = [];
  for await (const event of readSeparateEvents(condition, context)) if (accepts(event)) events.push(event);
  return events;
}

/** Events that may belong to these spans, and others. */
async function readEventsOfSpans(
  spans: readonly Span[],
  context: ReadContext,
): Promise<readonly IdentifiedEvent[]> {
  const { traceIds, spanIds } = listTraceAndSpanIds(spans);
  const condition: Condition<EventForm> = ({ group, form }) =>
    allOf([buildIdQuery(group, form.trace_id, traceIds), buildIdQuery(group, form.span, spanIds)]);
  const events: IdentifiedEvent[] = [];
  for await (const event of readSeparateEvents(condition, context)) events.push(event);
  return events;
}

/** The spans with those of the events that they own. */
async function attachEvents(
  spans: readonly Span[],
  events: readonly IdentifiedEvent[],
  context: ReadContext,
): Promise<readonly Span[]> {
  const owners = indexOwners(spans);
  const owned: OwnedEvent[] = [];
  const nearer = new Map<string, SpanId>();
  for (const { id, trace_id, spanIds, event } of events) {
    const keys = spanIds.map((span_id) => formatSpanKey({ trace_id, span_id }));
    const first = keys.findIndex((key) => owners.has(key));
    if (first < 0) continue;
    owned.push({ id, event, keys });
    for (const span_id of spanIds.slice(0, first)) {
      nearer.set(formatSpanKey({ trace_id, span_id }), { trace_id, span_id });
    }
  }
  if (owned.length === 0) return spans;
  // A nearer span that is not among these owns the event, if it is stored.
  const stored = await findStoredKeys([...nearer.values()], context);
  const eventsByOwner = Map.groupBy(
    owned.toSorted((a, b) => (a.id < b.id ? -1 : 1)),
    ({ keys }) => keys.find((key) => owners.has(key) || stored.has(key)),
  );
  return spans.map((span) => {
    const key = formatSpanKey(span);
    const own = owners.get(key) === span ? eventsByOwner.get(key) : undefined;
    if (own === undefined) return span;
    return { ...span, events: sortEvents([...span.events, ...own.map(({ event }) => event)]) };
  });
}

interface OwnedEvent {
  readonly id: string;
  readonly event: SpanEvent;
  /** Of the spans that may own it, the nearest first. */
  readonly keys: readonly string[];
}

/** By key: of several spans with one id the one that owns its events. */
function indexOwners(spans: readonly Span[]): ReadonlyMap<string, Span> {
  const owners = new Map<string, Span>();
  for (const span of spans) {
    const key = formatSpanKey(span);
    const other = owners.get(key);
    if (other === undefined || isPreferredOwner(span, other)) owners.set(key, span);
  }
  return owners;
}

/** The keys of those of the spans that are stored. */
async function findStoredKeys(ids: readonly SpanId[], context: ReadContext): Promise<ReadonlySet<string>> {
  const stored = new Set<string>();
  for (const chunk of chunkIds(ids)) {
    const separate = { ...context, seen: createSeenSpans() };
    for await (const batch of readSpansWithoutEvents(matchSpans(chunk), separate)) {
      for (const span of batch) stored.add(formatSpanKey(span));
    }
  }
  return stored;
}

// ---- Standalone spans -----------------------------------------------------------------------------------------

/** The spans that events without a stored owner are, by the ids that they have then. */
export async function* readStandaloneSpans(
  ids: readonly SpanId[],
  context: ReadContext,
  accepts: StandaloneMatcher["accepts"] = () => true,
): SpanBatches {
  const { documents, sources, budget, signal, seen } = context;
  for (const chunk of chunkIds(ids)) {
    const matcher = matchStandaloneSpans(matchSpans(chunk));
    const isNew = (span: Span): boolean => matcher.accepts(span) && accepts(span) && addSpanIfNew(seen, span);
    const readSource = async function* (source: SpanSource): SpanBatches {
      for await (const batch of documents.readEvents(source, matcher.condition, budget, signal)) {
        yield* yieldNonEmpty(decodeStandaloneSpans(batch, source).filter(isNew));
      }
    };
    yield* mergeConcurrent(sources.map((source) => () => readSource(source)));
  }
}

function decodeStandaloneSpans(
  batch: readonly FoundDocument<EventForm>[],
  source: SpanSource,
): readonly Span[] {
  return batch.flatMap(({ document, form }) => {
    const span = decodeStandaloneSpan(document, form, source);
    return span === undefined ? [] : [span];
  });
}
