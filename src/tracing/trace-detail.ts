// The spans of a trace as they are answered: in order, each with what only the whole trace can tell.
import type { Span } from "../core/rows.ts";
import { actionDigest } from "./spans/digest.ts";
import { exceptionsOf, hasException } from "./spans/exceptions.ts";
import {
  compareSpans,
  createFamily,
  type Family,
  incidentDigest,
  isNearer,
  isRoot,
  type Names,
  namesOf,
} from "./spans/requests.ts";

export interface ArrangedSpan {
  /** Every exception event carries its digest. */
  readonly span: Span;
  /** Of the entry above it; absent where there is none. */
  readonly names: (Names & { readonly digest: string }) | undefined;
  readonly subtraceRoot: boolean;
}

/**
 * By start and span id, behind the first: the span of the named error where it is there, else a root, else the earliest.
 */
export function arrange(
  spans: readonly Span[],
  error?: Pick<Span, "site_id" | "span_id">,
): readonly ArrangedSpan[] {
  const sorted = spans.toSorted(compareSpans);
  const named = sorted.filter(
    ({ site_id, span_id }) => span_id === error?.span_id && site_id === error.site_id,
  );
  // Both sides of a call may have one id, and one of them the exception.
  const first = named.find(hasException) ?? named[0] ?? sorted.find(isRoot);
  const ordered = first === undefined ? sorted : [first, ...sorted.filter((span) => span !== first)];
  const trace: Trace = { spans, family: createFamily(spans), names: new Map(), byId: undefined };
  return ordered.map((span) => arranged(trace, span));
}

/** What is known of a trace while its spans are arranged. */
interface Trace {
  readonly spans: readonly Span[];
  readonly family: Family;
  /** Of entries. */
  readonly names: Map<Span, ArrangedSpan["names"]>;
  /** For parents in other sites: who has an id, whatever the order that they come in. */
  byId: ReadonlyMap<string, Span> | undefined;
}

function arranged(trace: Trace, span: Span): ArrangedSpan {
  const { parent_span_id, span_kind, service_name } = span;
  const entry = trace.family.entryOf(span);
  const names = entry && namesBy(trace, entry);
  const parent =
    parent_span_id === undefined
      ? undefined
      : (trace.family.parentOf(span) ?? anywhere(trace, parent_span_id));
  return {
    span: span.events.length === 0 ? span : withDigests(span, names ?? namesOf(span)),
    names,
    subtraceRoot: parent?.service_name !== service_name || span_kind === "server" || span_kind === "consumer",
  };
}

function namesBy(trace: Trace, entry: Span): ArrangedSpan["names"] {
  const known = trace.names.get(entry);
  if (known !== undefined) return known;
  const names = namesOf(entry);
  const own = { ...names, digest: actionDigest(names) };
  trace.names.set(entry, own);
  return own;
}

function anywhere(trace: Trace, id: string): Span | undefined {
  trace.byId ??= nearestById(trace.spans);
  return trace.byId.get(id);
}

function nearestById(spans: readonly Span[]): ReadonlyMap<string, Span> {
  const nearest = new Map<string, Span>();
  for (const span of spans) {
    const other = nearest.get(span.span_id);
    if (other === undefined || isNearer(span, other)) nearest.set(span.span_id, span);
  }
  return nearest;
}

function withDigests(span: Span, names: Names): Span {
  const exceptions = exceptionsOf(span, names);
  if (exceptions.length === 0) return span;
  let position = 0;
  const events = span.events.map((event) => {
    if (event.name !== "exception") return event;
    const digest = exceptions[position]?.digest ?? "";
    position += 1;
    return { ...event, attributes: { ...event.attributes, [incidentDigest]: digest } };
  });
  return { ...span, events };
}
