// A filter as canonical text: bare terms as `message:…`, the word AND written out, no parentheses that the meaning
// does not need, quotes only where the value needs them.
import type { Compare, Field, Filter } from "./ast.ts";
import { printPath } from "./field.ts";

/**
 * Text that `parse` reads as this filter, but for spans. A filter without `alternatives` prints alike for both
 * grammars; one with them (from the wider grammar only) must be read back with `legacy`.
 */
export function print(filter: Filter): string {
  return printAs(
    filter,
    // The empty query has no spelling inside a group; every line has a severity, and every text contains "".
    'severity:""',
    ({ field, operator, value }) => `${printField(field)}${operator}${printValue(value)}`,
  );
}

/** The same for another language of the same form. `everything` is what stands for the empty query within a group. */
export function printAs<F>(
  filter: Filter<F>,
  everything: string,
  printLeaf: (leaf: Compare<F>) => string,
): string {
  return filter.kind === "all" ? "" : printNested(filter, "", everything, printLeaf);
}

function printNested<F>(
  filter: Filter<F>,
  parent: "" | "and" | "or",
  everything: string,
  printLeaf: (leaf: Compare<F>) => string,
): string {
  switch (filter.kind) {
    case "all":
      return everything;
    case "and":
    case "or": {
      const { kind } = filter;
      const text = filter.operands
        .map((operand) => printNested(operand, kind, everything, printLeaf))
        .join(kind === "and" ? " AND " : " OR ");
      // Rule 2: only an AND inside an OR goes without parentheses.
      return parent === "" || (parent === "or" && kind === "and") ? text : `(${text})`;
    }
    case "compare":
      return printLeaf(filter);
    default:
      return filter satisfies never;
  }
}

/** A field as a query spells it. */
export function printField(field: Field): string {
  return field.kind === "line" ? field.name : printPath(field.path, field.alternatives !== undefined);
}

/** Rule 9, and what else would be read otherwise: nothing, an opening quote, an opening bracket (rule 11). */
export function printValue(value: string): string {
  return /^$|^["[]|[ \t\n\r()]/.test(value) ? quoteValue(value) : value;
}

/** What any of these values of a field matches; the empty text where there are none. */
export function printAnyOf(field: string, values: readonly string[]): string {
  return values.map((value) => `${field}=${quoteValue(value)}`).join(" OR ");
}

/**
 * The query of a client, narrowed by one of ours. What `parse` refuses is left alone: between parentheses of ours it might mean
 * another thing, and is refused in the client's own positions where it is run.
 */
export function narrowQuery(query: string, ours: string, parse: (text: string) => unknown): string {
  if (ours === "") return query;
  if (query.trim() === "") return ours;
  try {
    parse(query);
  } catch {
    return query;
  }
  return `(${ours}) (${query})`;
}

export function quoteValue(value: string): string {
  return `"${value.replace(/["\\]/g, "\\$&")}"`;
}
