// Reads series for one answer: values on the grid of its buckets, or raw samples. What would be too much for a query is
// split and put together again; what would be too much for the adapter is refused, before it is asked for where a cheap
// count tells, and while it arrives in any case.

import { mapConcurrent } from "../../../src/core/concurrency.ts";
import { BackendError, Refused } from "../../../src/core/errors.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import { allTime, type Millis, second, toMillis } from "../../../src/core/time.ts";
import { findFirstAtOrAfter, type Samples } from "../../../src/metrics/samples.ts";
import type { EvaluationTime, PrometheusClient, ServerTraits } from "../client/client.ts";
import {
  aggregate,
  call,
  type Expression,
  hasLabels,
  matchAnyOf,
  metadataLabels,
  narrowSelector,
  printExpression,
  type Selector,
  selectRange,
  stripPresenceMatchers,
} from "../client/promql.ts";
import {
  collectSeries,
  type HistogramSample,
  type Labels,
  type SampleSeries,
  type SeriesFold,
} from "../client/response-scanner.ts";

/** A series on the grid: NaN where a bucket has no value, Infinity where it has one that is not finite. */
export interface GridSeries {
  readonly labels: Labels;
  readonly values: Float64Array;
}

/** Samples by time, whatever their values; of a native histogram its histograms. */
export interface RawSeries extends Samples {
  readonly labels: Labels;
  readonly histograms: readonly HistogramSample[];
}

type LabelPredicate = (labels: Labels) => boolean;

export interface SeriesReader {
  /** As `ServerTraits`'. */
  readonly hidesRestarts: boolean;
  readonly backend: string;
  /**
   * The expression at the end of each bucket; series × buckets are limited, of those that are meant.
   * @throws {Refused | BackendError}
   */
  readGrid(
    expression: Expression,
    buckets: Buckets,
    limit: number,
    isMeant?: LabelPredicate,
  ): Promise<readonly GridSeries[]>;
  /** The expression at one time. @throws {BackendError} */
  readInstant(expression: Expression, at: Millis): Promise<readonly SampleSeries[]>;
  /** The samples from `from` until before `to`. @throws {Refused} over `limit` samples @throws {BackendError} */
  readRaw(selector: Selector, from: Millis, to: Millis, limit: number): Promise<readonly RawSeries[]>;
  /** The samples from `from` to `to` before the time of evaluation, both inclusive, as this source has to be told. */
  selectRange(selector: Selector, span: { readonly from: Millis; readonly to: Millis }): Expression;
  /**
   * Refuses what series of this selector times buckets would show to be too many, judged at some moments of the range
   * and only where the last count of the like leaves a doubt. How many series, or groups `shift` labels, it has found;
   * NaN where it could not look. @throws {Refused | BackendError}
   */
  estimateSeries(
    selector: Selector,
    by: readonly string[] | undefined,
    buckets: Buckets,
    limit: number,
  ): Promise<number>;
  /**
   * The selector without its matchers for mere presence, where no more series were counted by that: for such a matcher
   * Prometheus goes through all values that the label has in any metric. Series that have come since and lack such a
   * label are not meant.
   */
  dropPresenceMatchers(
    selector: Selector,
    buckets: Buckets,
  ): Promise<{ readonly selector: Selector; readonly isMeant: LabelPredicate }>;
  /** What `estimate` has found is not so: there are more series than it knows. */
  markUnderestimated(selector: Selector): void;
}

/** A server answers 11,000 points of a series at most. */
const pointsPerQuery = 10_000;
/** How many queries one request has under way at once. */
const concurrentQueries = 4;
const samplesPerQuery = 250_000;
/** Values of a grid that are kept together, unless one series has more. */
const valuesPerArray = 16_384;
const estimateMoments = 5;
// A source has no samples from before 1970 and counts nanoseconds in 64 bits, so that it takes no length of more than
// 292 years. Nothing is lost where no more is asked for.
const oldestTime: Millis = 0;
const newestTime: Millis = toMillis(allTime.to) - 1;
const longestRange: Millis = newestTime - oldestTime;

export function createTooManyPointsError(limit: number, wanted?: number): Refused {
  return new Refused(
    "result_too_large",
    "Too many points; ask for fewer series, a shorter range or a coarser resolution",
    {
      limit,
      ...(wanted !== undefined && { wanted }),
    },
  );
}

