// Reads the growth of counters by group.
import { takeSteps } from "../../../src/core/async/turns.ts";
import { createTooManyPointsError } from "../../../src/core/errors.ts";
import type { Buckets, Series } from "../../../src/core/rows.ts";
import { combineIncrementsInSteps } from "../../../src/metrics/samples.ts";
import { downsampleCounter } from "../counters/counter-downsampling.ts";
import { longestReach } from "../counters/grouped-growth.ts";
import {
  buildCounterQuery,
  combineByGroup,
  formatGroupKey,
  type SeriesPlan,
  toSortedSeries,
} from "./series-groups.ts";
import { readInGroups } from "./source-grouping.ts";

/** The growth of the part of this name. @throws {Refused | BackendError} */
export function readIncrements(plan: SeriesPlan, name: string): Promise<readonly Series[]> {
  const parts = splitLongBucket(plan);
  return parts === undefined
    ? readInGroups(plan, buildGrouping(plan, name, readBySeries))
    : readInParts(plan, name, parts);
}

type PartReader = (part: SeriesPlan, name: string, isPart: boolean) => Promise<readonly Series[]>;

function buildGrouping(plan: SeriesPlan, name: string, read: PartReader): Parameters<typeof readInGroups>[1] {
  return {
    name,
    parts: [{ ...buildCounterQuery(plan, name, {}), by: plan.keys }],
    combine: async ([grown = []]) => grown.map((group) => ({ ...group, isUnclear: false })),
    read: (part, isPart) => read(part, name, isPart),
  };
}

async function readBySeries(plan: SeriesPlan, name: string): Promise<readonly Series[]> {
  const found = await downsampleCounter(plan.reader, buildCounterQuery(plan, name, {}));
  return combineByGroup(plan, found, (group) =>
    takeSteps(
      combineIncrementsInSteps(
        group.map(({ samples }) => samples),
        plan.query.buckets,
      ),
    ),
  );
}

// ---- One long bucket -----------------------------------------------------------------------------------------------

/** The source adds up samples at the ends of parts of a long bucket, and is asked for them between these. */
const partCount = 16;
const shortestPart = 3 * longestReach;

/** The parts of a single long bucket; what is left over at its end is shorter than one. */
function splitLongBucket({ query, unkept }: SeriesPlan): Buckets | undefined {
  const { start, step, count } = query.buckets;
  // What may be kept is noted by bucket.
  if (count > 1 || unkept !== undefined) return undefined;
  const part = Math.floor(step / partCount / longestReach) * longestReach;
  return part < shortestPart ? undefined : { start, step: part, count: Math.floor(step / part) };
}

/** The growth of a bucket is the sum of that of its parts. */
async function readInParts(plan: SeriesPlan, name: string, parts: Buckets): Promise<readonly Series[]> {
  const { query } = plan;
  const { start, step } = query.buckets;
  let isRead = false;
  const divided = {
    ...plan,
    query: { ...query, buckets: parts, pointLimit: query.pointLimit * parts.count },
  };
  const grouping = buildGrouping(divided, name, (part, name, isPart) => {
    if (isPart) return readBySeries(part, name);
    isRead = true;
    return readBySeries(plan, name);
  });
  const found = await readInGroups(divided, grouping);
  if (isRead) return found;
  const grouped = parts.step * parts.count;
  const rest = { start: start + grouped, step: step - grouped, count: 1 };
  const left =
    rest.step === 0
      ? []
      : await readBySeries(
          { ...plan, query: { ...query, buckets: rest, lookBack: query.lookBack + grouped } },
          name,
        );
  const groups = Map.groupBy([...found, ...left], ({ tags }) => formatGroupKey(plan, tags));
  // Each part was below the limit, maybe with other groups.
  if (groups.size > query.pointLimit) throw createTooManyPointsError(query.pointLimit, groups.size);
  const whole = [...groups.values()].map((pieces) => {
    const grown = pieces.flatMap(({ values }) => [...values]).filter((value) => !Number.isNaN(value));
    return {
      labels: pieces[0]?.tags ?? {},
      values: Float64Array.of(grown.reduce((sum, more) => sum + more, 0)),
    };
  });
  return toSortedSeries(plan, whole);
}
