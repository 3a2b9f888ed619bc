// The log query language as a tree: one union, three kinds of node. There is no "not": the language negates
// only in its operators (docs/reference/log-query-language.md).

export const operators = ["=", "!=", ":", "!:", ">", ">=", "<", "<="] as const;
export type Operator = (typeof operators)[number];

/** Half-open range of UTF-16 code units in the query text, 0-based. */
export interface SourceSpan {
  readonly start: number;
  readonly end: number;
}

export const lineFields = ["message", "severity", "hostname", "group"] as const;
/** Keys from the root of the `json` body, unescaped. Indexes stay strings. */
export type Path = readonly [string, ...string[]];
/**
 * A top-level field of the line, or a path into its `json`.
 *
 * `alternatives` occur only in the wider grammar (legacy.ts): further paths in order of preference. The first of
 * `path, ...alternatives` that the line has (that is not lacking) decides alone, for negative operators as well;
 * where the line has none of them, the field is lacking. A chain of `or` could not say that for `!=`.
 *
 * Every path can be spelt but `[""]` and keys that are no text (NUL, lone surrogates); the parser never makes those.
 */
export type Field =
  | { readonly kind: "line"; readonly name: (typeof lineFields)[number] }
  | { readonly kind: "json"; readonly path: Path; readonly alternatives?: readonly [Path, ...Path[]] };

/** `F` is what a name may mean: another language that is joined in the same way has fields of its own. */
export interface Compare<F = Field> {
  readonly kind: "compare";
  readonly field: F;
  readonly operator: Operator;
  /** Unquoted and unescaped. For numeric operators it matches `numberPattern`. */
  readonly value: string;
  readonly span: SourceSpan;
}
/**
 * Operands are at least two; the parser flattens a chain of the same word, but not what parentheses (or the brackets
 * of a legacy list) group. `span` runs from the first operand to the last, with their own parentheses.
 */
export interface Group<F = Field> {
  readonly kind: "and" | "or";
  readonly operands: readonly [Filter<F>, Filter<F>, ...Filter<F>[]];
  readonly span: SourceSpan;
}
/** `all` is the empty query. */
export type Filter<F = Field> = { readonly kind: "all" } | Group<F> | Compare<F>;

/** Every comparison, from left to right. */
export function listComparisons<F>(filter: Filter<F>): readonly Compare<F>[] {
  if (filter.kind === "all") return [];
  return filter.kind === "compare" ? [filter] : filter.operands.flatMap(listComparisons);
}

/** What counts as a number on either side of a numeric operator; compared exactly, never as a double. */
export const numberPattern = /^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

/** `depth` is the number of parentheses (and legacy lists) open at once, needed or not. */
export const queryLimits = { leaves: 1_000, depth: 60, bytes: 65_536, segments: 100 } as const;
