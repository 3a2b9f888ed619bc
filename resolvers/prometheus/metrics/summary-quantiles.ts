// What clients exported as quantiles, without what they did not. A source may mark the moment at which a process began by
// a sample of zero in each of its series (`created-timestamp-zero-ingestion`). To what only grows that is the truth; but
// as the last one of its bucket it would be a percentile of 0 that nobody has measured. The count is zero then too.

import type { Millis } from "../../../src/core/time.ts";
import type { Samples } from "../../../src/metrics/samples.ts";
import { call } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { readBuckets, type Thinned, type ThinQuery } from "./counter-downsampling.ts";
import { keyOf, type RawSeries, type Reader } from "./series-reader.ts";

/** The quantiles without zeros from before anything was observed. `counting` finds the counts of the same summaries. */
export async function measuredOnly(
  reader: Reader,
  { selector, buckets, limit }: ThinQuery,
  counting: ThinQuery,
  quantiles: readonly Thinned[],
): Promise<readonly Thinned[]> {
  const { start, step } = buckets;
  const bucketOf = (time: Millis): number => Math.floor((time - start) / step);
  const zeros = quantiles.flatMap(({ labels, samples: { times, values } }) =>
    [...times].flatMap((time, at) => (values[at] === 0 ? [{ bucket: bucketOf(time), labels }] : [])),
  );
  if (zeros.length === 0) return quantiles;
  // Few counts are ever zero, so that the raw samples of hardly any bucket have to be read. A closed edge has no window of
  // one millisecond; the one before does no harm.
  const counts = reader.window(counting.selector, { from: Math.max(2, step), to: 1 });
  const found = await reader.grid(call("min_over_time", counts), buckets, limit);
  const least = new Map(found.map(({ labels, values }) => [keyOf(labels), values]));
  const wanted = zeros.filter(({ bucket, labels }) => least.get(keyOf(counted(labels)))?.[bucket] === 0);
  if (wanted.length === 0) return quantiles;
  const [raw, rawCounts] = await Promise.all([
    readBuckets(reader, selector, wanted, buckets, limit),
    readBuckets(
      reader,
      counting.selector,
      wanted.map(({ bucket, labels }) => ({ bucket, labels: counted(labels) })),
      buckets,
      limit,
    ),
  ]);
  const rawOf = seriesByKey(raw);
  const countOf = seriesByKey(rawCounts);
  const wantedOf = Map.groupBy(wanted, ({ labels }) => keyOf(labels));
  return quantiles.map((one): Thinned => {
    const key = keyOf(one.labels);
    const read = new Set(wantedOf.get(key)?.map(({ bucket }) => bucket));
    if (read.size === 0) return one;
    const idle = new Set(entriesOf(countOf.get(keyOf(counted(one.labels)))).flatMap(zeroTimes));
    const samples = [
      ...entriesOf(one.samples).filter(([time]) => !read.has(bucketOf(time))),
      ...entriesOf(rawOf.get(key)).filter(
        ([time, value]) => read.has(bucketOf(time)) && !(value === 0 && idle.has(time)),
      ),
    ].sort(([a], [b]) => a - b);
    const times = Float64Array.from(samples, ([time]) => time);
    const values = Float64Array.from(samples, ([, value]) => value);
    return { ...one, samples: { ...one.samples, times, values } };
  });
}

/** The labels of the count of a quantile's summary. */
function counted({ quantile: _, ...labels }: Labels): Labels {
  return labels;
}

function seriesByKey(series: readonly RawSeries[]): ReadonlyMap<string, RawSeries> {
  return new Map(series.map((one) => [keyOf(one.labels), one]));
}

type Sample = readonly [time: Millis, value: number];

function entriesOf(samples: Samples | undefined): readonly Sample[] {
  if (samples === undefined) return [];
  return [...samples.times].map((time, at) => [time, samples.values[at] ?? Number.NaN] as const);
}

function zeroTimes([time, value]: Sample): readonly Millis[] {
  return value === 0 ? [time] : [];
}
