// Histograms that a source has in both forms: classic parts and, under the name of the family, native samples. Both may
// be scraped together, and then the classic parts are complete. Or a target has changed from one form to the other, and
// then the samples of both are those of one counter, which does not restart with its form.
import { groupInTurns, mapInTurns, takeSteps } from "../../../src/core/async/turns.ts";
import { readNumber } from "../../../src/core/collections.ts";
import { createUnsupportedError } from "../../../src/core/errors.ts";
import type { Buckets, Series } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import {
  type CounterSamples,
  combineObservationsInSteps,
  noSamples,
  type Observations,
  type Samples,
} from "../../../src/metrics/samples.ts";
import { call, type Expression, matchEqual, narrowSelector, type Selector } from "../client/promql.ts";
import type { HistogramSample, Labels } from "../client/response-scanner.ts";
import { formatHistogramKey, joinSpellings, sortByBound } from "../counters/bound-spellings.ts";
import type { CounterQuery } from "../counters/bucket-survey.ts";
import { narrowToSeries } from "../counters/series-narrowing.ts";
import { formatSeriesKey, type RawSeries, type SeriesReader } from "../counters/series-reader.ts";
import {
  createNoBucketsError,
  hasOnlySummaries,
  type ObservedSeries,
  readClassicHistograms,
  requireBuckets,
  requireSums,
} from "./classic-histograms.ts";
import type { HistogramGrowth } from "./histogram-growth.ts";
import {
  collectSpans,
  createNativeForm,
  findCommonBounds,
  findNewSeries,
  type HistogramForm,
  type HistogramSeries,
  isInsideBucket,
  readGrowth,
  toObservations,
} from "./native-histograms.ts";
import {
  buildClassicParts,
  buildCounterQuery,
  type ClassicParts,
  combineByGroup,
  type ObservationMeasure,
  type SeriesPlan,
} from "./series-groups.ts";
import { readSummary } from "./summary-quantiles.ts";

/**
 * Finds the histograms of which the classic samples are incomplete: the native form has others, in the buckets or as the
 * last sample before them. Both forms of one scrape have one time and one count, so equal numbers of samples with an equal
 * last count are the same samples, or have grown by as much. If the form changed in the middle of a bucket, the numbers may
 * be equal too, so the halves of buckets are compared as well.
 * Returns the labels by series key, and whether there are other, complete histograms. @throws {Refused | BackendError}
 */
export async function findClassicNativeMismatch(
  reader: SeriesReader,
  classic: CounterQuery,
  native: CounterQuery,
): Promise<{ readonly uneven: ReadonlyMap<string, Labels>; readonly others: boolean }> {
  const [natives, classics, nativesBefore, classicsBefore] = await Promise.all([
    readHalves(reader, classic, native.selector, "native"),
    readHalves(reader, classic, classic.selector, "classic"),
    readBefore(reader, classic, native.selector, "native"),
    readBefore(reader, classic, classic.selector, "classic"),
  ]);
  const hasOtherHalves = (native: Float64Array, classic: Float64Array): boolean =>
    hasOtherSamples(native, classic) || hasOtherSamples(sumPairs(native), sumPairs(classic));
  const uneven = new Map([
    ...listMismatches(natives.counts, classics.counts, hasOtherHalves),
    ...listMismatches(natives.lasts, classics.lasts, hasOtherLast),
    ...listMismatches(nativesBefore.counts, classicsBefore.counts, hasOtherSamples),
    ...listMismatches(nativesBefore.lasts, classicsBefore.lasts, hasOtherLast),
  ]);
  return { uneven, others: classics.counts.some(({ labels }) => !uneven.has(formatSeriesKey(labels))) };
}

/** Of one form of histograms, by series. */
interface FormSamples {
  /** How many samples there are. */
  readonly counts: readonly LabelledValues[];
  /** How much the last one has counted. */
  readonly lasts: readonly LabelledValues[];
}

interface LabelledValues {
  readonly labels: Labels;
  readonly values: Float64Array;
}

type FormName = "classic" | "native";

/** In the halves of buckets. */
async function readHalves(
  reader: SeriesReader,
  { buckets, limit }: CounterQuery,
  selector: Selector,
  form: FormName,
): Promise<FormSamples> {
  const half = Math.ceil(buckets.step / 2);
  const halves: Buckets = { start: buckets.start, step: half, count: 2 * buckets.count };
  // Left-closed ranges cannot express a window of 1 ms; one more millisecond does no harm.
  const samples = reader.selectRange(selector, { from: Math.max(2, half), to: 1 });
  const [counts, lasts] = await Promise.all(
    [call("count_over_time", samples), buildLastCount(samples, form)].map((expression) =>
      reader.readGrid(expression, halves, 2 * limit),
    ),
  );
  return { counts: counts ?? [], lasts: lasts ?? [] };
}

