// Compiles the comparison of one field of an index with a value, by the type of the field and the operator. The result is two
// bounds; `filter-compiler.ts` says what they are.

import { requireKey } from "../../../src/core/collections.ts";
import { toMillis } from "../../../src/core/time.ts";
import { numberPattern, type Operator } from "../../../src/log-query/ast.ts";
import type { Product } from "../client/product.ts";
import {
  allOf,
  anyOf,
  buildIgnoredQuery,
  matchAll,
  matchNone,
  not,
  type Query,
} from "../client/query-dsl.ts";
import type { LogLayout } from "../layout/log-layout.ts";
import type { IndexedField } from "../mapping/indexed-field.ts";
import { buildLateFieldQuery, findField, type IndexGroup, isDynamicallyIndexed } from "../mapping/mapping.ts";
import { dateNanosRange } from "./time-field.ts";

/** Two queries around the meaning of a filter: `lower` finds matching documents only, `upper` finds all of them. */
export interface Bounds {
  readonly lower: Query;
  readonly upper: Query;
}

export interface CompileScope {
  /** Set within a nested object, where `_ignored` lists nothing. */
  readonly nested?: boolean;
  /** The leading part of the name that is one key of the document, where that is known. */
  readonly key?: string;
  readonly group: IndexGroup;
  readonly layout: LogLayout;
  readonly product: Product;
}

/** Says nothing: no document certainly matches, and every one may. */
export const unknownBounds: Bounds = { lower: matchNone, upper: matchAll };
export const toExactBounds = (query: Query): Bounds => ({ lower: query, upper: query });
export const toUpperBounds = (upper: Query): Bounds => ({ lower: matchNone, upper });

/** The bounds of a comparison with one field of the index: the table of field type × operator. */
export function compileFieldComparison(
  name: string,
  operator: Operator,
  value: string,
  scope: CompileScope,
): Bounds {
  const field = findField(scope.group, name, scope.key);
  if (field === undefined || !field.indexed || field.aliasOf !== undefined) return unknownBounds;
  const nested = field.nested !== undefined;
  if (nested && scope.product.refusesExpensiveQueries) return unknownBounds;
  const bounds =
    operator === "=" || operator === ":"
      ? compileTextComparison(field, operator, value, { ...scope, nested })
      : compileOrderComparison(field, operator, value, { ...scope, nested });
  if (bounds === undefined) return unknownBounds;
  if (!nested) return field.hasExtraValues ? toUpperBounds(bounds.upper) : bounds;
  const { upper } = bounds;
  if (upper === matchAll) return unknownBounds;
  // Values that were left out of the index are listed in `_ignored` of the document, never inside the nested object.
  const ignoredQuery = scope.product.listsIgnored ? buildIgnoredQuery(field.name) : matchNone;
  return toUpperBounds(
    anyOf([upper === matchNone ? matchNone : { nested: { path: field.nested, query: upper } }, ignoredQuery]),
  );
}

/**
 * Documents that may lack a value at a name. `exists` misses values that are not indexed, and finds objects, which are no
 * values; so where it cannot decide, every document may lack it.
 */
export function buildMissingQuery(name: string, { group }: CompileScope): Query {
  const field = findField(group, name);
  const isValue = field !== undefined && !/^(?:object|passthrough|flattened|flat_object)$/.test(field.type);
  return isValue && field.indexed && !field.hasExtraValues && field.nested === undefined
    ? not({ exists: { field: name } })
    : matchAll;
}

/**
 * The upper bound of a comparison with one field. Where the mapping lacks the field but would map it with the next
 * document, the query finds the documents that have it by now.
 */
export function buildUpperQuery(name: string, operator: Operator, value: string, scope: CompileScope): Query {
  if (isDynamicallyIndexed(scope.group, name))
    return buildLateFieldQuery(scope.group, name, scope.product.listsIgnored);
  return compileFieldComparison(name, operator, value, scope).upper;
}

/** Whether the index has fields below a name, or a value field at it. */
export function hasFieldsBelow({ fields }: IndexGroup, root: string): boolean {
  const own = fields.get(root);
  if (own !== undefined && own.type !== "object" && own.type !== "passthrough") return true;
  for (const name of fields.keys()) if (name.startsWith(`${root}.`)) return true;
  return false;
}

