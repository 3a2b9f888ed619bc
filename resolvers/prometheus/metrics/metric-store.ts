// Metrics from Prometheus. Each measure has one plan: an expression whose value is the answer, where that is exact;
// samples that were thinned at the source, of which `src/metrics/samples.ts` makes the answer; or all raw samples. Which of them
// is a matter of cost alone: the tests hold all of them to the same definition.

import { LRUCache } from "lru-cache";
import { BackendError, createUnsupportedError, Refused } from "../../../src/core/errors.ts";
import type { Measure, Series } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import {
  combineCumulative,
  combineIncrements,
  combineSamples,
  dropNonFinite,
} from "../../../src/metrics/samples.ts";
import type { MetricStore, SeriesQuery } from "../../../src/store/store.ts";
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
import { downsampleCounter, readRawBuckets } from "./counter-downsampling.ts";
import { readHistogram, readMixedHistogram, readNativeHistogram, readSummary } from "./distributions.ts";
import { isTag, type MetricFamilies, type MetricShape, selectPart, typeByShape } from "./metric-families.ts";
import {
  buildCounterQuery,
  combineByGroup,
  createPlan,
  formatGroupKey,
  readTags,
  type SeriesPlan,
  toSortedSeries,
} from "./series-groups.ts";
import { createDuplicateSeriesError, createSeriesReader, type GridSeries } from "./series-reader.ts";

type SampleMeasure = Extract<Measure, { of: "samples" }>;

/** How long it is remembered how many series there were. */
const sizeTtl: Millis = 600_000;

export function createMetricStore(
  backend: string,
  client: PrometheusClient,
  families: MetricFamilies,
): MetricStore {
  const sizes = new LRUCache<string, number>({ max: 10_000, ttl: sizeTtl });

  async function readSeries(query: SeriesQuery, signal: AbortSignal): Promise<readonly Series[]> {
    try {
      return await readConsistentSeries(query, signal);
    } catch (error) {
      const same = error instanceof BackendError && /same labelset/.test(error.message);
      throw same ? createDuplicateSeriesError(backend) : error;
    }
  }

  async function readConsistentSeries(query: SeriesQuery, signal: AbortSignal): Promise<readonly Series[]> {
    const shape = await families.readShape(query.match, query.metric, signal);
    const patterns = Object.entries(query.tags);
    if (shape === undefined || !patterns.every(([key, pattern]) => canMatch(query, key, pattern))) return [];
    // An upgrade of the source may come between asking how it cuts ranges and its answer.
    for (let tries = 1; ; tries++) {
      const habits = await client.readTraits(signal);
      // Version 2 can neither write nor hold such names, or only some of its last releases can.
      const quoted = habits.edge === "closed" && patterns.find(([key]) => !isPlainLabel(key));
      if (quoted) throw createUnsupportedError(backend, `the tag ${quoted[0]}, whose name needs quotes`);
      const ending = new AbortController();
      try {
        const reader = createSeriesReader(
          backend,
          client,
          habits,
          sizes,
          AbortSignal.any([signal, ending.signal]),
        );
        const result = await runPlan(shape, createPlan(backend, query, reader));
        if ((await client.readTraits(signal)).edge === habits.edge) return result;
        if (tries === 3) {
          const detail =
            "how it cuts ranges changed during each of three answers: are there several versions?";
          throw new BackendError(backend, "malformed", detail);
        }
      } finally {
        // What a failed part leaves behind is not waited for.
        ending.abort();
      }
    }
  }

  return {
    names: (match, signal) => families.listNames(match, signal),
    async type(match, metric, signal) {
      const shape = await families.readShape(match, metric, signal);
      return shape && typeByShape[shape];
    },
    isTypeGuessed: (match, metric, signal) => families.isGuess(match, metric, signal),
    tagKeys: (match, metric, signal) => families.listTagKeys(match, metric, signal),
    series: readSeries,
  };
}

