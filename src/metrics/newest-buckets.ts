// Which buckets may still grow while they are read: those of the newest samples, and of targets whose samples arrive late.
import type { Buckets } from "../core/rows.ts";
import { type Millis, minute } from "../core/time.ts";

/** How far behind the newest samples those of a target that lags may still arrive. */
const mostLag: Millis = 5 * minute;

/** The last bucket that has a value in some of these; -1 if there is none. */
export function findNewestBucket(values: readonly Float64Array[]): number {
  return values.reduce((newest, own) => {
    const last = own.findLastIndex((value) => !Number.isNaN(value));
    return Math.max(newest, last);
  }, -1);
}

/** The buckets up to the newest one that may still grow, and the number of the first of them. */
export function selectGrowingBuckets(
  { start, step }: Buckets,
  newest: number,
): { readonly first: number; readonly buckets: Buckets } {
  const first = Math.max(0, newest - Math.ceil(mostLag / step));
  return { first, buckets: { start: start + first * step, step, count: newest - first + 1 } };
}
