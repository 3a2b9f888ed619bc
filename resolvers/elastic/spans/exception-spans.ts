// Reads the spans that exceptions belong to, and the standalone spans of exceptions whose spans are not stored.

import { mapSources, mergeConcurrent } from "../../../src/core/async/concurrency.ts";
import type { SpanId, SpanPushdown } from "../../../src/store/spans.ts";
import { hasException } from "../../../src/tracing/spans/exceptions.ts";
import { formatSpanKey } from "../../../src/tracing/spans/requests.ts";
import { allOf, matchNone } from "../client/query-dsl.ts";
import type { EventForm, SpanForm } from "../layout/span-layout.ts";
import { buildExceptionQuery } from "../query/span-pushdown.ts";
import { combineHints, listEventOwners, listSpanIdsOfEvents, listTraceIds } from "./index-hints.ts";
import { createSeenSpans } from "./seen-spans.ts";
import {
  hasEventForm,
  type ReadContext,
  readSeparateEvents,
  readSpansWithEvents,
  readSpansWithoutEvents,
  readStandaloneSpans,
  type SpanBatches,
  yieldNonEmpty,
} from "./span-assembly.ts";
import {
  chunkIds,
  deduplicateIds,
  type EventMatcher,
  type EventOwners,
  findOrphanedSpanIds,
  matchEventsOfTraces,
  matchSpans,
  maxTracesPerSearch,
  type SpanMatcher,
  type StandaloneMatcher,
  toEventOwners,
} from "./span-matchers.ts";
import type { Condition } from "./span-search.ts";

/** Matching spans with an exception in their own document. `errors` narrow the query only. */
export async function* readSpansWithOwnExceptions(
  matcher: SpanMatcher,
  errors: SpanPushdown["errors"],
  context: ReadContext,
): SpanBatches {
  const condition: SpanMatcher["condition"] = (placed, source) =>
    allOf([matcher.condition(placed, source), buildExceptionQuery(placed, errors)]);
  for await (const batch of readSpansWithEvents({ ...matcher, condition }, context)) {
    yield* yieldNonEmpty(batch.filter(hasException));
  }
}

/** Yields those of `ids` that match and own separately stored exceptions. Adds the key of every span found to `stored`. */
export async function* readOwnersWithExceptions(
  ids: readonly SpanId[],
  matcher: SpanMatcher,
  context: ReadContext,
  stored = new Set<string>(),
): SpanBatches {
  const reads = [...chunkIds(ids)].map((chunk) => () => {
    const named = matchSpans(chunk);
    const both: SpanMatcher = {
      ...matcher,
      condition: (placed, source) =>
        allOf([named.condition(placed, source), matcher.condition(placed, source)]),
      accepts: (span) => named.accepts(span) && matcher.accepts(span),
    };
    return readSpansWithEvents(both, context);
  });
  for await (const batch of mergeConcurrent(reads)) {
    for (const span of batch) stored.add(formatSpanKey(span));
    yield* yieldNonEmpty(batch.filter(hasException));
  }
}

// ---- Owners of separate events --------------------------------------------------------------------------------

/** Ids of the spans that matching events may belong to, listed by the index. Undefined where an index cannot list them. */
export async function listSpanIds(
  condition: Condition<EventForm>,
  { documents, sources, budget, signal }: ReadContext,
): Promise<readonly SpanId[] | undefined> {
  const lists = combineHints(
    await mapSources(
      sources,
      (source, own) => listSpanIdsOfEvents(documents, source, condition, budget, own),
      signal,
    ),
  );
  return lists && deduplicateIds(lists.flat());
}

/** Those of `listSpanIds` whose traces have a span of a condition. */
export async function listSpanIdsInTraces(
  condition: Condition<EventForm>,
  ofSpans: Condition<SpanForm>,
  context: ReadContext,
): Promise<readonly SpanId[] | undefined> {
  const { documents, sources, budget, signal } = context;
  const lists = combineHints(
    await mapSources(sources, (source, own) => listTraceIds(documents, source, ofSpans, budget, own), signal),
  );
  if (lists === undefined) return undefined;
  const found: SpanId[] = [];
  for (const traceIds of chunkIds([...new Set(lists.flat())], maxTracesPerSearch)) {
    const inTraces = matchEventsOfTraces(traceIds);
    const both: Condition<EventForm> = (placed, source) =>
      allOf([condition(placed, source), inTraces.condition(placed, source)]);
    const ids = await listSpanIds(both, context);
    if (ids === undefined) return undefined;
    found.push(...ids);
  }
  return deduplicateIds(found);
}

/** The ids of `listSpanIds`, from the documents of the events. */
export async function readSpanIdsOfEvents(
  condition: Condition<EventForm>,
  context: ReadContext,
): Promise<readonly SpanId[]> {
  const owners = await readEventOwners({ condition, accepts: () => true }, context);
  return deduplicateIds(owners.flatMap(({ spans }) => spans));
}

/** The owners of each matching event, from the documents of the events. */
export async function readEventOwners(
  { condition, accepts }: EventMatcher,
  context: ReadContext,
): Promise<readonly EventOwners[]> {
  const owners: EventOwners[] = [];
  for await (const event of readSeparateEvents(condition, context)) {
    if (accepts(event)) owners.push(toEventOwners(event));
  }
  return owners;
}

/** The owners of matching events, by ids alone where every index can list them. */
async function findEventOwners(
  condition: Condition<EventForm>,
  context: ReadContext,
): Promise<readonly EventOwners[]> {
  const { documents, sources, budget, signal } = context;
  const lists = combineHints(
    await mapSources(
      sources,
      (source, own) => listEventOwners(documents, source, condition, budget, own),
      signal,
    ),
  );
  return lists?.flat() ?? readEventOwners({ condition, accepts: () => true }, context);
}

// ---- Standalone spans -----------------------------------------------------------------------------------------

/** Matching events as spans of their own, those whose owners are not stored. */
export async function* findStandaloneSpans(
  { condition, accepts }: StandaloneMatcher,
  context: ReadContext,
): SpanBatches {
  if (!(await hasEventForm(context, ({ alone }) => alone !== undefined))) return;
  const isStandalone: Condition<EventForm> = (placed, source) =>
    placed.form.alone === undefined ? matchNone : condition(placed, source);
  const owners = await findEventOwners(isStandalone, context);
  const stored = new Set<string>();
  const ids = deduplicateIds(owners.flatMap(({ spans }) => spans));
  const reads = [...chunkIds(ids)].map(
    (chunk) => () => readSpansWithoutEvents(matchSpans(chunk), { ...context, seen: createSeenSpans() }),
  );
  for await (const batch of mergeConcurrent(reads)) {
    for (const span of batch) stored.add(formatSpanKey(span));
  }
  yield* readStandaloneSpans(findOrphanedSpanIds(owners, stored), context, accepts);
}
