// A filter of the log query language as queries of the index. No mapping answers the language exactly: text is
// analysed, long values are left out, `a.b` is also the key "a.b", an array's positions are lost. So every leaf
// compiles to two bounds, `lower ⊆ meaning ⊆ upper`; negation swaps them. `upper` is what is sent, and the reader keeps
// the lines for which `matches` holds.

import { type Severity, severities, spellingsOf } from "../../../src/core/rows.ts";
import {
  type Compare,
  type Field,
  type Filter,
  leavesOf,
  type Operator,
} from "../../../src/log-query/ast.ts";
import type { Product } from "../client/product.ts";
import {
  all,
  any,
  every,
  gather,
  inIndices,
  none,
  not,
  type Query,
  type Shared,
  weigh,
} from "../client/query-dsl.ts";
import type { BodySource, LogProfile, SeverityRule } from "../layout/log-layout.ts";
import {
  comes,
  findField,
  type IndexedField,
  type IndexGroup,
  isIndexedAsItComes,
  type Knowledge,
  mayHideWhatComes,
} from "../mapping/mapping.ts";
import {
  atMost,
  type Bounds,
  compileName,
  everything,
  exactly,
  isCertain,
  isNumeric,
  longest,
  type Scope,
  withIgnored,
} from "./comparison-compiler.ts";

/** Below what the servers refuse: 20 levels of `bool` (OpenSearch), 1,024 clauses (older versions) in all. */
export const limits = { depth: 12, clauses: 700, allClauses: 900 } as const;

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
  // Mappings that differ elsewhere, as those of days do where all is mapped as it comes, are asked the same, once.
  const shared: Shared = new Map();
  for (const { group, query } of queries) gather(shared, query, group.indices);
  const parts = [...shared.values()].map(({ query, indices }) => every([inIndices(indices), query]));
  const query = any([...parts, not(inIndices(known))]);
  return weigh(query).clauses > limits.clauses ? all : query;
}

/** The fields of a filter, as they are written, by which some index cannot narrow. */
export function unnarrowed(
  filter: Filter,
  knowledge: Knowledge,
  profile: LogProfile,
  product: Product,
): readonly string[] {
  if (filter.kind === "all") return [];
  if (filter.kind !== "compare") {
    const found = filter.operands.flatMap((operand) => unnarrowed(operand, knowledge, profile, product));
    return [...new Set(found)];
  }
  const wide =
    knowledge.opaque ||
    knowledge.groups.some((group) => compileBounds(filter, group, profile, product).upper === all);
  return wide ? [nameOf(filter.field)] : [];
}

/**
 * Whether a filter names what the mapping lacks, where `exists` would not tell that it has come. Only a mapping that is read
 * for the request does then. Of a body that is the whole document no name is asked for before it is mapped.
 */
export function asksHidden(
  filter: Filter,
  { profile: { json }, groups }: { readonly profile: LogProfile; readonly groups: readonly IndexGroup[] },
  { listsIgnored }: Product,
): boolean {
  if (json === "source") return false;
  const hiding = groups.filter((group) => mayHideWhatComes(group, listsIgnored));
  const roots = json.from.flatMap((part) =>
    "prefix" in part ? [part.prefix] : "structured" in part ? part.structured.map((name) => `${name}.`) : [],
  );
  const paths = leavesOf(filter).flatMap(({ field }) =>
    field.kind === "json" ? [field.path, ...(field.alternatives ?? [])] : [],
  );
  return paths.some((path) =>
    hiding.some((group) => roots.every((root) => findField(group, root + path.join(".")) === undefined)),
  );
}

function nameOf(field: Field): string {
  return field.kind === "line"
    ? field.name
    : field.path.map((key) => key.replace(/[\\.]/g, "\\$&")).join(".");
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
  const { profile } = scope;
  if (field.kind === "line") {
    if (field.name === "severity") return compileSeverity(profile.severity, operator, value, scope);
    if (field.name === "message") return compileMessage(operator, value, scope);
    return atMost(compileChain(profile[field.name], operator, [value], scope, none));
  }
  const paths = [field.path, ...(field.alternatives ?? [])];
  const { json } = profile;
  if (json !== "source") {
    return atMost(
      any(paths.flatMap((path) => json.from.map((part) => inPart(part, path, operator, value, scope)))),
    );
  }
  if (paths.length > 1) {
    return atMost(any(paths.map((path) => compilePath(path, operator, value, scope).upper)));
  }
  return compilePath(field.path, operator, value, scope);
}

