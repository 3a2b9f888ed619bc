// How long the text of a value is, without writing it.

/**
 * Whether the JSON text of a value of JSON has more characters than `limit`, by a count that leaves escapes out. Takes time in
 * proportion to the limit and not to the value.
 */
export function isLongerThan(value: unknown, limit: number): boolean {
  return countRest(value, limit) < 0;
}

/** What a value leaves of a number of characters; less than 0 where it is longer. */
function countRest(value: unknown, rest: number): number {
  if (typeof value === "string") return rest - value.length - 2;
  if (typeof value !== "object" || value === null) return rest - String(value).length;
  let left = rest - 2;
  for (const [key, part] of Object.entries(value)) {
    if (left < 0) return left;
    left = countRest(part, left - 1 - (Array.isArray(value) ? 0 : key.length + 3));
  }
  return left;
}
