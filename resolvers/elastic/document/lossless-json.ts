// Parses JSON so that numbers keep the spelling of their source (`200.0`, integers beyond 2^53) when they are printed again.
// Most texts hold only numbers that print as they are spelled; these take the plain parser.

export type JsonObject = { readonly [key: string]: unknown };

type Reviver = (key: string, value: unknown, context: { readonly source?: string }) => unknown;
// Part of ECMAScript, but not yet of TypeScript's library.
const { rawJSON, isRawJSON } = JSON as unknown as {
  readonly rawJSON: (text: string) => object;
  readonly isRawJSON: (value: unknown) => value is { readonly rawJSON: string };
};
const reviveSpelledNumber: Reviver = (_, value, { source }) =>
  typeof value === "number" && source !== undefined && String(value) !== source ? rawJSON(source) : value;

/** A number that may print differently: over 15 digits, an exponent, a trailing zero, minus zero or very small. */
const respelledNumberPattern = /[:,[]\s*(?:-0|-?(?:[\d.]{16}|\d+\.\d*0(?!\d)|\d+(?:\.\d+)?[eE]|0\.0{5}))/;

/** @throws {SyntaxError} */
export function parseLossless(text: string): unknown {
  return respelledNumberPattern.test(text)
    ? JSON.parse(text, reviveSpelledNumber as Parameters<typeof JSON.parse>[1])
    : JSON.parse(text);
}

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !isRawJSON(value);
}

/** The text of a scalar, a number as it is spelled; undefined for null, arrays and objects. */
export function formatScalar(value: unknown): string | undefined {
  if (typeof value === "string") return value;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  return isRawJSON(value) ? value.rawJSON : undefined;
}
