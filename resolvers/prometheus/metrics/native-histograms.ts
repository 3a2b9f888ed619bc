// Histograms whose samples are whole: native ones, and classic ones read raw beside them where a metric has changed from
// one form to the other. They are read in slices of time, and each slice is folded into what has grown in each bucket of
// the answer, so that memory does not depend on the range. Bounds are brought to those that cut no bucket of any sample:
// a histogram that was made coarser on its way would else seem to restart.
import type { Buckets } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { CounterSamples, Observations } from "../../../src/metrics/samples.ts";
import { yieldToEventLoop } from "../../http/guard.ts";
import { aggregate, call, type Selector } from "../client/promql.ts";
import type { HistogramBucket, HistogramSample, Labels } from "../client/response-scanner.ts";
import type { CounterQuery } from "./counter-downsampling.ts";
import {
  chunkSeries,
  createTooManyPointsError,
  formatSeriesKey,
  narrowToSeries,
  roundUpToSeconds,
  runConcurrent,
  type SeriesReader,
} from "./series-reader.ts";
import { classifySeriesStarts } from "./series-start.ts";

/** One way in which a source keeps a histogram. */
export interface HistogramForm {
  readonly query: CounterQuery;
  /** From `from` until before `to`, by time; of all, or of these and maybe others. */
  readonly read: (
    labels: readonly Labels[] | undefined,
    from: Millis,
    to: Millis,
  ) => Promise<readonly HistogramSeries[]>;
}
export interface HistogramSeries {
  readonly labels: Labels;
  readonly histograms: readonly HistogramSample[];
  /** Where a classic one counts, finite. */
  readonly bounds?: readonly number[];
}

/** What one histogram has grown by in each bucket; NaN where the bucket has none of its samples. */
export interface HistogramGrowth {
  readonly labels: Labels;
  readonly count: Float64Array;
  readonly sum: Float64Array;
  /** By bound, ascending; only of those bounds that cut none of `spans` it is meant. */
  readonly below: ReadonlyMap<number, Float64Array>;
  /** Every bucket that some sample had. */
  readonly spans: readonly BucketSpan[];
  /** The bounds of its classic samples. */
  readonly classicBounds: readonly number[];
  /** Some of it was counted without buckets, as by a summary. */
  readonly hasUnbucketed: boolean;
}
type BucketSpan = Pick<HistogramBucket, "lower" | "upper">;

/** Histograms that are held at once; one has some hundred buckets. */
const histogramsPerSlice = 5_000;
const nearLookBack: Millis = 300_000;
/** In how many parts of the look-back the last sample is looked for. */
const lookBackCells = 500;

export function createNativeForm(reader: SeriesReader, query: CounterQuery): HistogramForm {
  return {
    query,
    async read(labels, from, to) {
      const selector = labels === undefined ? query.selector : narrowToSeries(query.selector, labels);
      const found = await reader.readRaw(selector, from, to, query.limit);
      return found.filter(({ histograms }) => histograms.length > 0);
    },
  };
}

/**
 * The growth of each histogram, whichever of the forms its samples have: together they are the samples of one counter,
 * and where two are of one time the first form's counts. What has grown below bounds is told if `bucketed`. With
 * `labels`, of these alone.
 */
