// Reads classic histograms, and what summaries count. A source keeps them as counters of several series, from which
// `src/metrics/samples.ts` computes the answer. An estimate that would leave some of them out is refused.
import { groupInTurns, mapInTurns, takeSteps, visitInTurns } from "../../../src/core/async/turns.ts";
import { requireAt, requireFirst } from "../../../src/core/collections.ts";
import { createUnsupportedError, type Refused } from "../../../src/core/errors.ts";
import type { Buckets, Series } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import {
  type CounterSamples,
  combineObservationsInSteps,
  computeIncrements,
  noSamples,
  type Observations,
} from "../../../src/metrics/samples.ts";
import {
  aggregate,
  call,
  type Expression,
  exclude,
  type Matcher,
  matchAnyOf,
  matchPresent,
  metadataLabels,
  metricName,
  narrowSelector,
  type Selector,
} from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { dropBoundLabels, formatHistogramKey, infinities, sortByBound } from "../counters/bound-spellings.ts";
import type { CounterQuery } from "../counters/bucket-survey.ts";
import { type DownsampledSeries, downsampleCounters } from "../counters/counter-downsampling.ts";
import { narrowToSeries } from "../counters/series-narrowing.ts";
import { formatSeriesKey } from "../counters/series-reader.ts";
import { selectPart } from "./family-listing.ts";
import { groupObservations } from "./grouped-observations.ts";
import { readIncrements } from "./increments.ts";
import {
  buildClassicParts,
  buildCounterQuery,
  combineByGroup,
  isEstimated,
  narrowQuery,
  type ObservationMeasure,
  type SeriesPlan,
} from "./series-groups.ts";
import { readInGroups } from "./source-grouping.ts";
import { readSummary } from "./summary-quantiles.ts";

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
  const hasCounts = family.kind === "histogram" && family.hasCount;
  if (hasCounts) await noteUncounted(plan);
  const completeness = createCompleteness(plan);
  if (measure.combine === "count" && hasCounts && (await areAllCounted(completeness)))
    return readIncrements(plan, `${query.metric}_count`);
  const read = (part: SeriesPlan, isPart: boolean) =>
    readHistogramSeries(part, measure, isPart, isPart ? createCompleteness(part) : completeness);
  const hasParts = hasCounts && !family.hasRanges;
  const grouped = hasParts && groupObservations(plan, measure, buildClassicParts(plan, measure));
  if (!grouped) return read(plan, false);
  return readInGroups(plan, {
    ...grouped,
    name: query.metric,
    isComplete: () => areAllCounted(completeness),
    read,
  });
}

/** Of all of a query, or of a part of it, where the histograms of the whole have buckets. */
async function readHistogramSeries(
  plan: SeriesPlan,
  measure: ObservationMeasure,
  isPart: boolean,
  completeness: Completeness,
): Promise<readonly Series[]> {
  const found = await readClassicHistograms(plan, measure, completeness);
  if (!isPart && hasOnlySummaries(measure, found)) {
    if (plan.family.hasRanges) throw createRangesError(plan.backend, measure.combine);
    return readSummary(plan, measure);
  }
  return combineByGroup(plan, found, (group) => {
    const observations = group.map((one) => one.observations);
    requireBuckets(plan, measure, observations);
    requireSums(plan, measure, observations);
    return takeSteps(combineObservationsInSteps(observations, measure, plan.query.buckets));
  });
}

/** Whether the measure is an estimate, and all that was found are summaries. */
export function hasOnlySummaries({ combine }: ObservationMeasure, found: readonly ObservedSeries[]): boolean {
  return (
    isEstimated(combine) &&
    found.length > 0 &&
    found.every(({ observations }) => observations.buckets.length === 0)
  );
}

/**
 * An estimate would leave out what is counted without buckets: by a summary of the same name, or by a histogram whose
 * buckets were dropped. @throws {Refused}
 */
