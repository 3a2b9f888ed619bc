// Detection of histograms that have to be read in both forms, by the number of samples of each form.
import { describe, expect, test } from "vitest";
import { type Expression, matchEqual, metricName, select } from "#resolvers/prometheus/client/promql.ts";
import type { CounterQuery } from "#resolvers/prometheus/counters/bucket-survey.ts";
import type { GridSeries, SeriesReader } from "#resolvers/prometheus/counters/series-reader.ts";
import { findClassicNativeMismatch } from "#resolvers/prometheus/metrics/mixed-histograms.ts";

const hour = 3_600_000;
const start = 10 * hour;
const scrapes = Array.from({ length: 240 }, (_, n) => start + n * 15_000 + 200);

/** A reader over samples at some times by metric, each with a count of one more. It evaluates their number and the last count. */
function createCountingReader(timesByName: Readonly<Record<string, readonly number[]>>): SeriesReader {
  const count = (expression: Expression, at: number): number => {
    if (expression.kind !== "call") throw new Error("only calls are evaluated");
    const [of] = expression.arguments;
    if (expression.function === "histogram_count" && of !== undefined) return count(of, at);
    if (of?.kind !== "range") throw new Error("only ranges are evaluated");
    const end = at - of.offset;
    const name = of.of.matchers.find(({ label }) => label === metricName)?.value ?? "";
    const times = (timesByName[name] ?? []).filter((time) => time > end - of.length && time <= end);
    if (expression.function === "count_over_time") return times.length;
    return times.length === 0 ? 0 : 1 + scrapes.indexOf(times.at(-1) ?? 0);
  };
  const series = (values: readonly number[]): readonly GridSeries[] => {
    const held = Float64Array.from(values, (value) => (value === 0 ? Number.NaN : value));
    return held.every(Number.isNaN) ? [] : [{ labels: { host: "a" }, values: held }];
  };
  return {
    selectRange: (of: object, { from, to }: { from: number; to: number }) => {
      return { kind: "range", of, length: from - to + 1, offset: to };
    },
    readGrid: async (expression: Expression, { start, step, count: length }: CounterQuery["buckets"]) =>
      series(Array.from({ length }, (_, n) => count(expression, start + (n + 1) * step))),
    readInstant: async (expression: Expression, at: number) => series([count(expression, at)]),
  } as unknown as SeriesReader;
}

const buildQuery = (name: string, buckets: CounterQuery["buckets"]): CounterQuery => {
  const selector = select({}, [matchEqual(metricName, name)]);
  return {
    selector,
    metric: selector,
    allParts: [],
    buckets,
    lookBack: hour,
    needsFirst: false,
    canRestart: true,
    limit: 1_000,
  };
};

describe("findClassicNativeMismatch", () => {
  const countMismatches = async (changed: number, buckets: CounterQuery["buckets"]): Promise<number> => {
    const timesByName = {
      h_count: scrapes.filter((time) => time < start + changed),
      h: scrapes.filter((time) => time >= start + changed),
    };
    const found = await findClassicNativeMismatch(
      createCountingReader(timesByName),
      buildQuery("h_count", buckets),
      buildQuery("h", buckets),
    );
    return found.uneven.size;
  };
  test.each([0, 600_000, hour / 2, 3_000_000, hour - 15_000])(
    "reports a histogram that changes from classic to native after %d ms",
    async (at) => {
      expect(await countMismatches(at, { start, step: hour, count: 1 })).toBe(1);
      expect(await countMismatches(at, { start, step: hour + 1, count: 1 })).toBe(1);
      expect(await countMismatches(at, { start, step: 60_000, count: 60 })).toBe(1);
    },
  );

  const eighth = hour / 8;
  test.each<[string, readonly number[], CounterQuery["buckets"]]>([
    ["before the range", [1], { start: start + 2 * eighth, step: eighth, count: 1 }],
    ["in each half of a bucket", [1, 2, 5, 6], { start, step: hour, count: 1 }],
  ])(
    "reports a histogram that changes to and fro, with as many of either form %s",
    async (_, native, buckets) => {
      const isNative = (time: number) => native.includes(Math.floor((time - start) / eighth));
      const reader = createCountingReader({
        h_count: scrapes.filter((time) => !isNative(time)),
        h: scrapes.filter(isNative),
      });
      const query = { ...buildQuery("h_count", buckets), lookBack: 2 * eighth };
      const { uneven } = await findClassicNativeMismatch(reader, query, buildQuery("h", buckets));
      expect(uneven.size).toBe(1);
    },
  );

  test("reports nothing without a change, or if both forms are scraped together", async () => {
    const buckets = { start, step: hour, count: 1 };
    expect(await countMismatches(hour, buckets)).toBe(0);
    const both = createCountingReader({ h_count: scrapes, h: scrapes });
    expect(
      (await findClassicNativeMismatch(both, buildQuery("h_count", buckets), buildQuery("h", buckets))).uneven
        .size,
    ).toBe(0);
  });
});
