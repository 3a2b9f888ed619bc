// A histogram that a source has in both forms: its classic parts and, under the name of the family, native ones. Both
// may be scraped at once, and then the classic ones tell all; or a target has changed from one form to the other, and
// then the samples of both are those of one counter, which does not begin anew with its form.
import type { Buckets } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import {
  findFirstAtOrAfter,
  type Observations,
  type Samples,
  sliceByTime,
} from "../../../src/metrics/samples.ts";
import { call, type Selector } from "../client/promql.ts";
import type { HistogramSample, Labels } from "../client/response-scanner.ts";
import { type CounterQuery, formatHistogramKey } from "./counter-downsampling.ts";
import {
  findCommonBounds,
  type HistogramForm,
  type HistogramGrowth,
  type HistogramSeries,
  isInsideBucket,
} from "./native-histograms.ts";
import {
  formatSeriesKey,
  narrowToSeries,
  parseBound,
  type RawSeries,
  readLabel,
  type SeriesReader,
} from "./series-reader.ts";

/** The parts of a classic histogram that a measure needs beside its count. */
export interface ClassicParts {
  readonly count: CounterQuery;
  readonly sum?: CounterQuery;
  readonly bucket?: CounterQuery;
}

const noSamples: Samples = { times: new Float64Array(), values: new Float64Array() };

/**
 * The histograms of which the native form tells what the classic one does not, in the buckets or as the last sample
 * before them. Those of one scrape have one time, so that equal numbers of samples are the same samples; but where the
 * form changed in the very middle of a bucket, they are equal too, and so its halves are compared as well.
 */
export async function findClassicNativeMismatch(
  reader: SeriesReader,
  classic: CounterQuery,
  native: CounterQuery,
): Promise<{ readonly uneven: ReadonlyMap<string, Labels>; readonly others: boolean }> {
  const { buckets, lookBack = 0, limit } = classic;
  const half = Math.ceil(buckets.step / 2);
  const halves: Buckets = { start: buckets.start, step: half, count: 2 * buckets.count };
  const inside = (selector: Selector) => {
    // A closed edge has no window of one millisecond; the one before does no harm.
    const samples = reader.selectRange(selector, { from: Math.max(2, half), to: 1 });
    return reader.readGrid(call("count_over_time", samples), halves, 2 * limit);
  };
  const before = async (selector: Selector) => {
    if (lookBack < 2) return [];
    const samples = reader.selectRange(selector, { from: lookBack, to: 1 });
    return reader.readInstant(call("count_over_time", samples), buckets.start);
  };
  const [natives, classics, nativesBefore, classicsBefore] = await Promise.all([
    inside(native.selector),
    inside(classic.selector),
    before(native.selector),
    before(classic.selector),
  ]);
  const uneven = new Map<string, Labels>();
  for (const [some, others] of [
    [natives, classics],
    [nativesBefore, classicsBefore],
  ] as const) {
    const byKey = new Map(others.map(({ labels, values }) => [formatSeriesKey(labels), values]));
    for (const { labels, values } of some) {
      const key = formatSeriesKey(labels);
      const other = byKey.get(key) ?? new Float64Array(values.length);
      const differs = (count: number, at: number, all: Float64Array) => count > 0 && count !== all[at];
      const [whole, otherWhole] = [sumPairs(values), sumPairs(other)];
      if (
        values.some((value, at) => differs(value, at, other)) ||
        whole.some((value, at) => differs(value, at, otherWhole))
      )
        uneven.set(key, labels);
    }
  }
  return { uneven, others: classics.some(({ labels }) => !uneven.has(formatSeriesKey(labels))) };
}

/** The sums of each two counts, of which NaN is none. */
function sumPairs(counts: Float64Array): Float64Array {
  return Float64Array.from({ length: Math.ceil(counts.length / 2) }, (_, at) => {
    return (counts[2 * at] || 0) + (counts[2 * at + 1] || 0);
  });
}

/**
 * The bounds at which native histograms are counted in a group that has these classic ones beside them; undefined where
 * that would not be exact, because a classic bound lies inside a native bucket and some bucket of the answer has both.
 */
