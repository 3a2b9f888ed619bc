// Reads measurements: histograms, classic, native or both, and summaries. A source keeps them as counters of several
// series, from which `src/metrics/samples.ts` computes the answer. An estimate that would leave some of them out is refused.
import { requireAt, requireFirst } from "../../../src/core/collections.ts";
import { createUnsupportedError, type Refused } from "../../../src/core/errors.ts";
import type { Buckets, Measure, Series } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import {
  type CounterSamples,
  combineObservations,
  combineSamples,
  computeIncrements,
  type Observations,
  parseBound,
} from "../../../src/metrics/samples.ts";
import {
  aggregate,
  call,
  type Expression,
  exclude,
  type Matcher,
  matchAnyOf,
  matchEqual,
  matchPresent,
  metadataLabels,
  metricName,
  narrowSelector,
} from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { dropBoundLabels, formatHistogramKey, infinities } from "../counters/bound-spellings.ts";
import { type CounterQuery, surveySeries } from "../counters/bucket-survey.ts";
import {
  type DownsampledSeries,
  downsampleCounter,
  downsampleCounters,
} from "../counters/counter-downsampling.ts";
import { narrowToSeries } from "../counters/series-narrowing.ts";
import { formatSeriesKey, readLabel, type SeriesReader } from "../counters/series-reader.ts";
import { selectPart } from "./family-listing.ts";
import { groupObservations } from "./grouped-observations.ts";
import type { HistogramGrowth } from "./histogram-growth.ts";
import { readIncrements } from "./increments.ts";
import {
  type ClassicParts,
  chooseBounds,
  createClassicForm,
  findClassicNativeMismatch,
  sortByBound,
} from "./mixed-histograms.ts";
import {
  createNativeForm,
  findCommonBounds,
  findNewSeries,
  type HistogramForm,
  readGrowth,
  toObservations,
} from "./native-histograms.ts";
import { buildCounterQuery, combineByGroup, formatGroupKey, type SeriesPlan } from "./series-groups.ts";
import { readInGroups } from "./source-grouping.ts";
import { dropCreatedTimestampZeros } from "./summary-quantiles.ts";

type ObservationMeasure = Extract<Measure, { of: "observations" }>;

/** One histogram or summary, with the parts that the measure needs. */
export interface ObservedSeries {
  readonly labels: Labels;
  readonly observations: Observations;
}

/** Classic histograms, and the mean of a summary. @throws {Refused | BackendError} */
export async function readHistogram(
  plan: SeriesPlan,
  measure: ObservationMeasure,
): Promise<readonly Series[]> {
  const { family, query } = plan;
  if (family.kind === "histogram" && family.hasCount) await noteUncounted(plan);
  if (measure.combine === "count" && family.kind === "histogram" && family.hasCount) {
    const [uncounted] = await Promise.all([findUncounted(plan), requireCounts(plan)]);
    if (uncounted.length === 0) return readIncrements(plan, `${query.metric}_count`);
  }
  const read = (part: SeriesPlan, isPart: boolean) => readHistogramSeries(part, measure, isPart);
  const hasParts = family.kind === "histogram" && family.hasCount && !family.hasRanges;
  const grouped = hasParts && groupObservations(plan, measure, buildClassicParts(plan, measure));
  if (!grouped) return read(plan, false);
  const isComplete = async () => {
    const [uncounted] = await Promise.all([findUncounted(plan), requireCounts(plan)]);
    return uncounted.length === 0;
  };
  return readInGroups(plan, { ...grouped, name: query.metric, isComplete, read });
}

/** Of all of a query, or of a part of it, where the histograms of the whole have buckets. */
async function readHistogramSeries(
  plan: SeriesPlan,
  measure: ObservationMeasure,
  isPart: boolean,
): Promise<readonly Series[]> {
  const found = await readClassicHistograms(plan, measure);
  if (!isPart && hasOnlySummaries(measure, found)) {
    if (plan.family.hasRanges) throw createRangesError(plan.backend, measure.combine);
    return readSummary(plan, measure);
  }
  return combineByGroup(plan, found, (group) => {
    const observations = group.map((one) => one.observations);
    requireBuckets(plan, measure, observations);
    requireSums(plan, measure, observations);
    return combineObservations(observations, measure, plan.query.buckets);
  });
}

