// Surveys the series of a counter: the last sample of each bucket, and which buckets need more than that. A bucket is a
// suspect if it may hold a restart or a sample that is not finite; it has a gap if its first sample is needed as well.

import { groupInTurns, mapInTurns, visitInTurns } from "../../../src/core/async/turns.ts";
import { readNumber, requireAt, requireFirst, requireKey } from "../../../src/core/collections.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import { findNewestBucket, selectGrowingBuckets } from "../../../src/metrics/newest-buckets.ts";
import type { CounterSamples } from "../../../src/metrics/samples.ts";
import {
  binary,
  call,
  combineMetrics,
  type Expression,
  markNonFinite,
  metricName,
  number,
  readMetricName,
  type Selector,
} from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import {
  formatHistogramKey,
  formatNumericKey,
  groupDistinct,
  groupSpellings,
  hasBoundLabel,
  joinSpellings,
} from "./bound-spellings.ts";
import { findMarks, type Mark } from "./mark-search.ts";
import { buildRestartsQuery } from "./restart-search.ts";
import { narrowToSeries } from "./series-narrowing.ts";
import {
  formatSeriesKey,
  type GridSeries,
  type RawSeries,
  readLabel,
  roundUpToSeconds,
  runConcurrent,
  type SeriesReader,
  toGridValue,
} from "./series-reader.ts";
import type { SeriesStartQuery } from "./series-start.ts";
import { readWindow } from "./window-reader.ts";

export interface CounterQuery extends SeriesStartQuery {
  /** The first sample of each bucket is needed beside the last. */
  readonly needsFirst: boolean;
  /** A value below the one before shows a restart. Not so for a sum of observations, nor for a gauge. */
  readonly canRestart: boolean;
  /** Present where growth may be kept for other ranges. */
  readonly unkept?: UnkeptBuckets | undefined;
}

/** Takes note of the buckets whose values may not be kept. */
export interface UnkeptBuckets {
  /** How far before its range a request looks for the sample before. */
  readonly lookBack: Millis;
  /** Not that of the bucket that begins then. */
  readonly add: (bucketStart: Millis) => void;
  /** No bucket's. */
  readonly addAll: () => void;
}

/** A series with its buckets, in all spellings of its bound together. */
export interface SurveyedSeries {
  /** Its `formatNumericKey`. */
  readonly key: string;
  /** Of the spelling with the newest sample. */
  readonly labels: Labels;
  /** The labels of each spelling, one at least. */
  readonly spellings: readonly Labels[];
  /** The last value of each bucket; NaN where it has none, Infinity where it is not finite. */
  readonly last: Float64Array;
  /** The indices of the buckets that have to be read raw. */
  readonly suspects: Set<number>;
  /** Buckets whose first sample is needed, because the one before lies too far back to be covered by the survey. */
  readonly gaps: Set<number>;
  /** The last finite value before the buckets, as far as it is known. */
  base: number | undefined;
  /** How long before the buckets it is at most, as far as that is known. */
  baseAge: Millis | undefined;
  baseline: CounterSamples["baseline"];
}

/** A query with the series that it found. */
export interface SurveyedQuery {
  readonly query: CounterQuery;
  series: readonly SurveyedSeries[];
}

type RelaxedSelector = Awaited<ReturnType<SeriesReader["dropPresenceMatchers"]>>;

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
  const reach = calculateReach(buckets);
  const [lasts, bases] = await Promise.all([
    readLastValues(reader, relaxed, buckets, limit),
    lookBack === undefined
      ? []
      : readLastBefore(reader, relaxed.selector, buckets.start, Math.min(reach, lookBack)),
  ]);
  // Afterwards: of the samples that the last values are of, no restart may be missing.
  const marked = isHidden ? [] : await findRestartsAndNonFinite(reader, relaxed, query);
  const groups = await groupDistinct(reader, lasts);
  const baseByKey = await indexBases(
    reader,
    query,
    bases.filter(({ labels }) => relaxed.matchesDropped(labels)),
    reach,
  );
  const marksByKey = await indexMarks(marked);
  return mapInTurns(groups, ([key, spellings]): SurveyedSeries => {
    const marks = isHidden ? "all" : (marksByKey.get(key) ?? noMarks);
    return surveyBuckets(key, joinGrids(spellings), baseByKey.get(key), marks, query);
  });
}

const noMarks: ReadonlySet<number> = new Set();