function canMatch({ match }: SeriesQuery, key: string, pattern: string): boolean {
  if (!isTag(match, key) || key === "" || pattern === "") return false;
  // What is no Unicode text is in no label, and would become another text on its way.
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
      const firsts = measure.combine === "first" || measure.combine === "min";
      const found = await downsampleCounter(
        plan.reader,
        buildCounterQuery(plan, plan.query.metric, { firsts, born: false }),
      );
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
      if (shape === "both") return readMixedHistogram(plan, measure);
      if (measure.combine === "count") return readIncrements(plan, `${plan.query.metric}_count`);
      return shape === "summary" && measure.combine !== "mean"
        ? readSummary(plan, measure)
        : readHistogram(plan, measure);
  }
  return measure satisfies never;
}

// ---- Gauges ------------------------------------------------------------------------------------------------------

/** What an expression can say of the samples of several series: `first_over_time` is a parse error before 3.14. */
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
  const [groups, series, lean] = await Promise.all([
    estimated,
    reader.estimateSeries(selector, undefined, buckets, Number.POSITIVE_INFINITY),
    reader.dropPresenceMatchers(selector, buckets),
  ]);
  const samples = reader.selectRange(lean.selector, { from: step, to: 1 });
  const read = (by: readonly string[] | undefined) =>
    reader.readGrid(buildGaugeExpression(combine, by, samples), buckets, pointLimit, lean.isMeant);
  const single = series > 0 && series === groups;
  const found = (single && (await readWithoutAggregation(plan, selector, read))) || (await read(keys));
  await recomputeNonFiniteBuckets(plan, measure, selector, found);
  return toSortedSeries(plan, found);
}

/**
 * The values of series of which each is the only one of its group, so that nothing has to be aggregated: in Prometheus
 * 2.42 that takes four times as long as all the rest. Undefined where a group turns out to have more of them, or where
 * the labels that grouping drops make the answer too large.
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
    const tooMuch =
      error instanceof Refused || (error instanceof BackendError && error.failure === "rejected");
    if (!tooMuch) throw error;
  }
  plan.reader.markUnderestimated(selector);
  return undefined;
}

/** A sample that is not finite shows in the value that it is part of. Such values are made from raw samples. */
async function recomputeNonFiniteBuckets(
  plan: SeriesPlan,
  measure: SampleMeasure,
  selector: Selector,
  found: readonly GridSeries[],
): Promise<void> {
  const { query, reader, limit } = plan;
  const spoilt = found.filter(({ values }) => values.includes(Number.POSITIVE_INFINITY));
  if (spoilt.length === 0) return;
  const wanted = spoilt.flatMap(({ labels, values }) => {
    const tags = readTags(plan, labels);
    return [...values.entries()].flatMap(([bucket, value]) =>
      value === Number.POSITIVE_INFINITY ? [{ bucket, labels: tags }] : [],
    );
  });
  const raw = await readRawBuckets(reader, selector, wanted, query.buckets, limit);
  const groups = Map.groupBy(raw, ({ labels }) => formatGroupKey(plan, labels));
  for (const { labels, values } of spoilt) {
    const mended = combineSamples(groups.get(formatGroupKey(plan, labels)) ?? [], measure, query.buckets);
    for (const [bucket, value] of values.entries()) {
      if (value === Number.POSITIVE_INFINITY) values[bucket] = mended[bucket] ?? Number.NaN;
    }
  }
}

/**
 * The measure as an expression that is not finite as soon as one of its samples is not. A least or greatest value passes
 * over NaN, and that is what is wanted. Without labels to group by, of each series.
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

async function readIncrements(plan: SeriesPlan, name: string): Promise<readonly Series[]> {
  const found = await downsampleCounter(plan.reader, buildCounterQuery(plan, name, {}));
  return combineByGroup(plan, found, (group) =>
    combineIncrements(
      group.map(({ samples }) => samples),
      plan.query.buckets,
    ),
  );
}

/** The mean of running values needs them all. */
async function readCumulativeMean(
  plan: SeriesPlan,
  measure: Extract<Measure, { of: "cumulative" }>,
): Promise<readonly Series[]> {
  const { query, reader, limit } = plan;
  const selector = narrowSelector(selectPart(query.match, query.metric), plan.matchers);
  const { start, step, count } = query.buckets;
  const raw = await reader.readRaw(selector, start, start + step * count, limit);
  return combineByGroup(plan, raw, (group) =>
    combineCumulative(group.map(dropNonFinite), measure, query.buckets),
  );
}