export function isTextField({ type }: IndexedField): boolean {
  return type === "text" || type === "match_only_text";
}

function compileTextComparison(
  field: IndexedField,
  operator: "=" | ":",
  value: string,
  scope: CompileScope,
): Bounds | undefined {
  // Servers treat an empty text as no value in some places, and every text contains it, so only the document decides. A lone
  // surrogate cannot be sent.
  if (value === "" || !value.isWellFormed()) return undefined;
  switch (field.type) {
    case "keyword":
    case "wildcard":
      return operator === "="
        ? compileKeywordEquals(field, value, scope)
        : compileKeywordContains(field, value, scope);
    case "constant_keyword":
      return operator === "=" ? toUpperBounds({ term: { [field.name]: value } }) : undefined;
    case "flattened":
    case "flat_object":
      return compileFlattened(field, operator, value);
    case "text":
    case "match_only_text":
      return operator === "="
        ? compileTextEquals(field, value, scope)
        : compileTextContains(field, value, scope);
    case "boolean":
      return compileBoolean(field, operator, value, scope);
    case "date":
    case "date_nanos":
    case "ip":
      return compileExists(field, scope);
    default:
      if (!isNumeric(field)) return undefined;
      if (operator === ":") return compileExists(field, scope);
      return numberPattern.test(value) ? compileRange(field, value, value, scope) : undefined;
  }
}

function compileOrderComparison(
  field: IndexedField,
  operator: Operator,
  value: string,
  scope: CompileScope,
): Bounds | undefined {
  switch (field.type) {
    case "keyword":
    case "wildcard":
    case "date":
    case "date_nanos":
      return compileExists(field, scope);
    case "flattened":
    case "flat_object":
      return compileFlattened(field, operator, value);
    default:
      if (!isNumeric(field)) return undefined;
      return operator === ">" || operator === ">="
        ? compileRange(field, value, undefined, scope)
        : compileRange(field, undefined, value, scope);
  }
}

// ---- keywords ----------------------------------------------------------------------------------------------

// A server replaces lone surrogates by one of these, so a text that holds one may stand for a different text.
const replacement = /[?\uFFFD]/;

/** Whether every document that a term query finds for this value certainly has it. */
export function isExactTerm(field: IndexedField, value: string): boolean {
  const plain =
    field.type === "keyword" && field.indexed && !field.hasCustomAnalysis && !field.hasExtraValues;
  return plain && value.length <= field.ignoreAbove && !replacement.test(value);
}

function compileKeywordEquals(field: IndexedField, value: string, scope: CompileScope): Bounds | undefined {
  // OpenSearch before 3 reads a term on the wildcard type as a pattern.
  if (field.type === "wildcard" && /[*?\\]/.test(value)) return compileKeywordContains(field, value, scope);
  // As an object on the wildcard type, so that it stays a clause of its own (`anyOfMany`): OpenSearch normalizes no value of a
  // `terms` there, and counts each.
  const term = { term: { [field.name]: field.type === "wildcard" ? { value } : value } };
  // A longer value is not indexed, unless it was written before the limit was set.
  if (value.length > field.ignoreAbove) return includeIgnored(field, term, scope);
  // An `ignore_above` can be raised later while older documents stay as they are, so the documents in `_ignored` are read too.
  const upper = scope.product.listsIgnored ? includeIgnored(field, term, scope)?.upper : term;
  return { lower: isExactTerm(field, value) ? term : matchNone, upper: upper ?? term };
}

function compileKeywordContains(field: IndexedField, value: string, scope: CompileScope): Bounds | undefined {
  if (field.hasCustomAnalysis) return undefined;
  // OpenSearch before 2.18 reads escapes in wildcards on the wildcard type wrongly; a run of letters needs none.
  const part = field.type === "wildcard" ? findLongestRun(value.match(/[A-Za-z0-9]+/g)) : clipText(value);
  if (part === undefined || scope.product.refusesExpensiveQueries) return compileExists(field, scope);
  const query = { wildcard: { [field.name]: { value: `*${escapeWildcard(part)}*` } } };
  const bounds = includeIgnored(field, query, scope);
  const certain = part === value && isExactTerm(field, value);
  return bounds && { lower: certain ? query : matchNone, upper: bounds.upper };
}

