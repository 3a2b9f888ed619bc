// Measurements: histograms, classic and native and both at once, and summaries. What a source has of them are counters of
// several series, of which `src/metrics/samples.ts` makes the answer; what is told of some of them alone is refused.
import { createUnsupportedError, type Refused } from "../../../src/core/errors.ts";
import type { Buckets, Measure, Series } from "../../../src/core/rows.ts";
import {
  type CounterSamples,
  combineObservations,
  combineSamples,
  computeIncrements,
  type Observations,
} from "../../../src/metrics/samples.ts";
import { matchEqual, matchPresent, narrowSelector } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import {
  type CounterQuery,
  type DownsampledSeries,
  downsampleCounter,
  downsampleCounters,
  formatHistogramKey,
  surveySeries,
} from "./counter-downsampling.ts";
import {
  type ClassicParts,
  chooseBounds,
  createClassicForm,
  findClassicNativeMismatch,
  groupByBound,
  joinSpellings,
} from "./mixed-histograms.ts";
import {
  createNativeForm,
  findCommonBounds,
  findNewSeries,
  type HistogramForm,
  type HistogramGrowth,
  readGrowth,
  toObservations,
} from "./native-histograms.ts";
import { buildCounterQuery, combineByGroup, formatGroupKey, type SeriesPlan } from "./series-groups.ts";
import {
  formatNumericKey,
  formatSeriesKey,
  parseBound,
  readLabel,
  type SeriesReader,
} from "./series-reader.ts";
import { dropCreatedTimestampZeros } from "./summary-quantiles.ts";

type ObservationMeasure = Extract<Measure, { of: "observations" }>;

/** One histogram or summary as the measure needs it. */
interface ObservedSeries {
  readonly labels: Labels;
  readonly observations: Observations;
}

/** Classic histograms, and the mean of a summary. */
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

/** Whether an estimate is asked of nothing but summaries. */
function hasOnlySummaries({ combine }: ObservationMeasure, found: readonly ObservedSeries[]): boolean {
  return (
    isEstimated(combine) &&
    found.length > 0 &&
    found.every(({ observations }) => observations.buckets.length === 0)
  );
}

/** Whether it is estimated from the buckets: a count and a mean are told beside them. */
function isEstimated(combine: ObservationMeasure["combine"]): boolean {
  return combine !== "count" && combine !== "mean";
}

/** An estimate would lack what is counted without buckets: a summary by the same name, or whose buckets were dropped. */
function requireBuckets(
  { backend, query }: SeriesPlan,
  { combine }: ObservationMeasure,
  group: readonly Observations[],
): void {
  if (!isEstimated(combine)) return;
  const bare = group.filter(({ buckets }) => buckets.length === 0);
  if (bare.some(({ count }) => computeIncrements(count, query.buckets).some((grown) => grown > 0)))
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
  const [counts = [], parts = []] = await downsampleCounters(reader, [counting, other]);
  const partsOf = Map.groupBy(parts, ({ labels }) => formatHistogramKey(labels));
  return counts.map(({ labels, samples: count }) => {
    const own = partsOf.get(formatSeriesKey(labels)) ?? [];
    return {
      labels,
      observations: sum
        ? { count, sum: own[0]?.samples ?? noSamples, buckets: [] }
        : buildObservations(count, own, plan.query.buckets),
    };
  });
}

function buildClassicParts(plan: SeriesPlan, { combine }: ObservationMeasure): ClassicParts {
  const { metric } = plan.query;
  const count = buildCounterQuery(plan, `${metric}_count`, {});
  if (combine === "count") return { count };
  if (combine === "mean") return { count, sum: buildCounterQuery(plan, `${metric}_sum`, { falls: false }) };
  return { count, bucket: requireBoundLabel(buildCounterQuery(plan, `${metric}_bucket`, {})) };
}

