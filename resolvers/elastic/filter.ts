// A filter of the log query language as queries of the index. No mapping answers the language exactly: text is
// analysed, long values are left out, `a.b` is also the key "a.b", an array's positions are lost. So every leaf
// compiles to two bounds, `lower ⊆ meaning ⊆ upper`; negation swaps them. `upper` is what is sent, and the reader keeps
// the lines for which `matches` holds.
import { type Compare, type Field, type Filter, numberPattern, type Operator } from "../../src/logql/ast.ts";
import { severities, spellingsOf } from "../../src/model.ts";
import { findField, type IndexedField, type IndexGroup, type Knowledge } from "./mapping.ts";
import type { Product } from "./product.ts";
import type { LogProfile } from "./profile.ts";
import { all, any, every, inIndices, none, not, type Query, weigh } from "./query.ts";

export interface Bounds {
  readonly lower: Query;
  readonly upper: Query;
}

/** Below what the servers refuse: 20 levels of `bool` (OpenSearch), 1,024 clauses (older versions) in all. */
export const limits = { depth: 12, clauses: 700, allClauses: 900 } as const;

const everything: Bounds = { lower: none, upper: all };
const exactly = (query: Query): Bounds => ({ lower: query, upper: query });
const atMost = (upper: Query): Bounds => ({ lower: none, upper });

/** Its hits include every line that satisfies the filter, and every document of an index not in `knowledge`. */
export function compileFilter(
  filter: Filter,
  knowledge: Knowledge,
  profile: LogProfile,
  product: Product,
): Query {
  if (filter.kind === "all" || knowledge.opaque) return all;
  const queries = knowledge.groups.map((group) => ({
    group,
    query: compileBounds(filter, group, profile, product).upper,
  }));
  return guard(queries, knowledge);
}

/** What one group of indices can say: lines that surely satisfy the filter, and lines that possibly do. */
export function compileBounds(
  filter: Filter,
  group: IndexGroup,
  profile: LogProfile,
  product: Product,
): Bounds {
  return compile(filter, { group, profile, product }, 0);
}

/**
 * Each group's query on its own indices, and everything from an index that appeared after the mapping was read:
 * the reader meets such hits and compiles again, so that no row of a new index is lost or let through unseen.
 */
export function guard(
  queries: readonly { readonly group: IndexGroup; readonly query: Query }[],
  knowledge: Knowledge,
): Query {
  if (queries.every(({ query }) => query === all)) return all;
  const known = [...knowledge.indices];
  const parts = queries.map(({ group, query }) => every([inIndices(group.indices), query]));
  const query = any([...parts, not(inIndices(known))]);
  return weigh(query).clauses > limits.clauses ? all : query;
}

interface Scope {
  /** Set within a nested object, where `_ignored` says nothing. */
  readonly nested?: boolean;
  readonly group: IndexGroup;
  readonly profile: LogProfile;
  readonly product: Product;
}

function compile(filter: Filter, scope: Scope, depth: number): Bounds {
  if (filter.kind === "all") return exactly(all);
  if (filter.kind === "compare") return compileLeaf(filter, scope);
  if (depth >= limits.depth) return everything;
  const operands = flatten(filter.kind, filter.operands).map((operand) => compile(operand, scope, depth + 1));
  const combine = filter.kind === "and" ? every : any;
  return {
    lower: combine(operands.map((operand) => operand.lower)),
    upper: combine(operands.map((operand) => operand.upper)),
  };
}

/** The operands of a group with groups of the same word dissolved. */
function flatten(kind: "and" | "or", operands: readonly Filter[]): Filter[] {
  return operands.flatMap((operand) => (operand.kind === kind ? flatten(kind, operand.operands) : [operand]));
}

function compileLeaf(leaf: Compare, scope: Scope): Bounds {
  const negated = leaf.operator === "!=" || leaf.operator === "!:";
  const operator = leaf.operator === "!=" ? "=" : leaf.operator === "!:" ? ":" : leaf.operator;
  const bounds = compilePositive(leaf.field, operator, leaf.value, scope);
  return negated ? { lower: not(bounds.upper), upper: not(bounds.lower) } : bounds;
}

function compilePositive(field: Field, operator: Operator, value: string, scope: Scope): Bounds {
  if (field.kind === "line") {
    const names = scope.profile[field.name];
    if (field.name === "severity") return compileSeverity(names, operator, value, scope);
    return compileChain(names, operator, value, scope);
  }
  const paths = [field.path, ...(field.alternatives ?? [])];
  if (paths.length > 1) {
    return atMost(any(paths.map((path) => compilePath(path, operator, value, scope).upper)));
  }
  return compilePath(field.path, operator, value, scope);
}

/**
 * A line field is the first of its names that the document has, and the first element where that is an array. The
 * index cannot tell first from later elements, so only the upper bound is of use.
 */
