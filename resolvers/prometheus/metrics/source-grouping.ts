// Answers a question about growth by groups that the source adds up, where many series make few groups. What the source
// cannot add up exactly is read by series, in parts of the buckets or for some of the groups.
import { createTooManyPointsError, Refused } from "../../../src/core/errors.ts";
import type { Series } from "../../../src/core/rows.ts";
import { day, type Millis } from "../../../src/core/time.ts";
import { findCurrentRecorder } from "../../../src/telemetry/request-recorder.ts";
import {
  findSteadyBuckets,
  type GroupedPart,
  growGroups,
  type UngroupedPart,
} from "../counters/grouped-growth.ts";
import { matchSeries } from "../counters/series-narrowing.ts";
import { type GridSeries, runConcurrent } from "../counters/series-reader.ts";
import { isSparse } from "../counters/sparse-grid.ts";
import { formatGroupKey, narrowToSpan, type SeriesPlan, toSortedSeries } from "./series-groups.ts";

/** To group takes some more passes over the samples, but series × buckets less to send. */
const fewestPointsToGroup = 20_000;
/** Or series × time, where the buckets are sparse: to group then takes fewer passes over the samples than to read. */
const fewestSeriesTimeToGroup: Millis = 1_000 * day;
const fewestSeriesPerGroup = 4;
/** The labels of each are read once. */
const mostSeriesToGroup = 200_000;

export interface GroupedMeasure {
  /** What is read of the metric, for `explain`. */
  readonly name: string;
  readonly parts: readonly [GroupedPart, ...GroupedPart[]];
  /** The values of the groups from the growth of their parts. */
  readonly combine: (parts: readonly (readonly GridSeries[])[]) => Promise<readonly CombinedGroup[]>;
  /** Whether the parts hold all that is asked for. @throws {Refused} as reading would */
  readonly isComplete?: () => Promise<boolean>;
  /** The same from series, for all of the query of a plan or a part of it. */
  readonly read: (plan: SeriesPlan, isPart: boolean) => Promise<readonly Series[]>;
}

export interface CombinedGroup extends GridSeries {
  /** Some of the values have to be read after all. */
  readonly isUnclear: boolean;
}

/** @throws {Refused | BackendError} */
export async function readInGroups(plan: SeriesPlan, measure: GroupedMeasure): Promise<readonly Series[]> {
  const { keys, query, backend } = plan;
  const { name, parts, read } = measure;
  // What is read in vain is given back before the question is read by series.
  const reader = plan.reader.openPart();
  const attempt = { ...plan, reader };
  const { isWorth, why } = await judgeGrouping(plan, measure);
  const asked = { parts, keys, pointLimit: query.pointLimit };
  const steady = isWorth ? await findSteadyBuckets(reader, asked).catch(suppressRefused) : undefined;
  // What lies between is read meanwhile; whether that succeeds counts only if the groups can be grown.
  const [grown, [gaps]] = await Promise.all([
    steady && growGroups(reader, steady).catch(suppressRefused),
    Promise.allSettled([readParts(attempt, measure, steady?.gaps ?? [])]),
  ]);
  const unread =
    isWorth && grown === undefined
      ? ", but too few buckets have the same series, or a limit is in the way"
      : "";
  const how = grown === undefined ? "read" : "grouped";
  findCurrentRecorder()?.recordChoice?.({ backend, of: name, how, why: `${why}${unread}` });
  if (grown === undefined) {
    reader.release();
    return read(plan, false);
  }
  if (gaps.status === "rejected") throw gaps.reason;
  const combined = await measure.combine(grown.parts);
  const unclear = combined.filter(({ isUnclear }) => isUnclear).map(({ labels }) => labels);
  const whole = { from: 0, to: query.buckets.count };
  const ungrouped = unclear.length === 0 ? [] : [{ ...whole, groups: unclear }];
  const left = await readParts(plan, measure, [...grown.ungrouped, ...ungrouped]);
  return completeGroups(plan, combined, [...gaps.value, ...left]);
}

/** Grouping may exceed a limit that reading does not. */
function suppressRefused(error: unknown): undefined {
  if (error instanceof Refused) return undefined;
  throw error;
}

/** Whether there are many series in few groups, as counted at some times of the range. */
async function judgeGrouping(
  { keys, reader, query: { buckets, pointLimit } }: SeriesPlan,
  { parts, isComplete }: GroupedMeasure,
): Promise<{ readonly isWorth: boolean; readonly why: string }> {
  if (reader.hidesRestarts) return { isWorth: false, why: "the source hides restarts" };
  const [first] = parts;
  const [counted, ...others] = await runConcurrent(parts, ({ selector }) =>
    reader.estimateSeries(selector, undefined, buckets, Number.POSITIVE_INFINITY),
  );
  const series = others.reduce((sum, more) => sum + more, counted ?? Number.NaN);
  const size = `about ${series} series in ${buckets.count} buckets`;
  const isMuch =
    series * buckets.count >= fewestPointsToGroup ||
    (isSparse(buckets) && series * buckets.count * buckets.step >= fewestSeriesTimeToGroup);
  const isFit = isMuch && series <= mostSeriesToGroup;
  if (!isFit || counted === undefined) return { isWorth: false, why: size };
  const groups = await reader.estimateSeries(first.selector, keys, buckets, pointLimit);
  const why = `${size}, and ${groups} groups`;
  if (counted < groups * fewestSeriesPerGroup) return { isWorth: false, why };
  if (isComplete !== undefined && !(await isComplete()))
    return { isWorth: false, why: `${why}, but histograms without a count` };
  return { isWorth: true, why };
}

interface ReadPart {
  readonly part: UngroupedPart;
  readonly read: readonly Series[];
}

function readParts(
  plan: SeriesPlan,
  measure: GroupedMeasure,
  parts: readonly UngroupedPart[],
): Promise<readonly ReadPart[]> {
  return runConcurrent(parts, async (part) => ({ part, read: await readPart(plan, measure, part) }));
}

/** The answer from what was grouped and what was read, which replaces it. */
async function completeGroups(
  plan: SeriesPlan,
  grouped: readonly GridSeries[],
  parts: readonly ReadPart[],
): Promise<readonly Series[]> {
  const { buckets, pointLimit } = plan.query;
  const groups = new Map(grouped.map((group) => [formatGroupKey(plan, group.labels), group]));
  for (const { part, read } of parts) {
    for (const { tags, values } of read) {
      const key = formatGroupKey(plan, tags);
      const group = groups.get(key) ?? {
        labels: tags,
        values: new Float64Array(buckets.count).fill(Number.NaN),
      };
      group.values.set(values, part.from);
      groups.set(key, group);
    }
  }
  const points = groups.size * buckets.count;
  if (points > pointLimit) throw createTooManyPointsError(pointLimit, points);
  return toSortedSeries(plan, [...groups.values()]);
}

/** The groups of a part, each in the buckets of the part. */
async function readPart(
  plan: SeriesPlan,
  { read }: GroupedMeasure,
  { from, to, groups }: UngroupedPart,
): Promise<readonly Series[]> {
  const found = await read(
    {
      ...plan,
      matchers: groups === undefined ? plan.matchers : [...matchSeries(groups, plan.keys), ...plan.matchers],
      query: narrowToSpan(plan.query, { from, to }),
    },
    true,
  );
  const wanted = groups && new Set(groups.map((labels) => formatGroupKey(plan, labels)));
  return found.filter(({ tags }) => wanted?.has(formatGroupKey(plan, tags)) ?? true);
}