function compileMessage(operator: Operator, value: string, scope: Scope): Bounds {
  const { message, chomp, json, structured = [] } = scope.profile;
  const values = chomp && operator === "=" ? [value, `${value}\n`, `${value}\r\n`] : [value];
  // Where there is no text, keys and values make the message, printed as JSON: only the document knows it.
  const printed =
    json === "source"
      ? any(structured.map((name) => holdsObject(name, scope)))
      : json.from.some((part) => "structured" in part)
        ? all
        : none;
  return atMost(compileChain(message, operator, values, scope, printed));
}

/** Documents that may have an object at a name, an empty one too, which `exists` does not find. */
function holdsObject(name: string, scope: Scope): Query {
  if (hasBelow(scope.group, name)) return isScalar(scope.group, name) ? none : all;
  // Of an object that has a place in the mapping, and what is in it has none, only the latter is listed.
  if (scope.group.dropsBeyondLimit || !isIndexedAsItComes(scope.group, name)) return all;
  return comes(scope.group, name, scope.product.listsIgnored);
}

/** A server refuses an object for such a field. */
function isScalar({ fields }: IndexGroup, name: string): boolean {
  const field = fields.get(name);
  const isString =
    field !== undefined && (isText(field) || field.type === "keyword" || field.type === "wildcard");
  return isString && field.indexed && !field.ignoreMalformed;
}

/**
 * A line field is the first of its names that the document has, and the first element where that is an array. The
 * index cannot tell first from later elements, so only the upper bound is of use. `rest` is for documents without any.
 */
function compileChain(
  names: readonly string[],
  operator: Operator,
  values: readonly string[],
  scope: Scope,
  rest: Query,
): Query {
  let upper = rest;
  for (const name of [...names].reverse()) {
    const own = any(values.map((value) => possible(name, operator, value, scope)));
    upper = any([own, every([lacks(name, scope), upper])]);
  }
  return upper;
}

/**
 * `exists` misses what is not in the index, so this is wider than "the document lacks it". It finds an object as well, which
 * is no text.
 */
function lacks(name: string, { group }: Scope): Query {
  const field = findField(group, name);
  const isValue = field !== undefined && !/^(?:object|passthrough|flattened|flat_object)$/.test(field.type);
  return isValue && field.indexed && !field.invented && field.nested === undefined
    ? not({ exists: { field: name } })
    : all;
}

/**
 * The upper bound of a name. Where the mapping lacks it but would have taken it up, the server is asked whether it has come
 * by now.
 */
function possible(name: string, operator: Operator, value: string, scope: Scope): Query {
  if (isIndexedAsItComes(scope.group, name)) return comes(scope.group, name, scope.product.listsIgnored);
  return compileName(name, operator, value, scope).upper;
}

/** Severity is compared as answered, so every spelling of it counts; it is never lacking. */
function compileSeverity(
  rules: readonly SeverityRule[],
  operator: Operator,
  value: string,
  scope: Scope,
): Bounds {
  const wanted = severities.filter((name) =>
    operator === "=" ? name === value : operator === ":" && name.includes(value),
  );
  if (wanted.length === 0) return exactly(none);
  if (wanted.length === severities.length) return exactly(all);
  if (wanted.includes("unknown")) return everything;
  const earlier: Query[] = [];
  const parts: Query[] = [];
  for (const rule of rules) {
    const own = tells(rule, wanted, scope);
    // What narrows by itself needs no more clauses.
    parts.push(own === all ? every(earlier) : own);
    const surely = surelyTells(rule, scope);
    if (surely !== none) earlier.push(not(surely));
  }
  return atMost(any(parts));
}