/**
 * By key. @throws {Refused} where there are two of one, as after a target has said another type or unit: the one goes on
 * where the other has ended, but a function that drops these labels cannot be asked about both.
 */
export function indexByKey<T extends { readonly labels: Labels }>(
  backend: string,
  found: readonly T[],
): ReadonlyMap<string, T> {
  const map = new Map(found.map((series) => [formatSeriesKey(series.labels), series]));
  if (map.size < found.length) throw createDuplicateSeriesError(backend);
  return map;
}

export function createDuplicateSeriesError(backend: string): Refused<"not_supported_by_backend"> {
  const feature = "series that differ in __type__ or __unit__ alone";
  const advice = "choose a range in which each series has one type and unit";
  return new Refused("not_supported_by_backend", `The source cannot tell ${feature} apart: ${advice}`, {
    backend,
    feature,
  });
}

/** `searchSizes` remembers between readers how many series an expression had. */
export function createSeriesReader(
  backend: string,
  client: PrometheusClient,
  { edge, hidesRestarts }: ServerTraits,
  sizes: { get(key: string): number | undefined; set(key: string, size: number): void },
  signal: AbortSignal,
): SeriesReader {
  async function grid(
    expression: Expression,
    buckets: Buckets,
    limit: number,
    isMeant: LabelPredicate = acceptAll,
  ): Promise<readonly GridSeries[]> {
    const most = Math.floor(limit / buckets.count);
    const parts = await runConcurrent(splitBuckets(buckets), ({ start, step, count }) => {
      const [first, last] = [start + step, start + count * step];
      const times: EvaluationTime = count === 1 ? { at: first } : { start: first, end: last, step };
      return client.query(
        expression,
        times,
        () => collectOnGrid({ backend, buckets: { start, step, count }, most, limit, isMeant }),
        signal,
      );
    });
    const [only] = parts;
    if (only !== undefined && parts.length === 1) return only;
    const merged = new Map<string, GridSeries>();
    let first = 0;
    for (const [index, { count }] of splitBuckets(buckets).entries()) {
      for (const { labels, values } of parts[index] ?? []) {
        const key = formatSeriesKey(labels);
        let whole = merged.get(key);
        if (whole === undefined) {
          whole = { labels, values: new Float64Array(buckets.count).fill(Number.NaN) };
          merged.set(key, whole);
          if (merged.size > most) throw createTooManyPointsError(limit, merged.size * buckets.count);
        }
        whole.values.set(values, first);
      }
      first += count;
    }
    return [...merged.values()];
  }

  async function instant(expression: Expression, at: Millis): Promise<readonly SampleSeries[]> {
    return client.query(expression, { at }, collectSeries, signal);
  }

  async function raw(
    selector: Selector,
    since: Millis,
    until: Millis,
    limit: number,
  ): Promise<readonly RawSeries[]> {
    const from = Math.max(since, oldestTime);
    const to = Math.min(until, newestTime);
    if (to <= from) return [];
    const counted = await instant(
      aggregate("sum", [], call("count_over_time", stretch(selector, from, to))),
      to,
    );
    const count = Math.max(0, ...(counted[0]?.values ?? []));
    if (count > limit) throw createTooManyPointsError(limit, count);
    if (count === 0) return [];
    const length = Math.ceil((to - from) / Math.ceil(count / samplesPerQuery));
    const starts = Array.from(
      { length: Math.ceil((to - from) / length) },
      (_, index) => from + index * length,
    );
    const parts = await runConcurrent(starts, async (start) => {
      const end = Math.min(to, start + length);
      return (await instant(stretch(selector, start, end), end)).flatMap((series): readonly RawSeries[] => {
        const inside = series.histograms.filter(({ time }) => time >= start && time < end);
        const [first, last] = [
          findFirstAtOrAfter(series.times, start),
          findFirstAtOrAfter(series.times, end),
        ];
        // Nothing is left of one whose last sample is that of a closed edge.
        if (first === last && inside.length === 0) return [];
        const times = series.times.subarray(first, last);
        const values = series.values.subarray(first, last);
        return [{ labels: series.labels, times, values, histograms: inside }];
      });
    });
    const bySeries = Map.groupBy(parts.flat(), ({ labels }) => formatSeriesKey(labels));
    return [...bySeries.values()].flatMap((pieces) => joinPieces(pieces));
  }

  /** One millisecond too far to the left on a closed edge; what is too early is cut off on receipt. */
  function stretch(of: Selector, from: Millis, to: Millis): Expression {
    return { kind: "window", of, length: to - from, offset: 1 };
  }

  /** Counts under way or done: two who want the same one ask once. */
  const counting = new Map<string, Promise<readonly SampleSeries[]>>();
  const estimate: SeriesReader["estimateSeries"] = async (selector, by, buckets, limit) => {
    const key = printExpression(by === undefined ? selector : aggregate("group", by, selector));
    const known = sizes.get(key);
    if (known !== undefined && known * 2 * buckets.count <= limit) return known;
    const length = buckets.step * buckets.count;
    const most = Math.min(Math.floor(length / estimateMoments), longestRange);
    const step = most < second ? most : most - (most % second);
    if (step < 2) return Number.NaN;
    // Windows inside the range alone, so that what is counted is part of the answer.
    const inside = selectRange(selector, edge, { from: Math.min(step, 300_000), to: 1 });
    const living = call("last_over_time", inside);
    const of = by === undefined ? living : aggregate("group", by, living);
    const times = { start: buckets.start + step, end: buckets.start + estimateMoments * step, step };
    const asked = `${key} ${times.start} ${times.end}`;
    const counted =
      counting.get(asked) ?? client.query(aggregate("count", [], of), times, collectSeries, signal);
    counting.set(asked, counted);
    const size = Math.max(0, ...((await counted)[0]?.values ?? []));
    sizes.set(key, size);
    if (size * buckets.count > limit) throw createTooManyPointsError(limit, size * buckets.count);
    return size;
  };

  function underestimated(selector: Selector): void {
    sizes.set(printExpression(selector), Number.POSITIVE_INFINITY);
  }

  return {
    backend,
    hidesRestarts,
    readGrid: grid,
    readInstant: instant,
    readRaw: raw,
    selectRange: (selector, { from, to }) =>
      selectRange(selector, edge, { from: Math.min(from, longestRange), to }),
    estimateSeries: estimate,
    async dropPresenceMatchers(selector, buckets) {
      const isMeant = (labels: Labels) => hasLabels(selector, labels);
      const bare = stripPresenceMatchers(selector);
      if (bare.matchers.length === selector.matchers.length) return { selector, isMeant };
      const [wanted, found] = await Promise.all(
        [selector, bare].map((one) => estimate(one, undefined, buckets, Number.POSITIVE_INFINITY)),
      );
      return { selector: wanted === found ? bare : selector, isMeant };
    },
    markUnderestimated: underestimated,
  };
}

