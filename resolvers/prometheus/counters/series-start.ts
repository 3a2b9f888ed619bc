// Classifies series that have samples in the buckets and none shortly before them: they existed before, or they are new
// and grow from zero, or they begin their metric. `src/metrics/samples.ts` defines what that means for their growth.
import { requireFirst, requireKey } from "../../../src/core/collections.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import { type Millis, minute } from "../../../src/core/time.ts";
import { dropNonFinite } from "../../../src/metrics/samples.ts";
import {
  aggregate,
  call,
  combineMetrics,
  type Expression,
  metricName,
  readMetricName,
  type Selector,
} from "../client/promql.ts";
import type { Labels, SampleSeries } from "../client/response-scanner.ts";
import { dropBoundLabels, formatNumericKey, hasBoundLabel } from "./bound-spellings.ts";
import { chunkSeries, narrowToSeries } from "./series-narrowing.ts";
import { formatSeriesKey, roundUpToSeconds, runConcurrent, type SeriesReader } from "./series-reader.ts";

/** Series of a metric in some buckets. */
export interface SeriesStartQuery {
  readonly selector: Selector;
  /** All series of its name under the forced labels: they show whether a new series begins the metric. */
  readonly metric: Selector;
  /** Of a histogram or summary the series of each of its names, which begin it together. */
  readonly allParts: readonly Selector[];
  readonly buckets: Buckets;
  /** Absent if growth counts from the first sample within the buckets. */
  readonly lookBack?: Millis | undefined;
  /** Series × buckets, and raw samples, that may be read. */
  readonly limit: number;
}

/** Keys of series (`formatNumericKey`). The others begin their metric. */
interface SeriesStarts {
  /** The source had samples of them before. */
  readonly existing: ReadonlySet<string>;
  /** They are new and grow from zero. */
  readonly newSeries: ReadonlySet<string>;
}

/**
 * Classifies series that have samples in the buckets and none in the look-back. Several queries are forms of one metric.
 * `othersExisted` says that other series of the metric had samples before. @throws {Refused | BackendError}
 */
export async function classifySeriesStarts(
  reader: SeriesReader,
  queries: readonly SeriesStartQuery[],
  series: readonly { readonly labels: Labels }[],
  othersExisted: boolean,
): Promise<SeriesStarts> {
  const [query] = queries;
  if (query === undefined || series.length === 0) return { existing: new Set(), newSeries: new Set() };
  const { buckets } = query;
  const held = await findEarlierSeries(reader, queries, listLabels(series), buckets.start);
  const existing = new Set(held.map(formatNumericKey));
  const keys = series.map(({ labels }) => formatNumericKey(labels));
  const newSeries = new Set(keys.filter((key) => !existing.has(key)));
  if (newSeries.size === 0 || othersExisted || existing.size > 0) return { existing, newSeries };
  if (await beganBefore(reader, queries, buckets)) return { existing, newSeries };
  const first = await findFirstTimeOfAll(reader, queries, buckets);
  if (first === Number.POSITIVE_INFINITY || (await havePartsBefore(reader, query, first)))
    return { existing, newSeries };
  for (const key of await findSeriesAt(reader, queries, first)) newSeries.delete(key);
  return { existing, newSeries };
}

/**
 * The labels of the series that had a finite sample or a histogram before `start`, in any spelling; also those of others that
 * `queries` select. @throws {BackendError}
 */
export async function findEarlierSeries(
  reader: SeriesReader,
  queries: readonly Pick<SeriesStartQuery, "selector" | "metric">[],
  series: readonly Labels[],
  start: Millis,
): Promise<readonly Labels[]> {
  if (hasNoPast(start)) return [];
  // All of the past is read, so each selector is narrowed to few series.
  const ranges = selectPast(reader, queries, series, start);
  const found = await runConcurrent(ranges, (samples) =>
    reader.readInstant(call("last_over_time", samples), start),
  );
  const past = found.flat();
  const nonFinite = await findNonFiniteSeries(reader, queries, past, start);
  return listLabels(past).filter((labels) => !nonFinite.has(formatSeriesKey(labels)));
}

/** All samples before `start`, as ranges of a few series each. */
function selectPast(
  reader: SeriesReader,
  queries: readonly Pick<SeriesStartQuery, "selector" | "metric">[],
  series: readonly Labels[],
  start: Millis,
): readonly Expression[] {
  const isBounded = series.some(hasBoundLabel);
  const chunks = chunkSeries(listDistinct(series.map(dropBoundLabels)));
  return queries.flatMap(({ selector, metric }) =>
    chunks.map((labels) =>
      reader.selectRange(narrowToSeries(isBounded ? metric : selector, labels), { from: start, to: 1 }),
    ),
  );
}

