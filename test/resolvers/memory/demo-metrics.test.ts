// Metrics of the demo's hosts: names, states and units are those of the vendor's host agents.
import { expect, test } from "vitest";
import { createMeasurements, metricMatches } from "#resolvers/memory/demo/metrics.ts";
import { createMemoryMetrics } from "#resolvers/memory/stores/metric-store.ts";

const now = Date.UTC(2026, 0, 15, 10, 30);
const minute = 60_000;
const signal = new AbortController().signal;
const [match = {}] = metricMatches;
const metrics = createMemoryMetrics("memory");
createMeasurements(1, metrics).catchUp(now);

/** The last value of each minute of the last hour, of one state of each host. */
async function readState(metric: string, state: string): Promise<readonly (readonly number[])[]> {
  const found = await metrics.series(
    {
      match,
      metric,
      tags: { state, hostname: "*" },
      measure: { of: "samples", combine: "last" },
      buckets: { start: now - 60 * minute, step: minute, count: 60 },
      lookBack: 0,
      pointLimit: 10_000,
    },
    signal,
  );
  return found.map(({ values }) => [...values]);
}

test("the CPU of the demo has the state total_usage, a percentage that is not idle and moves", async () => {
  const total = await readState("cpu", "total_usage");
  const idle = await readState("cpu", "idle");
  expect(total.length).toBeGreaterThan(1);
  for (const [host, values] of total.entries()) {
    expect(values).toHaveLength(60);
    for (const [at, value] of values.entries()) {
      expect(value + (idle[host]?.[at] ?? 0)).toBeCloseTo(100, 1);
      expect(value).toBeLessThan(100);
    }
    expect(Math.max(...values) - Math.min(...values)).toBeGreaterThan(10);
  }
});

test("the memory of the demo is in megabytes", async () => {
  const [used, free, total] = await Promise.all(
    ["used", "free", "total"].map((state) => readState("memory", state)),
  );
  for (const [host, values] of (total ?? []).entries()) {
    for (const [at, value] of values.entries()) {
      expect(value).toBe(8_192);
      expect(used?.[host]?.[at]).toBeGreaterThan(2_000);
      expect((used?.[host]?.[at] ?? 0) + (free?.[host]?.[at] ?? 0)).toBeCloseTo(8_192, 1);
    }
  }
  for (const values of await readState("swap", "total")) expect(new Set(values)).toEqual(new Set([2_048]));
});
