// Downsamples counters at the source without changing their growth. Without a restart the growth of a bucket depends only
// on its last sample and the last one before it, so one value per bucket and series is read. Raw samples are read of the
// few buckets with a restart or a sample that is not finite. The result are samples, from which `src/metrics/samples.ts`
// computes the answer: restarts, starts and sums are defined there alone.

import { mapInTurns, visitInTurns } from "../../../src/core/async/turns.ts";
import { readNumber, requireAt, requireFirst } from "../../../src/core/collections.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import { day, hour, type Millis, minute } from "../../../src/core/time.ts";
import {
  type CounterSamples,
  dropNonFinite,
  joinSamples,
  type Samples,
} from "../../../src/metrics/samples.ts";
import { call, type Selector } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { formatHistogramKey, formatNumericKey, groupSpellings, joinSpellings } from "./bound-spellings.ts";
import {
  type CounterQuery,
  findNewestSample,
  hasSum,
  indexBases,
  readLastBefore,
  readNewestTogether,
  type SurveyedQuery,
  type SurveyedSeries,
  surveyLastSamples,
  surveySeries,
} from "./bucket-survey.ts";
import { groupByBucket, groupIntoRuns, type SuspectBucket, sampleInterval } from "./raw-runs.ts";
import { chunkSeries, narrowToSeries } from "./series-narrowing.ts";
import {
  formatSeriesKey,
  joinByKey,
  type RawSeries,
  runConcurrent,
  type SeriesReader,
} from "./series-reader.ts";
import { classifySeriesStarts, narrowToSpellings } from "./series-start.ts";
import { noteLookBackGaps, notePartGaps } from "./unkept-buckets.ts";

/** One series; the answer from `samples` is the same as from its raw samples. */
export interface DownsampledSeries {
  readonly labels: Labels;
  readonly samples: CounterSamples;
}

/** @throws {Refused} if there is too much to read @throws {BackendError} */
export async function downsampleCounter(
  reader: SeriesReader,
  query: CounterQuery,
): Promise<readonly DownsampledSeries[]> {
  return requireFirst(await downsampleCounters(reader, [query]));
}

/**
 * The parts of histograms, in the same buckets, each query's in its place. A restart of the first one, which counts all
 * observations, is a restart of the others with its labels. @throws {Refused} if there is too much to read @throws {BackendError}
 */
export async function downsampleCounters(
  reader: SeriesReader,
  queries: readonly CounterQuery[],
): Promise<readonly (readonly DownsampledSeries[])[]> {
  const parts = await Promise.all(
    queries.map(
      async (query): Promise<SurveyedQuery> => ({ query, series: await surveySeries(reader, query) }),
    ),
  );
  await Promise.all([
    readNewestTogether(reader, parts),
    ...parts.map((part) => findSeriesStarts(reader, part)),
  ]);
  await noteUnkept(parts);
  return completeSamples(reader, parts);
}

async function noteUnkept([counted, ...others]: readonly SurveyedQuery[]): Promise<void> {
  if (counted?.query.unkept === undefined) return;
  const { unkept, buckets } = counted.query;
  for (const { series } of [counted, ...others]) await noteLookBackGaps(unkept, buckets, series);
  for (const { series } of others) await notePartGaps(unkept, buckets, counted.series, series);
}

/** Reads what the surveys left open and puts the samples together. */
async function completeSamples(
  reader: SeriesReader,
  parts: readonly SurveyedQuery[],
): Promise<readonly (readonly DownsampledSeries[])[]> {
  await shareSuspects(parts);
  for (const { query, series } of parts)
    await visitInTurns(series, query.canRestart ? suspectNewestGap : turnGapsIntoSuspects);
  const [firsts, raws] = await Promise.all([
    Promise.all(parts.map((part) => readFirstSamples(reader, part))),
    refineSuspectBuckets(reader, parts),
  ]);
  return Promise.all(
    parts.map(({ query, series }, at) =>
      mapInTurns(series, (one) =>
        assembleSamples(query, one, requireAt(firsts, at).get(one.key), requireAt(raws, at).get(one.key)),
      ),
    ),
  );
}

