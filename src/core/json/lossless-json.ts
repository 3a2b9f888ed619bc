// Parses JSON without losing what a double cannot hold. `parseLossless` keeps the spelling of each number (`200.0`, integers
// beyond 2^53) for printing it again; `parseExactIntegers` gives such integers as bigints for computing with them. Most
// texts hold no such number; these take the plain parser. The log query language has a reader of its own
// (`src/log-query/json-body.ts`): bodies may be nested deeper than the stack on which a reviver runs.
import type { AttributeValue } from "../rows.ts";
import { parseJson } from "./parse-json.ts";

export type JsonObject = { readonly [key: string]: unknown };

// Part of ECMAScript, but not yet of TypeScript's library.
const { rawJSON, isRawJSON } = JSON as unknown as {
  readonly rawJSON: (text: string) => object;
  readonly isRawJSON: (value: unknown) => value is { readonly rawJSON: string };
};

/** One number, which keeps its spelling where it would print differently. */
export function parseNumberLossless(source: string): unknown {
  const value = Number(source);
  return String(value) === source ? value : rawJSON(source);
}

/** A number that may print differently: over 15 digits, an exponent, a trailing zero, minus zero or very small. */
const respelledNumberPattern =
  /(?:^|[:,[])\s*(?:-0|-?(?:[\d.]{16}|\d+\.\d*0(?!\d)|\d+(?:\.\d+)?[eE]|0\.0{5}))/;

/** @throws {SyntaxError} */
export function parseLossless(text: string): unknown {
  return parseJson(text, respelledNumberPattern.test(text) ? parseNumberLossless : undefined);
}

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !isRawJSON(value);
}

/** The object at a path of keys; an empty one where there is none. */
export function readObject(from: JsonObject, ...keys: readonly string[]): JsonObject {
  return keys.reduce<JsonObject>((object, key) => {
    const value = object[key];
    return isJsonObject(value) ? value : {};
  }, from);
}

/** The text of a scalar, a number as it is spelled; undefined for null, arrays and objects. */
export function formatScalar(value: unknown): string | undefined {
  if (typeof value === "string") return value;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  return isRawJSON(value) ? value.rawJSON : undefined;
}

/** A text as it is, and any other value as JSON with all digits of its integers. */
export function printAttribute(value: AttributeValue): string {
  if (typeof value === "string") return value;
  return JSON.stringify(value, (_, inner) => (typeof inner === "bigint" ? rawJSON(inner.toString()) : inner));
}

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

function parseExactInteger(source: string): number | bigint {
  const value = Number(source);
  return Number.isSafeInteger(value) || !/^-?\d+$/.test(source) ? value : BigInt(source);
}

/** Parses a JSON text, integers beyond 2^53 as bigints. @throws {SyntaxError} */
export function parseExactIntegers(text: string): AttributeValue {
  return parseJson(text, mayHoldLongInteger(text) ? parseExactInteger : undefined) as AttributeValue;
}
