// Calls: pairs of a caller, such as a client span, and the request that it made, which the called service reports. All callers of a
// range are read, then the requests of the range if they are not too many for that, and what else the callers have called is looked
// up. Then each request is matched with its callers: its parent, what it links to, and the caller that has its own id, where both
// sides of a call share one. Work over many spans takes turns with other requests.

import { takeTurns } from "../core/async/turns.ts";
import { isNonEmpty, requireFirst } from "../core/collections.ts";
import type { Attributes, Span } from "../core/rows.ts";
import type { TimeRange } from "../core/time.ts";
import type { EdgesQuery } from "../store/span-analytics.ts";
import type { Budget, SpanId, SpanReader, SpanSource, SpanSources } from "../store/spans.ts";
import { createBudgetShare, measureSpan, suppressShareSpent, trackBudget } from "./spans/read-budget.ts";
import { compareDocuments, formatSpanIdentity, isSameSpan } from "./spans/repeated-spans.ts";
import { isCalleeSide, isRequest } from "./spans/requests.ts";
import { isInSelection } from "./spans/selection.ts";
import {
  addToIndex,
  createSpanIndex,
  findIndexedSpans,
  hasSame,
  type IsSame,
  listSameIds,
  type SpanIndex,
} from "./spans/span-index.ts";

