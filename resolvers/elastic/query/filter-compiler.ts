// A filter of the log query language as queries of the index. No mapping answers the language exactly: text is
// analysed, long values are left out, `a.b` is also the key "a.b", an array's positions are lost. So every leaf
// compiles to two bounds, `lower ⊆ meaning ⊆ upper`; negation swaps them. `upper` is what is sent, and the reader keeps
// the lines for which `matches` holds.

import { listSeveritySpellings, type Severity, severities } from "../../../src/core/rows.ts";
import {
  type Compare,
  type Field,
  type Filter,
  listComparisons,
  type Operator,
} from "../../../src/log-query/ast.ts";
import type { Product } from "../client/product.ts";
import {
  addSharedQuery,
  allOf,
  anyOf,
  buildIndicesQuery,
  matchAll,
  matchNone,
  measureQuery,
  not,
  type Query,
  type SharedQueries,
} from "../client/query-dsl.ts";
import type { BodySource, LogLayout, SeverityRule } from "../layout/log-layout.ts";
import type { IndexedField } from "../mapping/indexed-field.ts";
import {
  buildLateFieldQuery,
  findField,
  hasUnindexedTemplates,
  type IndexGroup,
  type IndexMetadata,
  isDynamicallyIndexed,
} from "../mapping/mapping.ts";
import {
  type Bounds,
  type CompileScope,
  compileFieldComparison,
  findLongestRun,
  includeIgnored,
  isExactTerm,
  isNumeric,
  toExactBounds,
  toUpperBounds,
  unknownBounds,
} from "./comparison-compiler.ts";

/** Below what the servers refuse: 20 levels of `bool` (OpenSearch), 1,024 clauses (older versions) in all. */
export const queryLimits = { depth: 12, clauses: 700, allClauses: 900 } as const;

/** Its hits include every line that satisfies the filter, and every document of an index not in `read`. */
export function compileFilter(
  filter: Filter,
  metadata: IndexMetadata,
  layout: LogLayout,
  product: Product,
): Query {
  if (filter.kind === "all" || metadata.opaque) return matchAll;
  const queries = metadata.groups.map((group) => ({
    group,
    query: compileBounds(filter, group, layout, product).upper,
  }));
  return combineGroupQueries(queries, metadata);
}

/** What one group of indices can say: lines that surely satisfy the filter, and lines that possibly do. */
export function compileBounds(
  filter: Filter,
  group: IndexGroup,
  layout: LogLayout,
  product: Product,
): Bounds {
  return compileNode(filter, { group, layout: layout, product }, 0);
}

/**
 * Each group's query on its own indices, and everything from an index that appeared after the mapping was read:
 * the reader meets such hits and compiles again, so that no row of a new index is lost or let through unseen.
 */
export function combineGroupQueries(
  queries: readonly { readonly group: IndexGroup; readonly query: Query }[],
  metadata: IndexMetadata,
): Query {
  if (queries.every(({ query }) => query === matchAll)) return matchAll;
  const known = [...metadata.indices];
  // Mappings that differ elsewhere, as those of days do where all is mapped as it comes, are asked the same, once.
  const shared: SharedQueries = new Map();
  for (const { group, query } of queries) addSharedQuery(shared, query, group.indices);
  const parts = [...shared.values()].map(({ query, indices }) => allOf([buildIndicesQuery(indices), query]));
  const query = anyOf([...parts, not(buildIndicesQuery(known))]);
  return measureQuery(query).clauses > queryLimits.clauses ? matchAll : query;
}

/** The fields of a filter, as they are written, by which some index cannot narrow. */
export function listUnnarrowedFields(
  filter: Filter,
  metadata: IndexMetadata,
  layout: LogLayout,
  product: Product,
): readonly string[] {
  if (filter.kind === "all") return [];
  if (filter.kind !== "compare") {
    const found = filter.operands.flatMap((operand) =>
      listUnnarrowedFields(operand, metadata, layout, product),
    );
    return [...new Set(found)];
  }
  const wide =
    metadata.opaque ||
    metadata.groups.some((group) => compileBounds(filter, group, layout, product).upper === matchAll);
  return wide ? [formatField(filter.field)] : [];
}

/**
 * Whether a filter names what the mapping lacks, where `exists` would not tell that it has come. Only a mapping that is read
 * for the request does then. Of a body that is the whole document no name is asked for before it is mapped.
 */
