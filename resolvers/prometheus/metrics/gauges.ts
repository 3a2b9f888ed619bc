// Reads gauges: by group, where an expression can say the measure, or from raw samples.
import { groupInTurns, takeSteps, visitInTurns } from "../../../src/core/async/turns.ts";
import { readNumber } from "../../../src/core/collections.ts";
import { isRejection, Refused } from "../../../src/core/errors.ts";
import type { Measure, Series } from "../../../src/core/rows.ts";
import { combineSamples, combineSamplesInSteps, dropNonFinite } from "../../../src/metrics/samples.ts";
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
import { formatSeriesKey, type GridSeries, type SeriesReader } from "../counters/series-reader.ts";
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
  const { query, reader, keys } = plan;
  const { buckets, pointLimit } = query;
  const { combine } = measure;
  const selector = narrowSelector(selectPart(query.match, query.metric), plan.matchers);
  const estimated = reader.estimateSeries(selector, keys, buckets, pointLimit);
  if (buckets.step === 1 || combine === "first") {
    await estimated;
    return combineRaw(plan, measure, selector);
  }
  const [groups, series, relaxed] = await Promise.all([
    estimated,
    reader.estimateSeries(selector, undefined, buckets, Number.POSITIVE_INFINITY),
    reader.dropPresenceMatchers(selector, buckets),
  ]);
  const asked: GroupedQuestion = {
    plan,
    selector,
    samples: reader.selectRange(relaxed.selector, { from: buckets.step, to: 1 }),
    isSingle: series > 0 && series === groups,
    read: (expression, reader) => reader.readGrid(expression, buckets, pointLimit, relaxed.matchesDropped),
  };
  const found = await (combine === "quantile"
    ? readQuantiles(asked, measure.quantile)
    : readExpressible(asked, combine));
  if (found === undefined) return combineRaw(plan, measure, selector);
  await recomputeNonFiniteBuckets(plan, measure, selector, found, ownByGroup(plan));
  return toSortedSeries(plan, found);
}

/** The groups from all their samples. */
async function combineRaw(
  plan: SeriesPlan,
  measure: SampleMeasure,
  selector: Selector,
): Promise<readonly Series[]> {
  const { buckets } = plan.query;
  const { start, step, count } = buckets;
  const raw = await plan.reader.readRaw(selector, start, start + step * count, plan.limit);
  return combineByGroup(plan, raw, (group) =>
    takeSteps(combineSamplesInSteps(group.map(dropNonFinite), measure, buckets)),
  );
}

/** The groups of one question, which the source is asked for. */
interface GroupedQuestion {
  readonly plan: SeriesPlan;
  readonly selector: Selector;
  /** Those of a bucket. */
  readonly samples: Expression;
  /** Each group seems to have one series. */
  readonly isSingle: boolean;
  readonly read: (expression: Expression, reader: SeriesReader) => Promise<readonly GridSeries[]>;
}

function ownByGroup(plan: SeriesPlan): ValueOwner {
  return {
    keyOf: (labels) => formatGroupKey(plan, labels),
    labelsOf: (labels) => readTags(plan, labels),
  };
}

async function readExpressible(asked: GroupedQuestion, combine: Expressible): Promise<readonly GridSeries[]> {
  const { plan, selector, samples, isSingle } = asked;
  const { losesNaN } = plan.reader;
  const readBy = (by: readonly string[] | undefined, reader: SeriesReader) =>
    asked.read(buildGaugeExpression(combine, by, samples, losesNaN), reader);
  const readSingle = (reader: SeriesReader) => readBy(undefined, reader);
  const single = isSingle ? await readWithoutAggregation(plan, selector, readSingle) : undefined;
  const found = single ?? (await readBy(plan.keys, plan.reader));
  if (!losesNaN || !mayBeNaN(combine)) return found;
  return addMarks(ownByGroup(plan), found, await readMarks(asked, plan.reader));
}

/**
 * The quantiles of groups that have one series each; there is no expression for those of several series. A bucket in which a
 * group has two series after all, as where a pod follows another, is marked as if it had a sample that is not finite.
 * Returns `undefined` where all samples have to be read.
 */
async function readQuantiles(
  asked: GroupedQuestion,
  quantile: number,
): Promise<readonly GridSeries[] | undefined> {
  const { plan, selector, samples, isSingle } = asked;
  if (!isSingle) return undefined;
  const quantiles = call("quantile_over_time", number(quantile), samples);
  const read = await tryRead(plan.reader, async (reader) => {
    const [found, marked] = await Promise.all([asked.read(quantiles, reader), readMarks(asked, reader)]);
    const groups = await joinGroups(plan, found);
    return found.length < groups.length * 2 ? addMarks(ownByGroup(plan), groups, marked) : undefined;
  });
  if (read === undefined) plan.reader.markUnderestimated(selector);
  return read;
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
  read: (reader: SeriesReader) => Promise<readonly GridSeries[]>,
): Promise<readonly GridSeries[] | undefined> {
  const found = await tryRead(plan.reader, async (reader) => {
    const series = await read(reader);
    const keys = new Set<string>();
    await visitInTurns(series, ({ labels }) => keys.add(formatGroupKey(plan, labels)));
    return keys.size === series.length ? series : undefined;
  });
  if (found === undefined) plan.reader.markUnderestimated(selector);
  return found;
}

/** `undefined` where the source or a limit refuses the response, or `read` finds nothing in it. Nothing of it then counts as held. */
async function tryRead<Read>(
  reader: SeriesReader,
  read: (reader: SeriesReader) => Promise<Read | undefined>,
): Promise<Read | undefined> {
  const part = reader.openPart();
  let found: Read | undefined;
  try {
    found = await read(part);
  } catch (error) {
    if (!(error instanceof Refused) && !isRejection(error)) throw error;
  }
  if (found === undefined) part.release();
  return found;
}

/** The values of each group's series; infinite where several of them have one. */
async function joinGroups(plan: SeriesPlan, found: readonly GridSeries[]): Promise<readonly GridSeries[]> {
  const groups = new Map<string, GridSeries>();
  await visitInTurns(found, (series) => {
    const key = formatGroupKey(plan, series.labels);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, series);
    else addToGroup(group.values, series.values);
  });
  return [...groups.values()];
}

function addToGroup(values: Float64Array, more: Float64Array): void {
  for (const [bucket, value] of more.entries()) {
    if (Number.isNaN(value)) continue;
    values[bucket] = Number.isNaN(readNumber(values, bucket)) ? value : Number.POSITIVE_INFINITY;
  }
}

/** Where a group has a sample that is not finite. */
function readMarks(
  { plan, samples, read }: GroupedQuestion,
  reader: SeriesReader,
): Promise<readonly GridSeries[]> {
  const marks = markNonFinite(samples, reader.losesNaN);
  return read(binary(aggregate("max", plan.keys, marks), "!=", number(0)), reader);
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
  for (const { labels, values } of affected) {
    const group = groups.get(keyOf(labels)) ?? [];
    const exact = await takeSteps(combineSamplesInSteps(group, measure, query.buckets));
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