/** `query`, and the documents whose value is not in the index. Undefined where it is unknown which those are. */
export function includeIgnored(
  field: IndexedField,
  query: Query,
  { product, group, nested }: CompileScope,
): Bounds | undefined {
  if (product.listsIgnored && group.createdSince715) {
    return toUpperBounds(nested === true ? query : anyOf([query, buildIgnoredQuery(field.name)]));
  }
  const drops = field.ignoreMalformed || field.type === "keyword" || field.type === "wildcard";
  return drops ? undefined : toUpperBounds(query);
}

function compileExists(field: IndexedField, scope: CompileScope): Bounds | undefined {
  return includeIgnored(field, { exists: { field: field.name } }, scope);
}

/** Keys below a flattened root hold complete values as keywords, which cannot be searched by parts. */
function compileFlattened(field: IndexedField, operator: Operator, value: string): Bounds | undefined {
  if (field.flattenedRoot === undefined || field.ignoreAbove !== Number.POSITIVE_INFINITY) return undefined;
  if (field.type === "flat_object") return toUpperBounds({ exists: { field: field.flattenedRoot } });
  if (operator === "=" && value.length <= 1_000) return toUpperBounds({ term: { [field.name]: value } });
  return toUpperBounds({ exists: { field: field.name } });
}

function escapeWildcard(text: string): string {
  return text.replace(/[\\*?]/g, "\\$&");
}

/** The beginning of a long value: a text that contains the value contains its beginning. Never splits a surrogate pair. */
function clipText(value: string): string {
  return value.length <= 200 ? value : value.slice(0, 200).replace(/[\uD800-\uDBFF]$/, "");
}

// ---- analysed text -----------------------------------------------------------------------------------------

/**
 * Unicode word breaking never splits a run of ASCII letters and digits, and always splits at ASCII white space; the standard
 * analyzer lower-cases. A text that contains `value` therefore has each such run inside one token, and each chunk between two
 * spaces as complete tokens. Tokens are cut at 255 characters, and a run may lie across such a cut, so every document with a
 * token that long stays in the bound.
 */
function compileTextContains(
  field: IndexedField,
  value: string,
  { product }: CompileScope,
): Bounds | undefined {
  if (field.hasCustomAnalysis || product.refusesExpensiveQueries) return undefined;
  const chunks = value.split(/[ \t\r\n]/);
  const parts: Query[] = [];
  const [first] = chunks;
  const last = chunks.at(-1);
  if (first === undefined || last === undefined) return undefined;
  if (chunks.length === 1) {
    const run = findLongestRun(value.match(/[A-Za-z0-9]+/g));
    if (run === undefined) return undefined;
    parts.push(buildWildcardQuery(field, `*${run}*`));
  } else {
    parts.push(...buildWordQueries(field, chunks.slice(1, -1)));
    // Cut first: a search for the end from every letter of a long run takes minutes.
    const suffix = /[A-Za-z0-9]+$/.exec(first.slice(-100))?.[0];
    const prefix = /^[A-Za-z0-9]+/.exec(last.slice(0, 100))?.[0];
    if (suffix !== undefined) parts.push(buildWildcardQuery(field, `*${suffix}`));
    if (prefix !== undefined) parts.push(buildWildcardQuery(field, `${prefix}*`));
    if (parts.length === 0) return undefined;
  }
  return toUpperBounds(anyOf([allOf(parts), buildWildcardQuery(field, `${"?".repeat(128)}*`)]));
}

function compileTextEquals(field: IndexedField, value: string, { group }: CompileScope): Bounds | undefined {
  // A multi-field that was added later lacks older documents, so it serves the lower bound only.
  const keyword = field.multiFields
    .map((name) => group.fields.get(name))
    .find((sub) => sub !== undefined && isExactTerm(sub, value));
  const lower = keyword === undefined ? matchNone : { term: { [keyword.name]: value } };
  if (field.hasCustomAnalysis) return { lower, upper: matchAll };
  return { lower, upper: allOf(buildWordQueries(field, value.split(/[ \t\r\n]/))) };
}

