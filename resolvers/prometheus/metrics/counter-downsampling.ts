// Thins the samples of counters at the source without changing what they have grown. Where a bucket holds no restart,
// all that its growth depends on is its last sample and the last one before it; so one value per bucket and series is
// read, and the raw samples of the few buckets that hold a restart, or a sample that is not a number. What comes out
// are samples, of which `src/metrics/samples.ts` makes the answer: births, restarts and sums are defined there alone.
import type { Buckets } from "../../../src/core/rows.ts";
import { day, hour, type Millis, minute } from "../../../src/core/time.ts";
import { type CounterSamples, dropNonFinite, type Samples } from "../../../src/metrics/samples.ts";
import { yieldToEventLoop } from "../../http/guard.ts";
import { binary, call, type Expression, markNonFinite, number, type Selector } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import {
  chunkSeries,
  formatNumericKey,
  formatSeriesKey,
  type GridSeries,
  indexByKey,
  joinPieces,
  joinSamples,
  narrowToSeries,
  type RawSeries,
  runConcurrent,
  type SeriesReader,
  toGridValue,
} from "./series-reader.ts";
import {
  classifySeriesStarts,
  formatAlternateKey,
  listSpellings,
  type SeriesStartQuery,
} from "./series-start.ts";

export interface CounterQuery extends SeriesStartQuery {
  /** The first sample of each bucket is needed beside the last. */
  readonly needsFirst: boolean;
  /** A value below the one before shows a restart. Not so for a sum of observations, nor for a gauge. */
  readonly canRestart: boolean;
}

/** One series; `samples` give what its raw samples would have given. */
export interface DownsampledSeries {
  readonly labels: Labels;
  readonly samples: CounterSamples;
}

/** A series with its buckets; the indices in `suspects` have to be read raw. */
interface SurveyedSeries {
  readonly labels: Labels;
  readonly last: Float64Array;
  readonly suspects: Set<number>;
  /** Buckets whose first sample is needed, because the one before lies too far back to be covered by the survey. */
  readonly gaps: Set<number>;
  base: number | undefined;
  birth: CounterSamples["baseline"];
}

/** How far back the sample before a bucket is looked for at first: nearly every series that lives has one there. */
function calculateReach({ step }: Buckets): Millis {
  // At least the bucket before, so that of two buckets in a row the later one's window holds the sample before it.
  return Math.max(step, 120_000);
}

export async function downsampleCounter(
  reader: SeriesReader,
  query: CounterQuery,
): Promise<readonly DownsampledSeries[]> {
  const [found = []] = await downsampleCounters(reader, [query]);
  return found;
}

/** The parts of histograms, in the same buckets; the first one's restarts are those of the others with its labels. */
export async function downsampleCounters(
  reader: SeriesReader,
  queries: readonly CounterQuery[],
): Promise<readonly (readonly DownsampledSeries[])[]> {
  const surveys = await Promise.all(queries.map((query) => surveySeries(reader, query)));
  await Promise.all(
    queries.map(async (query, at) => {
      if (query.lookBack !== undefined)
        await findSeriesStarts(reader, query, query.lookBack, surveys[at] ?? []);
    }),
  );
  return completeSamples(reader, queries, surveys);
}

/** Reads the last sample of each bucket and series, and where that is not enough to know. */
export async function surveySeries(
  reader: SeriesReader,
  query: CounterQuery,
): Promise<readonly SurveyedSeries[]> {
  await reader.estimateSeries(query.selector, undefined, query.buckets, query.limit);
  return surveyLastSamples(reader, query);
}

