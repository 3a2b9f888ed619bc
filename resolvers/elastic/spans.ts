// Spans from Elasticsearch and OpenSearch: the two primitives of a span store, and everything else by their definition.
// The index narrows what is read as far as it surely can; whether a span is one of those that are asked for is decided on
// the span itself. What a layout keeps in documents of its own is put back into its span before anybody sees it.
import { Refused } from "../../src/errors.ts";
import type { Span, SpanEvent } from "../../src/model.ts";
import type {
  Budget,
  SpanId,
  SpanLookup,
  SpanNarrowing,
  SpanReader,
  SpanScan,
  SpanSelection,
  SpanSource,
  SpanSources,
  SpanTally,
  TallyQuery,
} from "../../src/reader.ts";
import type { SpanStore } from "../../src/store.ts";
import { analyticsOver } from "../../src/tracing/analytics.ts";
import { hasException } from "../../src/tracing/exception.ts";
import { isNearer, spanKey } from "../../src/tracing/request.ts";
import { selects } from "../../src/tracing/selection.ts";
import { tallyOf } from "../../src/tracing/tally.ts";
import type { Catalog } from "./catalog.ts";
import { findCrowds } from "./crowds.ts";
import { type Condition, createDocuments, type Documents, Outdated, type Plan } from "./documents.ts";
import type { Door } from "./door.ts";
import { countCandidates, findFailedTraces, findMilestone, findSpansOfEvents } from "./hints.ts";
import type { EventForm, SpanForm } from "./layout.ts";
import { endsWithin, holdsId, idsOfOneSearch, isCalledBy, isChildOf, isNamed, isSelected } from "./narrow.ts";
import { isError, isNarrowed, tellsOf } from "./narrowing.ts";
import { every } from "./query.ts";
import { type LooseEvent, readEvent, readSpan, sortEvents } from "./span.ts";
import { candidates, tallySpans } from "./tallies.ts";

export function createSpanStore(backend: string, door: Door, catalog: Catalog): SpanStore {
  const reader = createSpanReader(createDocuments(backend, door, catalog));
  return { ...reader, ...analyticsOver(reader) };
}

/** The sources of one site, and what is shared by all reading of it for one call. */
interface Reading {
  readonly sources: readonly SpanSource[];
  readonly budget: Budget;
  readonly signal: AbortSignal;
  readonly given: Given;
}
/** Spans that were given already: by span id the first of each, and the keys of all others. */
interface Given {
  readonly first: Map<string, Span>;
  readonly keys: Set<string>;
}
type StoredEvent = LooseEvent & { readonly id: string };
interface Wanted {
  readonly condition: Condition<SpanForm>;
  /** Decided without the events of other documents. */
  readonly accepts: (span: Span) => boolean;
  /** Whether spans are told apart by their documents, and not by what they are. */
  readonly byDocument?: boolean;
  /** Set where all spans of these traces are wanted: their events can be read at the same time. */
  readonly whole?: readonly string[];
  /** More than one answer holds, as far as is known. */
  readonly many?: boolean;
}

