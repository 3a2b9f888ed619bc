// Looks up the spans of one site by ids: of traces, of spans, of their callers or of their parents.

import { mergeConcurrent } from "../../../src/core/async/concurrency.ts";
import { yieldToEventLoop } from "../../../src/core/async/turns.ts";
import type { SpanLookup, SpanSelection } from "../../../src/store/spans.ts";
import { formatSpanKey } from "../../../src/tracing/spans/requests.ts";
import { isInSelection } from "../../../src/tracing/spans/selection.ts";
import { allOf, matchAll, not } from "../client/query-dsl.ts";
import { buildCertainEndTimeQuery } from "../query/span-lower-bounds.ts";
import { buildEventNameQuery, buildIdQuery, buildSelectionQuery } from "../query/span-upper-bounds.ts";
import {
  findStandaloneSpans,
  readEventOwners,
  readOwnersWithExceptions,
  readSpansWithOwnExceptions,
} from "./exception-spans.ts";
import { buildCandidateQuery } from "./span-aggregation.ts";
import {
  hasSeparateEvents,
  type ReadContext,
  readSpansWithEvents,
  readSpansWithoutEvents,
  readStandaloneSpans,
  type SpanBatches,
} from "./span-assembly.ts";
import {
  type CallerLookup,
  chunkIds,
  deduplicateIds,
  type EventMatcher,
  findOrphanedSpanIds,
  listCalleeMatchers,
  matchEventsOfTraces,
  matchSpanIds,
  matchSpans,
  matchStandaloneSpans,
  matchStatementChildren,
  maxTracesPerSearch,
  type SpanMatcher,
} from "./span-matchers.ts";

/** `SpanReader.find` over the sources of one site. */
export function findInSite(
  { of, within, outside, withoutEvents }: SpanLookup,
  context: ReadContext,
): SpanBatches {
  const { by } = of;
  const isPart = within !== undefined || outside !== undefined;
  const read = (matcher: SpanMatcher): SpanBatches =>
    withoutEvents ? readSpansWithoutEvents(matcher, context) : readSpansWithEvents(matcher, context);
  /** Each matcher by a read of its own. Without `withoutEvents`, standalone spans match as well. */
  const readWithStandalone = (matchers: readonly SpanMatcher[]): SpanBatches =>
    mergeConcurrent(
      matchers.flatMap((matcher) => {
        const readStandalone = () => findStandaloneSpans(matchStandaloneSpans(matcher), context);
        return [() => read(matcher), ...(withoutEvents ? [] : [readStandalone])];
      }),
    );
  switch (by) {
    case "trace":
      return mergeConcurrent(
        [...chunkIds(of.traceIds, isPart ? maxTracesPerSearch : undefined)].map(
          (ids) => () => findTraces(ids, of.select, { within, outside }, read, context),
        ),
      );
    case "span":
      return readWithStandalone([...chunkIds(of.spans)].map(matchSpans));
    case "id":
      return readWithStandalone([...chunkIds(of.spanIds)].map(matchSpanIds));
    case "caller":
      return findCallees(of, outside, read);
    case "parent":
      return mergeConcurrent([...chunkIds(of.spanIds)].map((ids) => () => read(matchStatementChildren(ids))));
    default:
      return by satisfies never;
  }
}

async function* findCallees(
  of: CallerLookup,
  outside: SpanLookup["outside"],
  read: (matcher: SpanMatcher) => SpanBatches,
): SpanBatches {
  // Several sites begin at the same moment, and each divides tens of thousands of callers.
  await yieldToEventLoop();
  yield* mergeConcurrent(listCalleeMatchers(of, outside).map((matcher) => () => read(matcher)));
}

function findTraces(
  traceIds: readonly string[],
  select: SpanSelection,
  { within, outside }: Pick<SpanLookup, "within" | "outside">,
  read: (matcher: SpanMatcher) => SpanBatches,
  context: ReadContext,
): SpanBatches {
  const sought = new Set(traceIds);
  const inTraces: SpanMatcher = {
    condition: ({ group, form }) => buildIdQuery(group, form.trace_id, traceIds),
    accepts: ({ trace_id }) => sought.has(trace_id),
  };
  if (select === "exceptions") return findExceptions(traceIds, inTraces, context);
  const selected: SpanMatcher = {
    condition: (placed, source) => {
      const hint =
        within === undefined
          ? buildSelectionQuery(placed, select)
          : buildCandidateQuery(placed, { ...within, select }, source);
      const isOutside = outside === undefined ? matchAll : not(buildCertainEndTimeQuery(placed, outside));
      return allOf([inTraces.condition(placed, source), hint, isOutside]);
    },
    accepts: (span) => inTraces.accepts(span) && isInSelection(select, span),
  };
  const isWhole = select === "all" && outside === undefined;
  return read(isWhole ? { ...selected, completeTraceIds: traceIds } : selected);
}

/** The spans of the traces with exceptions, their own and separate ones. */
async function* findExceptions(
  traceIds: readonly string[],
  inTraces: SpanMatcher,
  context: ReadContext,
): SpanBatches {
  const stored = new Set<string>();
  for await (const batch of readSpansWithOwnExceptions(inTraces, undefined, context)) {
    for (const span of batch) stored.add(formatSpanKey(span));
    yield batch;
  }
  if (!(await hasSeparateEvents(context))) return;
  const { condition, accepts } = matchEventsOfTraces(traceIds);
  const exceptions: EventMatcher = {
    condition: (placed, source) =>
      allOf([buildEventNameQuery(placed, "exception"), condition(placed, source)]),
    accepts,
  };
  const owners = await readEventOwners(exceptions, context);
  const ids = deduplicateIds(owners.flatMap(({ spans }) => spans));
  yield* readOwnersWithExceptions(ids, inTraces, context, stored);
  yield* readStandaloneSpans(findOrphanedSpanIds(owners, stored), context);
}
