// How series came to be that have samples in the buckets and none shortly before them: whether the source held them before,
// or they are new and grow from zero, or begin their metric. What that means for their growth is said in `src/metrics/samples.ts`.
import type { Buckets } from "../../../src/core/rows.ts";
import { type Millis, minute } from "../../../src/core/time.ts";
import { dropNonFinite } from "../../../src/metrics/samples.ts";
import { aggregate, call, type Expression, type Selector } from "../client/promql.ts";
import type { Labels, SampleSeries } from "../client/response-scanner.ts";
import {
  chunkSeries,
  formatSeriesKey,
  narrowToSeries,
  roundUpToSeconds,
  runConcurrent,
  type SeriesReader,
} from "./series-reader.ts";

/** What is asked about series of a metric in some buckets. */
export interface SeriesStartQuery {
  readonly selector: Selector;
  /** All series of the metric within the wall: they tell whether a new series begins it. */
  readonly metric: Selector;
  readonly buckets: Buckets;
  /** Absent where growth counts from the first sample within the buckets. */
  readonly lookBack?: Millis | undefined;
  /** Series × buckets, and raw samples, that may be read. */
  readonly limit: number;
}

interface SeriesStarts {
  readonly existing: ReadonlySet<string>;
  readonly newSeries: ReadonlySet<string>;
}

/**
 * Of series that have samples in the buckets and none in the look-back: the keys of those that the source held before,
 * and of those that are new and grow from zero. The rest begin their metric. Several queries are forms of one metric.
 */
export async function classifySeriesStarts(
  reader: SeriesReader,
  queries: readonly SeriesStartQuery[],
  series: readonly { readonly labels: Labels }[],
  othersHeld: boolean,
): Promise<SeriesStarts> {
  const [query] = queries;
  if (query === undefined || series.length === 0) return { existing: new Set(), newSeries: new Set() };
  const { start, step, count } = query.buckets;
  // All of the past is looked through: few series at a time, so that the selector finds hardly any others.
  const past = queries.flatMap(({ selector }) =>
    chunkSeries(listSpellings(series)).map((labels) =>
      reader.selectRange(narrowToSeries(selector, labels), { from: start, to: 1 }),
    ),
  );
  const ever = hasNoPast(start)
    ? []
    : await runConcurrent(past, (samples) => reader.readInstant(call("last_over_time", samples), start));
  const idle = await findNonFiniteSeries(reader, queries, ever.flat(), start);
  const held = new Set(
    listSpellings(ever.flat().filter(({ labels }) => !idle.has(formatSeriesKey(labels)))).map(
      formatSeriesKey,
    ),
  );
  const born = new Set(series.map(({ labels }) => formatSeriesKey(labels)).filter((key) => !held.has(key)));
  if (born.size === 0 || othersHeld || held.size > 0) return { existing: held, newSeries: born };
  const before = await runConcurrent(queries, ({ metric, lookBack = 0 }) =>
    hasSamplesBefore(reader, metric, start, lookBack),
  );
  if (before.includes(true)) return { existing: held, newSeries: born };
  const begun = await runConcurrent(queries, ({ metric, limit }) =>
    findFirstTime(reader, metric, start, start + step * count, limit),
  );
  const first = Math.min(...begun.map((time = Number.POSITIVE_INFINITY) => time));
  if (first === Number.POSITIVE_INFINITY) return { existing: held, newSeries: born };
  const own = await runConcurrent(queries, ({ metric, limit }) =>
    reader.readRaw(metric, first, first + 1, limit),
  );
  for (const one of own.flat()) {
    if (one.histograms.length > 0 || dropNonFinite(one).times.length > 0)
      born.delete(formatSeriesKey(one.labels));
  }
  return { existing: held, newSeries: born };
}

/**
 * Of series that had samples before `start`, the keys of those of which none was finite: what is not finite is left out, so
 * that it is no past. A last sample that is finite, or a histogram, shows that there was one.
 */
