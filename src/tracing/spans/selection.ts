// The definition of `SpanSelection`. Stores may narrow their queries by it, and check each span with it.
import type { Span } from "../../core/rows.ts";
import type { SpanSelection } from "../../store/spans.ts";
import { hasException } from "./exceptions.ts";

/** Whether a span, with all its events, is of the selection. */
export function isInSelection(
  select: SpanSelection,
  span: Pick<Span, "entry" | "report" | "span_kind" | "statement" | "events">,
): boolean {
  switch (select) {
    case "all":
      return true;
    case "entries":
      return span.entry && !span.report;
    case "children":
      return !span.entry;
    case "calls":
      return span.span_kind === "client" || span.span_kind === "producer";
    case "exceptions":
      return hasException(span);
    case "statements":
      return span.span_kind === "client" && span.statement !== undefined;
    default:
      return select satisfies never;
  }
}
