// Histograms whose samples are complete: native ones, and classic ones read raw beside them where a metric has changed
// from one form to the other. They are read in slices of time, and each slice is folded into the growth per bucket.

import { groupInTurns, mapInTurns, takeSteps, visitInTurns } from "../../../src/core/async/turns.ts";
import { requireFirst } from "../../../src/core/collections.ts";
import {
  createTooManyPointsError,
  createTooManySamplesError,
  createUnsupportedError,
} from "../../../src/core/errors.ts";
import type { Buckets, Series } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import {
  type CounterSamples,
  combineObservationsInSteps,
  type Observations,
} from "../../../src/metrics/samples.ts";
import { aggregate, call, type Selector } from "../client/promql.ts";
import type { HistogramSample, Labels } from "../client/response-scanner.ts";
import type { CounterQuery } from "../counters/bucket-survey.ts";
import { chunkSeries, narrowToSeries } from "../counters/series-narrowing.ts";
import {
  formatSeriesKey,
  roundUpToSeconds,
  runConcurrent,
  type SeriesReader,
} from "../counters/series-reader.ts";
import { classifySeriesStarts } from "../counters/series-start.ts";
import {
  addClassicBounds,
  addHistogram,
  type BucketSpan,
  createGrowthFold,
  finishGrowth,
  formatSpan,
  type GrowthFold,
  type HistogramGrowth,
} from "./histogram-growth.ts";
import {
  buildCounterQuery,
  combineByGroup,
  isEstimated,
  type ObservationMeasure,
  type SeriesPlan,
} from "./series-groups.ts";

/** One way in which a source keeps a histogram. */
export interface HistogramForm {
  readonly query: CounterQuery;
  /**
   * The samples from `from` until before `to`, by time: of all series, or of those with `labels` and maybe others. The
   * reader counts what is held of them.
   * @throws {Refused | BackendError}
   */
  readonly read: (
    reader: SeriesReader,
    labels: readonly Labels[] | undefined,
    from: Millis,
    to: Millis,
  ) => Promise<readonly HistogramSeries[]>;
}

export interface HistogramSeries {
  readonly labels: Labels;
  readonly histograms: readonly HistogramSample[];
  /** The finite bounds of a classic one. */
  readonly bounds?: readonly number[];
}

/** Histograms that are held at once; one has some hundred buckets. */
const histogramsPerSlice = 5_000;
const nearLookBack: Millis = 300_000;
/** In how many parts of the look-back the last sample is looked for. */
const lookBackCells = 500;

export function createNativeForm(query: CounterQuery): HistogramForm {
  return {
    query,
    async read(reader, labels, from, to) {
      const selector = labels === undefined ? query.selector : narrowToSeries(query.selector, labels);
      const found = await reader.readRaw(selector, from, to, query.limit);
      return found.filter(({ histograms }) => histograms.length > 0);
    },
  };
}

/**
 * The growth of each histogram, in whichever forms it has samples: together these are the samples of one counter, and
 * of two of one time the first form's counts. The growth below bounds is computed if `bucketed`. With `labels`, of these
 * series only. @throws {Refused} if there is too much to read @throws {BackendError}
 */
export async function readGrowth(
  reader: SeriesReader,
  forms: readonly HistogramForm[],
  query: CounterQuery,
  bucketed: boolean,
  labels?: readonly Labels[],
): Promise<readonly HistogramGrowth[]> {
  const { buckets, lookBack = 0 } = query;
  const folds = await foldSamples(reader, forms, query, bucketed, labels);
  const sampled = folds.filter(({ first }) => first !== undefined);
  const bases = await readBases(reader, forms, sampled, buckets.start, lookBack);
  const open = sampled.filter(({ labels }) => !bases.has(formatSeriesKey(labels)));
  const newSeries = await findNewSeries(reader, forms, open, open.length < sampled.length);
  return mapInTurns(sampled, (fold) => {
    const key = formatSeriesKey(fold.labels);
    const base = bases.get(key) ?? (newSeries.has(key) ? emptyBase : undefined);
    if (base?.bounds !== undefined) addClassicBounds(fold, base.bounds);
    return finishGrowth(fold, base?.last);
  });
}

