// What each `Measure` is, over raw samples of one group of series: the definition that stores are tested against, and
// the way out for a store whose source cannot say it. Nothing is extrapolated: a growth belongs whole to the bucket of
// its later sample. Every function answers one value per bucket, NaN where the bucket has none.
import { runSteps, type Steps } from "../core/async/turns.ts";
import { findFirstAtOrAfter } from "../core/collections.ts";
import type { Buckets, Measure } from "../core/rows.ts";
import type { Millis } from "../core/time.ts";
import { computeQuantileInSteps, findGreatest, findLeast } from "./order-statistics.ts";

/** Of one series, by time, each time once, every value finite (`dropNonFinite` makes it so). */
export interface Samples {
  readonly times: Float64Array;
  readonly values: Float64Array;
}

/** Of a counter, from the look-back on: the sample before the buckets is what the first growth is measured from. */
export interface CounterSamples extends Samples {
  /**
   * What the very first sample here has grown from. `zero`: the series is new, and its metric had samples of others
   * before it. `own`, its own value, so that nothing has grown: the series begins its metric, or it comes back
   * after more than the look-back.
   */
  readonly baseline: "zero" | "own";
}

export const noSamples: CounterSamples = {
  times: new Float64Array(),
  values: new Float64Array(),
  baseline: "own",
};

/** The series of one histogram that differ in `le` alone, and its totals. A summary has no buckets. */
export interface Observations {
  readonly count: CounterSamples;
  readonly sum: CounterSamples;
  /** By bound, the last one +Infinity; cumulative, as a source exports them. */
  readonly buckets: readonly { readonly bound: number; readonly samples: CounterSamples }[];
}

type SampleMeasure = Extract<Measure, { of: "samples" }>;
type CumulativeMeasure = Extract<Measure, { of: "cumulative" }>;
type ObservationMeasure = Extract<Measure, { of: "observations" }>;

/** The number of a bound or quantile, which may be spelt in several ways (`1`, `1.0`, `1e+00`, `Inf`); NaN if it is none. */
export function parseBound(text: string): number {
  if (/^\+?inf(inity)?$/i.test(text)) return Number.POSITIVE_INFINITY;
  return /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : Number.NaN;
}

/** The samples without those that are NaN or infinite, which are left out of everything. */
export function dropNonFinite({ times, values }: Samples): Samples {
  if (areFinite(values)) return { times, values };
  const keep = (_: number, index: number) => Number.isFinite(values[index]);
  return { times: times.filter(keep), values: values.filter(keep) };
}

// Not `every`, which takes ten times as long for millions of values.
function areFinite(values: Float64Array): boolean {
  for (let index = 0; index < values.length; index += 1) if (!Number.isFinite(values[index])) return false;
  return true;
}

/** Samples of one series, in pieces that follow one another. */
export function joinSamples(pieces: readonly Samples[]): Samples {
  const [only] = pieces;
  if (only !== undefined && pieces.length === 1) return only;
  return {
    times: concatArrays(pieces.map(({ times }) => times)),
    values: concatArrays(pieces.map(({ values }) => values)),
  };
}

function concatArrays(arrays: readonly Float64Array[]): Float64Array {
  const all = new Float64Array(arrays.reduce((length, array) => length + array.length, 0));
  let at = 0;
  for (const array of arrays) {
    all.set(array, at);
    at += array.length;
  }
  return all;
}

// ---- Gauges -------------------------------------------------------------------------------------------------

/** Over all samples of the group; `first` and `last`: the mean of each series' own. */
export function combineSamples(
  group: readonly Samples[],
  measure: SampleMeasure,
  buckets: Buckets,
): Float64Array {
  return runSteps(combineSamplesInSteps(group, measure, buckets));
}

/** How many samples are combined before others have a turn: less than a millisecond. */
const samplesPerStep = 50_000;