/** Whether the measure is an estimate, and all that was found are summaries. */
function hasOnlySummaries({ combine }: ObservationMeasure, found: readonly ObservedSeries[]): boolean {
  return (
    isEstimated(combine) &&
    found.length > 0 &&
    found.every(({ observations }) => observations.buckets.length === 0)
  );
}

/** Whether the measure is estimated from the buckets. Count and mean are exported beside them. */
export function isEstimated(combine: ObservationMeasure["combine"]): boolean {
  return combine !== "count" && combine !== "mean";
}

/**
 * An estimate would leave out what is counted without buckets: by a summary of the same name, or by a histogram whose
 * buckets were dropped. @throws {Refused}
 */
function requireBuckets(
  { backend, query, family }: SeriesPlan,
  { combine }: ObservationMeasure,
  group: readonly Observations[],
): void {
  if (!isEstimated(combine)) return;
  const unbucketed = group.filter(({ buckets }) => buckets.length === 0);
  if (!hasGrown(unbucketed, query.buckets)) return;
  throw family.hasRanges ? createRangesError(backend, combine) : createNoBucketsError(backend, combine);
}

/** A mean would leave out what is counted without a sum. @throws {Refused} */
function requireSums(
  { backend, query }: SeriesPlan,
  { combine }: ObservationMeasure,
  group: readonly Observations[],
): void {
  if (combine !== "mean") return;
  const unsummed = group.filter(({ sum }) => sum === noSamples);
  if (hasGrown(unsummed, query.buckets)) throw createNoSumError(backend);
}

function hasGrown(group: readonly Observations[], buckets: Buckets): boolean {
  return group.some(({ count }) => computeIncrements(count, buckets).some((grown) => grown > 0));
}

function createNoBucketsError(backend: string, combine: string): Refused<"not_supported_by_backend"> {
  return createUnsupportedError(
    backend,
    `the ${combine} of what is counted without buckets, as by a summary`,
  );
}

/**
 * Each histogram or summary with the parts that the measure needs. Where one has no count, the bucket of +Inf is its count.
 */
export async function readClassicHistograms(
  plan: SeriesPlan,
  measure: ObservationMeasure,
): Promise<readonly ObservedSeries[]> {
  const { family } = plan;
  // Estimates read all buckets, and see it themselves.
  if (family.kind === "histogram" && !isEstimated(measure.combine)) await requireCounts(plan);
  if (!family.hasCount) return readWithInfinity(plan, measure, undefined);
  const { count: counting, sum, bucket } = buildClassicParts(plan, measure);
  const other = sum ?? bucket;
  const [found, missing] = await Promise.all([
    downsampleCounters(plan.reader, other === undefined ? [counting] : [counting, other]),
    // The buckets themselves show which histograms have no count.
    bucket === undefined && family.kind === "histogram" ? findUncounted(plan) : [],
  ]);
  const [counts, parts] = [requireAt(found, 0), found[1] ?? []];
  const counted = buildObservedSeries(measure, counts, parts);
  const keys = new Set(counts.map(({ labels }) => formatSeriesKey(labels)));
  const lone = bucket === undefined ? [] : parts.map(({ labels }) => dropBoundLabels(labels));
  const uncounted = [...missing, ...lone].filter((labels) => !keys.has(formatSeriesKey(labels)));
  return uncounted.length === 0
    ? counted
    : [...counted, ...(await readWithInfinity(plan, measure, uncounted))];
}

