// Calls: pairs of a caller, such as a client span, and the request that it made, which the called service reports. All callers of a
// range are read, then the requests of the range if they are not too many for that, and what else the callers have called is looked
// up. Then each request is matched with its callers. Work over many spans takes turns with other requests.

import { takeTurns } from "../core/async/turns.ts";
import { isNonEmpty, requireFirst } from "../core/collections.ts";
import type { Attributes, Span } from "../core/rows.ts";
import type { TimeRange } from "../core/time.ts";
import type { EdgesQuery } from "../store/span-analytics.ts";
import type { Budget, SpanId, SpanReader, SpanSource, SpanSources } from "../store/spans.ts";
import {
  type Call,
  type CallSpans,
  indexAnsweredCallers,
  isSameCaller,
  matchMadeCalls,
  matchReceivedCalls,
} from "./call-matching.ts";
import { createBudgetShare, measureSpan, suppressShareSpent, trackBudget } from "./spans/read-budget.ts";
import { isSameSpan } from "./spans/repeated-spans.ts";
import { isRequest } from "./spans/requests.ts";
import { isInSelection } from "./spans/selection.ts";
import {
  addToIndex,
  createSpanIndex,
  hasSame,
  type IsSame,
  listSameIds,
  type SpanIndex,
} from "./spans/span-index.ts";

export interface Calls {
  /** By the site. */
  readonly made: readonly Call[];
  /** From the site's partners. */
  readonly received: readonly Required<Call>[];
}

/**
 * The calls whose caller ends in the range. Sites may hold the same documents: each counts once, for the site itself, else
 * for the first partner by id. The calls of a range are those of its parts, wherever it is divided: whether a caller has
 * called a request depends only on documents that `find` finds by the caller. Fails as `SpanReader.scan`.
 */
export async function findCalls(reader: SpanReader, query: EdgesQuery, signal: AbortSignal): Promise<Calls> {
  const { sources, partners, range } = query;
  const { site } = sources[0];
  const { budget, spent } = trackBudget(query.budget);
  const all = listAllSources(query);
  const spans: ReadSpans = {
    site,
    callers: { own: createSpanIndex(), others: createSpanIndex() },
    entries: { own: createSpanIndex(), others: createSpanIndex() },
    outerCallers: createSpanIndex(),
    hold: (span) => budget.held?.hold(measureSpan(span) + bytesPerPlace),
  };
  const scan = { sources: all, range, withoutEvents: true } as const;
  const callers = await addCallers(spans, reader.scan({ ...scan, select: "calls", budget }, signal));
  // What the site and a partner both hold is the site's.
  await removeDocuments(spans.callers.others, spans.callers.own, signal);
  const maxEntries = Math.min(maxEntriesPerCaller * callers, Math.floor((budget.limit - spent()) / 2));
  const share = createBudgetShare(budget, maxEntries);
  const readEntries = async (): Promise<TimeRange> => {
    await addCallees(spans, reader.scan({ ...scan, select: "entries", budget: share }, signal));
    return range;
  };
  const readRange = await suppressShareSpent(readEntries());
  const lookup = { reader, spans, budget, readRange };
  await lookUpCallees(lookup, all, spans.callers.own, signal);
  // Of what the partners' callers have called, requests of the site matter. For those that have called it, requests of partners do
  // too: one with the caller's id tells whose the spans below it are, see `isBelowOtherCallee`.
  await lookUpCallees(lookup, sources, spans.callers.others, signal);
  const answered = await indexAnsweredCallers(spans, signal);
  await lookUpCallees(lookup, partners, answered, signal);
  return { made: await matchMadeCalls(spans, signal), received: await matchReceivedCalls(spans, signal) };
}

export function listAllSources({ sources, partners }: EdgesQuery): SpanSources {
  return [...sources, ...partners];
}

// ---- Reading --------------------------------------------------------------------------------------------------

/** What has been read so far. */
interface ReadSpans extends CallSpans {
  readonly site: string;
  /** Counts the memory of a span that is kept here. */
  readonly hold: (span: Span) => void;
}

/** What a span takes in an index and among the calls. */
const bytesPerPlace = 100;

/** Where more entries than this come to a caller, looking up the callers' ids costs less than reading the entries. */
const maxEntriesPerCaller = 3;

/** Whether two documents of one request name the same callers. */
const namesSameCallers: IsSame = (a, b) =>
  isSameSpan(a, b) && a.parent_span_id === b.parent_span_id && hasSameLinks(a, b);

function hasSameLinks({ links }: Span, other: Span): boolean {
  return (
    links.length === other.links.length &&
    links.every(({ trace_id, span_id }, at) => {
      const link = other.links[at];
      return link?.trace_id === trace_id && link.span_id === span_id;
    })
  );
}

