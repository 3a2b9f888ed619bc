// The query clauses that this backend sends, built as plain objects and simplified while they are built; the options of
// requests; and index patterns in addresses.
import { requireFirst } from "../../../src/core/collections.ts";

export type Query = { readonly [clause: string]: unknown };

export const matchAll: Query = { match_all: {} };
export const matchNone: Query = { match_none: {} };

/** Matches documents that every query matches. */
export function allOf(queries: readonly Query[]): Query {
  const kept: Query[] = [];
  for (const query of queries) {
    if (query === matchNone) return matchNone;
    if (query !== matchAll) kept.push(query);
  }
  const [first] = kept;
  if (first === undefined) return matchAll;
  return kept.length === 1 ? first : { bool: { filter: kept } };
}

/** Matches documents that at least one query matches. */
export function anyOf(queries: readonly Query[]): Query {
  const kept: Query[] = [];
  for (const query of queries) {
    if (query === matchAll) return matchAll;
    if (query !== matchNone) kept.push(query);
  }
  const [first] = kept;
  if (first === undefined) return matchNone;
  return kept.length === 1 ? first : { bool: { should: kept, minimum_should_match: 1 } };
}

/** `anyOf` of very many: equal queries once, and the terms of one field in one clause, which servers do not count by values. */
export function anyOfMany(queries: readonly Query[]): Query {
  const others = new Map<string, Query>();
  const values = new Map<string, Set<string>>();
  for (const query of queries.flatMap(listAlternatives)) {
    const [field, value] = Object.entries(query.term ?? {})[0] ?? [];
    if (field === undefined || typeof value !== "string") others.set(JSON.stringify(query), query);
    else values.set(field, (values.get(field) ?? new Set()).add(value));
  }
  const terms = [...values].map(
    ([field, own]): Query =>
      own.size === 1 ? { term: { [field]: [...own][0] } } : { terms: { [field]: [...own] } },
  );
  return anyOf([...terms, ...others.values()]);
}

/** The operands of what `anyOf` has made, else the query itself. */
function listAlternatives(query: Query): readonly Query[] {
  const { should, minimum_should_match: least, ...more } = (query.bool ?? {}) as Record<string, unknown>;
  const isPlain = least === 1 && Object.keys(more).length === 0;
  return isPlain && Array.isArray(should) ? should : [query];
}

export function not(query: Query): Query {
  if (query === matchAll) return matchNone;
  if (query === matchNone) return matchAll;
  return { bool: { must_not: [query] } };
}

/** The number of clauses and of nested `bool` levels that a server counts for the query, estimated upwards. */
export function measureQuery(query: Query): { clauses: number; depth: number } {
  const nested = query.nested as { readonly query: Query } | undefined;
  if (nested !== undefined) return measureQuery(nested.query);
  // A server makes one clause of each word of a match.
  if (query.match !== undefined)
    return { clauses: Math.ceil(JSON.stringify(query.match).length / 2), depth: 0 };
  const bool = query.bool as Record<string, unknown> | undefined;
  if (bool === undefined) return { clauses: 1, depth: 0 };
  let clauses = 1;
  let depth = 0;
  for (const list of Object.values(bool)) {
    if (!Array.isArray(list)) continue;
    for (const child of list as Query[]) {
      const weight = measureQuery(child);
      clauses += weight.clauses;
      depth = Math.max(depth, weight.depth);
    }
  }
  return { clauses, depth: depth + 1 };
}

/** The clauses whose members are fields, if they have any. */
const fieldClauses = new Set([
  "match_all",
  "match_none",
  "term",
  "terms",
  "range",
  "match",
  "wildcard",
  "regexp",
]);

/**
 * The names of the fields that a query looks at. Of a part that is none of the clauses sent here, all keys and texts: a name may
 * be among them.
 */
export function listQueriedNames(query: unknown): readonly string[] {
  if (!isObject(query)) return listWords(query);
  return Object.entries(query).flatMap(([clause, content]) => {
    if (!isObject(content)) return [clause, ...listWords(content)];
    if (fieldClauses.has(clause)) return Object.entries(content).flatMap(listComparedNames);
    if (clause === "exists") return listWords(content.field ?? content);
    if (clause === "nested") return [...listWords(content.path), ...listQueriedNames(content.query)];
    if (clause !== "bool") return [clause, ...listWords(content)];
    const { minimum_should_match: _, ...operands } = content;
    return Object.values(operands).flat().flatMap(listQueriedNames);
  });
}

