// The tenant filter of a source, configured as `where`. It names fields of the index itself and must be exact by the index
// alone in every index of the pattern. Anything less is refused: it is never approximated, and never checked on the
// document.
import { Unprocessable } from "../../../src/core/errors.ts";
import { type Compare, type Field, type Filter, listComparisons } from "../../../src/log-query/ast.ts";
import { toField } from "../../../src/log-query/field.ts";
import { type Language, parseAs } from "../../../src/log-query/parse.ts";
import {
  allOf,
  anyOf,
  matchAll,
  matchNone,
  not,
  type Query,
  restrictToIndices,
} from "../client/query-dsl.ts";
import type { IndexedField } from "../mapping/indexed-field.ts";
import { findField, type IndexGroup, summariseIndices } from "../mapping/mapping.ts";

/** No name is legacy syntax here, since an index may have fields such as `attributes.tenant` and `is_bool`. */
const language: Language<Field> = {
  bareTermField: { kind: "line", name: "message" },
  resolveField: ({ keys }) => toField(keys),
  hasLists: false,
};

/** @throws {TenantFilterError} */
export function parseTenantFilter(text: string): Filter {
  let filter: Filter;
  try {
    filter = parseAs(text, language);
  } catch (error) {
    if (error instanceof Unprocessable) throw new TenantFilterError(describeSyntaxFault(error));
    throw error;
  }
  for (const leaf of listComparisons(filter)) checkOperator(leaf);
  return filter;
}

/** Why no index can answer the filter exactly, as far as its text shows; undefined where one could. */
export function findTenantFilterFault(text: string): string | undefined {
  try {
    // All lines are those of a source without a filter: an empty one is a slip.
    return parseTenantFilter(text).kind === "all" ? "compares nothing" : undefined;
  } catch (error) {
    if (error instanceof TenantFilterError) return error.reason;
    throw error;
  }
}

/** The filter is invalid or cannot be exact. The message says why and is for operators. */
export class TenantFilterError extends Error {
  override readonly name = "TenantFilterError";
  readonly reason: string;
  constructor(reason: string) {
    super(`where: ${reason}`);
    this.reason = reason;
  }
}

/** Without what stands there: a `where` may hold a secret. */
function describeSyntaxFault({ details, message }: Unprocessable): string {
  return "expected" in details ? `expected ${details.expected} at character ${details.start + 1}` : message;
}

/** @throws {TenantFilterError} */
function checkOperator({ operator }: Compare): void {
  if (operator === "=" || operator === "!=") return;
  const meant = operator === ":" ? ": or a word alone" : operator;
  throw new TenantFilterError(`only = and != are exact, not ${meant}`);
}

/**
 * The documents of these indices that a tenant filter lets through, each index by its own mapping: none where no index is known.
 * All documents without a filter. @throws {TenantFilterError}
 */
export function buildTenantQuery(text: string | undefined, groups: readonly IndexGroup[]): Query {
  if (text === undefined) return matchAll;
  const filter = parseTenantFilter(text);
  return anyOf(
    restrictToIndices(
      groups.map((group) => ({ query: compileTenantFilter(filter, group), indices: group.indices })),
    ),
  );
}

/** @throws {TenantFilterError} when an index of the group cannot answer it exactly */
export function compileTenantFilter(filter: Filter, group: IndexGroup): Query {
  switch (filter.kind) {
    case "all":
      return matchAll;
    case "and":
      return allOf(filter.operands.map((operand) => compileTenantFilter(operand, group)));
    case "or":
      return anyOf(filter.operands.map((operand) => compileTenantFilter(operand, group)));
    case "compare":
      return compileComparison(filter, group);
  }
}