/** Histograms without a count, of these labels or all. */
async function readWithInfinity(
  plan: SeriesPlan,
  measure: ObservationMeasure,
  only: readonly Labels[] | undefined,
): Promise<readonly ObservedSeries[]> {
  // In another range they may have a count.
  if (only !== undefined) plan.unkept?.addAll();
  const { sum, bucket } = buildClassicParts(plan, measure);
  const all = buildInfinityQuery(plan);
  const narrow = (query: CounterQuery): CounterQuery =>
    only === undefined ? query : { ...query, selector: narrowToSeries(query.selector, only) };
  const queries = [all, ...(sum === undefined ? [] : [sum]), ...(bucket === undefined ? [] : [bucket])];
  const found = await downsampleCounters(plan.reader, queries.map(narrow));
  const keys = only && new Set(only.map(formatSeriesKey));
  const counts = requireAt(found, 0)
    .map(({ labels, samples }) => ({ labels: dropBoundLabels(labels), samples }))
    .filter(({ labels }) => keys === undefined || keys.has(formatSeriesKey(labels)));
  const parts = found[1] ?? [];
  const counted = new Set(counts.map(({ labels }) => formatSeriesKey(labels)));
  const isLost = ({ labels }: DownsampledSeries) =>
    (keys?.has(formatHistogramKey(labels)) ?? true) && !counted.has(formatHistogramKey(labels));
  if (parts.some(isLost)) throw createNoCountError(plan.backend);
  return buildObservedSeries(measure, counts, parts);
}

function buildObservedSeries(
  { combine }: ObservationMeasure,
  counts: readonly DownsampledSeries[],
  parts: readonly DownsampledSeries[],
): readonly ObservedSeries[] {
  const partsOf = Map.groupBy(parts, ({ labels }) => formatHistogramKey(labels));
  return counts.map(({ labels, samples: count }) => {
    const own = partsOf.get(formatSeriesKey(labels)) ?? [];
    const sum = own[0]?.samples ?? noSamples;
    const observations = isEstimated(combine) ? buildObservations(count, own) : { count, sum, buckets: [] };
    return { labels, observations };
  });
}

/** A count and a mean would leave out what has buckets alone, and no bucket +Inf. @throws {Refused | BackendError} */
async function requireCounts({
  backend,
  query,
  reader,
  matchers,
  listUncountable,
}: SeriesPlan): Promise<void> {
  const uncountable = await listUncountable();
  if (uncountable.length === 0) return;
  const { start, step, count } = query.buckets;
  const bucket = narrowSelector(selectPart(query.match, `${query.metric}_bucket`), [
    matchPresent("le"),
    ...matchers,
  ]);
  // Left-closed ranges cannot express a window of 1 ms; one more millisecond does no harm.
  const span = { from: Math.max(2, step * count), to: 1 };
  const last = call("last_over_time", reader.selectRange(narrowToSeries(bucket, uncountable), span));
  const keys = new Set(uncountable.map(formatSeriesKey));
  const found = await reader.readInstant(last, start + step * count);
  if (found.some(({ labels }) => keys.has(formatHistogramKey(labels)))) throw createNoCountError(backend);
}

export function createNoCountError(backend: string): Refused<"not_supported_by_backend"> {
  return createUnsupportedError(backend, "a histogram without a count or a bucket +Inf");
}

/** The labels of histograms that have a bucket +Inf in the range, but no count. */
async function findUncounted(plan: SeriesPlan): Promise<readonly Labels[]> {
  const { start, step, count } = plan.query.buckets;
  const length = step * count;
  const found = await plan.reader.readInstant(buildUncounted(plan, length), start + length);
  return found.map(({ labels }) => dropBoundLabels(labels));
}

/** A histogram without a count in a bucket may lack it in all of another range, and is then counted in another way. */
async function noteUncounted(plan: SeriesPlan): Promise<void> {
  const { reader, unkept, query, limit } = plan;
  if (unkept === undefined) return;
  const { start, step } = query.buckets;
  const uncounted = aggregate("group", [], buildUncounted(plan, step));
  for (const { values } of await reader.readGrid(uncounted, query.buckets, limit))
    for (const [bucket, value] of values.entries())
      if (!Number.isNaN(value)) unkept.add(start + bucket * step);
}