/** A caller and one request that it made, or a caller whose callee has no visible spans. Neither has attributes or events. */
export interface Call {
  readonly caller: Span;
  readonly callee?: Span;
  readonly isLinked: boolean;
}

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
  const spans: CallSpans = {
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

interface CallSpans {
  readonly site: string;
  /** Those that end in the range. */
  readonly callers: SpansByOwner;
  /** Requests at any time, of which only those that a caller has called matter. */
  readonly entries: SpansByOwner;
  /** Callers below others, which end outside of the range, of any site. */
  readonly outerCallers: SpanIndex;
  /** Counts the memory of a span that is kept here. */
  readonly hold: (span: Span) => void;
}

/** What a span takes in an index and among the calls. */
const bytesPerPlace = 100;

/** Spans of the site itself, and of its partners. The document of an entry may be in both, that of a caller is not. */
interface SpansByOwner {
  readonly own: SpanIndex;
  readonly others: SpanIndex;
}

/** Where more entries than this come to a caller, looking up the callers' ids costs less than reading the entries. */
const maxEntriesPerCaller = 3;

/** Whether two documents are of one caller. Those with other ends or parents are not, since they may lie in other ranges. */
const isSameCaller: IsSame = (a, b) =>
  isSameSpan(a, b) && a.end === b.end && a.parent_span_id === b.parent_span_id;

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
  { site, callers, hold }: CallSpans,
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
  { site, entries, outerCallers, hold }: CallSpans,
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
  readonly spans: CallSpans;
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

// ---- Matching -------------------------------------------------------------------------------------------------

/** The site's own calls. A caller without a visible request is a call too. */
async function matchMadeCalls(spans: CallSpans, signal: AbortSignal): Promise<readonly Call[]> {
  const { callers, entries } = spans;
  const calls: Call[] = [];
  const answered = new Set<Span>();
  for await (const chunk of takeTurns(listDocuments(entries), signal)) {
    for (const documents of chunk) {
      for (const call of matchDocuments(spans, callers.own, documents)) {
        calls.push(call);
        answered.add(call.caller);
      }
    }
  }
  for await (const chunk of takeTurns(callers.own.groups.values(), signal)) {
    for (const own of chunk) {
      for (const caller of own) if (!answered.has(caller)) calls.push({ caller, isLinked: false });
    }
  }
  return calls;
}

/** The calls of partners that the site has received. */
async function matchReceivedCalls(spans: CallSpans, signal: AbortSignal): Promise<readonly Required<Call>[]> {
  const calls: Required<Call>[] = [];
  const { callers, entries } = spans;
  if (callers.others.groups.size === 0) return calls;
  for await (const chunk of takeTurns(listSameIds(entries.own), signal)) {
    for (const own of chunk) calls.push(...matchDocuments(spans, callers.others, sortDocuments(own)));
  }
  return calls;
}

/** The partners' callers that have called the site. */
async function indexAnsweredCallers(spans: CallSpans, signal: AbortSignal): Promise<SpanIndex> {
  const answered = createSpanIndex();
  for (const { caller } of await matchReceivedCalls(spans, signal)) {
    addToIndex(answered, caller, isSameCaller);
  }
  return answered;
}

/** The documents of each span id of a trace: those of the site itself first. */
function* listDocuments({ own, others }: SpansByOwner): Generator<readonly Span[]> {
  for (const documents of listSameIds(own)) {
    const other = findIndexedSpans(others, requireFirst(documents));
    yield other.length === 0
      ? sortDocuments(documents)
      : [...sortDocuments(documents), ...sortDocuments(other)];
  }
  for (const documents of listSameIds(others)) {
    if (findIndexedSpans(own, requireFirst(documents)).length === 0) yield sortDocuments(documents);
  }
}

function sortDocuments(documents: readonly Span[]): readonly Span[] {
  return documents.length === 1 ? documents : documents.toSorted(compareDocuments);
}

/** The calls of requests with one span id: of several documents of one request, the first that names a caller counts. */
function matchDocuments(
  spans: CallSpans,
  callers: SpanIndex,
  documents: readonly Span[],
): readonly Required<Call>[] {
  if (documents.length === 1) return matchCallee(spans, callers, requireFirst(documents));
  const callersByRequest = new Map<string, Set<Span>>();
  return documents.flatMap((callee) => {
    const request = formatSpanIdentity(callee);
    const known = callersByRequest.get(request) ?? new Set();
    callersByRequest.set(request, known);
    const calls = matchCallee(spans, callers, callee).filter(({ caller }) => !known.has(caller));
    for (const { caller } of calls) known.add(caller);
    return calls;
  });
}

/** Each caller that the callee is the other side of, names as its parent or links to, once. */
function matchCallee(spans: CallSpans, callers: SpanIndex, callee: Span): readonly Required<Call>[] {
  const linked = callee.links.flatMap((link) => findIndexedSpans(callers, link));
  const parents = findCallingParents(spans, callers, callee);
  if (linked.length === 0) return parents.map((caller) => ({ caller, callee, isLinked: false }));
  return [...new Set([...parents, ...linked])].map((caller) => {
    return { caller, callee, isLinked: linked.includes(caller) };
  });
}

/** The callers with the callee's own id, which is their other side, and those that it names as its parent. */
function findCallingParents(spans: CallSpans, callers: SpanIndex, callee: Span): readonly Span[] {
  const { trace_id, parent_span_id: span_id } = callee;
  const sameId = isCalleeSide(callee) ? findIndexedSpans(callers, callee) : [];
  if (span_id === undefined) return sameId;
  const parents = findIndexedSpans(callers, { trace_id, span_id });
  if (parents.length === 0 || isBelowOtherCallee(spans, callee) || isBelowOtherCaller(spans, callee)) {
    return sameId;
  }
  return sameId.length === 0 ? parents : [...new Set([...sameId, ...parents])];
}

/** Where both sides of a call share an id, spans that name it as their parent are below the called side. */
function isBelowOtherCallee({ entries: { own, others } }: CallSpans, callee: Span): boolean {
  const { trace_id, parent_span_id: span_id } = callee;
  if (span_id === undefined) return false;
  return [own, others].some((index) => findIndexedSpans(index, { trace_id, span_id }).some(isCalleeSide));
}

/** Where both sides of a call share an id, what they name as their parent has not called the called side. */
function isBelowOtherCaller({ callers, outerCallers }: CallSpans, callee: Span): boolean {
  if (!isCalleeSide(callee)) return false;
  return [callers.own, callers.others, outerCallers].some((index) =>
    findIndexedSpans(index, callee).some((caller) => caller.parent_span_id === callee.parent_span_id),
  );
}