/** A document lists in `_ignored` the names of its fields, which are the values there. */
function listComparedNames([name, value]: readonly [string, unknown]): readonly string[] {
  return name === "_ignored" ? [name, ...listWords(value)] : [name];
}

/** All keys and texts of a value. */
function listWords(value: unknown): readonly string[] {
  if (typeof value === "string") return [value];
  if (Array.isArray(value)) return value.flatMap(listWords);
  return isObject(value) ? Object.entries(value).flatMap(([key, part]) => [key, ...listWords(part)]) : [];
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

/** Skips closed and missing indices. */
export const indexOptions = {
  ignore_unavailable: "true",
  allow_no_indices: "true",
  expand_wildcards: "open",
} as const;

/** Mappings are read of closed indices too, so that they are not missed silently. */
export const mappingOptions = { ...indexOptions, expand_wildcards: "open,closed" } as const;

/** Every search has these: a partial response is an error. */
export const searchOptions = { ...indexOptions, allow_partial_search_results: "false" } as const;

/**
 * Aggregations are made on no shard that cannot match. Otherwise such a shard may read all values of a field for nothing,
 * because the server asks beforehand only where there are more than 128 shards.
 */
export const aggregationOptions = { pre_filter_shard_size: "1" } as const;

/** With these the server refuses a pattern that matches a closed index or names a missing one. */
export const strictOptions = {
  ...searchOptions,
  ignore_unavailable: "false",
  expand_wildcards: "open,closed",
} as const;

export function buildIndicesQuery(indices: readonly string[]): Query {
  return { terms: { _index: indices } };
}

/** The indices that one answer may list. */
const maxIndices = 10_000;

/** Counts the documents of each index, as `indices`, and what `aggs` asks of them. `sum_other_doc_count` is 0 where all are listed. */
export function buildIndicesAggregation(aggs?: object): { readonly indices: object } {
  return { indices: { terms: { field: "_index", size: maxIndices }, aggs } };
}

/** Documents with a value at this name that is not in the index: see `Product.listsIgnored`. */
export function buildIgnoredQuery(name: string): Query {
  return { term: { _ignored: name } };
}

/** Encodes each part of a comma list for an address; wildcards and date math keep their meaning. */
export function encodePattern(index: string): string {
  return index
    .split(",")
    .map((part) => encodeURIComponent(part.trim()).replaceAll("%2A", "*"))
    .join(",");
}

/** The parts of a pattern, without the dates of its date math, whose zones have colons (`<logs-{now/d{…|+02:00}}>`). */
export function listPatternParts(index: string): readonly string[] {
  return index
    .replace(/<[^>]*>/g, "<>")
    .split(",")
    .map((part) => part.trim());
}

/** Whether a part of the pattern names indices of another cluster. */
export function isRemote(index: string): boolean {
  return listPatternParts(index).some((part) => part.includes(":"));
}

/** Whether a part of the pattern selects a component of data streams: `logs-*::failures` or `logs-*::data`. */
export function hasSelector(index: string): boolean {
  return index.includes("::");
}

/** A query, and the indices that it is for. */
interface IndicesQuery {
  readonly query: Query;
  readonly indices: readonly string[];
}

/** Each query with its indices; equal ones once, for the indices of all of them. */
export function restrictToIndices(queries: readonly IndicesQuery[]): readonly Query[] {
  return shareQueries(queries).map(({ query, indices }) => allOf([buildIndicesQuery(indices), query]));
}

function shareQueries(queries: readonly IndicesQuery[]): readonly IndicesQuery[] {
  // Nearly always one, which may hold thousands of ids.
  if (queries.length <= 1) return queries;
  // Groups of equal mappings have one query, which is printed once.
  const byQuery = Map.groupBy(queries, ({ query }) => query);
  const byText = Map.groupBy(byQuery, ([query]) => JSON.stringify(query));
  return [...byText.values()].map((equal) => ({
    query: requireFirst(equal)[0],
    indices: equal.flatMap(([, own]) => own.flatMap(({ indices }) => indices)),
  }));
}
