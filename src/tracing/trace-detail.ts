// The spans of a trace in the order of the API, each with what depends on the other spans of the trace.

import { itemsPerTurn, type Steps } from "../core/async/turns.ts";
import { requireAt } from "../core/collections.ts";
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
  isCalleeSide,
  isPreferredOwner,
  isRoot,
} from "./spans/requests.ts";

export interface TraceDetailSpan {
  /** With a digest on every exception event. */
  readonly span: Span;
  /** Of the entry above the span. Undefined where there is none. */
  readonly names: (ActionNames & { readonly digest: string }) | undefined;
  /** Whether the service changes at this span, or it is the called side of a call. */
  readonly subtraceRoot: boolean;
}

/**
 * Orders spans by start and span id. The first is the span of the named error if it is there, else a root, else the earliest.
 */
export function* buildTraceDetail(
  spans: readonly Span[],
  error?: Pick<Span, "site_id" | "span_id">,
): Steps<readonly TraceDetailSpan[]> {
  const sorted = spans.toSorted(compareSpans);
  const named = sorted.filter(
    ({ site_id, span_id }) => span_id === error?.span_id && site_id === error.site_id,
  );
  // The two sides of a call may share an id, and one of them has the exception.
  const first = named.find(hasException) ?? named[0] ?? sorted.find(isRoot);
  const ordered = first === undefined ? sorted : [first, ...sorted.filter((span) => span !== first)];
  const ancestors = createAncestorIndex();
  for (let at = 0; at < spans.length; at += itemsPerTurn) {
    if (at > 0) yield;
    ancestors.add(spans.slice(at, at + itemsPerTurn));
  }
  const context: DetailContext = {
    spans,
    ancestors,
    namesByEntry: new Map(),
    spansById: undefined,
  };
  const detail: TraceDetailSpan[] = [];
  for (const span of ordered) {
    if (detail.length % itemsPerTurn === itemsPerTurn - 1) yield;
    detail.push(buildDetailSpan(context, span));
  }
  return detail;
}

interface DetailContext {
  readonly spans: readonly Span[];
  readonly ancestors: AncestorIndex;
  readonly namesByEntry: Map<Span, TraceDetailSpan["names"]>;
  /** For parents in other sites; made when the first is needed. */
  spansById: ReadonlyMap<string, Span> | undefined;
}

function buildDetailSpan(context: DetailContext, span: Span): TraceDetailSpan {
  const { parent_span_id, service_name } = span;
  const entry = context.ancestors.findEntry(span);
  const names = entry && resolveNames(context, entry);
  const parent =
    parent_span_id === undefined
      ? undefined
      : (context.ancestors.findParent(span) ?? findInAnySite(context, parent_span_id));
  return {
    span: span.events.length === 0 ? span : addDigests(span, names ?? deriveNames(span)),
    names,
    subtraceRoot: parent?.service_name !== service_name || isCalleeSide(span),
  };
}

function resolveNames({ namesByEntry }: DetailContext, entry: Span): TraceDetailSpan["names"] {
  const known = namesByEntry.get(entry);
  if (known !== undefined) return known;
  const names = deriveNames(entry);
  const resolved = { ...names, digest: encodeActionDigest(names) };
  namesByEntry.set(entry, resolved);
  return resolved;
}

function findInAnySite(context: DetailContext, id: string): Span | undefined {
  context.spansById ??= indexPreferredById(context.spans);
  return context.spansById.get(id);
}

/** By id: of several spans with one id the one that owns its children, in whatever order they come. */
function indexPreferredById(spans: readonly Span[]): ReadonlyMap<string, Span> {
  const preferred = new Map<string, Span>();
  for (const span of spans) {
    const other = preferred.get(span.span_id);
    if (other === undefined || isPreferredOwner(span, other)) preferred.set(span.span_id, span);
  }
  return preferred;
}

function addDigests(span: Span, names: ActionNames): Span {
  const exceptions = listExceptions(span, names);
  if (exceptions.length === 0) return span;
  let position = 0;
  const events = span.events.map((event) => {
    if (event.name !== "exception") return event;
    const { digest } = requireAt(exceptions, position);
    position += 1;
    return { ...event, attributes: { ...event.attributes, [incidentDigestAttribute]: digest } };
  });
  return { ...span, events };
}