function listLabels(series: readonly { readonly labels: Labels }[]): readonly Labels[] {
  return series.map(({ labels }) => labels);
}

function listDistinct(series: readonly Labels[]): readonly Labels[] {
  return [...new Map(series.map((labels) => [formatSeriesKey(labels), labels])).values()];
}

/**
 * Narrows the query towards these series in all spellings of their bounds. It does not keep what the query requires of a
 * bound, so that an earlier spelling is found.
 */
export function narrowToSpellings(
  { selector, metric }: Pick<SeriesStartQuery, "selector" | "metric">,
  series: readonly Labels[],
): Selector {
  return narrowToSeries(series.some(hasBoundLabel) ? metric : selector, series.map(dropBoundLabels));
}

/**
 * The time of the first finite sample of the metric: -Infinity where it is before the buckets, Infinity where it is not within
 * them either. @throws {Refused | BackendError}
 */
export async function findMetricStart(
  reader: SeriesReader,
  queries: readonly SeriesStartQuery[],
  buckets: Buckets,
): Promise<Millis> {
  if (await beganBefore(reader, queries, buckets)) return Number.NEGATIVE_INFINITY;
  const query = requireFirst(queries);
  if (await havePartsBefore(reader, query, buckets.start)) return Number.NEGATIVE_INFINITY;
  const parts = query.allParts.map((metric) => ({ ...query, metric }));
  return findFirstTimeOfAll(reader, [...queries, ...parts], buckets);
}

/** Whether the metric had samples before the buckets, in any of its forms, by the names of these alone. */
async function beganBefore(
  reader: SeriesReader,
  queries: readonly SeriesStartQuery[],
  { start }: Buckets,
): Promise<boolean> {
  const found = await runConcurrent(queries, ({ metric, lookBack = 0 }) =>
    hasSamplesBefore(reader, metric, start, lookBack),
  );
  return found.includes(true);
}

/**
 * Whether a part of the metric had samples before this time: a series may lack a part that others have. One request asks
 * for all parts, since nearly always none had.
 */
async function havePartsBefore(
  reader: SeriesReader,
  { allParts, lookBack = 0 }: SeriesStartQuery,
  time: Millis,
): Promise<boolean> {
  if (hasNoPast(time) || allParts.length === 0) return false;
  const partByName = new Map(allParts.map((part) => [readMetricName(part), part]));
  for (const from of listPastRanges(time, lookBack)) {
    const anySample = combineMetrics([...partByName.keys()], ({ value }) =>
      findAnySample(reader.selectRange(requireKey(partByName, value), { from, to: 1 }), [metricName]),
    );
    if ((await reader.readInstant(anySample, time)).length === 0) continue;
    const found = await runConcurrent(allParts, (part) => hasSamplesBefore(reader, part, time, lookBack));
    return found.includes(true);
  }
  return false;
}

/** Infinity without a sample in the buckets. */
async function findFirstTimeOfAll(
  reader: SeriesReader,
  queries: readonly SeriesStartQuery[],
  { start, step, count }: Buckets,
): Promise<Millis> {
  const times = await runConcurrent(queries, ({ metric, limit }) =>
    findFirstTime(reader, metric, start, start + step * count, limit),
  );
  return Math.min(...times.filter((time) => time !== undefined));
}

/** The keys of the series that have a sample at this time. */
async function findSeriesAt(
  reader: SeriesReader,
  queries: readonly SeriesStartQuery[],
  time: Millis,
): Promise<readonly string[]> {
  const found = await runConcurrent(queries, ({ metric, limit }) =>
    reader.readRaw(metric, time, time + 1, limit),
  );
  return found
    .flat()
    .filter((series) => series.histograms.length > 0 || dropNonFinite(series).times.length > 0)
    .map(({ labels }) => formatNumericKey(labels));
}

/**
 * Of series that had samples before `start`, the keys of those without a finite sample: non-finite samples are left out
 * of everything, so they are no past. A last sample that is finite, or a histogram, needs no further look.
 */
