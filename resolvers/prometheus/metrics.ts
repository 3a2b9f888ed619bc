// Metrics from Prometheus. Each measure has one plan: an expression whose value is the answer, where that is exact;
// samples that were thinned at the source, of which `src/samples.ts` makes the answer; or all raw samples. Which of them
// is a matter of cost alone: the tests hold all of them to the same definition.

import { LRUCache } from "lru-cache";
import { BackendError, Refused, unsupported } from "../../src/errors.ts";
import type { Buckets, Measure, Series } from "../../src/model.ts";
import {
  type CounterSamples,
  combineCumulative,
  combineIncrements,
  combineObservations,
  combineSamples,
  finite,
  incrementsOf,
  type Observations,
} from "../../src/samples.ts";
import type { MetricStore, SeriesQuery } from "../../src/store.ts";
import type { Millis } from "../../src/time.ts";
import { turn } from "../http.ts";
import type { Labels } from "./answer.ts";
import type { Door } from "./door.ts";
import { type Families, isTag, part, type Shape, typeOf } from "./families.ts";
import { boundsBeside, byBound, type ClassicParts, classicForm, succession, unevenOf } from "./forms.ts";
import {
  bornOf,
  commonBounds,
  type Form,
  type Growth,
  growths,
  nativeForm,
  observationsOf,
} from "./native.ts";
import {
  aggregate,
  binary,
  call,
  type Expression,
  equal,
  glob,
  isPlainLabel,
  type Matcher,
  narrow,
  notFinite,
  present,
  type Selector,
} from "./promql.ts";
import { measuredOnly } from "./quantiles.ts";
import {
  createReader,
  type GridSeries,
  keyOf,
  labelOf,
  numberIn,
  numberKey,
  type Reader,
  tooLarge,
  twins,
} from "./reader.ts";
import { readBuckets, survey, type Thinned, type ThinQuery, thin, thinTogether, totalKey } from "./thin.ts";

type SampleMeasure = Extract<Measure, { of: "samples" }>;
type ObservationMeasure = Extract<Measure, { of: "observations" }>;

/** What is read for one answer may be as much, whatever less is asked for. */
const readLimit = 5_000_000;

/** How long it is remembered how many series there were. */
const sizeAge: Millis = 600_000;

/** A query whose metric is known, on the way to its plan. */
interface Plan {
  readonly backend: string;
  readonly query: SeriesQuery;
  readonly keys: readonly string[];
  readonly matchers: readonly Matcher[];
  readonly reader: Reader;
  readonly limit: number;
}

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

