import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { MetricType } from "#src/core/rows.ts";
import { fromMillis, type Instant, toInclusiveEnd } from "#src/core/time.ts";
import {
  type Aggregation,
  aggregations,
  chooseResolution,
  combineBuckets,
  computeGrid,
  listAllowedFields,
  type MetricField,
  metricFields,
  planMeasure,
  resolutions,
  toSingleBucket,
} from "#src/metrics/measures.ts";

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;
const range = (from: number, to: number) => ({ from: fromMillis(from), to: fromMillis(to) });

// The whole table, as one reads it in the contract: `measure, how buckets are combined`. `-` is `invalid_field`.
const none = "none";
const columns = [none, ...aggregations] as const;
const readable: Readonly<Record<MetricType, Readonly<Record<MetricField, readonly string[]>>>> = {
  gauge: {
    gauge: ["last last", "sum sum", "mean avg", "min min", "max max", "first first", "last last"],
    counter: ["-"],
    mean: ["mean avg", "mean sum", "mean avg", "mean min", "mean max", "mean first", "mean last"],
    count: ["count sum", "count sum", "count avg", "count min", "count max", "count first", "count last"],
    min: ["min min", "min sum", "min avg", "min min", "min max", "min first", "min last"],
    max: ["max max", "max sum", "max avg", "max min", "max max", "max first", "max last"],
    p_90: ["0.9 avg", "0.9 sum", "0.9 avg", "0.9 min", "0.9 max", "0.9 first", "0.9 last"],
    p_95: ["0.95 avg", "0.95 sum", "0.95 avg", "0.95 min", "0.95 max", "0.95 first", "0.95 last"],
  },
  counter: {
    gauge: ["-"],
    counter: [
      "cumulative last last",
      "increment sum",
      "cumulative mean avg",
      "cumulative min min",
      "cumulative max max",
      "cumulative first first",
      "cumulative last last",
    ],
    mean: ["-"],
    count: ["-"],
    min: ["-"],
    max: ["-"],
    p_90: ["-"],
    p_95: ["-"],
  },
  measurement: {
    gauge: ["-"],
    counter: ["-"],
    mean: ["mean avg", "mean sum", "mean avg", "mean min", "mean max", "mean first", "mean last"],
    count: ["count sum", "count sum", "count avg", "count min", "count max", "count first", "count last"],
    min: ["min min", "min sum", "min avg", "min min", "min max", "min first", "min last"],
    max: ["max max", "max sum", "max avg", "max min", "max max", "max first", "max last"],
    p_90: ["0.9 avg", "0.9 sum", "0.9 avg", "0.9 min", "0.9 max", "0.9 first", "0.9 last"],
    p_95: ["0.95 avg", "0.95 sum", "0.95 avg", "0.95 min", "0.95 max", "0.95 first", "0.95 last"],
  },
};

describe("planMeasure", () => {
  const print = (
    type: MetricType,
    field: string,
    aggregation: Aggregation | undefined,
    site: "cumulative" | "increment",
  ) => {
    const plan = planMeasure(type, field, aggregation, site);
    if (plan === undefined) return "-";
    const { measure, combine } = plan;
    expect(measure.of).toBe(
      type === "gauge" ? "samples" : type === "measurement" ? "observations" : measure.of,
    );
    if (measure.of === "increment") return `increment ${combine}`;
    const how = "quantile" in measure ? String(measure.quantile) : measure.combine;
    return `${measure.of === "cumulative" ? "cumulative " : ""}${how} ${combine}`;
  };
  const cells = (["gauge", "counter", "measurement"] as const).flatMap((type) =>
    metricFields.flatMap((field) => columns.map((column, n) => ({ type, field, column, n }))),
  );

  test.each(cells)("plans $type $field $column", ({ type, field, column, n }) => {
    const row = readable[type][field];
    const aggregation = aggregations.find((one) => one === column);
    expect(print(type, field, aggregation, "cumulative")).toBe(row.length === 1 ? row[0] : row[n]);
    expect(listAllowedFields(type).includes(field)).toBe(row[0] !== "-");
  });

  test("uses the site's counter default unless an aggregation is named", () => {
    expect(print("counter", "counter", undefined, "increment")).toBe("increment sum");
    expect(print("counter", "counter", "last", "increment")).toBe("cumulative last last");
    expect(print("gauge", "gauge", undefined, "increment")).toBe("last last");
  });

  test("returns undefined for unknown fields, also for names inherited from Object", () => {
    for (const field of ["p_50", "GAUGE", "", "constructor", "__proto__"]) {
      expect(planMeasure("gauge", field, undefined, "cumulative")).toBeUndefined();
    }
  });
});