export function mayNameHiddenFields(
  filter: Filter,
  { layout: { json }, groups }: { readonly layout: LogLayout; readonly groups: readonly IndexGroup[] },
  { listsIgnored }: Product,
): boolean {
  if (json === "source") return false;
  const hiding = groups.filter((group) => hasUnindexedTemplates(group, listsIgnored));
  const roots = json.from.flatMap((part) =>
    "prefix" in part ? [part.prefix] : "structured" in part ? part.structured.map((name) => `${name}.`) : [],
  );
  const paths = listComparisons(filter).flatMap(({ field }) =>
    field.kind === "json" ? [field.path, ...(field.alternatives ?? [])] : [],
  );
  return paths.some((path) =>
    hiding.some((group) => roots.every((root) => findField(group, root + path.join(".")) === undefined)),
  );
}

function formatField(field: Field): string {
  return field.kind === "line"
    ? field.name
    : field.path.map((key) => key.replace(/[\\.]/g, "\\$&")).join(".");
}

function compileNode(filter: Filter, scope: CompileScope, depth: number): Bounds {
  if (filter.kind === "all") return toExactBounds(matchAll);
  if (filter.kind === "compare") return compileComparison(filter, scope);
  if (depth >= queryLimits.depth) return unknownBounds;
  const operands = flattenOperands(filter.kind, filter.operands).map((operand) =>
    compileNode(operand, scope, depth + 1),
  );
  const combine = filter.kind === "and" ? allOf : anyOf;
  return {
    lower: combine(operands.map((operand) => operand.lower)),
    upper: combine(operands.map((operand) => operand.upper)),
  };
}

/** The operands of a group with groups of the same word dissolved. */
function flattenOperands(kind: "and" | "or", operands: readonly Filter[]): Filter[] {
  return operands.flatMap((operand) =>
    operand.kind === kind ? flattenOperands(kind, operand.operands) : [operand],
  );
}

function compileComparison(leaf: Compare, scope: CompileScope): Bounds {
  const negated = leaf.operator === "!=" || leaf.operator === "!:";
  const operator = leaf.operator === "!=" ? "=" : leaf.operator === "!:" ? ":" : leaf.operator;
  const bounds = compilePositive(leaf.field, operator, leaf.value, scope);
  return negated ? { lower: not(bounds.upper), upper: not(bounds.lower) } : bounds;
}

function compilePositive(field: Field, operator: Operator, value: string, scope: CompileScope): Bounds {
  const { layout } = scope;
  if (field.kind === "line") {
    if (field.name === "severity") return compileSeverity(layout.severity, operator, value, scope);
    if (field.name === "message") return compileMessage(operator, value, scope);
    return toUpperBounds(buildFirstOfQuery(layout[field.name], operator, [value], scope, matchNone));
  }
  const paths = [field.path, ...(field.alternatives ?? [])];
  const { json } = layout;
  if (json !== "source") {
    return toUpperBounds(
      anyOf(
        paths.flatMap((path) =>
          json.from.map((part) => buildBodySourceQuery(part, path, operator, value, scope)),
        ),
      ),
    );
  }
  if (paths.length > 1) {
    return toUpperBounds(anyOf(paths.map((path) => compilePath(path, operator, value, scope).upper)));
  }
  return compilePath(field.path, operator, value, scope);
}

function compileMessage(operator: Operator, value: string, scope: CompileScope): Bounds {
  const { message, chomp, json, structured = [] } = scope.layout;
  const values = chomp && operator === "=" ? [value, `${value}\n`, `${value}\r\n`] : [value];
  // Where there is no text, keys and values make the message, printed as JSON: only the document knows it.
  const printed =
    json === "source"
      ? anyOf(structured.map((name) => buildObjectQuery(name, scope)))
      : json.from.some((part) => "structured" in part)
        ? matchAll
        : matchNone;
  return toUpperBounds(buildFirstOfQuery(message, operator, values, scope, printed));
}

/** Documents that may have an object at a name, an empty one too, which `exists` does not find. */
function buildObjectQuery(name: string, scope: CompileScope): Query {
  if (hasFieldsBelow(scope.group, name)) return isStringField(scope.group, name) ? matchNone : matchAll;
  // Of an object that has a place in the mapping, and what is in it has none, only the latter is listed.
  if (scope.group.dropsBeyondLimit || !isDynamicallyIndexed(scope.group, name)) return matchAll;
  return buildLateFieldQuery(scope.group, name, scope.product.listsIgnored);
}