export function requireBuckets(
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
export function requireSums(
  { backend, query }: SeriesPlan,
  { combine }: ObservationMeasure,
  group: readonly Observations[],
): void {
  if (combine !== "mean") return;
  const unsummed = group.filter(({ sum }) => sum.times.length === 0);
  if (hasGrown(unsummed, query.buckets)) throw createNoSumError(backend);
}

function hasGrown(group: readonly Observations[], buckets: Buckets): boolean {
  return group.some(({ count }) => computeIncrements(count, buckets).some((grown) => grown > 0));
}

export function createNoBucketsError(backend: string, combine: string): Refused<"not_supported_by_backend"> {
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
  { findUncounted, requireCounts } = createCompleteness(plan),
): Promise<readonly ObservedSeries[]> {
  const { family } = plan;
  // Estimates read all buckets, and see it themselves.
  if (family.kind === "histogram" && !isEstimated(measure.combine)) await requireCounts();
  if (!family.hasCount) return readWithInfinity(plan, measure, undefined);
  const { count: counting, sum, bucket } = buildClassicParts(plan, measure);
  const other = sum ?? bucket;
  const [found, missing] = await Promise.all([
    downsampleCounters(plan.reader, other === undefined ? [counting] : [counting, other]),
    // The buckets themselves show which histograms have no count.
    bucket === undefined && family.kind === "histogram" ? findUncounted() : [],
  ]);
  const [counts, parts] = [requireAt(found, 0), found[1] ?? []];
  const partsOf = await groupByHistogram(parts);
  const counted = await buildObservedSeries(measure, counts, partsOf);
  const keys = new Set(await mapInTurns(counts, ({ labels }) => formatSeriesKey(labels)));
  const lone = bucket === undefined ? [] : [...partsOf.values()].map((own) => requireFirst(own).labels);
  const uncounted: Labels[] = [];
  await visitInTurns([...missing, ...lone.map(dropBoundLabels)], (labels) => {
    if (!keys.has(formatSeriesKey(labels))) uncounted.push(labels);
  });
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
  const buckets = buildCounterQuery(plan, `${plan.query.metric}_bucket`, {});
  const all = narrowQuery(buckets, [matchAnyOf("le", infinities)]);
  const narrow = (query: CounterQuery): CounterQuery =>
    only === undefined ? query : { ...query, selector: narrowToSeries(query.selector, only) };
  const queries = [all, ...(sum === undefined ? [] : [sum]), ...(bucket === undefined ? [] : [bucket])];
  const found = await downsampleCounters(plan.reader, queries.map(narrow));
  const keys = only && new Set(only.map(formatSeriesKey));
  const counts: DownsampledSeries[] = [];
  const counted = new Set<string>();
  await visitInTurns(requireAt(found, 0), ({ samples, ...one }) => {
    const labels = dropBoundLabels(one.labels);
    const key = formatSeriesKey(labels);
    if (keys?.has(key) === false) return;
    counts.push({ labels, samples });
    counted.add(key);
  });
  const partsOf = await groupByHistogram(found[1] ?? []);
  for (const key of partsOf.keys())
    if ((keys?.has(key) ?? true) && !counted.has(key)) throw createNoCountError(plan.backend);
  return buildObservedSeries(measure, counts, partsOf);
}

/** By `formatHistogramKey`. */
type HistogramParts = ReadonlyMap<string, readonly DownsampledSeries[]>;

export function groupByHistogram(parts: readonly DownsampledSeries[]): Promise<HistogramParts> {
  return groupInTurns(parts, ({ labels }) => formatHistogramKey(labels));
}

function buildObservedSeries(
  { combine }: ObservationMeasure,
  counts: readonly DownsampledSeries[],
  partsOf: HistogramParts,
): Promise<readonly ObservedSeries[]> {
  return mapInTurns(counts, ({ labels, samples: count }) => {
    const own = partsOf.get(formatSeriesKey(labels)) ?? [];
    const sum = own[0]?.samples ?? noSamples;
    const observations = isEstimated(combine) ? buildObservations(count, own) : { count, sum, buckets: [] };
    return { labels, observations };
  });
}

/** What the histograms of a plan lack. Each is asked for once. */
interface Completeness {
  /** The labels of histograms that have a bucket +Inf in the range, but no count. */
  readonly findUncounted: () => Promise<readonly Labels[]>;
  /** A count and a mean would leave out what has buckets alone, and no bucket +Inf. @throws {Refused | BackendError} */
  readonly requireCounts: () => Promise<void>;
}

function createCompleteness(plan: SeriesPlan): Completeness {
  let uncounted: Promise<readonly Labels[]> | undefined;
  let required: Promise<void> | undefined;
  return {
    findUncounted: () => {
      uncounted ??= findUncounted(plan);
      return uncounted;
    },
    requireCounts: () => {
      required ??= requireCounts(plan);
      return required;
    },
  };
}

/** @throws {Refused | BackendError} as `requireCounts` */
async function areAllCounted({ findUncounted, requireCounts }: Completeness): Promise<boolean> {
  const [uncounted] = await Promise.all([findUncounted(), requireCounts()]);
  return uncounted.length === 0;
}

/** As in `Completeness`. */
export async function requireCounts(plan: SeriesPlan): Promise<void> {
  const uncountable = await plan.listUncountable();
  if (uncountable.length === 0) return;
  const { start, step, count } = plan.query.buckets;
  const buckets = narrowToSeries(selectNarrowed(plan, "_bucket", [matchPresent("le")]), uncountable);
  const last = buildLast(plan, buckets, step * count);
  const keys = new Set(uncountable.map(formatSeriesKey));
  const found = await plan.reader.readInstant(last, start + step * count);
  if (found.some(({ labels }) => keys.has(formatHistogramKey(labels))))
    throw createNoCountError(plan.backend);
}

export function createNoCountError(backend: string): Refused<"not_supported_by_backend"> {
  return createUnsupportedError(backend, "a histogram without a count or a bucket +Inf");
}

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
function buildUncounted(plan: SeriesPlan, length: Millis): Expression {
  const all = buildLast(plan, selectNarrowed(plan, "_bucket", [matchAnyOf("le", infinities)]), length);
  const counted = buildLast(plan, selectNarrowed(plan, "_count", []), length);
  return exclude(all, counted, ["le", ...metadataLabels.filter((label) => label !== metricName)]);
}

/** The series of one part that the plan's tags and some more matchers select. */
function selectNarrowed(
  { query, matchers }: SeriesPlan,
  part: "_bucket" | "_count",
  more: readonly Matcher[],
): Selector {
  return narrowSelector(selectPart(query.match, `${query.metric}${part}`), [...more, ...matchers]);
}

/** The last sample of each series, in the window of this length before the time of evaluation. */
function buildLast({ reader }: SeriesPlan, selector: Selector, length: Millis): Expression {
  // Left-closed ranges cannot express a window of 1 ms; one more millisecond does no harm.
  return call("last_over_time", reader.selectRange(selector, { from: Math.max(2, length), to: 1 }));
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

export function buildObservations(count: CounterSamples, series: readonly DownsampledSeries[]): Observations {
  const buckets = sortByBound(series).map(({ bound, series: { samples } }) => ({ bound, samples }));
  // The count is that of the bucket +Inf, should that be missing.
  const isOpen = buckets.length > 0 && buckets.at(-1)?.bound !== Number.POSITIVE_INFINITY;
  if (isOpen) buckets.push({ bound: Number.POSITIVE_INFINITY, samples: count });
  return { count, sum: noSamples, buckets };
}