/** The buckets +Inf without a count, in the window of this length before the time of evaluation. */
function buildUncounted({ query, reader, matchers }: SeriesPlan, length: Millis): Expression {
  const selectLast = (name: string, more: readonly Matcher[]) => {
    const selector = narrowSelector(selectPart(query.match, name), [...more, ...matchers]);
    // Left-closed ranges cannot express a window of 1 ms; one more millisecond does no harm.
    return call("last_over_time", reader.selectRange(selector, { from: Math.max(2, length), to: 1 }));
  };
  const all = selectLast(`${query.metric}_bucket`, [matchAnyOf("le", infinities)]);
  const counted = selectLast(`${query.metric}_count`, []);
  return exclude(all, counted, ["le", ...metadataLabels.filter((label) => label !== metricName)]);
}

function buildInfinityQuery(plan: SeriesPlan): CounterQuery {
  const query = buildCounterQuery(plan, `${plan.query.metric}_bucket`, {});
  const bounds = [matchAnyOf("le", infinities)];
  const { selector, metric } = query;
  return { ...query, selector: narrowSelector(selector, bounds), metric: narrowSelector(metric, bounds) };
}

/**
 * Refuses what no series of the metric can answer, for the parts that it lacks. @throws {Refused}
 */
export function requireParts({ backend, family }: SeriesPlan, { combine }: ObservationMeasure): void {
  if (family.hasRanges && family.kind === "summary" && (isEstimated(combine) || !family.hasCount))
    throw createRangesError(backend, combine);
  if (combine === "mean" && !family.hasSum) throw createNoSumError(backend);
}

function createRangesError(backend: string, combine: string): Refused<"not_supported_by_backend"> {
  return createUnsupportedError(backend, `the ${combine} of buckets with the label vmrange instead of le`);
}

function createNoSumError(backend: string): Refused<"not_supported_by_backend"> {
  return createUnsupportedError(
    backend,
    "the mean of a histogram or summary that is exported without its sum",
  );
}

export function buildClassicParts(plan: SeriesPlan, { combine }: ObservationMeasure): ClassicParts {
  const { metric } = plan.query;
  const count = buildCounterQuery(plan, `${metric}_count`, {});
  if (combine === "count") return { count };
  if (combine === "mean")
    return { count, sum: buildCounterQuery(plan, `${metric}_sum`, { canRestart: false }) };
  return { count, bucket: requireBoundLabel(buildCounterQuery(plan, `${metric}_bucket`, {})) };
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
  const forms = [createClassicForm(reader, classic), createNativeForm(reader, native)];
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
  return combineByGroup(plan, members, (group) => {
    const classics = group.flatMap((one) => ("observations" in one ? one.observations : []));
    requireBuckets(plan, measure, classics);
    requireSums(plan, measure, classics);
    const natives = group.flatMap((one) => ("observations" in one ? [] : one));
    if (classic.bucket !== undefined && natives.some(({ hasUnbucketed }) => hasUnbucketed))
      throw createNoBucketsError(backend, measure.combine);
    const bounds = classic.bucket === undefined ? [] : chooseBounds(classics, natives, query.buckets);
    if (bounds === undefined) {
      const feature = `${measure.combine} over classic and native buckets together`;
      throw createUnsupportedError(
        backend,
        `${feature}; a range before or after the change, or count and mean, can be had`,
      );
    }
    const counted = natives.map((growth) => toObservations(growth, bounds, query.buckets));
    return combineObservations([...classics, ...counted], measure, query.buckets);
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
      isOpen(samples) && samples !== noSamples ? { ...samples, baseline } : samples;
    const { count, sum, buckets } = one.observations;
    const parts = buckets.map(({ bound, samples }) => ({ bound, samples: correct(samples) }));
    return { ...one, observations: { count: correct(count), sum: correct(sum), buckets: parts } };
  });
}

const noSamples: CounterSamples = { times: new Float64Array(), values: new Float64Array(), baseline: "own" };

