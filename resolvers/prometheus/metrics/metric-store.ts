// The metric store of Prometheus. Each measure is read in the cheapest exact way: by an expression whose value is the
// answer, from samples that were downsampled at the source, or from all raw samples. `src/metrics/samples.ts` computes the
// answer from samples, and the tests hold all three ways to that definition.
import { LRUCache } from "lru-cache";
import { readNumber } from "../../../src/core/collections.ts";
import { BackendError, createUnsupportedError, Refused } from "../../../src/core/errors.ts";
import type { Measure, Series } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import { combineCumulative, combineSamples, dropNonFinite } from "../../../src/metrics/samples.ts";
import type { MetricStore, SeriesQuery } from "../../../src/store/metrics.ts";
import type { PrometheusClient } from "../client/client.ts";
import {
  aggregate,
  binary,
  call,
  type Expression,
  isPlainLabel,
  markNonFinite,
  narrowSelector,
  type Selector,
} from "../client/promql.ts";
import { joinSpellings } from "../counters/bound-spellings.ts";
import { downsampleCounter, readRawBuckets } from "../counters/counter-downsampling.ts";
import {
  countSamples,
  createDuplicateSeriesError,
  createSeriesReader,
  type GridSeries,
} from "../counters/series-reader.ts";
import {
  readHistogram,
  readMixedHistogram,
  readNativeHistogram,
  readSummary,
  requireParts,
} from "./distributions.ts";
import { selectPart } from "./family-listing.ts";
import { readIncrements } from "./increments.ts";
import { isTag, type MetricFamilies, type MetricForm, typeByShape } from "./metric-families.ts";
import {
  buildCounterQuery,
  combineByGroup,
  createPlan,
  formatGroupKey,
  readTags,
  type SeriesPlan,
  toSortedSeries,
} from "./series-groups.ts";
import type { MetricShape } from "./shape-detection.ts";

type SampleMeasure = Extract<Measure, { of: "samples" }>;

/** How long the numbers of series are remembered. */
const sizeTtl: Millis = 600_000;

/** How often a query is run before changing range edges are an error. */
const maxAttempts = 3;

interface StoreContext {
  readonly backend: string;
  readonly client: PrometheusClient;
  readonly families: MetricFamilies;
  /** How many series an expression had. */
  readonly sizes: LRUCache<string, number>;
}

export function createMetricStore(
  backend: string,
  client: PrometheusClient,
  families: MetricFamilies,
): MetricStore {
  // It takes its memory when it is made, and most backends of many are rarely asked.
  let sizes: LRUCache<string, number> | undefined;
  const context: StoreContext = {
    ...{ backend, client, families },
    get sizes() {
      sizes ??= new LRUCache<string, number>({ max: 10_000, ttl: sizeTtl });
      return sizes;
    },
  };
  return {
    names: (match, signal) => families.listNames(match, signal),
    async type(match, metric, signal) {
      const form = await families.describe(match, metric, signal);
      return form && typeByShape[form.shape];
    },
    isTypeGuessed: (match, metric, signal) => families.isGuess(match, metric, signal),
    tagKeys: (match, metric, signal) => families.listTagKeys(match, metric, signal),
    series: (query, signal) => readSeries(context, query, signal),
  };
}

