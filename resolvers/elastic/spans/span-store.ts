// Spans from Elasticsearch and OpenSearch: the two primitives of a span store, and everything else by their definition.
// The index narrows what is read as far as it surely can; whether a span is one of those that are asked for is decided on
// the span itself.

import { mergeConcurrent } from "../../../src/core/concurrency.ts";
import { Refused } from "../../../src/core/errors.ts";
import { compare, type Span } from "../../../src/core/rows.ts";
import type { TimeRange } from "../../../src/core/time.ts";
import type { SpanStore } from "../../../src/store/span-analytics.ts";
import type {
  Budget,
  SpanId,
  SpanLookup,
  SpanPushdown,
  SpanReader,
  SpanScan,
  SpanSelection,
  SpanSources,
  SpanTally,
  TallyQuery,
} from "../../../src/store/spans.ts";
import { createSpanAnalytics } from "../../../src/tracing/analytics.ts";
import { hasException } from "../../../src/tracing/spans/exceptions.ts";
import { formatSpanKey } from "../../../src/tracing/spans/requests.ts";
import { isInSelection } from "../../../src/tracing/spans/selection.ts";
import { toTally } from "../../../src/tracing/spans/span-tally.ts";
import type { ElasticClient } from "../client/client.ts";
import { allOf, matchNone } from "../client/query-dsl.ts";
import type { SeparateEvent } from "../layout/event-decoder.ts";
import type { EventForm, SpanForm } from "../layout/span-layout.ts";
import { buildErrorEventQuery, buildExceptionQuery, buildPushdownQuery } from "../query/span-pushdown.ts";
import {
  buildEndTimeQuery,
  buildEventNameQuery,
  buildIdQuery,
  buildSelectionQuery,
  buildTimeBoundsQuery,
} from "../query/span-upper-bounds.ts";
import type { MappingCache } from "../search/mapping-cache.ts";
import {
  countCandidates,
  findSplitPoint,
  listEventOwners,
  listSpanIdsOfEvents,
  listTraceIdsWithExceptions,
} from "./index-hints.ts";
import { findNPlusOneParents } from "./n-plus-one.ts";
import { createSeenSpans } from "./seen-spans.ts";
import { buildCandidateQuery, tallySpans } from "./span-aggregation.ts";
import { createSpanAssembler, type ReadContext, yieldNonEmpty } from "./span-assembly.ts";
import {
  type Condition,
  createSpanDocuments,
  PlanOutdatedError,
  type SearchPlan,
  type SpanDocuments,
} from "./span-documents.ts";
import {
  chunkIds,
  deduplicateIds,
  type EventOwners,
  findOrphanedSpanIds,
  matchCallees,
  matchEventsOfTraces,
  matchSpanIds,
  matchSpans,
  matchStandaloneSpans,
  matchStatementChildren,
  type SpanMatcher,
  type StandaloneMatcher,
  toEventOwners,
} from "./span-matchers.ts";

export function createSpanStore(backend: string, client: ElasticClient, catalog: MappingCache): SpanStore {
  const reader = createSpanReader(createSpanDocuments(backend, client, catalog));
  return { ...reader, ...createSpanAnalytics(reader) };
}

