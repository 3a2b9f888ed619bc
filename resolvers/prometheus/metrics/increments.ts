// Reads the growth of counters by group. Where many series make few groups the source adds them up, and only what it
// cannot add up exactly is read by series.
import { requireFirst } from "../../../src/core/collections.ts";
import { Refused } from "../../../src/core/errors.ts";
import type { Series } from "../../../src/core/rows.ts";
import { combineIncrements } from "../../../src/metrics/samples.ts";
import { findCurrentRecorder } from "../../../src/telemetry/request-recorder.ts";
import type { Labels } from "../client/response-scanner.ts";
import type { CounterQuery } from "../counters/bucket-survey.ts";
import { downsampleCounter } from "../counters/counter-downsampling.ts";
import { growGroups, type UngroupedPart } from "../counters/grouped-growth.ts";
import {
  createTooManyPointsError,
  type GridSeries,
  narrowToSeries,
  runConcurrent,
} from "../counters/series-reader.ts";
import {
  buildCounterQuery,
  combineByGroup,
  formatGroupKey,
  type SeriesPlan,
  toSortedSeries,
} from "./series-groups.ts";

/** To group takes some more passes over the samples, but series × buckets less to send. */
const fewestPointsToGroup = 20_000;
const fewestSeriesPerGroup = 4;
/** The labels of each are read once. */
const mostSeriesToGroup = 200_000;

/** The growth of the part of this name. @throws {Refused | BackendError} */
export async function readIncrements(plan: SeriesPlan, name: string): Promise<readonly Series[]> {
  const query = buildCounterQuery(plan, name, {});
  const { keys: by, query: asked, reader, backend } = plan;
  const { isWorth, why } = await judgeGrouping(plan, query);
  const grown = isWorth
    ? await growGroups(reader, { ...query, by, pointLimit: asked.pointLimit }).catch(suppressRefused)
    : undefined;
  const unread =
    isWorth && grown === undefined
      ? ", but too few buckets have the same series, or a limit is in the way"
      : "";
  const how = grown === undefined ? "read" : "grouped";
  findCurrentRecorder()?.chose?.({ backend, of: name, how, why: `${why}${unread}` });
  if (grown !== undefined) return completeGroups(plan, query, grown.groups, grown.ungrouped);
  const found = await downsampleCounter(reader, query);
  return combineByGroup(plan, found, (group) =>
    combineIncrements(
      group.map(({ samples }) => samples),
      asked.buckets,
    ),
  );
}

/** Grouping may exceed a limit that reading does not. */
function suppressRefused(error: unknown): undefined {
  if (error instanceof Refused) return undefined;
  throw error;
}

/** Whether there are many series in few groups, as counted at some times of the range. */
async function judgeGrouping(
  { keys, reader, query: { buckets, pointLimit } }: SeriesPlan,
  { selector }: CounterQuery,
): Promise<{ readonly isWorth: boolean; readonly why: string }> {
  if (reader.hidesRestarts) return { isWorth: false, why: "the source hides restarts" };
  const series = await reader.estimateSeries(selector, undefined, buckets, Number.POSITIVE_INFINITY);
  const size = `about ${series} series in ${buckets.count} buckets`;
  const isFit = series * buckets.count >= fewestPointsToGroup && series <= mostSeriesToGroup;
  if (!isFit) return { isWorth: false, why: size };
  const groups = await reader.estimateSeries(selector, keys, buckets, pointLimit);
  return { isWorth: series >= groups * fewestSeriesPerGroup, why: `${size}, and ${groups} groups` };
}

/** The answer from what was grouped and what has yet to be read. */
async function completeGroups(
  plan: SeriesPlan,
  query: CounterQuery,
  grouped: readonly GridSeries[],
  ungrouped: readonly UngroupedPart[],
): Promise<readonly Series[]> {
  const { buckets, pointLimit } = plan.query;
  const groups = new Map(grouped.map((group) => [formatGroupKey(plan, group.labels), group]));
  const parts = await runConcurrent(ungrouped, async (part) => ({
    part,
    read: await readPart(plan, query, part),
  }));
  for (const { part, read } of parts) {
    for (const { labels, values } of read) {
      const key = formatGroupKey(plan, labels);
      const group = groups.get(key) ?? { labels, values: new Float64Array(buckets.count).fill(Number.NaN) };
      group.values.set(values, part.from);
      groups.set(key, group);
    }
  }
  const points = groups.size * buckets.count;
  if (points > pointLimit) throw createTooManyPointsError(pointLimit, points);
  return toSortedSeries(plan, [...groups.values()]);
}

/** The growth of the groups of a part, each in the buckets of the part. */
async function readPart(
  plan: SeriesPlan,
  query: CounterQuery,
  { from, to, groups }: UngroupedPart,
): Promise<readonly { readonly labels: Labels; readonly values: Float64Array }[]> {
  const { start, step } = query.buckets;
  const buckets = { start: start + from * step, step, count: to - from };
  const found = await downsampleCounter(plan.reader, {
    ...query,
    selector: groups === undefined ? query.selector : narrowToSeries(query.selector, groups),
    buckets,
    // What was before the first bucket is so for each later one.
    lookBack: (query.lookBack ?? 0) + from * step,
  });
  const wanted = groups && new Set(groups.map((labels) => formatGroupKey(plan, labels)));
  return [...Map.groupBy(found, ({ labels }) => formatGroupKey(plan, labels))]
    .filter(([key]) => wanted?.has(key) ?? true)
    .map(([, group]) => ({
      labels: requireFirst(group).labels,
      values: combineIncrements(
        group.map(({ samples }) => samples),
        buckets,
      ),
    }));
}
