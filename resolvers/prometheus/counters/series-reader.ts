// Reads series for one request: values on the grid of its buckets, or raw samples. What is too much for one query is split
// and joined again. What exceeds the limit of points is refused, before it is read if a count shows it, and otherwise
// while it arrives.

import { mapConcurrent } from "../../../src/core/async/concurrency.ts";
import { groupInTurns, visitInTurns } from "../../../src/core/async/turns.ts";
import { findFirstAtOrAfter, readNumber, requireFirst } from "../../../src/core/collections.ts";
import {
  BackendError,
  createTooManyPointsError,
  createTooManySamplesError,
  Refused,
} from "../../../src/core/errors.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import { allTime, type Millis, second, toMillis } from "../../../src/core/time.ts";
import { joinSamples, type Samples } from "../../../src/metrics/samples.ts";
import { countSeries, type PrometheusClient, type SeriesCounters } from "../client/client.ts";
import {
  aggregate,
  call,
  type Expression,
  hasLabels,
  metadataLabels,
  metricName,
  printExpression,
  type RangeEdge,
  type Selector,
  selectRange,
  stripPresenceMatchers,
} from "../client/promql.ts";
import type { EvaluationTime } from "../client/query-request.ts";
import {
  collectSeries,
  type HistogramSample,
  type Labels,
  type SampleSeries,
  type SeriesFold,
} from "../client/response-scanner.ts";
import type { ServerTraits } from "../client/server-traits.ts";
import { halveBuckets, isOverSampleLimit } from "./sample-limit.ts";

/** A series on the grid of the buckets: NaN where a bucket has no value, Infinity where the value is not finite. */
export interface GridSeries {
  readonly labels: Labels;
  readonly values: Float64Array;
}

/** Samples by time, of any value; those of native histograms in `histograms`. */
export interface RawSeries extends Samples {
  readonly labels: Labels;
  readonly histograms: readonly HistogramSample[];
}

type LabelPredicate = (labels: Labels) => boolean;

export interface SeriesReader extends Pick<ServerTraits, "hidesRestarts" | "losesNaN"> {
  readonly backend: string;
  /** The same, for what is dropped before the request ends: until its release it counts as held. */
  openPart(): SeriesReader & { release(): void };
  /**
   * The expression at the end of each bucket, of the series that `accepts`.
   * @throws {Refused} if series × buckets exceed the limit @throws {BackendError}
   */
  readGrid(
    expression: Expression,
    buckets: Buckets,
    limit: number,
    accepts?: LabelPredicate,
  ): Promise<readonly GridSeries[]>;
  /** The expression at one time. @throws {BackendError} */
  readInstant(expression: Expression, at: Millis): Promise<readonly SampleSeries[]>;
  /** The samples from `from` until before `to`. @throws {Refused} over `limit` samples @throws {BackendError} */
  readRaw(selector: Selector, from: Millis, to: Millis, limit: number): Promise<readonly RawSeries[]>;
  /** The samples from `from` to `to` before the time of evaluation, both inclusive, whatever the server's range edge. */
  selectRange(selector: Selector, span: { readonly from: Millis; readonly to: Millis }): Expression;
  /**
   * Counts the series, or the groups by some labels, at a few times of the range, unless the last count leaves no doubt.
   * Returns the greatest count; NaN if the range is too short to count.
   * @throws {Refused} if the count times buckets exceeds the limit @throws {BackendError}
   */
  estimateSeries(
    selector: Selector,
    by: readonly string[] | undefined,
    buckets: Buckets,
    limit: number,
  ): Promise<number>;
  /**
   * The selector without its matchers for the presence of labels, if no more series were counted without them: for such a
   * matcher Prometheus walks through all values that the label has in any metric. `matchesDropped` filters out series
   * that lack such a label and have appeared since. @throws {BackendError}
   */
  dropPresenceMatchers(
    selector: Selector,
    buckets: Buckets,
  ): Promise<{ readonly selector: Selector; readonly matchesDropped: LabelPredicate }>;
  /** Forgets what `estimateSeries` found for the selector: there are more series. */
  markUnderestimated(selector: Selector): void;
  /** Remembers that the selector's series have to be counted by a query of their own: their sums cannot tell how many these are. */
  markSeparateCounts(selector: Selector): void;
  needsSeparateCounts(selector: Selector): boolean;
}

