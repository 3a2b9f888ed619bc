// `readout check` answers the published visuals, since their files do not say what a metric is.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { BackendError } from "#src/core/errors.ts";
import type { Backend } from "#src/store/backend.ts";
import type { MetricStore } from "#src/store/metrics.ts";
import { check, createFakeKind } from "./check-harness.ts";

const folder = mkdtempSync(join(tmpdir(), "readout-check-"));
afterAll(() => rmSync(folder, { recursive: true }));
const select = (name: string, field: string) => [{ name, tags: {}, field }];
const visuals = {
  CPU: select("cpu", "gauge"),
  Wrong: select("cpu", "counter"),
  Old: select("gone", "gauge"),
  Idle: select("idle", "gauge"),
};
for (const [at, [title, selected]] of Object.entries(visuals).entries()) {
  const own = { id: `${at}`.repeat(22), title, type: "line", site: "shop", range: "1h", select: selected };
  writeFileSync(join(folder, `${at}.yaml`), JSON.stringify(own));
}
const file = `
backends: { elk: { kind: fake } }
sites: { shop: { metrics: { backend: elk } } }
visuals: ${folder}
`;
const metrics: MetricStore = {
  names: async () => ["cpu", "idle"],
  type: async (_, metric) => (metric === "gone" ? undefined : "gauge"),
  tagKeys: async () => [],
  series: async ({ metric, buckets }) =>
    metric === "cpu" ? [{ tags: {}, values: new Float64Array(buckets.count).fill(1) }] : [],
};
const inspections: Backend["inspections"] = {
  metrics: async () => ({ found: [], limitations: [], problems: [] }),
};
const report = async (over: Partial<Backend>) =>
  (await check(file, createFakeKind({ stores: { metrics }, inspections, ...over }))).out.split(
    "Visuals in",
  )[1];

test("what the metric does not have is a problem, and what is not there a limitation", async () => {
  expect(await report({})).toBe(` ${folder}: 4 published
  PROBLEM "Wrong": The gauge "cpu" has no field counter, but gauge, mean, count, min, max, p_90, p_95
  limitation: "Old" is empty now: no series has such a name and tags
  limitation: "Idle" is empty now: no series with such a name and tags has a value in its range

1 problem, 2 limitations
`);
});

test("none is asked for where the backend does not answer", async () => {
  const probe = () => Promise.reject(new BackendError("elk", "unreachable", "down"));
  const asked: string[] = [];
  const type: MetricStore["type"] = async (_, metric) => {
    asked.push(metric);
    return "gauge";
  };
  const found = await report({ probe, stores: { metrics: { ...metrics, type } } });
  expect(asked).toEqual([]);
  expect(found).toBe(` ${folder}: 4 published
  "CPU" is not looked at: a backend does not answer
  "Wrong" is not looked at: a backend does not answer
  "Old" is not looked at: a backend does not answer
  "Idle" is not looked at: a backend does not answer

1 problem, 0 limitations
`);
});

test("a failure is a problem", async () => {
  const series = () => Promise.reject(new BackendError("elk", "partial", "a store is missing"));
  const found = await report({ stores: { metrics: { ...metrics, series } } });
  expect(found).toContain('PROBLEM "CPU": partial: a store is missing\n');
});
