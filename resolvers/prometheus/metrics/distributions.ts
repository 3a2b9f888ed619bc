// Reads measurements: histograms, classic, native or both, and summaries. A source keeps them as counters of several
// series, from which `src/metrics/samples.ts` computes the answer. An estimate that would leave some of them out is refused.
import { requireAt, requireFirst } from "../../../src/core/collections.ts";
import { createUnsupportedError, type Refused } from "../../../src/core/errors.ts";
import type { Buckets, Measure, Series } from "../../../src/core/rows.ts";
import {
  type CounterSamples,
  combineObservations,
  combineSamples,
  computeIncrements,
  type Observations,
  parseBound,
} from "../../../src/metrics/samples.ts";
import { matchEqual, matchPresent, narrowSelector } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { formatNumericKey } from "./bound-spellings.ts";
import { type CounterQuery, surveySeries } from "./bucket-survey.ts";
import {
  type DownsampledSeries,
  downsampleCounter,
  downsampleCounters,
  formatHistogramKey,
} from "./counter-downsampling.ts";
import type { HistogramGrowth } from "./histogram-growth.ts";
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
import { formatSeriesKey, readLabel, type SeriesReader } from "./series-reader.ts";
import { dropCreatedTimestampZeros } from "./summary-quantiles.ts";

type ObservationMeasure = Extract<Measure, { of: "observations" }>;

/** One histogram or summary, with the parts that the measure needs. */
interface ObservedSeries {
  readonly labels: Labels;
  readonly observations: Observations;
}

/** Classic histograms, and the mean of a summary. @throws {Refused | BackendError} */
export async function readHistogram(
  plan: SeriesPlan,
  measure: ObservationMeasure,
): Promise<readonly Series[]> {
  const found = await readClassicHistograms(plan, measure);
  if (hasOnlySummaries(measure, found)) return readSummary(plan, measure);
  return combineByGroup(plan, found, (group) => {
    const observations = group.map((one) => one.observations);
    requireBuckets(plan, measure, observations);
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
function isEstimated(combine: ObservationMeasure["combine"]): boolean {
  return combine !== "count" && combine !== "mean";
}

/**
 * An estimate would leave out what is counted without buckets: by a summary of the same name, or by a histogram whose
 * buckets were dropped. @throws {Refused}
 */
function requireBuckets(
  { backend, query }: SeriesPlan,
  { combine }: ObservationMeasure,
  group: readonly Observations[],
): void {
  if (!isEstimated(combine)) return;
  const unbucketed = group.filter(({ buckets }) => buckets.length === 0);
  if (unbucketed.some(({ count }) => computeIncrements(count, query.buckets).some((grown) => grown > 0)))
    throw createNoBucketsError(backend, combine);
}

function createNoBucketsError(backend: string, combine: string): Refused<"not_supported_by_backend"> {
  return createUnsupportedError(
    backend,
    `the ${combine} of what is counted without buckets, as by a summary`,
  );
}

async function readClassicHistograms(
  plan: SeriesPlan,
  measure: ObservationMeasure,
): Promise<readonly ObservedSeries[]> {
  const { reader } = plan;
  const { count: counting, sum, bucket } = buildClassicParts(plan, measure);
  const other = sum ?? bucket;
  if (other === undefined) {
    const counts = await downsampleCounter(reader, counting);
    return counts.map(({ labels, samples: count }) => ({
      labels,
      observations: { count, sum: noSamples, buckets: [] },
    }));
  }
  const found = await downsampleCounters(reader, [counting, other]);
  const [counts, parts] = [requireAt(found, 0), requireAt(found, 1)];
  const partsOf = Map.groupBy(parts, ({ labels }) => formatHistogramKey(labels));
  return counts.map(({ labels, samples: count }) => {
    const own = partsOf.get(formatSeriesKey(labels)) ?? [];
    return {
      labels,
      observations: sum
        ? { count, sum: own[0]?.samples ?? noSamples, buckets: [] }
        : buildObservations(count, own),
    };
  });
}

function buildClassicParts(plan: SeriesPlan, { combine }: ObservationMeasure): ClassicParts {
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
      isOpen(samples) ? { ...samples, baseline } : samples;
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

function buildObservations(count: CounterSamples, series: readonly DownsampledSeries[]): Observations {
  const buckets = sortByBound(series).map(({ bound, series: { samples } }) => ({ bound, samples }));
  return { count, sum: noSamples, buckets };
}

/**
 * Quantiles of a summary, which clients computed. They cannot be merged: each group has to have one summary that exports
 * the quantile. @throws {Refused | BackendError}
 */
export async function readSummary(plan: SeriesPlan, measure: ObservationMeasure): Promise<readonly Series[]> {
  const { query, reader } = plan;
  const quantile = measure.combine === "quantile" ? measure.quantile : measure.combine === "max" ? 1 : 0;
  const options = { canRestart: false, looksBack: false };
  const named = buildCounterQuery(plan, query.metric, options);
  const exported = { ...named, selector: narrowSelector(named.selector, [matchPresent("quantile")]) };
  const counting = buildCounterQuery(plan, `${query.metric}_count`, options);
  const [found, counts] = await Promise.all([
    downsampleCounter(reader, exported),
    surveySeries(reader, counting),
  ]);
  const own = found.filter(({ labels }) => parseBound(readLabel(labels, "quantile")) === quantile);
  const measured = await dropCreatedTimestampZeros(reader, exported, counting, own);
  const complete = new Set(measured.map(({ labels }) => formatGroupKey(plan, labels)));
  if ([...found, ...counts].some(({ labels }) => !complete.has(formatGroupKey(plan, labels)))) {
    throw createUnsupportedError(
      plan.backend,
      `the quantile ${quantile} of a summary that does not export it`,
    );
  }
  return combineByGroup(plan, measured, (group) => {
    if (new Set(group.map(({ labels }) => formatNumericKey(labels))).size > 1)
      throw createUnsupportedError(plan.backend, "a quantile of several summaries");
    return combineSamples([requireFirst(group).samples], { of: "samples", combine: "last" }, query.buckets);
  });
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