/** A server returns at most 11,000 points of a series. */
export const pointsPerQuery = 10_000;
/** How many queries of one request are sent at once. */
const concurrentQueries = 4;
const samplesPerQuery = 250_000;
/** Values of a grid that share an array, unless one series has more. */
const valuesPerArray = 16_384;
/** How many times of a range series are counted at. */
const estimationTimes = 5;
// A server has no samples from before 1970. It counts nanoseconds in 64 bits, so that it takes no range of more than 292
// years. Ranges are clipped to that, which loses no sample.
const oldestTime: Millis = 0;
const newestTime: Millis = toMillis(allTime.to) - 1;
const longestRange: Millis = newestTime - oldestTime;

/**
 * Of two series with one key, as after a target has declared another type or unit: one series ends where the other begins,
 * but a function that drops these labels fails for a range with both.
 */
export function createDuplicateSeriesError(backend: string): Refused<"not_supported_by_backend"> {
  const feature = "series that differ in __type__ or __unit__ alone";
  const advice = "choose a range in which each series has one type and unit";
  return new Refused("not_supported_by_backend", `The source cannot distinguish ${feature}: ${advice}`, {
    backend,
    feature,
  });
}

/** How many series an expression had, shared by readers. */
interface SizeCache {
  get(key: string): number | undefined;
  set(key: string, size: number): void;
}

interface ReaderState {
  readonly backend: string;
  readonly client: Pick<PrometheusClient, "query">;
  readonly edge: RangeEdge;
  readonly sizes: SizeCache;
  /** Counts that were sent, by expression and times: the same count is sent once. */
  readonly counts: Map<string, Promise<readonly SampleSeries[]>>;
  readonly signal: AbortSignal;
}

export function createSeriesReader(
  backend: string,
  client: PrometheusClient,
  traits: ServerTraits,
  sizes: SizeCache,
  signal: AbortSignal,
  counters: SeriesCounters = {},
): SeriesReader {
  const { edge, hidesRestarts, losesNaN } = traits;
  const query: PrometheusClient["query"] = (expression, time, fold, signal) =>
    client.query(expression, time, countSeries(fold, counters), signal);
  const state: ReaderState = { backend, client: { query }, edge, sizes, counts: new Map(), signal };
  return {
    backend,
    hidesRestarts,
    losesNaN,
    openPart() {
      const held = counters.held?.openPart();
      const own = createSeriesReader(backend, client, traits, sizes, signal, { ...counters, held });
      return { ...own, release: () => held?.release() };
    },
    readGrid: (expression, buckets, limit, accepts = acceptAll) =>
      readGrid(state, expression, buckets, limit, accepts),
    readInstant: (expression, at) => readInstant(state, expression, at),
    readRaw: (selector, from, to, limit) => readRaw(state, selector, from, to, limit),
    selectRange: (selector, { from, to }) =>
      selectRange(selector, edge, { from: Math.min(from, longestRange), to }),
    estimateSeries: (selector, by, buckets, limit) => estimateSeries(state, selector, by, buckets, limit),
    dropPresenceMatchers: (selector, buckets) => dropPresenceMatchers(state, selector, buckets),
    markUnderestimated: (selector) => sizes.set(printExpression(selector), Number.POSITIVE_INFINITY),
    markSeparateCounts: (selector) => sizes.set(printSum(selector), Number.POSITIVE_INFINITY),
    needsSeparateCounts: (selector) => sizes.get(printSum(selector)) === Number.POSITIVE_INFINITY,
  };
}

function printSum(selector: Selector): string {
  return printExpression(aggregate("sum", [], selector));
}

function readInstant(
  { client, signal }: ReaderState,
  expression: Expression,
  at: Millis,
): Promise<readonly SampleSeries[]> {
  return client.query(expression, { at }, collectSeries, signal);
}