export async function readGrowth(
  reader: SeriesReader,
  forms: readonly HistogramForm[],
  { buckets, lookBack = 0, limit }: CounterQuery,
  bucketed: boolean,
  labels?: readonly Labels[],
): Promise<readonly HistogramGrowth[]> {
  const { start, step, count } = buckets;
  const end = start + step * count;
  const wanted = labels && new Set(labels.map(formatSeriesKey));
  const narrowed = ({ query: { selector } }: HistogramForm) =>
    labels ? narrowToSeries(selector, labels) : selector;
  const sizes = await Promise.all(forms.map((form) => countSamples(reader, narrowed(form), start, end)));
  const size = sizes.reduce((all, one) => all + one, 0);
  if (size > limit) throw createTooManyPointsError(limit, size);
  const folds = new Map<string, GrowthFold>();
  for (const [from, to] of splitRange(start, end, Math.ceil(size / histogramsPerSlice))) {
    const read = await Promise.all(forms.map((form) => form.read(labels, from, to)));
    for (const [key, series] of Map.groupBy(read.flat(), (one) => formatSeriesKey(one.labels))) {
      if (wanted?.has(key) === false) continue;
      const fold = folds.get(key) ?? createGrowthFold(series[0]?.labels ?? {}, buckets, bucketed);
      folds.set(key, fold);
      for (const { bounds } of series) fold.keep(bounds);
      for (const histogram of mergeByTime(series.map(({ histograms }) => histograms))) fold.add(histogram);
    }
    const held = count * [...folds.values()].reduce((all, fold) => all + 2 + fold.bounds(), 0);
    if (held > limit) throw createTooManyPointsError(limit, held);
    await yieldToEventLoop();
  }
  const living = [...folds].filter(([, { first }]) => first() !== undefined).map(([, fold]) => fold);
  const bases = await readLastBefore(reader, forms, living, start, lookBack);
  const open = living.filter(({ labels }) => !bases.has(formatSeriesKey(labels)));
  const born = await findNewSeries(reader, forms, open, open.length < living.length);
  return living.map((fold) => {
    const key = formatSeriesKey(fold.labels);
    const base = bases.get(key) ?? (born.has(key) ? emptyBase : undefined);
    fold.keep(base?.bounds);
    return fold.result(base?.last);
  });
}

const emptyBase: GrowthBase = { last: { time: 0, count: 0, sum: 0, buckets: [] } };

async function countSamples(
  reader: SeriesReader,
  selector: Selector,
  from: Millis,
  to: Millis,
): Promise<number> {
  if (to - from < 2) return 0;
  const samples = reader.selectRange(selector, { from: to - from, to: 1 });
  const [found] = await reader.readInstant(aggregate("sum", [], call("count_over_time", samples)), to);
  return found?.values[0] ?? 0;
}

function splitRange(start: Millis, end: Millis, parts: number): readonly (readonly [Millis, Millis])[] {
  const length = Math.max(1, Math.ceil((end - start) / Math.max(1, parts)));
  const count = Math.ceil((end - start) / length);
  return Array.from({ length: count }, (_, part) => {
    const from = start + part * length;
    return [from, Math.min(end, from + length)] as const;
  });
}

/** By time; of those of one time the first list's. */
function mergeByTime(lists: readonly (readonly HistogramSample[])[]): readonly HistogramSample[] {
  const [only] = lists;
  if (only !== undefined && lists.length === 1) return only;
  const byTime = new Map(lists.toReversed().flatMap((list) => list.map((one) => [one.time, one] as const)));
  return [...byTime.values()].sort((a, b) => a.time - b.time);
}

// ---- Before the buckets ------------------------------------------------------------------------------------------

interface GrowthBase {
  readonly last: HistogramSample;
  readonly bounds?: readonly number[] | undefined;
}

