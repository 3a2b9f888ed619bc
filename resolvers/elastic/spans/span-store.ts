// Spans from Elasticsearch and OpenSearch: the two primitives of a span store, and everything else by their definition.
// The index narrows what is read as far as it surely can; whether a span is one of those that are asked for is decided on
// the span itself.
import { Refused } from "../../../src/core/errors.ts";
import { compare, type Span } from "../../../src/core/rows.ts";
import type { TimeRange } from "../../../src/core/time.ts";
import type {
  Budget,
  SpanId,
  SpanLookup,
  SpanNarrowing,
  SpanReader,
  SpanScan,
  SpanSelection,
  SpanSources,
  SpanTally,
  TallyQuery,
} from "../../../src/store/span-reader.ts";
import type { SpanStore } from "../../../src/store/store.ts";
import { analyticsOver } from "../../../src/tracing/analytics.ts";
import { hasException } from "../../../src/tracing/spans/exceptions.ts";
import { spanKey } from "../../../src/tracing/spans/requests.ts";
import { selects } from "../../../src/tracing/spans/selection.ts";
import { tallyOf } from "../../../src/tracing/spans/span-tally.ts";
import type { Door } from "../client/client.ts";
import { every, none } from "../client/query-dsl.ts";
import type { LooseEvent } from "../layout/span-decoder.ts";
import type { EventForm, SpanForm } from "../layout/span-layout.ts";
import { isError, isNarrowed, tellsOf } from "../query/span-pushdown.ts";
import { endsWithin, holdsId, isNamed, isSelected, timeBounds } from "../query/span-upper-bounds.ts";
import type { Catalog } from "../search/mapping-cache.ts";
import { nothingGiven } from "./dedup.ts";
import {
  countCandidates,
  findFailedTraces,
  findMilestone,
  findPlacements,
  findSpansOfEvents,
} from "./index-hints.ts";
import { together } from "./merge-concurrent.ts";
import { findCrowds } from "./n-plus-one.ts";
import { candidates, tallySpans } from "./span-aggregation.ts";
import { createSpans, nonEmpty, type Reading } from "./span-assembly.ts";
import { type Condition, createDocuments, type Documents, Outdated, type Plan } from "./span-documents.ts";
import {
  aloneOf,
  calledBy,
  childrenOf,
  distinctIds,
  eventsIn,
  lost,
  namedBy,
  type Placement,
  parts,
  placementOf,
  type Wanted,
  type WantedAlone,
  withId,
} from "./span-lookups.ts";

export function createSpanStore(backend: string, door: Door, catalog: Catalog): SpanStore {
  const reader = createSpanReader(createDocuments(backend, door, catalog));
  return { ...reader, ...analyticsOver(reader) };
}

