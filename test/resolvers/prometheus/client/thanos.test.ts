// Thanos hides counter restarts from every function that would show them. It is detected by a parameter that only Thanos
// reads, and then every bucket of a counter is computed from raw samples.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { guardDefaults } from "#resolvers/http/guard.ts";
import { createPrometheusClient } from "#resolvers/prometheus/client/client.ts";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Measure } from "#src/core/rows.ts";
import type { Backend } from "#src/store/backend.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import { base, buildRawFamilies, hour, minute } from "../../../conformance/metrics/fixture.ts";
import { verifySeries } from "../../../conformance/metrics.ts";
import { testIO } from "../../../support/io.ts";
import { openFakeThanos } from "../../../support/prometheus/fake-thanos.ts";
import type { ScriptedSource } from "../../../support/scripted-http-source.ts";

const signal = new AbortController().signal;
const testedMetrics = ["requests_total", "deploys_total", "jobs_count", "latency_seconds", "balance"];
// The evaluator takes NaN for a missing sample.
const families = buildRawFamilies(false)
  .filter(({ metric }) => testedMetrics.includes(metric))
  .map((one) => ({ ...one, series: one.series.filter(({ labels }) => labels.host !== "not a number") }));
const series = families.flatMap(({ metric, series }) =>
  series.map(({ suffix, labels, samples }) => ({
    labels: { ...labels, __name__: `${metric}${suffix}` },
    samples: [...samples],
  })),
);

let thanos: ScriptedSource;
let backend: Backend;
beforeAll(async () => {
  thanos = await openFakeThanos(series);
  backend = prometheus.create("prom", prometheus.parseConfig({ url: thanos.url }), testIO);
});
afterAll(async () => {
  await backend?.close();
  await thanos?.close();
});

test("detects Thanos by a parameter that only Thanos rejects", async () => {
  expect(await backend.probe(signal)).toEqual({ product: "Thanos", version: "unknown" });
  expect(thanos.requests.filter(({ body }) => body.includes("dedup=neither"))).toHaveLength(1);
});

// A query frontend drops a resolution of 0, and the querier behind it may then read downsampled blocks.
test("asks Thanos for complete answers from raw blocks only", async () => {
  thanos.requests.length = 0;
  const buckets = { start: base + 10 * minute, step: 10 * minute, count: 5 };
  const query = { match: { tenant: "shop" }, tags: {}, buckets, lookBack: hour, pointLimit: 10_000 };
  const measure: Measure = { of: "increment" };
  await backend.stores.metrics?.series({ ...query, metric: "requests_total", measure }, signal);
  const queries = thanos.requests.filter(({ path }) => /^\/api\/v1\/query(_range)?$/.test(path));
  const forms = queries.map(({ body }) => Object.fromEntries(new URLSearchParams(body)));
  const counterForms = forms.filter(({ query }) => query?.includes("requests_total"));
  expect(counterForms.length).toBeGreaterThan(1);
  for (const form of counterForms) {
    expect(form).toMatchObject({ partial_response: "false", max_source_resolution: "1ms" });
  }
});

test("marks an undeclared type as guessed, and answers measures of both types", async () => {
  const samples = Array.from({ length: 60 }, (_, at): [number, number] => [base + at * minute, 5 + at]);
  const depth = { labels: { __name__: "depth", tenant: "shop" }, samples };
  const source = await openFakeThanos([depth, ...series]);
  const guessing = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), testIO);
  const { metrics } = guessing.stores;
  const match = { tenant: "shop" };
  expect(await metrics?.type(match, "depth", signal)).toBe("counter");
  expect(await metrics?.isTypeGuessed?.(match, "depth", signal)).toBe(true);
  for (const declared of ["requests_total", "latency_seconds", "none"]) {
    expect(await metrics?.isTypeGuessed?.(match, declared, signal)).toBe(false);
  }
  const buckets = { start: base + 10 * minute, step: 10 * minute, count: 5 };
  const query = { match, metric: "depth", tags: {}, buckets, lookBack: hour, pointLimit: 1_000 };
  const ask = (measure: Measure) => metrics?.series({ ...query, measure }, signal);
  expect((await ask({ of: "samples", combine: "last" }))?.map(({ values }) => [...values])).toEqual([
    [24, 34, 44, 54, 64],
  ]);
  expect((await ask({ of: "increment" }))?.map(({ values }) => [...values])).toEqual([[10, 10, 10, 10, 10]]);
  await guessing.close();
  await source.close();
});

