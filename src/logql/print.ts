// A filter as canonical text: bare terms as `message:…`, the word AND written out, no parentheses that the meaning
// does not need, quotes only where the value needs them.
import type { Compare, Filter } from "./ast.ts";
import { writePath } from "./field.ts";

/**
 * Text that `parse` reads as this filter, but for spans. A filter without `alternatives` prints alike for both
 * grammars; one with them (from the wider grammar only) must be read back with `legacy`.
 */
export function print(filter: Filter): string {
  return filter.kind === "all" ? "" : printNested(filter, "");
}

function printNested(filter: Filter, parent: "" | "and" | "or"): string {
  switch (filter.kind) {
    case "all":
      // The empty query has no spelling inside a group; every line has a severity, and every text contains "".
      return 'severity:""';
    case "and":
    case "or": {
      const { kind } = filter;
      const text = filter.operands
        .map((operand) => printNested(operand, kind))
        .join(kind === "and" ? " AND " : " OR ");
      // Rule 2: only an AND inside an OR goes without parentheses.
      return parent === "" || (parent === "or" && kind === "and") ? text : `(${text})`;
    }
    case "compare":
      return `${printField(filter.field)}${filter.operator}${printValue(filter.value)}`;
    default:
      return filter satisfies never;
  }
}

function printField(field: Compare["field"]): string {
  return field.kind === "line" ? field.name : writePath(field.path, field.alternatives !== undefined);
}

/** Rule 9, and what else would be read otherwise: nothing, an opening quote, an opening bracket (rule 11). */
function printValue(value: string): string {
  return /^$|^["[]|[ \t\n\r()]/.test(value) ? `"${value.replace(/["\\]/g, "\\$&")}"` : value;
}
