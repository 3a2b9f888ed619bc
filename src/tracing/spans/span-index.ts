// Indexes many spans by trace and span id. No text is built for a span's key, because a long range has hundred thousands of
// spans, and a span id alone is nearly always unique.
import type { Span } from "../../core/rows.ts";
import type { SpanId } from "../../store/spans.ts";

/** By span id: the spans that have it, mostly one. */
export type SpanIndex = Map<string, Span[]>;

/** The spans with this id in this trace. The two sides of a call may share an id. */
export function findIndexedSpans(index: SpanIndex, { trace_id, span_id }: SpanId): readonly Span[] {
  const spans = index.get(span_id);
  if (spans === undefined) return noSpans;
  return spans.every((span) => span.trace_id === trace_id)
    ? spans
    : spans.filter((span) => span.trace_id === trace_id);
}

const noSpans: readonly Span[] = [];

/** Whether two spans are one document, which several sites may hold. */
function isSameDocument(a: Span, b: Span): boolean {
  return (
    a.span_id === b.span_id && a.trace_id === b.trace_id && a.span_kind === b.span_kind && a.start === b.start
  );
}

/** Adds a span. Of one document that several sites hold, keeps the span of the first site by id. */
export function addToIndex(index: SpanIndex, span: Span): void {
  const known = index.get(span.span_id);
  if (known === undefined) {
    index.set(span.span_id, [span]);
    return;
  }
  const at = known.findIndex((other) => isSameDocument(other, span));
  const other = known[at];
  if (other === undefined) known.push(span);
  else if (span.site_id < other.site_id) known[at] = span;
}

/** Whether the index holds the document of this span. */
export function hasDocument(index: SpanIndex, span: Span): boolean {
  return index.get(span.span_id)?.some((other) => isSameDocument(other, span)) ?? false;
}