function createSpanReader(documents: Documents): SpanReader {
  const { bareSpans, wholeSpans, spansAlone, hasEvents, hasLooseEvents, looseEvents } =
    createSpans(documents);
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
      const known = found.filter((value) => value !== undefined).sort(compare);
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
      const failed: Wanted = { condition: ending, accepts: isInRange, byDocument: true };
      yield* together([
        () => scanExceptions(failed, narrow?.errors, reading),
        () => scanAlone(range, narrow?.errors, reading),
      ]);
      return;
    }
    const condition: Condition<SpanForm> = (placed, source) => candidates(placed, query, source);
    const accepts = (span: Span): boolean => isInRange(span) && selects(select, span);
    const wanted: Wanted = { condition, accepts, byDocument: true, once: true };
    yield* bare ? bareSpans(wanted, reading) : wholeSpans(wanted, reading);
    if (select === "all" && !bare) yield* scanAlone(range, undefined, reading);
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
      bareSpans({ condition, accepts, byDocument: true, once: true }, reading, plan);
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
    const counts = sources.map((source) =>
      Promise.all([
        documents.countEvents(source, isException, signal),
        documents.countSpans(source, wanted.condition, signal),
      ]),
    );
    const [loose, spans] = (await Promise.all(counts)).reduce(([a, b], [c, d]) => [a + c, b + d], [0, 0]);
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
    const found = await Promise.all(
      sources.map((source) => findSpansOfEvents(documents, source, condition, budget, signal)),
    );
    if (found.includes(undefined)) return undefined;
    return distinctIds(found.flatMap((ids) => ids ?? []));
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
    const found: SpanId[] = [];
    for await (const event of looseEvents(condition, reading)) found.push(...placementOf(event).spans);
    return distinctIds(found);
  }

  /** Those of these spans to which exceptions in documents of their own belong; `met` is told of all that there are. */
  async function* spansOfEvents(
    ids: readonly SpanId[],
    wanted: Wanted,
    reading: Reading,
    met = new Set<string>(),
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
      for (const span of batch) met.add(spanKey(span));
      yield* nonEmpty(batch.filter(hasException));
    }
  }

  // ---- events whose spans are not kept ------------------------------------------------------------------------

  async function placesOf(
    condition: Condition<EventForm>,
    reading: Reading,
    accepts: (event: LooseEvent) => boolean = () => true,
  ): Promise<readonly Placement[]> {
    const places: Placement[] = [];
    for await (const event of looseEvents(condition, reading))
      if (accepts(event)) places.push(placementOf(event));
    return places;
  }

  /** By ids alone, where every index can list them. */
  async function listPlaces(
    condition: Condition<EventForm>,
    reading: Reading,
  ): Promise<readonly Placement[]> {
    const { sources, budget, signal } = reading;
    const found = await Promise.all(
      sources.map((source) => findPlacements(documents, source, condition, budget, signal)),
    );
    if (found.includes(undefined)) return placesOf(condition, reading);
    return found.flatMap((places) => places ?? []);
  }

  /** Events that satisfy a condition and are spans of their own, because none of theirs is there. */
  async function* findAlone(
    { condition, accepts }: WantedAlone,
    reading: Reading,
  ): AsyncGenerator<readonly Span[]> {
    if (!(await hasEvents(reading, ({ alone }) => alone !== undefined))) return;
    const own: Condition<EventForm> = (placed, source) =>
      placed.form.alone === undefined ? none : condition(placed, source);
    const places = await listPlaces(own, reading);
    const met = new Set<string>();
    const ids = distinctIds(places.flatMap(({ spans }) => spans));
    const named = [...parts(ids)].map(
      (part) => () => bareSpans(namedBy(part), { ...reading, given: nothingGiven() }),
    );
    for await (const batch of together(named)) for (const span of batch) met.add(spanKey(span));
    yield* spansAlone(lost(places, met), reading, accepts);
  }

  function scanAlone(
    range: TimeRange,
    errors: SpanNarrowing["errors"],
    reading: Reading,
  ): AsyncGenerator<readonly Span[]> {
    const condition: Condition<EventForm> = (placed) => {
      const { field, unit } = placed.form.time;
      return every([isError(placed, errors), timeBounds(placed.group, field, unit, range.from, range.to)]);
    };
    return findAlone({ condition, accepts: ({ end }) => end >= range.from && end <= range.to }, reading);
  }

  // ---- find ---------------------------------------------------------------------------------------------------

  function findInSite({ of, within, bare }: SpanLookup, reading: Reading): AsyncGenerator<readonly Span[]> {
    const { by } = of;
    const read = (wanted: Wanted) => (bare ? bareSpans(wanted, reading) : wholeSpans(wanted, reading));
    const alone = (wanted: Wanted) => (bare ? nothing() : findAlone(aloneOf(wanted), reading));
    switch (by) {
      case "trace":
        return together(
          [...parts(of.traceIds)].map((ids) => () => findTraces(ids, of.select, within, reading, read)),
        );
      case "span":
        return together(
          [...parts(of.spans)].flatMap((ids) => [() => read(namedBy(ids)), () => alone(namedBy(ids))]),
        );
      case "id":
        return together(
          [...parts(of.spanIds)].flatMap((ids) => [() => read(withId(ids)), () => alone(withId(ids))]),
        );
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
      const [inTraces, isSought] = eventsIn(ids);
      const isException: Condition<EventForm> = (placed, source) =>
        every([isNamed(placed, "exception"), inTraces(placed, source)]);
      const places = await placesOf(isException, reading, isSought);
      const met = new Set<string>();
      yield* spansOfEvents(distinctIds(places.flatMap(({ spans }) => spans)), inTrace, reading, met);
      yield* spansAlone(lost(places, met), reading);
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
}

/** Listing ids takes less of the budget than reading so many spans for each, but longer for a few. */
const fewOfListed = 10;

async function* nothing(): AsyncGenerator<never> {}
