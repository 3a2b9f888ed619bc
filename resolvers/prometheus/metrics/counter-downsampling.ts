// Thins the samples of counters at the source without changing what they have grown. Where a bucket holds no restart,
// all that its growth depends on is its last sample and the last one before it; so one value per bucket and series is
// read, and the raw samples of the few buckets that hold a restart, or a sample that is not a number. What comes out
// are samples, of which `src/metrics/samples.ts` makes the answer: births, restarts and sums are defined there alone.
import type { Buckets } from "../../../src/core/rows.ts";
import { day, hour, type Millis, minute } from "../../../src/core/time.ts";
import { type CounterSamples, finite, type Samples } from "../../../src/metrics/samples.ts";
import { turn } from "../../http/guard.ts";
import { binary, call, type Expression, notFinite, number, type Selector } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import {
  asGrid,
  byKey,
  chunksOf,
  type GridSeries,
  inTurns,
  join,
  joinSamples,
  keyOf,
  narrowTo,
  numberKey,
  type RawSeries,
  type Reader,
} from "./series-reader.ts";
import { birthsOf, type Origin, otherKey, spellings } from "./series-start.ts";

export interface ThinQuery extends Origin {
  /** The first sample of each bucket is needed beside the last. */
  readonly firsts: boolean;
  /** A value below the one before shows a restart. Not so for a sum of observations, nor for a gauge. */
  readonly falls: boolean;
}

/** One series; `samples` give what its raw samples would have given. */
export interface Thinned {
  readonly labels: Labels;
  readonly samples: CounterSamples;
}

/** A series with its buckets; the indices in `suspects` have to be read raw. */
interface Surveyed {
  readonly labels: Labels;
  readonly last: Float64Array;
  readonly suspects: Set<number>;
  /** Buckets whose first sample is needed, because the one before lies too far back to be covered by the survey. */
  readonly gaps: Set<number>;
  base: number | undefined;
  birth: CounterSamples["birth"];
}

/** How far back the sample before a bucket is looked for at first: nearly every series that lives has one there. */
function reachOf({ step }: Buckets): Millis {
  // At least the bucket before, so that of two buckets in a row the later one's window holds the sample before it.
  return Math.max(step, 120_000);
}

export async function thin(reader: Reader, query: ThinQuery): Promise<readonly Thinned[]> {
  const [found = []] = await thinTogether(reader, [query]);
  return found;
}

/** The parts of histograms, in the same buckets; the first one's restarts are those of the others with its labels. */
export async function thinTogether(
  reader: Reader,
  queries: readonly ThinQuery[],
): Promise<readonly (readonly Thinned[])[]> {
  const surveys = await Promise.all(queries.map((query) => survey(reader, query)));
  await Promise.all(
    queries.map(async (query, at) => {
      if (query.lookBack !== undefined) await findBirths(reader, query, query.lookBack, surveys[at] ?? []);
    }),
  );
  return complete(reader, queries, surveys);
}

/** Reads the last sample of each bucket and series, and where that is not enough to know. */
export async function survey(reader: Reader, query: ThinQuery): Promise<readonly Surveyed[]> {
  await reader.estimate(query.selector, undefined, query.buckets, query.limit);
  return overview(reader, query);
}