async function findNonFiniteSeries(
  reader: SeriesReader,
  queries: readonly SeriesStartQuery[],
  ever: readonly SampleSeries[],
  start: Millis,
): Promise<ReadonlySet<string>> {
  const open = ever.filter(({ values: [last = 0] }) => !Number.isFinite(last)).map(({ labels }) => labels);
  const past = queries.flatMap(({ selector }) =>
    chunkSeries(open).map((labels) =>
      reader.selectRange(narrowToSeries(selector, labels), { from: start, to: 1 }),
    ),
  );
  const [least = [], most = []] = await Promise.all(
    ["min_over_time", "max_over_time"].map((name) =>
      runConcurrent(past, (samples) => reader.readInstant(call(name, samples), start)),
    ),
  );
  const mostOf = new Map(most.flat().map(({ labels, values }) => [formatSeriesKey(labels), values[0]]));
  const wanted = new Set(open.map(formatSeriesKey));
  return new Set(
    least.flat().flatMap(({ labels, values: [value] }) => {
      const key = formatSeriesKey(labels);
      return wanted.has(key) && !hasFiniteSample(value, mostOf.get(key)) ? [key] : [];
    }),
  );
}

/**
 * Whether some sample is finite, by the least and the greatest, which pass over NaN. Where both infinities are among them
 * that is not known, and taken for so; where there is neither, the samples are histograms.
 */
function hasFiniteSample(least: number | undefined, most: number | undefined): boolean {
  if (least === undefined || most === undefined) return true;
  return Number.isFinite(least) || Number.isFinite(most) || least < most;
}

/** Nothing is older than 1970; and there is no window of no length, nor of one millisecond for a closed edge. */
function hasNoPast(start: Millis): boolean {
  return start < 2;
}

/** Whether the metric had a sample before `start`. */
async function hasSamplesBefore(
  reader: SeriesReader,
  metric: Selector,
  start: Millis,
  lookBack: Millis,
): Promise<boolean> {
  if (hasNoPast(start)) return false;
  for (const from of [300_000, Math.max(300_000, lookBack), start]) {
    const samples = reader.selectRange(metric, { from, to: 1 });
    const anySample = aggregate("group", [], call("last_over_time", samples));
    if ((await reader.readInstant(anySample, start)).length === 0) continue;
    const [least, most] = await Promise.all(
      buildExtremes(samples).map(async (one) => (await reader.readInstant(one, start))[0]?.values[0]),
    );
    if (hasFiniteSample(least, most)) return true;
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
 * The time of the metric's first sample from `from` until before `to`, found by ever smaller parts of it. Where nothing that
 * comes first is finite, what follows is looked through for numbers alone.
 */
async function findFirstTime(
  reader: SeriesReader,
  metric: Selector,
  from: Millis,
  to: Millis,
  limit: number,
  numbers = false,
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
  // Rounded down: a source finds nothing at all where a time is beyond those it can count. What is left comes last.
  const count = Math.floor((to - from) / step);
  const samples = reader.selectRange(metric, { from: step, to: 1 });
  const told = numbers ? buildExtremes(samples) : [aggregate("group", [], call("last_over_time", samples))];
  const grids = await Promise.all(
    told.map((one) => reader.readGrid(one, { start: from, step, count }, count)),
  );
  const firsts = grids.map(([found]) => found?.values.findIndex(Number.isFinite) ?? -1);
  const first = firsts.reduce((a, b) => (a < 0 || b < 0 ? Math.max(a, b) : Math.min(a, b)));
  const start = from + (first < 0 ? count : first) * step;
  const end = first < 0 ? to : start + step;
  const time = await findFirstTime(reader, metric, start, end, limit, numbers);
  return time === undefined && end < to ? findFirstTime(reader, metric, end, to, limit, true) : time;
}

/**
 * The other spelling of a whole bound: what was `le="1"` is `le="1.0"` from the day on that its Prometheus became version 3.
 * The series goes on under the new one.
 */
function rewriteBoundLabel(labels: Labels): Labels {
  const { le = "" } = labels;
  if (/^-?\d+$/.test(le)) return { ...labels, le: `${le}.0` };
  return /^-?\d+\.0$/.test(le) ? { ...labels, le: le.slice(0, -2) } : labels;
}
/** The key of a series in its other spelling. */
export const formatAlternateKey = (labels: Labels): string => formatSeriesKey(rewriteBoundLabel(labels));
/** With the other spelling of those that have one. */
export function listSpellings(series: readonly { readonly labels: Labels }[]): readonly Labels[] {
  return series.flatMap(({ labels }) => {
    const other = rewriteBoundLabel(labels);
    return other === labels ? [labels] : [labels, other];
  });
}
