// Reads the growth of counters by group.
import type { Series } from "../../../src/core/rows.ts";
import { combineIncrements } from "../../../src/metrics/samples.ts";
import { downsampleCounter } from "../counters/counter-downsampling.ts";
import { buildCounterQuery, combineByGroup, type SeriesPlan } from "./series-groups.ts";
import { readInGroups } from "./source-grouping.ts";

/** The growth of the part of this name. @throws {Refused | BackendError} */
export function readIncrements(plan: SeriesPlan, name: string): Promise<readonly Series[]> {
  return readInGroups(plan, {
    name,
    parts: [{ ...buildCounterQuery(plan, name, {}), by: plan.keys }],
    combine: async ([grown = []]) => grown.map((group) => ({ ...group, isUnclear: false })),
    read: (part) => readBySeries(part, name),
  });
}

async function readBySeries(plan: SeriesPlan, name: string): Promise<readonly Series[]> {
  const found = await downsampleCounter(plan.reader, buildCounterQuery(plan, name, {}));
  return combineByGroup(plan, found, (group) =>
    combineIncrements(
      group.map(({ samples }) => samples),
      plan.query.buckets,
    ),
  );
}
