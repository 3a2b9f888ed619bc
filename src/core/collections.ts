// Checked access to arrays and maps, their order and their parts. Access throws where a value that must be there is missing, so
// that a defect shows as an error of the program and never as a wrong answer.

/** A list with at least one element. */
export type NonEmpty<T> = readonly [T, ...T[]];

export function isNonEmpty<T>(list: readonly T[]): list is NonEmpty<T> {
  return list.length > 0;
}

/** The element at `index`, counted from 0. @throws {RangeError} The list has no such element. */
export function requireAt<T>(list: readonly T[], index: number): T {
  const value = list[index];
  if (value === undefined) throw new RangeError(`no element ${index} in a list of ${list.length}`);
  return value;
}

/** @throws {RangeError} The list is empty. */
export function requireFirst<T>(list: readonly T[]): T {
  return requireAt(list, 0);
}

/** @throws {RangeError} The list is empty. */
export function requireLast<T>(list: readonly T[]): T {
  return requireAt(list, list.length - 1);
}

/** The value of `key`. @throws {RangeError} The map lacks it. */
export function requireKey<K, V>(map: ReadonlyMap<K, V>, key: K): V {
  const value = map.get(key);
  if (value === undefined) throw new RangeError(`no entry ${String(key)} in a map of ${map.size}`);
  return value;
}

/**
 * The number at `index` of a typed array. A function apart from `requireAt`, because one that reads both kinds of list is
 * slow in hot loops.
 * @throws {RangeError} The array is shorter.
 */
export function readNumber(numbers: Float64Array, index: number): number {
  const value = numbers[index];
  if (value === undefined) throw new RangeError(`no number ${index} in ${numbers.length}`);
  return value;
}

/** Pairs of the elements at equal indices. @throws {RangeError} The lists differ in length. */
export function zip<A, B>(first: readonly A[], second: readonly B[]): readonly (readonly [A, B])[] {
  if (first.length !== second.length) {
    throw new RangeError(`lists of ${first.length} and ${second.length} cannot be paired`);
  }
  return first.map((value, index) => [value, requireAt(second, index)]);
}

/** The index of the first of these ascending numbers that is not less than one; the length where none is. */
export function findFirstAtOrAfter(sorted: ArrayLike<number>, least: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((sorted[middle] ?? least) < least) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The first index from which the condition holds, in an array where it holds from some index on. */
export function findLowerBound<T>(items: readonly T[], holds: (item: T) => boolean): number {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (holds(requireAt(items, middle))) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The order of lists of texts: element by element, by UTF-16 code unit; a list comes after its own beginning. */
export function compareLists(a: readonly string[], b: readonly string[]): number {
  for (const [index, text] of a.entries()) {
    const other = b[index];
    if (other === undefined) return 1;
    if (text !== other) return text < other ? -1 : 1;
  }
  return a.length - b.length;
}

/** The value of a key that comes from outside, which may be called `constructor` as every object has it. */
export function readOwn<T>(of: Readonly<Record<string, T>>, key: string): T | undefined {
  return Object.hasOwn(of, key) ? of[key] : undefined;
}

/** The places of a part that is one, several or absent. */
export function toPlaces<T extends object>(part: T | readonly T[] | undefined): readonly T[] {
  if (part === undefined) return [];
  return Array.isArray(part) ? part : [part as T];
}

/** The largest value of a map of counts; of an empty one 0. */
export function findLargest(counts: ReadonlyMap<unknown, number>): number {
  let largest = 0;
  for (const count of counts.values()) largest = Math.max(largest, count);
  return largest;
}