/** Classic histograms that the native ones beside them tell nothing new of, and all others from both forms. */
export async function readMixedHistogram(
  plan: SeriesPlan,
  measure: ObservationMeasure,
): Promise<readonly Series[]> {
  const { query, reader, backend } = plan;
  const classic = buildClassicParts(plan, measure);
  const named = buildCounterQuery(plan, query.metric, {});
  // By the same name a summary has its quantiles.
  const ofNative = { ...named, selector: narrowSelector(named.selector, [matchEqual("quantile", "")]) };
  const { uneven, others } = await findClassicNativeMismatch(reader, classic.count, ofNative);
  const forms = [createClassicForm(reader, classic), createNativeForm(reader, ofNative)];
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
    if (classic.bucket !== undefined && natives.some(({ hasUnbucketed: bare }) => bare))
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

/** With the births that both forms together tell, of those that have nothing before the buckets. */
async function resolveSeriesStarts(
  reader: SeriesReader,
  forms: readonly HistogramForm[],
  found: readonly ObservedSeries[],
  { start }: Buckets,
): Promise<readonly ObservedSeries[]> {
  const isOpen = ({ times: [first = start] }: CounterSamples) => first >= start;
  const open = found.filter(({ observations }) => isOpen(observations.count));
  const born = await findNewSeries(reader, forms, open, open.length < found.length);
  const opened = new Set(open);
  return found.map((one) => {
    if (!opened.has(one)) return one;
    const birth = born.has(formatSeriesKey(one.labels)) ? "zero" : "own";
    const since = (samples: CounterSamples) =>
      isOpen(samples) ? ({ ...samples, baseline: birth } as const) : samples;
    const { count, sum, buckets } = one.observations;
    const parts = buckets.map(({ bound, samples }) => ({ bound, samples: since(samples) }));
    return { ...one, observations: { count: since(count), sum: since(sum), buckets: parts } };
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

function buildObservations(
  count: CounterSamples,
  series: readonly DownsampledSeries[],
  { start }: Buckets,
): Observations {
  const buckets = groupByBound(series).map(({ bound, parts }) => ({
    bound,
    samples:
      joinSpellings(
        parts.map(({ samples }) => samples),
        start,
      ) ?? noSamples,
  }));
  return { count, sum: noSamples, buckets };
}

/** A quantile that clients computed cannot be merged: it is answered where it is exported and stands alone. */
export async function readSummary(plan: SeriesPlan, measure: ObservationMeasure): Promise<readonly Series[]> {
  const { query, reader } = plan;
  const quantile = measure.combine === "quantile" ? measure.quantile : measure.combine === "max" ? 1 : 0;
  const plain = { falls: false, born: false };
  const named = buildCounterQuery(plan, query.metric, plain);
  const exported = { ...named, selector: narrowSelector(named.selector, [matchPresent("quantile")]) };
  const counting = buildCounterQuery(plan, `${query.metric}_count`, plain);
  const [found, counts] = await Promise.all([
    downsampleCounter(reader, exported),
    surveySeries(reader, counting),
  ]);
  const own = found.filter(({ labels }) => parseBound(readLabel(labels, "quantile")) === quantile);
  const fitting = await dropCreatedTimestampZeros(reader, exported, counting, own);
  const having = new Set(fitting.map(({ labels }) => formatGroupKey(plan, labels)));
  if ([...found, ...counts].some(({ labels }) => !having.has(formatGroupKey(plan, labels)))) {
    throw createUnsupportedError(
      plan.backend,
      `the quantile ${quantile} of a summary that does not export it`,
    );
  }
  return combineByGroup(plan, fitting, (group) => {
    if (new Set(group.map(({ labels }) => formatNumericKey(labels))).size > 1)
      throw createUnsupportedError(plan.backend, "a quantile of several summaries");
    const samples = joinSpellings(
      group.map(({ samples }) => samples),
      query.buckets.start,
    );
    return combineSamples([samples ?? noSamples], { of: "samples", combine: "last" }, query.buckets);
  });
}

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