async function overview(reader: Reader, query: ThinQuery): Promise<readonly Surveyed[]> {
  const { selector, buckets, lookBack, falls, limit } = query;
  const { start, step } = buckets;
  const reach = reachOf(buckets);
  // Any bucket may hold a restart that the source does not show.
  const hidden = falls && reader.hidesRestarts;
  const lean = await reader.lean(selector, buckets);
  const [lasts, odds, bases] = await Promise.all([
    lastValues(reader, lean, buckets, limit),
    hidden ? [] : reader.grid(oddity(reader, lean.selector, buckets, falls), buckets, limit, lean.isMeant),
    lookBack === undefined ? [] : lastOf(reader, lean.selector, start, Math.min(reach, lookBack)),
  ]);
  await turn();
  byKey(reader.backend, lasts);
  const baseByKey = finiteByKey(
    reader,
    bases.filter(({ labels }) => lean.isMeant(labels)),
  );
  const oddByKey = new Map(odds.map(({ labels, values }) => [keyOf(labels), values]));
  const surveyed = lasts.map(({ labels, values }): Surveyed => {
    const key = keyOf(labels);
    const odd = oddByKey.get(key);
    const suspects = new Set<number>();
    const gaps = new Set<number>();
    const base = baseByKey.get(key) ?? baseByKey.get(otherKey(labels));
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
  suspectSuccessions(surveyed);
  return surveyed;
}

/** Where a bucket has samples under two spellings of one number, only these tell which of them came later. */
function suspectSuccessions(surveyed: readonly Surveyed[]): void {
  const numbered = surveyed.filter(({ labels }) => "le" in labels || "quantile" in labels);
  for (const twins of Map.groupBy(numbered, ({ labels }) => numberKey(labels)).values()) {
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
function oddity(reader: Reader, selector: Selector, buckets: Buckets, falls: boolean): Expression {
  // A closed edge has no window of one millisecond; the one before does no harm.
  const samples = reader.window(selector, { from: Math.max(2, buckets.step), to: 1 });
  const infinite = notFinite(samples);
  if (!falls) return binary(infinite, "!=", number(0));
  const around = reader.window(selector, { from: buckets.step + reachOf(buckets), to: 1 });
  return binary(binary(call("resets", around), "+", infinite), "!=", number(0));
}

/** A window of one millisecond cannot be written for a closed edge. */
async function lastValues(
  reader: Reader,
  { selector, isMeant }: Awaited<ReturnType<Reader["lean"]>>,
  buckets: Buckets,
  limit: number,
): Promise<readonly GridSeries[]> {
  const { start, step, count } = buckets;
  if (step > 1) {
    const last = call("last_over_time", reader.window(selector, { from: step, to: 1 }));
    return reader.grid(last, buckets, limit, isMeant);
  }
  const raw = await reader.raw(selector, start, start + count, limit);
  return raw
    .filter(({ labels }) => isMeant(labels))
    .map(({ labels, times, values }) => {
      const last = new Float64Array(count).fill(Number.NaN);
      for (const [index, time] of times.entries()) last[time - start] = asGrid(values[index]);
      return { labels, values: last };
    });
}

/** The last sample of each series from `length` before `start` until before it. */
async function lastOf(
  reader: Reader,
  selector: Selector,
  start: Millis,
  length: Millis,
): Promise<readonly LabelledSamples[]> {
  if (length < 1) return [];
  if (length === 1) return reader.raw(selector, start - 1, start, Number.POSITIVE_INFINITY);
  return reader.instant(call("last_over_time", reader.window(selector, { from: length, to: 1 })), start);
}

function finiteByKey({ backend }: Reader, found: readonly LabelledSamples[]): ReadonlyMap<string, number> {
  const values = [...byKey(backend, found)].map(([key, series]) => [key, series.values[0]] as const);
  return new Map(values.filter((entry): entry is [string, number] => Number.isFinite(entry[1])));
}

/** Reads what the surveys left open and puts the samples together. */
async function complete(
  reader: Reader,
  queries: readonly ThinQuery[],
  surveys: readonly (readonly Surveyed[])[],
): Promise<readonly (readonly Thinned[])[]> {
  const [counted = [], ...others] = surveys;
  // A restart that the count shows is one of all parts, so that all are looked at closely where the count is.
  const restarts = new Map(counted.map(({ labels, suspects }) => [keyOf(labels), suspects]));
  for (const { labels, last, suspects } of others.flat()) {
    for (const bucket of restarts.get(totalKey(labels)) ?? [])
      if (!Number.isNaN(last[bucket])) suspects.add(bucket);
  }
  for (const [at, surveyed] of surveys.entries()) {
    for (const { gaps, suspects, base, birth } of queries[at]?.falls ? [] : surveyed) {
      // The first sample of what may fall is not its least.
      if (base === undefined && birth === "own") for (const bucket of gaps) suspects.add(bucket);
      gaps.clear();
    }
  }
  const [firsts, close] = await Promise.all([
    Promise.all(queries.map((query, at) => firstSamples(reader, query, surveys[at] ?? []))),
    lookClosely(reader, queries, surveys),
  ]);
  await turn();
  return queries.map((query, at) => {
    const [firstByKey, closeByKey] = [firsts[at], close[at]];
    return (surveys[at] ?? []).map((series) => {
      const key = keyOf(series.labels);
      return assembled(query, series, firstByKey?.get(key), closeByKey?.get(key));
    });
  });
}

function assembled(
  { buckets: { start, step }, firsts }: ThinQuery,
  { labels, last, suspects, gaps, base, birth }: Surveyed,
  first: Float64Array | undefined,
  close: Samples | undefined,
): Thinned {
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
  return { labels, samples: { times: Float64Array.from(times), values: Float64Array.from(values), birth } };
}

/** The key of the histogram that a series of buckets belongs to. */
export function totalKey(labels: Labels): string {
  const { le: _, ...rest } = labels;
  return keyOf(rest);
}

/** Without a restart in the bucket, its first sample is its least; `first_over_time` is not everywhere. */
async function firstSamples(
  reader: Reader,
  { selector, buckets, firsts }: ThinQuery,
  surveyed: readonly Surveyed[],
): Promise<ReadonlyMap<string, Float64Array>> {
  // A bucket of one millisecond has one sample, which is its first.
  const series = buckets.step === 1 ? [] : surveyed.filter(({ gaps }) => firsts || gaps.size > 0);
  if (series.length === 0) return new Map();
  const of = firsts
    ? selector
    : narrowTo(
        selector,
        series.map(({ labels }) => labels),
      );
  const least = call("min_over_time", reader.window(of, { from: buckets.step, to: 1 }));
  const found = await reader.grid(least, buckets, Number.POSITIVE_INFINITY);
  return new Map(found.map(({ labels, values }) => [keyOf(labels), values]));
}

// ---- Suspects ----------------------------------------------------------------------------------------------------

/** Parts that a wide bucket is surveyed in before raw samples are read, widest first: some dozens or hundreds of them. */
const finer: readonly Millis[] = [365 * day, 30 * day, day, hour, 5 * minute];
/** So little is read raw at once, were there a sample in each second. */
const fewSamples = 50_000;

type LabelledSamples = Pick<RawSeries, "labels" | "values">;
type Suspect = { readonly bucket: number; readonly labels: Labels };

/**
 * The samples of the suspect buckets, by query and series. A restart spoils a moment of a bucket and not all of it: a
 * wide one is surveyed anew in parts, and so are the suspect ones of these, until what is left can be read raw.
 */
async function lookClosely(
  reader: Reader,
  queries: readonly ThinQuery[],
  surveys: readonly (readonly Surveyed[])[],
): Promise<readonly ReadonlyMap<string, Samples>[]> {
  const [{ buckets } = { buckets: { start: 0, step: 1, count: 0 } }] = queries;
  const { start, step, count } = buckets;
  const wanted = surveys.flatMap((surveyed, query) =>
    surveyed.flatMap(({ labels, suspects }) => [...suspects].map((bucket) => ({ bucket, labels, query }))),
  );
  const part = reader.hidesRestarts ? undefined : finer.find((length) => length * 3 <= step);
  const fitting = part !== undefined && step % part === 0;
  // Parts that do not fit would reach into the next bucket.
  const runs = part === undefined || fitting ? runsOf(wanted, count) : runsOf(wanted, 0);
  const found = await inTurns(runs, async ({ from, to, members }) => {
    const [first, end] = [start + from * step, start + (to + 1) * step];
    const labels = queries.map((_, query) => [
      ...new Set(members.filter((one) => one.query === query).map((one) => one.labels)),
    ]);
    if (part === undefined || (labels.flat().length * (end - first)) / 1_000 <= fewSamples) {
      return Promise.all(
        queries.map((query, at) => {
          return rawOf(reader, query, labels[at] ?? [], surveys[at]?.length ?? 0, first, end);
        }),
      );
    }
    // What the parts leave over at the end is a bucket of its own.
    const whole = Math.floor((end - first) / part);
    const rest = first + whole * part;
    const grids = [{ start: first, step: part, count: whole }];
    if (rest < end) grids.push({ start: rest, step: end - rest, count: 1 });
    const pieces = await inTurns(grids, (grid) => partsOf(reader, queries, labels, grid));
    return queries.map((_, at) => pieces.flatMap((piece) => piece[at] ?? []));
  });
  return queries.map((_, at) => {
    const pieces = Map.groupBy(
      found.flatMap((one) => one[at] ?? []),
      ({ labels }) => keyOf(labels),
    );
    return new Map([...pieces].map(([key, list]) => [key, joinSamples(list.map(({ samples }) => samples))]));
  });
}

/**
 * Of `count` buckets those that lie close are read together, so that there are never more than some dozens of requests;
 * each by itself where that is 0.
 */
function runsOf<T extends Suspect>(
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

type Piece = { readonly labels: Labels; readonly samples: Samples };

/** In how many parts a few series of many are asked for, so that others need not be read. */
const fewParts = 16;

/** Of these series alone, out of `all`. */
async function rawOf(
  reader: Reader,
  { selector, limit }: ThinQuery,
  labels: readonly Labels[],
  all: number,
  from: Millis,
  to: Millis,
): Promise<readonly Piece[]> {
  if (labels.length === 0) return [];
  const chunks = labels.length * 4 > all ? [labels] : chunksOf(labels);
  const parts = await inTurns(chunks.length > fewParts ? [labels] : chunks, async (some) => {
    const keys = new Set(some.map(keyOf));
    const found = await reader.raw(narrowTo(selector, some), from, to, limit);
    return found.flatMap((series) =>
      keys.has(keyOf(series.labels)) ? [{ labels: series.labels, samples: finite(series) }] : [],
    );
  });
  return parts.flat();
}

/** The samples of the series within a finer grid, whose first one counts whatever came before. */
async function partsOf(
  reader: Reader,
  queries: readonly ThinQuery[],
  labels: readonly (readonly Labels[])[],
  buckets: Buckets,
): Promise<readonly (readonly Piece[])[]> {
  const inner = queries.map(
    (query, at): ThinQuery => ({
      ...query,
      selector: narrowTo(query.selector, labels[at] ?? []),
      buckets,
      lookBack: 0,
    }),
  );
  const surveys = await Promise.all(
    inner.map(async (query, at) => {
      const own = new Set(labels[at]?.map(keyOf));
      if (own.size === 0) return [];
      return (await overview(reader, query)).filter((series) => own.has(keyOf(series.labels)));
    }),
  );
  return complete(reader, inner, surveys);
}

/** The finite raw samples of some series in some buckets, and maybe of others near by. Each series comes once. */
export async function readBuckets(
  reader: Reader,
  selector: Selector,
  wanted: readonly Suspect[],
  { start, step, count }: Buckets,
  limit: number,
): Promise<readonly RawSeries[]> {
  const read = await inTurns(runsOf(wanted, count), ({ from, to, members }) => {
    const of = narrowTo(
      selector,
      members.map(({ labels }) => labels),
    );
    return reader.raw(of, start + from * step, start + (to + 1) * step, limit);
  });
  const pieces = Map.groupBy(read.flat(), ({ labels }) => keyOf(labels));
  return [...pieces.values()].flatMap(join).map((series) => ({ ...series, ...finite(series) }));
}

// ---- Births ------------------------------------------------------------------------------------------------------

/** Finds the sample before the buckets, or how the series came to be, for those without a sample shortly before. */
async function findBirths(
  reader: Reader,
  query: ThinQuery,
  lookBack: Millis,
  surveyed: readonly Surveyed[],
): Promise<void> {
  const { selector, buckets } = query;
  const open = surveyed.filter(({ base }) => base === undefined);
  if (open.length === 0) return;
  const of = narrowTo(selector, spellings(open));
  const far = finiteByKey(reader, await lastOf(reader, of, buckets.start, lookBack));
  for (const series of open) series.base = far.get(keyOf(series.labels)) ?? far.get(otherKey(series.labels));
  const unknown = open.filter(({ base }) => base === undefined);
  const { held, born } = await birthsOf(reader, [query], unknown, unknown.length < surveyed.length);
  for (const series of unknown) if (born.has(keyOf(series.labels))) series.birth = "zero";
  // One whose last sample is not finite may have a finite one before.
  const lost = unknown.filter(({ labels }) => held.has(keyOf(labels)));
  if (lost.length === 0) return;
  const raw = await reader.raw(
    narrowTo(
      selector,
      lost.map(({ labels }) => labels),
    ),
    buckets.start - lookBack,
    buckets.start,
    query.limit,
  );
  const bases = new Map(raw.map((series) => [keyOf(series.labels), finite(series).values.at(-1)]));
  for (const series of lost) series.base = bases.get(keyOf(series.labels));
}
