// Surveys the series of a counter: the last sample of each bucket, and which buckets need more than that. A bucket is a
// suspect if it may hold a restart or a sample that is not finite; it has a gap if its first sample is needed as well.
import { readNumber, requireFirst } from "../../../src/core/collections.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { CounterSamples } from "../../../src/metrics/samples.ts";
import { yieldToEventLoop } from "../../http/waiting.ts";
import { binary, call, type Expression, markNonFinite, number, type Selector } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import {
  formatNumericKey,
  formatSeriesKey,
  type GridSeries,
  indexByKey,
  type RawSeries,
  type SeriesReader,
  toGridValue,
} from "./series-reader.ts";
import { formatAlternateKey, type SeriesStartQuery } from "./series-start.ts";

export interface CounterQuery extends SeriesStartQuery {
  /** The first sample of each bucket is needed beside the last. */
  readonly needsFirst: boolean;
  /** A value below the one before shows a restart. Not so for a sum of observations, nor for a gauge. */
  readonly canRestart: boolean;
}

/** A series with its buckets. */
export interface SurveyedSeries {
  readonly labels: Labels;
  /** The last value of each bucket; NaN where it has none, Infinity where it is not finite. */
  readonly last: Float64Array;
  /** The indices of the buckets that have to be read raw. */
  readonly suspects: Set<number>;
  /** Buckets whose first sample is needed, because the one before lies too far back to be covered by the survey. */
  readonly gaps: Set<number>;
  /** The last finite value before the buckets, as far as it is known. */
  base: number | undefined;
  baseline: CounterSamples["baseline"];
}

/** Labels with values: all that is used of one sample of each series. */
type LabelledSamples = Pick<RawSeries, "labels" | "values">;

/** How far back the sample before a bucket is looked for at first: nearly every live series has one there. */
function calculateReach({ step }: Buckets): Millis {
  // At least the bucket before, so that of two buckets in a row the later one's window holds the sample before it.
  return Math.max(step, 120_000);
}

/** As `surveyLastSamples`, after an estimate. @throws {Refused} if there are too many series @throws {BackendError} */
export async function surveySeries(
  reader: SeriesReader,
  query: CounterQuery,
): Promise<readonly SurveyedSeries[]> {
  await reader.estimateSeries(query.selector, undefined, query.buckets, query.limit);
  return surveyLastSamples(reader, query);
}

/** Reads the last sample of each bucket and series, and where that is not enough. @throws {Refused | BackendError} */
export async function surveyLastSamples(
  reader: SeriesReader,
  query: CounterQuery,
): Promise<readonly SurveyedSeries[]> {
  const { selector, buckets, lookBack, canRestart, limit } = query;
  const isHidden = canRestart && reader.hidesRestarts;
  const relaxed = await reader.dropPresenceMatchers(selector, buckets);
  const suspects = buildResetOrNonFinite(reader, relaxed.selector, buckets, canRestart);
  const reach = calculateReach(buckets);
  const [lasts, suspectGrid, bases] = await Promise.all([
    readLastValues(reader, relaxed, buckets, limit),
    isHidden ? [] : reader.readGrid(suspects, buckets, limit, relaxed.matchesDropped),
    lookBack === undefined
      ? []
      : readLastBefore(reader, relaxed.selector, buckets.start, Math.min(reach, lookBack)),
  ]);
  await yieldToEventLoop();
  // Refuses series that only differ in their metadata.
  indexByKey(reader.backend, lasts);
  const baseByKey = indexFiniteByKey(
    reader,
    bases.filter(({ labels }) => relaxed.matchesDropped(labels)),
  );
  const suspectsByKey = new Map(suspectGrid.map(({ labels, values }) => [formatSeriesKey(labels), values]));
  const surveyed = lasts.map((series): SurveyedSeries => {
    const key = formatSeriesKey(series.labels);
    const base = baseByKey.get(key) ?? baseByKey.get(formatAlternateKey(series.labels));
    return surveyBuckets(series, base, isHidden ? "all" : suspectsByKey.get(key), query);
  });
  markSuccessions(surveyed);
  return surveyed;
}

