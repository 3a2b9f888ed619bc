// Quantiles of gauges equal the raw samples, whether the server computes them, as for groups of one series each, or Readout
// does: with series that begin, end, follow one another within a group, and samples that are no finite numbers.
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Backend } from "#src/store/backend.ts";
import { computeExpectedSeries } from "../../conformance/metrics/oracle.ts";
import { testIO } from "../../support/io.ts";
import {
  buildFleetQuery,
  describeSeriesDifference,
  dropStale,
  type FleetSeries,
  fleet,
} from "../../support/prometheus/counter-fleets.ts";
import { sendInOrder } from "../../support/prometheus/remote-write.ts";
import { namedMetricServers } from "../selected-servers.ts";
import { type FilledServer, startEmpty } from "./filled-server.ts";

/** Each is a metric of its own. Where one process follows another, both are of one service. */
const fleets = fc.sample(fleet, { numRuns: 60, seed: 95 }).map(({ step, series }, n) => ({
  metric: `fleet_${n}`,
  step,
  series: series.map(
    ({ labels, samples }): FleetSeries => ({
      labels: { ...labels, service: labels.n?.replace(" again", "") ?? "" },
      // VictoriaMetrics keeps 15 digits.
      samples: samples.map(([time, value]) => [
        time,
        value === "stale" ? value : Number(value.toPrecision(15)),
      ]),
    }),
  ),
}));

describe.each(namedMetricServers())("quantiles of gauges on $name", (named) => {
  let server: FilledServer;
  let backend: Backend;
  beforeAll(async () => {
    server = await startEmpty(named);
    await sendInOrder(
      server.url,
      fleets.flatMap(({ metric, series }) =>
        series.map(({ labels, samples }) => ({ labels: { __name__: metric, ...labels }, samples })),
      ),
    );
    await server.flush?.();
    backend = prometheus.create("prom", prometheus.parseConfig({ url: server.url }), testIO);
  }, 120_000);
  afterAll(async () => {
    await backend?.close();
    await server?.stop();
  });

  test.each([
    ["one series each", { service: "*" }],
    ["several series each", { path: "*" }],
  ])("equal the raw samples in groups of %s", { timeout: 120_000 }, async (_, tags) => {
    const signal = new AbortController().signal;
    let values = 0;
    for (const [n, { metric, step, series }] of fleets.entries()) {
      const measure = { of: "samples", combine: "quantile", quantile: n % 2 === 0 ? 0.9 : 0.95 } as const;
      const query = buildFleetQuery(metric, step, tags, measure);
      const raw = series.map((one) => ({ suffix: "" as const, labels: one.labels, samples: dropStale(one) }));
      const expected = computeExpectedSeries([{ metric, kind: "gauge", series: raw }], "shop", query);
      const found = (await backend.stores.metrics?.series(query, signal)) ?? [];
      const difference = describeSeriesDifference(found, expected, false);
      expect(difference && `${metric}: ${difference}`).toBeUndefined();
      values += found.reduce(
        (sum, one) => sum + one.values.filter((value) => !Number.isNaN(value)).length,
        0,
      );
    }
    expect(values).toBeGreaterThan(1_000);
  });
});