/** The marked buckets by `formatNumericKey`. */
async function indexMarks(marks: readonly Mark[]): Promise<ReadonlyMap<string, ReadonlySet<number>>> {
  const byKey = new Map<string, Set<number>>();
  // Marks of one series share their labels, and the key is formatted once.
  const byLabels = new Map<Labels, Set<number>>();
  const findBuckets = (labels: Labels) => {
    const key = formatNumericKey(labels);
    const buckets = byKey.get(key) ?? new Set();
    byKey.set(key, buckets);
    byLabels.set(labels, buckets);
    return buckets;
  };
  await visitInTurns(marks, ({ labels, bucket }) =>
    (byLabels.get(labels) ?? findBuckets(labels)).add(bucket),
  );
  return byKey;
}

/** The values of one series in all its spellings. */
interface JoinedGrid {
  readonly labels: Labels;
  readonly spellings: readonly Labels[];
  readonly values: Float64Array;
  /** The index of the spelling that has the value of a bucket, or `mixed`; absent if there is one spelling. */
  readonly sources?: Float64Array;
}

/** Several spellings have samples in the bucket: only raw samples show which of them came last. */
const mixed = -1;

function joinGrids(series: readonly GridSeries[]): JoinedGrid {
  const spellings = series.map(({ labels }) => labels);
  const { labels, values: first } = requireFirst(series);
  if (series.length === 1) return { labels, spellings, values: first };
  const values = first.slice();
  const sources = new Float64Array(values.length);
  let newest = 0;
  for (let bucket = 0; bucket < values.length; bucket++) {
    for (let source = 1; source < series.length; source++) {
      const value = readNumber(requireAt(series, source).values, bucket);
      if (Number.isNaN(value)) continue;
      const isFirst = Number.isNaN(values[bucket]);
      values[bucket] = isFirst ? value : Math.max(value, readNumber(values, bucket));
      sources[bucket] = isFirst ? source : mixed;
    }
    if (!Number.isNaN(values[bucket])) newest = Math.max(0, readNumber(sources, bucket));
  }
  return { labels: requireAt(spellings, newest), spellings, values, sources };
}

/** `marks` are the suspect buckets; `all` if the source hides restarts. */
function surveyBuckets(
  key: string,
  { labels, spellings, values, sources }: JoinedGrid,
  base: SeriesBase | undefined,
  marks: ReadonlySet<number> | "all",
  { buckets, lookBack, canRestart }: CounterQuery,
): SurveyedSeries {
  const { start, step } = buckets;
  const reach = calculateReach(buckets);
  const suspects = new Set<number>();
  const gaps = new Set<number>();
  let before = base?.value;
  // The earliest time that the sample before may have.
  let beforeAt = start - reach;
  let beforeSource = base === undefined ? 0 : findSpelling(spellings, base.labels);
  for (let bucket = 0; bucket < values.length; bucket++) {
    const value = readNumber(values, bucket);
    if (Number.isNaN(value)) continue;
    const at = start + bucket * step;
    const source = sources === undefined ? 0 : readNumber(sources, bucket);
    const fell = canRestart && before !== undefined && value < before;
    // The search for restarts does not see one between two spellings.
    const isUncovered = at - beforeAt > reach || source !== beforeSource;
    if (fell || source === mixed || !Number.isFinite(value) || marks === "all" || marks.has(bucket))
      suspects.add(bucket);
    else if (before === undefined ? lookBack !== undefined : canRestart && isUncovered) gaps.add(bucket);
    before = value;
    beforeAt = at;
    beforeSource = source;
  }
  return {
    key,
    labels,
    spellings,
    last: values,
    suspects,
    gaps,
    base: base?.value,
    baseAge: reach,
    baseline: "own",
  };
}

/** The index of the spelling; `mixed` if it is another one. */
function findSpelling(spellings: readonly Labels[], labels: Labels): number {
  // Most series have no bound, and so no other spelling.
  if (!hasBoundLabel(labels)) return 0;
  const key = formatSeriesKey(labels);
  return spellings.findIndex((one) => formatSeriesKey(one) === key);
}

/**
 * Each bucket that holds a sample that is not finite, or where a restart lies in it or in the reach
 * before it. (A sample before the bucket that is not finite does not matter: as the last of its bucket it shows.)
 */
async function findRestartsAndNonFinite(
  reader: SeriesReader,
  { selector, matchesDropped }: RelaxedSelector,
  { buckets, canRestart, limit }: CounterQuery,
): Promise<readonly Mark[]> {
  const reach = calculateReach(buckets);
  const query = { selector, accepts: matchesDropped, limit };
  // Two questions, not one: a server takes long to match the series of two sides at each time.
  const found = await Promise.all([
    canRestart
      ? findMarks(
          reader,
          { ...query, build: (of, length) => buildRestartsQuery(reader, of, length, reach) },
          buckets,
        )
      : [],
    findMarks(reader, { ...query, build: (of, length) => buildNonFinite(reader, of, length) }, buckets),
  ]);
  return found.flat();
}