/** Returns how many spans were read. */
async function addCallers(
  { site, callers, hold }: ReadSpans,
  batches: AsyncIterable<readonly Span[]>,
): Promise<number> {
  let read = 0;
  for await (const batch of batches) {
    read += batch.length;
    for (const span of batch) {
      const kept = omitDetails(span);
      if (addToIndex(span.site_id === site ? callers.own : callers.others, kept, isSameCaller)) hold(kept);
    }
  }
  return read;
}

/** Adds requests, and callers below others. */
async function addCallees(
  { site, entries, outerCallers, hold }: ReadSpans,
  batches: AsyncIterable<readonly Span[]>,
): Promise<void> {
  for await (const batch of batches) {
    for (const span of batch) {
      const kept = omitDetails(span);
      const isBelow = span.parent_span_id !== undefined;
      if (isBelow && isInSelection("calls", span) && addToIndex(outerCallers, kept, isSameCaller)) hold(kept);
      if (!isRequest(span)) continue;
      if (addToIndex(span.site_id === site ? entries.own : entries.others, kept, namesSameCallers))
        hold(kept);
    }
  }
}

/** Removes the spans whose documents another index holds. */
async function removeDocuments(index: SpanIndex, held: SpanIndex, signal: AbortSignal): Promise<void> {
  for await (const chunk of takeTurns([...index.groups], signal)) {
    for (const [key, spans] of chunk) {
      const left = spans.filter((span) => !hasSame(held, span, isSameCaller));
      if (left.length === spans.length) continue;
      if (left.length === 0) index.groups.delete(key);
      else index.groups.set(key, left);
    }
  }
}

const noAttributes: Attributes = {};
const noEvents: Span["events"] = [];

/** The span with what calls need: all spans of a long range are kept. */
function omitDetails(span: Span): Span {
  return {
    site_id: span.site_id,
    trace_id: span.trace_id,
    span_id: span.span_id,
    parent_span_id: span.parent_span_id,
    start: span.start,
    end: span.end,
    service_name: span.service_name,
    span_name: span.span_name,
    span_kind: span.span_kind,
    status_code: span.status_code,
    resource_attributes: noAttributes,
    span_attributes: noAttributes,
    events: noEvents,
    links: span.links,
    entry: span.entry,
    namespace: span.namespace,
    action: span.action,
    tags: noAttributes,
    count: span.count,
    sum: span.sum,
    peer: span.peer,
    report: span.report,
  };
}

interface CalleeLookup {
  readonly reader: SpanReader;
  readonly spans: ReadSpans;
  readonly budget: Budget;
  /** The range whose entries are all read already; undefined where they were too many. */
  readonly readRange: TimeRange | undefined;
}

/** Callers per look-up, and more where a trace has them. */
const callersPerLookup = 30_000;

/**
 * Adds the requests in these sources that the callers made and that are not read yet: by the callers' traces, or by the
 * callers where their traces have too many other requests.
 */
async function lookUpCallees(
  { reader, spans, budget, readRange }: CalleeLookup,
  sources: readonly SpanSource[],
  callers: SpanIndex,
  signal: AbortSignal,
): Promise<void> {
  if (!isNonEmpty(sources)) return;
  for await (const ids of listSpanIds(callers, signal)) {
    const find = async (limit: Budget, outside: TimeRange | undefined): Promise<true> => {
      const of = { by: "caller", spans: ids } as const;
      await addCallees(
        spans,
        reader.find({ sources, of, outside, withoutEvents: true, budget: limit }, signal),
      );
      return true;
    };
    const share = createBudgetShare(budget, ids.length);
    const isFound = readRange !== undefined && (await suppressShareSpent(find(share, readRange)));
    if (isFound !== true) await find(budget, undefined);
  }
}

/** The ids of an index in chunks of whole traces. */
async function* listSpanIds(index: SpanIndex, signal: AbortSignal): AsyncGenerator<readonly SpanId[]> {
  const idsByTrace = new Map<string, SpanId[]>();
  for await (const chunk of takeTurns(listSameIds(index), signal)) {
    for (const spans of chunk) {
      const { trace_id, span_id } = requireFirst(spans);
      const known = idsByTrace.get(trace_id);
      if (known === undefined) idsByTrace.set(trace_id, [{ trace_id, span_id }]);
      else known.push({ trace_id, span_id });
    }
  }
  let ids: SpanId[] = [];
  for (const own of idsByTrace.values()) {
    for (const id of own) ids.push(id);
    if (ids.length < callersPerLookup) continue;
    yield ids;
    ids = [];
  }
  if (ids.length > 0) yield ids;
}