// ---- Grids -------------------------------------------------------------------------------------------------------

const acceptAll: LabelPredicate = () => true;

async function readGrid(
  state: ReaderState,
  expression: Expression,
  buckets: Buckets,
  limit: number,
  accepts: LabelPredicate,
): Promise<readonly GridSeries[]> {
  const maxSeries = Math.floor(limit / buckets.count);
  const parts = await runConcurrent(splitBuckets(buckets), (slice) =>
    readSlice(state, expression, { slice, maxSeries, limit, accepts }),
  );
  const [only, ...others] = parts.flat();
  if (only !== undefined && others.length === 0) return only.found;
  const merged = new Map<string, GridSeries>();
  for (const { slice, found } of parts.flat()) {
    for (const { labels, values } of found) {
      // A union has series of several names.
      const key = readLabel(labels, metricName) + formatSeriesKey(labels);
      let series = merged.get(key);
      if (series === undefined) {
        series = { labels, values: new Float64Array(buckets.count).fill(Number.NaN) };
        merged.set(key, series);
        if (merged.size > maxSeries) throw createTooManyPointsError(limit, merged.size * buckets.count);
      }
      series.values.set(values, (slice.start - buckets.start) / buckets.step);
    }
  }
  return [...merged.values()];
}

interface SliceRequest extends Pick<GridState, "maxSeries" | "limit" | "accepts"> {
  readonly slice: Buckets;
}

/** The slice in one part, or in several if the source would load too many samples for it. */
async function readSlice(
  state: ReaderState,
  expression: Expression,
  request: SliceRequest,
): Promise<readonly { readonly slice: Buckets; readonly found: readonly GridSeries[] }[]> {
  const { slice, ...limits } = request;
  const { start, step, count } = slice;
  const [first, last] = [start + step, start + count * step];
  const time: EvaluationTime = count === 1 ? { at: first } : { start: first, end: last, step };
  const fold = () => collectOnGrid({ backend: state.backend, buckets: slice, ...limits });
  try {
    return [{ slice, found: await state.client.query(expression, time, fold, state.signal) }];
  } catch (error) {
    const halves = isOverSampleLimit(error) ? halveBuckets(slice) : undefined;
    if (halves === undefined) throw error;
    const [early, late] = halves;
    // The later part first: where it has samples, the earlier one no longer changes.
    const after = await readSlice(state, expression, { ...limits, slice: late });
    return [...(await readSlice(state, expression, { ...limits, slice: early })), ...after];
  }
}

/** The buckets in slices that one query answers each. */
function splitBuckets({ start, step, count }: Buckets): readonly Buckets[] {
  const length = step % second === 0 ? pointsPerQuery : 1;
  return Array.from({ length: Math.ceil(count / length) }, (_, index) => {
    const first = index * length;
    return { start: start + first * step, step, count: Math.min(length, count - first) };
  });
}

/**
 * Rounds a step up to whole seconds. Mimir passes a step of 66.6 s on as a number of seconds, which its querier turns
 * into 66.599 s. So ranges have steps of whole seconds, and other grids are read one evaluation time at a time.
 */
export function roundUpToSeconds(step: Millis): Millis {
  return Math.ceil(step / second) * second;
}

/** The grid of a response that is being read. */
interface GridState {
  readonly backend: string;
  readonly buckets: Buckets;
  readonly maxSeries: number;
  /** The limit of points, for the error. */
  readonly limit: number;
  readonly accepts: LabelPredicate;
  readonly found: GridSeries[];
  /** For the values of further series: one array for many series costs less than one for each. */
  spare: Float64Array<ArrayBuffer>;
}

/** Puts values into their buckets. A response with other times than requested was moved on its way, and is an error. */
function collectOnGrid(request: Omit<GridState, "found" | "spare">): SeriesFold<readonly GridSeries[]> {
  const grid: GridState = { ...request, found: [], spare: new Float64Array(0) };
  return { series: (series) => placeSeries(grid, series), result: () => grid.found };
}