async function readSeries(
  context: StoreContext,
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly Series[]> {
  const { backend, families } = context;
  try {
    const form = await families.describe(query.match, query.metric, signal);
    if (form === undefined) return [];
    const patterns = Object.entries(query.tags);
    if (!patterns.every(([key, pattern]) => canMatch(query, form, key, pattern))) return [];
    return await readConsistentSeries(context, form, query, signal);
  } catch (error) {
    const isDuplicate = error instanceof BackendError && /same labelset/.test(error.message);
    throw isDuplicate ? createDuplicateSeriesError(backend) : error;
  }
}

/** Runs the query again if the server was upgraded between the detection of its range edge and its answer. */
async function readConsistentSeries(
  { backend, client, families, sizes }: StoreContext,
  { shape, family }: MetricForm,
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly Series[]> {
  for (let attempt = 1; attempt <= maxAttempts; attempt++) {
    const traits = await client.readTraits(signal);
    // Only some of the last releases of version 2 can write and hold such names.
    const quoted = traits.edge === "closed" && Object.keys(query.tags).find((key) => !isPlainLabel(key));
    if (quoted !== undefined && quoted !== false)
      throw createUnsupportedError(backend, `the tag ${quoted}, whose name needs quotes`);
    const ending = new AbortController();
    try {
      const both = AbortSignal.any([signal, ending.signal]);
      const reader = countSamples(createSeriesReader(backend, client, traits, sizes, both), query.reportRead);
      const listUncountable = () => families.listUncountable(query.match, query.metric, signal);
      const result = await runPlan(shape, createPlan(backend, query, family, reader, listUncountable));
      if ((await client.readTraits(signal)).edge === traits.edge) return result;
    } finally {
      // Ends the requests that a failed part leaves behind.
      ending.abort();
    }
  }
  const detail =
    "range semantics changed during the query three times: mixed Prometheus 2 and 3 behind one address?";
  throw new BackendError(backend, "malformed", detail);
}

function canMatch({ match }: SeriesQuery, { shape }: MetricForm, key: string, pattern: string): boolean {
  if (!isTag(match, shape, key) || key === "" || pattern === "") return false;
  // A lone surrogate is in no label, and would become another character on its way.
  return key.isWellFormed() && pattern.isWellFormed();
}

async function runPlan(shape: MetricShape, plan: SeriesPlan): Promise<readonly Series[]> {
  const { measure } = plan.query;
  const measured = typeByShape[shape] === "measurement";
  if ((measure.of === "observations") !== measured) {
    throw createUnsupportedError(plan.backend, `${measure.of} of a ${typeByShape[shape]}`);
  }
  switch (measure.of) {
    case "samples":
      return readGauges(plan, measure);
    case "increment":
      return readIncrements(plan, plan.query.metric);
    case "cumulative": {
      if (measure.combine === "mean") return readCumulativeMean(plan, measure);
      const needsFirst = measure.combine === "first" || measure.combine === "min";
      const query = buildCounterQuery(plan, plan.query.metric, { needsFirst, looksBack: false });
      const found = await downsampleCounter(plan.reader, query);
      return combineByGroup(plan, found, (group) =>
        combineCumulative(
          group.map(({ samples }) => samples),
          measure,
          plan.query.buckets,
        ),
      );
    }
    case "observations":
      if (shape === "native") return readNativeHistogram(plan, measure);
      requireParts(plan, measure);
      if (shape === "both") return readMixedHistogram(plan, measure);
      if (shape === "histogram" || measure.combine === "mean") return readHistogram(plan, measure);
      if (measure.combine === "count") return readIncrements(plan, `${plan.query.metric}_count`);
      return readSummary(plan, measure);
  }
  return measure satisfies never;
}

// ---- Gauges ------------------------------------------------------------------------------------------------------

/** The measures that an expression can compute over several series: `first_over_time` is a parse error before 3.14. */
type Expressible = Exclude<SampleMeasure["combine"], "first" | "quantile">;

async function readGauges(plan: SeriesPlan, measure: SampleMeasure): Promise<readonly Series[]> {
  const { query, reader, keys, limit } = plan;
  const { buckets, pointLimit } = query;
  const { start, step, count } = buckets;
  const { combine } = measure;
  const selector = narrowSelector(selectPart(query.match, query.metric), plan.matchers);
  const estimated = reader.estimateSeries(selector, keys, buckets, pointLimit);
  if (step === 1 || combine === "first" || combine === "quantile") {
    await estimated;
    const raw = await reader.readRaw(selector, start, start + step * count, limit);
    return combineByGroup(plan, raw, (group) => combineSamples(group.map(dropNonFinite), measure, buckets));
  }
  const [groups, series, relaxed] = await Promise.all([
    estimated,
    reader.estimateSeries(selector, undefined, buckets, Number.POSITIVE_INFINITY),
    reader.dropPresenceMatchers(selector, buckets),
  ]);
  const samples = reader.selectRange(relaxed.selector, { from: step, to: 1 });
  const read = (by: readonly string[] | undefined) =>
    reader.readGrid(buildGaugeExpression(combine, by, samples), buckets, pointLimit, relaxed.matchesDropped);
  const single = series > 0 && series === groups;
  const found = (single && (await readWithoutAggregation(plan, selector, read))) || (await read(keys));
  await recomputeNonFiniteBuckets(plan, measure, selector, found);
  return toSortedSeries(plan, found);
}

/**
 * Reads series of which each is probably the only one of its group, without aggregation: in Prometheus 2.42 the
 * aggregation takes four times as long as all the rest. Returns `undefined` if a group has several series after all, or
 * if the labels that grouping would drop make the response too large.
 */
async function readWithoutAggregation(
  plan: SeriesPlan,
  selector: Selector,
  read: (by: undefined) => Promise<readonly GridSeries[]>,
): Promise<readonly GridSeries[] | undefined> {
  try {
    const found = await read(undefined);
    if (new Set(found.map(({ labels }) => formatGroupKey(plan, labels))).size === found.length) return found;
  } catch (error) {
    const isTooLarge =
      error instanceof Refused || (error instanceof BackendError && error.failure === "rejected");
    if (!isTooLarge) throw error;
  }
  plan.reader.markUnderestimated(selector);
  return undefined;
}

/** Computes the values from raw samples that are not finite in `found`: a sample that is not finite is part of them. */
async function recomputeNonFiniteBuckets(
  plan: SeriesPlan,
  measure: SampleMeasure,
  selector: Selector,
  found: readonly GridSeries[],
): Promise<void> {
  const { query, reader, limit } = plan;
  const affected = found.filter(({ values }) => values.includes(Number.POSITIVE_INFINITY));
  if (affected.length === 0) return;
  const suspects = affected.flatMap(({ labels, values }) => {
    const tags = readTags(plan, labels);
    return [...values.entries()].flatMap(([bucket, value]) =>
      value === Number.POSITIVE_INFINITY ? [{ bucket, labels: tags }] : [],
    );
  });
  const raw = await readRawBuckets(reader, selector, suspects, query.buckets, limit);
  const groups = Map.groupBy(raw, ({ labels }) => formatGroupKey(plan, labels));
  for (const { labels, values } of affected) {
    const exact = combineSamples(groups.get(formatGroupKey(plan, labels)) ?? [], measure, query.buckets);
    for (const [bucket, value] of values.entries()) {
      if (value === Number.POSITIVE_INFINITY) values[bucket] = readNumber(exact, bucket);
    }
  }
}

/**
 * An expression for the measure whose value is not finite if one of its samples is not. A least or greatest value ignores
 * NaN, which is exact. Without `by`, of each series.
 */
function buildGaugeExpression(
  combine: Expressible,
  by: readonly string[] | undefined,
  samples: Expression,
): Expression {
  const over = (operator: "avg" | "sum" | "min" | "max", of: Expression) =>
    by === undefined ? of : aggregate(operator, by, of);
  switch (combine) {
    case "last":
      return over("avg", call("last_over_time", samples));
    case "min":
      return over("min", call("min_over_time", samples));
    case "max":
      return over("max", call("max_over_time", samples));
    case "sum":
      return over("sum", call("sum_over_time", samples));
    case "mean": {
      const [sum, count] = [call("sum_over_time", samples), call("count_over_time", samples)];
      return binary(over("sum", sum), "/", over("sum", count));
    }
    case "count": {
      return over("sum", binary(call("count_over_time", samples), "+", markNonFinite(samples)));
    }
  }
  return combine satisfies never;
}

// ---- Counters ----------------------------------------------------------------------------------------------------

/** The mean of the running values needs all raw samples. */
async function readCumulativeMean(
  plan: SeriesPlan,
  measure: Extract<Measure, { of: "cumulative" }>,
): Promise<readonly Series[]> {
  const { query, reader, limit } = plan;
  const selector = narrowSelector(selectPart(query.match, query.metric), plan.matchers);
  const { start, step, count } = query.buckets;
  const raw = joinSpellings(await reader.readRaw(selector, start, start + step * count, limit));
  return combineByGroup(plan, raw, (group) =>
    combineCumulative(group.map(dropNonFinite), measure, query.buckets),
  );
}
