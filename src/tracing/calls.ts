// Calls: pairs of a caller and the request that it made. All callers of a range are read, and the requests of the range; what
// else the callers have called is looked up. Work over many spans takes turns with other requests.
import { isNonEmpty } from "../core/collections.ts";
import type { Attributes, Span } from "../core/rows.ts";
import type { TimeRange } from "../core/time.ts";
import { yieldToEventLoop } from "../core/turns.ts";
import type { EdgesQuery } from "../store/span-analytics.ts";
import type { Budget, SpanId, SpanReader, SpanSource, SpanSources } from "../store/spans.ts";
import { createBudgetShare, suppressShareSpent, trackBudget } from "./spans/read-budget.ts";
import { isCalleeSide, isRequest } from "./spans/requests.ts";
import { addToIndex, findIndexedSpans, hasDocument, type SpanIndex } from "./spans/span-index.ts";

/** A caller and one request that it made, or a caller whose callee has no visible spans. Neither has attributes or events. */
export interface Call {
  readonly caller: Span;
  readonly callee?: Span;
  readonly isLinked: boolean;
}

interface Calls {
  /** By the site. */
  readonly made: readonly Call[];
  /** From the site's partners. */
  readonly received: readonly Required<Call>[];
}

/** Spans that are visited in one turn of the event loop: some milliseconds of work. */
const spansPerTurn = 2_000;

/** Yields the items in chunks, each in a turn of the event loop of its own. */
export async function* takeTurns<T>(items: Iterable<T>, signal: AbortSignal): AsyncGenerator<readonly T[]> {
  let chunk: T[] = [];
  for (const item of items) {
    chunk.push(item);
    if (chunk.length < spansPerTurn) continue;
    yield chunk;
    chunk = [];
    await yieldToEventLoop();
    signal.throwIfAborted();
  }
  if (chunk.length > 0) yield chunk;
}

/**
 * The calls whose caller ends in the range. Sites may hold the same documents: each counts once, for the site itself, else
 * for the first partner by id. Fails as `SpanReader.scan`.
 */
export async function findCalls(reader: SpanReader, query: EdgesQuery, signal: AbortSignal): Promise<Calls> {
  const { sources, partners, range } = query;
  const { site } = sources[0];
  const { budget, spent } = trackBudget(query.budget);
  const all = listAllSources(query);
  const spans: CallSpans = {
    site,
    callers: { own: new Map(), others: new Map() },
    entries: { own: new Map(), others: new Map() },
  };
  const scan = { sources: all, range, withoutEvents: true } as const;
  const callers = await addSpans(spans, "callers", reader.scan({ ...scan, select: "calls", budget }, signal));
  await removeDocuments(spans.callers.others, spans.callers.own, signal);
  const most = Math.min(maxEntriesPerCaller * callers, Math.floor((budget.limit - spent()) / 2));
  const share = createBudgetShare(budget, most);
  const entries = reader.scan({ ...scan, select: "entries", budget: share }, signal);
  const hasEntries = await suppressShareSpent(addSpans(spans, "entries", entries));
  const lookup = { reader, spans, budget, outside: hasEntries === undefined ? undefined : range };
  await lookUpCallees(lookup, all, spans.callers.own, signal);
  await lookUpCallees(lookup, sources, spans.callers.others, signal);
  const answering = await indexAnsweredCallers(spans, signal);
  await lookUpCallees(lookup, partners, answering, signal);
  return { made: await matchMadeCalls(spans, signal), received: await matchReceivedCalls(spans, signal) };
}

export function listAllSources({ sources, partners }: EdgesQuery): SpanSources {
  return [...sources, ...partners];
}

// ---- Reading --------------------------------------------------------------------------------------------------

interface CallSpans {
  readonly site: string;
  readonly callers: SpansBySide;
  /** Requests, of which only those that a caller has called matter. */
  readonly entries: SpansBySide;
}

/** Spans of the site itself and of its partners. The document of an entry may be on both sides, that of a caller is not. */
interface SpansBySide {
  readonly own: SpanIndex;
  readonly others: SpanIndex;
}

/** Where more entries than this come to a caller, looking up the callers' ids costs less than reading the entries. */
const maxEntriesPerCaller = 3;

/** Returns how many spans were read. */
async function addSpans(
  spans: CallSpans,
  role: "callers" | "entries",
  batches: AsyncIterable<readonly Span[]>,
): Promise<number> {
  const { own, others } = spans[role];
  let read = 0;
  for await (const batch of batches) {
    read += batch.length;
    for (const span of batch) {
      if (role === "entries" && !isRequest(span)) continue;
      addToIndex(span.site_id === spans.site ? own : others, omitDetails(span));
    }
  }
  return read;
}

