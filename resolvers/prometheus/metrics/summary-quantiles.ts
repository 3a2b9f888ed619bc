// Reads quantiles of summaries, which clients computed. They cannot be merged.
import { readNumber, requireFirst } from "../../../src/core/collections.ts";
import { createUnsupportedError } from "../../../src/core/errors.ts";
import type { Series } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import { combineSamples, parseBound, type Samples } from "../../../src/metrics/samples.ts";
import { call, matchPresent, narrowSelector } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import {
  dropBoundLabels,
  formatNumericKey,
  groupSpellings,
  joinSpellings,
} from "../counters/bound-spellings.ts";
import { type CounterQuery, surveySeries } from "../counters/bucket-survey.ts";
import {
  type DownsampledSeries,
  downsampleCounter,
  readRawBuckets,
} from "../counters/counter-downsampling.ts";
import { formatSeriesKey, type RawSeries, readLabel, type SeriesReader } from "../counters/series-reader.ts";
import {
  buildCounterQuery,
  combineByGroup,
  formatGroupKey,
  type ObservationMeasure,
  type SeriesPlan,
} from "./series-groups.ts";

/** Each group has to have one summary that exports the quantile. @throws {Refused | BackendError} */
export async function readSummary(plan: SeriesPlan, measure: ObservationMeasure): Promise<readonly Series[]> {
  const { query, reader } = plan;
  // Whether there is one summary alone is a matter of the whole range.
  plan.unkept?.addAll();
  const quantile = measure.combine === "quantile" ? measure.quantile : measure.combine === "max" ? 1 : 0;
  const options = { canRestart: false, looksBack: false };
  const named = buildCounterQuery(plan, query.metric, options);
  const exported = { ...named, selector: narrowSelector(named.selector, [matchPresent("quantile")]) };
  const counting = buildCounterQuery(plan, `${query.metric}_count`, options);
  const [found, counts] = await Promise.all([
    downsampleCounter(reader, exported),
    surveySeries(reader, counting),
  ]);
  // A recording rule may keep other labels of the count than of the quantiles.
  for (const part of [found, counts]) requireOneSummary(plan, part);
  const own = found.filter(({ labels }) => parseBound(readLabel(labels, "quantile")) === quantile);
  const measured = await dropCreatedTimestampZeros(reader, exported, counting, own);
  const complete = new Set(measured.map(({ labels }) => formatGroupKey(plan, labels)));
  if ([...found, ...counts].some(({ labels }) => !complete.has(formatGroupKey(plan, labels)))) {
    throw createUnsupportedError(
      plan.backend,
      `the quantile ${quantile} of a summary that does not export it`,
    );
  }
  return combineByGroup(plan, measured, (group) =>
    combineSamples([requireFirst(group).samples], { of: "samples", combine: "last" }, query.buckets),
  );
}

/** One without this quantile would be left out of the answer as well. @throws {Refused} for two summaries of one group */
function requireOneSummary(plan: SeriesPlan, parts: readonly { readonly labels: Labels }[]): void {
  const summaryOf = new Map<string, string>();
  for (const { labels } of parts) {
    const [group, summary] = [formatGroupKey(plan, labels), formatSeriesKey(dropBoundLabels(labels))];
    if ((summaryOf.get(group) ?? summary) !== summary)
      throw createUnsupportedError(plan.backend, "a quantile of several summaries");
    summaryOf.set(group, summary);
  }
}

/**
 * The quantiles without the zero samples that a server adds with `created-timestamp-zero-ingestion`: one in each series, at
 * the time at which a process began. Counters are right with it, but as the last sample of a bucket it would be a percentile
 * of 0 that was never measured. The count of the summary, which `counting` finds, is zero at the same time.
 * @throws {Refused | BackendError}
 */
async function dropCreatedTimestampZeros(
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
  const rawByKey = await indexSeries(raw);
  const countByKey = await indexSeries(rawCounts);
  const suspectsByKey = await groupSpellings(suspects);
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

async function indexSeries(series: readonly RawSeries[]): Promise<ReadonlyMap<string, RawSeries>> {
  return new Map((await joinSpellings(series)).map((one) => [formatNumericKey(one.labels), one]));
}

type Sample = readonly [time: Millis, value: number];

function listSamples(samples: Samples | undefined): readonly Sample[] {
  if (samples === undefined) return [];
  return [...samples.times].map((time, at) => [time, readNumber(samples.values, at)] as const);
}

function listZeroTimes([time, value]: Sample): readonly Millis[] {
  return value === 0 ? [time] : [];
}