function compileChain(names: readonly string[], operator: Operator, value: string, scope: Scope): Bounds {
  let upper: Query = none;
  for (const name of [...names].reverse()) {
    const own = compileName(name, operator, value, scope).upper;
    const field = findField(scope.group, name);
    // `exists` misses what is not in the index, so `lacks` is wider than "the document lacks it".
    const lacks =
      field?.indexed && !field.invented && field.nested === undefined
        ? not({ exists: { field: name } })
        : all;
    upper = any([own, every([lacks, upper])]);
  }
  return atMost(upper);
}

/** Severity is compared as answered, so every spelling of it counts; it is never lacking. */
function compileSeverity(names: readonly string[], operator: Operator, value: string, scope: Scope): Bounds {
  const wanted = severities.filter((name) =>
    operator === "=" ? name === value : operator === ":" && name.includes(value),
  );
  if (wanted.length === 0) return exactly(none);
  if (wanted.length === severities.length) return exactly(all);
  if (wanted.includes("unknown")) return everything;
  const spellings = wanted.flatMap((name) => [...spellingsOf(name)]);
  let upper: Query = none;
  for (const name of [...names].reverse()) {
    const field = findField(scope.group, name);
    if (field === undefined || !field.indexed || field.invented || field.nested !== undefined) {
      upper = all;
      continue;
    }
    const own = any(spellings.map((spelling) => spelled(field, spelling)));
    upper = any([own, every([not({ exists: { field: name } }), upper])]);
  }
  return atMost(upper);
}

function spelled(field: IndexedField, spelling: string): Query {
  if (field.rewritten || field.invented || spelling.length > field.ignoreAbove) return all;
  if (field.type === "keyword")
    return { term: { [field.name]: { value: spelling, case_insensitive: true } } };
  // The standard analyzer lower-cases, and a severity is one word to it.
  if (field.type === "text" || field.type === "match_only_text") return { term: { [field.name]: spelling } };
  return all;
}

const index = /^(?:0|[1-9]\d*)$/;

/** A path into the document. Its digit segments may be array positions, which the index does not have. */
function compilePath(path: readonly string[], operator: Operator, value: string, scope: Scope): Bounds {
  if (scope.profile.json !== "source") return everything;
  if (path.some((segment) => segment === "" || /^[.\s]|[.\s]$|[*]|\.\./.test(segment))) return everything;
  const positions = path.flatMap((segment, at) => (at > 0 && index.test(segment) ? [at] : []));
  if (positions.length === 0) {
    const bounds = compileName(path.join("."), operator, value, scope);
    // `a.b` in the index is also the key "a.b" of the document, which the language tells apart (rule 6).
    return path.length === 1 && path[0]?.includes(".") === false ? bounds : atMost(bounds.upper);
  }
  if (positions.length > 2) return everything;
  const variants: Query[] = [];
  for (let mask = 0; mask < 1 << positions.length; mask++) {
    const kept = path.filter((_, at) => {
      const position = positions.indexOf(at);
      return position < 0 || (mask & (1 << position)) !== 0;
    });
    variants.push(compileName(kept.join("."), operator, value, scope).upper);
  }
  return atMost(any(variants));
}

/** One name of the index: the table of field type × operator. */
function compileName(name: string, operator: Operator, value: string, scope: Scope): Bounds {
  const field = findField(scope.group, name);
  if (field === undefined || !field.indexed || field.aliasOf !== undefined) return everything;
  const nested = field.nested !== undefined;
  const bounds =
    operator === "=" || operator === ":"
      ? compileText(field, operator, value, { ...scope, nested })
      : compileNumeric(field, operator, value, { ...scope, nested });
  if (bounds === undefined) return everything;
  if (!nested) return field.invented ? atMost(bounds.upper) : bounds;
  const { upper } = bounds;
  if (upper === all) return everything;
  // What was kept out of the index is listed on the document itself, never inside the nested object.
  const listed = scope.product.listsIgnored ? ignored(field) : none;
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
      return operator === "=" ? equalsText(field, value, scope) : containsText(field, value);
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
function isCertain(field: IndexedField, value: string): boolean {
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
  if (part === undefined) return exists(field, scope);
  const query = { wildcard: { [field.name]: { value: `*${escapeWildcard(part)}*` } } };
  const bounds = withIgnored(field, query, scope);
  const certain = part === value && isCertain(field, value);
  return bounds && { lower: certain ? query : none, upper: bounds.upper };
}

/** `query` and the documents whose value is not in the index; undefined where nothing tells which those are. */
function withIgnored(
  field: IndexedField,
  query: Query,
  { product, group, nested }: Scope,
): Bounds | undefined {
  if (product.listsIgnored && group.createdSince715) {
    return atMost(nested === true ? query : any([query, ignored(field)]));
  }
  const drops = field.ignoreMalformed || field.type === "keyword" || field.type === "wildcard";
  return drops ? undefined : atMost(query);
}

function ignored(field: IndexedField): Query {
  return { term: { _ignored: field.name } };
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
function containsText(field: IndexedField, value: string): Bounds | undefined {
  if (field.rewritten) return undefined;
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

function longest(runs: readonly string[] | null): string | undefined {
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
  return withIgnored(field, { range: { [field.name]: range } }, scope);
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