async function surveyLastSamples(
  reader: SeriesReader,
  query: CounterQuery,
): Promise<readonly SurveyedSeries[]> {
  const { selector, buckets, lookBack, canRestart: falls, limit } = query;
  const { start, step } = buckets;
  const reach = calculateReach(buckets);
  // Any bucket may hold a restart that the source does not show.
  const hidden = falls && reader.hidesRestarts;
  const lean = await reader.dropPresenceMatchers(selector, buckets);
  const [lasts, odds, bases] = await Promise.all([
    readLastValues(reader, lean, buckets, limit),
    hidden
      ? []
      : reader.readGrid(
          buildResetOrNonFinite(reader, lean.selector, buckets, falls),
          buckets,
          limit,
          lean.isMeant,
        ),
    lookBack === undefined ? [] : readLastBefore(reader, lean.selector, start, Math.min(reach, lookBack)),
  ]);
  await yieldToEventLoop();
  indexByKey(reader.backend, lasts);
  const baseByKey = indexFiniteByKey(
    reader,
    bases.filter(({ labels }) => lean.isMeant(labels)),
  );
  const oddByKey = new Map(odds.map(({ labels, values }) => [formatSeriesKey(labels), values]));
  const surveyed = lasts.map(({ labels, values }): SurveyedSeries => {
    const key = formatSeriesKey(labels);
    const odd = oddByKey.get(key);
    const suspects = new Set<number>();
    const gaps = new Set<number>();
    const base = baseByKey.get(key) ?? baseByKey.get(formatAlternateKey(labels));
    let before = base;
    // The time that the sample before has at the least.
    let beforeAt = start - reach;
    for (let bucket = 0; bucket < values.length; bucket++) {
      const value = values[bucket] ?? Number.NaN;
      if (Number.isNaN(value)) continue;
      const at = start + bucket * step;
      const uncovered = before === undefined ? lookBack !== undefined : falls && at - beforeAt > reach;
      if (hidden || !Number.isFinite(value) || !Number.isNaN(odd?.[bucket] ?? Number.NaN))
        suspects.add(bucket);
      else if (falls && before !== undefined && value < before) suspects.add(bucket);
      else if (uncovered) gaps.add(bucket);
      before = value;
      beforeAt = at;
    }
    return { labels, last: values, suspects, gaps, base, birth: "own" };
  });
  markSuccessions(surveyed);
  return surveyed;
}

/** Where a bucket has samples under two spellings of one number, only these tell which of them came later. */
function markSuccessions(surveyed: readonly SurveyedSeries[]): void {
  const numbered = surveyed.filter(({ labels }) => "le" in labels || "quantile" in labels);
  for (const twins of Map.groupBy(numbered, ({ labels }) => formatNumericKey(labels)).values()) {
    if (twins.length === 1) continue;
    const [one] = twins;
    for (let bucket = 0; bucket < (one?.last.length ?? 0); bucket++) {
      const sampled = twins.filter(({ last }) => !Number.isNaN(last[bucket]));
      if (sampled.length > 1) for (const { suspects } of sampled) suspects.add(bucket);
    }
  }
}

/**
 * Has a value, whichever, where the bucket holds a sample that is not finite, or a restart lies in it or in the reach
 * before it. (A sample before the bucket that is not finite is of no interest: as the last one of its bucket it shows.)
 */
function buildResetOrNonFinite(
  reader: SeriesReader,
  selector: Selector,
  buckets: Buckets,
  falls: boolean,
): Expression {
  // A closed edge has no window of one millisecond; the one before does no harm.
  const samples = reader.selectRange(selector, { from: Math.max(2, buckets.step), to: 1 });
  const infinite = markNonFinite(samples);
  if (!falls) return binary(infinite, "!=", number(0));
  const around = reader.selectRange(selector, { from: buckets.step + calculateReach(buckets), to: 1 });
  return binary(binary(call("resets", around), "+", infinite), "!=", number(0));
}

/** A window of one millisecond cannot be written for a closed edge. */
async function readLastValues(
  reader: SeriesReader,
  { selector, isMeant }: Awaited<ReturnType<SeriesReader["dropPresenceMatchers"]>>,
  buckets: Buckets,
  limit: number,
): Promise<readonly GridSeries[]> {
  const { start, step, count } = buckets;
  if (step > 1) {
    const last = call("last_over_time", reader.selectRange(selector, { from: step, to: 1 }));
    return reader.readGrid(last, buckets, limit, isMeant);
  }
  const raw = await reader.readRaw(selector, start, start + count, limit);
  return raw
    .filter(({ labels }) => isMeant(labels))
    .map(({ labels, times, values }) => {
      const last = new Float64Array(count).fill(Number.NaN);
      for (const [index, time] of times.entries()) last[time - start] = toGridValue(values[index]);
      return { labels, values: last };
    });
}

/** The last sample of each series from `length` before `start` until before it. */
async function readLastBefore(
  reader: SeriesReader,
  selector: Selector,
  start: Millis,
  length: Millis,
): Promise<readonly LabelledSamples[]> {
  if (length < 1) return [];
  if (length === 1) return reader.readRaw(selector, start - 1, start, Number.POSITIVE_INFINITY);
  return reader.readInstant(
    call("last_over_time", reader.selectRange(selector, { from: length, to: 1 })),
    start,
  );
}