/** Removes the spans whose documents another index holds. */
async function removeDocuments(index: SpanIndex, held: SpanIndex, signal: AbortSignal): Promise<void> {
  for await (const chunk of takeTurns([...index], signal)) {
    for (const [id, spans] of chunk) {
      if (!held.has(id)) continue;
      const left = spans.filter((span) => !hasDocument(held, span));
      if (left.length === 0) index.delete(id);
      else index.set(id, left);
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
  /** The range whose entries are read. Absent where it has too many. */
  readonly outside: TimeRange | undefined;
}

/** Callers per look-up, and more where a trace has them. */
const callersPerLookup = 30_000;

/**
 * Adds the requests in these sources that the callers made and that are not read yet: by the callers' traces, or by the
 * callers where their traces have too many other requests.
 */
async function lookUpCallees(
  { reader, spans, budget, outside }: CalleeLookup,
  sources: readonly SpanSource[],
  callers: SpanIndex,
  signal: AbortSignal,
): Promise<void> {
  if (!isNonEmpty(sources)) return;
  for await (const ids of listSpanIds(callers, signal)) {
    const find = (limit: Budget, range: TimeRange | undefined): Promise<number> => {
      const of = { by: "caller", spans: ids } as const;
      const query = { sources, of, outside: range, withoutEvents: true, budget: limit };
      return addSpans(spans, "entries", reader.find(query, signal));
    };
    const found = outside && (await suppressShareSpent(find(createBudgetShare(budget, ids.length), outside)));
    if (found === undefined) await find(budget, undefined);
  }
}

/** The ids of an index in chunks of whole traces. */
async function* listSpanIds(index: SpanIndex, signal: AbortSignal): AsyncGenerator<readonly SpanId[]> {
  const idsByTrace = new Map<string, SpanId[]>();
  for await (const chunk of takeTurns(index.values(), signal)) {
    for (const spans of chunk) addDistinctIds(idsByTrace, spans);
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

/** Adds the ids of spans that have one span id, each trace once. */
function addDistinctIds(idsByTrace: Map<string, SpanId[]>, spans: readonly Span[]): void {
  for (const [at, { trace_id, span_id }] of spans.entries()) {
    if (spans.findIndex((span) => span.trace_id === trace_id) < at) continue;
    const known = idsByTrace.get(trace_id);
    if (known === undefined) idsByTrace.set(trace_id, [{ trace_id, span_id }]);
    else known.push({ trace_id, span_id });
  }
}

// ---- Matching -------------------------------------------------------------------------------------------------

async function matchMadeCalls(spans: CallSpans, signal: AbortSignal): Promise<readonly Call[]> {
  const { callers, entries } = spans;
  const calls: Call[] = [];
  const answered = new Set<Span>();
  const add = (callee: Span): void => {
    for (const call of matchCallee(callers.own, entries, callee)) {
      calls.push(call);
      answered.add(call.caller);
    }
  };
  for await (const callees of takeTurns(listSpans(entries.own), signal)) callees.forEach(add);
  for await (const callees of takeTurns(listSpans(entries.others, entries.own), signal)) callees.forEach(add);
  for await (const chunk of takeTurns(listSpans(callers.own), signal)) {
    for (const caller of chunk) if (!answered.has(caller)) calls.push({ caller, isLinked: false });
  }
  return calls;
}

async function matchReceivedCalls(
  { callers, entries }: CallSpans,
  signal: AbortSignal,
): Promise<readonly Required<Call>[]> {
  const calls: Required<Call>[] = [];
  if (callers.others.size === 0) return calls;
  for await (const callees of takeTurns(listSpans(entries.own), signal)) {
    for (const callee of callees) calls.push(...matchCallee(callers.others, entries, callee));
  }
  return calls;
}

/** The partners' callers that have called the site. */
async function indexAnsweredCallers(spans: CallSpans, signal: AbortSignal): Promise<SpanIndex> {
  const answered: SpanIndex = new Map();
  for (const { caller } of await matchReceivedCalls(spans, signal)) addToIndex(answered, caller);
  return answered;
}

/** The spans of an index, without those whose documents another index holds. */
function* listSpans(index: SpanIndex, without?: SpanIndex): Generator<Span> {
  for (const spans of index.values()) {
    for (const span of spans) if (without === undefined || !hasDocument(without, span)) yield span;
  }
}

/** Each caller that the callee is the other side of, names as its parent or links to, once. */
function matchCallee(callers: SpanIndex, entries: SpansBySide, callee: Span): readonly Required<Call>[] {
  const linked = callee.links.flatMap((link) => findIndexedSpans(callers, link));
  const parents = findCallingParents(callers, entries, callee);
  if (linked.length === 0) return parents.map((caller) => ({ caller, callee, isLinked: false }));
  return [...new Set([...parents, ...linked])].map((caller) => {
    return { caller, callee, isLinked: linked.includes(caller) };
  });
}

function findCallingParents(callers: SpanIndex, { own, others }: SpansBySide, callee: Span): readonly Span[] {
  const { trace_id, parent_span_id: span_id } = callee;
  const sameId = isCalleeSide(callee) ? findIndexedSpans(callers, callee) : [];
  if (sameId.length > 0) return sameId;
  if (span_id === undefined) return [];
  const parent = { trace_id, span_id };
  const found = findIndexedSpans(callers, parent);
  // Where both sides share an id, spans that name it as their parent are below the called side.
  const isShared =
    found.length > 0 && [own, others].some((index) => findIndexedSpans(index, parent).some(isCalleeSide));
  return isShared ? [] : found;
}