/** The last histogram of each within the look-back, of the form that has the later one. */
async function readLastBefore(
  reader: SeriesReader,
  forms: readonly HistogramForm[],
  series: readonly { readonly labels: Labels }[],
  start: Millis,
  lookBack: Millis,
): Promise<ReadonlyMap<string, GrowthBase>> {
  const found = new Map<string, GrowthBase>();
  const take = (key: string, { histograms, bounds }: HistogramSeries): void => {
    const last = histograms.findLast(({ time }) => time >= start - lookBack);
    const held = found.get(key)?.last.time ?? Number.NEGATIVE_INFINITY;
    if (last !== undefined && last.time > held) found.set(key, { last, bounds });
  };
  const parts = chunkSeries(series.map(({ labels }) => labels));
  const read = async (form: HistogramForm, labels: readonly Labels[], from: Millis, to: Millis) => {
    const keys = new Set(labels.map(formatSeriesKey));
    for (const one of await form.read(labels, from, to)) {
      const key = formatSeriesKey(one.labels);
      if (keys.has(key)) take(key, one);
    }
  };
  for (const form of forms) {
    await runConcurrent(parts, (labels) =>
      read(form, labels, start - Math.min(nearLookBack, lookBack), start),
    );
  }
  const open = series.filter(({ labels }) => !found.has(formatSeriesKey(labels)));
  if (lookBack <= nearLookBack || open.length === 0) return found;
  // Where it was last seen, so that no more than that is read: few series end in many different moments.
  const step = roundUpToSeconds(lookBack / lookBackCells);
  const grid: Buckets = { start: start - step * lookBackCells, step, count: lookBackCells };
  const lasts = await runConcurrent(
    forms.flatMap((form) =>
      chunkSeries(open.map(({ labels }) => labels)).map((labels) => ({
        form,
        labels,
        keys: new Set(labels.map(formatSeriesKey)),
      })),
    ),
    async ({ form, labels, keys }) => {
      const samples = reader.selectRange(narrowToSeries(form.query.selector, labels), { from: step, to: 1 });
      const counts = await reader.readGrid(call("count_over_time", samples), grid, Number.POSITIVE_INFINITY);
      return counts.flatMap(({ labels, values }) => {
        const cell = values.findLastIndex((value) => !Number.isNaN(value));
        return keys.has(formatSeriesKey(labels)) ? [{ form, labels, cell }] : [];
      });
    },
  );
  for (const form of forms) {
    const own = lasts.flat().filter((last) => last.form === form);
    const byCell = [...Map.groupBy(own, ({ cell }) => cell)];
    await runConcurrent(byCell, async ([cell, ended]) => {
      const from = grid.start + cell * step;
      for (const labels of chunkSeries(ended.map((one) => one.labels))) {
        await read(form, labels, from, from + step);
      }
    });
  }
  return found;
}

/** The keys of those that are new: that no form has held before. */
export async function findNewSeries(
  reader: SeriesReader,
  forms: readonly HistogramForm[],
  open: readonly { readonly labels: Labels }[],
  othersHeld: boolean,
): Promise<ReadonlySet<string>> {
  const queries = forms.map(({ query }) => query);
  return (await classifySeriesStarts(reader, queries, open, othersHeld)).newSeries;
}

// ---- Folding -----------------------------------------------------------------------------------------------------

interface GrowthFold {
  readonly labels: Labels;
  readonly add: (histogram: HistogramSample) => void;
  readonly keep: (bounds: readonly number[] | undefined) => void;
  readonly first: () => HistogramSample | undefined;
  /** How many there are so far. */
  readonly bounds: () => number;
  /** With the growth of the first one since `lastBase`, where it has grown at all. */
  readonly result: (base: HistogramSample | undefined) => HistogramGrowth;
}