/** Documents that a rule may give one of these severities. */
function tells(rule: SeverityRule, wanted: readonly Severity[], scope: Scope): Query {
  const { field: name, values = {}, at_least: steps } = rule;
  if (isIndexedAsItComes(scope.group, name)) return comes(scope.group, name, scope.product.listsIgnored);
  const field = findField(scope.group, name);
  if (field === undefined || !field.indexed || field.invented || field.nested !== undefined) return all;
  if (rule.values === undefined && steps === undefined) {
    // A word is no number; what is malformed is kept out of the index.
    if (isNumeric(field)) return withIgnored(field, none, scope)?.upper ?? all;
    return any(wanted.flatMap((severity) => [...spellingsOf(severity)]).map((word) => spelled(field, word)));
  }
  const texts = Object.keys(values).filter((text) => wanted.some((severity) => severity === values[text]));
  const ranges = (steps ?? []).flatMap(({ from, severity }, at) =>
    wanted.includes(severity) ? [between(field, from, steps?.[at + 1]?.from, scope)] : [],
  );
  return any([...texts.map((text) => compileName(name, "=", text, scope).upper), ...ranges]);
}

const integerTypes: readonly string[] = ["byte", "short", "integer", "long"];

/** From a number on, up to before another. */
function between(field: IndexedField, from: number, before: number | undefined, scope: Scope): Query {
  if (integerTypes.includes(field.type) && from > 0) {
    // What is no integer is cut to one, which moves no positive number below a bound that is an integer.
    const range = { range: { [field.name]: { gte: from, ...(before === undefined ? {} : { lt: before }) } } };
    return withIgnored(field, range, scope)?.upper ?? all;
  }
  const least = compileName(field.name, ">=", String(from), scope).upper;
  return before === undefined
    ? least
    : every([least, compileName(field.name, "<", String(before), scope).upper]);
}

/** Documents that a rule surely gives a severity: later rules then tell nothing. */
function surelyTells(rule: SeverityRule, { group }: Scope): Query {
  if (rule.at_least !== undefined) return none;
  const field = findField(group, rule.field);
  if (field === undefined || field.nested !== undefined) return none;
  const found = [field, ...field.multi.flatMap((name) => group.fields.get(name) ?? [])];
  const keyword = found.find((candidate) => isCertain(candidate, "information"));
  if (keyword === undefined) return none;
  if (rule.values !== undefined) {
    const known = Object.keys(rule.values).filter((text) => isCertain(keyword, text));
    return known.length === 0 ? none : { terms: { [keyword.name]: known } };
  }
  const words = severities.filter((name) => name !== "unknown").flatMap((name) => [...spellingsOf(name)]);
  return any(
    words
      .filter((word) => isCertain(keyword, word))
      .map((value) => ({ term: { [keyword.name]: { value, case_insensitive: true } } })),
  );
}

function spelled(field: IndexedField, spelling: string): Query {
  if (field.rewritten || field.invented || spelling.length > field.ignoreAbove) return all;
  if (field.type === "keyword")
    return { term: { [field.name]: { value: spelling, case_insensitive: true } } };
  // The standard analyzer lower-cases, and a severity is one word to it.
  return isText(field) ? { term: { [field.name]: spelling } } : all;
}

function isText({ type }: IndexedField): boolean {
  return type === "text" || type === "match_only_text";
}

// ---- bodies in parts -----------------------------------------------------------------------------------------

