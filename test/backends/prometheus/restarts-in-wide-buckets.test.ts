// Restarts in wide buckets: `metrics/list` without a resolution is one bucket of a day, in which a deployment restarts all
// instances. The answer equals that of all raw samples, although only samples around the restarts are read.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { MetricType } from "#src/core/rows.ts";
import type { Backend } from "#src/store/backend.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import { runWithRecorder } from "#src/telemetry/request-recorder.ts";
import {
  base,
  day,
  hour,
  minute,
  nameSeries,
  printOpenMetrics,
  type RawFamily,
  type RawSeries,
  second,
} from "../../conformance/metrics/fixture.ts";
import { measures, verifySeries } from "../../conformance/metrics.ts";
import { testIO } from "../../support/io.ts";
import { namedMetricServers } from "../selected-servers.ts";
import { type FilledServer, startFilled } from "./filled-server.ts";

const signal = new AbortController().signal;
const began = base - day - 30 * minute;
const step = 30 * second;
const deploy = base - 9 * hour - 7 * minute;

/** The restarts of an instance. All restart at the deployment, some of them several times. */
function listRestarts(instance: number): readonly number[] {
  const own = deploy + instance * 50 * second;
  if (instance === 1) return [own, own + 40 * second, own + 2 * minute];
  if (instance === 2) return Array.from({ length: 8 }, (_, n) => base - 4 * hour + n * 7 * minute);
  if (instance === 3) return [base - day - 11 * minute, own, base - 3 * second];
  return [own];
}

/** The series of one instance: few observations, or so many after a restart that they exceed those before it. */
function recordSeries(action: number, instance: number): readonly RawSeries[] {
  const bounds = [0.1, 0.5, 1, 2.5, Number.POSITIVE_INFINITY];
  const from = instance === 4 ? base - 5 * hour - 123 : began + instance * 777 + action;
  const counts = bounds.map(() => 0);
  let sum = 0;
  const fallen = listRestarts(instance);
  const rows = Array.from({ length: Math.floor((base + hour - from) / step) }, (_, n) => {
    const time = from + n * step;
    const restarted = fallen.some((at) => at > time - step && at <= time);
    if (restarted) counts.fill(0);
    if (restarted) sum = 0;
    // After every other restart the old count is exceeded at once.
    const most = restarted && n % 2 === 0 ? 9_000 : (n * 7 + action) % 3;
    for (let one = 0; one < most; one++) {
      const value = ((n * 31 + one * 17 + action * 5 + instance) % 350) / 128;
      sum += value;
      for (const [at, bound] of bounds.entries()) if (value <= bound) counts[at] = (counts[at] ?? 0) + 1;
    }
    return { time, counts: [...counts], sum };
  });
  const labels = { tenant: "shop", action: `a${action}`, instance: `i${instance}` };
  const part = (
    suffix: RawSeries["suffix"],
    read: (row: (typeof rows)[number]) => number,
    more: Readonly<Record<string, string>> = {},
  ): RawSeries => ({
    suffix,
    labels: { ...labels, ...more },
    samples: rows.map((row) => [row.time, read(row)]),
  });
  return [
    ...bounds.map((bound, at) =>
      part("_bucket", (row) => row.counts[at] ?? 0, { le: Number.isFinite(bound) ? String(bound) : "+Inf" }),
    ),
    part("_sum", ({ sum }) => sum),
    part("_count", ({ counts }) => counts.at(-1) ?? 0),
  ];
}

const instances = [0, 1, 2, 3, 4];
const series = [0, 1, 2, 3, 4, 5].flatMap((action) => instances.flatMap((one) => recordSeries(action, one)));
const counts = series.filter(({ suffix }) => suffix === "_count");
const families: readonly RawFamily[] = [
  { metric: "took_seconds", kind: "histogram", series },
  { metric: "calls_total", kind: "counter", series: counts.map((one) => ({ ...one, suffix: "" })) },
];
const types: Readonly<Record<string, MetricType>> = { took_seconds: "measurement", calls_total: "counter" };

describe.each(namedMetricServers())("restarts in wide buckets on $name", (named) => {
  let server: FilledServer;
  let backend: Backend;
  beforeAll(async () => {
    server = await startFilled(named, {
      printText: () => printOpenMetrics(families),
      listSeries: () => nameSeries(families),
    });
    backend = prometheus.create("prom", prometheus.parseConfig({ url: server.url }), testIO);
  });
  afterAll(async () => {
    await backend?.close();
    await server?.stop();
  });

  const grids = {
    "a day": { start: base - day, step: day, count: 1 },
    "a day and a millisecond": { start: base - day, step: day + 1, count: 1 },
    "quarters of a day": { start: base - day, step: 6 * hour, count: 4 },
    "buckets of no grid": { start: base - day + 17, step: 7 * hour + 12_345, count: 3 },
    hours: { start: base - day, step: hour, count: 25 },
  };
  const query = (over: Pick<SeriesQuery, "metric" | "measure" | "buckets"> & Partial<SeriesQuery>) => ({
    match: { tenant: "shop" },
    tags: {},
    lookBack: day,
    pointLimit: 100_000,
    ...over,
  });

  describe.each(families.map(({ metric }) => metric))("%s", (metric) => {
    test.each(Object.entries(grids))(
      "is exact for every measure over %s",
      { timeout: 150_000 },
      async (_, buckets) => {
        for (const measure of measures[types[metric] ?? "gauge"]) {
          for (const tags of [{}, { action: "*" }, { action: "a1", instance: "*" }]) {
            const seriesQuery = query({ metric, measure, buckets, tags });
            await verifySeries(backend.stores.metrics, families, seriesQuery, signal);
          }
        }
      },
    );
  });

  test("reads few of the raw samples", async () => {
    let read = 0;
    const recorder = {
      recordRequest: () => {},
      recordDocuments: () => {},
      recordSamples: (of: { samples: number }) => (read += of.samples),
    };
    const measure = { of: "observations", combine: "quantile", quantile: 0.95 } as const;
    const seriesQuery = query({
      metric: "took_seconds",
      measure,
      buckets: grids["a day"],
      tags: { action: "*" },
    });
    const found = await runWithRecorder(recorder, () => backend.stores.metrics?.series(seriesQuery, signal));
    expect(found).toHaveLength(6);
    const held = series.reduce((sum, { samples }) => sum + samples.length, 0);
    expect(read).toBeLessThan(held / 5);
  });
});
