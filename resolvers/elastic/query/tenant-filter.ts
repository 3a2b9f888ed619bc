// A source's `where` is the wall between tenants. It speaks of the index's own fields and must be exact by the index
// alone in every index it meets; anything less is refused, never approximated and never checked on the document.
import { Unprocessable } from "../../../src/core/errors.ts";
import type { Compare, Field, Filter } from "../../../src/log-query/ast.ts";
import { fieldOf } from "../../../src/log-query/field.ts";
import { type Language, parseAs } from "../../../src/log-query/parse.ts";
import { all, any, every, none, not, type Query } from "../client/query-dsl.ts";
import { findField, type IndexedField, type IndexGroup, nameGroup } from "../mapping/mapping.ts";

/** No name is legacy syntax here: an index has fields such as `attributes.tenant` and `is_bool`. */
const language: Language<Field> = {
  bare: { kind: "line", name: "message" },
  fieldOf: ({ keys }) => fieldOf(keys),
  lists: false,
};

/** @throws {WhereError} */
export function parseWhere(text: string): Filter {
  try {
    return parseAs(text, language);
  } catch (error) {
    if (error instanceof Unprocessable) throw new WhereError(`where: ${error.message}`);
    throw error;
  }
}

/** The wall cannot be kept exactly; `message` says why and is for operators. */
export class WhereError extends Error {
  override readonly name = "WhereError";
}

/** @throws {WhereError} when an index of the group cannot answer it exactly */
export function compileWhere(filter: Filter, group: IndexGroup): Query {
  switch (filter.kind) {
    case "all":
      return all;
    case "and":
      return every(filter.operands.map((operand) => compileWhere(operand, group)));
    case "or":
      return any(filter.operands.map((operand) => compileWhere(operand, group)));
    case "compare":
      return compileLeaf(filter, group);
  }
}

function compileLeaf(leaf: Compare, group: IndexGroup): Query {
  if (leaf.operator !== "=" && leaf.operator !== "!=") {
    throw new WhereError(`where: only = and != are exact walls, not ${leaf.operator}`);
  }
  const name = leaf.field.kind === "line" ? leaf.field.name : leaf.field.path.join(".");
  const field = resolve(name, group);
  if (field === undefined) {
    // A name that an index does not know equals nothing there; `!=` would let all of its rows through.
    // Not a term: the name may become a text field before the mapping is read again.
    if (leaf.operator === "=") return none;
    throw new WhereError(
      `where: ${name} is not mapped in ${nameGroup(group)}, so != would let every line of it through`,
    );
  }
  const reason = inexact(field, leaf.value);
  if (reason !== undefined)
    throw new WhereError(`where: ${name} is ${reason} in ${nameGroup(group)}; it must be a keyword`);
  if (field.beside && leaf.operator === "!=") {
    throw new WhereError(
      `where: a line of ${nameGroup(group)} may have ${name} within an object, where the index does not see it, so != would let it through`,
    );
  }
  const term = { term: { [name]: leaf.value } };
  return leaf.operator === "=" ? term : not(term);
}

/** The field behind a name: aliases are followed, and keys of `passthrough` objects are also known without it. */
function resolve(name: string, group: IndexGroup): IndexedField | undefined {
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

function inexact(field: IndexedField, value: string): string | undefined {
  if (!field.indexed) return "not searchable";
  if (field.nested !== undefined) return "inside a nested object";
  if (field.root !== undefined) return `inside a ${field.type} object`;
  if (field.type === "constant_keyword") return undefined;
  if (field.type === "boolean")
    return value === "true" || value === "false" ? undefined : `boolean, which has no ${value},`;
  if (field.type !== "keyword") return `of type ${field.type}`;
  if (field.rewritten) return "rewritten by a normalizer";
  return value.length > field.ignoreAbove ? "left out of the index for values this long" : undefined;
}

/** Whether some name of the wall is unknown to some index, so that the answer may change with its next document. */
export function hasUnmapped(filter: Filter, groups: readonly IndexGroup[]): boolean {
  if (filter.kind === "all") return false;
  if (filter.kind !== "compare") return filter.operands.some((operand) => hasUnmapped(operand, groups));
  const name = filter.field.kind === "line" ? filter.field.name : filter.field.path.join(".");
  return groups.some((group) => resolve(name, group) === undefined);
}

/** The fields that a wall names, as these indices call them. */
export function namesIn(filter: Filter, groups: readonly IndexGroup[]): readonly string[] {
  if (filter.kind === "all") return [];
  if (filter.kind !== "compare") return filter.operands.flatMap((operand) => namesIn(operand, groups));
  const name = filter.field.kind === "line" ? filter.field.name : filter.field.path.join(".");
  return groups.flatMap((group) => resolve(name, group)?.name ?? []);
}