describe("combineBuckets", () => {
  const values = Float64Array.of(Number.NaN, 4, 1, Number.NaN, 7, Number.NaN);
  test.each([
    ["sum", 12],
    ["avg", 4],
    ["min", 1],
    ["max", 7],
    ["first", 4],
    ["last", 7],
  ] as const)("%s ignores buckets without a value", (combine, expected) => {
    expect(combineBuckets(combine, values)).toBe(expected);
    expect(combineBuckets(combine, Float64Array.of(Number.NaN))).toBeNaN();
    expect(combineBuckets(combine, new Float64Array())).toBeNaN();
  });

  test("averages values whose sum overflows", () => {
    expect(combineBuckets("avg", Float64Array.of(Number.MAX_VALUE, Number.MAX_VALUE))).toBe(Number.MAX_VALUE);
  });
});

describe("bucket grid", () => {
  const times = fc.integer({ min: -10 * day, max: 20_000 * day });
  const names = fc.constantFrom(...(Object.keys(resolutions) as (keyof typeof resolutions)[]));

  test("lies on the UTC grid and covers both ends of the range", () => {
    const law = fc.property(times, fc.nat(30 * day), names, (from, length, name) => {
      const { start, step, count } = computeGrid(range(from, from + length), name);
      expect(Math.abs(start % step)).toBe(0);
      expect(start <= from && from < start + step).toBe(true);
      const last = start + (count - 1) * step;
      expect(last <= from + length && from + length < last + step).toBe(true);
    });
    fc.assert(law);
  });

  test("is the same for overlapping ranges", () => {
    const law = fc.property(times, fc.nat(day), fc.nat(day), names, (from, shift, length, name) => {
      const all = (at: number) => {
        const { start, step, count } = computeGrid(range(at, at + day + length), name);
        return Array.from({ length: count }, (_, n) => start + n * step);
      };
      const second = all(from + shift);
      const common = all(from).filter((start) => start >= (second[0] ?? 0));
      expect(second.slice(0, common.length)).toEqual(common);
    });
    fc.assert(law);
  });

  test("chooses a resolution by length alone, with about 400 points", () => {
    expect(
      [1, 400 * minute, 400 * minute + 1, day, 2 * day, 3 * day, 16 * day, 30 * day].map((length) =>
        chooseResolution(range(0, length)),
      ),
    ).toEqual([
      "MINUTELY",
      "MINUTELY",
      "FIVE_MINUTELY",
      "FIVE_MINUTELY",
      "TEN_MINUTELY",
      "FIFTEEN_MINUTELY",
      "HOURLY",
      "DAILY",
    ]);
    const asked = { ...range(0, 0), to: toInclusiveEnd(fromMillis(400 * minute)) };
    expect(chooseResolution(asked), "a request's range of 400 minutes").toBe("MINUTELY");
    const law = fc.property(times, fc.nat(399 * day), (from, length) => {
      const name = chooseResolution(range(from, from + length));
      expect(chooseResolution(range(0, length))).toBe(name);
      expect(computeGrid(range(from, from + length), name).count).toBeLessThanOrEqual(401);
    });
    fc.assert(law);
  });

  test("rounds a single bucket inwards to whole milliseconds", () => {
    const at = (nanos: bigint) => nanos as Instant;
    expect(toSingleBucket({ from: at(5_000_000n), to: at(5_000_000n) })).toEqual({
      start: 5,
      step: 1,
      count: 1,
    });
    expect(toSingleBucket({ from: at(5_000_001n), to: at(7_999_999n) })).toEqual({
      start: 6,
      step: 2,
      count: 1,
    });
    expect(toSingleBucket({ from: at(5_000_001n), to: at(5_999_999n) })).toBeUndefined();
  });

  test("has no bucket where no source can hold samples", () => {
    const years = (from: number, to: number) => toSingleBucket(range(Date.UTC(from, 0), Date.UTC(to, 0)));
    expect(years(1, 1969)).toBeUndefined();
    expect(years(2263, 9999)).toBeUndefined();
    expect(years(1960, 1971)).toEqual({ start: 0, step: 365 * day + 1, count: 1 });
    const longest = years(1, 9999);
    expect(longest?.start).toBe(0);
    // In nanoseconds, which sources count lengths in.
    expect(BigInt(longest?.step ?? 0) * 1_000_000n).toBeLessThan(2n ** 63n);
  });
});
