// Means and estimates of classic histograms from the growth of their parts by group, as the source adds it up.

import { groupInTurns, yieldToEventLoop } from "../../../src/core/async/turns.ts";
import { readNumber } from "../../../src/core/collections.ts";
import { estimateFromCounts } from "../../../src/metrics/samples.ts";
import { sortByBound } from "../counters/bound-spellings.ts";
import type { GridSeries } from "../counters/series-reader.ts";
import {
  type ClassicParts,
  formatGroupKey,
  type ObservationMeasure,
  pointsPerTurn,
  type SeriesPlan,
} from "./series-groups.ts";
import type { CombinedGroup, GroupedMeasure } from "./source-grouping.ts";

type Estimate = Exclude<ObservationMeasure, { combine: "count" | "mean" }>;

/** The parts to group for a measure, and how it is computed from them. */
export function groupObservations(
  plan: SeriesPlan,
  measure: ObservationMeasure,
  { count, sum, bucket }: ClassicParts,
): Pick<GroupedMeasure, "parts" | "combine"> | undefined {
  const { keys } = plan;
  const counted = { ...count, by: keys };
  if (measure.combine === "mean" && sum !== undefined) {
    return {
      parts: [counted, { ...sum, by: keys }],
      combine: async ([counts = [], sums = []]) => combineMeans(plan, counts, sums),
    };
  }
  if (measure.combine === "count" || measure.combine === "mean" || bucket === undefined) return undefined;
  return {
    parts: [counted, { ...bucket, by: [...keys, "le"] }],
    combine: ([counts = [], buckets = []]) => estimateGroups(plan, measure, counts, buckets),
  };
}

function combineMeans(
  plan: SeriesPlan,
  counts: readonly GridSeries[],
  sums: readonly GridSeries[],
): readonly CombinedGroup[] {
  const sumOf = new Map(sums.map((one) => [formatGroupKey(plan, one.labels), one.values]));
  return counts.map(({ labels, values: counted }) => {
    const summed = sumOf.get(formatGroupKey(plan, labels));
    const values = counted.map((size, at) => (size > 0 ? (summed?.[at] ?? Number.NaN) / size : Number.NaN));
    const isUnclear = values.some((value, at) => readNumber(counted, at) > 0 && Number.isNaN(value));
    return { labels, values, isUnclear };
  });
}

async function estimateGroups(
  plan: SeriesPlan,
  measure: Estimate,
  counts: readonly GridSeries[],
  buckets: readonly GridSeries[],
): Promise<readonly CombinedGroup[]> {
  const bucketsOf = await groupInTurns(buckets, ({ labels }) => formatGroupKey(plan, labels));
  const groups: CombinedGroup[] = [];
  let points = 0;
  for (const { labels, values: counted } of counts) {
    const bounds = sumByBound(bucketsOf.get(formatGroupKey(plan, labels)) ?? []);
    const values = new Float64Array(counted.length).fill(Number.NaN);
    for (let at = 0; at < counted.length; at++) {
      if (Number.isNaN(counted[at])) continue;
      const found = bounds.flatMap(({ bound, values }) => {
        const count = readNumber(values, at);
        return Number.isNaN(count) ? [] : [{ bound, count }];
      });
      values[at] = estimateFromCounts(found, measure);
      points += bounds.length;
      if (points < pointsPerTurn) continue;
      points = 0;
      await yieldToEventLoop();
    }
    groups.push({ labels, values, isUnclear: false });
  }
  return groups;
}

/** Ascending. Two spellings of a bound are one: here they are of different series. */
function sumByBound(
  series: readonly GridSeries[],
): readonly { readonly bound: number; readonly values: Float64Array }[] {
  const byBound = Map.groupBy(sortByBound(series), ({ bound }) => bound);
  return [...byBound].map(([bound, [first, ...others]]) => {
    const values = first?.series.values.slice() ?? new Float64Array();
    for (const { series: more } of others) {
      for (const [at, value] of more.values.entries()) {
        if (!Number.isNaN(value)) values[at] = (values[at] || 0) + value;
      }
    }
    return { bound, values };
  });
}
