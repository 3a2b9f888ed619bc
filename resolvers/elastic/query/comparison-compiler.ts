// One name of an index: what a comparison with it may find, by the type of field and the operator. See `filter.ts` for what
// the two bounds are.

import { toMillis } from "../../../src/core/time.ts";
import { numberPattern, type Operator } from "../../../src/log-query/ast.ts";
import type { Product } from "../client/product.ts";
import { all, any, every, ignored, none, type Query } from "../client/query-dsl.ts";
import type { LogProfile } from "../layout/log-layout.ts";
import { findField, type IndexedField, type IndexGroup } from "../mapping/mapping.ts";
import { nanosEra } from "./time-field.ts";

export interface Bounds {
  readonly lower: Query;
  readonly upper: Query;
}

export interface Scope {
  /** Set within a nested object, where `_ignored` says nothing. */
  readonly nested?: boolean;
  /** How much of the names that are asked for is one key of the document, where that is known. */
  readonly key?: string;
  readonly group: IndexGroup;
  readonly profile: LogProfile;
  readonly product: Product;
}

export const everything: Bounds = { lower: none, upper: all };
export const exactly = (query: Query): Bounds => ({ lower: query, upper: query });
export const atMost = (upper: Query): Bounds => ({ lower: none, upper });

/** One name of the index: the table of field type × operator. */
export function compileName(name: string, operator: Operator, value: string, scope: Scope): Bounds {
  const field = findField(scope.group, name, scope.key);
  if (field === undefined || !field.indexed || field.aliasOf !== undefined) return everything;
  const nested = field.nested !== undefined;
  if (nested && scope.product.refusesExpensive) return everything;
  const bounds =
    operator === "=" || operator === ":"
      ? compileText(field, operator, value, { ...scope, nested })
      : compileNumeric(field, operator, value, { ...scope, nested });
  if (bounds === undefined) return everything;
  if (!nested) return field.invented ? atMost(bounds.upper) : bounds;
  const { upper } = bounds;
  if (upper === all) return everything;
  // What was kept out of the index is listed on the document itself, never inside the nested object.
  const listed = scope.product.listsIgnored ? ignored(field.name) : none;
  return atMost(any([upper === none ? none : { nested: { path: field.nested, query: upper } }, listed]));
}

function compileText(
  field: IndexedField,
  operator: "=" | ":",
  value: string,
  scope: Scope,
): Bounds | undefined {
  // Servers read an empty text as no value in places, and every text contains it: only the document knows.
  // A lone surrogate cannot be sent.
  if (value === "" || !value.isWellFormed()) return undefined;
  switch (field.type) {
    case "keyword":
    case "wildcard":
      return operator === "=" ? equalsKeyword(field, value, scope) : containsKeyword(field, value, scope);
    case "constant_keyword":
      return operator === "=" ? atMost({ term: { [field.name]: value } }) : undefined;
    case "flattened":
    case "flat_object":
      return inFlattened(field, operator, value);
    case "text":
    case "match_only_text":
      return operator === "=" ? equalsText(field, value, scope) : containsText(field, value, scope);
    case "boolean":
      return inBoolean(field, operator, value, scope);
    case "date":
    case "date_nanos":
    case "ip":
      return exists(field, scope);
    default:
      if (!Object.hasOwn(numberTypes, field.type)) return undefined;
      if (operator === ":") return exists(field, scope);
      return numberPattern.test(value) ? inRange(field, value, value, scope) : undefined;
  }
}

function compileNumeric(
  field: IndexedField,
  operator: Operator,
  value: string,
  scope: Scope,
): Bounds | undefined {
  switch (field.type) {
    case "keyword":
    case "wildcard":
    case "date":
    case "date_nanos":
      return exists(field, scope);
    case "flattened":
    case "flat_object":
      return inFlattened(field, operator, value);
    default:
      if (!Object.hasOwn(numberTypes, field.type)) return undefined;
      return operator === ">" || operator === ">="
        ? inRange(field, value, undefined, scope)
        : inRange(field, undefined, value, scope);
  }
}

// ---- keywords ----------------------------------------------------------------------------------------------

// A server replaces lone surrogates by one of these, so a text that holds one may stand for another.
const replacement = /[?\uFFFD]/;

/** Whether a document that the index finds for this value surely has it. */
export function isCertain(field: IndexedField, value: string): boolean {
  const plain = field.type === "keyword" && field.indexed && !field.rewritten && !field.invented;
  return plain && value.length <= field.ignoreAbove && !replacement.test(value);
}