/** Where the window of this length has a sample that is not finite. */
function buildNonFinite(reader: SeriesReader, selector: Selector, length: Millis): Expression {
  // Left-closed ranges cannot express a window of 1 ms; one more millisecond does no harm.
  const samples = reader.selectRange(selector, { from: Math.max(2, length), to: 1 });
  return binary(markNonFinite(samples, reader.losesNaN), "!=", number(0));
}

/** Left-closed ranges (Prometheus < 3) cannot express a window of 1 ms, so buckets of 1 ms are read raw. */
async function readLastValues(
  reader: SeriesReader,
  { selector, matchesDropped }: RelaxedSelector,
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
  const last = (samples: Expression) => call("last_over_time", samples);
  return readWindow(reader, { selector, build: last, join: (_, later) => later }, start - length, start);
}

/** The last sample of a series before the buckets, with the labels of its spelling. */
interface SeriesBase {
  readonly labels: Labels;
  readonly value: number;
}

/**
 * The last sample of each series by `formatNumericKey`, if it is finite: `found` has the last one of each spelling within
 * `length` before the buckets. @throws {Refused} if two series have one key @throws {BackendError}
 */
export async function indexBases(
  reader: SeriesReader,
  query: SeriesStartQuery,
  found: readonly LabelledSamples[],
  length: Millis,
): Promise<ReadonlyMap<string, SeriesBase>> {
  const bases = new Map<string, SeriesBase>();
  const several: LabelledSamples[] = [];
  await visitInTurns(await groupDistinct(reader, found), ([key, spellings]) => {
    const { labels, values } = requireFirst(spellings);
    const value = values[0] ?? Number.NaN;
    if (spellings.length > 1) several.push(...spellings);
    else if (Number.isFinite(value)) bases.set(key, { labels, value });
  });
  if (several.length > 0) {
    for (const base of await readNewestSpellings(reader, query, several, length))
      bases.set(formatNumericKey(base.labels), base);
  }
  return bases;
}

/** In how many parts of the time before the buckets the newest spelling is looked for. */
const spellingCells = 60;

/** The last samples of series that have several spellings before the buckets. Left out are those that are not finite. */
async function readNewestSpellings(
  reader: SeriesReader,
  { selector, buckets, limit }: SeriesStartQuery,
  series: readonly LabelledSamples[],
  length: Millis,
): Promise<readonly SeriesBase[]> {
  const narrowed = narrowToSeries(
    selector,
    series.map(({ labels }) => labels),
  );
  const keys = new Set(series.map(({ labels }) => formatNumericKey(labels)));
  const step = roundUpToSeconds(length / spellingCells);
  const grid: Buckets = { start: buckets.start - step * spellingCells, step, count: spellingCells };
  const samples = reader.selectRange(narrowed, { from: step, to: 1 });
  const found = await reader.readGrid(call("last_over_time", samples), grid, Number.POSITIVE_INFINITY);
  const bases: SeriesBase[] = [];
  const open: { readonly key: string; readonly cell: number }[] = [];
  for (const [key, spellings] of await groupSpellings(found)) {
    if (!keys.has(key)) continue;
    const cells = spellings.map(({ values }) => values.findLastIndex((value) => !Number.isNaN(value)));
    const cell = Math.max(...cells);
    const newest = spellings.filter((_, index) => cells[index] === cell);
    const { labels, values } = requireFirst(newest);
    const value = readNumber(values, cell);
    if (newest.length > 1) open.push({ key, cell });
    else if (Number.isFinite(value)) bases.push({ labels, value });
  }
  const inCells = await runConcurrent([...Map.groupBy(open, ({ cell }) => cell)], async ([cell, ended]) => {
    const from = grid.start + cell * step;
    const own = new Set(ended.map(({ key }) => key));
    const raw = await joinSpellings(await reader.readRaw(narrowed, from, from + step, limit));
    return raw.flatMap(({ labels, values }) => {
      const value = values.at(-1) ?? Number.NaN;
      return own.has(formatNumericKey(labels)) && Number.isFinite(value) ? [{ labels, value }] : [];
    });
  });
  return [...bases, ...inCells.flat()];
}

// ---- The newest buckets of several parts --------------------------------------------------------------------------

/**
 * A mean needs sum and count of the same samples, but each survey may see others in buckets that still grow. So the newest buckets
 * are read once more, of all parts by one query. What the surveys have not seen is read raw.
 */
