// Drops the zero samples from summary quantiles that a server adds with `created-timestamp-zero-ingestion`: one in each
// series, at the time at which a process began. Counters are right with it, but as the last sample of a bucket it would
// be a percentile of 0 that was never measured. The count of the summary is zero at the same time.
import { readNumber } from "../../../src/core/collections.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { Samples } from "../../../src/metrics/samples.ts";
import { call } from "../client/promql.ts";
import {
  dropBoundLabels,
  formatNumericKey,
  groupSpellings,
  joinSpellings,
} from "../counters/bound-spellings.ts";
import type { CounterQuery } from "../counters/bucket-survey.ts";
import { type DownsampledSeries, readRawBuckets } from "../counters/counter-downsampling.ts";
import { formatSeriesKey, type RawSeries, type SeriesReader } from "../counters/series-reader.ts";

/**
 * The quantiles without the zeros at which the count of their summary is zero as well. `counting` finds these counts.
 * @throws {Refused | BackendError}
 */
export async function dropCreatedTimestampZeros(
  reader: SeriesReader,
  { selector, buckets, limit }: CounterQuery,
  counting: CounterQuery,
  quantiles: readonly DownsampledSeries[],
): Promise<readonly DownsampledSeries[]> {
  const { start, step } = buckets;
  const findBucket = (time: Millis): number => Math.floor((time - start) / step);
  const zeros = quantiles.flatMap(({ labels, samples: { times, values } }) =>
    [...times].flatMap((time, at) => (values[at] === 0 ? [{ bucket: findBucket(time), labels }] : [])),
  );
  if (zeros.length === 0) return quantiles;
  // Few counts are ever zero, so raw samples are read of few buckets. Left-closed ranges cannot express a window of 1 ms;
  // one more millisecond does no harm.
  const counts = reader.selectRange(counting.selector, { from: Math.max(2, step), to: 1 });
  const found = await reader.readGrid(call("min_over_time", counts), buckets, limit);
  const least = new Map(found.map(({ labels, values }) => [formatSeriesKey(labels), values]));
  const suspects = zeros.filter(
    ({ bucket, labels }) => least.get(formatSeriesKey(dropBoundLabels(labels)))?.[bucket] === 0,
  );
  if (suspects.length === 0) return quantiles;
  // Not narrowed by the quantile, which may have several spellings.
  const ofSummaries = suspects.map(({ bucket, labels }) => ({ bucket, labels: dropBoundLabels(labels) }));
  const [raw, rawCounts] = await Promise.all([
    readRawBuckets(reader, selector, ofSummaries, buckets, limit),
    readRawBuckets(reader, counting.selector, ofSummaries, buckets, limit),
  ]);
  const rawByKey = indexSeries(raw);
  const countByKey = indexSeries(rawCounts);
  const suspectsByKey = groupSpellings(suspects);
  return quantiles.map((one): DownsampledSeries => {
    const key = formatNumericKey(one.labels);
    const read = new Set(suspectsByKey.get(key)?.map(({ bucket }) => bucket));
    if (read.size === 0) return one;
    const zeroTimes = new Set(
      listSamples(countByKey.get(formatSeriesKey(dropBoundLabels(one.labels)))).flatMap(listZeroTimes),
    );
    const samples = [
      ...listSamples(one.samples).filter(([time]) => !read.has(findBucket(time))),
      ...listSamples(rawByKey.get(key)).filter(
        ([time, value]) => read.has(findBucket(time)) && !(value === 0 && zeroTimes.has(time)),
      ),
    ].sort(([a], [b]) => a - b);
    const times = Float64Array.from(samples, ([time]) => time);
    const values = Float64Array.from(samples, ([, value]) => value);
    return { ...one, samples: { ...one.samples, times, values } };
  });
}

function indexSeries(series: readonly RawSeries[]): ReadonlyMap<string, RawSeries> {
  return new Map(joinSpellings(series).map((one) => [formatNumericKey(one.labels), one]));
}

type Sample = readonly [time: Millis, value: number];

function listSamples(samples: Samples | undefined): readonly Sample[] {
  if (samples === undefined) return [];
  return [...samples.times].map((time, at) => [time, readNumber(samples.values, at)] as const);
}

function listZeroTimes([time, value]: Sample): readonly Millis[] {
  return value === 0 ? [time] : [];
}
