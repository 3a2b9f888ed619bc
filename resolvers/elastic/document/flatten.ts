// Flattens a document: every value under its dotted name, whether a dot is nesting or part of a key. Layouts and their
// versions differ mostly in that, so the rest of the backend reads flat documents only. Integers beyond 2^53 are bigints.
import type { AttributeValue } from "../../../src/core/rows.ts";

type FlatDocument = ReadonlyMap<string, AttributeValue>;

/** The number of digits of 2^53, which begins with a nine. */
const longDigits = 16;
const [zero, nine] = [0x30, 0x39];
const beforeNumber = /[-:,[\s]/;

/**
 * Whether a JSON text may hold an integer that a double cannot represent. Sixteen digits in a row cover one of every
 * sixteen characters, so only those characters are looked at.
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
    // The character at `end` is no digit, so the next long run covers a character that is looked at.
    at = end;
  }
  return false;
}

type Reviver = (key: string, value: unknown, context: { readonly source?: string }) => unknown;
const reviveExactInteger: Reviver = (_, value, { source }) =>
  typeof value === "number" && !Number.isSafeInteger(value) && source !== undefined && /^-?\d+$/.test(source)
    ? BigInt(source)
    : value;

/** Parses a JSON text, integers beyond 2^53 as bigints. @throws {SyntaxError} */
export function parseExactIntegers(text: string): AttributeValue {
  return mayHoldLongInteger(text)
    ? JSON.parse(text, reviveExactInteger as Parameters<typeof JSON.parse>[1])
    : JSON.parse(text);
}

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
