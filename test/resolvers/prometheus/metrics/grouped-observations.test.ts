// Means and estimates of histograms that are grouped at the source equal the definition.
import fc from "fast-check";
import { expect, test } from "vitest";
import type { PrometheusClient } from "#resolvers/prometheus/client/client.ts";
import type { RangeEdge } from "#resolvers/prometheus/client/promql.ts";
import type { Series } from "#src/core/rows.ts";
import { base, minute, type RawSeries } from "../../../conformance/metrics/fixture.ts";
import { computeExpectedSeries } from "../../../conformance/metrics/oracle.ts";
import { sampleRuns } from "../../../support/law-runs.ts";
import {
  buildHistogramQuery,
  describeObservedDifference,
  histogramFleet,
  observationMeasures,
  readHistogramFleet,
} from "../../../support/prometheus/histogram-fleets.ts";
import { createRecordingClient } from "../../../support/prometheus/promql-evaluator.ts";

const signal = new AbortController().signal;
const metric = "latency_seconds";

/** A client over these samples. `sent` takes each query. NaN is left out: to the evaluator it is a staleness marker. */
function createClient(series: readonly RawSeries[], edge: RangeEdge, sent: string[]): PrometheusClient {
  const written = series.map(({ suffix, labels, samples }) => ({
    labels: { __name__: `${metric}${suffix}`, ...labels },
    samples: [...samples],
  }));
  return createRecordingClient(written, edge, sent);
}

test.each(["closed", "open"] as const)(
  "equals the raw samples, left edge %s",
  {
    timeout: 120_000,
  },
  async (edge) => {
    const groupedBy = new Map<string, number>();
    let runs = 0;
    const property = fc.asyncProperty(
      histogramFleet,
      fc.constantFrom({}, { path: "*" }),
      async ({ step, series, isPlain }, tags) => {
        const numbers = series.map((one) => ({
          ...one,
          samples: one.samples.filter(([, value]) => !Number.isNaN(value)),
        }));
        runs += 1;
        for (const measure of observationMeasures) {
          const sent: string[] = [];
          const query = buildHistogramQuery(metric, step, tags, measure);
          const ask = (groups: boolean): Promise<readonly Series[] | string> =>
            readHistogramFleet(createClient(numbers, edge, sent), query, groups, signal).catch(String);
          const [read, found] = [await ask(false), await ask(true)];
          if (typeof read === "string" || typeof found === "string") {
            expect(found).toEqual(read);
            continue;
          }
          const isExact = measure.combine !== "mean";
          const byDefinition = describeObservedDifference(found, read, isExact);
          expect(byDefinition && `${measure.combine}, as read: ${byDefinition}`).toBeUndefined();
          if (sent.some((text) => /^sum by|^sum\(/.test(text) && text.includes("last_over_time")))
            groupedBy.set(measure.combine, (groupedBy.get(measure.combine) ?? 0) + 1);
          // The oracle knows histograms whose parts are scraped together.
          if (!isPlain || typeof found === "string") continue;
          const expected = computeExpectedSeries(
            [{ metric, kind: "histogram", series: numbers }],
            "shop",
            query,
          );
          const byOracle = describeObservedDifference(found, expected, false);
          expect(byOracle && `${measure.combine}, of the oracle: ${byOracle}`).toBeUndefined();
        }
      },
    );
    await fc.assert(property, { numRuns: sampleRuns(60) });
    // Otherwise nothing was compared.
    for (const { combine } of observationMeasures) expect(groupedBy.get(combine)).toBeGreaterThan(runs / 3);
  },
);

test("takes a restart of the count for one of a bucket that does not fall", async () => {
  const series = [1, 2, 3].flatMap((n) =>
    ["_count", "_bucket 0.5", "_bucket 1", "_bucket +Inf"].map((name): RawSeries => {
      const [suffix = "", le] = name.split(" ");
      // Nearly all is slow before the restart, and fast after it.
      const count = (at: number) => (at < 60 ? 1_000 * n + at : (at - 60) * 10);
      const fast = (at: number) => (at < 60 ? 2 : 7 + (at - 60) * 10);
      return {
        suffix: suffix as RawSeries["suffix"],
        labels: { tenant: "shop", n: String(n), ...(le !== undefined && { le }) },
        samples: Array.from({ length: 140 }, (_, at) => [
          base - 5 * minute + at * 15_000,
          le === "0.5" ? fast(at) : count(at) + 7,
        ]),
      };
    }),
  );
  const query = buildHistogramQuery(
    metric,
    minute,
    {},
    { of: "observations", combine: "quantile", quantile: 0.5 },
  );
  const sent: string[] = [];
  const found = await readHistogramFleet(createClient(series, "open", sent), query, true, signal);
  expect(sent.some((text) => text.startsWith("sum by (le)"))).toBe(true);
  const expected = computeExpectedSeries([{ metric, kind: "histogram", series }], "shop", query);
  expect(describeObservedDifference(found, expected, true)).toBeUndefined();
});
