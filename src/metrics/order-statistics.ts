// Quantiles of many values. The values are not sorted whole: that takes ten times as long, and cannot pause.
import type { Steps } from "../core/async/turns.ts";
import { readNumber } from "../core/collections.ts";

/** Fewer values than this are no step of their own: they take less than a millisecond. */
const fewestPerStep = 50_000;

/**
 * The value at the rank `quantile` × (count − 1), in proportion between the two values around it. `values` is not empty, none
 * is NaN, and they are reordered. `quantile` is from 0 to 1.
 */
export function* computeQuantileInSteps(values: Float64Array, quantile: number): Steps<number> {
  const rank = quantile * (values.length - 1);
  const whole = Math.floor(rank);
  const below = yield* selectRankInSteps(values, whole);
  const weight = rank - whole;
  const above = weight === 0 ? below : findLeast(values.subarray(whole + 1));
  return below * (1 - weight) + above * weight;
}

/** Reorders the values until the one at `rank` is where sorting would put it: no lesser value is behind it, no greater one before. */
function* selectRankInSteps(values: Float64Array, rank: number): Steps<number> {
  let [low, high] = [0, values.length - 1];
  while (low < high) {
    if (high - low >= fewestPerStep) yield;
    const { left, right } = partition(values, low, high);
    if (rank <= right) high = right;
    else if (rank >= left) low = left;
    else break;
  }
  return readNumber(values, rank);
}

/** Afterwards no value up to `right` is greater than one from `left` on, and those between them are equal. */
function partition(
  values: Float64Array,
  low: number,
  high: number,
): { readonly left: number; readonly right: number } {
  // By chance, so that no order of values is always slow.
  const pivot = readNumber(values, low + Math.floor(Math.random() * (high - low + 1)));
  let [left, right] = [low, high];
  while (left <= right) {
    while (readNumber(values, left) < pivot) left += 1;
    while (readNumber(values, right) > pivot) right -= 1;
    if (left > right) break;
    const value = readNumber(values, left);
    values[left] = readNumber(values, right);
    values[right] = value;
    left += 1;
    right -= 1;
  }
  return { left, right };
}

export function findLeast(values: Float64Array): number {
  let least = Number.POSITIVE_INFINITY;
  for (const value of values) if (value < least) least = value;
  return least;
}

export function findGreatest(values: Float64Array): number {
  let greatest = Number.NEGATIVE_INFINITY;
  for (const value of values) if (value > greatest) greatest = value;
  return greatest;
}
