// The plan of a query whose metric is known, the queries for its parts, the groups that its series fall into by their tags,
// and the combination of each group into one series of the answer.

import {
  createPause,
  groupInTurns,
  type MaybePromise,
  sortInSteps,
  takeSteps,
  visitInTurns,
} from "../../../src/core/async/turns.ts";
import { requireFirst } from "../../../src/core/collections.ts";
import { createTooManyPointsError } from "../../../src/core/errors.ts";
import type { Measure, Series } from "../../../src/core/rows.ts";
import type { SeriesQuery } from "../../../src/store/metrics.ts";
import { type Matcher, matchGlob, matchPresent, narrowSelector } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import type { CounterQuery, UnkeptBuckets } from "../counters/bucket-survey.ts";
import { readLabel, type SeriesReader } from "../counters/series-reader.ts";
import { type Family, selectAllParts, selectPart } from "./family-listing.ts";

/** How many points and samples may be read for one answer, if its own limit is not higher. */
const readLimit = 5_000_000;

/** A query whose metric is known, with what is needed to run it. */
export interface SeriesPlan {
  readonly backend: string;
  readonly query: SeriesQuery;
  /** The parts of the metric. */
  readonly family: Family;
  /** The keys of its tags, sorted. */
  readonly keys: readonly string[];
  /** What its tags require. */
  readonly matchers: readonly Matcher[];
  readonly reader: SeriesReader;
  /** How many points and samples may be read. */
  readonly limit: number;
  /** As in `MetricFamilies`, of the metric. */
  readonly listUncountable: () => Promise<readonly Labels[]>;
  /** Present where values of the answer may be kept for other ranges. */
  readonly unkept?: UnkeptBuckets | undefined;
}

export function createPlan(
  backend: string,
  query: SeriesQuery,
  family: Family,
  reader: SeriesReader,
  listUncountable: SeriesPlan["listUncountable"],
): SeriesPlan {
  const matchers = Object.entries(query.tags).map(([key, pattern]) => matchGlob(key, pattern));
  const limit = Math.max(query.pointLimit, readLimit);
  return {
    backend,
    query,
    family,
    keys: Object.keys(query.tags).sort(),
    matchers,
    reader,
    limit,
    listUncountable,
  };
}

/** The query for its buckets from `from` until before `to`. */
export function narrowToSpan(
  query: SeriesQuery,
  { from, to }: { readonly from: number; readonly to: number },
): SeriesQuery {
  const { start, step } = query.buckets;
  return {
    ...query,
    buckets: { start: start + from * step, step, count: to - from },
    // What was before the first bucket is so for each later one.
    lookBack: query.lookBack + from * step,
  };
}

/** The tags of the group that a series belongs to. */
export function readTags({ keys }: SeriesPlan, labels: Labels): Readonly<Record<string, string>> {
  return Object.fromEntries(keys.map((key) => [key, readLabel(labels, key)]));
}

export function formatGroupKey({ keys }: SeriesPlan, labels: Labels): string {
  const [only] = keys;
  if (only !== undefined && keys.length === 1) return readLabel(labels, only);
  return JSON.stringify(keys.map((key) => readLabel(labels, key)));
}

/** How many points are combined in one turn of the event loop: some milliseconds. */
export const pointsPerTurn = 20_000;

/** Combines each group of series into one. Sorted as by `toSortedSeries`. @throws {Refused} over the limit of points */
export async function combineByGroup<T extends { readonly labels: Labels }>(
  plan: SeriesPlan,
  found: readonly T[],
  combine: (group: readonly T[]) => MaybePromise<Float64Array>,
): Promise<readonly Series[]> {
  const groups = await groupInTurns(found, ({ labels }) => formatGroupKey(plan, labels));
  const { buckets, pointLimit } = plan.query;
  const pointCount = groups.size * buckets.count;
  if (pointCount > pointLimit) throw createTooManyPointsError(pointLimit, pointCount);
  const all: { readonly labels: Labels; readonly values: Float64Array }[] = [];
  const pause = createPause();
  for (const group of groups.values()) {
    all.push({ labels: requireFirst(group).labels, values: await combine(group) });
    const paused = pause();
    if (paused !== undefined) await paused;
  }
  return toSortedSeries(plan, all);
}

/** The series of an answer, in the order of their tags, without those that have no value. */
export async function toSortedSeries(
  plan: SeriesPlan,
  found: readonly { readonly labels: Labels; readonly values: Float64Array }[],
): Promise<readonly Series[]> {
  const all: Series[] = [];
  await visitInTurns(found, ({ labels, values }) => {
    if (hasValue(values)) all.push({ tags: readTags(plan, labels), values });
  });
  return takeSteps(sortInSteps(all, (a, b) => compareTags(plan.keys, a.tags, b.tags)));
}

function hasValue(values: Float64Array): boolean {
  return values.some((value) => !Number.isNaN(value));
}

function compareTags(keys: readonly string[], a: Labels, b: Labels): number {
  for (const key of keys) {
    const [one, other] = [readLabel(a, key), readLabel(b, key)];
    if (one !== other) return one < other ? -1 : 1;
  }
  return 0;
}

/** The query for one part of the metric, by its name. If it `looksBack`, growth counts from the sample before the buckets. */
export function buildCounterQuery(
  { query, family, matchers, limit, unkept }: SeriesPlan,
  name: string,
  { needsFirst = false, canRestart = true, looksBack = true },
): CounterQuery {
  const metric = selectPart(query.match, name);
  return {
    selector: narrowSelector(metric, matchers),
    metric,
    allParts: selectAllParts(query.match, query.metric, family),
    buckets: query.buckets,
    lookBack: looksBack ? query.lookBack : undefined,
    needsFirst,
    canRestart,
    limit,
    unkept,
  };
}

export type ObservationMeasure = Extract<Measure, { of: "observations" }>;

/** Whether the measure is estimated from the buckets. Count and mean are exported beside them. */
export function isEstimated(combine: ObservationMeasure["combine"]): boolean {
  return combine !== "count" && combine !== "mean";
}

/** The parts of a classic histogram that a measure needs beside its count. */
export interface ClassicParts {
  readonly count: CounterQuery;
  readonly sum?: CounterQuery;
  readonly bucket?: CounterQuery;
}

export function buildClassicParts(plan: SeriesPlan, { combine }: ObservationMeasure): ClassicParts {
  const { metric } = plan.query;
  const count = buildCounterQuery(plan, `${metric}_count`, {});
  if (combine === "count") return { count };
  if (combine === "mean")
    return { count, sum: buildCounterQuery(plan, `${metric}_sum`, { canRestart: false }) };
  const buckets = buildCounterQuery(plan, `${metric}_bucket`, {});
  return { count, bucket: narrowQuery(buckets, [matchPresent("le")]) };
}

export function narrowQuery(query: CounterQuery, matchers: readonly Matcher[]): CounterQuery {
  const { selector, metric } = query;
  return { ...query, selector: narrowSelector(selector, matchers), metric: narrowSelector(metric, matchers) };
}