/** The count of a histogram shows restarts of all its parts: where it is a suspect, they are. */
async function shareSuspects([counted, ...others]: readonly SurveyedQuery[]): Promise<void> {
  if (counted === undefined || others.length === 0) return;
  const restarted = counted.series.filter(({ suspects }) => suspects.size > 0);
  if (restarted.length === 0) return;
  const restarts = new Map<string, ReadonlySet<number>>();
  await visitInTurns(restarted, ({ labels, suspects }) => restarts.set(formatHistogramKey(labels), suspects));
  for (const { series } of others)
    await visitInTurns(series, ({ labels, last, suspects }) => {
      for (const bucket of restarts.get(formatHistogramKey(labels)) ?? [])
        if (!Number.isNaN(last[bucket])) suspects.add(bucket);
    });
}

/** Its first sample is asked for later, and would be its least no more where it has restarted since. */
function suspectNewestGap({ last, gaps, suspects }: SurveyedSeries): void {
  const newest = last.findLastIndex((value) => !Number.isNaN(value));
  if (gaps.delete(newest)) suspects.add(newest);
}

/** The first sample of what may fall is not its least, so it has to be read raw. */
function turnGapsIntoSuspects({ gaps, suspects, base, baseline }: SurveyedSeries): void {
  if (base === undefined && baseline === "own") for (const bucket of gaps) suspects.add(bucket);
  gaps.clear();
}

interface SampleList {
  readonly times: Millis[];
  readonly values: number[];
}

function assembleSamples(
  { buckets: { start, step }, needsFirst }: CounterQuery,
  { labels, last, suspects, gaps, base, baseline }: SurveyedSeries,
  first: Float64Array | undefined,
  raw: Samples | undefined,
): DownsampledSeries {
  const list: SampleList = { times: [], values: [] };
  if (base !== undefined) appendSample(list, start - 1, base);
  let nextRaw = 0;
  for (let bucket = 0; bucket < last.length; bucket++) {
    const value = readNumber(last, bucket);
    if (Number.isNaN(value)) continue;
    const from = start + bucket * step;
    if (suspects.has(bucket)) {
      if (raw !== undefined) nextRaw = appendRawSamples(list, raw, nextRaw, from, from + step);
      continue;
    }
    const earliest = needsFirst || gaps.has(bucket) ? first?.[bucket] : undefined;
    if (earliest !== undefined && Number.isFinite(earliest)) appendSample(list, from, earliest);
    appendSample(list, from + step - 1, value);
  }
  const samples = { times: Float64Array.from(list.times), values: Float64Array.from(list.values), baseline };
  return { labels, samples };
}

function appendSample({ times, values }: SampleList, time: Millis, value: number): void {
  times.push(time);
  values.push(value);
}

/** Appends the samples with `from <= time < to`, looked for from the index `next` on. Returns the index after them. */
function appendRawSamples(list: SampleList, raw: Samples, next: number, from: Millis, to: Millis): number {
  let index = next;
  while (index < raw.times.length && readNumber(raw.times, index) < from) index++;
  for (; index < raw.times.length && readNumber(raw.times, index) < to; index++) {
    appendSample(list, readNumber(raw.times, index), readNumber(raw.values, index));
  }
  return index;
}

/**
 * The first samples of buckets, by series key. Without a restart in the bucket that is the least one:
 * `first_over_time` does not exist everywhere.
 */