function createSpanReader(documents: Documents): SpanReader {
  return {
    scan: (query, signal) => eachSite(query, signal, (reading) => scanSite(query, reading)),
    tally: (query, signal) => eachSite(query, signal, (reading) => tallySite(query, reading)),
    crowds: async (query, signal) => {
      const [source, ...others] = query.sources;
      return others.length > 0 ? undefined : findCrowds(documents, source, query, signal);
    },
    milestone: async (query, signal) => {
      const found = await Promise.all(
        query.sources.map((source) => findMilestone(documents, source, query, signal)),
      );
      const known = found.filter((value) => value !== undefined).sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
      return query.order === "asc" ? known[0] : known.at(-1);
    },
    failedTraces: async (query, signal) => {
      const found = await Promise.all(
        query.sources.map((source) => findFailedTraces(documents, source, query, signal)),
      );
      return found.includes(undefined) ? undefined : [...new Set(found.flatMap((ids) => ids ?? []))];
    },
    count: async (query, signal) => {
      const found = await Promise.all(
        query.sources.map((source) => countCandidates(documents, source, query, signal)),
      );
      return found.reduce((sum, one) => (sum === undefined || one === undefined ? undefined : sum + one), 0);
    },
    find: (query, signal) => eachSite(query, signal, (reading) => findInSite(query, reading)),
  };

  async function* eachSite<T>(
    { sources, budget }: { readonly sources: SpanSources; readonly budget: Budget },
    signal: AbortSignal,
    read: (reading: Reading) => AsyncGenerator<T>,
  ): AsyncGenerator<T> {
    signal.throwIfAborted();
    const leaving = new AbortController();
    const limited = documents.within(signal, leaving.signal);
    const sites = [...Map.groupBy(sources, ({ site }) => site).values()];
    const readings = sites.map((own): Reading => {
      return { sources: own, budget, signal: limited, given: nothingGiven() };
    });
    try {
      yield* together(readings.map((reading) => () => read(reading)));
    } finally {
      leaving.abort(new Error("no more spans wanted"));
    }
  }

  // ---- scan ---------------------------------------------------------------------------------------------------

  async function* scanSite(query: SpanScan, reading: Reading): AsyncGenerator<readonly Span[]> {
    const { range, select, narrow, bare } = query;
    const isInRange = ({ end }: Span): boolean => end >= range.from && end <= range.to;
    const ending: Condition<SpanForm> = (placed, source) => {
      const narrowed = narrow === undefined ? [] : [isNarrowed(placed, narrow, source)];
      return every([endsWithin(placed, range), ...narrowed]);
    };
    if (select === "exceptions") {
      yield* scanExceptions(
        { condition: ending, accepts: isInRange, byDocument: true },
        narrow?.errors,
        reading,
      );
      return;
    }
    const condition: Condition<SpanForm> = (placed, source) => candidates(placed, query, source);
    const accepts = (span: Span): boolean => isInRange(span) && selects(select, span);
    const wanted: Wanted = { condition, accepts, byDocument: true };
    yield* bare ? bareSpans(wanted, reading) : wholeSpans(wanted, reading);
  }

  async function* tallySite(query: TallyQuery, reading: Reading): AsyncGenerator<readonly SpanTally[]> {
    const { sources, signal } = reading;
    const [source, ...others] = sources;
    // Several sources may hold the same documents, which only those who read them can tell.
    if (source === undefined || others.length > 0) {
      for await (const batch of scanSite({ ...query, bare: true }, reading)) yield batch.map(tallyOf);
      return;
    }
    const { from, to } = query.range;
    const accepts = (span: Span): boolean =>
      span.end >= from && span.end <= to && selects(query.select, span);
    const read = (condition: Condition<SpanForm>, plan: Plan) =>
      bareSpans({ condition, accepts, byDocument: true }, reading, plan);
    let given = false;
    try {
      for await (const batch of tallySpans(documents, source, query, read, signal)) {
        given = true;
        yield batch;
      }
    } catch (error) {
      // What is counted takes longer queries than what is read, which not every pattern allows; and whether indices
      // that never fit their mappings can be read at all, reading decides.
      const isTooLong = error instanceof Refused && error.slug === "not_supported_by_backend";
      if (given || !(isTooLong || error instanceof Outdated)) throw error;
      for await (const batch of scanSite({ ...query, bare: true }, reading)) yield batch.map(tallyOf);
    }
  }

  /**
   * An exception in a document of its own has a time, but its span's end may be any: either all such documents lead to
   * their spans, or all spans of the range to theirs, whichever are fewer. Of the documents their ids are enough, where
   * an index can list them.
   */
  async function* scanExceptions(
    wanted: Wanted,
    errors: SpanNarrowing["errors"],
    reading: Reading,
  ): AsyncGenerator<readonly Span[]> {
    if (!(await hasLooseEvents(reading))) {
      yield* exceptional(wanted, errors, reading);
      return;
    }
    const isException: Condition<EventForm> = (placed) => isError(placed, errors);
    const { sources, signal } = reading;
    const counts = sources.map(async (source) => [
      await documents.countEvents(source, isException, signal),
      await documents.countSpans(source, wanted.condition, signal),
    ]);
    const [loose = 0, spans = 0] = (await Promise.all(counts)).reduce(
      ([a = 0, b = 0], [c = 0, d = 0]) => [a + c, b + d],
      [0, 0],
    );
    const ids = spans * fewOfListed <= loose ? undefined : await listSpansOfEvents(isException, reading);
    if (ids === undefined && spans <= loose) {
      for await (const batch of wholeSpans(wanted, reading)) yield* nonEmpty(batch.filter(hasException));
      return;
    }
    yield* exceptional(wanted, errors, reading);
    yield* spansOfEvents(ids ?? (await spansOfLoose(isException, reading)), wanted, reading);
  }

  /** Undefined where an index cannot list them. */
  async function listSpansOfEvents(
    condition: Condition<EventForm>,
    { sources, budget, signal }: Reading,
  ): Promise<readonly SpanId[] | undefined> {
    const ids = new Map<string, SpanId>();
    for (const source of sources) {
      const found = await findSpansOfEvents(documents, source, condition, budget, signal);
      if (found === undefined) return undefined;
      for (const id of found) ids.set(spanKey(id), id);
    }
    return [...ids.values()];
  }

  /** Spans whose own document tells of an exception. */
  async function* exceptional(
    wanted: Wanted,
    errors: SpanNarrowing["errors"],
    reading: Reading,
  ): AsyncGenerator<readonly Span[]> {
    const condition: Condition<SpanForm> = (placed, source) =>
      every([wanted.condition(placed, source), tellsOf(placed, errors)]);
    for await (const batch of wholeSpans({ ...wanted, condition }, reading)) {
      yield* nonEmpty(batch.filter(hasException));
    }
  }

  async function spansOfLoose(condition: Condition<EventForm>, reading: Reading): Promise<readonly SpanId[]> {
    const ids = new Map<string, SpanId>();
    for await (const { trace_id, spans } of looseEvents(condition, reading)) {
      for (const span_id of spans) ids.set(spanKey({ trace_id, span_id }), { trace_id, span_id });
    }
    return [...ids.values()];
  }

  /** Those of these spans to which exceptions in documents of their own belong. */
  async function* spansOfEvents(
    ids: readonly SpanId[],
    wanted: Wanted,
    reading: Reading,
  ): AsyncGenerator<readonly Span[]> {
    const read = (part: readonly SpanId[]) => {
      const named = namedBy(part);
      return wholeSpans(
        {
          ...wanted,
          condition: (placed, source) =>
            every([named.condition(placed, source), wanted.condition(placed, source)]),
          accepts: (span) => named.accepts(span) && wanted.accepts(span),
        },
        reading,
      );
    };
    for await (const batch of together([...parts(ids)].map((part) => () => read(part)))) {
      yield* nonEmpty(batch.filter(hasException));
    }
  }

  // ---- find ---------------------------------------------------------------------------------------------------

  function findInSite({ of, within, bare }: SpanLookup, reading: Reading): AsyncGenerator<readonly Span[]> {
    const { by } = of;
    const read = (wanted: Wanted) => (bare ? bareSpans(wanted, reading) : wholeSpans(wanted, reading));
    switch (by) {
      case "trace":
        return together(
          [...parts(of.traceIds)].map((ids) => () => findTraces(ids, of.select, within, reading, read)),
        );
      case "span":
        return together([...parts(of.spans)].map((ids) => () => read(namedBy(ids))));
      case "id":
        return together([...parts(of.spanIds)].map((ids) => () => read(withId(ids))));
      case "caller":
        return together([...parts(of.spans)].map((ids) => () => read(calledBy(ids))));
      case "parent":
        return together([...parts(of.spanIds)].map((ids) => () => read(childrenOf(ids))));
      default:
        return by satisfies never;
    }
  }

  async function* findTraces(
    ids: readonly string[],
    select: SpanSelection,
    within: SpanLookup["within"],
    reading: Reading,
    read: (wanted: Wanted) => AsyncGenerator<readonly Span[]>,
  ): AsyncGenerator<readonly Span[]> {
    const sought = new Set(ids);
    const inTrace: Wanted = {
      condition: ({ group, form }) => holdsId(group, form.trace_id, ids),
      accepts: ({ trace_id }) => sought.has(trace_id),
    };
    if (select === "exceptions") {
      yield* exceptional(inTrace, undefined, reading);
      if (!(await hasLooseEvents(reading))) return;
      const events: Condition<EventForm> = (placed) =>
        every([isNamed(placed, "exception"), holdsId(placed.group, placed.form.trace_id, ids)]);
      yield* spansOfEvents(await spansOfLoose(events, reading), inTrace, reading);
      return;
    }
    const wanted: Wanted = {
      condition: (placed, source) => {
        const hinted =
          within === undefined
            ? isSelected(placed, select)
            : candidates(placed, { ...within, select }, source);
        return every([inTrace.condition(placed, source), hinted]);
      },
      accepts: (span) => inTrace.accepts(span) && selects(select, span),
    };
    yield* read(select === "all" ? { ...wanted, whole: ids } : wanted);
  }

  // ---- spans and their events ---------------------------------------------------------------------------------

  async function* wholeSpans(asked: Wanted, reading: Reading): AsyncGenerator<readonly Span[]> {
    const few = asked.whole === undefined ? undefined : await fewTraces(asked, asked.whole, reading);
    if (few !== undefined) {
      yield* nonEmpty(few);
      return;
    }
    const wanted = { ...asked, many: asked.whole !== undefined && reading.sources.length === 1 };
    const loose = await hasLooseEvents(reading);
    const events = loose && wanted.whole !== undefined ? eventsOfTraces(wanted.whole, reading) : undefined;
    // It may fail before the spans are there; it is met when they are.
    events?.catch(() => undefined);
    let held: Span[] = [];
    for await (const batch of bareSpans(wanted, reading)) {
      if (!loose) yield batch;
      else {
        held.push(...batch);
        if (held.length < idsOfOneSearch) continue;
        yield await withLooseEvents(held, reading, await events);
        held = [];
      }
    }
    if (held.length > 0) yield await withLooseEvents(held, reading, await events);
  }

  /** Traces that one answer holds whole, their events included; undefined where it does not. */
  async function fewTraces(
    { condition, accepts }: Wanted,
    ids: readonly string[],
    reading: Reading,
  ): Promise<readonly Span[] | undefined> {
    const { sources, budget, signal, given } = reading;
    const [source, ...others] = sources;
    // Several sources may hold the same documents: which, is told while they are read one after another.
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
    return withLooseEvents(spans, reading, [...events.values()]);
  }

  async function* bareSpans(
    { condition, accepts, byDocument, many }: Wanted,
    { sources, budget, signal, given }: Reading,
    plan?: Plan,
  ): AsyncGenerator<readonly Span[]> {
    for (const source of sources) {
      for await (const batch of documents.spans(source, condition, budget, signal, { plan, many })) {
        const spans: Span[] = [];
        for (const { index, id, document, form } of batch) {
          const span = readSpan(document, form, source);
          if (span === undefined || !accepts(span)) continue;
          if (byDocument ? isNew(given, `${index}/${id}`) : isNewSpan(given, span)) spans.push(span);
        }
        if (spans.length > 0) yield spans;
      }
    }
  }

  async function hasLooseEvents({ sources, signal }: Omit<Reading, "given">): Promise<boolean> {
    for (const source of sources) {
      if ((await documents.layout(source, signal)).events.length > 0) return true;
    }
    return false;
  }

  /** Each once, also where two sources hold its document. */
  async function* looseEvents(
    condition: Condition<EventForm>,
    { sources, budget, signal }: Omit<Reading, "given">,
  ): AsyncGenerator<StoredEvent> {
    const given = new Set<string>();
    for (const source of sources) {
      for await (const batch of documents.events(source, condition, budget, signal)) {
        for (const { index, id: own, document, form } of batch) {
          const id = `${index}/${own}`;
          const event = given.has(id) ? undefined : readEvent(document, form);
          if (event === undefined) continue;
          given.add(id);
          yield { ...event, id };
        }
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

  /** The spans with their events, which are among those given, or looked up. */
  async function withLooseEvents(
    spans: readonly Span[],
    reading: Reading,
    given: readonly StoredEvent[] | undefined,
  ): Promise<readonly Span[]> {
    const events = given ?? (await eventsOfSpans(spans, reading));
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
}

function eventsIn(ids: readonly string[]): readonly [Condition<EventForm>, (event: LooseEvent) => boolean] {
  const sought = new Set(ids);
  return [({ group, form }) => holdsId(group, form.trace_id, ids), ({ trace_id }) => sought.has(trace_id)];
}

/** Listing ids takes less of the budget than reading so many spans for each, but longer for a few. */
const fewOfListed = 10;

function nothingGiven(): Given {
  return { first: new Map(), keys: new Set() };
}

function isNew({ keys }: Given, key: string): boolean {
  if (keys.has(key)) return false;
  keys.add(key);
  return true;
}

/** Both sides of a call may have one id, and an exporter may send a document twice. */
function isNewSpan(given: Given, span: Span): boolean {
  const { trace_id, span_id, span_kind, start } = span;
  const first = given.first.get(span_id);
  if (first === undefined) {
    given.first.set(span_id, span);
    return true;
  }
  if (first.trace_id === trace_id && first.span_kind === span_kind && first.start === start) return false;
  return isNew(given, `${trace_id}${span_id}${span_kind}${start}`);
}

function namedBy(ids: readonly SpanId[]): Wanted {
  const sought = new Set(ids.map(spanKey));
  const [traceIds, spanIds] = partsOf(ids);
  return {
    condition: ({ group, form }) =>
      every([holdsId(group, form.span_id, spanIds), holdsId(group, form.trace_id, traceIds)]),
    accepts: (span) => sought.has(spanKey(span)),
  };
}

function withId(spanIds: readonly string[]): Wanted {
  const sought = new Set(spanIds);
  return {
    condition: ({ group, form }) => holdsId(group, form.span_id, spanIds),
    accepts: ({ span_id }) => sought.has(span_id),
  };
}

function calledBy(ids: readonly SpanId[]): Wanted {
  const callers = new Set(ids.map(spanKey));
  const [traceIds, spanIds] = partsOf(ids);
  return {
    condition: (placed) => every([isSelected(placed, "entries"), isCalledBy(placed, traceIds, spanIds)]),
    accepts: ({ entry, trace_id, parent_span_id: span_id, links }) =>
      entry &&
      ((span_id !== undefined && callers.has(spanKey({ trace_id, span_id }))) ||
        links.some((link) => callers.has(spanKey(link)))),
  };
}

function childrenOf(spanIds: readonly string[]): Wanted {
  const parents = new Set(spanIds);
  return {
    condition: (placed) => every([isSelected(placed, "statements"), isChildOf(placed, spanIds)]),
    accepts: (span) =>
      span.parent_span_id !== undefined && parents.has(span.parent_span_id) && selects("statements", span),
  };
}

function partsOf(ids: readonly SpanId[]): readonly [readonly string[], readonly string[]] {
  return [[...new Set(ids.map(({ trace_id }) => trace_id))], [...new Set(ids.map(({ span_id }) => span_id))]];
}

/** Sites, and parts of a long list of ids, that are read at once. */
const abreast = 4;

/** What all of them give, as it comes. */
async function* together<T>(starts: readonly (() => AsyncGenerator<T>)[]): AsyncGenerator<T> {
  type Step = { readonly of: AsyncGenerator<T>; readonly result: IteratorResult<T> };
  const waiting = [...starts];
  const steps = new Map<AsyncGenerator<T>, Promise<Step>>();
  const advance = (of: AsyncGenerator<T>) => {
    const step = of.next().then((result) => ({ of, result }));
    // One that fails while another is waited for is met in the race.
    step.catch(() => undefined);
    steps.set(of, step);
  };
  try {
    for (;;) {
      while (steps.size < abreast) {
        const start = waiting.shift();
        if (start === undefined) break;
        advance(start());
      }
      if (steps.size === 0) return;
      const { of, result } = await Promise.race(steps.values());
      if (result.done === true) steps.delete(of);
      else {
        yield result.value;
        advance(of);
      }
    }
  } finally {
    // Each frees what it holds at the source; one that still waits does so once its signal has stopped it.
    for (const of of steps.keys()) of.return(undefined).catch(() => undefined);
  }
}

function* parts<T>(ids: readonly T[]): Generator<readonly T[]> {
  for (let at = 0; at < ids.length; at += idsOfOneSearch) yield ids.slice(at, at + idsOfOneSearch);
}

function* nonEmpty<T>(batch: readonly T[]): Generator<readonly T[]> {
  if (batch.length > 0) yield batch;
}
