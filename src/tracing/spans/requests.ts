// Requests: which spans are requests, how they are named, and to which request a span belongs. Entries are searched within
// one site, so that the names of its spans do not depend on the other sites of a query.
import { compare, type Span, type TraceSummary } from "../../core/rows.ts";
import type { SpanId } from "../../store/spans.ts";
import { compareDocuments } from "./repeated-spans.ts";

/** The attribute of an exception event that carries its digest. */
export const incidentDigestAttribute = "appsignal.incident_digest";

export interface ActionNames {
  readonly namespace: string;
  readonly action: string;
}

/** A request is an entry that is not a report, which is the span of an error. */
export function isRequest(span: Span): boolean {
  return span.entry && !span.report;
}

/** The action of an entry without any name. */
export const unnamedAction = "unknown";

/** The namespace and action of an entry. Neither is ever empty. */
export function deriveNames(entry: Span): ActionNames {
  return {
    namespace: entry.namespace || (entry.span_kind === "server" ? "web" : "background"),
    action: entry.action || entry.span_name || unnamedAction,
  };
}

/** The names of the entry above a span. Both are empty without an entry, as below a missing parent. */
export function deriveNamesAbove(entry: Span | undefined): ActionNames {
  return entry === undefined ? { namespace: "", action: "" } : deriveNames(entry);
}

/** Identifies an action. */
export function formatActionKey({ namespace, action }: ActionNames): string {
  return JSON.stringify([namespace, action]);
}

export function isRoot(span: Span): boolean {
  return span.parent_span_id === undefined;
}

/** Nanoseconds; 0 where a clock ran backwards. */
export function calculateDuration({ start, end }: Pick<Span, "start" | "end">): bigint {
  return end > start ? end - start : 0n;
}

/** Nanoseconds that a span took. For a compressed span, the sum over its spans without the pauses between them. */
export function calculateTotalTime(span: Span): bigint {
  return span.sum ?? calculateDuration(span);
}

/** Milliseconds as the API has them. */
export function toFloatMillis(nanos: bigint): number {
  return Number(nanos) / 1e6;
}

/** Identifies a span id within its trace. The two sides of a call may share it. */
export function formatSpanKey({ trace_id, span_id }: SpanId): string {
  return `${trace_id} ${span_id}`;
}

/** The distinct traces of these. */
export function listTraceIds(ids: readonly Pick<SpanId, "trace_id">[]): readonly string[] {
  return [...new Set(ids.map(({ trace_id }) => trace_id))];
}

/** The summary row of an entry; `span_id` may be that of a span below it. */
export function toSummaryRow(entry: Span, span_id: string): Omit<TraceSummary, "has_npo"> {
  const { namespace, action } = deriveNames(entry);
  return {
    site_id: entry.site_id,
    trace_id: entry.trace_id,
    span_id,
    namespace,
    action_name: action,
    revision: entry.revision,
    time: entry.end,
    duration: calculateDuration(entry),
    tags: entry.tags,
  };
}

/** Orders the requests of a site in one trace: roots first, then as `compareSpans`. */
export function compareRequests(a: Span, b: Span): number {
  return Number(isRoot(b)) - Number(isRoot(a)) || compareSpans(a, b);
}

type SpanOrder = Pick<Span, "start" | "span_id" | "site_id" | "span_kind">;

/** Orders spans by start, span id, site and kind. */
export function compareSpans(a: SpanOrder, b: SpanOrder): number {
  return (
    compare(a.start, b.start) ||
    compare(a.span_id, b.span_id) ||
    compare(a.site_id, b.site_id) ||
    compare(a.span_kind, b.span_kind)
  );
}

/** Finds the spans above a span, among those that are added. */
export interface AncestorIndex {
  readonly add: (spans: Iterable<Span>) => void;
  readonly findParent: (span: Span) => Span | undefined;
  /** The nearest entry above the span, itself included. Undefined below a missing parent. */
  readonly findEntry: (span: Span) => Span | undefined;
}

/** The state of an index. Its functions are module functions, because V8 discards compiled closures with each trace. */
interface AncestorMaps {
  /** By span id: the spans of the trace that had the id first. */
  readonly firstById: Map<string, Span>;
  /** By `formatMemberKey`: spans of other traces and sites with a known id, which are rare. */
  readonly others: Map<string, Span>;
  /** The entry above each span that was looked up. */
  readonly entries: Map<Span, Span | undefined>;
}

export function createAncestorIndex(spans: Iterable<Span> = []): AncestorIndex {
  const maps: AncestorMaps = { firstById: new Map(), others: new Map(), entries: new Map() };
  const add = (added: Iterable<Span>) => addSpans(maps, added);
  add(spans);
  return {
    add,
    findParent: (span) => lookUpParent(maps, span),
    findEntry: (span) => lookUpEntry(maps, span),
  };
}

function addSpans({ firstById, others, entries }: AncestorMaps, added: Iterable<Span>): void {
  entries.clear();
  for (const span of added) {
    const first = firstById.get(span.span_id);
    const [known, key] =
      first === undefined || isSameTrace(first, span)
        ? [firstById, span.span_id]
        : [others, formatMemberKey(span, span.span_id)];
    const other = known.get(key);
    // Some tracers give both sides of a call one id: children of that id belong to the called side.
    if (other === undefined || isPreferredOwner(span, other)) known.set(key, span);
  }
}

function lookUpParent({ firstById, others }: AncestorMaps, span: Span): Span | undefined {
  const { parent_span_id } = span;
  if (parent_span_id === undefined) return undefined;
  const first = firstById.get(parent_span_id);
  if (first === undefined || isSameTrace(first, span)) return first;
  return others.get(formatMemberKey(span, parent_span_id));
}

function lookUpEntry(maps: AncestorMaps, span: Span): Span | undefined {
  const { entries } = maps;
  // Stays undefined mostly, because the entry above the parent is known already.
  let passed: Span[] | undefined;
  let at: Span | undefined = span;
  while (at !== undefined && !at.entry) {
    if (entries.has(at)) {
      at = entries.get(at);
      break;
    }
    // Ends cycles: a document may name itself, or a span below it, as its parent.
    entries.set(at, undefined);
    if (at !== span) {
      passed ??= [];
      passed.push(at);
    }
    at = lookUpParent(maps, at);
  }
  if (at === undefined || at === span) return at;
  entries.set(span, at);
  if (passed !== undefined) for (const below of passed) entries.set(below, at);
  return at;
}

function formatMemberKey({ site_id, trace_id }: Span, span: string): string {
  return `${site_id} ${trace_id} ${span}`;
}

/** Whether both spans are of one trace and one site. */
function isSameTrace(a: Span, b: Span): boolean {
  return a.site_id === b.site_id && a.trace_id === b.trace_id;
}

/** Whether a span is the called side of a call. Both sides of a call may share an id. */
export function isCalleeSide({ span_kind }: Pick<Span, "span_kind">): boolean {
  return span_kind === "server" || span_kind === "consumer";
}

/**
 * Whether children and exceptions of a shared id belong to this span rather than the other: to the entry, else to the called
 * side. Both may be entries where the trace begins with the call.
 */
export function isPreferredOwner(span: Span, other: Span): boolean {
  if (span.entry !== other.entry) return span.entry;
  const isCalled = isCalleeSide(span);
  if (isCalled !== isCalleeSide(other)) return isCalled;
  return (compareSpans(span, other) || compareDocuments(span, other)) < 0;
}