async function readFirstSamples(
  reader: SeriesReader,
  { query: { selector, buckets, needsFirst }, series }: SurveyedQuery,
): Promise<ReadonlyMap<string, Float64Array>> {
  // A bucket of one millisecond has one sample, which is its first.
  const open = buckets.step === 1 ? [] : series.filter(({ gaps }) => needsFirst || gaps.size > 0);
  if (open.length === 0) return new Map();
  const narrowed = needsFirst ? selector : narrowToSeries(selector, listSpellings(open));
  const least = call("min_over_time", reader.selectRange(narrowed, { from: buckets.step, to: 1 }));
  const found = await reader.readGrid(least, buckets, Number.POSITIVE_INFINITY);
  const firsts = new Map<string, Float64Array>();
  await visitInTurns(found, ({ labels, values }) => {
    const key = formatNumericKey(labels);
    const other = firsts.get(key);
    // Buckets with samples of several spellings are suspects, so that there is nothing to compare.
    const own = other?.map((value, bucket) => (Number.isNaN(value) ? readNumber(values, bucket) : value));
    firsts.set(key, own ?? values);
  });
  return firsts;
}

function listSpellings(series: readonly SurveyedSeries[]): readonly Labels[] {
  return series.flatMap(({ spellings }) => spellings);
}

function listLabels(series: readonly { readonly labels: Labels }[]): readonly Labels[] {
  return series.map(({ labels }) => labels);
}

// ---- Suspect buckets ---------------------------------------------------------------------------------------------

/** Steps of the grids that a wide bucket is surveyed in before raw samples are read, widest first. */
const refinementSteps: readonly Millis[] = [365 * day, 30 * day, day, hour, 5 * minute];
/** So many raw samples are read at once, as estimated. */
const maxRawSamples = 50_000;

type SeriesPiece = { readonly labels: Labels; readonly samples: Samples };

/**
 * The samples of the suspect buckets, by query and series. A restart affects a moment and not the whole bucket: a wide
 * bucket is surveyed again on a finer grid, and so are the suspects of that, until the rest can be read raw.
 */
async function refineSuspectBuckets(
  reader: SeriesReader,
  parts: readonly SurveyedQuery[],
): Promise<readonly ReadonlyMap<string, Samples>[]> {
  const [first] = parts;
  if (first === undefined) return [];
  const { start, step } = first.query.buckets;
  const suspects = parts.flatMap(({ series }, part) =>
    series.flatMap(({ spellings, suspects }) =>
      spellings.flatMap((labels) => [...suspects].map((bucket) => ({ bucket, labels, part }))),
    ),
  );
  const finer = reader.hidesRestarts ? undefined : refinementSteps.find((length) => length * 3 <= step);
  // Where the finer step does not divide the bucket, its last part would reach into the next bucket.
  const joinsBuckets = finer === undefined || step % finer === 0;
  const runs = joinsBuckets ? groupIntoRuns(suspects, step) : groupByBucket(suspects);
  const newest = hasSum(parts) ? findNewestSample(parts) : Number.POSITIVE_INFINITY;
  const found = await runConcurrent(runs, ({ from, to, members }) =>
    refineRun(reader, parts, members, {
      from: start + from * step,
      to: start + (to + 1) * step,
      finer,
      openFrom: to >= newest ? start + newest * step : undefined,
    }),
  );
  return Promise.all(
    parts.map(async (_, at) => {
      const pieces = await groupSpellings(found.flatMap((ofRun) => requireAt(ofRun, at)));
      const join = ([key, list]: readonly [string, readonly SeriesPiece[]]) =>
        [key, joinSamples(list.map(({ samples }) => samples))] as const;
      return new Map(await mapInTurns(pieces, join));
    }),
  );
}

interface RefinedRange {
  readonly from: Millis;
  readonly to: Millis;
  readonly finer: Millis | undefined;
  /** Where the newest bucket begins, if sums in it have to be of the samples that their counts are of. */
  readonly openFrom: Millis | undefined;
}