/** In the look-back. */
async function readBefore(
  reader: SeriesReader,
  { buckets, lookBack = 0 }: CounterQuery,
  selector: Selector,
  form: FormName,
): Promise<FormSamples> {
  if (lookBack < 2) return { counts: [], lasts: [] };
  const samples = reader.selectRange(selector, { from: lookBack, to: 1 });
  const [counts, lasts] = await Promise.all(
    [call("count_over_time", samples), buildLastCount(samples, form)].map((expression) =>
      reader.readInstant(expression, buckets.start),
    ),
  );
  return { counts: counts ?? [], lasts: lasts ?? [] };
}

/** Prometheus 2 answers no last native histogram: there the numbers of samples alone tell. */
function buildLastCount(samples: Expression, form: FormName): Expression {
  const last = call("last_over_time", samples);
  return form === "native" ? call("histogram_count", last) : last;
}

/** The series whose values differ from those of the classic form; by series key. */
function listMismatches(
  natives: readonly LabelledValues[],
  classics: readonly LabelledValues[],
  differ: (native: Float64Array, classic: Float64Array) => boolean,
): readonly (readonly [string, Labels])[] {
  const byKey = new Map(classics.map(({ labels, values }) => [formatSeriesKey(labels), values]));
  return natives.flatMap(({ labels, values }) => {
    const key = formatSeriesKey(labels);
    const classic = byKey.get(key) ?? new Float64Array(values.length).fill(Number.NaN);
    return differ(values, classic) ? [[key, labels] as const] : [];
  });
}

/** Whether there are samples of the native form, and others than of the classic form. */
function hasOtherSamples(native: Float64Array, classic: Float64Array): boolean {
  return native.some((samples, index) => samples > 0 && samples !== classic[index]);
}

/** Whether the last sample of the native form has another count than that of the classic form. */
function hasOtherLast(native: Float64Array, classic: Float64Array): boolean {
  return native.some((count, index) => !Number.isNaN(count) && count !== classic[index]);
}

/** The sums of each two counts. NaN counts as 0. */
function sumPairs(counts: Float64Array): Float64Array {
  return Float64Array.from({ length: Math.ceil(counts.length / 2) }, (_, at) => {
    return (counts[2 * at] || 0) + (counts[2 * at + 1] || 0);
  });
}

/**
 * The bounds at which native histograms are counted in a group with these classic ones. `undefined` if no bounds are
 * exact, because a classic bound lies inside a native bucket and some bucket of the answer has both forms.
 */
async function chooseBounds(
  classic: readonly Observations[],
  native: readonly HistogramGrowth[],
  { start, step }: Buckets,
): Promise<readonly number[] | undefined> {
  const bounds = classic.flatMap((one) => one.buckets.map(({ bound }) => bound)).filter(Number.isFinite);
  const kept = [...new Set([...bounds, ...native.flatMap((one) => one.classicBounds)])].sort((a, b) => a - b);
  const spans = await collectSpans(native);
  if (kept.length === 0) return findCommonBounds(native);
  if (!kept.some((bound) => isInsideBucket(bound, spans))) return kept;
  if (native.some((one) => one.classicBounds.length > 0)) return undefined;
  const sampled = new Set(
    classic.flatMap(({ count }) => [...count.times].map((time) => Math.floor((time - start) / step))),
  );
  const both = native.some(({ count }) =>
    count.some((value, bucket) => !Number.isNaN(value) && sampled.has(bucket)),
  );
  return both ? undefined : findCommonBounds(native);
}

/** Reads classic histograms raw, so that each sample is a complete histogram. */
function createClassicForm(parts: ClassicParts): HistogramForm {
  return {
    query: parts.count,
    read: (reader, labels, from, to) => readClassicSeries(reader, parts, labels, from, to),
  };
}

async function readClassicSeries(
  reader: SeriesReader,
  { count, sum, bucket }: ClassicParts,
  labels: readonly Labels[] | undefined,
  from: Millis,
  to: Millis,
): Promise<readonly HistogramSeries[]> {
  const read = async (part: CounterQuery | undefined): Promise<readonly RawSeries[]> => {
    if (part === undefined) return [];
    const selector = labels === undefined ? part.selector : narrowToSeries(part.selector, labels);
    return reader.readRaw(selector, from, to, part.limit);
  };
  // Sums and buckets are taken at the times of the counts, which therefore come first.
  const counts = await read(count);
  const [sums, buckets] = await Promise.all([read(sum), read(bucket)]);
  const sumByKey = new Map(sums.map((series) => [formatSeriesKey(series.labels), series]));
  const bucketsByKey = await groupInTurns(await joinSpellings(buckets), (series) =>
    formatHistogramKey(series.labels),
  );
  return mapInTurns(counts, (series) => {
    const key = formatSeriesKey(series.labels);
    return buildHistogramSeries(series, sumByKey.get(key) ?? noSamples, bucketsByKey.get(key) ?? []);
  });
}

