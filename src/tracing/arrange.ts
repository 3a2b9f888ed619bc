// The spans of a trace as they are answered: in order, each with what only the whole trace can tell.
import type { Span } from "../model.ts";
import { actionDigest } from "./digest.ts";
import { exceptionsOf } from "./exception.ts";
import { compareSpans, createFamily, incidentDigest, isRoot, type Names, namesOf } from "./request.ts";

export interface ArrangedSpan {
  /** Every exception event carries its digest. */
  readonly span: Span;
  /** Of the entry above it; absent where there is none. */
  readonly names: (Names & { readonly digest: string }) | undefined;
  readonly subtraceRoot: boolean;
}

/** By start and span id, behind the first: the span that is named where it is there, else a root, else the earliest. */
export function arrange(
  spans: readonly Span[],
  wanted?: Pick<Span, "site_id" | "span_id">,
): readonly ArrangedSpan[] {
  const family = createFamily(spans);
  const services = new Map(spans.map(({ span_id, service_name }) => [span_id, service_name]));
  const named = new Map<Span, ArrangedSpan["names"]>();
  const namesBy = (entry: Span) => {
    const known = named.get(entry);
    if (known !== undefined) return known;
    const names = namesOf(entry);
    const made = { ...names, digest: actionDigest(names) };
    named.set(entry, made);
    return made;
  };
  const sorted = spans.toSorted(compareSpans);
  const first =
    sorted.find(({ site_id, span_id }) => span_id === wanted?.span_id && site_id === wanted.site_id) ??
    sorted.find(isRoot);
  const ordered = first === undefined ? sorted : [first, ...sorted.filter((span) => span !== first)];
  return ordered.map((span) => {
    const { parent_span_id, span_kind, service_name } = span;
    const entry = family.entryOf(span);
    const names = entry && namesBy(entry);
    const above = parent_span_id === undefined ? undefined : services.get(parent_span_id);
    return {
      span: span.events.length === 0 ? span : withDigests(span, names ?? namesOf(span)),
      names,
      subtraceRoot: above !== service_name || span_kind === "server" || span_kind === "consumer",
    };
  });
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
