// Combines the series of several backends into the series of an answer, by the definitions in `src/metrics/samples.ts`.

import {
  groupInTurns,
  mapInTurns,
  type Steps,
  sortInSteps,
  takeSteps,
  yieldToEventLoop,
} from "../core/async/turns.ts";
import { compareLists, readOwn } from "../core/collections.ts";
import { createTooManyPointsError, createUnsupportedError } from "../core/errors.ts";
import type { Buckets, Measure, Series } from "../core/rows.ts";
import {
  type CounterSamples,
  combineCumulativeInSteps,
  combineIncrementsInSteps,
  combineObservationsInSteps,
  combineSamplesInSteps,
  computeIncrements,
  computeMean,
  type Observations,
  sumValues,
} from "../metrics/samples.ts";
import type { SeriesMember, SeriesQuery } from "../store/metrics.ts";

type SampleMeasure = Extract<Measure, { of: "samples" }>;
type ObservationMeasure = Extract<Measure, { of: "observations" }>;

/** `backends` are named by what is refused. @throws {Refused} */
export async function combineMembers(
  backends: string,
  { tags, measure, buckets, pointLimit }: SeriesQuery,
  members: readonly SeriesMember[],
  signal: AbortSignal,
): Promise<readonly Series[]> {
  const keys = Object.keys(tags).sort();
  const valuesOf = (member: SeriesMember) => keys.map((key) => readOwn(member.tags, key) ?? "");
  const groups = await groupInTurns(members, (member) => JSON.stringify(valuesOf(member)), signal);
  const points = groups.size * buckets.count;
  if (points > pointLimit) throw createTooManyPointsError(pointLimit, points);
  const found: { readonly group: readonly string[]; readonly values: Float64Array }[] = [];
  for (const group of groups.values()) {
    await yieldToEventLoop();
    signal.throwIfAborted();
    const [first] = group;
    const values = await takeSteps(combineGroup(backends, group, measure, buckets), signal);
    const hasValue = values.some((value) => !Number.isNaN(value));
    if (first !== undefined && hasValue) found.push({ group: valuesOf(first), values });
  }
  const sorted = await takeSteps(
    sortInSteps(found, (a, b) => compareLists(a.group, b.group)),
    signal,
  );
  const toSeries = ({ group, values }: (typeof found)[number]): Series => ({
    tags: Object.fromEntries(keys.map((key, at) => [key, group[at] ?? ""])),
    values,
  });
  return mapInTurns(sorted, toSeries, signal);
}

function* combineGroup(
  backends: string,
  group: readonly SeriesMember[],
  measure: Measure,
  buckets: Buckets,
): Steps<Float64Array> {
  const samples = group.flatMap((member) => ("samples" in member ? member.samples : []));
  switch (measure.of) {
    case "samples": {
      const values = group.flatMap((member) => ("values" in member ? [member.values] : []));
      return values.length > 0
        ? yield* combineOwnValues(values, measure, buckets)
        : yield* combineSamplesInSteps(samples, measure, buckets);
    }
    case "increment":
      return yield* combineIncrementsInSteps(samples, buckets);
    case "cumulative":
      return yield* combineCumulativeInSteps(samples, measure, buckets);
    case "observations":
      return yield* combineObserved(backends, group, measure, buckets);
  }
  return measure satisfies never;
}

/** Values that are combined in one step. */
const valuesPerStep = 20_000;

/** Of each series' own measure that of all. */
function* combineOwnValues(
  members: readonly Float64Array[],
  { combine }: SampleMeasure,
  { count }: Buckets,
): Steps<Float64Array> {
  const combined = new Float64Array(count);
  let seen = 0;
  for (let bucket = 0; bucket < count; bucket += 1) {
    const values = members.map((own) => own[bucket] ?? Number.NaN).filter((value) => !Number.isNaN(value));
    combined[bucket] = values.length === 0 ? Number.NaN : combineBucket(values, combine);
    seen += members.length;
    if (seen < valuesPerStep) continue;
    seen = 0;
    yield;
  }
  return combined;
}

function combineBucket(values: readonly number[], combine: SampleMeasure["combine"]): number {
  switch (combine) {
    case "sum":
    case "count":
      return sumValues(values);
    case "min":
      return values.reduce((least, value) => Math.min(least, value));
    case "max":
      return values.reduce((most, value) => Math.max(most, value));
    case "first":
    case "last":
      return computeMean(values);
    case "mean":
    case "quantile":
      throw new Error(`the ${combine} of a group is not that of its series`);
  }
  return combine satisfies never;
}

/** @throws {Refused} where some of what was observed would be left out */
function* combineObserved(
  backends: string,
  group: readonly SeriesMember[],
  measure: ObservationMeasure,
  buckets: Buckets,
): Steps<Float64Array> {
  const exported = group.flatMap((member) => ("values" in member ? [member.values] : []));
  const [only] = exported;
  if (only !== undefined) {
    if (group.length > 1) {
      const advice = "Ask for count or mean, or for one of them by its tags";
      throw createUnsupportedError(backends, `a quantile of several summaries. ${advice}`);
    }
    return only;
  }
  const observed = group.flatMap((member) => ("observations" in member ? member.observations : []));
  const isLacking = ({ buckets, sum }: Observations): boolean => {
    if (measure.combine === "count") return false;
    return measure.combine === "mean" ? sum.times.length === 0 : buckets.length === 0;
  };
  const lacking = observed.filter(isLacking);
  if (lacking.some(({ count }) => hasGrown(count, buckets))) {
    const lost = measure.combine === "mean" ? "its sum" : "buckets";
    throw createUnsupportedError(backends, `the ${measure.combine} of what is counted without ${lost}`);
  }
  return yield* combineObservationsInSteps(observed, measure, buckets);
}

function hasGrown(count: CounterSamples, buckets: Buckets): boolean {
  return computeIncrements(count, buckets).some((grown) => grown > 0);
}
