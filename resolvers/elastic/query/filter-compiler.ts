// Compiles a filter of the log query language into a query. No mapping answers the language exactly: text is analysed, long
// values are left out, `a.b` is also the key "a.b", and positions in arrays are lost. So every leaf compiles to two bounds,
// `lower ⊆ meaning ⊆ upper`, and negation swaps them. The upper bound is sent, and the reader keeps the lines that match
// the filter.

import { createPause } from "../../../src/core/async/turns.ts";
import { readOwn, requireFirst, requireKey } from "../../../src/core/collections.ts";
import {
  type Compare,
  type Field,
  type Filter,
  listComparisons,
  type Operator,
} from "../../../src/log-query/ast.ts";
import { printField } from "../../../src/log-query/print.ts";
import type { Product } from "../client/product.ts";
import {
  allOf,
  anyOf,
  anyOfMany,
  buildIndicesQuery,
  matchAll,
  matchNone,
  measureQuery,
  not,
  type Query,
  restrictToIndices,
} from "../client/query-dsl.ts";
import { type BodySource, type LogLayout, listLineNames } from "../layout/log-layout.ts";
import { hasUnindexedTemplates } from "../mapping/dynamic-templates.ts";
import {
  buildLateFieldQuery,
  findField,
  type IndexGroup,
  type IndexMetadata,
  isDynamicallyIndexed,
} from "../mapping/mapping.ts";
import { arrayIndex, buildBodySourceQuery, compilePath, listKeySpellings } from "./body-compiler.ts";
import {
  type Bounds,
  buildMissingQuery,
  buildUpperQuery,
  type CompileScope,
  hasFieldsBelow,
  isTextField,
  toExactBounds,
  toUpperBounds,
  unknownBounds,
} from "./comparison-compiler.ts";
import { joinEqualGroups } from "./equal-groups.ts";
import { compileSeverity } from "./severity-compiler.ts";

/**
 * Below what servers reject: 20 levels of `bool` (OpenSearch) and 1,024 clauses in all (older versions). `clauses` limits one
 * filter, `allClauses` a filter together with the tenant filter.
 */
export const queryLimits = { depth: 12, clauses: 700, allClauses: 900 } as const;

/** The query finds every line that satisfies the filter, and every document of an index that the metadata lacks. */
export async function compileFilter(
  filter: Filter,
  metadata: IndexMetadata,
  layout: LogLayout,
  product: Product,
  signal: AbortSignal,
): Promise<Query> {
  if (filter.kind === "all" || metadata.opaque) return matchAll;
  const bounds = await compileByGroup(filter, metadata.groups, layout, product, signal);
  const queries = metadata.groups.map((group) => ({ group, query: requireKey(bounds, group).upper }));
  return combineGroupQueries(queries, metadata);
}

/**
 * The bounds of a filter in each group of indices. A filter has up to a thousand comparisons, and an alias of daily indices many
 * groups: what is equal is compiled once, and takes turns with other requests. @throws the signal's reason
 */
export async function compileByGroup(
  filter: Filter,
  groups: readonly IndexGroup[],
  layout: LogLayout,
  product: Product,
  signal: AbortSignal,
): Promise<ReadonlyMap<IndexGroup, Bounds>> {
  const comparisons = listComparisons(filter);
  const pause = createPause(signal);
  const compiled = new Map<IndexGroup, Bounds>();
  for (const equal of joinEqualGroups(comparisons, groups, layout)) {
    const compile = createComparisonCompiler({ group: requireFirst(equal), layout, product });
    for (const comparison of comparisons) {
      compile(comparison);
      await pause();
    }
    const bounds = compileNode(filter, compile, 0);
    for (const group of equal) compiled.set(group, bounds);
  }
  return compiled;
}

/** The bounds of a filter in one group of indices: documents that certainly satisfy it, and all that may. */
export function compileBounds(
  filter: Filter,
  group: IndexGroup,
  layout: LogLayout,
  product: Product,
): Bounds {
  return compileNode(filter, createComparisonCompiler({ group, layout, product }), 0);
}

/** Compiles equal comparisons once. */
type ComparisonCompiler = (comparison: Compare) => Bounds;

function createComparisonCompiler(scope: CompileScope): ComparisonCompiler {
  const known = new Map<string, Bounds>();
  return (comparison) => {
    const key = formatComparison(comparison);
    const bounds = known.get(key) ?? compileComparison(comparison, scope);
    known.set(key, bounds);
    return bounds;
  };
}

