// Single series, of which a store over several sources computes measures itself.
import { mapInTurns, visitInTurns } from "../../../src/core/async/turns.ts";
import { createUnsupportedError } from "../../../src/core/errors.ts";
import { dropNonFinite, noSamples, type Samples } from "../../../src/metrics/samples.ts";
import type {
  MemberReader,
  RawMemberQuery,
  SampledMember,
  SeriesMember,
  SeriesQuery,
  Tags,
} from "../../../src/store/metrics.ts";
import { matchAnyOf, narrowSelector, type Selector } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { dropBoundLabels, infinities, joinSpellings } from "../counters/bound-spellings.ts";
import { type DownsampledSeries, downsampleCounter } from "../counters/counter-downsampling.ts";
import { chunkSeries, narrowToSeries } from "../counters/series-narrowing.ts";
import { formatSeriesKey, runConcurrent } from "../counters/series-reader.ts";
import { findEarlierSeries, findMetricStart, type SeriesStartQuery } from "../counters/series-start.ts";
import {
  buildObservations,
  createNoCountError,
  groupByHistogram,
  type ObservedSeries,
  readClassicHistograms,
  requireCounts,
  requireParts,
} from "./classic-histograms.ts";
import { selectAllParts, selectPart } from "./family-listing.ts";
import { readSingleGauges } from "./gauges.ts";
import { isTag, selectTagged, typeByShape } from "./metric-families.ts";
import { buildClassicParts, buildCounterQuery, isEstimated, type SeriesPlan } from "./series-groups.ts";
import type { MetricShape } from "./shape-detection.ts";
import { readSummary } from "./summary-quantiles.ts";

/** Runs a query whose metric is known. It may be called again, if the server was upgraded meanwhile. */
export type PlanRunner<T> = (shape: MetricShape, plan: SeriesPlan) => Promise<T>;

/** Plans a query and runs it, or returns `none` if there is nothing to find. */
type QueryRunner = <T>(query: SeriesQuery, signal: AbortSignal, run: PlanRunner<T>, none: T) => Promise<T>;

export function createMemberReader(runQuery: QueryRunner): MemberReader {
  return {
    read: (query, signal) => runQuery<readonly SeriesMember[]>(query, signal, readMembers, []),
    readRaw: (query, signal) => {
      const own = { ...query, lookBack: 0, pointLimit: query.sampleLimit };
      const run: PlanRunner<readonly SampledMember[]> = (shape, plan) => readRawMembers(shape, plan, query);
      return runQuery(own, signal, run, []);
    },
    findHeldBefore: (query, before, only, signal) => {
      const buckets = { start: before, step: 1, count: 1 };
      const run: PlanRunner<readonly Tags[]> = async (shape, plan) => {
        const held = await findEarlierSeries(plan.reader, buildStartQueries(shape, plan), only, before);
        const tagsByKey = new Map<string, Tags>();
        const add = (labels: Labels) => {
          const tags = readAllTags(shape, plan, labels);
          tagsByKey.set(formatSeriesKey(tags), tags);
        };
        await visitInTurns(held, add);
        return [...tagsByKey.values()];
      };
      return runQuery({ ...query, buckets, lookBack: 0, pointLimit: 0 }, signal, run, []);
    },
    findFirstTime: (query, signal) => {
      const run: PlanRunner<number> = (shape, plan) =>
        findMetricStart(plan.reader, buildStartQueries(shape, plan), query.buckets);
      // Whatever the tags: a label that the place does not know would match nothing.
      const own = { ...query, tags: {}, lookBack: 0, pointLimit: 0 };
      return runQuery(own, signal, run, Number.POSITIVE_INFINITY);
    },
  };
}

/** All labels that are tags, whichever of them the query names. */
function readAllTags(shape: MetricShape, { query }: SeriesPlan, labels: Labels): Tags {
  return Object.fromEntries(
    Object.entries(labels).filter(([label, value]) => value !== "" && isTag(query.match, shape, label)),
  );
}

