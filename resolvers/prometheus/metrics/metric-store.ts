// Metrics from Prometheus. Each measure has one plan: an expression whose value is the answer, where that is exact;
// samples that were thinned at the source, of which `src/metrics/samples.ts` makes the answer; or all raw samples. Which of them
// is a matter of cost alone: the tests hold all of them to the same definition.

import { LRUCache } from "lru-cache";
import { BackendError, Refused, unsupported } from "../../../src/core/errors.ts";
import type { Measure, Series } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import {
  combineCumulative,
  combineIncrements,
  combineSamples,
  finite,
} from "../../../src/metrics/samples.ts";
import type { MetricStore, SeriesQuery } from "../../../src/store/store.ts";
import type { Door } from "../client/client.ts";
import {
  aggregate,
  binary,
  call,
  type Expression,
  isPlainLabel,
  narrow,
  notFinite,
  type Selector,
} from "../client/promql.ts";
import { readBuckets, thin } from "./counter-downsampling.ts";
import { both, histogram, native, summary } from "./distributions.ts";
import { type Families, isTag, part, type Shape, typeOf } from "./metric-families.ts";
import { finished, grouped, groupKey, type Plan, planOf, tagsOf, thinQuery } from "./series-groups.ts";
import { createReader, type GridSeries, twins } from "./series-reader.ts";

type SampleMeasure = Extract<Measure, { of: "samples" }>;

/** How long it is remembered how many series there were. */
const sizeAge: Millis = 600_000;