/** As `combineSamples`, for millions of samples. */
export function* combineSamplesInSteps(
  group: readonly Samples[],
  measure: SampleMeasure,
  buckets: Buckets,
): Steps<Float64Array> {
  const counts = new Uint32Array(buckets.count);
  for (const series of group) {
    for (const { bucket, from, to } of splitByBucket(series, buckets))
      counts[bucket] = (counts[bucket] ?? 0) + chooseSpan(from, to, measure).length;
    yield;
  }
  // One array of all values by bucket, and how much of each part is filled. Not a piece for each bucket of each series: for
  // millions of pieces the garbage collector holds up everything.
  const values = new Float64Array(counts.reduce((sum, count) => sum + count, 0));
  const filled = new Uint32Array(buckets.count);
  let offset = 0;
  for (const [bucket, count] of counts.entries()) {
    filled[bucket] = offset;
    offset += count;
  }
  for (const series of group) {
    for (const { bucket, from, to } of splitByBucket(series, buckets)) {
      const { first, length } = chooseSpan(from, to, measure);
      const at = filled[bucket] ?? 0;
      for (let index = 0; index < length; index += 1)
        values[at + index] = series.values[first + index] ?? Number.NaN;
      filled[bucket] = at + length;
    }
    yield;
  }
  const combined = new Float64Array(buckets.count).fill(Number.NaN);
  let samples = 0;
  for (const [bucket, end] of filled.entries()) {
    const count = counts[bucket] ?? 0;
    if (count === 0) continue;
    combined[bucket] = yield* combineValues(values.subarray(end - count, end), measure);
    samples += count;
    if (samples < samplesPerStep) continue;
    yield;
    samples = 0;
  }
  return combined;
}

/** What one series gives to a bucket, of its samples in it: the first, the last or all. */
function chooseSpan(
  from: number,
  to: number,
  { combine }: SampleMeasure,
): { readonly first: number; readonly length: number } {
  if (combine === "first") return { first: from, length: 1 };
  return combine === "last" ? { first: to - 1, length: 1 } : { first: from, length: to - from };
}

/** `values` may be reordered. */
function* combineValues(values: Float64Array, measure: SampleMeasure): Steps<number> {
  switch (measure.combine) {
    case "count":
      return values.length;
    case "min":
      return findLeast(values);
    case "max":
      return findGreatest(values);
    case "sum":
      return sumValues(values);
    case "mean":
    case "first":
    case "last":
      return computeMean(values);
    case "quantile":
      return yield* computeQuantileInSteps(values, measure.quantile);
  }
  return measure satisfies never;
}

/** The sum. On the way it may pass what a number holds, though the result does not. */
export function sumValues(values: Float64Array | readonly number[]): number {
  const sum = addValues(values);
  return Number.isFinite(sum) ? sum : computeMean(values) * values.length;
}

export function computeMean(values: Float64Array | readonly number[]): number {
  const sum = addValues(values);
  if (Number.isFinite(sum)) return sum / values.length;
  let mean = 0;
  for (const value of values) mean += value / values.length;
  return mean;
}

function addValues(values: Float64Array | readonly number[]): number {
  let sum = 0;
  for (let index = 0; index < values.length; index += 1) sum += values[index] ?? Number.NaN;
  return sum;
}

// ---- Counters -----------------------------------------------------------------------------------------------

/** The exact growth of the group. A sample below the one before it shows a restart: it has grown from 0. */
export function combineIncrements(group: readonly CounterSamples[], buckets: Buckets): Float64Array {
  return runSteps(combineIncrementsInSteps(group, buckets));
}

/** As `combineIncrements`, for many series. */
export function* combineIncrementsInSteps(
  group: readonly CounterSamples[],
  buckets: Buckets,
): Steps<Float64Array> {
  const sums = createEmptySums(buckets);
  for (const series of group) {
    addToSums(sums, computeIncrements(series, buckets));
    yield;
  }
  return sums;
}

/** Where one series shows that its process restarted. */
interface Restarts {
  /** A fall of the series' own values counts. */
  readonly byFall: boolean;
  /** Ascending times; a restart lies between the sample before such a time and the sample at it. */
  readonly at: readonly Millis[];
}
const byFall: Restarts = { byFall: true, at: [] };

/**
 * The exact growth of one series. Where no restart lies between them, the growths of one bucket are taken in one
 * subtraction, so that fractions do not add up errors.
 */
export function computeIncrements(
  { times, values, baseline: birth }: CounterSamples,
  { start, step, count }: Buckets,
  restarts = byFall,
): Float64Array {
  const grown = new Float64Array(count).fill(Number.NaN);
  let next = 0;
  // The growth that is not yet accounted for is `before - base`.
  let before = birth === "zero" ? 0 : (values[0] ?? 0);
  let base = before;
  let open = -1;
  let closed = 0;
  const close = () => {
    if (open >= 0) grown[open] = closed + (before - base);
    base = before;
    closed = 0;
  };
  for (let index = 0; index < times.length; index++) {
    const time = times[index] ?? Number.NaN;
    const value = values[index] ?? Number.NaN;
    const bucket = Math.floor((time - start) / step);
    if (bucket >= count) break;
    if (bucket !== open) {
      close();
      open = Math.max(bucket, -1);
    }
    let restarted = restarts.byFall && value < before && index > 0;
    for (let at = restarts.at[next]; at !== undefined && at <= time; at = restarts.at[++next]) {
      restarted ||= index > 0;
    }
    if (restarted) {
      closed += before - base;
      base = 0;
    }
    before = value;
  }
  close();
  return grown;
}