/** One query for each name under which series of the metric begin. */
function buildStartQueries(
  shape: MetricShape,
  { query, family, matchers, limit }: SeriesPlan,
): readonly SeriesStartQuery[] {
  const allParts = selectAllParts(query.match, query.metric, family);
  return selectTagged(query.match, query.metric, { shape, family }).map((metric) => ({
    selector: narrowSelector(metric, matchers),
    metric,
    allParts,
    buckets: query.buckets,
    lookBack: query.lookBack,
    limit,
  }));
}

/** @throws {Refused} of histograms that have native samples: those of several sources or scrapers are not merged */
function requireClassic(shape: MetricShape, { backend }: SeriesPlan): void {
  if (shape === "native" || shape === "both")
    throw createUnsupportedError(backend, "native histograms that several backends or scrapers have");
}

// ---- As reduced as the measure allows ----------------------------------------------------------------------------

async function readMembers(shape: MetricShape, plan: SeriesPlan): Promise<readonly SeriesMember[]> {
  const { measure, metric } = plan.query;
  requireClassic(shape, plan);
  requireMeasured(shape, plan);
  const toMember = ({ labels, samples }: DownsampledSeries): SeriesMember => ({
    tags: readAllTags(shape, plan, labels),
    samples,
  });
  switch (measure.of) {
    case "samples": {
      if (measure.combine === "quantile" || measure.combine === "mean") {
        const { start, step, count } = plan.query.buckets;
        return readRawSeries(shape, plan, start, start + step * count);
      }
      const found = await readSingleGauges(plan, measure);
      return found.map(({ labels, values }) => ({ tags: readAllTags(shape, plan, labels), values }));
    }
    case "increment":
      return mapInTurns(await downsampleCounter(plan.reader, buildCounterQuery(plan, metric, {})), toMember);
    case "cumulative": {
      if (measure.combine === "mean") {
        const { start, step, count } = plan.query.buckets;
        return readRawSeries(shape, plan, start, start + step * count);
      }
      const needsFirst = measure.combine === "first" || measure.combine === "min";
      const query = buildCounterQuery(plan, metric, { needsFirst, looksBack: false });
      return mapInTurns(await downsampleCounter(plan.reader, query), toMember);
    }
    case "observations": {
      requireCounted(plan);
      if (shape === "summary" && isEstimated(measure.combine)) return readSummary(plan, measure);
      const found = await readClassicHistograms(plan, measure);
      return mapInTurns(found, (one) => toObserved(shape, plan, one));
    }
  }
  return measure satisfies never;
}

function requireMeasured(shape: MetricShape, { backend, query: { measure } }: SeriesPlan): void {
  if ((measure.of === "observations") !== (typeByShape[shape] === "measurement"))
    throw createUnsupportedError(backend, `${measure.of} of a ${typeByShape[shape]}`);
}

/**
 * The metric may lack sums or buckets, as series that the query does not select may: whoever combines members sees which of
 * them have grown without. @throws {Refused} where observations are not even counted
 */
function requireCounted(plan: SeriesPlan): void {
  requireParts(plan, { of: "observations", combine: "count" });
}

function toObserved(
  shape: MetricShape,
  plan: SeriesPlan,
  { labels, observations }: ObservedSeries,
): SampledMember {
  return { tags: readAllTags(shape, plan, labels), observations };
}

// ---- Raw ---------------------------------------------------------------------------------------------------------

async function readRawMembers(
  shape: MetricShape,
  plan: SeriesPlan,
  { only, buckets: { start, step, count } }: RawMemberQuery,
): Promise<readonly SampledMember[]> {
  requireClassic(shape, plan);
  requireMeasured(shape, plan);
  const end = start + step * count;
  const { measure } = plan.query;
  if (measure.of !== "observations") return readRawSeries(shape, plan, start, end, only);
  requireCounted(plan);
  if (shape === "summary" && isEstimated(measure.combine)) {
    await refuseSummaries(plan, start, end, only);
    return [];
  }
  const found = await readRawHistograms(plan, start, end, only);
  return mapInTurns(found, (one) => toObserved(shape, plan, one));
}