/** Matches chunks between white space or at an end of the text, whose tokens are therefore complete. */
function buildWordQueries(field: IndexedField, chunks: readonly string[]): Query[] {
  return chunks
    .filter((chunk) => /[A-Za-z0-9]/.test(chunk) && chunk.length <= 200 && chunk.isWellFormed())
    .slice(0, 16)
    .map((chunk) => ({
      match: { [field.name]: { query: chunk, operator: "and", zero_terms_query: "all" } },
    }));
}

function buildWildcardQuery(field: IndexedField, pattern: string): Query {
  return { wildcard: { [field.name]: { value: pattern.toLowerCase() } } };
}

export function findLongestRun(runs: readonly string[] | null): string | undefined {
  return runs?.reduce((best, run) => (run.length > best.length ? run : best)).slice(0, 100);
}

// ---- numbers and booleans ----------------------------------------------------------------------------------

/** By type, the largest magnitude that a range query accepts. */
const numberLimits: ReadonlyMap<string, number> = new Map([
  ["byte", 127],
  ["short", 32_767],
  ["integer", 2_147_483_647],
  ["long", 9.2e18],
  ["unsigned_long", 1.8e19],
  ["half_float", 65_504],
  ["float", 3.4e38],
  ["double", 1.7e308],
  ["scaled_float", 9e15],
]);

export function isNumeric({ type }: IndexedField): boolean {
  return numberLimits.has(type);
}

/**
 * The index rounds floats, truncates ("5.7" in an integer field is 5) and reads `2e2` as 200. A range is widened by more than
 * any of these moves a value.
 */
function compileRange(
  field: IndexedField,
  from: string | undefined,
  to: string | undefined,
  scope: CompileScope,
): Bounds | undefined {
  // A scaling factor below 1 moves a value by any amount.
  if (field.type === "scaled_float") return compileExists(field, scope);
  const limit = requireKey(numberLimits, field.type);
  const range: { gte?: number; lte?: number } = {};
  if (from !== undefined) {
    const bound = widenBound(Number(from), -1);
    if (!(Math.abs(bound) < limit)) return undefined;
    if (field.type !== "unsigned_long" || bound > 0) range.gte = bound;
  }
  if (to !== undefined) {
    const bound = widenBound(Number(to), 1);
    if (!(Math.abs(bound) < limit) || (field.type === "unsigned_long" && bound < 0)) return undefined;
    range.lte = bound;
  }
  if (range.gte === undefined && range.lte === undefined) return compileExists(field, scope);
  const isValidDate = [range.gte, range.lte].every((bound) => bound === undefined || isValidDateMilli(bound));
  if (scope.group.dateNames.has(field.name) && !isValidDate) return compileExists(field, scope);
  return includeIgnored(field, { range: { [field.name]: range } }, scope);
}

/**
 * Whether the number is valid as milliseconds of any date type. A server parses the bounds of a range by each index's own type
 * before it skips the index, and rejects the search where a bound is not a valid date.
 */
function isValidDateMilli(bound: number): boolean {
  return bound >= 0 && bound <= toMillis(dateNanosRange.to);
}

function widenBound(value: number, direction: 1 | -1): number {
  const moved = value + direction * (Math.abs(value) * 0.01 + 2);
  return Math.abs(moved) < 2 ** 53 ? (direction > 0 ? Math.ceil(moved) : Math.floor(moved)) : moved;
}

function compileBoolean(
  field: IndexedField,
  operator: "=" | ":",
  value: string,
  scope: CompileScope,
): Bounds | undefined {
  const matching = ["true", "false"].filter((text) =>
    operator === "=" ? text === value : text.includes(value),
  );
  if (matching.length === 0) return includeIgnored(field, matchNone, scope);
  const query = { terms: { [field.name]: matching } };
  if (field.ignoreMalformed || scope.product.listsIgnored) return includeIgnored(field, query, scope);
  // An empty text is indexed as false.
  return matching.includes("false") ? toUpperBounds(query) : toExactBounds(query);
}
