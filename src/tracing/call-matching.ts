// Matches requests with the callers that made them: its parent, what it links to, and the caller that has its own id, where both
// sides of a call share one. Work over many spans takes turns with other requests.
import { takeTurns } from "../core/async/turns.ts";
import { requireFirst } from "../core/collections.ts";
import type { Span } from "../core/rows.ts";
import { compareDocuments, formatSpanIdentity, isSameSpan } from "./spans/repeated-spans.ts";
import { isCalleeSide } from "./spans/requests.ts";
import {
  addToIndex,
  createSpanIndex,
  findIndexedSpans,
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

/** The spans of a range that may be sides of calls. */
export interface CallSpans {
  /** Those that end in the range. */
  readonly callers: SpansByOwner;
  /** Requests at any time, of which only those that a caller has called matter. */
  readonly entries: SpansByOwner;
  /** Callers below others, which end outside of the range, of any site. */
  readonly outerCallers: SpanIndex;
}

/** Spans of the site itself, and of its partners. The document of an entry may be in both, that of a caller is not. */
interface SpansByOwner {
  readonly own: SpanIndex;
  readonly others: SpanIndex;
}

/** Whether two documents are of one caller. Those with other ends or parents are not, since they may lie in other ranges. */
export const isSameCaller: IsSame = (a, b) =>
  isSameSpan(a, b) && a.end === b.end && a.parent_span_id === b.parent_span_id;

/** The site's own calls. A caller without a visible request is a call too. */
export async function matchMadeCalls(spans: CallSpans, signal: AbortSignal): Promise<readonly Call[]> {
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
export async function matchReceivedCalls(
  spans: CallSpans,
  signal: AbortSignal,
): Promise<readonly Required<Call>[]> {
  const calls: Required<Call>[] = [];
  const { callers, entries } = spans;
  if (callers.others.groups.size === 0) return calls;
  for await (const chunk of takeTurns(listSameIds(entries.own), signal)) {
    for (const own of chunk) calls.push(...matchDocuments(spans, callers.others, sortDocuments(own)));
  }
  return calls;
}

/** The partners' callers that have called the site. */
export async function indexAnsweredCallers(spans: CallSpans, signal: AbortSignal): Promise<SpanIndex> {
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

/** Whether a caller has both the callee's id and its parent: that parent is the caller's then, and has not called the callee. */
function isBelowOtherCaller({ callers, outerCallers }: CallSpans, callee: Span): boolean {
  if (!isCalleeSide(callee)) return false;
  return [callers.own, callers.others, outerCallers].some((index) =>
    findIndexedSpans(index, callee).some((caller) => caller.parent_span_id === callee.parent_span_id),
  );
}