/** @throws {Refused} where the query selects summaries: quantiles of several scrapers are not merged */
async function refuseSummaries(
  plan: SeriesPlan,
  from: number,
  to: number,
  only: readonly Tags[] | undefined,
): Promise<void> {
  const { match, metric } = plan.query;
  const parts = [selectPart(match, metric), selectPart(match, `${metric}_count`)];
  const found = await Promise.all(parts.map((part) => readRawPart(plan, part, from, to, only)));
  if (found.flat().length > 0)
    throw createUnsupportedError(plan.backend, "a quantile of a summary that several scrapers keep");
}

async function readRawSeries(
  shape: MetricShape,
  plan: SeriesPlan,
  from: number,
  to: number,
  only?: readonly Tags[],
): Promise<readonly SampledMember[]> {
  const found = await readRawPart(plan, selectPart(plan.query.match, plan.query.metric), from, to, only);
  return mapInTurns(found, ({ labels, samples }) => ({ tags: readAllTags(shape, plan, labels), samples }));
}

async function readRawHistograms(
  plan: SeriesPlan,
  from: number,
  to: number,
  only: readonly Tags[] | undefined,
): Promise<readonly ObservedSeries[]> {
  const { query, family, backend } = plan;
  const measure = query.measure;
  if (measure.of !== "observations") return [];
  const { count, sum, bucket } = buildClassicParts(plan, measure);
  const infinity = narrowSelector(selectPart(query.match, `${query.metric}_bucket`), [
    matchAnyOf("le", infinities),
  ]);
  // A histogram without a count has it in the bucket of +Inf.
  const isBucketed = family.kind === "histogram";
  // Estimates read all buckets, and see it themselves.
  if (isBucketed && !isEstimated(measure.combine)) await requireCounts(plan);
  // A sum is taken up to the last sample of its count, which therefore comes first.
  const counts = await readRawPart(plan, count.metric, from, to, only);
  const [sums, buckets] = await Promise.all([
    sum === undefined ? [] : readRawPart(plan, sum.metric, from, to, only),
    isBucketed ? readRawPart(plan, bucket?.metric ?? infinity, from, to, only) : [],
  ]);
  const [countsOf, sumsOf, bucketsOf] = [
    await groupByHistogram(counts),
    await groupByHistogram(sums),
    await groupByHistogram(buckets),
  ];
  const build = (key: string): ObservedSeries => {
    const own = bucketsOf.get(key) ?? [];
    const [count, sum] = [countsOf.get(key)?.at(-1), sumsOf.get(key)?.at(-1)];
    const total = own.find((one) => infinities.includes(one.labels.le ?? ""))?.samples;
    const counted = count?.samples ?? total;
    if (counted === undefined) throw createNoCountError(backend);
    const parts = isEstimated(measure.combine) ? buildObservations(counted, own).buckets : [];
    const labels = dropBoundLabels((own.at(-1) ?? sum ?? count)?.labels ?? {});
    return { labels, observations: { count: counted, sum: sum?.samples ?? noSamples, buckets: parts } };
  };
  return mapInTurns(new Set([...countsOf.keys(), ...sumsOf.keys(), ...bucketsOf.keys()]), build);
}

/** The finite samples from `from` until before `to`, of the series that a part of the metric has. */
async function readRawPart(
  { reader, matchers, limit }: SeriesPlan,
  part: Selector,
  from: number,
  to: number,
  only: readonly Tags[] | undefined,
): Promise<readonly DownsampledSeries[]> {
  const selector = narrowSelector(part, matchers);
  const selectors =
    only === undefined ? [selector] : chunkSeries(only).map((tags) => narrowToSeries(selector, tags));
  const found = await runConcurrent(selectors, (one) => reader.readRaw(one, from, to, limit));
  // Two chunks may find the same series.
  const byKey = new Map<string, Samples & { readonly labels: Labels }>();
  await visitInTurns(found.flat(), ({ labels, ...samples }) =>
    byKey.set(formatSeriesKey(labels), { labels, ...dropNonFinite(samples) }),
  );
  return (await joinSpellings([...byKey.values()]))
    .filter(({ times }) => times.length > 0)
    .map(({ labels, times, values }) => ({ labels, samples: { times, values, baseline: "own" } }));
}