function indexFiniteByKey(
  { backend }: SeriesReader,
  found: readonly LabelledSamples[],
): ReadonlyMap<string, number> {
  const values = [...indexByKey(backend, found)].map(([key, series]) => [key, series.values[0]] as const);
  return new Map(values.filter((entry): entry is [string, number] => Number.isFinite(entry[1])));
}

/** Reads what the surveys left open and puts the samples together. */
async function completeSamples(
  reader: SeriesReader,
  queries: readonly CounterQuery[],
  surveys: readonly (readonly SurveyedSeries[])[],
): Promise<readonly (readonly DownsampledSeries[])[]> {
  const [counted = [], ...others] = surveys;
  // A restart that the count shows is one of all parts, so that all are looked at closely where the count is.
  const restarts = new Map(counted.map(({ labels, suspects }) => [formatSeriesKey(labels), suspects]));
  for (const { labels, last, suspects } of others.flat()) {
    for (const bucket of restarts.get(formatHistogramKey(labels)) ?? [])
      if (!Number.isNaN(last[bucket])) suspects.add(bucket);
  }
  for (const [at, surveyed] of surveys.entries()) {
    for (const { gaps, suspects, base, birth } of queries[at]?.canRestart ? [] : surveyed) {
      // The first sample of what may fall is not its least.
      if (base === undefined && birth === "own") for (const bucket of gaps) suspects.add(bucket);
      gaps.clear();
    }
  }
  const [firsts, close] = await Promise.all([
    Promise.all(queries.map((query, at) => readFirstSamples(reader, query, surveys[at] ?? []))),
    refineSuspectBuckets(reader, queries, surveys),
  ]);
  await yieldToEventLoop();
  return queries.map((query, at) => {
    const [firstByKey, closeByKey] = [firsts[at], close[at]];
    return (surveys[at] ?? []).map((series) => {
      const key = formatSeriesKey(series.labels);
      return assembleSamples(query, series, firstByKey?.get(key), closeByKey?.get(key));
    });
  });
}

function assembleSamples(
  { buckets: { start, step }, needsFirst: firsts }: CounterQuery,
  { labels, last, suspects, gaps, base, birth }: SurveyedSeries,
  first: Float64Array | undefined,
  close: Samples | undefined,
): DownsampledSeries {
  const times: Millis[] = [];
  const values: number[] = [];
  if (base !== undefined) {
    times.push(start - 1);
    values.push(base);
  }
  let next = 0;
  for (let bucket = 0; bucket < last.length; bucket++) {
    const value = last[bucket] ?? Number.NaN;
    if (Number.isNaN(value)) continue;
    const from = start + bucket * step;
    if (suspects.has(bucket)) {
      while (close !== undefined && next < close.times.length && (close.times[next] ?? 0) < from) next++;
      for (; close !== undefined && next < close.times.length; next++) {
        const time = close.times[next] ?? 0;
        if (time >= from + step) break;
        times.push(time);
        values.push(close.values[next] ?? Number.NaN);
      }
      continue;
    }
    const earliest = firsts || gaps.has(bucket) ? first?.[bucket] : undefined;
    if (earliest !== undefined && Number.isFinite(earliest)) {
      times.push(from);
      values.push(earliest);
    }
    times.push(from + step - 1);
    values.push(value);
  }
  return {
    labels,
    samples: { times: Float64Array.from(times), values: Float64Array.from(values), baseline: birth },
  };
}

/** The key of the histogram that a series of buckets belongs to. */
export function formatHistogramKey(labels: Labels): string {
  const { le: _, ...rest } = labels;
  return formatSeriesKey(rest);
}

/** Without a restart in the bucket, its first sample is its least; `first_over_time` is not everywhere. */
async function readFirstSamples(
  reader: SeriesReader,
  { selector, buckets, needsFirst: firsts }: CounterQuery,
  surveyed: readonly SurveyedSeries[],
): Promise<ReadonlyMap<string, Float64Array>> {
  // A bucket of one millisecond has one sample, which is its first.
  const series = buckets.step === 1 ? [] : surveyed.filter(({ gaps }) => firsts || gaps.size > 0);
  if (series.length === 0) return new Map();
  const of = firsts
    ? selector
    : narrowToSeries(
        selector,
        series.map(({ labels }) => labels),
      );
  const least = call("min_over_time", reader.selectRange(of, { from: buckets.step, to: 1 }));
  const found = await reader.readGrid(least, buckets, Number.POSITIVE_INFINITY);
  return new Map(found.map(({ labels, values }) => [formatSeriesKey(labels), values]));
}