/** The samples of the suspects from `from` until before `to`, by query: read raw if they are few, and otherwise on a finer grid. */
async function refineRun(
  reader: SeriesReader,
  parts: readonly SurveyedQuery[],
  members: readonly (SuspectBucket & { readonly part: number })[],
  { from, to, finer, openFrom }: RefinedRange,
): Promise<readonly (readonly SeriesPiece[])[]> {
  const narrowed = parts.map((part, at): NarrowedQuery => {
    const labels = new Set(members.filter((one) => one.part === at).map((one) => one.labels));
    return { query: part.query, labels: [...labels], seriesCount: part.series.length };
  });
  const seriesCount = narrowed.reduce((sum, { labels }) => sum + labels.length, 0);
  if (finer === undefined || (seriesCount * (to - from)) / sampleInterval <= maxRawSamples) {
    return openFrom === undefined
      ? Promise.all(narrowed.map((part) => readRawPieces(reader, part, from, to)))
      : readOpenPieces(reader, narrowed, { from, to, openFrom });
  }
  // What the finer steps leave over at the end is a bucket of its own.
  const count = Math.floor((to - from) / finer);
  const rest = from + count * finer;
  const grids = [{ start: from, step: finer, count }];
  if (rest < to) grids.push({ start: rest, step: to - rest, count: 1 });
  const pieces = await runConcurrent(grids, (grid) =>
    downsampleFinerGrid(reader, narrowed, grid, openFrom !== undefined),
  );
  return parts.map((_, at) => pieces.flatMap((ofGrid) => requireAt(ofGrid, at)));
}

/** Some of the series of a query. */
interface NarrowedQuery {
  readonly query: CounterQuery;
  readonly labels: readonly Labels[];
  /** How many series the query has in all. */
  readonly seriesCount: number;
}

/** A few series of many are read in at most so many chunks, so that others need not be read. */
const maxSeriesChunks = 16;

/**
 * Raw samples of counts, and then of sums. A count that has a new sample after that may have got it before the sum was read,
 * which is then cut where its count ends.
 */
async function readOpenPieces(
  reader: SeriesReader,
  [counted, ...others]: readonly NarrowedQuery[],
  { from, to, openFrom }: { readonly from: Millis; readonly to: Millis; readonly openFrom: Millis },
): Promise<readonly (readonly SeriesPiece[])[]> {
  if (counted === undefined) return [];
  const counts = await readRawPieces(reader, counted, from, to);
  const read = await Promise.all(others.map((part) => readRawPieces(reader, part, from, to)));
  const ends = indexEnds(counts);
  const newer = indexEnds(await readRawPieces(reader, counted, Math.max(from, openFrom), to));
  const cut = (piece: SeriesPiece): SeriesPiece => {
    const key = formatHistogramKey(piece.labels);
    const [end = openFrom - 1, later = end] = [ends.get(key), newer.get(key)];
    const last = Math.max(end, openFrom - 1);
    return later > last ? { ...piece, samples: takeUntil(piece.samples, last) } : piece;
  };
  return [counts, ...read.map((pieces) => pieces.map(cut))];
}

/** The time of the last sample of each histogram. */
function indexEnds(pieces: readonly SeriesPiece[]): ReadonlyMap<string, Millis> {
  return new Map(
    pieces.flatMap(({ labels, samples: { times } }) => {
      const end = times.at(-1);
      return end === undefined ? [] : [[formatHistogramKey(labels), end] as const];
    }),
  );
}

function takeUntil({ times, values }: Samples, last: Millis): Samples {
  const length = times.findLastIndex((time) => time <= last) + 1;
  return { times: times.slice(0, length), values: values.slice(0, length) };
}

async function readRawPieces(
  reader: SeriesReader,
  { query: { selector, limit }, labels, seriesCount }: NarrowedQuery,
  from: Millis,
  to: Millis,
): Promise<readonly SeriesPiece[]> {
  if (labels.length === 0) return [];
  const chunks = labels.length * 4 > seriesCount ? [labels] : chunkSeries(labels);
  const pieces = await runConcurrent(chunks.length > maxSeriesChunks ? [labels] : chunks, async (chunk) => {
    const keys = new Set(chunk.map(formatSeriesKey));
    const found = await reader.readRaw(narrowToSeries(selector, chunk), from, to, limit);
    return found.flatMap((series) =>
      keys.has(formatSeriesKey(series.labels)) ? [{ labels: series.labels, ...dropNonFinite(series) }] : [],
    );
  });
  return (await joinSpellings(pieces.flat())).map(({ labels, ...samples }) => ({ labels, samples }));
}

