// What clients exported as quantiles, without what they did not. A source may mark the moment at which a process began by
// a sample of zero in each of its series (`created-timestamp-zero-ingestion`). To what only grows that is the truth; but
// as the last one of its bucket it would be a percentile of 0 that nobody has measured. The count is zero then too.

import type { Millis } from "../../../src/core/time.ts";
import type { Samples } from "../../../src/metrics/samples.ts";
import { call } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { type CounterQuery, type DownsampledSeries, readRawBuckets } from "./counter-downsampling.ts";
import { formatSeriesKey, type RawSeries, type SeriesReader } from "./series-reader.ts";

/** The quantiles without zeros from before anything was observed. `counting` finds the counts of the same summaries. */
export async function dropCreatedTimestampZeros(
  reader: SeriesReader,
  { selector, buckets, limit }: CounterQuery,
  counting: CounterQuery,
  quantiles: readonly DownsampledSeries[],
): Promise<readonly DownsampledSeries[]> {
  const { start, step } = buckets;
  const bucketOf = (time: Millis): number => Math.floor((time - start) / step);
  const zeros = quantiles.flatMap(({ labels, samples: { times, values } }) =>
    [...times].flatMap((time, at) => (values[at] === 0 ? [{ bucket: bucketOf(time), labels }] : [])),
  );
  if (zeros.length === 0) return quantiles;
  // Few counts are ever zero, so that the raw samples of hardly any bucket have to be read. A closed edge has no window of
  // one millisecond; the one before does no harm.
  const counts = reader.selectRange(counting.selector, { from: Math.max(2, step), to: 1 });
  const found = await reader.readGrid(call("min_over_time", counts), buckets, limit);
  const least = new Map(found.map(({ labels, values }) => [formatSeriesKey(labels), values]));
  const wanted = zeros.filter(
    ({ bucket, labels }) => least.get(formatSeriesKey(dropQuantileLabel(labels)))?.[bucket] === 0,
  );
  if (wanted.length === 0) return quantiles;
  const [raw, rawCounts] = await Promise.all([
    readRawBuckets(reader, selector, wanted, buckets, limit),
    readRawBuckets(
      reader,
      counting.selector,
      wanted.map(({ bucket, labels }) => ({ bucket, labels: dropQuantileLabel(labels) })),
      buckets,
      limit,
    ),
  ]);
  const rawOf = indexSeries(raw);
  const countOf = indexSeries(rawCounts);
  const wantedOf = Map.groupBy(wanted, ({ labels }) => formatSeriesKey(labels));
  return quantiles.map((one): DownsampledSeries => {
    const key = formatSeriesKey(one.labels);
    const read = new Set(wantedOf.get(key)?.map(({ bucket }) => bucket));
    if (read.size === 0) return one;
    const idle = new Set(
      listSamples(countOf.get(formatSeriesKey(dropQuantileLabel(one.labels)))).flatMap(listZeroTimes),
    );
    const samples = [
      ...listSamples(one.samples).filter(([time]) => !read.has(bucketOf(time))),
      ...listSamples(rawOf.get(key)).filter(
        ([time, value]) => read.has(bucketOf(time)) && !(value === 0 && idle.has(time)),
      ),
    ].sort(([a], [b]) => a - b);
    const times = Float64Array.from(samples, ([time]) => time);
    const values = Float64Array.from(samples, ([, value]) => value);
    return { ...one, samples: { ...one.samples, times, values } };
  });
}

/** The labels of the count of a quantile's summary. */
function dropQuantileLabel({ quantile: _, ...labels }: Labels): Labels {
  return labels;
}

function indexSeries(series: readonly RawSeries[]): ReadonlyMap<string, RawSeries> {
  return new Map(series.map((one) => [formatSeriesKey(one.labels), one]));
}

type Sample = readonly [time: Millis, value: number];

function listSamples(samples: Samples | undefined): readonly Sample[] {
  if (samples === undefined) return [];
  return [...samples.times].map((time, at) => [time, samples.values[at] ?? Number.NaN] as const);
}

function listZeroTimes([time, value]: Sample): readonly Millis[] {
  return value === 0 ? [time] : [];
}
