// The vocabulary of metrics: which field of which type, combined how, is which measure, and the grid of buckets. `samples.ts`
// says what a measure is. Everything here is decided without asking a source, so all stores agree on it.
import type { Buckets, Measure, MetricType } from "../core/rows.ts";
import {
  allTime,
  day,
  fromMillis,
  hour,
  type Instant,
  type Millis,
  minute,
  type TimeRange,
  toMillis,
} from "../core/time.ts";
import { computeMean, sumValues } from "./samples.ts";

// ---- Fields and aggregations --------------------------------------------------------------------------------

/** Spec, "Field values". */
export const metricFields = ["gauge", "counter", "mean", "count", "min", "max", "p_90", "p_95"] as const;
export type MetricField = (typeof metricFields)[number];

/** Spec, "Aggregations". */
export const aggregations = ["sum", "avg", "min", "max", "first", "last"] as const;
export type Aggregation = (typeof aggregations)[number];

/** What a counter answers where the request names no aggregation: a site's `counter_default`. */
type CounterDefault = "cumulative" | "increment";

/** How one selector is answered: `measure` gives each bucket's value, `combine` makes one of the buckets' values. */
export interface SelectorPlan {
  readonly measure: Measure;
  /** Used where buckets have to become one value: in a list with a resolution. */
  readonly combine: Aggregation;
}

/** A row of the table: the measure of each aggregation, or one that no aggregation changes. */
type FieldRule =
  | { readonly measures: Readonly<Record<Aggregation, Measure>>; readonly plain: Aggregation | "site" }
  | { readonly measure: Measure; readonly plain: Aggregation };

// A field that is itself a combination of its bucket's values is not changed by an aggregation (docs/reference/api/metrics.md,
// "Fields"). What the buckets of such a field become where no aggregation is named is ours: counts add up, extremes stay
// extremes, and of means and percentiles the mean is taken.
function buildCombinedFields(
  of: "samples" | "observations",
): Readonly<Partial<Record<MetricField, FieldRule>>> {
  return {
    mean: { measure: { of, combine: "mean" }, plain: "avg" },
    count: { measure: { of, combine: "count" }, plain: "sum" },
    min: { measure: { of, combine: "min" }, plain: "min" },
    max: { measure: { of, combine: "max" }, plain: "max" },
    p_90: { measure: { of, combine: "quantile", quantile: 0.9 }, plain: "avg" },
    p_95: { measure: { of, combine: "quantile", quantile: 0.95 }, plain: "avg" },
  };
}

const fieldRules: Readonly<Record<MetricType, Readonly<Partial<Record<MetricField, FieldRule>>>>> = {
  gauge: {
    gauge: {
      measures: {
        sum: { of: "samples", combine: "sum" },
        avg: { of: "samples", combine: "mean" },
        min: { of: "samples", combine: "min" },
        max: { of: "samples", combine: "max" },
        first: { of: "samples", combine: "first" },
        last: { of: "samples", combine: "last" },
      },
      plain: "last",
    },
    ...buildCombinedFields("samples"),
  },
  counter: {
    counter: {
      measures: {
        sum: { of: "increment" },
        avg: { of: "cumulative", combine: "mean" },
        min: { of: "cumulative", combine: "min" },
        max: { of: "cumulative", combine: "max" },
        first: { of: "cumulative", combine: "first" },
        last: { of: "cumulative", combine: "last" },
      },
      plain: "site",
    },
  },
  measurement: buildCombinedFields("observations"),
};

/** The fields that a metric of this type answers, in the order of the specification. */
export function listAllowedFields(type: MetricType): readonly MetricField[] {
  return metricFields.filter((field) => fieldRules[type][field] !== undefined);
}

/** How the field is answered, or undefined where the type does not have it. Any text may be asked. */
export function planMeasure(
  type: MetricType,
  field: string,
  aggregation: Aggregation | undefined,
  counterDefault: CounterDefault,
): SelectorPlan | undefined {
  const known = metricFields.find((candidate) => candidate === field);
  const cell = known && fieldRules[type][known];
  if (cell === undefined) return undefined;
  if ("measure" in cell) return { measure: cell.measure, combine: aggregation ?? cell.plain };
  const plain = cell.plain === "site" ? (counterDefault === "increment" ? "sum" : "last") : cell.plain;
  const combine = aggregation ?? plain;
  return { measure: cell.measures[combine], combine };
}

/** One value of the values of buckets, in their order; NaN is a bucket without one, and the answer where all are. */
export function combineBuckets(combine: Aggregation, values: Float64Array): number {
  const found = [...values].filter((value) => !Number.isNaN(value));
  const [first] = found;
  if (first === undefined) return Number.NaN;
  switch (combine) {
    case "sum":
      return sumValues(found);
    case "avg":
      return computeMean(found);
    case "min":
      return found.reduce((least, value) => Math.min(least, value));
    case "max":
      return found.reduce((most, value) => Math.max(most, value));
    case "first":
      return first;
    case "last":
      return found.at(-1) ?? first;
  }
  return combine satisfies never;
}

// ---- Buckets ------------------------------------------------------------------------------------------------

/** Spec, "Resolutions", from fine to coarse, each with the length of its buckets. All of them divide a UTC day. */
export const resolutions = {
  MINUTELY: minute,
  FIVE_MINUTELY: 5 * minute,
  TEN_MINUTELY: 10 * minute,
  FIFTEEN_MINUTELY: 15 * minute,
  HOURLY: hour,
  DAILY: day,
} as const satisfies Readonly<Record<string, Millis>>;
export type Resolution = keyof typeof resolutions;

const fineResolutions: readonly Resolution[] = [
  "MINUTELY",
  "FIVE_MINUTELY",
  "TEN_MINUTELY",
  "FIFTEEN_MINUTELY",
  "HOURLY",
];
const maxAutomaticSteps = 400;

/**
 * The finest resolution of which the range is at most 400 steps long, else `DAILY`. It depends on the length of the
 * range alone, so that a window that moves keeps its resolution; in whole milliseconds, because an end that is written
 * without finer digits is the last nanosecond of its own.
 */
export function chooseResolution({ from, to }: TimeRange): Resolution {
  const length = toMillis((to - from) as Instant);
  return (
    fineResolutions.find((resolution) => length <= resolutions[resolution] * maxAutomaticSteps) ?? "DAILY"
  );
}

/** The whole buckets of the UTC grid from the one that holds `from` to the one that holds `to`. */
export function computeGrid({ from, to }: TimeRange, resolution: Resolution): Buckets {
  const step = resolutions[resolution];
  const first = Math.floor(toMillis(from) / step);
  return { start: first * step, step, count: Math.floor(toMillis(to) / step) - first + 1 };
}

/**
 * Exactly `[from, to]` as one bucket. Samples stand on whole milliseconds, so bounds below the millisecond are
 * rounded inwards. Undefined where no millisecond is left in which a source can hold a sample: a length of more than
 * 292 years is one that sources do not take.
 */
export function toSingleBucket(range: TimeRange): Buckets | undefined {
  const from = range.from < allTime.from ? allTime.from : range.from;
  // The last millisecond of all time is not a whole one.
  const last = Math.min(toMillis(range.to), toMillis(allTime.to) - 1);
  const floor = toMillis(from);
  const start = fromMillis(floor) < from ? floor + 1 : floor;
  return start <= last ? { start, step: last - start + 1, count: 1 } : undefined;
}
