// Summaries of a source that adds a zero sample to each series when a process begins
// (`created-timestamp-zero-ingestion`): no client exported such a quantile.
import { afterEach, expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Backend } from "#src/store/backend.ts";
import { testIO } from "../../../support/io.ts";
import { openFakeServer } from "../../../support/prometheus/fake-thanos.ts";
import type { ScriptedSource } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const minute = 60_000;
const base = Date.UTC(2026, 0, 15, 10);

let source: ScriptedSource | undefined;
let backend: Backend | undefined;
afterEach(async () => {
  await backend?.close();
  await source?.close();
});

/** Seconds after the beginning, the count, and the exported quantile 0.9. */
type Scrape = readonly [second: number, count: number, quantile: number];
const buildSeries = (job: string, scrapes: readonly Scrape[]) => {
  const part = (suffix: string, read: (scrape: Scrape) => number, more: object = {}) => ({
    labels: { __name__: `rpc_seconds${suffix}`, job, ...more },
    samples: scrapes.map((scrape) => [base + scrape[0] * 1_000, read(scrape)] as const),
  });
  const quantile = part("", ([, , value]) => value, { quantile: "0.9" });
  return [quantile, part("_count", ([, count]) => count), part("_sum", ([, count]) => count / 2)];
};

test("drops zeros from created timestamps out of summary quantiles", async () => {
  source = await openFakeServer([
    // Restarted just before the end of a minute, which has no other sample of the new process.
    ...buildSeries("restarted", [
      [20, 50, 2.5],
      [40, 52, 2.25],
      [55, 0, 0],
      [70, 3, 1.5],
    ]),
    // Scraped late: the minute in which it began has no other sample.
    ...buildSeries("found", [
      [10, 0, 0],
      [100, 7, 0.5],
    ]),
    // Nothing observed for long: the client exports NaN.
    ...buildSeries("idle", [
      [10, 0, 0],
      [20, 40, Number.NaN],
      [70, 40, Number.NaN],
      [130, 41, 4],
    ]),
    // Really measured as 0.
    ...buildSeries("fast", [
      [10, 0, 0],
      [20, 3, 0],
      [70, 5, 0],
    ]),
  ]);
  backend = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), testIO);
  const found = await backend.stores.metrics?.series(
    {
      match: {},
      metric: "rpc_seconds",
      tags: { job: "*" },
      lookBack: 1_440 * minute,
      pointLimit: 1_000,
      measure: { of: "observations", combine: "quantile", quantile: 0.9 },
      buckets: { start: base, step: minute, count: 3 },
    },
    never,
  );
  const none = Number.NaN;
  expect(found?.map(({ tags, values }) => [tags.job, ...values])).toEqual([
    ["fast", 0, 0, none],
    ["found", none, 0.5, none],
    ["idle", none, none, 4],
    ["restarted", 2.25, 1.5, none],
  ]);
});

test("refuses the quantile of several summaries of which only one exports it", async () => {
  const read = buildSeries("read", [[10, 20, 0.01]]);
  const write = buildSeries("write", [[10, 500, 90]]).map(({ labels, samples }) => ({
    labels: "quantile" in labels ? { ...labels, quantile: "0.5" } : labels,
    samples,
  }));
  source = await openFakeServer([...read, ...write]);
  backend = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), testIO);
  const ask = (tags: Readonly<Record<string, string>>) =>
    backend?.stores.metrics?.series(
      {
        match: {},
        metric: "rpc_seconds",
        tags,
        lookBack: 1_440 * minute,
        pointLimit: 1_000,
        measure: { of: "observations", combine: "quantile", quantile: 0.9 },
        buckets: { start: base, step: minute, count: 1 },
      },
      never,
    );
  await expect(ask({})).rejects.toThrow("several summaries");
  await expect(ask({ job: "*" })).rejects.toThrow("does not export it");
  expect((await ask({ job: "read" }))?.map(({ values }) => [...values])).toEqual([[0.01]]);
});