/** A server refuses an object for such a field. */
function isStringField({ fields }: IndexGroup, name: string): boolean {
  const field = fields.get(name);
  const isString =
    field !== undefined && (isTextField(field) || field.type === "keyword" || field.type === "wildcard");
  return isString && field.indexed && !field.ignoreMalformed;
}

/**
 * A line field is the first of its names that the document has, and the first element where that is an array. The
 * index cannot tell first from later elements, so only the upper bound is of use. `openFor` is for documents without any.
 */
function buildFirstOfQuery(
  names: readonly string[],
  operator: Operator,
  values: readonly string[],
  scope: CompileScope,
  rest: Query,
): Query {
  let upper = rest;
  for (const name of [...names].reverse()) {
    const own = anyOf(values.map((value) => buildUpperQuery(name, operator, value, scope)));
    upper = anyOf([own, allOf([buildMissingQuery(name, scope), upper])]);
  }
  return upper;
}

/**
 * `exists` misses what is not in the index, so this is wider than "the document lacks it". It finds an object as well, which
 * is no text.
 */
function buildMissingQuery(name: string, { group }: CompileScope): Query {
  const field = findField(group, name);
  const isValue = field !== undefined && !/^(?:object|passthrough|flattened|flat_object)$/.test(field.type);
  return isValue && field.indexed && !field.hasExtraValues && field.nested === undefined
    ? not({ exists: { field: name } })
    : matchAll;
}

/**
 * The upper bound of a name. Where the mapping lacks it but would have taken it up, the server is asked whether it has come
 * by now.
 */
function buildUpperQuery(name: string, operator: Operator, value: string, scope: CompileScope): Query {
  if (isDynamicallyIndexed(scope.group, name))
    return buildLateFieldQuery(scope.group, name, scope.product.listsIgnored);
  return compileFieldComparison(name, operator, value, scope).upper;
}

/** Severity is compared as answered, so every spelling of it counts; it is never lacking. */
function compileSeverity(
  rules: readonly SeverityRule[],
  operator: Operator,
  value: string,
  scope: CompileScope,
): Bounds {
  const wanted = severities.filter((name) =>
    operator === "=" ? name === value : operator === ":" && name.includes(value),
  );
  if (wanted.length === 0) return toExactBounds(matchNone);
  if (wanted.length === severities.length) return toExactBounds(matchAll);
  if (wanted.includes("unknown")) return unknownBounds;
  const earlier: Query[] = [];
  const parts: Query[] = [];
  for (const rule of rules) {
    const own = buildSeverityQuery(rule, wanted, scope);
    // What narrows by itself needs no more clauses.
    parts.push(own === matchAll ? allOf(earlier) : own);
    const surely = buildCertainSeverityQuery(rule, scope);
    if (surely !== matchNone) earlier.push(not(surely));
  }
  return toUpperBounds(anyOf(parts));
}

/** Documents that a rule may give one of these severities. */
function buildSeverityQuery(rule: SeverityRule, wanted: readonly Severity[], scope: CompileScope): Query {
  const { field: name, values = {}, at_least: steps } = rule;
  if (isDynamicallyIndexed(scope.group, name))
    return buildLateFieldQuery(scope.group, name, scope.product.listsIgnored);
  const field = findField(scope.group, name);
  if (field === undefined || !field.indexed || field.hasExtraValues || field.nested !== undefined)
    return matchAll;
  if (rule.values === undefined && steps === undefined) {
    // A word is no number; what is malformed is kept out of the index.
    if (isNumeric(field)) return includeIgnored(field, matchNone, scope)?.upper ?? matchAll;
    return anyOf(
      wanted
        .flatMap((severity) => [...listSeveritySpellings(severity)])
        .map((word) => buildSpellingQuery(field, word)),
    );
  }
  const texts = Object.keys(values).filter((text) => wanted.some((severity) => severity === values[text]));
  const ranges = (steps ?? []).flatMap(({ from, severity }, at) =>
    wanted.includes(severity) ? [buildBetweenQuery(field, from, steps?.[at + 1]?.from, scope)] : [],
  );
  return anyOf([...texts.map((text) => compileFieldComparison(name, "=", text, scope).upper), ...ranges]);
}