async function findNonFiniteSeries(
  reader: SeriesReader,
  queries: readonly Pick<SeriesStartQuery, "selector" | "metric">[],
  past: readonly SampleSeries[],
  start: Millis,
): Promise<ReadonlySet<string>> {
  const open = past.filter(({ values: [last = 0] }) => !Number.isFinite(last)).map(({ labels }) => labels);
  const ranges = selectPast(reader, queries, open, start);
  const [least, greatest] = await Promise.all([
    runConcurrent(ranges, (samples) => reader.readInstant(call("min_over_time", samples), start)),
    runConcurrent(ranges, (samples) => reader.readInstant(call("max_over_time", samples), start)),
  ]);
  const greatestByKey = new Map(
    greatest.flat().map(({ labels, values }) => [formatSeriesKey(labels), values[0]]),
  );
  const openKeys = new Set(open.map(formatSeriesKey));
  return new Set(
    least.flat().flatMap(({ labels, values: [value] }) => {
      const key = formatSeriesKey(labels);
      return openKeys.has(key) && !hasFiniteSample(value, greatestByKey.get(key)) ? [key] : [];
    }),
  );
}

/**
 * Whether some sample is finite, by the least and the greatest one, which ignore NaN. Between -Infinity and Infinity
 * one is assumed. If there is neither, the samples are histograms.
 */
function hasFiniteSample(least: number | undefined, greatest: number | undefined): boolean {
  if (least === undefined || greatest === undefined) return true;
  return Number.isFinite(least) || Number.isFinite(greatest) || least < greatest;
}

/** No samples exist before the epoch, and range selectors need a length > 0 (> 1 ms on left-closed servers). */
function hasNoPast(start: Millis): boolean {
  return start < 2;
}

/** Looks back a little first, since that is cheap and nearly always enough. */
function listPastRanges(start: Millis, lookBack: Millis): readonly Millis[] {
  return [...new Set([300_000, Math.max(300_000, lookBack), start])];
}

/** One series, or one for each value of the labels `by`, if there is a sample. */
function findAnySample(samples: Expression, by: readonly string[] = []): Expression {
  return aggregate("group", by, call("last_over_time", samples));
}

async function hasSamplesBefore(
  reader: SeriesReader,
  metric: Selector,
  start: Millis,
  lookBack: Millis,
): Promise<boolean> {
  if (hasNoPast(start)) return false;
  for (const from of listPastRanges(start, lookBack)) {
    const samples = reader.selectRange(metric, { from, to: 1 });
    if ((await reader.readInstant(findAnySample(samples), start)).length === 0) continue;
    const [least, greatest] = await Promise.all(
      buildExtremes(samples).map(async (one) => (await reader.readInstant(one, start))[0]?.values[0]),
    );
    if (hasFiniteSample(least, greatest)) return true;
  }
  return false;
}

/** The least and the greatest sample of all series. */
function buildExtremes(samples: Expression): readonly Expression[] {
  return [
    aggregate("min", [], call("min_over_time", samples)),
    aggregate("max", [], call("max_over_time", samples)),
  ];
}

/**
 * The time of the metric's first sample from `from` until before `to`, found in ever smaller parts of the range. If the
 * first samples are not finite, the rest is searched with `finiteOnly`.
 */
async function findFirstTime(
  reader: SeriesReader,
  metric: Selector,
  from: Millis,
  to: Millis,
  limit: number,
  finiteOnly = false,
): Promise<Millis | undefined> {
  if (to - from <= minute) {
    const samples = await reader.readRaw(metric, from, to, limit);
    const times = samples.flatMap((series) => [
      ...dropNonFinite(series).times.subarray(0, 1),
      ...series.histograms.slice(0, 1).map(({ time }) => time),
    ]);
    return times.length === 0 ? undefined : times.reduce((a, b) => Math.min(a, b));
  }
  const step = roundUpToSeconds((to - from) / 500);
  // Rounded down: a server returns nothing at all if an evaluation time exceeds its clock. The rest is searched last.
  const count = Math.floor((to - from) / step);
  const samples = reader.selectRange(metric, { from: step, to: 1 });
  const searches = finiteOnly ? buildExtremes(samples) : [findAnySample(samples)];
  const grids = await Promise.all(
    searches.map((one) => reader.readGrid(one, { start: from, step, count }, count)),
  );
  const firsts = grids.map(([found]) => found?.values.findIndex(Number.isFinite) ?? -1);
  const first = firsts.reduce((a, b) => (a < 0 || b < 0 ? Math.max(a, b) : Math.min(a, b)));
  const start = from + (first < 0 ? count : first) * step;
  const end = first < 0 ? to : start + step;
  const time = await findFirstTime(reader, metric, start, end, limit, finiteOnly);
  return time === undefined && end < to ? findFirstTime(reader, metric, end, to, limit, true) : time;
}