function requireBoundLabel(query: CounterQuery): CounterQuery {
  const bounds = [matchPresent("le")];
  return {
    ...query,
    selector: narrowSelector(query.selector, bounds),
    metric: narrowSelector(query.metric, bounds),
  };
}

export function buildObservations(count: CounterSamples, series: readonly DownsampledSeries[]): Observations {
  const buckets = sortByBound(series).map(({ bound, series: { samples } }) => ({ bound, samples }));
  // The count is that of the bucket +Inf, should that be missing.
  const isOpen = buckets.length > 0 && buckets.at(-1)?.bound !== Number.POSITIVE_INFINITY;
  if (isOpen) buckets.push({ bound: Number.POSITIVE_INFINITY, samples: count });
  return { count, sum: noSamples, buckets };
}

/**
 * Quantiles of a summary, which clients computed. They cannot be merged: each group has to have one summary that exports
 * the quantile. @throws {Refused | BackendError}
 */
export async function readSummary(plan: SeriesPlan, measure: ObservationMeasure): Promise<readonly Series[]> {
  const { query, reader } = plan;
  // Whether there is one summary alone is a matter of the whole range.
  plan.unkept?.addAll();
  const quantile = measure.combine === "quantile" ? measure.quantile : measure.combine === "max" ? 1 : 0;
  const options = { canRestart: false, looksBack: false };
  const named = buildCounterQuery(plan, query.metric, options);
  const exported = { ...named, selector: narrowSelector(named.selector, [matchPresent("quantile")]) };
  const counting = buildCounterQuery(plan, `${query.metric}_count`, options);
  const [found, counts] = await Promise.all([
    downsampleCounter(reader, exported),
    surveySeries(reader, counting),
  ]);
  // A recording rule may keep other labels of the count than of the quantiles.
  for (const part of [found, counts]) requireOneSummary(plan, part);
  const own = found.filter(({ labels }) => parseBound(readLabel(labels, "quantile")) === quantile);
  const measured = await dropCreatedTimestampZeros(reader, exported, counting, own);
  const complete = new Set(measured.map(({ labels }) => formatGroupKey(plan, labels)));
  if ([...found, ...counts].some(({ labels }) => !complete.has(formatGroupKey(plan, labels)))) {
    throw createUnsupportedError(
      plan.backend,
      `the quantile ${quantile} of a summary that does not export it`,
    );
  }
  return combineByGroup(plan, measured, (group) =>
    combineSamples([requireFirst(group).samples], { of: "samples", combine: "last" }, query.buckets),
  );
}

/** One without this quantile would be left out of the answer as well. @throws {Refused} for two summaries of one group */
function requireOneSummary(plan: SeriesPlan, parts: readonly { readonly labels: Labels }[]): void {
  const summaryOf = new Map<string, string>();
  for (const { labels } of parts) {
    const [group, summary] = [formatGroupKey(plan, labels), formatSeriesKey(dropBoundLabels(labels))];
    if ((summaryOf.get(group) ?? summary) !== summary)
      throw createUnsupportedError(plan.backend, "a quantile of several summaries");
    summaryOf.set(group, summary);
  }
}

/** @throws {Refused | BackendError} */
export async function readNativeHistogram(
  plan: SeriesPlan,
  measure: ObservationMeasure,
): Promise<readonly Series[]> {
  const query = buildCounterQuery(plan, plan.query.metric, {});
  const found = await readGrowth(
    plan.reader,
    [createNativeForm(plan.reader, query)],
    query,
    isEstimated(measure.combine),
  );
  return combineByGroup(plan, found, (group) => {
    const bounds = findCommonBounds(group);
    if (bounds.length === 0 && group.some(({ below }) => below.size > 0))
      throw createUnsupportedError(
        plan.backend,
        `the ${measure.combine} over buckets that have no bound in common`,
      );
    const observations = group.map((growth) => toObservations(growth, bounds, query.buckets));
    return combineObservations(observations, measure, query.buckets);
  });
}