/** The samples of the series within a finer grid. Its first one counts whatever came before it. An open one may still grow. */
async function downsampleFinerGrid(
  reader: SeriesReader,
  narrowed: readonly NarrowedQuery[],
  buckets: Buckets,
  isOpen: boolean,
): Promise<readonly (readonly SeriesPiece[])[]> {
  const parts = await Promise.all(
    narrowed.map(async ({ query, labels }): Promise<SurveyedQuery> => {
      const selector = narrowToSeries(query.selector, labels);
      const finer: CounterQuery = { ...query, selector, buckets, lookBack: 0 };
      const keys = new Set(labels.map(formatNumericKey));
      if (keys.size === 0) return { query: finer, series: [] };
      const series = await surveyLastSamples(reader, finer);
      return { query: finer, series: series.filter(({ key }) => keys.has(key)) };
    }),
  );
  if (isOpen) await readNewestTogether(reader, parts);
  return completeSamples(reader, parts);
}

/**
 * The finite raw samples of some series in some buckets, and maybe in buckets near by. Returns each series once.
 * @throws {Refused} over `limit` samples @throws {BackendError}
 */
export async function readRawBuckets(
  reader: SeriesReader,
  selector: Selector,
  suspects: readonly SuspectBucket[],
  { start, step }: Buckets,
  limit: number,
): Promise<readonly RawSeries[]> {
  const read = await runConcurrent(groupIntoRuns(suspects, step), ({ from, to, members }) => {
    const narrowed = narrowToSeries(selector, listLabels(members));
    return reader.readRaw(narrowed, start + from * step, start + (to + 1) * step, limit);
  });
  const joined = await joinByKey(read.flat());
  return joined.map((series) => ({ ...series, ...dropNonFinite(series) }));
}

// ---- Before the buckets ------------------------------------------------------------------------------------------

/** Finds the sample before the buckets, or how the series started, for those without a sample shortly before. */
async function findSeriesStarts(reader: SeriesReader, { query, series }: SurveyedQuery): Promise<void> {
  const { buckets, lookBack, limit } = query;
  if (lookBack === undefined) return;
  let unknown = series.filter(({ base }) => base === undefined);
  for (const length of listLookBacks(query, lookBack)) {
    if (unknown.length === 0) return;
    const narrowed = narrowToSpellings(query, listLabels(unknown));
    const lasts = await readLastBefore(reader, narrowed, buckets.start, length);
    const far = await indexBases(reader, { ...query, selector: narrowed }, lasts, length);
    for (const one of unknown) {
      one.base = far.get(one.key)?.value;
      one.baseAge = length;
    }
    unknown = unknown.filter(({ base }) => base === undefined);
  }
  const { existing, newSeries } = await classifySeriesStarts(
    reader,
    [query],
    unknown,
    unknown.length < series.length,
  );
  for (const one of unknown) if (newSeries.has(one.key)) one.baseline = "zero";
  // A series whose last sample is not finite may have a finite one before.
  const nonFinite = unknown.filter(({ key }) => existing.has(key));
  if (nonFinite.length === 0) return;
  const raw = await reader.readRaw(
    narrowToSpellings(query, listLabels(nonFinite)),
    buckets.start - lookBack,
    buckets.start,
    limit,
  );
  const finite = await joinSpellings(raw.map((one) => ({ ...one, ...dropNonFinite(one) })));
  const bases = new Map(finite.map(({ labels, values }) => [formatNumericKey(labels), values.at(-1)]));
  for (const one of nonFinite) {
    one.base = bases.get(one.key);
    one.baseAge = undefined;
  }
}

/** How far is looked back, in turn. Growth that may be kept needs to know how old the sample before is. */
function listLookBacks({ unkept }: CounterQuery, lookBack: Millis): readonly Millis[] {
  return unkept === undefined ? [lookBack] : [Math.min(lookBack, unkept.lookBack / 2), lookBack];
}