const integerTypes: readonly string[] = ["byte", "short", "integer", "long"];

/** From a number on, up to before another. */
function buildBetweenQuery(
  field: IndexedField,
  from: number,
  before: number | undefined,
  scope: CompileScope,
): Query {
  if (integerTypes.includes(field.type) && from > 0) {
    // What is no integer is cut to one, which moves no positive number below a bound that is an integer.
    const range = { range: { [field.name]: { gte: from, ...(before === undefined ? {} : { lt: before }) } } };
    return includeIgnored(field, range, scope)?.upper ?? matchAll;
  }
  const least = compileFieldComparison(field.name, ">=", String(from), scope).upper;
  return before === undefined
    ? least
    : allOf([least, compileFieldComparison(field.name, "<", String(before), scope).upper]);
}

/** Documents that a rule surely gives a severity: later rules then tell nothing. */
function buildCertainSeverityQuery(rule: SeverityRule, { group }: CompileScope): Query {
  if (rule.at_least !== undefined) return matchNone;
  const field = findField(group, rule.field);
  if (field === undefined || field.nested !== undefined) return matchNone;
  const found = [field, ...field.multiFields.flatMap((name) => group.fields.get(name) ?? [])];
  const keyword = found.find((candidate) => isExactTerm(candidate, "information"));
  if (keyword === undefined) return matchNone;
  if (rule.values !== undefined) {
    const known = Object.keys(rule.values).filter((text) => isExactTerm(keyword, text));
    return known.length === 0 ? matchNone : { terms: { [keyword.name]: known } };
  }
  const words = severities
    .filter((name) => name !== "unknown")
    .flatMap((name) => [...listSeveritySpellings(name)]);
  return anyOf(
    words
      .filter((word) => isExactTerm(keyword, word))
      .map((value) => ({ term: { [keyword.name]: { value, case_insensitive: true } } })),
  );
}

function buildSpellingQuery(field: IndexedField, spelling: string): Query {
  if (field.hasCustomAnalysis || field.hasExtraValues || spelling.length > field.ignoreAbove) return matchAll;
  if (field.type === "keyword")
    return { term: { [field.name]: { value: spelling, case_insensitive: true } } };
  // The standard analyzer lower-cases, and a severity is one word to it.
  return isTextField(field) ? { term: { [field.name]: spelling } } : matchAll;
}

function isTextField({ type }: IndexedField): boolean {
  return type === "text" || type === "match_only_text";
}

// ---- bodies in parts -----------------------------------------------------------------------------------------

/** Documents in which a part of the body may have a value at the path that compares so. */
function buildBodySourceQuery(
  part: BodySource,
  path: readonly string[],
  operator: Operator,
  value: string,
  scope: CompileScope,
): Query {
  const [key = "", ...rest] = path;
  if ("prefix" in part) {
    const { prefix, dot, except } = part;
    if (except.some((other) => `${prefix}${key}.`.startsWith(other))) return matchNone;
    const root = prefix.slice(0, -1);
    // Nothing below it so far: one question for all of it, unless what is below it can be listed by itself.
    const isNew = !hasFieldsBelow(scope.group, root) && isDynamicallyIndexed(scope.group, root);
    if (isNew && !scope.group.dropsBeyondLimit)
      return buildLateFieldQuery(scope.group, root, scope.product.listsIgnored);
    const spellings = dot === undefined ? [key] : listKeySpellings(key, dot);
    if (spellings === undefined) return matchAll;
    return anyOf(
      spellings.map((spelling) => {
        const known = { ...scope, key: prefix + spelling };
        return buildDocumentPathQuery([root, spelling, ...rest], operator, value, known);
      }),
    );
  }
  if ("pairs" in part) {
    const named = buildUpperQuery(`${part.pairs}.key`, "=", key, scope);
    return rest.length > 0
      ? named
      : allOf([named, buildUpperQuery(`${part.pairs}.value`, operator, value, scope)]);
  }
  if ("structured" in part) {
    const lacking = scope.layout.message.map((name) => buildMissingQuery(name, scope));
    const own = part.structured.map((name) =>
      buildDocumentPathQuery([name, ...path], operator, value, scope),
    );
    return allOf([...lacking, anyOf(own)]);
  }
  if ("text" in part) return buildJsonTextQuery(part.text, path, operator, value, scope);
  const names = Object.hasOwn(part.named, key) ? part.named[key] : undefined;
  return anyOf((names ?? []).map((name) => buildDocumentPathQuery([name, ...rest], operator, value, scope)));
}