/** The times of the samples that are below the one before. */
function findFalls({ times, values }: Samples): readonly Millis[] {
  return [...times].filter((_, index) => index > 0 && (values[index] ?? 0) < (values[index - 1] ?? 0));
}

/** Sums by bucket: NaN until one of the series that are added has a value. */
function createEmptySums({ count }: Buckets): Float64Array {
  return new Float64Array(count).fill(Number.NaN);
}

function addToSums(sums: Float64Array, values: Float64Array): void {
  for (let bucket = 0; bucket < values.length; bucket++) {
    const value = values[bucket] ?? Number.NaN;
    if (Number.isNaN(value)) continue;
    const sum = sums[bucket] ?? Number.NaN;
    sums[bucket] = Number.isNaN(sum) ? value : sum + value;
  }
}

/**
 * The sum over the group of each series' running value: its first raw value within the buckets, and from there on
 * every growth. In each bucket a series gives the first, last, least, greatest or mean of its own running values; in
 * a bucket after its first where it has no sample, the last one before. A bucket without any sample has no value.
 */
export function combineCumulative(
  group: readonly Samples[],
  measure: CumulativeMeasure,
  buckets: Buckets,
): Float64Array {
  return runSteps(combineCumulativeInSteps(group, measure, buckets));
}

/** As `combineCumulative`, for millions of samples. */
export function* combineCumulativeInSteps(
  group: readonly Samples[],
  { combine }: CumulativeMeasure,
  buckets: Buckets,
): Steps<Float64Array> {
  const sums = new Float64Array(buckets.count);
  const sampled = new Uint8Array(buckets.count);
  for (const series of group) {
    let running = 0;
    let before: number | undefined;
    let carriedFrom = buckets.count;
    for (const { bucket, from, to } of splitByBucket(series, buckets)) {
      const values = series.values.subarray(from, to);
      for (let empty = carriedFrom; empty < bucket; empty += 1) sums[empty] = (sums[empty] ?? 0) + running;
      const runnings = values.map((value) => {
        running = before === undefined ? value : running + (value < before ? value : value - before);
        before = value;
        return running;
      });
      sums[bucket] = (sums[bucket] ?? 0) + combineRunning(runnings, combine);
      sampled[bucket] = 1;
      carriedFrom = bucket + 1;
    }
    for (let empty = carriedFrom; empty < buckets.count; empty += 1)
      sums[empty] = (sums[empty] ?? 0) + running;
    yield;
  }
  return sums.map((sum, bucket) => (sampled[bucket] === 1 ? sum : Number.NaN));
}

function combineRunning(values: Float64Array, combine: CumulativeMeasure["combine"]): number {
  switch (combine) {
    case "first":
      return values[0] ?? Number.NaN;
    case "last":
      return values.at(-1) ?? Number.NaN;
    case "min":
      return findLeast(values);
    case "max":
      return findGreatest(values);
    case "mean":
      return computeMean(values);
  }
  return combine satisfies never;
}

// ---- Measurements -------------------------------------------------------------------------------------------

/**
 * Over what the group's histograms have recorded. A fall of the count is a restart of the sum and of the buckets
 * too; the sum alone tells nothing, since negative observations make it fall. `mean` has a value where something was
 * recorded, over the histograms of which the bucket has count and sum. Least, greatest and percentiles are
 * estimates from the bounds of the buckets, as `histogram_quantile` of Prometheus makes them: from those of histograms
 * with a sample in the bucket of the answer, so that the estimate is the same whatever else is asked for.
 */
export function combineObservations(
  group: readonly Observations[],
  measure: ObservationMeasure,
  buckets: Buckets,
): Float64Array {
  return runSteps(combineObservationsInSteps(group, measure, buckets));
}

/** As `combineObservations`, for many histograms. */
export function combineObservationsInSteps(
  group: readonly Observations[],
  measure: ObservationMeasure,
  buckets: Buckets,
): Steps<Float64Array> {
  switch (measure.combine) {
    case "count":
      return combineIncrementsInSteps(
        group.map(({ count }) => count),
        buckets,
      );
    case "mean":
      return combineMeans(group, buckets);
    case "min":
    case "max":
    case "quantile":
      return estimateGroup(group, measure, buckets);
  }
  return measure satisfies never;
}

