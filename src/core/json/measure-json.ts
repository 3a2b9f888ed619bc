// How long the text of a value is, without writing it.

/**
 * Whether the JSON text of a value of JSON has more characters than `limit`, by a count that leaves escapes out and has a comma
 * after each item of a list or object, the last one too. Reads no more values than the limit has characters, however many there are.
 */
export function isLongerThan(value: unknown, limit: number): boolean {
  return countRest(value, limit) < 0;
}

/** What a value leaves of a number of characters; less than 0 where it is longer. */
function countRest(value: unknown, rest: number): number {
  if (typeof value === "string") return rest - value.length - 2;
  if (typeof value !== "object" || value === null) return rest - String(value).length;
  let left = rest - 2;
  if (Array.isArray(value)) {
    for (let at = 0; at < value.length && left >= 0; at++) left = countRest(value[at], left - 1);
    return left;
  }
  const values = value as Readonly<Record<string, unknown>>;
  for (const key in values) {
    if (left < 0) return left;
    left = countRest(values[key], left - key.length - 4);
  }
  return left;
}
