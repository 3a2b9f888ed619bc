// Scans and tallies the spans of one site whose end lies in a range.

import { mapSources, mergeConcurrent } from "../../../src/core/async/concurrency.ts";
import { Refused } from "../../../src/core/errors.ts";
import type { Span } from "../../../src/core/rows.ts";
import type { TimeRange } from "../../../src/core/time.ts";
import type { SpanId, SpanPushdown, SpanScan, SpanTally, TallyQuery } from "../../../src/store/spans.ts";
import { hasException } from "../../../src/tracing/spans/exceptions.ts";
import { isInSelection } from "../../../src/tracing/spans/selection.ts";
import { toTally } from "../../../src/tracing/spans/span-tally.ts";
import { allOf } from "../client/query-dsl.ts";
import type { EventForm, SpanForm } from "../layout/span-layout.ts";
import { buildErrorEventQuery, buildPushdownQuery } from "../query/span-pushdown.ts";
import { buildEndTimeQuery, buildTimeBoundsQuery } from "../query/span-times.ts";
import {
  findStandaloneSpans,
  listSpanIds,
  listSpanIdsInTraces,
  readOwnersWithExceptions,
  readSpanIdsOfEvents,
  readSpansWithOwnExceptions,
} from "./exception-spans.ts";
import { PlanOutdatedError, type SearchPlan } from "./search-plan.ts";
import { buildCandidateQuery, tallySpans } from "./span-aggregation.ts";
import {
  hasSeparateEvents,
  type ReadContext,
  readSpansWithEvents,
  readSpansWithoutEvents,
  type SpanBatches,
  yieldNonEmpty,
} from "./span-assembly.ts";
import type { SpanMatcher } from "./span-matchers.ts";
import type { Condition } from "./span-search.ts";

/** `SpanReader.scan` over the sources of one site. */
export async function* scanSite(query: SpanScan, context: ReadContext): SpanBatches {
  const { range, select, pushdown, withoutEvents } = query;
  if (select === "exceptions") {
    yield* mergeConcurrent([
      () => scanExceptions(query, context),
      () => scanStandaloneSpans(range, pushdown?.errors, context),
    ]);
    return;
  }
  const matcher: SpanMatcher = {
    condition: (placed, source) => buildCandidateQuery(placed, query, source),
    accepts: (span) => isInRange(span, range) && isInSelection(select, span),
    byDocument: true,
    isSingleRead: true,
  };
  if (withoutEvents) {
    yield* readSpansWithoutEvents(matcher, context);
    return;
  }
  yield* readSpansWithEvents(matcher, context);
  if (select === "all") yield* scanStandaloneSpans(range, undefined, context);
}

function isInRange({ end }: Span, { from, to }: TimeRange): boolean {
  return end >= from && end <= to;
}

// ---- Tallies --------------------------------------------------------------------------------------------------

/** `SpanReader.tally` over the sources of one site. */
export async function* tallySite(
  query: TallyQuery,
  context: ReadContext,
): AsyncGenerator<readonly SpanTally[]> {
  const { documents, sources, signal } = context;
  const [source, ...others] = sources;
  // Several sources may hold the same documents, which only a read de-duplicates.
  if (source === undefined || others.length > 0) {
    yield* tallyByScan(query, context);
    return;
  }
  const accepts = (span: Span): boolean => isInRange(span, query.range) && isInSelection(query.select, span);
  const read = (condition: Condition<SpanForm>, plan: SearchPlan) =>
    readSpansWithoutEvents({ condition, accepts, byDocument: true, isSingleRead: true }, context, plan);
  let hasYielded = false;
  try {
    for await (const batch of tallySpans(documents, source, query, read, signal)) {
      hasYielded = true;
      yield batch;
    }
  } catch (error) {
    // Aggregations need longer queries than scans, which not every pattern allows. Indices that never fit their mappings
    // are an error of the scan, if they are one.
    const isTooLong = error instanceof Refused && error.slug === "not_supported_by_backend";
    if (hasYielded || !(isTooLong || error instanceof PlanOutdatedError)) throw error;
    yield* tallyByScan(query, context);
  }
}

async function* tallyByScan(query: TallyQuery, context: ReadContext): AsyncGenerator<readonly SpanTally[]> {
  for await (const batch of scanSite({ ...query, withoutEvents: true }, context)) yield batch.map(toTally);
}

// ---- Exceptions -----------------------------------------------------------------------------------------------

/** Listing ids takes this many times less budget than reading the spans, but is slower for few spans. */
const idListingSavings = 10;
/** About so many spans of a range are in one trace. */
const spansPerTrace = 8;

/**
 * Spans with exceptions. A separate exception may belong to a span with any end. The search starts from the exceptions
 * or from the spans of the range, whichever are fewer. Where an index can list the ids of the exceptions' spans, and
 * the traces of the range, no documents are read for that.
 */
async function* scanExceptions({ range, pushdown }: SpanScan, context: ReadContext): SpanBatches {
  const errors = pushdown?.errors;
  const matcher: SpanMatcher = {
    condition: (placed, source) => {
      const hints = pushdown === undefined ? [] : [buildPushdownQuery(placed, pushdown, source)];
      return allOf([buildEndTimeQuery(placed, range), ...hints]);
    },
    accepts: (span) => isInRange(span, range),
    byDocument: true,
  };
  if (!(await hasSeparateEvents(context))) {
    yield* readSpansWithOwnExceptions(matcher, errors, context);
    return;
  }
  const exceptionCondition: Condition<EventForm> = (placed) => buildErrorEventQuery(placed, errors);
  const { events, spans } = await countEventsAndSpans(exceptionCondition, matcher.condition, context);
  let ids: readonly SpanId[] | undefined;
  if (spans * idListingSavings > events) {
    const areTracesFewer = spans <= events * spansPerTrace;
    ids = areTracesFewer
      ? await listSpanIdsInTraces(exceptionCondition, matcher.condition, context)
      : await listSpanIds(exceptionCondition, context);
  }
  if (ids === undefined && spans <= events) {
    for await (const batch of readSpansWithEvents(matcher, context)) {
      yield* yieldNonEmpty(batch.filter(hasException));
    }
    return;
  }
  yield* readSpansWithOwnExceptions(matcher, errors, context);
  const owners = ids ?? (await readSpanIdsOfEvents(exceptionCondition, context));
  yield* readOwnersWithExceptions(owners, matcher, context);
}

async function countEventsAndSpans(
  eventCondition: Condition<EventForm>,
  spanCondition: Condition<SpanForm>,
  { documents, sources, signal }: ReadContext,
): Promise<{ readonly events: number; readonly spans: number }> {
  const counts = await mapSources(
    sources,
    (source, own) =>
      Promise.all([
        documents.countEvents(source, eventCondition, own),
        documents.countSpans(source, spanCondition, own),
      ]),
    signal,
  );
  return {
    events: counts.reduce((sum, [events]) => sum + events, 0),
    spans: counts.reduce((sum, [, spans]) => sum + spans, 0),
  };
}

function scanStandaloneSpans(
  range: TimeRange,
  errors: SpanPushdown["errors"],
  context: ReadContext,
): SpanBatches {
  const condition: Condition<EventForm> = (placed) => {
    const inRange = buildTimeBoundsQuery(placed, placed.form.time, range.from, range.to);
    return allOf([buildErrorEventQuery(placed, errors), inRange]);
  };
  return findStandaloneSpans({ condition, accepts: (span) => isInRange(span, range) }, context);
}
