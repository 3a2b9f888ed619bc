// JSON with the spelling of its numbers kept: what JavaScript would print otherwise (`200.0`, integers past 2^53) stays
// as it was written, because a filter compares that text.

/**
 * A number as it was written.
 * @typedef {{ readonly spelling: string }} Spelt
 */

const spelt = new WeakSet();

/** @param {unknown} value @returns {value is Spelt} */
export function isSpelt(value) {
  return typeof value === "object" && value !== null && spelt.has(value);
}

/**
 * `JSON.parse`, but numbers that would be printed otherwise than they are written are `Spelt`.
 * @param {string} text @returns {unknown}
 * @throws {SyntaxError}
 */
export function readJson(text) {
  return JSON.parse(text, keepSpelling);
}

/**
 * Browsers that do not tell the source give numbers only.
 * @param {string} _ @param {unknown} value @param {{ readonly source?: string }} [context]
 */
function keepSpelling(_, value, context) {
  const spelling = context?.source;
  if (typeof value !== "number" || spelling === undefined || String(value) === spelling) return value;
  const number = { spelling };
  spelt.add(number);
  return number;
}

/**
 * The text of a value that is neither null nor has others in it, as the query language compares it.
 * @param {unknown} value
 */
export function toScalarText(value) {
  if (isSpelt(value)) return value.spelling;
  return typeof value === "object" ? undefined : String(value);
}

/**
 * What a value holds, with keys; undefined for one that holds nothing by its kind.
 * @param {unknown} value @returns {readonly (readonly [string, unknown])[] | undefined}
 */
export function listEntries(value) {
  return typeof value === "object" && value !== null && !isSpelt(value) ? Object.entries(value) : undefined;
}

/** The text at a path of own keys, or undefined. @param {unknown} value @param {readonly string[]} path */
export function findText(value, ...path) {
  let at = value;
  for (const key of path) at = listEntries(at)?.find(([name]) => name === key)?.[1];
  return typeof at === "string" && at !== "" ? at : undefined;
}