export async function readNewestTogether(
  reader: SeriesReader,
  parts: readonly SurveyedQuery[],
): Promise<void> {
  const newest = findNewestSample(parts);
  // Of a bucket of one millisecond there is one sample. Where restarts are hidden, all is read raw.
  if (!hasSum(parts) || newest < 0 || requireFirst(parts).query.buckets.step === 1 || reader.hidesRestarts)
    return;
  const { buckets } = requireFirst(parts).query;
  const { first, buckets: span } = selectGrowingBuckets(buckets, newest);
  const partByName = new Map(parts.map((part) => [readMetricName(part.query.metric), part]));
  const lasts = new Map<string, Expression>();
  for (const [name, { query }] of partByName) {
    const { selector } = await reader.dropPresenceMatchers(query.selector, query.buckets);
    lasts.set(name, call("last_over_time", reader.selectRange(selector, { from: buckets.step, to: 1 })));
  }
  const all = combineMetrics([...lasts.keys()], ({ value }) => requireKey(lasts, value));
  const found = await reader.readGrid(all, span, Number.POSITIVE_INFINITY);
  const seriesByName = new Map(
    [...partByName].map(([name, { series }]) => [name, new Map(series.map((one) => [one.key, one]))]),
  );
  const unseen = new Set<string>();
  await visitInTurns(found, ({ labels, values }) => {
    const name = readLabel(labels, metricName);
    const series = seriesByName.get(name)?.get(formatNumericKey(labels));
    if (series === undefined) unseen.add(formatHistogramKey(labels));
    else replaceLastValues(series, requireKey(partByName, name).query, values, first);
  });
  // One of which a survey has not seen a part yet has appeared since. It is left to the next request.
  for (const part of unseen.size === 0 ? [] : parts) {
    const seen: SurveyedSeries[] = [];
    await visitInTurns(part.series, (one) => {
      if (!unseen.has(formatHistogramKey(one.labels))) seen.push(one);
    });
    part.series = seen;
  }
  await markNewRestarts(reader, requireFirst(parts), span, first);
  await shareNewSuspects(parts, first);
}

/** A count that has restarted since the survey, and has passed its value before, shows it by its marks alone. */
async function markNewRestarts(
  reader: SeriesReader,
  { query, series }: SurveyedQuery,
  span: Buckets,
  first: number,
): Promise<void> {
  const relaxed = await reader.dropPresenceMatchers(query.selector, query.buckets);
  const marks = await indexMarks(
    await findRestartsAndNonFinite(reader, relaxed, { ...query, buckets: span }),
  );
  for (const { key, last, suspects } of series)
    for (const bucket of marks.get(key) ?? noMarks)
      if (!Number.isNaN(last[first + bucket])) suspects.add(first + bucket);
}

/** Replaces the last values from the bucket `first` on. */
function replaceLastValues(
  { last, spellings, suspects }: SurveyedSeries,
  { canRestart }: CounterQuery,
  values: Float64Array,
  first: number,
): void {
  for (const [at, value] of values.entries()) {
    if (Number.isNaN(value)) continue;
    const before = readNumber(last, first + at);
    const isUnseen = spellings.length > 1 || Number.isNaN(before) || !Number.isFinite(value);
    if (isUnseen || (canRestart && value < before)) suspects.add(first + at);
    last[first + at] = value;
  }
}

/** What is read raw of one part, from the bucket `first` on, is read raw of the others: their samples can be compared. */
async function shareNewSuspects(parts: readonly SurveyedQuery[], first: number): Promise<void> {
  const listNew = ({ suspects }: SurveyedSeries) => [...suspects].filter((bucket) => bucket >= first);
  const series = parts.flatMap((part) => part.series);
  // Nearly always there are none.
  if (!series.some((one) => listNew(one).length > 0)) return;
  const all = await groupInTurns(series, ({ labels }) => formatHistogramKey(labels));
  await visitInTurns(all.values(), (own) => {
    const shared = new Set(own.flatMap(listNew));
    for (const { last, suspects } of own)
      for (const bucket of shared) if (!Number.isNaN(last[bucket])) suspects.add(bucket);
  });
}

/** Whether sums of observations are read beside their count. */
export function hasSum(parts: readonly { readonly query: CounterQuery }[]): boolean {
  return parts.slice(1).some(({ query }) => !query.canRestart);
}

/** The last bucket with a sample; -1 if there is none. */
export function findNewestSample(parts: readonly SurveyedQuery[]): number {
  return findNewestBucket(parts.flatMap(({ series }) => series.map(({ last }) => last)));
}
