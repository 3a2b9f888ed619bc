// Reads gauges: by group, where an expression can say the measure, or from raw samples.
import { groupInTurns, visitInTurns } from "../../../src/core/async/turns.ts";
import { readNumber } from "../../../src/core/collections.ts";
import { isRejection, Refused } from "../../../src/core/errors.ts";
import type { Measure, Series } from "../../../src/core/rows.ts";
import { combineSamples, dropNonFinite } from "../../../src/metrics/samples.ts";
import {
  aggregate,
  binary,
  call,
  type Expression,
  markNonFinite,
  narrowSelector,
  number,
  type Selector,
} from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { readRawBuckets } from "../counters/counter-downsampling.ts";
import type { SuspectBucket } from "../counters/raw-runs.ts";
import { formatSeriesKey, type GridSeries } from "../counters/series-reader.ts";
import { selectPart } from "./family-listing.ts";
import {
  combineByGroup,
  formatGroupKey,
  readTags,
  type SeriesPlan,
  toSortedSeries,
} from "./series-groups.ts";

type SampleMeasure = Extract<Measure, { of: "samples" }>;

/** The measures that an expression can compute over several series: `first_over_time` is a parse error before 3.14. */
type Expressible = Exclude<SampleMeasure["combine"], "first" | "quantile">;

/** @throws {Refused | BackendError} */
export async function readGauges(plan: SeriesPlan, measure: SampleMeasure): Promise<readonly Series[]> {
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
  const { losesNaN } = reader;
  const owner: ValueOwner = {
    keyOf: (labels) => formatGroupKey(plan, labels),
    labelsOf: (labels) => readTags(plan, labels),
  };
  const readOn = (expression: Expression) =>
    reader.readGrid(expression, buckets, pointLimit, relaxed.matchesDropped);
  const read = (by: readonly string[] | undefined) =>
    readOn(buildGaugeExpression(combine, by, samples, losesNaN));
  const single = series > 0 && series === groups;
  const found = (single && (await readWithoutAggregation(plan, selector, read))) || (await read(keys));
  const marked = aggregate("max", keys, markNonFinite(samples, losesNaN));
  const all =
    losesNaN && mayBeNaN(combine)
      ? await addMarks(owner, found, await readOn(binary(marked, "!=", number(0))))
      : found;
  await recomputeNonFiniteBuckets(plan, measure, selector, all, owner);
  return toSortedSeries(plan, all);
}

/**
 * The measure of each series by itself; of a quantile there is none, nor of a mean, which no one computes from means.
 * @throws {Refused | BackendError}
 */
export async function readSingleGauges(
  plan: SeriesPlan,
  measure: Extract<SampleMeasure, { readonly combine: Expressible | "first" }>,
): Promise<readonly GridSeries[]> {
  const { query, reader, limit } = plan;
  const { start, step, count } = query.buckets;
  const { combine } = measure;
  const selector = narrowSelector(selectPart(query.match, query.metric), plan.matchers);
  if (step === 1 || combine === "first") {
    const raw = await reader.readRaw(selector, start, start + step * count, limit);
    return raw.map((series) => ({
      labels: series.labels,
      values: combineSamples([dropNonFinite(series)], measure, query.buckets),
    }));
  }
  const relaxed = await reader.dropPresenceMatchers(selector, query.buckets);
  const samples = reader.selectRange(relaxed.selector, { from: step, to: 1 });
  const { losesNaN } = reader;
  const readOn = (expression: Expression) =>
    reader.readGrid(expression, query.buckets, limit, relaxed.matchesDropped);
  const found = await readOn(buildGaugeExpression(combine, undefined, samples, losesNaN));
  const owner: ValueOwner = { keyOf: formatSeriesKey, labelsOf: (labels) => labels };
  const all =
    losesNaN && mayBeNaN(combine)
      ? await addMarks(owner, found, await readOn(binary(markNonFinite(samples, losesNaN), "!=", number(0))))
      : found;
  await recomputeNonFiniteBuckets(plan, measure, selector, all, owner);
  return all;
}

/** Which series a value is of: one, or those of a group. */
interface ValueOwner {
  readonly keyOf: (labels: Labels) => string;
  /** What selects them. */
  readonly labelsOf: (labels: Labels) => Labels;
}

/** Whether the value of samples that are infinite may be no number. */
function mayBeNaN(combine: Expressible): boolean {
  return combine === "last" || combine === "mean" || combine === "sum";
}

/** The groups with infinity in each bucket that is marked, also where the source has lost the value. */
async function addMarks(
  { keyOf }: ValueOwner,
  found: readonly GridSeries[],
  marked: readonly GridSeries[],
): Promise<readonly GridSeries[]> {
  const groups = new Map<string, GridSeries>();
  await visitInTurns(found, (group) => groups.set(keyOf(group.labels), group));
  await visitInTurns(marked, ({ labels, values }) => {
    const key = keyOf(labels);
    const marks = values.map((mark) => (mark > 0 ? Number.POSITIVE_INFINITY : Number.NaN));
    const own = groups
      .get(key)
      ?.values.map((value, bucket) => (readNumber(marks, bucket) > 0 ? Number.POSITIVE_INFINITY : value));
    groups.set(key, { labels, values: own ?? marks });
  });
  return [...groups.values()];
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
    const keys = new Set<string>();
    await visitInTurns(found, ({ labels }) => keys.add(formatGroupKey(plan, labels)));
    if (keys.size === found.length) return found;
  } catch (error) {
    if (!(error instanceof Refused || isRejection(error))) throw error;
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
  { keyOf, labelsOf }: ValueOwner,
): Promise<void> {
  const { query, reader, limit } = plan;
  const affected: GridSeries[] = [];
  const suspects: SuspectBucket[] = [];
  await visitInTurns(found, (series) => {
    if (!series.values.includes(Number.POSITIVE_INFINITY)) return;
    affected.push(series);
    const labels = labelsOf(series.labels);
    for (const [bucket, value] of series.values.entries())
      if (value === Number.POSITIVE_INFINITY) suspects.push({ bucket, labels });
  });
  if (affected.length === 0) return;
  const raw = await readRawBuckets(reader, selector, suspects, query.buckets, limit);
  const groups = await groupInTurns(raw, ({ labels }) => keyOf(labels));
  await visitInTurns(affected, ({ labels, values }) => {
    const exact = combineSamples(groups.get(keyOf(labels)) ?? [], measure, query.buckets);
    for (const [bucket, value] of values.entries()) {
      if (value === Number.POSITIVE_INFINITY) values[bucket] = readNumber(exact, bucket);
    }
  });
}

/**
 * An expression for the measure whose value is not finite if one of its samples is not. A least or greatest value ignores
 * NaN, which is exact. Without `by`, of each series.
 */
function buildGaugeExpression(
  combine: Expressible,
  by: readonly string[] | undefined,
  samples: Expression,
  losesNaN: boolean,
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
      return over("sum", binary(call("count_over_time", samples), "+", markNonFinite(samples, losesNaN)));
    }
  }
  return combine satisfies never;
}