function formatComparison({ field, operator, value }: Compare): string {
  return JSON.stringify([field, operator, value]);
}

/**
 * Restricts the query of each group to its own indices, and finds all documents of indices that appeared after the mapping
 * was read. The reader notices those hits and compiles again, so that no line of a new index is lost or passes unverified.
 * Where that takes too many clauses, the query finds everything.
 */
export function combineGroupQueries(
  queries: readonly { readonly group: IndexGroup; readonly query: Query }[],
  metadata: IndexMetadata,
): Query {
  if (queries.every(({ query }) => query === matchAll)) return matchAll;
  const known = [...metadata.indices];
  // Mappings that differ in other fields, as those of daily indices with dynamic mapping, share one query.
  const restricted = restrictGroups(queries);
  const query = anyOf([...restricted, not(buildIndicesQuery(known))]);
  return measureQuery(query).clauses > queryLimits.clauses ? matchAll : query;
}

/**
 * The same for lower bounds: nothing of an index that the metadata lacks is found. Undefined where that takes too many
 * clauses.
 */
export function combineCertainQueries(
  queries: readonly { readonly group: IndexGroup; readonly query: Query }[],
): Query | undefined {
  const combined = anyOf(restrictGroups(queries));
  return measureQuery(combined).clauses > queryLimits.clauses ? undefined : combined;
}

function restrictGroups(
  queries: readonly { readonly group: IndexGroup; readonly query: Query }[],
): readonly Query[] {
  return restrictToIndices(queries.map(({ group, query }) => ({ query, indices: group.indices })));
}

/** The fields of a filter, as the user writes them, by which some index cannot narrow. */
export function listUnnarrowedFields(
  filter: Filter,
  metadata: IndexMetadata,
  layout: LogLayout,
  product: Product,
): readonly string[] {
  const unnarrowed = metadata.opaque
    ? listComparisons(filter)
    : listUnnarrowed(filter, metadata.groups, layout, product).map(({ comparison }) => comparison);
  return [...new Set(unnarrowed.map(({ field }) => printField(field)))];
}

/** So many are compiled for advice, in one turn: of a very long filter over many indices, the advice is about its beginning. */
const maxAdvised = 1_000;

/** The comparisons by which the index cannot narrow, with each group of indices where that is so. */
export function listUnnarrowed(
  filter: Filter,
  groups: readonly IndexGroup[],
  layout: LogLayout,
  product: Product,
): readonly { readonly comparison: Compare; readonly group: IndexGroup }[] {
  const distinct = new Map(listComparisons(filter).map((one) => [formatComparison(one), one]));
  const most = Math.ceil(maxAdvised / Math.max(1, groups.length));
  return [...distinct.values()]
    .slice(0, most)
    .flatMap((comparison) =>
      groups
        .filter((group) => compileBounds(comparison, group, layout, product).upper === matchAll)
        .map((group) => ({ comparison, group })),
    );
}

/** How recent a mapping has to be for a filter: as others have read it, of the last seconds, or read for the request. */
export type Freshness = "shared" | "recent" | "now";

/**
 * How recent the mapping has to be for the names of these fields that it lacks. Where a name may have been mapped since in a way
 * that `exists` does not find, only a mapping that is read for the request is good enough. Elsewhere `dynamic` has to be of the
 * last seconds: with another setting, documents may have names that are never mapped.
 */
export function chooseFreshness(
  fields: readonly Field[],
  { layout, groups }: { readonly layout: LogLayout; readonly groups: readonly IndexGroup[] },
  { listsIgnored }: Product,
): Freshness {
  const lineNames = fields.flatMap((field) =>
    field.kind === "line" ? listLineNames(layout, field.name) : [],
  );
  const bodyNames = fields.flatMap((field) => (field.kind === "json" ? listBodyNames(layout, field) : []));
  const lacking = groups.map((group) => {
    // Of names that a `passthrough` object may take in, all documents are read.
    const names = layout.json === "source" && group.hasPassthrough ? lineNames : [...lineNames, ...bodyNames];
    return { group, names: names.filter((name) => findField(group, name) === undefined) };
  });
  const lackingAny = lacking.filter(({ names }) => names.length > 0);
  const areAllNamed = fields.every((field) => asksForNamesAlone(field, layout));
  const mayHide = ({ group, names }: (typeof lacking)[number]): boolean =>
    hasUnindexedTemplates(group, listsIgnored, areAllNamed ? names : undefined);
  if (lackingAny.some(mayHide)) return "now";
  return lackingAny.length > 0 ? "recent" : "shared";
}