/** Reads the samples within the buckets, slice by slice. */
async function foldSamples(
  reader: SeriesReader,
  forms: readonly HistogramForm[],
  { buckets, limit }: CounterQuery,
  bucketed: boolean,
  labels: readonly Labels[] | undefined,
): Promise<readonly GrowthFold[]> {
  const { start, step, count } = buckets;
  const end = start + step * count;
  const keys = labels && new Set(labels.map(formatSeriesKey));
  const sizes = await Promise.all(
    forms.map(({ query: { selector } }) =>
      countSamples(reader, labels ? narrowToSeries(selector, labels) : selector, start, end),
    ),
  );
  const size = sizes.reduce((sum, one) => sum + one, 0);
  if (size > limit) throw createTooManySamplesError(limit, size);
  const folds = new Map<string, GrowthFold>();
  for (const [from, to] of splitRange(start, end, Math.ceil(size / histogramsPerSlice))) {
    const part = reader.openPart();
    try {
      const read = await Promise.all(forms.map((form) => form.read(part, labels, from, to)));
      const seriesByKey = await groupInTurns(read.flat(), (one) => formatSeriesKey(one.labels));
      await visitInTurns(seriesByKey, ([key, series]) => {
        if (keys?.has(key) === false) return;
        const fold = folds.get(key) ?? createGrowthFold(requireFirst(series).labels, buckets, bucketed);
        folds.set(key, fold);
        foldSeries(fold, series);
      });
    } finally {
      part.release();
    }
    const points = count * [...folds.values()].reduce((sum, { bounds }) => sum + 2 + bounds.length, 0);
    if (points > limit) throw createTooManyPointsError(limit, points);
  }
  return [...folds.values()];
}

function foldSeries(fold: GrowthFold, series: readonly HistogramSeries[]): void {
  for (const { bounds } of series) if (bounds !== undefined) addClassicBounds(fold, bounds);
  for (const histogram of mergeByTime(series.map(({ histograms }) => histograms))) {
    addHistogram(fold, histogram);
  }
}

async function countSamples(
  reader: SeriesReader,
  selector: Selector,
  from: Millis,
  to: Millis,
): Promise<number> {
  if (to - from < 2) return 0;
  const samples = reader.selectRange(selector, { from: to - from, to: 1 });
  const [found] = await reader.readInstant(aggregate("sum", [], call("count_over_time", samples)), to);
  // No sample, no series.
  return found?.values[0] ?? 0;
}

function splitRange(start: Millis, end: Millis, parts: number): readonly (readonly [Millis, Millis])[] {
  const length = Math.max(1, Math.ceil((end - start) / Math.max(1, parts)));
  const count = Math.ceil((end - start) / length);
  return Array.from({ length: count }, (_, part) => {
    const from = start + part * length;
    return [from, Math.min(end, from + length)] as const;
  });
}

/** By time; of two of one time that of the first list. */
function mergeByTime(lists: readonly (readonly HistogramSample[])[]): readonly HistogramSample[] {
  const [only] = lists;
  if (only !== undefined && lists.length === 1) return only;
  const byTime = new Map(lists.toReversed().flatMap((list) => list.map((one) => [one.time, one] as const)));
  return [...byTime.values()].sort((a, b) => a.time - b.time);
}

// ---- Before the buckets ------------------------------------------------------------------------------------------

/** The last histogram before the buckets, from which the first one within them has grown. */
interface GrowthBase {
  readonly last: HistogramSample;
  readonly bounds?: readonly number[] | undefined;
}

/** What a new series has grown from. */
const emptyBase: GrowthBase = { last: { time: 0, count: 0, sum: 0, buckets: [] } };

/** What is needed to look for the bases of some series. */
interface BaseSearch {
  readonly reader: SeriesReader;
  readonly start: Millis;
  readonly lookBack: Millis;
  /** By series key. */
  readonly found: Map<string, GrowthBase>;
}

/** The last histogram of each series within the look-back, of the form that has the later one; by series key. */
async function readBases(
  reader: SeriesReader,
  forms: readonly HistogramForm[],
  series: readonly { readonly labels: Labels }[],
  start: Millis,
  lookBack: Millis,
): Promise<ReadonlyMap<string, GrowthBase>> {
  const search: BaseSearch = { reader, start, lookBack, found: new Map() };
  const chunks = chunkSeries(series.map(({ labels }) => labels));
  for (const form of forms) {
    await runConcurrent(chunks, (labels) =>
      readBasesBetween(search, form, labels, start - Math.min(nearLookBack, lookBack), start),
    );
  }
  const open = series.filter(({ labels }) => !search.found.has(formatSeriesKey(labels)));
  if (lookBack > nearLookBack && open.length > 0) {
    await readFarBases(
      search,
      forms,
      open.map(({ labels }) => labels),
    );
  }
  return search.found;
}

async function readBasesBetween(
  { reader, start, lookBack, found }: BaseSearch,
  form: HistogramForm,
  labels: readonly Labels[],
  from: Millis,
  to: Millis,
): Promise<void> {
  const keys = new Set(labels.map(formatSeriesKey));
  for (const { labels: own, histograms, bounds } of await form.read(reader, labels, from, to)) {
    const key = formatSeriesKey(own);
    const last = histograms.findLast(({ time }) => time >= start - lookBack);
    if (!keys.has(key) || last === undefined) continue;
    const known = found.get(key);
    if (known === undefined || last.time > known.last.time) found.set(key, { last, bounds });
  }
}