// ---- Suspects ----------------------------------------------------------------------------------------------------

/** Parts that a wide bucket is surveyed in before raw samples are read, widest first: some dozens or hundreds of them. */
const refinementSteps: readonly Millis[] = [365 * day, 30 * day, day, hour, 5 * minute];
/** So little is read raw at once, were there a sample in each second. */
const maxRawSamples = 50_000;

type LabelledSamples = Pick<RawSeries, "labels" | "values">;
type SuspectBucket = { readonly bucket: number; readonly labels: Labels };

/**
 * The samples of the suspect buckets, by query and series. A restart spoils a moment of a bucket and not all of it: a
 * wide one is surveyed anew in parts, and so are the suspect ones of these, until what is left can be read raw.
 */
async function refineSuspectBuckets(
  reader: SeriesReader,
  queries: readonly CounterQuery[],
  surveys: readonly (readonly SurveyedSeries[])[],
): Promise<readonly ReadonlyMap<string, Samples>[]> {
  const [{ buckets } = { buckets: { start: 0, step: 1, count: 0 } }] = queries;
  const { start, step, count } = buckets;
  const wanted = surveys.flatMap((surveyed, query) =>
    surveyed.flatMap(({ labels, suspects }) => [...suspects].map((bucket) => ({ bucket, labels, query }))),
  );
  const part = reader.hidesRestarts ? undefined : refinementSteps.find((length) => length * 3 <= step);
  const fitting = part !== undefined && step % part === 0;
  // Parts that do not fit would reach into the next bucket.
  const runs = part === undefined || fitting ? groupIntoRuns(wanted, count) : groupIntoRuns(wanted, 0);
  const found = await runConcurrent(runs, async ({ from, to, members }) => {
    const [first, end] = [start + from * step, start + (to + 1) * step];
    const labels = queries.map((_, query) => [
      ...new Set(members.filter((one) => one.query === query).map((one) => one.labels)),
    ]);
    if (part === undefined || (labels.flat().length * (end - first)) / 1_000 <= maxRawSamples) {
      return Promise.all(
        queries.map((query, at) => {
          return readRawPieces(reader, query, labels[at] ?? [], surveys[at]?.length ?? 0, first, end);
        }),
      );
    }
    // What the parts leave over at the end is a bucket of its own.
    const whole = Math.floor((end - first) / part);
    const rest = first + whole * part;
    const grids = [{ start: first, step: part, count: whole }];
    if (rest < end) grids.push({ start: rest, step: end - rest, count: 1 });
    const pieces = await runConcurrent(grids, (grid) => downsampleFinerGrid(reader, queries, labels, grid));
    return queries.map((_, at) => pieces.flatMap((piece) => piece[at] ?? []));
  });
  return queries.map((_, at) => {
    const pieces = Map.groupBy(
      found.flatMap((one) => one[at] ?? []),
      ({ labels }) => formatSeriesKey(labels),
    );
    return new Map([...pieces].map(([key, list]) => [key, joinSamples(list.map(({ samples }) => samples))]));
  });
}

/**
 * Of `count` buckets those that lie close are read together, so that there are never more than some dozens of requests;
 * each by itself where that is 0.
 */
function groupIntoRuns<T extends SuspectBucket>(
  wanted: readonly T[],
  count: number,
): readonly { readonly from: number; readonly to: number; readonly members: readonly T[] }[] {
  const apart = count === 0 ? 0 : 1 + Math.floor(count / 32);
  const runs: { from: number; to: number; readonly members: T[] }[] = [];
  for (const one of wanted.toSorted((a, b) => a.bucket - b.bucket)) {
    const { bucket } = one;
    const run = runs.at(-1);
    if (run === undefined || bucket - run.to > apart) runs.push({ from: bucket, to: bucket, members: [one] });
    else {
      run.to = bucket;
      run.members.push(one);
    }
  }
  return runs;
}

type SeriesPiece = { readonly labels: Labels; readonly samples: Samples };

/** In how many parts a few series of many are asked for, so that others need not be read. */
const maxSeriesChunks = 16;

