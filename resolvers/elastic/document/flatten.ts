// Flattens a document: every value under its dotted name, whether a dot is nesting or part of a key. Layouts and their
// versions differ mostly in that. This is the definition of what a name means. `field-table.ts` is its fast form for whole
// documents, and calls it for names below an array. Integers beyond 2^53 are bigints.
import type { AttributeValue } from "../../../src/core/rows.ts";

type FlatDocument = ReadonlyMap<string, AttributeValue>;

export type ValueObject = { readonly [key: string]: AttributeValue };

export function isValueObject(value: AttributeValue | undefined): value is ValueObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Values by dotted name. Arrays and empty objects are values. Where two ways lead to one name, the first counts. */
export function flattenDocument(document: ValueObject): FlatDocument {
  const flat = new Map<string, AttributeValue>();
  function visit(object: ValueObject, prefix: string): void {
    for (const key of Object.keys(object)) {
      const value = object[key];
      if (value === undefined) continue;
      const name = prefix + key;
      if (isValueObject(value) && !isEmptyObject(value)) visit(value, `${name}.`);
      else if (!flat.has(name)) flat.set(name, value);
    }
  }
  visit(document, "");
  return flat;
}

export function isEmptyObject(value: ValueObject): boolean {
  for (const _ in value) return false;
  return true;
}

/** The value of a name; below an array, the value in its first object. Undefined if absent or null. */
export function findFlatValue(flat: FlatDocument, name: string): AttributeValue | undefined {
  const own = flat.get(name);
  if (own !== undefined) return own ?? undefined;
  for (let dot = name.indexOf("."); dot > 0; dot = name.indexOf(".", dot + 1)) {
    const list = flat.get(name.slice(0, dot));
    if (!Array.isArray(list)) continue;
    const first = list.find(isValueObject);
    return first === undefined ? undefined : findFlatValue(flattenDocument(first), name.slice(dot + 1));
  }
  return undefined;
}
