// What a request is, and which request a span belongs to. Entries are found within one site: what a site's spans are
// called depends on its own spans alone, whichever other sites are asked for together with it.
import { compare, type Span, type TraceSummary } from "../../core/rows.ts";
import type { SpanId } from "../../store/spans.ts";

/** The attribute of an exception event that carries its digest. */
export const incidentDigestAttribute = "appsignal.incident_digest";

export interface ActionNames {
  readonly namespace: string;
  readonly action: string;
}

/** A request is an entry that is no error's own. */
export function isRequest(span: Span): boolean {
  return span.entry && !span.report;
}

/** The action of an entry that nothing names. */
export const unnamedAction = "unknown";

/** What a span is called as an entry. Neither is ever empty. */
export function deriveNames(entry: Span): ActionNames {
  return {
    namespace: entry.namespace || (entry.span_kind === "server" ? "web" : "background"),
    action: entry.action || entry.span_name || unnamedAction,
  };
}

/** What a span is called by the entry above it; below a lost parent both are empty. */
export function deriveNamesAbove(entry: Span | undefined): ActionNames {
  return entry === undefined ? { namespace: "", action: "" } : deriveNames(entry);
}

/** Tells actions from each other. */
export function formatActionKey({ namespace, action }: ActionNames): string {
  return JSON.stringify([namespace, action]);
}

export function isRoot(span: Span): boolean {
  return span.parent_span_id === undefined;
}

/** Nanoseconds; a clock that ran backwards makes no negative length. */
export function calculateDuration({ start, end }: Span): bigint {
  return end > start ? end - start : 0n;
}

/** Nanoseconds that a span, or all those that it stands for, took: those of a compressed span leave out its pauses. */
export function calculateTotalTime(span: Span): bigint {
  return span.sum ?? calculateDuration(span);
}

/** The wire's milliseconds. */
export function toFloatMillis(nanos: bigint): number {
  return Number(nanos) / 1e6;
}

export function formatSpanKey({ trace_id, span_id }: SpanId): string {
  return `${trace_id} ${span_id}`;
}

/** The summary row that a span makes; `span_id` may be another's. */
export function toSummaryRow(named: Span, span_id: string): Omit<TraceSummary, "has_npo"> {
  const { namespace, action } = deriveNames(named);
  return {
    site_id: named.site_id,
    trace_id: named.trace_id,
    span_id,
    namespace,
    action_name: action,
    revision: named.revision,
    time: named.end,
    duration: calculateDuration(named),
    tags: named.tags,
  };
}

/** Of several requests of a site in one trace: the root, else the earliest, then by id. */
export function compareRequests(a: Span, b: Span): number {
  return Number(isRoot(b)) - Number(isRoot(a)) || compareSpans(a, b);
}

/** By start, then span id; both sides of a call may have these in common. */
export function compareSpans(a: Span, b: Span): number {
  return (
    compare(a.start, b.start) ||
    compare(a.span_id, b.span_id) ||
    compare(a.site_id, b.site_id) ||
    compare(a.span_kind, b.span_kind)
  );
}

/** Spans by id, for the way up. */
export interface AncestorIndex {
  readonly add: (spans: Iterable<Span>) => void;
  readonly findParent: (span: Span) => Span | undefined;
  /** The nearest entry above the span, itself included; undefined below a lost parent. */
  readonly findEntry: (span: Span) => Span | undefined;
}

/** Its functions are the module's: what V8 compiles of functions made for each trace, it forgets with that trace. */
interface AncestorMaps {
  /** By span id the first that has it, and others that do, of which there are hardly any. */
  readonly firstById: Map<string, Span>;
  readonly others: Map<string, Span>;
  /** The entries above spans, as far as they were asked for. */
  readonly entries: Map<Span, Span | undefined>;
}

export function createAncestorIndex(spans: Iterable<Span> = []): AncestorIndex {
  const members: AncestorMaps = { firstById: new Map(), others: new Map(), entries: new Map() };
  const add = (added: Iterable<Span>) => addSpans(members, added);
  add(spans);
  return {
    add,
    findParent: (span) => lookUpParent(members, span),
    findEntry: (span) => lookUpEntry(members, span),
  };
}

function addSpans({ firstById: held, others, entries }: AncestorMaps, added: Iterable<Span>): void {
  entries.clear();
  for (const span of added) {
    const first = held.get(span.span_id);
    const [known, key] =
      first === undefined || isSameTrace(first, span)
        ? [held, span.span_id]
        : [others, formatMemberKey(span, span.span_id)];
    const other = known.get(key);
    // Some tracers give both sides of a call one id: what is below it belongs to the side that was called.
    if (other === undefined || isPreferredOwner(span, other)) known.set(key, span);
  }
}

function lookUpParent({ firstById: held, others }: AncestorMaps, span: Span): Span | undefined {
  const { parent_span_id } = span;
  if (parent_span_id === undefined) return undefined;
  const first = held.get(parent_span_id);
  if (first === undefined || isSameTrace(first, span)) return first;
  return others.get(formatMemberKey(span, parent_span_id));
}

function lookUpEntry(members: AncestorMaps, span: Span): Span | undefined {
  const { entries } = members;
  // Mostly none: what is above a span has been asked for before it.
  let passed: Span[] | undefined;
  let at: Span | undefined = span;
  while (at !== undefined && !at.entry) {
    if (entries.has(at)) {
      at = entries.get(at);
      break;
    }
    // None, until one is found: a document may name itself, or its child, as its parent.
    entries.set(at, undefined);
    if (at !== span) {
      passed ??= [];
      passed.push(at);
    }
    at = lookUpParent(members, at);
  }
  if (at === undefined || at === span) return at;
  entries.set(span, at);
  for (const below of passed ?? []) entries.set(below, at);
  return at;
}

function formatMemberKey({ site_id, trace_id }: Span, span: string): string {
  return `${site_id} ${trace_id} ${span}`;
}

/** Whether both are of one trace as one site has it. */
function isSameTrace(a: Span, b: Span): boolean {
  return a.site_id === b.site_id && a.trace_id === b.trace_id;
}

/** Whether a span is the side that was called of any call under its id: both sides of a call may have one. */
export function isCalleeSide({ span_kind }: Pick<Span, "span_kind">): boolean {
  return span_kind === "server" || span_kind === "consumer";
}

/**
 * Of two spans with one id, whether this is the one that children and exceptions belong to: the side that was called.
 * The caller may be an entry as well, where a trace begins with it.
 */
export function isPreferredOwner(span: Span, other: Span): boolean {
  if (span.entry !== other.entry) return span.entry;
  const isCalled = isCalleeSide(span);
  return isCalled === isCalleeSide(other) ? compareSpans(span, other) < 0 : isCalled;
}
