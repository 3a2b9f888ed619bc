// What some spans have called, as `SpanLookup` by `caller` says it.
import type { Span } from "../../core/rows.ts";
import type { SpanId } from "../../store/spans.ts";
import { isCalleeSide } from "./requests.ts";
import { isInSelection } from "./selection.ts";
import { createSpanIdSet, hasSpanId, type SpanIdSet } from "./span-ids.ts";

/** A test whether a look-up by these callers finds a span. */
export function createCalleeTest(ids: readonly SpanId[]): (span: Span) => boolean {
  // Made for the first span: most look-ups find no span, and need no set.
  let callers: SpanIdSet | undefined;
  return (span) => {
    callers ??= createSpanIdSet(ids);
    const { trace_id, span_id, parent_span_id, links } = span;
    const isChild = parent_span_id !== undefined && hasSpanId(callers, trace_id, parent_span_id);
    if (isChild && isInSelection("calls", span)) return true;
    if (!isInSelection("entries", span)) return false;
    const isOtherSide = isCalleeSide(span) && hasSpanId(callers, trace_id, span_id);
    return isOtherSide || isChild || hasLinkTo(callers, links);
  };
}

function hasLinkTo(callers: SpanIdSet, links: Span["links"]): boolean {
  return links.some((link) => hasSpanId(callers, link.trace_id, link.span_id));
}