function equalsKeyword(field: IndexedField, value: string, scope: Scope): Bounds | undefined {
  // OpenSearch before 3 reads a term on the wildcard type as a pattern.
  if (field.type === "wildcard" && /[*?\\]/.test(value)) return containsKeyword(field, value, scope);
  const term = { term: { [field.name]: value } };
  // A longer value is not in the index, unless it was written before the limit was set.
  if (value.length > field.ignoreAbove) return withIgnored(field, term, scope);
  // An `ignore_above` can be raised later, and the older documents stay as they are: where they are listed, look.
  const upper = scope.product.listsIgnored ? withIgnored(field, term, scope)?.upper : term;
  return { lower: isCertain(field, value) ? term : none, upper: upper ?? term };
}

function containsKeyword(field: IndexedField, value: string, scope: Scope): Bounds | undefined {
  if (field.rewritten) return undefined;
  // Wildcards on the wildcard type read escapes wrongly in OpenSearch before 2.18; a run of letters needs none.
  const part = field.type === "wildcard" ? longest(value.match(/[A-Za-z0-9]+/g)) : clip(value);
  if (part === undefined || scope.product.refusesExpensive) return exists(field, scope);
  const query = { wildcard: { [field.name]: { value: `*${escapeWildcard(part)}*` } } };
  const bounds = withIgnored(field, query, scope);
  const certain = part === value && isCertain(field, value);
  return bounds && { lower: certain ? query : none, upper: bounds.upper };
}

/** `query` and the documents whose value is not in the index; undefined where nothing tells which those are. */
export function withIgnored(
  field: IndexedField,
  query: Query,
  { product, group, nested }: Scope,
): Bounds | undefined {
  if (product.listsIgnored && group.createdSince715) {
    return atMost(nested === true ? query : any([query, ignored(field.name)]));
  }
  const drops = field.ignoreMalformed || field.type === "keyword" || field.type === "wildcard";
  return drops ? undefined : atMost(query);
}

function exists(field: IndexedField, scope: Scope): Bounds | undefined {
  return withIgnored(field, { exists: { field: field.name } }, scope);
}

/** Keys below a flattened root hold whole values as keywords; they cannot be searched by parts. */
function inFlattened(field: IndexedField, operator: Operator, value: string): Bounds | undefined {
  if (field.root === undefined || field.ignoreAbove !== Number.POSITIVE_INFINITY) return undefined;
  if (field.type === "flat_object") return atMost({ exists: { field: field.root } });
  if (operator === "=" && value.length <= 1_000) return atMost({ term: { [field.name]: value } });
  return atMost({ exists: { field: field.name } });
}

function escapeWildcard(text: string): string {
  return text.replace(/[\\*?]/g, "\\$&");
}

/** A part of a long value: to contain the value is to contain the part. Never cuts a surrogate pair. */
function clip(value: string): string {
  return value.length <= 200 ? value : value.slice(0, 200).replace(/[\uD800-\uDBFF]$/, "");
}

// ---- analysed text -----------------------------------------------------------------------------------------

/**
 * Unicode word breaking never splits a run of ASCII letters and digits, and always splits at ASCII white space; the
 * standard analyzer lower-cases. A text that contains `value` therefore has each run of it inside one token, and
 * each chunk between two spaces as whole tokens. Tokens are cut at 255 characters, so a run may also lie across
 * such a cut: every document with a token that long stays in the bound.
 */
function containsText(field: IndexedField, value: string, { product }: Scope): Bounds | undefined {
  if (field.rewritten || product.refusesExpensive) return undefined;
  const chunks = value.split(/[ \t\r\n]/);
  const parts: Query[] = [];
  const [first] = chunks;
  const last = chunks.at(-1);
  if (first === undefined || last === undefined) return undefined;
  if (chunks.length === 1) {
    const run = longest(value.match(/[A-Za-z0-9]+/g));
    if (run === undefined) return undefined;
    parts.push(wildcard(field, `*${run}*`));
  } else {
    parts.push(...wholeWords(field, chunks.slice(1, -1)));
    // Cut first: looking for the end from every letter of a long run takes minutes.
    const suffix = /[A-Za-z0-9]+$/.exec(first.slice(-100))?.[0];
    const prefix = /^[A-Za-z0-9]+/.exec(last.slice(0, 100))?.[0];
    if (suffix !== undefined) parts.push(wildcard(field, `*${suffix}`));
    if (prefix !== undefined) parts.push(wildcard(field, `${prefix}*`));
    if (parts.length === 0) return undefined;
  }
  return atMost(any([every(parts), wildcard(field, `${"?".repeat(128)}*`)]));
}