/** `marks` has a value in each suspect bucket; `all` if the source hides restarts. */
function surveyBuckets(
  { labels, values }: GridSeries,
  base: number | undefined,
  marks: Float64Array | "all" | undefined,
  { buckets, lookBack, canRestart }: CounterQuery,
): SurveyedSeries {
  const { start, step } = buckets;
  const reach = calculateReach(buckets);
  const suspects = new Set<number>();
  const gaps = new Set<number>();
  let before = base;
  // The earliest time that the sample before may have.
  let beforeAt = start - reach;
  for (let bucket = 0; bucket < values.length; bucket++) {
    const value = readNumber(values, bucket);
    if (Number.isNaN(value)) continue;
    const at = start + bucket * step;
    const fell = canRestart && before !== undefined && value < before;
    if (fell || !Number.isFinite(value) || isMarked(marks, bucket)) suspects.add(bucket);
    else if (before === undefined ? lookBack !== undefined : canRestart && at - beforeAt > reach)
      gaps.add(bucket);
    before = value;
    beforeAt = at;
  }
  return { labels, last: values, suspects, gaps, base, baseline: "own" };
}

function isMarked(marks: Float64Array | "all" | undefined, bucket: number): boolean {
  if (marks === undefined) return false;
  return marks === "all" || !Number.isNaN(readNumber(marks, bucket));
}

/** Where a bucket has samples under two spellings of one number, only raw samples show which of them came later. */
function markSuccessions(surveyed: readonly SurveyedSeries[]): void {
  const numbered = surveyed.filter(({ labels }) => "le" in labels || "quantile" in labels);
  for (const spellings of Map.groupBy(numbered, ({ labels }) => formatNumericKey(labels)).values()) {
    if (spellings.length === 1) continue;
    for (let bucket = 0; bucket < requireFirst(spellings).last.length; bucket++) {
      const sampled = spellings.filter(({ last }) => !Number.isNaN(last[bucket]));
      if (sampled.length > 1) for (const { suspects } of sampled) suspects.add(bucket);
    }
  }
}

/**
 * An expression with any value where the bucket holds a sample that is not finite, or a restart lies in it or in the
 * reach before it. (A sample before the bucket that is not finite does not matter: as the last of its bucket it shows.)
 */
function buildResetOrNonFinite(
  reader: SeriesReader,
  selector: Selector,
  buckets: Buckets,
  canRestart: boolean,
): Expression {
  // Left-closed ranges cannot express a window of 1 ms; one more millisecond does no harm.
  const samples = reader.selectRange(selector, { from: Math.max(2, buckets.step), to: 1 });
  const nonFinite = markNonFinite(samples);
  if (!canRestart) return binary(nonFinite, "!=", number(0));
  const around = reader.selectRange(selector, { from: buckets.step + calculateReach(buckets), to: 1 });
  return binary(binary(call("resets", around), "+", nonFinite), "!=", number(0));
}

/** Left-closed ranges (Prometheus < 3) cannot express a window of 1 ms, so buckets of 1 ms are read raw. */
async function readLastValues(
  reader: SeriesReader,
  { selector, matchesDropped }: Awaited<ReturnType<SeriesReader["dropPresenceMatchers"]>>,
  buckets: Buckets,
  limit: number,
): Promise<readonly GridSeries[]> {
  const { start, step, count } = buckets;
  if (step > 1) {
    const last = call("last_over_time", reader.selectRange(selector, { from: step, to: 1 }));
    return reader.readGrid(last, buckets, limit, matchesDropped);
  }
  const raw = await reader.readRaw(selector, start, start + count, limit);
  return raw
    .filter(({ labels }) => matchesDropped(labels))
    .map(({ labels, times, values }) => {
      const last = new Float64Array(count).fill(Number.NaN);
      for (const [index, time] of times.entries())
        last[time - start] = toGridValue(readNumber(values, index));
      return { labels, values: last };
    });
}

/** The last sample of each series from `length` before `start` until before it. */
export async function readLastBefore(
  reader: SeriesReader,
  selector: Selector,
  start: Millis,
  length: Millis,
): Promise<readonly LabelledSamples[]> {
  if (length < 1) return [];
  if (length === 1) return reader.readRaw(selector, start - 1, start, Number.POSITIVE_INFINITY);
  const samples = reader.selectRange(selector, { from: length, to: 1 });
  return reader.readInstant(call("last_over_time", samples), start);
}

/** The first value of each series by its key, if it is finite. @throws {Refused} if two series have one key */
export function indexFiniteByKey(
  { backend }: SeriesReader,
  found: readonly LabelledSamples[],
): ReadonlyMap<string, number> {
  const values = [...indexByKey(backend, found)].map(([key, series]) => [key, series.values[0]] as const);
  return new Map(values.filter((entry): entry is [string, number] => Number.isFinite(entry[1])));
}
