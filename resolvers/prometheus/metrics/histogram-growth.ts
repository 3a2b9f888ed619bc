// Folds the samples of one histogram into its growth per bucket of the answer, sample by sample, so that memory does not
// depend on the range. A bound counts only if it lies inside no bucket of any sample: a histogram whose resolution was
// reduced on its way would otherwise seem to restart.
import { readNumber, requireAt } from "../../../src/core/collections.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import type { HistogramBucket, HistogramSample, Labels } from "../client/response-scanner.ts";

/** What one histogram has grown by in each bucket of the answer; NaN where the bucket has none of its samples. */
export interface HistogramGrowth {
  readonly labels: Labels;
  readonly count: Float64Array;
  readonly sum: Float64Array;
  /** The growth of what is at most a bound, by bound, ascending. Meaningful for bounds that lie inside none of `spans`. */
  readonly below: ReadonlyMap<number, Float64Array>;
  /** Every bucket that some sample had. */
  readonly spans: readonly BucketSpan[];
  /** The bounds of its classic samples. */
  readonly classicBounds: readonly number[];
  /** Some of it was counted without buckets, as by a summary. */
  readonly hasUnbucketed: boolean;
}

export type BucketSpan = Pick<HistogramBucket, "lower" | "upper">;

/** The growth of one histogram while its samples are read, in the order of time. */
export interface GrowthFold {
  readonly labels: Labels;
  readonly buckets: Buckets;
  /** Whether the growth below bounds is needed as well. */
  readonly bucketed: boolean;
  readonly count: Float64Array;
  readonly sum: Float64Array;
  readonly spans: Map<string, BucketSpan>;
  readonly classicBounds: Set<number>;
  /** Ascending: the keys of `below`. */
  bounds: readonly number[];
  below: Map<number, Float64Array>;
  first: HistogramSample | undefined;
  /** The newest sample, with what it counts below each of `bounds`. */
  last: CountedSample | undefined;
  hasUnbucketed: boolean;
  /** The newest sum that is finite, and whether the histogram has restarted since. */
  lastSum: number | undefined;
  restartedSinceSum: boolean;
  firstSum: FirstSum | undefined;
}

interface CountedSample {
  readonly sample: HistogramSample;
  readonly counts: readonly number[];
}

interface FirstSum {
  readonly bucket: number;
  readonly value: number;
  readonly restarted: boolean;
}

export function createGrowthFold(labels: Labels, buckets: Buckets, bucketed: boolean): GrowthFold {
  return {
    labels,
    buckets,
    bucketed,
    count: new Float64Array(buckets.count).fill(Number.NaN),
    sum: new Float64Array(buckets.count).fill(Number.NaN),
    spans: new Map(),
    classicBounds: new Set(),
    bounds: [],
    below: new Map(),
    first: undefined,
    last: undefined,
    hasUnbucketed: false,
    lastSum: undefined,
    restartedSinceSum: false,
    firstSum: undefined,
  };
}

export function addClassicBounds(fold: GrowthFold, bounds: readonly number[]): void {
  for (const bound of bounds) fold.classicBounds.add(bound);
}

/** Adds what has grown since the sample before. A sample whose count is not finite is left out. */
export function addHistogram(fold: GrowthFold, sample: HistogramSample): void {
  if (!Number.isFinite(sample.count)) return;
  fold.first ??= sample;
  addBounds(fold, sample);
  const bucket = findBucket(fold, sample.time);
  const counted = { sample, counts: countBelowBounds(sample, fold.bounds) };
  const before = fold.last;
  const restarted = before !== undefined && hasRestarted(before.sample, sample);
  // The first sample has grown by an amount that `finishGrowth` adds.
  fold.count[bucket] ||= 0;
  if (before !== undefined) addGrowth(fold, bucket, before, counted, restarted);
  addSum(fold, bucket, sample.sum, restarted);
  fold.last = counted;
}

/** The growth of all samples, with that of the first one since `base`; none of it is counted without a `base`. */
export function finishGrowth(fold: GrowthFold, base: HistogramSample | undefined): HistogramGrowth {
  if (fold.first !== undefined && base !== undefined) addBase(fold, fold.first, base);
  const { labels, count, sum, below, spans, classicBounds, hasUnbucketed } = fold;
  for (const grown of below.values()) {
    for (let bucket = 0; bucket < count.length; bucket++) {
      if (Number.isNaN(count[bucket])) grown[bucket] = Number.NaN;
    }
  }
  return {
    labels,
    count,
    sum,
    below,
    spans: [...spans.values()],
    classicBounds: [...classicBounds],
    hasUnbucketed,
  };
}

function addBase(fold: GrowthFold, first: HistogramSample, base: HistogramSample): void {
  addBounds(fold, base);
  const { bounds, sum, firstSum } = fold;
  const restarted = hasRestarted(base, first);
  const before = { sample: base, counts: countBelowBounds(base, bounds) };
  const counted = { sample: first, counts: countBelowBounds(first, bounds) };
  addGrowth(fold, findBucket(fold, first.time), before, counted, restarted);
  if (firstSum === undefined || !Number.isFinite(base.sum)) return;
  const { bucket, value } = firstSum;
  sum[bucket] = readNumber(sum, bucket) + (restarted || firstSum.restarted ? value : value - base.sum);
}

function findBucket({ buckets: { start, step } }: GrowthFold, time: number): number {
  return Math.floor((time - start) / step);
}