function placeSeries(grid: GridState, { labels, times, values, histograms }: SampleSeries): void {
  const { backend, buckets, found } = grid;
  const { start, step, count } = buckets;
  if (!grid.accepts(labels)) return;
  if (histograms.length > 0)
    throw new BackendError(backend, "malformed", "the response has histograms instead of numbers");
  if (grid.spare.length < count) {
    // As many series again as there are already, so that a few series take little memory.
    const series = Math.min(found.length + 1, Math.ceil(valuesPerArray / count));
    grid.spare = new Float64Array(series * count).fill(Number.NaN);
  }
  const placed = grid.spare.subarray(0, count);
  grid.spare = grid.spare.subarray(count);
  for (let index = 0; index < times.length; index++) {
    const time = readNumber(times, index);
    const bucket = (time - start) / step - 1;
    if (!Number.isInteger(bucket) || bucket < 0 || bucket >= count) {
      throw new BackendError(
        backend,
        "malformed",
        `the response has a value at ${time}, which was not requested`,
      );
    }
    placed[bucket] = toGridValue(readNumber(values, index));
  }
  found.push({ labels, values: placed });
  if (found.length > grid.maxSeries) throw createTooManyPointsError(grid.limit);
}

/** The value of a sample as a grid holds it. */
export function toGridValue(value: number): number {
  return Number.isFinite(value) ? value : Number.POSITIVE_INFINITY;
}

// ---- Raw samples -------------------------------------------------------------------------------------------------

/** `earlier` samples of the same question were read before, and count towards the limit. */
async function readRaw(
  state: ReaderState,
  selector: Selector,
  since: Millis,
  until: Millis,
  limit: number,
  earlier = 0,
): Promise<readonly RawSeries[]> {
  try {
    return await readRawAtOnce(state, selector, since, until, limit, earlier);
  } catch (error) {
    const middle = since + Math.floor((until - since) / 2);
    if (!isOverSampleLimit(error) || middle <= since) throw error;
    const early = await readRaw(state, selector, since, middle, limit, earlier);
    const late = await readRaw(state, selector, middle, until, limit, earlier + sumSamples(early));
    return joinByKey([...early, ...late]);
  }
}

function sumSamples(series: readonly RawSeries[]): number {
  return series.reduce((sum, { times, histograms }) => sum + times.length + histograms.length, 0);
}

async function readRawAtOnce(
  state: ReaderState,
  selector: Selector,
  since: Millis,
  until: Millis,
  limit: number,
  earlier: number,
): Promise<readonly RawSeries[]> {
  const from = Math.max(since, oldestTime);
  const to = Math.min(until, newestTime);
  if (to <= from) return [];
  const counting = call("count_over_time", selectRawRange(selector, from, to));
  const counted = await readInstant(state, aggregate("sum", [], counting), to);
  const count = findGreatestValue(counted);
  if (earlier + count > limit) throw createTooManySamplesError(limit, earlier + count);
  if (count === 0) return [];
  const length = Math.ceil((to - from) / Math.ceil(count / samplesPerQuery));
  const slices = Math.ceil((to - from) / length);
  const starts = Array.from({ length: slices }, (_, index) => from + index * length);
  const parts = await runConcurrent(starts, async (start) => {
    const end = Math.min(to, start + length);
    const found = await readInstant(state, selectRawRange(selector, start, end), end);
    return found.flatMap((series) => clipSeries(series, start, end));
  });
  return joinByKey(parts.flat());
}

/** Selects the samples in [from, to), evaluated at `to`. A closed edge adds the one a millisecond before `from`. */
function selectRawRange(of: Selector, from: Millis, to: Millis): Expression {
  return { kind: "range", of, length: to - from, offset: 1 };
}

/** The samples from `start` until before `end`. A series without any is dropped. */
function clipSeries(series: SampleSeries, start: Millis, end: Millis): readonly RawSeries[] {
  const histograms = series.histograms.filter(({ time }) => time >= start && time < end);
  const [first, last] = [findFirstAtOrAfter(series.times, start), findFirstAtOrAfter(series.times, end)];
  if (first === last && histograms.length === 0) return [];
  const times = series.times.subarray(first, last);
  const values = series.values.subarray(first, last);
  return [{ labels: series.labels, times, values, histograms }];
}