/** Of these series alone, out of `matchAll`. */
async function readRawPieces(
  reader: SeriesReader,
  { selector, limit }: CounterQuery,
  labels: readonly Labels[],
  all: number,
  from: Millis,
  to: Millis,
): Promise<readonly SeriesPiece[]> {
  if (labels.length === 0) return [];
  const chunks = labels.length * 4 > all ? [labels] : chunkSeries(labels);
  const parts = await runConcurrent(chunks.length > maxSeriesChunks ? [labels] : chunks, async (some) => {
    const keys = new Set(some.map(formatSeriesKey));
    const found = await reader.readRaw(narrowToSeries(selector, some), from, to, limit);
    return found.flatMap((series) =>
      keys.has(formatSeriesKey(series.labels))
        ? [{ labels: series.labels, samples: dropNonFinite(series) }]
        : [],
    );
  });
  return parts.flat();
}

/** The samples of the series within a finer grid, whose first one counts whatever came before. */
async function downsampleFinerGrid(
  reader: SeriesReader,
  queries: readonly CounterQuery[],
  labels: readonly (readonly Labels[])[],
  buckets: Buckets,
): Promise<readonly (readonly SeriesPiece[])[]> {
  const inner = queries.map(
    (query, at): CounterQuery => ({
      ...query,
      selector: narrowToSeries(query.selector, labels[at] ?? []),
      buckets,
      lookBack: 0,
    }),
  );
  const surveys = await Promise.all(
    inner.map(async (query, at) => {
      const own = new Set(labels[at]?.map(formatSeriesKey));
      if (own.size === 0) return [];
      return (await surveyLastSamples(reader, query)).filter((series) =>
        own.has(formatSeriesKey(series.labels)),
      );
    }),
  );
  return completeSamples(reader, inner, surveys);
}

/** The finite raw samples of some series in some buckets, and maybe of others near by. Each series comes once. */
export async function readRawBuckets(
  reader: SeriesReader,
  selector: Selector,
  wanted: readonly SuspectBucket[],
  { start, step, count }: Buckets,
  limit: number,
): Promise<readonly RawSeries[]> {
  const read = await runConcurrent(groupIntoRuns(wanted, count), ({ from, to, members }) => {
    const of = narrowToSeries(
      selector,
      members.map(({ labels }) => labels),
    );
    return reader.readRaw(of, start + from * step, start + (to + 1) * step, limit);
  });
  const pieces = Map.groupBy(read.flat(), ({ labels }) => formatSeriesKey(labels));
  return [...pieces.values()].flatMap(joinPieces).map((series) => ({ ...series, ...dropNonFinite(series) }));
}

// ---- Births ------------------------------------------------------------------------------------------------------

/** Finds the sample before the buckets, or how the series came to be, for those without a sample shortly before. */
async function findSeriesStarts(
  reader: SeriesReader,
  query: CounterQuery,
  lookBack: Millis,
  surveyed: readonly SurveyedSeries[],
): Promise<void> {
  const { selector, buckets } = query;
  const open = surveyed.filter(({ base }) => base === undefined);
  if (open.length === 0) return;
  const of = narrowToSeries(selector, listSpellings(open));
  const far = indexFiniteByKey(reader, await readLastBefore(reader, of, buckets.start, lookBack));
  for (const series of open)
    series.base = far.get(formatSeriesKey(series.labels)) ?? far.get(formatAlternateKey(series.labels));
  const unknown = open.filter(({ base }) => base === undefined);
  const { existing: held, newSeries: born } = await classifySeriesStarts(
    reader,
    [query],
    unknown,
    unknown.length < surveyed.length,
  );
  for (const series of unknown) if (born.has(formatSeriesKey(series.labels))) series.birth = "zero";
  // One whose last sample is not finite may have a finite one before.
  const lost = unknown.filter(({ labels }) => held.has(formatSeriesKey(labels)));
  if (lost.length === 0) return;
  const raw = await reader.readRaw(
    narrowToSeries(
      selector,
      lost.map(({ labels }) => labels),
    ),
    buckets.start - lookBack,
    buckets.start,
    query.limit,
  );
  const bases = new Map(
    raw.map((series) => [formatSeriesKey(series.labels), dropNonFinite(series).values.at(-1)]),
  );
  for (const series of lost) series.base = bases.get(formatSeriesKey(series.labels));
}