function* combineMeans(group: readonly Observations[], buckets: Buckets): Steps<Float64Array> {
  const recorded = createEmptySums(buckets);
  const sums = createEmptySums(buckets);
  for (const { count, sum } of group) {
    const counted = computeIncrements(count, buckets);
    const summed = computeIncrements(sum, buckets, { byFall: false, at: findFalls(count) });
    addToSums(
      recorded,
      counted.map((value, bucket) => (Number.isNaN(summed[bucket]) ? Number.NaN : value)),
    );
    addToSums(
      sums,
      summed.map((value, bucket) => (Number.isNaN(counted[bucket]) ? Number.NaN : value)),
    );
    yield;
  }
  return sums.map((sum, bucket) =>
    (recorded[bucket] ?? 0) > 0 ? sum / (recorded[bucket] ?? 0) : Number.NaN,
  );
}

function* estimateGroup(
  group: readonly Observations[],
  measure: Exclude<ObservationMeasure, { combine: "count" | "mean" }>,
  buckets: Buckets,
): Steps<Float64Array> {
  const byBound = new Map<number, Float64Array>();
  for (const { count, buckets: parts } of group) {
    const restarts: Restarts = { byFall: true, at: findFalls(count) };
    for (const { bound, samples } of parts) {
      const grown = byBound.get(bound) ?? createEmptySums(buckets);
      addToSums(grown, computeIncrements(samples, buckets, restarts));
      byBound.set(bound, grown);
    }
    yield;
  }
  const sorted = [...byBound].sort(([a], [b]) => a - b);
  return Float64Array.from({ length: buckets.count }, (_, bucket) => {
    const found = sorted.flatMap(([bound, grown]) => {
      const count = grown[bucket] ?? Number.NaN;
      return Number.isNaN(count) ? [] : [{ bound, count }];
    });
    return estimateFromCounts(found, measure);
  });
}

/** How many observations are at most `bound`. */
interface CumulativeCount {
  readonly bound: number;
  readonly count: number;
}

/**
 * The estimate from one histogram: `counts` by bound, the last one +Infinity. Where counts fall from one bound to the
 * next, which happens when series of different bounds are added, the greatest so far stands. NaN without an
 * observation, without a finite bound or without +Infinity.
 */
export function estimateFromCounts(
  counts: readonly CumulativeCount[],
  measure: Exclude<ObservationMeasure, { combine: "count" | "mean" }>,
): number {
  const rising: CumulativeCount[] = [];
  for (const { bound, count } of counts) {
    rising.push({ bound, count: Math.max(count, rising.at(-1)?.count ?? count) });
  }
  const all = rising.at(-1);
  const greatestFinite = rising.at(-2);
  if (all === undefined || greatestFinite === undefined || all.bound !== Number.POSITIVE_INFINITY)
    return Number.NaN;
  if (!(all.count > 0)) return Number.NaN;
  const rank =
    measure.combine === "quantile" ? measure.quantile * all.count : measure.combine === "max" ? all.count : 0;
  const index = rising.findIndex(({ count }) => count >= rank && count > 0);
  const { bound, count } = rising[index] ?? all;
  // Nothing is known above the greatest finite bound, nor below the least one where that is not positive.
  if (bound === Number.POSITIVE_INFINITY) return greatestFinite.bound;
  const below = rising[index - 1];
  if (below === undefined && bound <= 0) return bound;
  const lower = below?.bound ?? 0;
  const fewer = below?.count ?? 0;
  return lower + (bound - lower) * Math.max(0, (rank - fewer) / (count - fewer));
}

/** What a client's summary exported as this quantile: its last value in each bucket. Those of two cannot be merged. */
export function combineExportedQuantile(series: Samples, buckets: Buckets): Float64Array {
  return combineSamples([series], { of: "samples", combine: "last" }, buckets);
}

// ---- Cutting ------------------------------------------------------------------------------------------------

/** The samples of a series by bucket, in order, from one index to before another; buckets without a sample do not appear. */
function* splitByBucket(
  { times }: Samples,
  { start, step, count }: Buckets,
): Generator<{ readonly bucket: number; readonly from: number; readonly to: number }> {
  let index = findFirstAtOrAfter(times, start);
  while (index < times.length) {
    const bucket = Math.floor(((times[index] ?? start) - start) / step);
    if (bucket >= count) return;
    const until = start + (bucket + 1) * step;
    const from = index;
    while (index < times.length && (times[index] ?? until) < until) index += 1;
    yield { bucket, from, to: index };
  }
}