/** Documents in which a part of the body may have a value at the path that compares so. */
function inPart(
  part: BodySource,
  path: readonly string[],
  operator: Operator,
  value: string,
  scope: Scope,
): Query {
  const [key = "", ...rest] = path;
  if ("prefix" in part) {
    const { prefix, dot, except } = part;
    if (except.some((other) => `${prefix}${key}.`.startsWith(other))) return none;
    const root = prefix.slice(0, -1);
    // Nothing below it so far: one question for all of it, unless what is below it can be listed by itself.
    const isNew = !hasBelow(scope.group, root) && isIndexedAsItComes(scope.group, root);
    if (isNew && !scope.group.dropsBeyondLimit) return comes(scope.group, root, scope.product.listsIgnored);
    const spellings = dot === undefined ? [key] : spellingsOfKey(key, dot);
    if (spellings === undefined) return all;
    return any(
      spellings.map((spelling) => {
        const known = { ...scope, key: prefix + spelling };
        return inDocument([root, spelling, ...rest], operator, value, known);
      }),
    );
  }
  if ("pairs" in part) {
    const named = possible(`${part.pairs}.key`, "=", key, scope);
    return rest.length > 0 ? named : every([named, possible(`${part.pairs}.value`, operator, value, scope)]);
  }
  if ("structured" in part) {
    const lacking = scope.profile.message.map((name) => lacks(name, scope));
    const own = part.structured.map((name) => inDocument([name, ...path], operator, value, scope));
    return every([...lacking, any(own)]);
  }
  if ("text" in part) return inJsonText(part.text, path, operator, value, scope);
  const names = Object.hasOwn(part.named, key) ? part.named[key] : undefined;
  return any((names ?? []).map((name) => inDocument([name, ...rest], operator, value, scope)));
}

/** A path whose first segment is a name of the document. */
function inDocument(
  [name = "", ...rest]: readonly string[],
  operator: Operator,
  value: string,
  scope: Scope,
): Query {
  const names = namesOfPath([...name.split("."), ...rest], rest.length);
  return names === undefined ? all : any(names.map((full) => possible(full, operator, value, scope)));
}

/** How a document may spell a key whose dots are another character there, or not; undefined where that is too many. */
function spellingsOfKey(key: string, dot: string): readonly string[] | undefined {
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

function hasBelow({ fields }: IndexGroup, root: string): boolean {
  const own = fields.get(root);
  if (own !== undefined && own.type !== "object" && own.type !== "passthrough") return true;
  for (const name of fields.keys()) if (name.startsWith(`${root}.`)) return true;
  return false;
}

/** A text that is JSON holds each key of the path and the value, at least their longest words. */
function inJsonText(
  names: readonly string[],
  path: readonly string[],
  operator: Operator,
  value: string,
  scope: Scope,
): Query {
  const keys = path.filter((segment) => !index.test(segment));
  const texts = operator === "=" || operator === ":" ? [...keys, value] : keys;
  const words = texts.flatMap((text) => longest(text.match(/[A-Za-z0-9]+/g)) ?? []);
  const holds = (name: string, word: string) =>
    // A letter may also be written by its number.
    any([possible(name, ":", word, scope), possible(name, ":", "u00", scope)]);
  return any(names.map((name) => every(words.map((word) => holds(name, word)))));
}

// ---- paths and names -----------------------------------------------------------------------------------------

const index = /^(?:0|[1-9]\d*)$/;

/** A path into the document. */
function compilePath(path: readonly string[], operator: Operator, value: string, scope: Scope): Bounds {
  const names = namesOfPath(path, path.length - 1);
  if (names === undefined) return everything;
  const bounds = names.map((name) => compileName(name, operator, value, scope));
  const [only] = bounds;
  // `a.b` in the index is also the key "a.b" of the document, which the language tells apart (rule 6).
  if (only !== undefined && path.length === 1 && path[0]?.includes(".") === false) return only;
  return atMost(any(bounds.map(({ upper }) => upper)));
}

/**
 * The names that a path may have in the index. Digits among its last segments may be array positions, which the index
 * does not have. Undefined where it has no name for the path, or too many.
 */
function namesOfPath(path: readonly string[], last: number): readonly string[] | undefined {
  if (path.some((segment) => segment === "" || /^[.\s]|[.\s]$|[*]|\.\./.test(segment))) return undefined;
  const positions = path.flatMap((segment, at) =>
    at >= path.length - last && index.test(segment) ? [at] : [],
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
export function tooWide(fields: readonly string[]): string {
  if (fields.length === 0)
    return "The query has to look at too many lines; filter by a field that is mapped as keyword";
  const named = fields.slice(0, 5).join(", ");
  return `The index cannot narrow this query enough; map ${named} as keyword, filter by a field that is`;
}
