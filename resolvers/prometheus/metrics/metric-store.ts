// The metric store of Prometheus. Each measure is read in the cheapest exact way: by an expression whose value is the
// answer, from samples that were downsampled at the source, or from all raw samples. `src/metrics/samples.ts` computes the
// answer from samples, and the tests hold all three ways to that definition.
import { LRUCache } from "lru-cache";
import { combineSignals } from "../../../src/core/async/concurrency.ts";
import { takeSteps } from "../../../src/core/async/turns.ts";
import { BackendError, createUnsupportedError, type Refused } from "../../../src/core/errors.ts";
import type { Measure, Series } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import { combineCumulative, combineCumulativeInSteps, dropNonFinite } from "../../../src/metrics/samples.ts";
import type { MetricStore, SeriesQuery } from "../../../src/store/metrics.ts";
import type { PrometheusClient } from "../client/client.ts";
import { isPlainLabel, narrowSelector } from "../client/promql.ts";
import { joinSpellings } from "../counters/bound-spellings.ts";
import { downsampleCounter } from "../counters/counter-downsampling.ts";
import { createDuplicateSeriesError, createSeriesReader } from "../counters/series-reader.ts";
import { answerFromSettled, type SettledAnswer, type SettledValues } from "../settled/settled-series.ts";
import { readHistogram, requireParts } from "./classic-histograms.ts";
import { formatMatchKey, selectPart } from "./family-listing.ts";
import { readGauges } from "./gauges.ts";
import { readIncrements } from "./increments.ts";
import { createMemberReader, type PlanRunner } from "./members.ts";
import { isTag, type MetricFamilies, type MetricForm, typeByShape } from "./metric-families.ts";
import { readMixedHistogram } from "./mixed-histograms.ts";
import { readNativeHistogram } from "./native-histograms.ts";
import {
  buildCounterQuery,
  combineByGroup,
  createPlan,
  narrowToSpan,
  type SeriesPlan,
  toSortedSeries,
} from "./series-groups.ts";
import type { MetricShape } from "./shape-detection.ts";
import { readSummary } from "./summary-quantiles.ts";

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
  settled?: SettledValues,
): MetricStore {
  // It takes its memory when it is made, and most backends of many are rarely asked.
  let sizes: LRUCache<string, number> | undefined;
  const context: StoreContext = {
    backend,
    client,
    families,
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
    async series(query, signal) {
      const run: PlanRunner<SettledAnswer> = (shape, plan) => answerPlan(settled, shape, plan);
      const { series, keep } = await runQuery(context, query, signal, run, nothing);
      await keep();
      return series;
    },
    members: createMemberReader((query, signal, run, none) => runQuery(context, query, signal, run, none)),
  };
}

/** Runs the plan of a query. Returns `none` if there is no such metric, or nothing that its tags could match. */
async function runQuery<T>(
  context: StoreContext,
  query: SeriesQuery,
  signal: AbortSignal,
  run: PlanRunner<T>,
  none: T,
): Promise<T> {
  const { backend, families } = context;
  try {
    const form = await families.describe(query.match, query.metric, signal);
    if (form === undefined) return none;
    const patterns = Object.entries(query.tags);
    if (!patterns.every(([key, pattern]) => canMatch(query, form, key, pattern))) return none;
    return await runConsistently(context, form, query, signal, run);
  } catch (error) {
    if (!(error instanceof BackendError)) throw error;
    if (/same labelset/.test(error.message)) throw createDuplicateSeriesError(backend);
    // VictoriaMetrics has no syntax for some names in lists of labels, such as those with a quote.
    const quoted = Object.keys(query.tags).find((key) => !isPlainLabel(key));
    if (quoted !== undefined && error.status === 400) throw createQuotedTagError(backend, quoted);
    throw error;
  }
}

function createQuotedTagError(backend: string, key: string): Refused<"not_supported_by_backend"> {
  return createUnsupportedError(backend, `the tag ${key}, whose name needs quotes`);
}

/** Runs the query again if the server was upgraded between the detection of its range edge and its answer. */
async function runConsistently<T>(
  { backend, client, families, sizes }: StoreContext,
  { shape, family }: MetricForm,
  query: SeriesQuery,
  signal: AbortSignal,
  run: PlanRunner<T>,
): Promise<T> {
  for (let attempt = 1; attempt <= maxAttempts; attempt++) {
    const traits = await client.readTraits(signal);
    // Only some of the last releases of version 2 can write and hold such names.
    const quoted = traits.edge === "closed" && Object.keys(query.tags).find((key) => !isPlainLabel(key));
    if (quoted !== undefined && quoted !== false) throw createQuotedTagError(backend, quoted);
    const ending = new AbortController();
    try {
      const both = combineSignals(signal, ending.signal);
      const held = query.held?.openPart();
      const reader = createSeriesReader(backend, client, traits, sizes, both, { ...query, held });
      const listUncountable = () => families.listUncountable(query.match, query.metric, signal);
      const result = await run(shape, createPlan(backend, query, family, reader, listUncountable));
      if ((await client.readTraits(signal)).edge === traits.edge) return result;
      held?.release();
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

const keepNothing = async (): Promise<void> => undefined;
const nothing: SettledAnswer = { series: [], keep: keepNothing };

/** From the values that are kept, as far as there are any and the backend may keep them. */
async function answerPlan(
  settled: SettledValues | undefined,
  shape: MetricShape,
  plan: SeriesPlan,
): Promise<SettledAnswer> {
  const { query, family } = plan;
  const { match, metric, tags, measure, buckets, lookBack, pointLimit } = query;
  if (settled === undefined || buckets.start % buckets.step !== 0 || !isSameInEachRange(shape, measure))
    return { series: await runPlan(shape, plan), keep: keepNothing };
  const sortedTags = plan.keys.map((key) => [key, tags[key]]);
  const question = JSON.stringify([
    formatMatchKey(match),
    metric,
    shape,
    family,
    sortedTags,
    measure,
    buckets.step,
    lookBack,
  ]);
  const answer = await answerFromSettled(settled, {
    metric,
    question,
    buckets,
    lookBack,
    pointLimit,
    openAttempt: () => {
      const reader = plan.reader.openPart();
      return {
        ask: (span, unkept) => runPlan(shape, { ...plan, reader, unkept, query: narrowToSpan(query, span) }),
        release: reader.release,
      };
    },
  });
  const sorted = answer.series.map(({ tags, values }) => ({ labels: tags, values }));
  return { series: await toSortedSeries(plan, sorted), keep: answer.keep };
}

/**
 * Whether the value of a bucket is the same in each range, but for buckets that are noted while it is read. Running values
 * begin with the range, and native histograms are read at bounds that all of the range share.
 */
function isSameInEachRange(shape: MetricShape, measure: Measure): boolean {
  return measure.of !== "cumulative" && shape !== "native" && shape !== "both";
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

// ---- Counters ----------------------------------------------------------------------------------------------------

/** The mean of the running values needs all raw samples. */
async function readCumulativeMean(
  plan: SeriesPlan,
  measure: Extract<Measure, { of: "cumulative" }>,
): Promise<readonly Series[]> {
  const { query, reader, limit } = plan;
  const selector = narrowSelector(selectPart(query.match, query.metric), plan.matchers);
  const { start, step, count } = query.buckets;
  const raw = await joinSpellings(await reader.readRaw(selector, start, start + step * count, limit));
  return combineByGroup(plan, raw, (group) =>
    takeSteps(combineCumulativeInSteps(group.map(dropNonFinite), measure, query.buckets)),
  );
}
