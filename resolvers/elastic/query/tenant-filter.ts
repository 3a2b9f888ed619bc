// A source's `where` is the wall between tenants. It speaks of the index's own fields and must be exact by the index
// alone in every index it meets; anything less is refused, never approximated and never checked on the document.
import { Unprocessable } from "../../../src/core/errors.ts";
import type { Compare, Field, Filter } from "../../../src/log-query/ast.ts";
import { toField } from "../../../src/log-query/field.ts";
import { type Language, parseAs } from "../../../src/log-query/parse.ts";
import { allOf, anyOf, matchAll, matchNone, not, type Query } from "../client/query-dsl.ts";
import type { IndexedField } from "../mapping/indexed-field.ts";
import { findField, type IndexGroup, summariseIndices } from "../mapping/mapping.ts";

/** No name is legacy syntax here: an index has fields such as `attributes.tenant` and `is_bool`. */
const language: Language<Field> = {
  bareTermField: { kind: "line", name: "message" },
  resolveField: ({ keys }) => toField(keys),
  hasLists: false,
};

/** @throws {TenantFilterError} */
export function parseTenantFilter(text: string): Filter {
  try {
    return parseAs(text, language);
  } catch (error) {
    if (error instanceof Unprocessable) throw new TenantFilterError(`where: ${error.message}`);
    throw error;
  }
}

/** The wall cannot be kept exactly; `message` says why and is for operators. */
export class TenantFilterError extends Error {
  override readonly name = "WhereError";
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
  if (leaf.operator !== "=" && leaf.operator !== "!=") {
    throw new TenantFilterError(`where: only = and != are exact walls, not ${leaf.operator}`);
  }
  const name = leaf.field.kind === "line" ? leaf.field.name : leaf.field.path.join(".");
  const field = resolveField(name, group);
  if (field === undefined) {
    // A name that an index does not know equals nothing there; `!=` would let all of its rows through.
    // Not a term: the name may become a text field before the mapping is read again.
    if (leaf.operator === "=") return matchNone;
    throw new TenantFilterError(
      `where: ${name} is not mapped in ${summariseIndices(group)}, so != would let every line of it through`,
    );
  }
  const reason = describeInexactness(field, leaf.value);
  if (reason !== undefined)
    throw new TenantFilterError(
      `where: ${name} is ${reason} in ${summariseIndices(group)}; it must be a keyword`,
    );
  if (field.partial && leaf.operator === "!=") {
    throw new TenantFilterError(
      `where: a line of ${summariseIndices(group)} may have ${name} within an object, where the index does not see it, so != would let it through`,
    );
  }
  const term = { term: { [name]: leaf.value } };
  return leaf.operator === "=" ? term : not(term);
}

/** The field behind a name: aliases are followed, and keys of `passthrough` objects are also known without it. */
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

function describeInexactness(field: IndexedField, value: string): string | undefined {
  if (!field.indexed) return "not searchable";
  if (field.nested !== undefined) return "inside a nested object";
  if (field.flattenedRoot !== undefined) return `inside a ${field.type} object`;
  if (field.type === "constant_keyword") return undefined;
  if (field.type === "boolean")
    return value === "true" || value === "false" ? undefined : `boolean, which has no ${value},`;
  if (field.type !== "keyword") return `of type ${field.type}`;
  if (field.hasCustomAnalysis) return "rewritten by a normalizer";
  return value.length > field.ignoreAbove ? "left out of the index for values this long" : undefined;
}

/** Whether some name of the wall is unknown to some index, so that the answer may change with its next document. */
export function hasUnmappedField(filter: Filter, groups: readonly IndexGroup[]): boolean {
  if (filter.kind === "all") return false;
  if (filter.kind !== "compare") return filter.operands.some((operand) => hasUnmappedField(operand, groups));
  const name = filter.field.kind === "line" ? filter.field.name : filter.field.path.join(".");
  return groups.some((group) => resolveField(name, group) === undefined);
}

/** The fields that a wall names, as these indices call them. */
export function listFieldNames(filter: Filter, groups: readonly IndexGroup[]): readonly string[] {
  if (filter.kind === "all") return [];
  if (filter.kind !== "compare") return filter.operands.flatMap((operand) => listFieldNames(operand, groups));
  const name = filter.field.kind === "line" ? filter.field.name : filter.field.path.join(".");
  return groups.flatMap((group) => resolveField(name, group)?.name ?? []);
}
