// Values of several series, put on top of each other.

/**
 * @param {readonly (readonly (number | null)[])[]} values one list a series, all at the same times
 * @param {ReadonlySet<number>} hidden series that take no room
 * @returns {(number | null)[][]} the top of each series; null where a shown series has no value and where a series is hidden
 */
export function stackValues(values, hidden) {
  const length = values[0]?.length ?? 0;
  const below = Array.from({ length }, () => 0);
  return values.map((one, at) => {
    if (hidden.has(at)) return one.map(() => null);
    return one.map((value, index) => {
      if (value === null) return null;
      below[index] = (below[index] ?? 0) + value;
      return below[index] ?? null;
    });
  });
}

/**
 * Values as a logarithmic scale can hold them: what is not above zero has no place there.
 * @param {readonly (number | null)[]} values
 */
export function dropNonPositive(values) {
  return values.map((value) => (value !== null && value > 0 ? value : null));
}
