// One name for a histogram of one target and a summary of another. Measures that both have are combined; an estimate that
// would leave one of them out is refused.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Measure } from "#src/core/rows.ts";
import type { Backend } from "#src/store/backend.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import { testIO } from "../../../support/io.ts";
import { openFakeServer } from "../../../support/prometheus/fake-thanos.ts";
import type { ScriptedSource } from "../../../support/scripted-http-source.ts";

const signal = new AbortController().signal;
const minute = 60_000;
const base = Date.UTC(2026, 0, 15, 10);
const times = Array.from({ length: 44 }, (_, n) => base - minute + n * 15_000 + 200);

/** Each scrape finds one observation of 0.5 and one of 3 more. */
const buildParts = (job: string, bounds: readonly string[]) => {
  const part = (suffix: string, each: number, more: object = {}) => ({
    labels: { __name__: `took_seconds${suffix}`, job, ...more },
    samples: times.map((time, n) => [time, n * each] as const),
  });
  const below = (le: string) => part("_bucket", Number(le.replace("+Inf", "9")) >= 4 ? 2 : 1, { le });
  return [part("_count", 2), part("_sum", 3.5), ...bounds.map(below)];
};
const quantile = {
  labels: { __name__: "took_seconds", job: "old", quantile: "0.9" },
  samples: times.map((time) => [time, 2.5] as const),
};

let source: ScriptedSource;
let backend: Backend;
beforeAll(async () => {
  source = await openFakeServer([
    ...buildParts("old", []),
    quantile,
    ...buildParts("new", ["1", "4", "+Inf"]),
  ]);
  backend = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), testIO);
});
afterAll(async () => {
  await backend?.close();
  await source?.close();
});

const p90: Measure = { of: "observations", combine: "quantile", quantile: 0.9 };
async function readSeries(measure: Measure, tags: Readonly<Record<string, string>>) {
  const buckets = { start: base, step: 5 * minute, count: 2 };
  const query: SeriesQuery = {
    match: {},
    metric: "took_seconds",
    tags,
    measure,
    buckets,
    lookBack: 24 * 60 * minute,
    pointLimit: 1_000,
  };
  const found = (await backend.stores.metrics?.series(query, signal)) ?? [];
  return found.map((one) => ({ tags: one.tags, values: [...one.values] }));
}

describe("a histogram and a summary of one name", () => {
  test("are counted together", async () => {
    expect(await readSeries({ of: "observations", combine: "count" }, {})).toEqual([
      { tags: {}, values: [80, 80] },
    ]);
    expect(await readSeries({ of: "observations", combine: "mean" }, { job: "*" })).toEqual([
      { tags: { job: "new" }, values: [1.75, 1.75] },
      { tags: { job: "old" }, values: [1.75, 1.75] },
    ]);
  });

  test("each have percentiles of their own kind", async () => {
    // The rank 36 of 40 is the 16th of the 20 between 1 and 4.
    const [estimate] = await readSeries(p90, { job: "new" });
    expect(estimate?.values).toEqual([expect.closeTo(3.4), expect.closeTo(3.4)]);
    expect(await readSeries(p90, { job: "old" })).toEqual([{ tags: { job: "old" }, values: [2.5, 2.5] }]);
  });

  test.each([{}, { job: "*" }])("refuse a percentile over both: %j", async (tags) => {
    await expect(readSeries(p90, tags)).rejects.toMatchObject({ slug: "not_supported_by_backend" });
    await expect(readSeries({ of: "observations", combine: "max" }, tags)).rejects.toThrow("without buckets");
  });
});
