// The spans of a trace as they are answered: in order, each with what only the whole trace can tell.
import type { Span } from "../core/rows.ts";
import { encodeActionDigest } from "./spans/digest.ts";
import { hasException, listExceptions } from "./spans/exceptions.ts";
import {
  type ActionNames,
  type AncestorIndex,
  compareSpans,
  createAncestorIndex,
  deriveNames,
  incidentDigestAttribute,
  isPreferredOwner,
  isRoot,
} from "./spans/requests.ts";

export interface TraceDetailSpan {
  /** Every exception event carries its digest. */
  readonly span: Span;
  /** Of the entry above it; absent where there is none. */
  readonly names: (ActionNames & { readonly digest: string }) | undefined;
  readonly subtraceRoot: boolean;
}

/**
 * By start and span id, behind the first: the span of the named error where it is there, else a root, else the earliest.
 */
export function buildTraceDetail(
  spans: readonly Span[],
  error?: Pick<Span, "site_id" | "span_id">,
): readonly TraceDetailSpan[] {
  const sorted = spans.toSorted(compareSpans);
  const named = sorted.filter(
    ({ site_id, span_id }) => span_id === error?.span_id && site_id === error.site_id,
  );
  // Both sides of a call may have one id, and one of them the exception.
  const first = named.find(hasException) ?? named[0] ?? sorted.find(isRoot);
  const ordered = first === undefined ? sorted : [first, ...sorted.filter((span) => span !== first)];
  const trace: DetailContext = {
    spans,
    family: createAncestorIndex(spans),
    namesByEntry: new Map(),
    byId: undefined,
  };
  return ordered.map((span) => buildDetailSpan(trace, span));
}

/** What is known of a trace while its spans are arranged. */
interface DetailContext {
  readonly spans: readonly Span[];
  readonly family: AncestorIndex;
  /** Of entries. */
  readonly namesByEntry: Map<Span, TraceDetailSpan["names"]>;
  /** For parents in other sites: who has an id, whatever the order that they come in. */
  byId: ReadonlyMap<string, Span> | undefined;
}

function buildDetailSpan(trace: DetailContext, span: Span): TraceDetailSpan {
  const { parent_span_id, span_kind, service_name } = span;
  const entry = trace.family.findEntry(span);
  const names = entry && resolveNames(trace, entry);
  const parent =
    parent_span_id === undefined
      ? undefined
      : (trace.family.findParent(span) ?? findInAnySite(trace, parent_span_id));
  return {
    span: span.events.length === 0 ? span : addDigests(span, names ?? deriveNames(span)),
    names,
    subtraceRoot: parent?.service_name !== service_name || span_kind === "server" || span_kind === "consumer",
  };
}

function resolveNames(trace: DetailContext, entry: Span): TraceDetailSpan["names"] {
  const known = trace.namesByEntry.get(entry);
  if (known !== undefined) return known;
  const names = deriveNames(entry);
  const own = { ...names, digest: encodeActionDigest(names) };
  trace.namesByEntry.set(entry, own);
  return own;
}

function findInAnySite(trace: DetailContext, id: string): Span | undefined {
  trace.byId ??= indexPreferredById(trace.spans);
  return trace.byId.get(id);
}

function indexPreferredById(spans: readonly Span[]): ReadonlyMap<string, Span> {
  const nearest = new Map<string, Span>();
  for (const span of spans) {
    const other = nearest.get(span.span_id);
    if (other === undefined || isPreferredOwner(span, other)) nearest.set(span.span_id, span);
  }
  return nearest;
}

function addDigests(span: Span, names: ActionNames): Span {
  const exceptions = listExceptions(span, names);
  if (exceptions.length === 0) return span;
  let position = 0;
  const events = span.events.map((event) => {
    if (event.name !== "exception") return event;
    const digest = exceptions[position]?.digest ?? "";
    position += 1;
    return { ...event, attributes: { ...event.attributes, [incidentDigestAttribute]: digest } };
  });
  return { ...span, events };
}