const acceptAll: LabelPredicate = () => true;

/** The grid of an answer that is being read. */
interface GridState {
  readonly backend: string;
  readonly buckets: Buckets;
  /** How many series it may have, and the limit on points that says so. */
  readonly most: number;
  readonly limit: number;
  readonly isMeant: LabelPredicate;
  readonly found: GridSeries[];
  /** For values of series to come: one array for many series costs less than one for each. */
  room: Float64Array<ArrayBuffer>;
}

/** Puts values into their buckets, of at most so many series. An answer at other times than asked was shifted on its way. */
function collectOnGrid(asked: Omit<GridState, "found" | "room">): SeriesFold<readonly GridSeries[]> {
  const grid: GridState = { ...asked, found: [], room: new Float64Array(0) };
  return { series: (series) => placeSeries(grid, series), result: () => grid.found };
}

function placeSeries(grid: GridState, { labels, times, values, histograms }: SampleSeries): void {
  const { backend, buckets, found } = grid;
  const { start, step, count } = buckets;
  if (!grid.isMeant(labels)) return;
  if (histograms.length > 0)
    throw new BackendError(backend, "malformed", "histograms where numbers were asked for");
  if (grid.room.length < count) {
    // As much as there is already, so that the room of few series stays small.
    const series = Math.min(found.length + 1, Math.ceil(valuesPerArray / count));
    grid.room = new Float64Array(series * count).fill(Number.NaN);
  }
  const placed = grid.room.subarray(0, count);
  grid.room = grid.room.subarray(count);
  for (let index = 0; index < times.length; index++) {
    const time = times[index] ?? Number.NaN;
    const bucket = (time - start) / step - 1;
    if (!Number.isInteger(bucket) || bucket < 0 || bucket >= count) {
      throw new BackendError(backend, "malformed", `a value at ${time}, which was not asked for`);
    }
    placed[bucket] = toGridValue(values[index]);
  }
  found.push({ labels, values: placed });
  if (found.length > grid.most) throw createTooManyPointsError(grid.limit);
}