function createGrowthFold(
  labels: Labels,
  { start, step, count: length }: Buckets,
  bucketed: boolean,
): GrowthFold {
  const count = new Float64Array(length).fill(Number.NaN);
  const sum = new Float64Array(length).fill(Number.NaN);
  const spans = new Map<string, BucketSpan>();
  const kept = new Set<number>();
  let bounds: readonly number[] = [];
  let below = new Map<number, Float64Array>();
  let first: HistogramSample | undefined;
  let before: HistogramSample | undefined;
  let bare = false;
  let beforeCounts: readonly number[] = [];
  /** The last sum that is a number, and whether a restart came after it. */
  let lastSum: number | undefined;
  let restartedSince = false;
  let firstSum: { readonly bucket: number; readonly value: number; readonly restarted: boolean } | undefined;

  function see({ buckets }: HistogramSample): void {
    if (!bucketed) return;
    const fresh = new Set<number>();
    for (const { lower, upper } of buckets) {
      const key = `${lower} ${upper}`;
      if (spans.has(key)) continue;
      spans.set(key, { lower, upper });
      for (const bound of [lower, upper]) if (Number.isFinite(bound) && !below.has(bound)) fresh.add(bound);
    }
    if (fresh.size === 0) return;
    // Below a bound that cuts no bucket there was so far what was below the next lower one.
    const next = [...bounds, ...fresh].sort((a, b) => a - b);
    let held: Float64Array | undefined;
    below = new Map(
      next.map((bound) => {
        const own = below.get(bound);
        held = own ?? held?.slice() ?? new Float64Array(length);
        return [bound, held];
      }),
    );
    bounds = next;
    beforeCounts = before === undefined ? [] : countBelowBounds(before, bounds);
  }

  function grow(histogram: HistogramSample): void {
    const bucket = Math.floor((histogram.time - start) / step);
    const counts = countBelowBounds(histogram, bounds);
    const restarted = before !== undefined && hasRestarted(before, histogram);
    const since = (value: number, previous: number | undefined) =>
      before === undefined ? 0 : restarted ? value : value - (previous ?? 0);
    if (before !== undefined) bare ||= hasUnknownBuckets(before, histogram, restarted);
    count[bucket] = (count[bucket] || 0) + since(histogram.count, before?.count);
    for (const [index, bound] of bounds.entries()) {
      const grown = below.get(bound);
      if (grown !== undefined)
        grown[bucket] = (grown[bucket] ?? 0) + since(counts[index] ?? 0, beforeCounts[index]);
    }
    restartedSince ||= restarted;
    if (Number.isFinite(histogram.sum)) {
      const grown = lastSum === undefined ? 0 : restartedSince ? histogram.sum : histogram.sum - lastSum;
      if (lastSum === undefined && firstSum === undefined)
        firstSum = { bucket, value: histogram.sum, restarted: restartedSince };
      sum[bucket] = (sum[bucket] || 0) + grown;
      lastSum = histogram.sum;
      restartedSince = false;
    }
    before = histogram;
    beforeCounts = counts;
  }

  return {
    labels,
    first: () => first,
    bounds: () => bounds.length,
    keep(bounds = []) {
      for (const bound of bounds) kept.add(bound);
    },
    add(histogram) {
      if (!Number.isFinite(histogram.count)) return;
      first ??= histogram;
      see(histogram);
      grow(histogram);
    },
    result(base) {
      if (first !== undefined && base !== undefined) {
        see(base);
        const bucket = Math.floor((first.time - start) / step);
        const restarted = hasRestarted(base, first);
        bare ||= hasUnknownBuckets(base, first, restarted);
        const since = (value: number, previous: number) => (restarted ? value : value - previous);
        count[bucket] = (count[bucket] ?? 0) + since(first.count, base.count);
        const [firstCounts, baseCounts] = [countBelowBounds(first, bounds), countBelowBounds(base, bounds)];
        for (const [index, bound] of bounds.entries()) {
          const grown = below.get(bound);
          if (grown !== undefined)
            grown[bucket] = (grown[bucket] ?? 0) + since(firstCounts[index] ?? 0, baseCounts[index] ?? 0);
        }
        if (firstSum !== undefined && Number.isFinite(base.sum)) {
          const { bucket, value } = firstSum;
          sum[bucket] = (sum[bucket] ?? 0) + (restarted || firstSum.restarted ? value : value - base.sum);
        }
      }
      for (const grown of below.values())
        for (let bucket = 0; bucket < length; bucket++)
          if (Number.isNaN(count[bucket])) grown[bucket] = Number.NaN;
      return {
        labels,
        count,
        sum,
        below,
        spans: [...spans.values()],
        classicBounds: [...kept],
        hasUnbucketed: bare,
      };
    },
  };
}

const infinity = Number.POSITIVE_INFINITY;