function planOf(backend: string, query: SeriesQuery, reader: Reader): Plan {
  const matchers = Object.entries(query.tags).map(([key, pattern]) => glob(key, pattern));
  const limit = Math.max(query.pointLimit, readLimit);
  return { backend, query, keys: Object.keys(query.tags).sort(), matchers, reader, limit };
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

// ---- Groups ------------------------------------------------------------------------------------------------------

function tagsOf({ keys }: Plan, labels: Labels): Readonly<Record<string, string>> {
  return Object.fromEntries(keys.map((key) => [key, labelOf(labels, key)]));
}

function groupKey({ keys }: Plan, labels: Labels): string {
  return JSON.stringify(keys.map((key) => labelOf(labels, key)));
}

/** What is computed in one turn of the event loop: some milliseconds. */
const pointsOfTurn = 20_000;

/** The answer from series that are still to be put together. @throws {Refused} over the limit of points */
async function grouped<T extends { readonly labels: Labels }>(
  plan: Plan,
  found: readonly T[],
  combine: (group: readonly T[]) => Float64Array,
): Promise<readonly Series[]> {
  const groups = Map.groupBy(found, ({ labels }) => groupKey(plan, labels));
  const { buckets, pointLimit } = plan.query;
  const wanted = groups.size * buckets.count;
  if (wanted > pointLimit) throw tooLarge(pointLimit, wanted);
  const all: { readonly labels: Labels; readonly values: Float64Array }[] = [];
  let points = pointsOfTurn;
  for (const group of groups.values()) {
    if (points >= pointsOfTurn) {
      await turn();
      points = 0;
    }
    all.push({ labels: group[0]?.labels ?? {}, values: combine(group) });
    points += group.length * buckets.count;
  }
  return finished(plan, all);
}

/** In the order of their values by key, without those that have no value at all. */
async function finished(
  plan: Plan,
  found: readonly { readonly labels: Labels; readonly values: Float64Array }[],
): Promise<readonly Series[]> {
  await turn();
  return found
    .filter(({ values }) => values.some((value) => !Number.isNaN(value)))
    .map(({ labels, values }) => ({ tags: tagsOf(plan, labels), values }))
    .sort((a, b) => compareBy(plan.keys, a.tags, b.tags));
}

function compareBy(keys: readonly string[], a: Labels, b: Labels): number {
  for (const key of keys) {
    const [one, other] = [labelOf(a, key), labelOf(b, key)];
    if (one !== other) return one < other ? -1 : 1;
  }
  return 0;
}

// ---- Gauges ------------------------------------------------------------------------------------------------------

async function gauges(plan: Plan, measure: SampleMeasure): Promise<readonly Series[]> {
  const { query, reader, keys, limit } = plan;
  const { buckets, pointLimit } = query;
  const selector = narrow(part(query.match, query.metric), plan.matchers);
  const expression = (by: readonly string[] | undefined) =>
    combined(measure, by, reader.window(selector, { from: buckets.step, to: 1 }));
  const grouping = buckets.step === 1 ? undefined : expression(keys);
  const [groups, series = 0] = await Promise.all([
    reader.estimate(selector, keys, buckets, pointLimit),
    grouping && reader.estimate(selector, undefined, buckets, Number.POSITIVE_INFINITY),
  ]);
  if (grouping === undefined) {
    const raw = await reader.raw(
      selector,
      buckets.start,
      buckets.start + buckets.step * buckets.count,
      limit,
    );
    return grouped(plan, raw, (group) => combineSamples(group.map(finite), measure, buckets));
  }
  const single = series > 0 && series === groups;
  const found =
    (single && (await ungrouped(plan, selector, expression(undefined)))) ||
    (await reader.grid(grouping, buckets, pointLimit));
  // A sample that is not finite shows in the value that it is part of. Such values are made from raw samples.
  const wanted = found.flatMap(({ labels, values }) => {
    if (!values.includes(Number.POSITIVE_INFINITY)) return [];
    const tags = tagsOf(plan, labels);
    return [...values.entries()].flatMap(([bucket, value]) =>
      value === Number.POSITIVE_INFINITY ? [{ bucket, labels: tags }] : [],
    );
  });
  if (wanted.length > 0) {
    const raw = await readBuckets(reader, selector, wanted, buckets, limit);
    const groups = Map.groupBy(raw, ({ labels }) => groupKey(plan, labels));
    for (const { labels, values } of found) {
      if (!values.includes(Number.POSITIVE_INFINITY)) continue;
      const mended = combineSamples(groups.get(groupKey(plan, labels)) ?? [], measure, buckets);
      for (const [bucket, value] of values.entries()) {
        if (value === Number.POSITIVE_INFINITY) values[bucket] = mended[bucket] ?? Number.NaN;
      }
    }
  }
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
  expression: Expression | undefined,
): Promise<readonly GridSeries[] | undefined> {
  const { reader, query } = plan;
  try {
    const found = expression && (await reader.grid(expression, query.buckets, query.pointLimit));
    if (new Set(found?.map(({ labels }) => groupKey(plan, labels))).size === found?.length) return found;
  } catch (error) {
    const tooMuch =
      error instanceof Refused || (error instanceof BackendError && error.failure === "rejected");
    if (!tooMuch) throw error;
  }
  reader.underestimated(selector);
  return undefined;
}

/**
 * The measure as an expression that is not finite as soon as one of its samples is not; undefined where there is none.
 * A least or greatest value passes over NaN, and that is what is wanted. Without labels to group by, of each series.
 */
function combined(
  { combine }: SampleMeasure,
  by: readonly string[] | undefined,
  samples: Expression,
): Expression | undefined {
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
    case "first": // `first_over_time` is a parse error before 3.14.
    case "quantile": // Over several series there is no such expression.
      return undefined;
  }
  return combine satisfies never;
}

// ---- Counters ----------------------------------------------------------------------------------------------------

function thinQuery(
  { query, matchers, limit }: Plan,
  name: string,
  { firsts = false, falls = true, born = true },
): ThinQuery {
  const metric = part(query.match, name);
  return {
    selector: narrow(metric, matchers),
    metric,
    buckets: query.buckets,
    lookBack: born ? query.lookBack : undefined,
    firsts,
    falls,
    limit,
  };
}

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