export function createMetricStore(backend: string, door: Door, families: Families): MetricStore {
  const sizes = new LRUCache<string, number>({ max: 10_000, ttl: sizeAge });

  async function series(query: SeriesQuery, signal: AbortSignal): Promise<readonly Series[]> {
    try {
      return await answered(query, signal);
    } catch (error) {
      const same = error instanceof BackendError && /same labelset/.test(error.message);
      throw same ? twins(backend) : error;
    }
  }

  async function answered(query: SeriesQuery, signal: AbortSignal): Promise<readonly Series[]> {
    const shape = await families.shape(query.match, query.metric, signal);
    const patterns = Object.entries(query.tags);
    if (shape === undefined || !patterns.every(([key, pattern]) => canMatch(query, key, pattern))) return [];
    // An upgrade of the source may come between asking how it cuts ranges and its answer.
    for (let tries = 1; ; tries++) {
      const habits = await door.habits(signal);
      // Version 2 can neither write nor hold such names, or only some of its last releases can.
      const quoted = habits.edge === "closed" && patterns.find(([key]) => !isPlainLabel(key));
      if (quoted) throw unsupported(backend, `the tag ${quoted[0]}, whose name needs quotes`);
      const ending = new AbortController();
      try {
        const reader = createReader(backend, door, habits, sizes, AbortSignal.any([signal, ending.signal]));
        const result = await answer(shape, planOf(backend, query, reader));
        if ((await door.habits(signal)).edge === habits.edge) return result;
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
    names: (match, signal) => families.names(match, signal),
    async type(match, metric, signal) {
      const shape = await families.shape(match, metric, signal);
      return shape && typeOf[shape];
    },
    isGuess: (match, metric, signal) => families.isGuess(match, metric, signal),
    tagKeys: (match, metric, signal) => families.tagKeys(match, metric, signal),
    series,
  };
}

function canMatch({ match }: SeriesQuery, key: string, pattern: string): boolean {
  if (!isTag(match, key) || key === "" || pattern === "") return false;
  // What is no Unicode text is in no label, and would become another text on its way.
  return key.isWellFormed() && pattern.isWellFormed();
}

async function answer(shape: Shape, plan: Plan): Promise<readonly Series[]> {
  const { measure } = plan.query;
  const measured = typeOf[shape] === "measurement";
  if ((measure.of === "observations") !== measured) {
    throw unsupported(plan.backend, `${measure.of} of a ${typeOf[shape]}`);
  }
  switch (measure.of) {
    case "samples":
      return gauges(plan, measure);
    case "increment":
      return increments(plan, plan.query.metric);
    case "cumulative": {
      if (measure.combine === "mean") return cumulativeMean(plan, measure);
      const firsts = measure.combine === "first" || measure.combine === "min";
      const found = await thin(plan.reader, thinQuery(plan, plan.query.metric, { firsts, born: false }));
      return grouped(plan, found, (group) =>
        combineCumulative(
          group.map(({ samples }) => samples),
          measure,
          plan.query.buckets,
        ),
      );
    }
    case "observations":
      if (shape === "native") return native(plan, measure);
      if (shape === "both") return both(plan, measure);
      if (measure.combine === "count") return increments(plan, `${plan.query.metric}_count`);
      return shape === "summary" && measure.combine !== "mean"
        ? summary(plan, measure)
        : histogram(plan, measure);
  }
  return measure satisfies never;
}

// ---- Gauges ------------------------------------------------------------------------------------------------------

/** What an expression can say of the samples of several series: `first_over_time` is a parse error before 3.14. */
type Expressible = Exclude<SampleMeasure["combine"], "first" | "quantile">;

async function gauges(plan: Plan, measure: SampleMeasure): Promise<readonly Series[]> {
  const { query, reader, keys, limit } = plan;
  const { buckets, pointLimit } = query;
  const { start, step, count } = buckets;
  const { combine } = measure;
  const selector = narrow(part(query.match, query.metric), plan.matchers);
  const estimated = reader.estimate(selector, keys, buckets, pointLimit);
  if (step === 1 || combine === "first" || combine === "quantile") {
    await estimated;
    const raw = await reader.raw(selector, start, start + step * count, limit);
    return grouped(plan, raw, (group) => combineSamples(group.map(finite), measure, buckets));
  }
  const [groups, series, lean] = await Promise.all([
    estimated,
    reader.estimate(selector, undefined, buckets, Number.POSITIVE_INFINITY),
    reader.lean(selector, buckets),
  ]);
  const samples = reader.window(lean.selector, { from: step, to: 1 });
  const read = (by: readonly string[] | undefined) =>
    reader.grid(combined(combine, by, samples), buckets, pointLimit, lean.isMeant);
  const single = series > 0 && series === groups;
  const found = (single && (await ungrouped(plan, selector, read))) || (await read(keys));
  await mend(plan, measure, selector, found);
  return finished(plan, found);
}

/**
 * The values of series of which each is the only one of its group, so that nothing has to be aggregated: in Prometheus
 * 2.42 that takes four times as long as all the rest. Undefined where a group turns out to have more of them, or where
 * the labels that grouping drops make the answer too large.
 */
async function ungrouped(
  plan: Plan,
  selector: Selector,
  read: (by: undefined) => Promise<readonly GridSeries[]>,
): Promise<readonly GridSeries[] | undefined> {
  try {
    const found = await read(undefined);
    if (new Set(found.map(({ labels }) => groupKey(plan, labels))).size === found.length) return found;
  } catch (error) {
    const tooMuch =
      error instanceof Refused || (error instanceof BackendError && error.failure === "rejected");
    if (!tooMuch) throw error;
  }
  plan.reader.underestimated(selector);
  return undefined;
}

/** A sample that is not finite shows in the value that it is part of. Such values are made from raw samples. */
async function mend(
  plan: Plan,
  measure: SampleMeasure,
  selector: Selector,
  found: readonly GridSeries[],
): Promise<void> {
  const { query, reader, limit } = plan;
  const spoilt = found.filter(({ values }) => values.includes(Number.POSITIVE_INFINITY));
  if (spoilt.length === 0) return;
  const wanted = spoilt.flatMap(({ labels, values }) => {
    const tags = tagsOf(plan, labels);
    return [...values.entries()].flatMap(([bucket, value]) =>
      value === Number.POSITIVE_INFINITY ? [{ bucket, labels: tags }] : [],
    );
  });
  const raw = await readBuckets(reader, selector, wanted, query.buckets, limit);
  const groups = Map.groupBy(raw, ({ labels }) => groupKey(plan, labels));
  for (const { labels, values } of spoilt) {
    const mended = combineSamples(groups.get(groupKey(plan, labels)) ?? [], measure, query.buckets);
    for (const [bucket, value] of values.entries()) {
      if (value === Number.POSITIVE_INFINITY) values[bucket] = mended[bucket] ?? Number.NaN;
    }
  }
}

/**
 * The measure as an expression that is not finite as soon as one of its samples is not. A least or greatest value passes
 * over NaN, and that is what is wanted. Without labels to group by, of each series.
 */
function combined(combine: Expressible, by: readonly string[] | undefined, samples: Expression): Expression {
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
      return over("sum", binary(call("count_over_time", samples), "+", notFinite(samples)));
    }
  }
  return combine satisfies never;
}

// ---- Counters ----------------------------------------------------------------------------------------------------

async function increments(plan: Plan, name: string): Promise<readonly Series[]> {
  const found = await thin(plan.reader, thinQuery(plan, name, {}));
  return grouped(plan, found, (group) =>
    combineIncrements(
      group.map(({ samples }) => samples),
      plan.query.buckets,
    ),
  );
}

/** The mean of running values needs them all. */
async function cumulativeMean(
  plan: Plan,
  measure: Extract<Measure, { of: "cumulative" }>,
): Promise<readonly Series[]> {
  const { query, reader, limit } = plan;
  const selector = narrow(part(query.match, query.metric), plan.matchers);
  const { start, step, count } = query.buckets;
  const raw = await reader.raw(selector, start, start + step * count, limit);
  return grouped(plan, raw, (group) => combineCumulative(group.map(finite), measure, query.buckets));
}