/**
 * Whether less has been observed than before, in all or between two bounds that cut no bucket of either: a process that
 * began anew may have overtaken the old one in most buckets. Where one has no buckets, the count alone tells.
 */
function hasRestarted(
  { count: countBefore, buckets: before }: HistogramSample,
  { count, buckets }: HistogramSample,
): boolean {
  if (count < countBefore) return true;
  if (before.length === 0 || buckets.length === 0) return false;
  let [past, now, least, counted] = [0, 0, 0, 0];
  while (past < before.length || now < buckets.length) {
    const bound = Math.min(before[past]?.upper ?? infinity, buckets[now]?.upper ?? infinity);
    for (; past < before.length && (before[past]?.upper ?? 0) <= bound; past++)
      least += before[past]?.count ?? 0;
    for (; now < buckets.length && (buckets[now]?.upper ?? 0) <= bound; now++)
      counted += buckets[now]?.count ?? 0;
    const cut = (before[past]?.lower ?? infinity) < bound || (buckets[now]?.lower ?? infinity) < bound;
    if (cut) continue;
    if (counted < least) return true;
    least = 0;
    counted = 0;
  }
  return false;
}

/** Whether it cannot be told between which bounds it has grown. */
function hasUnknownBuckets(before: HistogramSample, now: HistogramSample, restarted: boolean): boolean {
  const without = ({ count, buckets }: HistogramSample) => count > 0 && buckets.length === 0;
  return now.count !== before.count && (without(now) || (!restarted && without(before)));
}

/** How many observations of a histogram are at most each bound, which are ascending. */
function countBelowBounds({ buckets }: HistogramSample, bounds: readonly number[]): readonly number[] {
  let next = 0;
  let sum = 0;
  return bounds.map((bound) => {
    for (; next < buckets.length && (buckets[next]?.upper ?? 0) <= bound; next++)
      sum += buckets[next]?.count ?? 0;
    return sum;
  });
}

// ---- Groups ------------------------------------------------------------------------------------------------------

export function isInsideBucket(bound: number, spans: readonly BucketSpan[]): boolean {
  return spans.some(({ lower, upper }) => lower < bound && bound < upper);
}

/** The bounds at which all of a group can be counted. */
export function findCommonBounds(group: readonly HistogramGrowth[]): readonly number[] {
  const spans = deduplicateSpans(group.flatMap((one) => one.spans));
  const bounds = [...new Set(group.flatMap(({ below }) => [...below.keys()]))].sort((a, b) => a - b);
  return bounds.filter((bound) => !isInsideBucket(bound, spans));
}

function deduplicateSpans(spans: readonly BucketSpan[]): readonly BucketSpan[] {
  return [...new Map(spans.map((span) => [`${span.lower} ${span.upper}`, span])).values()];
}

/** With its buckets counted at these bounds, which cut none of its own. */
export function toObservations(
  { count, sum, below }: HistogramGrowth,
  bounds: readonly number[],
  buckets: Buckets,
): Observations {
  const own = [...below];
  const none = count.map((value) => (Number.isNaN(value) ? Number.NaN : 0));
  const parts = bounds.map((bound) => {
    const [, grown] = own.findLast(([one]) => one <= bound) ?? [];
    return { bound, samples: toRunningTotal(grown ?? none, buckets) };
  });
  const total = toRunningTotal(count, buckets);
  const all = { bound: Number.POSITIVE_INFINITY, samples: total };
  return { count: total, sum: toRunningTotal(sum, buckets), buckets: [...parts, all] };
}

/** A counter that has grown by so much in each bucket. */
function toRunningTotal(grown: Float64Array, { start, step }: Buckets): CounterSamples {
  const held = [...grown.entries()].filter(([, value]) => !Number.isNaN(value));
  let value = 0;
  return {
    times: Float64Array.from(held, ([bucket]) => start + bucket * step),
    values: Float64Array.from(held, ([, by]) => {
      value += by;
      return value;
    }),
    baseline: "zero",
  };
}