/**
 * Whether no other name decides a comparison with the field: an object that is a message is found by any key in it, and a path with
 * positions of arrays by names that leave these out.
 */
function asksForNamesAlone(field: Field, { structured = [] }: LogLayout): boolean {
  if (field.kind === "line") return field.name !== "message" || structured.length === 0;
  const paths = [field.path, ...(field.alternatives ?? [])];
  return !paths.some((path) => path.some((segment) => arrayIndex.test(segment)));
}

/** The names at which an index may have a field of the body. */
function listBodyNames({ json }: LogLayout, field: BodyField): readonly string[] {
  const paths = [field.path, ...(field.alternatives ?? [])];
  if (json === "source") return paths.map((path) => path.join("."));
  return json.from.flatMap((source) => paths.flatMap((path) => listSourceNames(source, path)));
}

type BodyField = Extract<Field, { readonly kind: "json" }>;

function listSourceNames(source: BodySource, path: BodyField["path"]): readonly string[] {
  const [key, ...rest] = path;
  if ("prefix" in source) {
    const spellings = source.dot === undefined ? [key] : (listKeySpellings(key, source.dot) ?? [key]);
    return spellings.map((spelling) => source.prefix + [spelling, ...rest].join("."));
  }
  if ("pairs" in source) return [`${source.pairs}.key`, `${source.pairs}.value`];
  if ("text" in source) return source.text;
  if ("structured" in source) return source.structured.map((name) => [name, ...path].join("."));
  return (readOwn(source.named, key) ?? []).map((name) => [name, ...rest].join("."));
}

function compileNode(filter: Filter, compile: ComparisonCompiler, depth: number): Bounds {
  if (filter.kind === "all") return toExactBounds(matchAll);
  if (filter.kind === "compare") return compile(filter);
  if (depth >= queryLimits.depth) return unknownBounds;
  const operands = flattenOperands(filter.kind, filter.operands).map((operand) =>
    compileNode(operand, compile, depth + 1),
  );
  const combine = filter.kind === "and" ? allOf : anyOfMany;
  return {
    lower: combine(operands.map((operand) => operand.lower)),
    upper: combine(operands.map((operand) => operand.upper)),
  };
}

/** The operands with nested groups of the same kind dissolved. */
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
          json.from.map((source) => buildBodySourceQuery(source, path, operator, value, scope)),
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
  // Without a text the message is an object printed as JSON, which only the document decides.
  const printed =
    json === "source"
      ? anyOf(structured.map((name) => buildObjectQuery(name, scope)))
      : json.from.some((source) => "structured" in source)
        ? matchAll
        : matchNone;
  return toUpperBounds(buildFirstOfQuery(message, operator, values, scope, printed));
}

/** Documents that may have an object at a name, also an empty one, which `exists` does not find. */
function buildObjectQuery(name: string, scope: CompileScope): Query {
  if (hasFieldsBelow(scope.group, name)) return isStringField(scope.group, name) ? matchNone : matchAll;
  // Where the object is mapped and its members are beyond the field limit, only the members are listed in _ignored.
  if (scope.group.dropsBeyondLimit || !isDynamicallyIndexed(scope.group, name)) return matchAll;
  return buildLateFieldQuery(scope.group, name, scope.product.listsIgnored);
}

/** Whether a server rejects documents with an object at the field. */
function isStringField({ fields }: IndexGroup, name: string): boolean {
  const field = fields.get(name);
  const isString =
    field !== undefined && (isTextField(field) || field.type === "keyword" || field.type === "wildcard");
  return isString && field.indexed && !field.ignoreMalformed;
}

/**
 * A line field is the first of its names that the document has, and the first element of an array. The index cannot distinguish
 * the first element from later ones, so only the upper bound is of use. `rest` finds what counts of documents without any name.
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

/** Advice for a query that the index cannot narrow by these fields. */
export function describeTooWide(fields: readonly string[]): string {
  if (fields.length === 0)
    return "The query has to look at too many lines; filter by a field that is mapped as keyword";
  const named = fields.slice(0, 5).join(", ");
  return `The index cannot narrow this query enough; map ${named} as keyword, filter by a field that is`;
}