/** A path whose first segment is a name of the document. */
function buildDocumentPathQuery(
  [name = "", ...rest]: readonly string[],
  operator: Operator,
  value: string,
  scope: CompileScope,
): Query {
  const names = listPathNames([...name.split("."), ...rest], rest.length);
  return names === undefined
    ? matchAll
    : anyOf(names.map((full) => buildUpperQuery(full, operator, value, scope)));
}

/** How a document may spell a key whose dots are another character there, or not; undefined where that is too many. */
function listKeySpellings(key: string, dot: string): readonly string[] | undefined {
  const parts = key.split(".");
  if (parts.length > 4) return undefined;
  if (key.includes(dot)) return [];
  return parts
    .slice(1)
    .reduce(
      (heads, part) => heads.flatMap((head) => [`${head}.${part}`, `${head}${dot}${part}`]),
      [parts[0] ?? ""],
    );
}

function hasFieldsBelow({ fields }: IndexGroup, root: string): boolean {
  const own = fields.get(root);
  if (own !== undefined && own.type !== "object" && own.type !== "passthrough") return true;
  for (const name of fields.keys()) if (name.startsWith(`${root}.`)) return true;
  return false;
}

/** A text that is JSON holds each key of the path and the value, at least their longest words. */
function buildJsonTextQuery(
  names: readonly string[],
  path: readonly string[],
  operator: Operator,
  value: string,
  scope: CompileScope,
): Query {
  const keys = path.filter((segment) => !arrayIndex.test(segment));
  const texts = operator === "=" || operator === ":" ? [...keys, value] : keys;
  const words = texts.flatMap((text) => findLongestRun(text.match(/[A-Za-z0-9]+/g)) ?? []);
  const holds = (name: string, word: string) =>
    // A letter may also be written by its number.
    anyOf([buildUpperQuery(name, ":", word, scope), buildUpperQuery(name, ":", "u00", scope)]);
  return anyOf(names.map((name) => allOf(words.map((word) => holds(name, word)))));
}

// ---- paths and names -----------------------------------------------------------------------------------------

const arrayIndex = /^(?:0|[1-9]\d*)$/;

/** A path into the document. */
function compilePath(
  path: readonly string[],
  operator: Operator,
  value: string,
  scope: CompileScope,
): Bounds {
  const names = listPathNames(path, path.length - 1);
  if (names === undefined) return unknownBounds;
  const bounds = names.map((name) => compileFieldComparison(name, operator, value, scope));
  const [only] = bounds;
  // `a.b` in the index is also the key "a.b" of the document, which the language tells apart (rule 6).
  if (only !== undefined && path.length === 1 && path[0]?.includes(".") === false) return only;
  return toUpperBounds(anyOf(bounds.map(({ upper }) => upper)));
}

/**
 * The names that a path may have in the index. Digits among its last segments may be array positions, which the index
 * does not have. Undefined where it has no name for the path, or too many.
 */
function listPathNames(path: readonly string[], last: number): readonly string[] | undefined {
  if (path.some((segment) => segment === "" || /^[.\s]|[.\s]$|[*]|\.\./.test(segment))) return undefined;
  const positions = path.flatMap((segment, at) =>
    at >= path.length - last && arrayIndex.test(segment) ? [at] : [],
  );
  if (positions.length > 2) return undefined;
  return Array.from({ length: 1 << positions.length }, (_, mask) =>
    path
      .filter((_, at) => {
        const position = positions.indexOf(at);
        return position < 0 || (mask & (1 << position)) !== 0;
      })
      .join("."),
  );
}

/** What to do where the index cannot narrow by these fields of a query. */
export function describeTooWide(fields: readonly string[]): string {
  if (fields.length === 0)
    return "The query has to look at too many lines; filter by a field that is mapped as keyword";
  const named = fields.slice(0, 5).join(", ");
  return `The index cannot narrow this query enough; map ${named} as keyword, filter by a field that is`;
}
