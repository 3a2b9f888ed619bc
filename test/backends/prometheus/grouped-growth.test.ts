// Growth that a running server groups equals the definition, for the same random counters and histograms as in the tests
// without a server, and with what only a server holds: samples that are NaN, and staleness markers.
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { guardDefaults } from "#resolvers/http/guard.ts";
import { createPrometheusClient, type PrometheusClient } from "#resolvers/prometheus/client/client.ts";
import { Unprocessable } from "#src/core/errors.ts";
import { base } from "../../conformance/metrics/fixture.ts";
import { type RunningPrometheus, startPrometheus } from "../../servers/prometheus.ts";
import { testIO } from "../../support/io.ts";
import {
  buildFleetQuery,
  computeGrowth,
  describeGrowthDifference,
  type Fleet,
  fleet,
  readGrouped,
} from "../../support/prometheus/counter-fleets.ts";
import {
  buildHistogramQuery,
  describeObservedDifference,
  histogramFleet,
  observationMeasures,
  readHistogramFleet,
} from "../../support/prometheus/histogram-fleets.ts";
import { sendInOrder } from "../../support/prometheus/remote-write.ts";
import { namedMetricServers, namedPrometheus } from "../selected-servers.ts";
import { type FilledServer, startEmpty } from "./filled-server.ts";

/** Each is a metric of its own. */
const fleets = fc.sample(fleet, { numRuns: 150, seed: 30 });
const nameFleet = (n: number): string => `fleet_${n}_total`;
const histogramFleets = fc.sample(histogramFleet, { numRuns: 40, seed: 30 });
const nameHistograms = (n: number): string => `fleet_${n}_seconds`;

describe.each(namedMetricServers())("growth grouped by $name", (named) => {
  let server: FilledServer;
  let client: PrometheusClient;
  // Another digit of a large number is much of a small growth.
  const held = named.name === "vm" ? fleets.map(roundSamples) : fleets;
  beforeAll(async () => {
    server = await startEmpty(named);
    const settings = { ...guardDefaults, url: server.url, headers: {}, answerBytes: 1e8 };
    client = createPrometheusClient("prom", settings, testIO);
    const all = held.flatMap(({ series }, n) =>
      series.map(({ labels, samples }) => ({ labels: { __name__: nameFleet(n), ...labels }, samples })),
    );
    const parts = histogramFleets.flatMap(({ series }, n) =>
      series.map(({ suffix, labels, samples }) => ({
        labels: { __name__: `${nameHistograms(n)}${suffix}`, ...labels },
        samples,
      })),
    );
    await sendInOrder(server.url, [...all, ...parts]);
    await server.flush?.();
  }, 120_000);
  afterAll(async () => {
    await client?.close();
    await server?.stop();
  });

  test("equals the raw samples", { timeout: 170_000 }, async ({ signal }) => {
    for (const [n, { step, series }] of held.entries()) {
      for (const tags of [{}, { path: "*" }] as const) {
        const query = buildFleetQuery(nameFleet(n), step, tags);
        const found = await readGrouped(client, query, signal);
        const difference = describeGrowthDifference(series, found, computeGrowth(query, series));
        expect(difference && `${query.metric} ${JSON.stringify(tags)}: ${difference}`).toBeUndefined();
      }
    }
  });

  test("of histograms equals what is read of their series", { timeout: 170_000 }, async ({ signal }) => {
    const answered = new Map<string, number>();
    for (const [n, { step }] of histogramFleets.entries()) {
      for (const measure of observationMeasures) {
        const query = buildHistogramQuery(nameHistograms(n), step, { path: "*" }, measure);
        const ask = (groups: boolean) =>
          readHistogramFleet(client, query, groups, signal).catch((error: unknown) => {
            // A server that is down refuses nothing.
            if (error instanceof Unprocessable) return String(error);
            throw error;
          });
        const [read, grouped] = [await ask(false), await ask(true)];
        if (typeof read !== "string" && read.length > 0)
          answered.set(measure.combine, (answered.get(measure.combine) ?? 0) + 1);
        const difference = describeObservedDifference(grouped, read, measure.combine !== "mean");
        expect(difference && `${query.metric} ${measure.combine}: ${difference}`).toBeUndefined();
      }
    }
    // Of few the measure is refused.
    for (const { combine } of observationMeasures)
      expect(answered.get(combine), combine).toBeGreaterThan(histogramFleets.length / 2);
  });
});

describe.each(namedPrometheus())(
  "growth grouped by $name, which loads few samples for a query",
  ({ name }) => {
    let server: RunningPrometheus;
    let client: PrometheusClient;
    const some = fleets.slice(0, 25);
    beforeAll(async () => {
      server = await startPrometheus(name, "", undefined, [], undefined, ["--query.max-samples=150"]);
      const settings = { ...guardDefaults, url: server.url, headers: {}, answerBytes: 1e8 };
      client = createPrometheusClient("prom", settings, testIO);
      await sendInOrder(
        server.url,
        some.flatMap(({ series }, n) =>
          series.map(({ labels, samples }) => ({ labels: { __name__: nameFleet(n), ...labels }, samples })),
        ),
      );
    }, 120_000);
    afterAll(async () => {
      await client?.close();
      await server?.stop();
    });

    test("equals the raw samples, in parts of the time", { timeout: 170_000 }, async ({ signal }) => {
      const whole = `query=${encodeURIComponent(`sum_over_time(${nameFleet(0)}[3h])`)}&time=${base / 1_000 + 7_200}`;
      expect((await fetch(`${server.url}/api/v1/query?${whole}`)).status).toBe(422);
      for (const [n, { step, series }] of some.entries()) {
        const query = buildFleetQuery(nameFleet(n), step, {});
        const found = await readGrouped(client, query, signal);
        const difference = describeGrowthDifference(series, found, computeGrowth(query, series));
        expect(difference && `${query.metric}: ${difference}`).toBeUndefined();
      }
    });
  },
);

/** To the digits that VictoriaMetrics keeps. */
function roundSamples({ step, series }: Fleet): Fleet {
  const round = (value: number | "stale") => (value === "stale" ? value : Number(value.toPrecision(15)));
  const rounded = series.map(({ labels, samples }) => ({
    labels,
    samples: samples.map(([time, value]) => [time, round(value)] as const),
  }));
  return { step, series: rounded };
}
