// Documents of one span: an exporter may send a span twice, and the second time it may say something else. Which document stands
// for the span never depends on the order in which they are read.

import { itemsPerTurn, type Steps } from "../../core/async/turns.ts";
import { compare, type Span } from "../../core/rows.ts";

type SpanIdentity = Pick<Span, "trace_id" | "span_id" | "span_kind" | "start">;

/** Whether two documents are of one span, which several sites may hold. The two sides of a call may share an id. */
export function isSameSpan(a: SpanIdentity, b: SpanIdentity): boolean {
  return (
    a.span_id === b.span_id && a.trace_id === b.trace_id && a.span_kind === b.span_kind && a.start === b.start
  );
}

/** Equal for documents of one span, which several sites may hold. */
export function formatSpanIdentity({ trace_id, span_id, span_kind, start }: SpanIdentity): string {
  return `${trace_id} ${span_id} ${span_kind} ${start}`;
}

/**
 * Orders documents of one span. The first stands for it: of the first site by id, then the one that ends last. For documents
 * that are equal here all figures are the same: what else a span has is attributes, tags and events.
 */
export function compareDocuments(a: Span, b: Span): number {
  return compare(a.site_id, b.site_id) || compare(b.end, a.end) || compareFields(a, b) || compareLinks(a, b);
}

const comparedFields = [
  "parent_span_id",
  "service_name",
  "span_name",
  "status_code",
  "namespace",
  "action",
  "revision",
  "entry",
  "report",
  "count",
  "sum",
  "peer",
  "statement",
] as const satisfies readonly (keyof Span)[];

function compareFields(a: Span, b: Span): number {
  for (const field of comparedFields) {
    if (a[field] === b[field]) continue;
    return compare(String(a[field]), String(b[field]));
  }
  return 0;
}

function compareLinks(a: Span, b: Span): number {
  if (a.links.length === 0 && b.links.length === 0) return 0;
  return compare(JSON.stringify(a.links), JSON.stringify(b.links));
}

function compareAttributes(a: Span, b: Span): number {
  const format = ({ span_attributes, resource_attributes, tags }: Span): string =>
    JSON.stringify([span_attributes, resource_attributes, tags]);
  return compare(format(a), format(b));
}

/** One document of each span of each site, in the order in which the spans come first. */
export function* chooseDocuments(spans: readonly Span[]): Steps<Span[]> {
  const chosen: Span[] = [];
  /** Places in `chosen`: by span id, and by all that names a span where another one has the id. */
  const firsts = new Map<string, number>();
  const others = new Map<string, number>();
  for (const [at, span] of spans.entries()) {
    if (at % itemsPerTurn === itemsPerTurn - 1) yield;
    const first = chosen[firsts.get(span.span_id) ?? chosen.length];
    const isOther = first !== undefined && !(first.site_id === span.site_id && isSameSpan(first, span));
    const places = isOther ? others : firsts;
    const key = isOther ? `${span.site_id} ${formatSpanIdentity(span)}` : span.span_id;
    const place = places.get(key) ?? chosen.length;
    places.set(key, place);
    const known = chosen[place];
    if (known === undefined || (compareDocuments(span, known) || compareAttributes(span, known)) < 0) {
      chosen[place] = span;
    }
  }
  return chosen;
}