/** Begins to count below the bounds of a sample's buckets that were not known before. */
function addBounds(fold: GrowthFold, { buckets }: HistogramSample): void {
  if (!fold.bucketed) return;
  const { spans, below, last } = fold;
  const added = new Set<number>();
  for (const { lower, upper } of buckets) {
    const key = formatSpan(lower, upper);
    if (spans.has(key)) continue;
    spans.set(key, { lower, upper });
    for (const bound of [lower, upper]) if (Number.isFinite(bound) && !below.has(bound)) added.add(bound);
  }
  if (added.size === 0) return;
  const bounds = [...fold.bounds, ...added].sort((a, b) => a - b);
  fold.bounds = bounds;
  fold.below = extendBelow(below, bounds, fold.buckets.count);
  if (last !== undefined) fold.last = { sample: last.sample, counts: countBelowBounds(last.sample, bounds) };
}

/** Until now, below a new bound that lies inside no bucket, there was the same as below the next lower bound. */
function extendBelow(
  below: ReadonlyMap<number, Float64Array>,
  bounds: readonly number[],
  length: number,
): Map<number, Float64Array> {
  let lower: Float64Array | undefined;
  return new Map(
    bounds.map((bound) => {
      const own = below.get(bound) ?? lower?.slice() ?? new Float64Array(length);
      lower = own;
      return [bound, own];
    }),
  );
}

function addGrowth(
  fold: GrowthFold,
  bucket: number,
  before: CountedSample,
  now: CountedSample,
  restarted: boolean,
): void {
  const { count, bounds, below } = fold;
  fold.hasUnbucketed ||= hasUnknownBuckets(before.sample, now.sample, restarted);
  const grown = restarted ? now.sample.count : now.sample.count - before.sample.count;
  count[bucket] = readNumber(count, bucket) + grown;
  for (let index = 0; index < bounds.length; index++) {
    const values = below.get(requireAt(bounds, index));
    const counted = requireAt(now.counts, index);
    if (values !== undefined)
      values[bucket] =
        readNumber(values, bucket) + (restarted ? counted : counted - requireAt(before.counts, index));
  }
}

/** A sum that is not finite is passed over; what it has grown by is part of the next one's growth. */
function addSum(fold: GrowthFold, bucket: number, value: number, restarted: boolean): void {
  const { sum, lastSum } = fold;
  fold.restartedSinceSum ||= restarted;
  if (!Number.isFinite(value)) return;
  const grown = lastSum === undefined ? 0 : fold.restartedSinceSum ? value : value - lastSum;
  if (lastSum === undefined) fold.firstSum ??= { bucket, value, restarted: fold.restartedSinceSum };
  sum[bucket] = (sum[bucket] || 0) + grown;
  fold.lastSum = value;
  fold.restartedSinceSum = false;
}

/** How many observations are at most each bound. `bounds` is ascending. */
function countBelowBounds({ buckets }: HistogramSample, bounds: readonly number[]): readonly number[] {
  const cursor = createCursor(buckets);
  return bounds.map((bound) => {
    advanceCursor(cursor, bound);
    return cursor.counted;
  });
}

// ---- Restarts ----------------------------------------------------------------------------------------------------

/** Walks through the buckets of a sample and adds up what they count. */
interface BucketCursor {
  readonly buckets: readonly HistogramBucket[];
  next: number;
  counted: number;
}

function createCursor(buckets: readonly HistogramBucket[]): BucketCursor {
  return { buckets, next: 0, counted: 0 };
}

/** Adds the buckets that end at `bound` or before it. */
function advanceCursor(cursor: BucketCursor, bound: number): void {
  const { buckets } = cursor;
  for (
    let next = buckets[cursor.next];
    next !== undefined && next.upper <= bound;
    next = buckets[cursor.next]
  ) {
    cursor.counted += next.count;
    cursor.next++;
  }
}

/**
 * Whether less has been observed than before, in all or between two bounds that lie inside no bucket of either sample:
 * the counts of a new process may exceed the old ones in most buckets. If a sample has no buckets, its count decides.
 */
function hasRestarted(before: HistogramSample, now: HistogramSample): boolean {
  if (now.count < before.count) return true;
  if (before.buckets.length === 0 || now.buckets.length === 0) return false;
  const [earlier, later] = [createCursor(before.buckets), createCursor(now.buckets)];
  while (!isFinished(earlier) || !isFinished(later)) {
    const bound = Math.min(findNextUpper(earlier), findNextUpper(later));
    advanceCursor(earlier, bound);
    advanceCursor(later, bound);
    if (isInNextBucket(earlier, bound) || isInNextBucket(later, bound)) continue;
    if (later.counted < earlier.counted) return true;
    earlier.counted = 0;
    later.counted = 0;
  }
  return false;
}

function isFinished({ buckets, next }: BucketCursor): boolean {
  return next >= buckets.length;
}

function findNextUpper({ buckets, next }: BucketCursor): number {
  return buckets[next]?.upper ?? Number.POSITIVE_INFINITY;
}

function isInNextBucket({ buckets, next }: BucketCursor, bound: number): boolean {
  const bucket = buckets[next];
  return bucket !== undefined && bucket.lower < bound;
}

/** Whether it has grown without buckets that show between which bounds. */
function hasUnknownBuckets(before: HistogramSample, now: HistogramSample, restarted: boolean): boolean {
  if (now.count === before.count) return false;
  return hasNoBuckets(now) || (!restarted && hasNoBuckets(before));
}

function hasNoBuckets({ count, buckets }: HistogramSample): boolean {
  return count > 0 && buckets.length === 0;
}

export function formatSpan(lower: number, upper: number): string {
  return `${lower} ${upper}`;
}
