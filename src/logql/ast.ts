// The log query language as a tree: one union, three kinds of node. There is no "not": the language negates
// only in its operators (spec, "Query language").

export const operators = ["=", "!=", ":", "!:", ">", ">=", "<", "<="] as const;
export type Operator = (typeof operators)[number];

/** Half-open range of UTF-16 code units in the query text, 0-based. */
export interface SourceSpan {
  readonly start: number;
  readonly end: number;
}

export const lineFields = ["message", "severity", "hostname", "group"] as const;
/** A top-level field of the line, or a path into its `json`. Segments are unescaped; indexes stay strings. */
export type Field =
  | { readonly kind: "line"; readonly name: (typeof lineFields)[number] }
  | { readonly kind: "json"; readonly path: readonly [string, ...string[]] };

export interface Compare {
  readonly kind: "compare";
  readonly field: Field;
  readonly operator: Operator;
  /** Unquoted and unescaped. For numeric operators it matches `numberPattern`. */
  readonly value: string;
  readonly span: SourceSpan;
}
/** Operands are at least two; the parser flattens a chain of the same word, but not what parentheses group. */
export interface Group {
  readonly kind: "and" | "or";
  readonly operands: readonly [Filter, Filter, ...Filter[]];
  readonly span: SourceSpan;
}
/** `all` is the empty query. */
export type Filter = { readonly kind: "all" } | Group | Compare;

/** What counts as a number on either side of a numeric operator; compared exactly, never as a double. */
export const numberPattern = /^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

export const limits = { leaves: 1_000, depth: 60 } as const;
