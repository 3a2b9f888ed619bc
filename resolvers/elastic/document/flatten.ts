// A document in its flat form: every value under its dotted name, whether the dots are nesting or part of a key. Layouts
// and their versions differ in nothing more than in that, so that everything else need not care.
import type { AttributeValue } from "../../../src/core/rows.ts";

type FlatDocument = ReadonlyMap<string, AttributeValue>;

/** 2^53 has so many digits, and begins with a nine. */
const longDigits = 16;
const [zero, nine] = [0x30, 0x39];
const beforeNumber = /[-:,[\s]/;

/**
 * Whether a JSON text may hold an integer that a double cannot: anything shorter needs no second look. So many digits in
 * a row meet every sixteenth character, and most of those are no digits.
 */
function mayHoldLongInteger(text: string): boolean {
  const isDigit = (at: number): boolean => {
    const code = text.charCodeAt(at);
    return code >= zero && code <= nine;
  };
  for (let at = longDigits - 1; at < text.length; at += longDigits) {
    if (!isDigit(at)) continue;
    let start = at;
    while (start > 0 && isDigit(start - 1)) start -= 1;
    let end = at + 1;
    while (end < text.length && isDigit(end)) end += 1;
    const isLong =
      end - start > longDigits || (end - start === longDigits && text.charCodeAt(start) === nine);
    if (isLong && (start === 0 || beforeNumber.test(text.charAt(start - 1)))) return true;
    // No digit: so many behind it meet the next that is looked at.
    at = end;
  }
  return false;
}

type Reviver = (key: string, value: unknown, context: { readonly source?: string }) => unknown;
const reviveExactInteger: Reviver = (_, value, { source }) =>
  typeof value === "number" && !Number.isSafeInteger(value) && source !== undefined && /^-?\d+$/.test(source)
    ? BigInt(source)
    : value;

/** A JSON text as its value, integers beyond 2^53 as bigints. @throws {SyntaxError} */
export function parseExactIntegers(text: string): AttributeValue {
  return mayHoldLongInteger(text)
    ? JSON.parse(text, reviveExactInteger as Parameters<typeof JSON.parse>[1])
    : JSON.parse(text);
}

export type ValueObject = { readonly [key: string]: AttributeValue };

export function isValueObject(value: AttributeValue | undefined): value is ValueObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Arrays are values, as are objects without keys. Where two ways lead to one name the first counts. */
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

/** The value at a name; below an array, that of its first object. Null is nothing. */
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