export function chooseBounds(
  classic: readonly Observations[],
  native: readonly HistogramGrowth[],
  { start, step }: Buckets,
): readonly number[] | undefined {
  const bounds = classic.flatMap((one) => one.buckets.map(({ bound }) => bound)).filter(Number.isFinite);
  const kept = [...new Set([...bounds, ...native.flatMap((one) => one.classicBounds)])].sort((a, b) => a - b);
  const spans = native.flatMap((one) => one.spans);
  if (kept.length === 0) return findCommonBounds(native);
  if (!kept.some((bound) => isInsideBucket(bound, spans))) return kept;
  if (native.some((one) => one.classicBounds.length > 0)) return undefined;
  const sampled = new Set(
    classic.flatMap(({ count }) => [...count.times].map((time) => Math.floor((time - start) / step))),
  );
  const both = native.some(({ count }) =>
    count.some((value, bucket) => !Number.isNaN(value) && sampled.has(bucket)),
  );
  return both ? undefined : findCommonBounds(native);
}

/** Classic histograms read raw, each sample whole. */
export function createClassicForm(reader: SeriesReader, { count, sum, bucket }: ClassicParts): HistogramForm {
  return {
    query: count,
    async read(labels, from, to) {
      const read = async (part: CounterQuery | undefined): Promise<readonly RawSeries[]> => {
        if (part === undefined) return [];
        const { selector, limit } = part;
        return reader.readRaw(
          labels === undefined ? selector : narrowToSeries(selector, labels),
          from,
          to,
          limit,
        );
      };
      const [counts, sums, parts] = await Promise.all([read(count), read(sum), read(bucket)]);
      const sumOf = new Map(sums.map((series) => [formatSeriesKey(series.labels), series]));
      const partsOf = Map.groupBy(parts, ({ labels }) => formatHistogramKey(labels));
      return counts.map((series): HistogramSeries => {
        const key = formatSeriesKey(series.labels);
        const own = groupByBound(partsOf.get(key) ?? []).map(({ bound, parts }) => ({
          bound,
          at: createValueReader(joinSpellings(parts, from) ?? noSamples),
        }));
        const sum = sumOf.get(key);
        const summed = createValueReader(sum ?? noSamples);
        const histograms = [...series.times.entries()].map(([index, time]): HistogramSample => {
          let [lower, counted] = [Number.NEGATIVE_INFINITY, 0];
          const buckets = own.map(({ bound: upper, at }) => {
            const told = at(time) ?? 0;
            const below = told > counted ? told : counted;
            const bucket = { lower, upper, count: below - counted };
            [lower, counted] = [upper, below];
            return bucket;
          });
          return {
            time,
            count: series.values[index] ?? Number.NaN,
            sum: summed(time) ?? Number.NaN,
            buckets,
          };
        });
        const bounds = own.map(({ bound }) => bound).filter(Number.isFinite);
        return { labels: series.labels, histograms, bounds };
      });
    },
  };
}

/** The value at a time, or the last one before it; to be asked in the order of times. */
function createValueReader({ times, values }: Samples): (time: number) => number | undefined {
  let next = 0;
  return (time) => {
    while ((times[next] ?? Number.POSITIVE_INFINITY) <= time) next++;
    return values[next - 1];
  };
}

/** The buckets of a classic histogram by bound. A whole one may have been spelt in two ways (`1`, `1.0`). */
export function groupByBound<T extends { readonly labels: Labels }>(
  series: readonly T[],
): readonly { readonly bound: number; readonly parts: readonly T[] }[] {
  return [...Map.groupBy(series, ({ labels }) => parseBound(readLabel(labels, "le")))]
    .filter(([bound]) => !Number.isNaN(bound))
    .sort(([a], [b]) => a - b)
    .map(([bound, parts]) => ({ bound, parts }));
}

/**
 * The samples of one series that goes on under other spellings, and maybe returns to the first. What was before `start` is
 * of the one alone that begins what follows.
 */
export function joinSpellings<S extends Samples>(spellings: readonly S[], start: Millis): S | undefined {
  const begins = ({ times }: Samples): Millis =>
    times[findFirstAtOrAfter(times, start)] ?? Number.POSITIVE_INFINITY;
  const [first, ...others] = spellings.toSorted((a, b) => begins(a) - begins(b));
  if (first === undefined || others.length === 0) return first;
  const later = others.map((samples) => sliceByTime(samples, start, Number.POSITIVE_INFINITY));
  const all = [first, ...later].flatMap(({ times, values }) =>
    [...times].map((time, at) => [time, values[at] ?? Number.NaN] as const),
  );
  all.sort(([a], [b]) => a - b);
  return {
    ...first,
    times: Float64Array.from(all, ([time]) => time),
    values: Float64Array.from(all, ([, value]) => value),
  };
}