/** The greatest value of the first series; 0 if there is none. */
function findGreatestValue([first]: readonly SampleSeries[]): number {
  return first === undefined ? 0 : Math.max(0, ...first.values);
}

// ---- Estimates ---------------------------------------------------------------------------------------------------

async function estimateSeries(
  { client, edge, sizes, counts, signal }: ReaderState,
  selector: Selector,
  by: readonly string[] | undefined,
  buckets: Buckets,
  limit: number,
): Promise<number> {
  const key = printExpression(by === undefined ? selector : aggregate("group", by, selector));
  const known = sizes.get(key);
  if (known !== undefined && known * 2 * buckets.count <= limit) return known;
  const length = buckets.step * buckets.count;
  const longestStep = Math.min(Math.floor(length / estimationTimes), longestRange);
  const step = longestStep < second ? longestStep : longestStep - (longestStep % second);
  if (step < 2) return Number.NaN;
  // The windows lie inside the range, so that every counted series is part of the answer.
  const inside = selectRange(selector, edge, { from: Math.min(step, 300_000), to: 1 });
  const living = call("last_over_time", inside);
  const of = by === undefined ? living : aggregate("group", by, living);
  const times = { start: buckets.start + step, end: buckets.start + estimationTimes * step, step };
  const countKey = `${key} ${times.start} ${times.end}`;
  const counted =
    counts.get(countKey) ?? client.query(aggregate("count", [], of), times, collectSeries, signal);
  counts.set(countKey, counted);
  const size = findGreatestValue(await counted);
  sizes.set(key, size);
  if (size * buckets.count > limit) throw createTooManyPointsError(limit, size * buckets.count);
  return size;
}

async function dropPresenceMatchers(
  state: ReaderState,
  selector: Selector,
  buckets: Buckets,
): ReturnType<SeriesReader["dropPresenceMatchers"]> {
  const matchesDropped = (labels: Labels) => hasLabels(selector, labels);
  const relaxed = stripPresenceMatchers(selector);
  if (relaxed.matchers.length === selector.matchers.length) return { selector, matchesDropped };
  const [strictCount, relaxedCount] = await Promise.all(
    [selector, relaxed].map((one) =>
      estimateSeries(state, one, undefined, buckets, Number.POSITIVE_INFINITY),
    ),
  );
  return { selector: strictCount === relaxedCount ? relaxed : selector, matchesDropped };
}

// ---- Pieces and labels -------------------------------------------------------------------------------------------

/** Joins the pieces of each series, which follow one another. */
export async function joinByKey(pieces: readonly RawSeries[]): Promise<readonly RawSeries[]> {
  const byKey = await groupInTurns(pieces, ({ labels }) => formatSeriesKey(labels));
  const joined: RawSeries[] = [];
  await visitInTurns(byKey.values(), (own) => joined.push(joinPieces(own)));
  return joined;
}

function joinPieces(own: readonly RawSeries[]): RawSeries {
  const first = requireFirst(own);
  if (own.length === 1) return first;
  const histograms = own.flatMap((piece) => piece.histograms);
  return { labels: first.labels, ...joinSamples(own), histograms };
}

/** Runs a few at a time and returns the results in order. After a failure no other is started. */
export function runConcurrent<T, R>(
  items: readonly T[],
  run: (item: T) => Promise<R>,
): Promise<readonly R[]> {
  return mapConcurrent(items, concurrentQueries, run, new AbortController().signal);
}

/** Identifies a series within its metric. */
export function formatSeriesKey(labels: Labels): string {
  return JSON.stringify(
    Object.entries(labels)
      .filter(([label]) => !metadataLabels.includes(label))
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}

/** `""` if the series has no such label: to Prometheus both are the same. */
export function readLabel(labels: Labels, label: string): string {
  const value = labels[label];
  // A property of every object, such as `constructor`, is no string.
  return typeof value === "string" ? value : "";
}