/** A sample's value as a grid has it. */
export function toGridValue(value = Number.NaN): number {
  return Number.isFinite(value) ? value : Number.POSITIVE_INFINITY;
}

/** The buckets in runs that one query answers each. */
function splitBuckets({ start, step, count }: Buckets): readonly Buckets[] {
  const run = step % second === 0 ? pointsPerQuery : 1;
  return Array.from({ length: Math.ceil(count / run) }, (_, index) => {
    const first = index * run;
    return { start: start + first * step, step, count: Math.min(run, count - first) };
  });
}

/**
 * At least so long. Mimir hands a step of 66.6 s on as a number of seconds, of which its querier makes 66.599 s. So ranges
 * have steps of whole seconds, and what cannot have them is asked moment by moment.
 */
export function roundUpToSeconds(step: Millis): Millis {
  return Math.ceil(step / second) * second;
}

/** The pieces of one series, which follow one another, as one. */
export function joinPieces(pieces: readonly RawSeries[]): readonly RawSeries[] {
  const [first] = pieces;
  if (first === undefined || pieces.length === 1) return pieces;
  const histograms = pieces.flatMap((piece) => piece.histograms);
  return [{ labels: first.labels, ...joinSamples(pieces), histograms }];
}

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

/** A few at a time, the results in order; after a failure no other is begun. */
export function runConcurrent<T, R>(
  items: readonly T[],
  run: (item: T) => Promise<R>,
): Promise<readonly R[]> {
  return mapConcurrent(items, concurrentQueries, run, new AbortController().signal);
}

/** What tells series of one metric apart. */
export function formatSeriesKey(labels: Labels): string {
  return JSON.stringify(
    Object.entries(labels)
      .filter(([label]) => !metadataLabels.includes(label))
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}

/** `""` where the series has no such label: to Prometheus both are the same. */
export function readLabel(labels: Labels, label: string): string {
  const value = labels[label];
  // What every object has, whatever its own keys, is no text.
  return typeof value === "string" ? value : "";
}

/** A bound or a quantile, which may be spelt in several ways; NaN where it is none. */
export function parseBound(text: string): number {
  return /^\+?Inf$/i.test(text) ? Number.POSITIVE_INFINITY : text === "" ? Number.NaN : Number(text);
}

/** What the series of one bound or quantile have in common, however it is spelt. */
export function formatNumericKey(labels: Labels): string {
  const numbers = ["le", "quantile"].filter((label) => Object.hasOwn(labels, label));
  const spelt = numbers.map((label) => [label, String(parseBound(readLabel(labels, label)))]);
  return formatSeriesKey({ ...labels, ...Object.fromEntries(spelt) });
}

/** Of so many series each label is narrowed, whatever it is. */
const maxValuesPerLabel = 100;

/** In parts of which each can be narrowed to wholly. */
export function chunkSeries<T>(items: readonly T[]): readonly (readonly T[])[] {
  return Array.from({ length: Math.ceil(items.length / maxValuesPerLabel) }, (_, part) =>
    items.slice(part * maxValuesPerLabel, (part + 1) * maxValuesPerLabel),
  );
}

/**
 * The selector narrowed towards these series: it may find others still, which the caller has to sort out, but never
 * fewer.
 */
export function narrowToSeries(selector: Selector, series: readonly Labels[]): Selector {
  const keys = new Set(series.flatMap((labels) => Object.keys(labels)));
  for (const label of metadataLabels) keys.delete(label);
  const matchers = [...keys].flatMap((key) => {
    const values = new Set(series.map((labels) => readLabel(labels, key)));
    return values.size > maxValuesPerLabel ? [] : [matchAnyOf(key, [...values])];
  });
  return narrowSelector(selector, matchers);
}