/** Finds first in which cell of the look-back each series was seen last, so that no more than that is read. */
async function readFarBases(
  search: BaseSearch,
  forms: readonly HistogramForm[],
  open: readonly Labels[],
): Promise<void> {
  const { reader, start, lookBack } = search;
  const step = roundUpToSeconds(lookBack / lookBackCells);
  const grid: Buckets = { start: start - step * lookBackCells, step, count: lookBackCells };
  const parts = forms.flatMap((form) => chunkSeries(open).map((labels) => ({ form, labels })));
  const lasts = await runConcurrent(parts, async ({ form, labels }) => {
    const keys = new Set(labels.map(formatSeriesKey));
    const samples = reader.selectRange(narrowToSeries(form.query.selector, labels), { from: step, to: 1 });
    const counts = await reader.readGrid(call("count_over_time", samples), grid, Number.POSITIVE_INFINITY);
    return counts.flatMap(({ labels, values }) => {
      const cell = values.findLastIndex((value) => !Number.isNaN(value));
      return keys.has(formatSeriesKey(labels)) ? [{ form, labels, cell }] : [];
    });
  });
  for (const form of forms) {
    const own = lasts.flat().filter((last) => last.form === form);
    // Few series end in many different cells.
    await runConcurrent([...Map.groupBy(own, ({ cell }) => cell)], async ([cell, ended]) => {
      const from = grid.start + cell * step;
      for (const labels of chunkSeries(ended.map((one) => one.labels))) {
        await readBasesBetween(search, form, labels, from, from + step);
      }
    });
  }
}

/** The keys of the series that are new: that no form has held before. @throws {BackendError} */
export async function findNewSeries(
  reader: SeriesReader,
  forms: readonly HistogramForm[],
  open: readonly { readonly labels: Labels }[],
  othersExisted: boolean,
): Promise<ReadonlySet<string>> {
  const queries = forms.map(({ query }) => query);
  return (await classifySeriesStarts(reader, queries, open, othersExisted)).newSeries;
}

// ---- Groups ------------------------------------------------------------------------------------------------------

export function isInsideBucket(bound: number, spans: readonly BucketSpan[]): boolean {
  return spans.some(({ lower, upper }) => lower < bound && bound < upper);
}

/** The bounds at which all of a group can be counted, ascending. */
export async function findCommonBounds(group: readonly HistogramGrowth[]): Promise<readonly number[]> {
  const spans = await collectSpans(group);
  const bounds = new Set<number>();
  await visitInTurns(group, ({ below }) => {
    for (const bound of below.keys()) bounds.add(bound);
  });
  return [...bounds].sort((a, b) => a - b).filter((bound) => !isInsideBucket(bound, spans));
}

/** Every bucket that some of a group have, once. */
export async function collectSpans(group: readonly HistogramGrowth[]): Promise<readonly BucketSpan[]> {
  const spanByText = new Map<string, BucketSpan>();
  await visitInTurns(group, ({ spans }) => {
    for (const span of spans) spanByText.set(formatSpan(span.lower, span.upper), span);
  });
  return [...spanByText.values()];
}

/** The growth as a histogram with these bounds, none of which lies inside its own buckets. */
export function toObservations(
  { count, sum, below }: HistogramGrowth,
  bounds: readonly number[],
  buckets: Buckets,
): Observations {
  const own = [...below];
  const noGrowth = count.map((value) => (Number.isNaN(value) ? Number.NaN : 0));
  const parts = bounds.map((bound) => {
    const [, grown = noGrowth] = own.findLast(([one]) => one <= bound) ?? [];
    return { bound, samples: toRunningTotal(grown, buckets) };
  });
  const total = toRunningTotal(count, buckets);
  const all = { bound: Number.POSITIVE_INFINITY, samples: total };
  return { count: total, sum: toRunningTotal(sum, buckets), buckets: [...parts, all] };
}

/** A counter that has grown by so much in each bucket. */
function toRunningTotal(grown: Float64Array, { start, step }: Buckets): CounterSamples {
  const held = [...grown.entries()].filter(([, value]) => !Number.isNaN(value));
  let value = 0;
  return {
    times: Float64Array.from(held, ([bucket]) => start + bucket * step),
    values: Float64Array.from(held, ([, by]) => {
      value += by;
      return value;
    }),
    baseline: "zero",
  };
}

/** @throws {Refused | BackendError} */
export async function readNativeHistogram(
  plan: SeriesPlan,
  measure: ObservationMeasure,
): Promise<readonly Series[]> {
  const query = buildCounterQuery(plan, plan.query.metric, {});
  const found = await readGrowth(plan.reader, [createNativeForm(query)], query, isEstimated(measure.combine));
  return combineByGroup(plan, found, async (group) => {
    const bounds = await findCommonBounds(group);
    if (bounds.length === 0 && group.some(({ below }) => below.size > 0))
      throw createUnsupportedError(
        plan.backend,
        `the ${measure.combine} over buckets that have no bound in common`,
      );
    const observations = await mapInTurns(group, (one) => toObservations(one, bounds, query.buckets));
    return takeSteps(combineObservationsInSteps(observations, measure, query.buckets));
  });
}