function compileComparison(leaf: Compare, group: IndexGroup): Query {
  checkOperator(leaf);
  const name = joinFieldName(leaf.field);
  const field = resolveField(name, group);
  if (field === undefined) {
    // A field that an index lacks equals nothing there, and `!=` would let all of its documents through. Not a term query: the
    // name may become a text field before the mapping is read again.
    if (leaf.operator === "=") return matchNone;
    throw new TenantFilterError(
      `${name} is not mapped in ${summariseIndices(group)}, so != would let every line of it through`,
    );
  }
  const reason = describeInexactness(field, leaf.value);
  if (reason !== undefined) {
    const exact = findExactMultiField(field, leaf.value, group);
    const example = exact === undefined ? "" : `, as ${exact} is there`;
    throw new TenantFilterError(
      `${name} is ${reason} in ${summariseIndices(group)}; it must be a keyword${example}`,
    );
  }
  if (field.partial && leaf.operator === "!=") {
    throw new TenantFilterError(
      `a line of ${summariseIndices(group)} may have ${name} within an object, where the index does not see it, so != would let it through`,
    );
  }
  const term = { term: { [name]: leaf.value } };
  return leaf.operator === "=" ? term : not(term);
}

/** The name of the keyword that a mapping keeps beside a text, as dynamic mapping makes `service.name.keyword`. */
function findExactMultiField(field: IndexedField, value: string, group: IndexGroup): string | undefined {
  return field.multiFields.find((name) => {
    const other = findField(group, name, name);
    return other?.type === "keyword" && describeInexactness(other, value) === undefined;
  });
}

function joinFieldName(field: Field): string {
  return field.kind === "line" ? field.name : field.path.join(".");
}

/** The field behind a name. Aliases are followed, and keys of `passthrough` objects also count without the object's name. */
function resolveField(name: string, group: IndexGroup): IndexedField | undefined {
  const field = findField(group, name, name);
  if (field?.aliasOf !== undefined) return findField(group, field.aliasOf);
  if (field !== undefined) return field;
  const through = [...group.fields.values()].filter(({ type }) => type === "passthrough");
  const found = through.flatMap((parent) => {
    const full = `${parent.name}.${name}`;
    return findField(group, full, full) ?? [];
  });
  return found.length === 1 ? found[0] : undefined;
}

/** Why a term query on the field is not exact; undefined if it is. */
function describeInexactness(field: IndexedField, value: string): string | undefined {
  if (!field.indexed) return "not searchable";
  if (field.nested !== undefined) return "inside a nested object";
  if (field.flattenedRoot !== undefined) return describeFlattenedInexactness(field, value);
  if (field.type === "constant_keyword") return undefined;
  if (field.type === "boolean")
    return value === "true" || value === "false" ? undefined : `boolean, which has no ${value},`;
  if (field.type !== "keyword") return `of type ${field.type}`;
  if (field.hasCustomAnalysis) return "rewritten by a normalizer";
  return value.length > field.ignoreAbove ? "left out of the index for values this long" : undefined;
}

/**
 * Values of a flattened object are keywords of their path. OpenSearch joins path and value by a `=`, so that two pairs which
 * contain one may be one term; Elasticsearch joins them by a character that neither can contain.
 */
function describeFlattenedInexactness(field: IndexedField, value: string): string | undefined {
  const isAmbiguous = field.type === "flat_object" && `${field.name}${value}`.includes("=");
  if (isAmbiguous) return "inside a flat_object, where a name or value with = is not exact,";
  if (field.hasExtraValues) return `inside a ${field.type} object with a value for null`;
  return value.length > field.ignoreAbove ? "left out of the index for values this long" : undefined;
}

/** Whether some index lacks a field of the filter, so that its next document may change the query. */
export function hasUnmappedField(filter: Filter, groups: readonly IndexGroup[]): boolean {
  if (filter.kind === "all") return false;
  if (filter.kind !== "compare") return filter.operands.some((operand) => hasUnmappedField(operand, groups));
  const name = joinFieldName(filter.field);
  return groups.some((group) => resolveField(name, group) === undefined);
}

/** The fields of the filter by their own names in these indices, aliases resolved. */
export function listFieldNames(filter: Filter, groups: readonly IndexGroup[]): readonly string[] {
  if (filter.kind === "all") return [];
  if (filter.kind !== "compare") return filter.operands.flatMap((operand) => listFieldNames(operand, groups));
  const name = joinFieldName(filter.field);
  return groups.flatMap((group) => resolveField(name, group)?.name ?? []);
}