function buildHistogramSeries(
  count: RawSeries,
  sum: Samples,
  buckets: readonly RawSeries[],
): HistogramSeries {
  const byBound = sortByBound(buckets).map(({ bound, series }) => ({
    bound,
    readCount: createValueReader(series),
  }));
  const readSum = createValueReader(sum);
  const histograms = [...count.times.entries()].map(([index, time]): HistogramSample => {
    let [lower, counted] = [Number.NEGATIVE_INFINITY, 0];
    const ownBuckets = byBound.map(({ bound: upper, readCount }) => {
      // Counts are cumulative, and 0 before the first sample of a bucket.
      const below = Math.max(counted, readCount(time) || 0);
      const bucket = { lower, upper, count: below - counted };
      [lower, counted] = [upper, below];
      return bucket;
    });
    return {
      time,
      count: readNumber(count.values, index),
      sum: readSum(time) ?? Number.NaN,
      buckets: ownBuckets,
    };
  });
  const bounds = byBound.map(({ bound }) => bound).filter(Number.isFinite);
  return { labels: count.labels, histograms, bounds };
}

/** Reads the value at a time, or the last one before it. Times have to be ascending from call to call. */
function createValueReader({ times, values }: Samples): (time: number) => number | undefined {
  let next = 0;
  return (time) => {
    while (next < times.length && readNumber(times, next) <= time) next++;
    return next === 0 ? undefined : values[next - 1];
  };
}

/**
 * Histograms with samples of both forms. Those whose classic samples are complete are read from these, and all others
 * from both forms. @throws {Refused | BackendError}
 */
export async function readMixedHistogram(
  plan: SeriesPlan,
  measure: ObservationMeasure,
): Promise<readonly Series[]> {
  const { query, reader, backend } = plan;
  const classic = buildClassicParts(plan, measure);
  const named = buildCounterQuery(plan, query.metric, {});
  // A summary has its quantiles under the same name.
  const native = { ...named, selector: narrowSelector(named.selector, [matchEqual("quantile", "")]) };
  const { uneven, others } = await findClassicNativeMismatch(reader, classic.count, native);
  const forms = [createClassicForm(classic), createNativeForm(native)];
  const [observed, grown] = await Promise.all([
    others ? readClassicHistograms(plan, measure) : [],
    uneven.size > 0
      ? readGrowth(reader, forms, classic.count, classic.bucket !== undefined, [...uneven.values()])
      : [],
  ]);
  const even = await resolveSeriesStarts(
    reader,
    forms,
    observed.filter(({ labels }) => !uneven.has(formatSeriesKey(labels))),
    query.buckets,
  );
  if (grown.length === 0 && hasOnlySummaries(measure, even)) return readSummary(plan, measure);
  const members: readonly (ObservedSeries | HistogramGrowth)[] = [...even, ...grown];
  return combineByGroup(plan, members, async (group) => {
    const classics = group.flatMap((one) => ("observations" in one ? one.observations : []));
    requireBuckets(plan, measure, classics);
    requireSums(plan, measure, classics);
    const natives = group.flatMap((one) => ("observations" in one ? [] : one));
    if (classic.bucket !== undefined && natives.some(({ hasUnbucketed }) => hasUnbucketed))
      throw createNoBucketsError(backend, measure.combine);
    const bounds = classic.bucket === undefined ? [] : await chooseBounds(classics, natives, query.buckets);
    if (bounds === undefined) {
      const feature = `${measure.combine} over classic and native buckets together`;
      throw createUnsupportedError(
        backend,
        `${feature}; a range before or after the change, or count and mean, can be had`,
      );
    }
    const counted = await mapInTurns(natives, (growth) => toObservations(growth, bounds, query.buckets));
    return takeSteps(combineObservationsInSteps([...classics, ...counted], measure, query.buckets));
  });
}

/** Corrects the baselines of histograms without a sample before the buckets: a new one has no samples of either form. */
async function resolveSeriesStarts(
  reader: SeriesReader,
  forms: readonly HistogramForm[],
  found: readonly ObservedSeries[],
  { start }: Buckets,
): Promise<readonly ObservedSeries[]> {
  const isOpen = ({ times: [first = start] }: CounterSamples) => first >= start;
  const open = found.filter(({ observations }) => isOpen(observations.count));
  const newSeries = await findNewSeries(reader, forms, open, open.length < found.length);
  const openSet = new Set(open);
  return found.map((one) => {
    if (!openSet.has(one)) return one;
    const baseline = newSeries.has(formatSeriesKey(one.labels)) ? "zero" : "own";
    const correct = (samples: CounterSamples): CounterSamples =>
      isOpen(samples) && samples.times.length > 0 ? { ...samples, baseline } : samples;
    const { count, sum, buckets } = one.observations;
    const parts = buckets.map(({ bound, samples }) => ({ bound, samples: correct(samples) }));
    return { ...one, observations: { count: correct(count), sum: correct(sum), buckets: parts } };
  });
}
