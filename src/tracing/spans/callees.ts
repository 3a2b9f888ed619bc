// What some spans have called, as `SpanLookup` by `caller` says it.
import type { Span } from "../../core/rows.ts";
import type { SpanId } from "../../store/spans.ts";
import { formatSpanKey, isCalleeSide } from "./requests.ts";
import { isInSelection } from "./selection.ts";

/** A test whether a look-up by these callers finds a span. */
export function createCalleeTest(ids: readonly SpanId[]): (span: Span) => boolean {
  // Of many callers, mostly none is found.
  let callers: ReadonlySet<string> | undefined;
  return (span) => {
    callers ??= new Set(ids.map(formatSpanKey));
    const { trace_id, parent_span_id: span_id, links } = span;
    const isChild = span_id !== undefined && callers.has(formatSpanKey({ trace_id, span_id }));
    if (isChild && isInSelection("calls", span)) return true;
    if (!isInSelection("entries", span)) return false;
    const isOtherSide = isCalleeSide(span) && callers.has(formatSpanKey(span));
    return isOtherSide || isChild || hasLinkTo(callers, links);
  };
}

function hasLinkTo(callers: ReadonlySet<string>, links: Span["links"]): boolean {
  return links.some((link) => callers.has(formatSpanKey(link)));
}
