// What the names and rules of a span form lead to: values of the document or of attributes that were read from it. Names and rules
// are compiled once against the field table of a form.
import { readOwn } from "../../../src/core/collections.ts";
import type { Attributes, AttributeValue } from "../../../src/core/rows.ts";
import { type FieldRef, type FieldTable, type FieldValues, readFieldValue } from "../document/field-table.ts";
import { isValueObject } from "../document/flatten.ts";
import type { ValueRule } from "./span-layout.ts";

/** What names are read from: the fields of a document, and its attributes once they are read. */
export interface Scope {
  readonly fields: FieldValues;
  readonly span_attributes: Attributes | undefined;
  readonly resource_attributes: Attributes | undefined;
  readonly event_attributes: Attributes | undefined;
}
export type AttributePart = "span_attributes" | "resource_attributes" | "event_attributes";

export const noAttributes = {
  span_attributes: undefined,
  resource_attributes: undefined,
  event_attributes: undefined,
};

/** A name of a layout: a field of the document, or a key of attributes that were read. */
export type ResolvedName =
  | { readonly field: FieldRef }
  | { readonly part: AttributePart; readonly key: string };

export interface CompiledRule extends Pick<ValueRule, "values" | "value" | "omit"> {
  readonly name: ResolvedName | undefined;
}

/** `parts` are the attributes that scopes will have. */
export function resolveName(
  table: FieldTable,
  name: string,
  parts: readonly AttributePart[] = [],
): ResolvedName {
  const part = parts.find((candidate) => name.startsWith(`${candidate}.`));
  return part === undefined ? { field: table.addField(name) } : { part, key: name.slice(part.length + 1) };
}

function readNamedValue(scope: Scope, name: ResolvedName): AttributeValue | undefined {
  if ("field" in name) return readFieldValue(scope.fields, name.field);
  const attributes = scope[name.part];
  return (attributes && readOwn(attributes, name.key)) ?? undefined;
}

/** A scalar as text; of an array its first scalar, as an index has it. Undefined for an empty text and for objects. */
export function toText(value: AttributeValue | undefined): string | undefined {
  if (typeof value === "string") return value === "" ? undefined : value;
  if (Array.isArray(value)) {
    for (const element of value) {
      const text = toText(element);
      if (text !== undefined) return text;
    }
    return undefined;
  }
  return value === undefined || value === null || isValueObject(value) ? undefined : String(value);
}

/** The text of the first name that has one; undefined if none has. */
export function findFirstText(scope: Scope, names: readonly ResolvedName[]): string | undefined {
  for (const name of names) {
    const text = toText(readNamedValue(scope, name));
    if (text !== undefined) return text;
  }
  return undefined;
}

export function compileRules(
  table: FieldTable,
  rules: readonly ValueRule[],
  parts: readonly AttributePart[],
): readonly CompiledRule[] {
  return rules.map(({ field, values, value, omit }) => {
    return { name: field === undefined ? undefined : resolveName(table, field, parts), values, value, omit };
  });
}

/** The keys of the attributes that rules read. */
export function listAttributeKeys(rules: readonly CompiledRule[]): readonly string[] {
  return rules.flatMap(({ name }) => (name !== undefined && "key" in name ? [name.key] : []));
}

/** The result of the first rule that has one; undefined if none has. */
export function applyRules(scope: Scope, rules: readonly CompiledRule[]): string | undefined {
  for (const rule of rules) {
    const found = applyRule(scope, rule);
    if (found !== undefined) return found;
  }
  return undefined;
}

export function applyRule(scope: Scope, { name, values, value }: CompiledRule): string | undefined {
  const found = name === undefined ? "" : toText(readNamedValue(scope, name));
  if (found === undefined) return undefined;
  if (value !== undefined) return value;
  if (values === undefined) return found;
  return readOwn(values, found);
}