function equalsText(field: IndexedField, value: string, { group }: Scope): Bounds | undefined {
  // A multi-field that was added later lacks older documents: good for what is certain, not for what is possible.
  const keyword = field.multi
    .map((name) => group.fields.get(name))
    .find((sub) => sub !== undefined && isCertain(sub, value));
  const lower = keyword === undefined ? none : { term: { [keyword.name]: value } };
  if (field.rewritten) return { lower, upper: all };
  return { lower, upper: every(wholeWords(field, value.split(/[ \t\r\n]/))) };
}

/** Chunks that stand between white space, or at an end of the text, so that their tokens are whole. */
function wholeWords(field: IndexedField, chunks: readonly string[]): Query[] {
  return chunks
    .filter((chunk) => /[A-Za-z0-9]/.test(chunk) && chunk.length <= 200 && chunk.isWellFormed())
    .slice(0, 16)
    .map((chunk) => ({
      match: { [field.name]: { query: chunk, operator: "and", zero_terms_query: "all" } },
    }));
}

function wildcard(field: IndexedField, pattern: string): Query {
  return { wildcard: { [field.name]: { value: pattern.toLowerCase() } } };
}

export function longest(runs: readonly string[] | null): string | undefined {
  return runs?.reduce((best, run) => (run.length > best.length ? run : best)).slice(0, 100);
}

// ---- numbers and booleans ----------------------------------------------------------------------------------

/** The largest magnitude that a range query of the type accepts. */
const numberTypes: Readonly<Record<string, number>> = {
  byte: 127,
  short: 32_767,
  integer: 2_147_483_647,
  long: 9.2e18,
  unsigned_long: 1.8e19,
  half_float: 65_504,
  float: 3.4e38,
  double: 1.7e308,
  scaled_float: 9e15,
};

export function isNumeric({ type }: IndexedField): boolean {
  return Object.hasOwn(numberTypes, type);
}

/**
 * The index rounds (floats), truncates ("5.7" in an integer field is 5) and reads `2e2` as 200, so a range is
 * widened by more than any of these can move a value.
 */
function inRange(
  field: IndexedField,
  from: string | undefined,
  to: string | undefined,
  scope: Scope,
): Bounds | undefined {
  // A scaling factor below 1 moves a value by any amount.
  if (field.type === "scaled_float") return exists(field, scope);
  const limit = numberTypes[field.type] ?? 0;
  const range: { gte?: number; lte?: number } = {};
  if (from !== undefined) {
    const bound = widen(Number(from), -1);
    if (!(Math.abs(bound) < limit)) return undefined;
    if (field.type !== "unsigned_long" || bound > 0) range.gte = bound;
  }
  if (to !== undefined) {
    const bound = widen(Number(to), 1);
    if (!(Math.abs(bound) < limit) || (field.type === "unsigned_long" && bound < 0)) return undefined;
    range.lte = bound;
  }
  if (range.gte === undefined && range.lte === undefined) return exists(field, scope);
  const isAnyDate = [range.gte, range.lte].every((bound) => bound === undefined || isMilli(bound));
  if (scope.group.dated.has(field.name) && !isAnyDate) return exists(field, scope);
  return withIgnored(field, { range: { [field.name]: range } }, scope);
}

/**
 * Whether a date of any type can be so many milliseconds. A server reads the bounds of a range by each index's own type before
 * it leaves the index out, and refuses the search where one is no date.
 */
function isMilli(bound: number): boolean {
  return bound >= 0 && bound <= toMillis(nanosEra.to);
}

function widen(value: number, direction: 1 | -1): number {
  const moved = value + direction * (Math.abs(value) * 0.01 + 2);
  return Math.abs(moved) < 2 ** 53 ? (direction > 0 ? Math.ceil(moved) : Math.floor(moved)) : moved;
}

function inBoolean(
  field: IndexedField,
  operator: "=" | ":",
  value: string,
  scope: Scope,
): Bounds | undefined {
  const wanted = ["true", "false"].filter((text) =>
    operator === "=" ? text === value : text.includes(value),
  );
  if (wanted.length === 0) return withIgnored(field, none, scope);
  const query = { terms: { [field.name]: wanted } };
  if (field.ignoreMalformed || scope.product.listsIgnored) return withIgnored(field, query, scope);
  // An empty text is indexed as false.
  return wanted.includes("false") ? atMost(query) : exactly(query);
}