function createSpanReader(documents: SpanDocuments): SpanReader {
  const {
    readSpansWithoutEvents: bareSpans,
    readSpansWithEvents: wholeSpans,
    readStandaloneSpans: spansAlone,
    hasEventForm: hasEvents,
    hasSeparateEvents: hasLooseEvents,
    readSeparateEvents: looseEvents,
  } = createSpanAssembler(documents);
  return {
    scan: (query, signal) => eachSite(query, signal, (reading) => scanSite(query, reading)),
    tally: (query, signal) => eachSite(query, signal, (reading) => tallySite(query, reading)),
    findNPlusOneParents: async (query, signal) => {
      const [source, ...others] = query.sources;
      return others.length > 0 ? undefined : findNPlusOneParents(documents, source, query, signal);
    },
    findSplitPoint: async (query, signal) => {
      const found = await Promise.all(
        query.sources.map((source) => findSplitPoint(documents, source, query, signal)),
      );
      const known = found.filter((value) => value !== undefined).sort(compare);
      return query.order === "asc" ? known[0] : known.at(-1);
    },
    findTraceIdsWithExceptions: async (query, signal) => {
      const found = await Promise.all(
        query.sources.map((source) => listTraceIdsWithExceptions(documents, source, query, signal)),
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
    read: (reading: ReadContext) => AsyncGenerator<T>,
  ): AsyncGenerator<T> {
    signal.throwIfAborted();
    const leaving = new AbortController();
    const limited = documents.combineSignals(signal, leaving.signal);
    const sites = [...Map.groupBy(sources, ({ site }) => site).values()];
    const readings = sites.map((own): ReadContext => {
      return { sources: own, budget, signal: limited, seen: createSeenSpans() };
    });
    try {
      yield* mergeConcurrent(readings.map((reading) => () => read(reading)));
    } finally {
      leaving.abort(new Error("no more spans wanted"));
    }
  }

  // ---- scan ---------------------------------------------------------------------------------------------------

  async function* scanSite(query: SpanScan, reading: ReadContext): AsyncGenerator<readonly Span[]> {
    const { range, select, pushdown, withoutEvents: bare } = query;
    const isInRange = ({ end }: Span): boolean => end >= range.from && end <= range.to;
    const ending: Condition<SpanForm> = (placed, source) => {
      const narrowed = pushdown === undefined ? [] : [buildPushdownQuery(placed, pushdown, source)];
      return allOf([buildEndTimeQuery(placed, range), ...narrowed]);
    };
    if (select === "exceptions") {
      const failed: SpanMatcher = { condition: ending, accepts: isInRange, byDocument: true };
      yield* mergeConcurrent([
        () => scanExceptions(failed, pushdown?.errors, reading),
        () => scanAlone(range, pushdown?.errors, reading),
      ]);
      return;
    }
    const condition: Condition<SpanForm> = (placed, source) => buildCandidateQuery(placed, query, source);
    const accepts = (span: Span): boolean => isInRange(span) && isInSelection(select, span);
    const wanted: SpanMatcher = { condition, accepts, byDocument: true, isSingleRead: true };
    yield* bare ? bareSpans(wanted, reading) : wholeSpans(wanted, reading);
    if (select === "all" && !bare) yield* scanAlone(range, undefined, reading);
  }

  async function* tallySite(query: TallyQuery, reading: ReadContext): AsyncGenerator<readonly SpanTally[]> {
    const { sources, signal } = reading;
    const [source, ...others] = sources;
    // Several sources may hold the same documents, which only those who read them can tell.
    if (source === undefined || others.length > 0) {
      for await (const batch of scanSite({ ...query, withoutEvents: true }, reading))
        yield batch.map(toTally);
      return;
    }
    const { from, to } = query.range;
    const accepts = (span: Span): boolean =>
      span.end >= from && span.end <= to && isInSelection(query.select, span);
    const read = (condition: Condition<SpanForm>, plan: SearchPlan) =>
      bareSpans({ condition, accepts, byDocument: true, isSingleRead: true }, reading, plan);
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
      if (given || !(isTooLong || error instanceof PlanOutdatedError)) throw error;
      for await (const batch of scanSite({ ...query, withoutEvents: true }, reading))
        yield batch.map(toTally);
    }
  }

  /**
   * An exception in a document of its own has a time, but its span's end may be any: either all such documents lead to
   * their spans, or all spans of the range to theirs, whichever are fewer. Of the documents their ids are enough, where
   * an index can list them.
   */
  async function* scanExceptions(
    wanted: SpanMatcher,
    errors: SpanPushdown["errors"],
    reading: ReadContext,
  ): AsyncGenerator<readonly Span[]> {
    if (!(await hasLooseEvents(reading))) {
      yield* exceptional(wanted, errors, reading);
      return;
    }
    const isException: Condition<EventForm> = (placed) => buildErrorEventQuery(placed, errors);
    const { sources, signal } = reading;
    const counts = sources.map((source) =>
      Promise.all([
        documents.countEvents(source, isException, signal),
        documents.countSpans(source, wanted.condition, signal),
      ]),
    );
    const [loose, spans] = (await Promise.all(counts)).reduce(([a, b], [c, d]) => [a + c, b + d], [0, 0]);
    const ids = spans * idListingSavings <= loose ? undefined : await listSpansOfEvents(isException, reading);
    if (ids === undefined && spans <= loose) {
      for await (const batch of wholeSpans(wanted, reading)) yield* yieldNonEmpty(batch.filter(hasException));
      return;
    }
    yield* exceptional(wanted, errors, reading);
    yield* spansOfEvents(ids ?? (await spansOfLoose(isException, reading)), wanted, reading);
  }

  /** Undefined where an index cannot list them. */
  async function listSpansOfEvents(
    condition: Condition<EventForm>,
    { sources, budget, signal }: ReadContext,
  ): Promise<readonly SpanId[] | undefined> {
    const found = await Promise.all(
      sources.map((source) => listSpanIdsOfEvents(documents, source, condition, budget, signal)),
    );
    if (found.includes(undefined)) return undefined;
    return deduplicateIds(found.flatMap((ids) => ids ?? []));
  }

  /** Spans whose own document tells of an exception. */
  async function* exceptional(
    wanted: SpanMatcher,
    errors: SpanPushdown["errors"],
    reading: ReadContext,
  ): AsyncGenerator<readonly Span[]> {
    const condition: Condition<SpanForm> = (placed, source) =>
      allOf([wanted.condition(placed, source), buildExceptionQuery(placed, errors)]);
    for await (const batch of wholeSpans({ ...wanted, condition }, reading)) {
      yield* yieldNonEmpty(batch.filter(hasException));
    }
  }

  async function spansOfLoose(
    condition: Condition<EventForm>,
    reading: ReadContext,
  ): Promise<readonly SpanId[]> {
    const found: SpanId[] = [];
    for await (const event of looseEvents(condition, reading)) found.push(...toEventOwners(event).spans);
    return deduplicateIds(found);
  }

  /** Those of these spans to which exceptions in documents of their own belong; `isFloorMet` is told of all that there are. */
  async function* spansOfEvents(
    ids: readonly SpanId[],
    wanted: SpanMatcher,
    reading: ReadContext,
    met = new Set<string>(),
  ): AsyncGenerator<readonly Span[]> {
    const read = (part: readonly SpanId[]) => {
      const named = matchSpans(part);
      return wholeSpans(
        {
          ...wanted,
          condition: (placed, source) =>
            allOf([named.condition(placed, source), wanted.condition(placed, source)]),
          accepts: (span) => named.accepts(span) && wanted.accepts(span),
        },
        reading,
      );
    };
    for await (const batch of mergeConcurrent([...chunkIds(ids)].map((part) => () => read(part)))) {
      for (const span of batch) met.add(formatSpanKey(span));
      yield* yieldNonEmpty(batch.filter(hasException));
    }
  }

  // ---- events whose spans are not kept ------------------------------------------------------------------------

  async function placesOf(
    condition: Condition<EventForm>,
    reading: ReadContext,
    accepts: (event: SeparateEvent) => boolean = () => true,
  ): Promise<readonly EventOwners[]> {
    const places: EventOwners[] = [];
    for await (const event of looseEvents(condition, reading))
      if (accepts(event)) places.push(toEventOwners(event));
    return places;
  }

  /** By ids alone, where every index can list them. */
  async function listPlaces(
    condition: Condition<EventForm>,
    reading: ReadContext,
  ): Promise<readonly EventOwners[]> {
    const { sources, budget, signal } = reading;
    const found = await Promise.all(
      sources.map((source) => listEventOwners(documents, source, condition, budget, signal)),
    );
    if (found.includes(undefined)) return placesOf(condition, reading);
    return found.flatMap((places) => places ?? []);
  }

  /** Events that satisfy a condition and are spans of their own, because none of theirs is there. */
  async function* findAlone(
    { condition, accepts }: StandaloneMatcher,
    reading: ReadContext,
  ): AsyncGenerator<readonly Span[]> {
    if (!(await hasEvents(reading, ({ alone }) => alone !== undefined))) return;
    const own: Condition<EventForm> = (placed, source) =>
      placed.form.alone === undefined ? matchNone : condition(placed, source);
    const places = await listPlaces(own, reading);
    const met = new Set<string>();
    const ids = deduplicateIds(places.flatMap(({ spans }) => spans));
    const named = [...chunkIds(ids)].map(
      (part) => () => bareSpans(matchSpans(part), { ...reading, seen: createSeenSpans() }),
    );
    for await (const batch of mergeConcurrent(named)) for (const span of batch) met.add(formatSpanKey(span));
    yield* spansAlone(findOrphanedSpanIds(places, met), reading, accepts);
  }

  function scanAlone(
    range: TimeRange,
    errors: SpanPushdown["errors"],
    reading: ReadContext,
  ): AsyncGenerator<readonly Span[]> {
    const condition: Condition<EventForm> = (placed) => {
      const { field, unit } = placed.form.time;
      return allOf([
        buildErrorEventQuery(placed, errors),
        buildTimeBoundsQuery(placed.group, field, unit, range.from, range.to),
      ]);
    };
    return findAlone({ condition, accepts: ({ end }) => end >= range.from && end <= range.to }, reading);
  }

  // ---- find ---------------------------------------------------------------------------------------------------

  function findInSite(
    { of, within, withoutEvents: bare }: SpanLookup,
    reading: ReadContext,
  ): AsyncGenerator<readonly Span[]> {
    const { by } = of;
    const read = (wanted: SpanMatcher) => (bare ? bareSpans(wanted, reading) : wholeSpans(wanted, reading));
    const alone = (wanted: SpanMatcher) =>
      bare ? yieldNothing() : findAlone(matchStandaloneSpans(wanted), reading);
    switch (by) {
      case "trace":
        return mergeConcurrent(
          [...chunkIds(of.traceIds)].map((ids) => () => findTraces(ids, of.select, within, reading, read)),
        );
      case "span":
        return mergeConcurrent(
          [...chunkIds(of.spans)].flatMap((ids) => [
            () => read(matchSpans(ids)),
            () => alone(matchSpans(ids)),
          ]),
        );
      case "id":
        return mergeConcurrent(
          [...chunkIds(of.spanIds)].flatMap((ids) => [
            () => read(matchSpanIds(ids)),
            () => alone(matchSpanIds(ids)),
          ]),
        );
      case "caller":
        return mergeConcurrent([...chunkIds(of.spans)].map((ids) => () => read(matchCallees(ids))));
      case "parent":
        return mergeConcurrent(
          [...chunkIds(of.spanIds)].map((ids) => () => read(matchStatementChildren(ids))),
        );
      default:
        return by satisfies never;
    }
  }

  async function* findTraces(
    ids: readonly string[],
    select: SpanSelection,
    within: SpanLookup["within"],
    reading: ReadContext,
    read: (wanted: SpanMatcher) => AsyncGenerator<readonly Span[]>,
  ): AsyncGenerator<readonly Span[]> {
    const sought = new Set(ids);
    const inTrace: SpanMatcher = {
      condition: ({ group, form }) => buildIdQuery(group, form.trace_id, ids),
      accepts: ({ trace_id }) => sought.has(trace_id),
    };
    if (select === "exceptions") {
      yield* exceptional(inTrace, undefined, reading);
      if (!(await hasLooseEvents(reading))) return;
      const [inTraces, isSought] = matchEventsOfTraces(ids);
      const isException: Condition<EventForm> = (placed, source) =>
        allOf([buildEventNameQuery(placed, "exception"), inTraces(placed, source)]);
      const places = await placesOf(isException, reading, isSought);
      const met = new Set<string>();
      yield* spansOfEvents(deduplicateIds(places.flatMap(({ spans }) => spans)), inTrace, reading, met);
      yield* spansAlone(findOrphanedSpanIds(places, met), reading);
      return;
    }
    const wanted: SpanMatcher = {
      condition: (placed, source) => {
        const hinted =
          within === undefined
            ? buildSelectionQuery(placed, select)
            : buildCandidateQuery(placed, { ...within, select }, source);
        return allOf([inTrace.condition(placed, source), hinted]);
      },
      accepts: (span) => inTrace.accepts(span) && isInSelection(select, span),
    };
    yield* read(select === "all" ? { ...wanted, completeTraceIds: ids } : wanted);
  }
}

/** Listing ids takes less of the budget than reading so many spans for each, but longer for a few. */
const idListingSavings = 10;

async function* yieldNothing(): AsyncGenerator<never> {}