test("fails while Thanos lists a store with an error", async () => {
  let lastError: string | null = null;
  const store = { name: "127.0.0.1:10901", lastCheck: "2026-01-15T10:00:00Z", labelSets: [{ replica: "a" }] };
  const source = await openFakeThanos(series, () => ({
    store: null,
    sidecar: [
      { ...store, name: "127.0.0.1:10902", lastError: null },
      { ...store, lastError },
    ],
  }));
  const asking = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), testIO);
  const { metrics, kubernetes } = asking.stores;
  const match = { tenant: "shop" };
  const buckets = { start: base, step: minute, count: 5 };
  const nodes = { match, snapshots: buckets, rowLimit: 1_000 };
  const read = () =>
    metrics?.series(
      {
        match,
        metric: "requests_total",
        tags: {},
        measure: { of: "increment" },
        buckets,
        lookBack: hour,
        pointLimit: 99,
      },
      signal,
    );
  const whole = await read();
  expect(whole).toHaveLength(1);
  lastError = "rpc error: code = DeadlineExceeded";
  await expect(read()).rejects.toMatchObject({ failure: "partial" });
  await expect(metrics?.tagKeys(match, "requests_total", signal)).rejects.toMatchObject({
    failure: "partial",
  });
  const rows = kubernetes?.nodes(nodes, signal)[Symbol.asyncIterator]();
  await expect(rows?.next()).rejects.toMatchObject({ failure: "partial" });
  lastError = null;
  expect(await read()).toEqual(whole);
  await asking.close();
  await source.close();
});

test("fails where a store comes back while Thanos answers without it", async () => {
  const isData = ({ path }: { path: string }) =>
    /^\/api\/v1\/(?:query|query_range|series|label|metadata)/.test(path);
  const source = await openFakeThanos(series, () => {
    const lastError = source.requests.some(isData) ? null : "rpc error: code = Unavailable";
    return { sidecar: [{ name: "127.0.0.1:10901", lastError }] };
  });
  const asking = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), testIO);
  await asking.probe(signal);
  source.requests.length = 0;
  const read = asking.stores.metrics?.tagKeys({ tenant: "shop" }, "requests_total", signal);
  await expect(read).rejects.toMatchObject({ failure: "partial" });
  // What the targets of the store declare would be missing, too.
  const settings = { ...guardDefaults, url: source.url, headers: {}, answerBytes: 1e8 };
  const client = createPrometheusClient("prom", settings, testIO);
  await client.probe(signal);
  source.requests.length = 0;
  await expect(client.readMetadata("queue_depth", signal)).rejects.toMatchObject({ failure: "partial" });
  await client.close();
  await asking.close();
  await source.close();
});

test("fails while Thanos has reached no store", async () => {
  let stores: object = {};
  const source = await openFakeThanos([], () => stores);
  const asking = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), testIO);
  const read = (tenant: string) => asking.stores.metrics?.tagKeys({ tenant }, "requests_total", signal);
  await expect(read("shop")).rejects.toMatchObject({ failure: "partial" });
  stores = { sidecar: [{ name: "127.0.0.1:10901", lastError: null }] };
  expect(await read("blog")).toBeUndefined();
  await asking.close();
  await source.close();
});

const quantile: Measure = { of: "observations", combine: "quantile", quantile: 0.9 };
const mean: Measure = { of: "observations", combine: "mean" };
describe.each<[string, SeriesQuery["tags"], readonly Measure[]]>([
  ["requests_total", { host: "*" }, [{ of: "increment" }, { of: "cumulative", combine: "last" }]],
  ["requests_total", {}, [{ of: "increment" }, { of: "cumulative", combine: "first" }]],
  ["deploys_total", { region: "*" }, [{ of: "increment" }]],
  ["jobs_count", {}, [{ of: "increment" }]],
  ["latency_seconds", { route: "*" }, [{ of: "observations", combine: "count" }, mean, quantile]],
  ["balance", {}, [mean, quantile]],
])("%s %j", (metric, tags, measures) => {
  test.each([
    ["minutes", { start: base, step: minute, count: 61 }],
    ["hours", { start: base - hour, step: hour, count: 4 }],
    ["one window", { start: base + 3_210, step: 100 * minute + 1, count: 1 }],
  ])("is exact on Thanos over %s, with restarts in and between buckets", async (_, buckets) => {
    for (const measure of measures) {
      const query: SeriesQuery = {
        match: { tenant: "shop" },
        metric,
        tags,
        measure,
        buckets,
        lookBack: 24 * hour,
        pointLimit: 100_000,
      };
      await verifySeries(backend.stores.metrics, families, query, signal);
    }
  });
});