// ---- Measurements ------------------------------------------------------------------------------------------------

/** One histogram or summary as the measure needs it. */
interface Observed {
  readonly labels: Labels;
  readonly observations: Observations;
}

/** Classic histograms, and the mean of a summary. */
async function histogram(plan: Plan, measure: ObservationMeasure): Promise<readonly Series[]> {
  const found = await classicHistograms(plan, measure);
  if (isBare(measure, found)) return summary(plan, measure);
  return grouped(plan, found, (group) => {
    const observations = group.map((one) => one.observations);
    needBuckets(plan, measure, observations);
    return combineObservations(observations, measure, plan.query.buckets);
  });
}

/** Whether an estimate is asked of nothing but summaries. */
function isBare({ combine }: ObservationMeasure, found: readonly Observed[]): boolean {
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
function needBuckets(
  { backend, query }: Plan,
  { combine }: ObservationMeasure,
  group: readonly Observations[],
): void {
  if (!isEstimated(combine)) return;
  const bare = group.filter(({ buckets }) => buckets.length === 0);
  if (bare.some(({ count }) => incrementsOf(count, query.buckets).some((grown) => grown > 0)))
    throw withoutBuckets(backend, combine);
}

function withoutBuckets(backend: string, combine: string): Refused<"not_supported_by_backend"> {
  return unsupported(backend, `the ${combine} of what is counted without buckets, as by a summary`);
}

async function classicHistograms(plan: Plan, measure: ObservationMeasure): Promise<readonly Observed[]> {
  const { reader } = plan;
  const { count: counting, sum, bucket } = classicParts(plan, measure);
  const other = sum ?? bucket;
  if (other === undefined) {
    const counts = await thin(reader, counting);
    return counts.map(({ labels, samples: count }) => ({
      labels,
      observations: { count, sum: none, buckets: [] },
    }));
  }
  const [counts = [], parts = []] = await thinTogether(reader, [counting, other]);
  const partsOf = Map.groupBy(parts, ({ labels }) => totalKey(labels));
  return counts.map(({ labels, samples: count }) => {
    const own = partsOf.get(keyOf(labels)) ?? [];
    return {
      labels,
      observations: sum
        ? { count, sum: own[0]?.samples ?? none, buckets: [] }
        : bounded(count, own, plan.query.buckets),
    };
  });
}

function classicParts(plan: Plan, { combine }: ObservationMeasure): ClassicParts {
  const { metric } = plan.query;
  const count = thinQuery(plan, `${metric}_count`, {});
  if (combine === "count") return { count };
  if (combine === "mean") return { count, sum: thinQuery(plan, `${metric}_sum`, { falls: false }) };
  return { count, bucket: withBounds(thinQuery(plan, `${metric}_bucket`, {})) };
}

/** Classic histograms that the native ones beside them tell nothing new of, and all others from both forms. */
async function both(plan: Plan, measure: ObservationMeasure): Promise<readonly Series[]> {
  const { query, reader, backend } = plan;
  const classic = classicParts(plan, measure);
  const named = thinQuery(plan, query.metric, {});
  // By the same name a summary has its quantiles.
  const ofNative = { ...named, selector: narrow(named.selector, [equal("quantile", "")]) };
  const { uneven, others } = await unevenOf(reader, classic.count, ofNative);
  const forms = [classicForm(reader, classic), nativeForm(reader, ofNative)];
  const [observed, grown] = await Promise.all([
    others ? classicHistograms(plan, measure) : [],
    uneven.size > 0
      ? growths(reader, forms, classic.count, classic.bucket !== undefined, [...uneven.values()])
      : [],
  ]);
  const even = await bornInEither(
    reader,
    forms,
    observed.filter(({ labels }) => !uneven.has(keyOf(labels))),
    query.buckets,
  );
  if (grown.length === 0 && isBare(measure, even)) return summary(plan, measure);
  const members: readonly (Observed | Growth)[] = [...even, ...grown];
  return grouped(plan, members, (group) => {
    const classics = group.flatMap((one) => ("observations" in one ? one.observations : []));
    needBuckets(plan, measure, classics);
    const natives = group.flatMap((one) => ("observations" in one ? [] : one));
    if (classic.bucket !== undefined && natives.some(({ bare }) => bare))
      throw withoutBuckets(backend, measure.combine);
    const bounds = classic.bucket === undefined ? [] : boundsBeside(classics, natives, query.buckets);
    if (bounds === undefined) {
      const feature = `${measure.combine} over classic and native buckets together`;
      throw unsupported(
        backend,
        `${feature}; a range before or after the change, or count and mean, can be had`,
      );
    }
    const counted = natives.map((growth) => observationsOf(growth, bounds, query.buckets));
    return combineObservations([...classics, ...counted], measure, query.buckets);
  });
}

/** With the births that both forms together tell, of those that have nothing before the buckets. */
async function bornInEither(
  reader: Reader,
  forms: readonly Form[],
  found: readonly Observed[],
  { start }: Buckets,
): Promise<readonly Observed[]> {
  const isOpen = ({ times: [first = start] }: CounterSamples) => first >= start;
  const open = found.filter(({ observations }) => isOpen(observations.count));
  const born = await bornOf(reader, forms, open, open.length < found.length);
  const opened = new Set(open);
  return found.map((one) => {
    if (!opened.has(one)) return one;
    const birth = born.has(keyOf(one.labels)) ? "zero" : "own";
    const since = (samples: CounterSamples) => (isOpen(samples) ? ({ ...samples, birth } as const) : samples);
    const { count, sum, buckets } = one.observations;
    const parts = buckets.map(({ bound, samples }) => ({ bound, samples: since(samples) }));
    return { ...one, observations: { count: since(count), sum: since(sum), buckets: parts } };
  });
}

const none: CounterSamples = { times: new Float64Array(), values: new Float64Array(), birth: "own" };

function withBounds(query: ThinQuery): ThinQuery {
  const bounds = [present("le")];
  return { ...query, selector: narrow(query.selector, bounds), metric: narrow(query.metric, bounds) };
}

function bounded(count: CounterSamples, series: readonly Thinned[], { start }: Buckets): Observations {
  const buckets = byBound(series).map(({ bound, parts }) => ({
    bound,
    samples:
      succession(
        parts.map(({ samples }) => samples),
        start,
      ) ?? none,
  }));
  return { count, sum: none, buckets };
}

/** A quantile that clients computed cannot be merged: it is answered where it is exported and stands alone. */
async function summary(plan: Plan, measure: ObservationMeasure): Promise<readonly Series[]> {
  const { query, reader } = plan;
  const quantile = measure.combine === "quantile" ? measure.quantile : measure.combine === "max" ? 1 : 0;
  const plain = { falls: false, born: false };
  const named = thinQuery(plan, query.metric, plain);
  const exported = { ...named, selector: narrow(named.selector, [present("quantile")]) };
  const counting = thinQuery(plan, `${query.metric}_count`, plain);
  const [found, counts] = await Promise.all([thin(reader, exported), survey(reader, counting)]);
  const own = found.filter(({ labels }) => numberIn(labelOf(labels, "quantile")) === quantile);
  const fitting = await measuredOnly(reader, exported, counting, own);
  const having = new Set(fitting.map(({ labels }) => groupKey(plan, labels)));
  if ([...found, ...counts].some(({ labels }) => !having.has(groupKey(plan, labels)))) {
    throw unsupported(plan.backend, `the quantile ${quantile} of a summary that does not export it`);
  }
  return grouped(plan, fitting, (group) => {
    if (new Set(group.map(({ labels }) => numberKey(labels))).size > 1)
      throw unsupported(plan.backend, "a quantile of several summaries");
    const samples = succession(
      group.map(({ samples }) => samples),
      query.buckets.start,
    );
    return combineSamples([samples ?? none], { of: "samples", combine: "last" }, query.buckets);
  });
}

async function native(plan: Plan, measure: ObservationMeasure): Promise<readonly Series[]> {
  const query = thinQuery(plan, plan.query.metric, {});
  const found = await growths(
    plan.reader,
    [nativeForm(plan.reader, query)],
    query,
    isEstimated(measure.combine),
  );
  return grouped(plan, found, (group) => {
    const bounds = commonBounds(group);
    if (bounds.length === 0 && group.some(({ below }) => below.size > 0))
      throw unsupported(plan.backend, `the ${measure.combine} over buckets that have no bound in common`);
    const observations = group.map((growth) => observationsOf(growth, bounds, query.buckets));
    return combineObservations(observations, measure, query.buckets);
  });
}
