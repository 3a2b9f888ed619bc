// Bounds and quantiles whose spelling changed: `le="1"` became `le="1.0"` with version 3, and so did `quantile="1"`. It is
// one series, which does not start with its new spelling and may return to the old one.
import { afterEach, describe, expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Measure } from "#src/core/rows.ts";
import type { Backend } from "#src/store/backend.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import {
  base,
  buildRawFamilies,
  hour,
  minute,
  type RawFamily,
  type RawSample,
} from "../../../conformance/metrics/fixture.ts";
import { verifySeries } from "../../../conformance/metrics.ts";
import { testIO } from "../../../support/elastic/test-index.ts";
import { openFakeServer, openFakeThanos } from "../../../support/prometheus/fake-thanos.ts";
import type { ScriptedSource } from "../../../support/scripted-http-source.ts";

const signal = AbortSignal.timeout(300_000);
const metrics = ["balance", "latency_seconds", "rpc_seconds"];
const families = buildRawFamilies(false).filter(({ metric }) => metrics.includes(metric));

/** Series whose integer bounds have the first spelling, and the other one from the next of these times on. */
function spellSeries(
  { metric, series }: RawFamily,
  times: readonly number[],
  spellings: readonly [string, string],
) {
  return series.flatMap(({ suffix, labels, samples }) => {
    const [name, number] = Object.entries(labels).find(([, value]) => /^-?\d+$/.test(value)) ?? [];
    const named = { ...labels, __name__: `${metric}${suffix}` };
    if (name !== "le" && name !== "quantile") return [{ labels: named, samples: [...samples] }];
    const spelt = Map.groupBy(samples, ([at]) => spellings[times.filter((time) => time <= at).length % 2]);
    return [...spelt].map(([end, kept]): { labels: Record<string, string>; samples: RawSample[] } => ({
      labels: { ...named, [name]: `${number}${end}` },
      samples: kept,
    }));
  });
}

let source: ScriptedSource | undefined;
let backend: Backend | undefined;
afterEach(async () => {
  await backend?.close();
  await source?.close();
});

const upgrade = ["", ".0"] as const;
const percentile: Measure = { of: "observations", combine: "quantile", quantile: 0.9 };
const greatest: Measure = { of: "observations", combine: "max" };
const least: Measure = { of: "observations", combine: "min" };
describe.each([
  ["where restarts show", openFakeServer],
  ["where they are hidden", openFakeThanos],
])("%s", (_, open) => {
  test.each([
    ["in the middle of a bucket", [base + 31 * minute + 20_000], upgrade],
    ["at the beginning of a bucket", [base + 31 * minute], upgrade],
    ["just before the range", [base + 1_000], upgrade],
    ["some minutes before the range", [base - 5 * minute], upgrade],
    ["back to the old one", [base + 31 * minute + 20_000], [".0", ""]],
    ["for some minutes", [base + 31 * minute + 20_000, base + 37 * minute + 35_000], upgrade],
    ["within one bucket, and again", [12, 31, 48, 55].map((at) => base + 25 * minute + at * 1_000), upgrade],
    ["since shortly before the range, for a while", [base - 40_000, base + 9 * minute + 5_000], upgrade],
  ] as const)("joins a bucket series whose le spelling changes: %s", async (_, times, spellings) => {
    const series = families.flatMap((family) => spellSeries(family, times, spellings));
    expect(series.some(({ labels }) => labels.quantile === "1.0")).toBe(true);
    source = await open(series);
    backend = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), testIO);
    for (const [metric, tags, measures] of [
      ["balance", {}, [greatest, percentile]],
      ["latency_seconds", { route: "/rare" }, [greatest, percentile]],
      ["rpc_seconds", { method: "read" }, [greatest, least, percentile]],
    ] as const) {
      for (const buckets of [
        { start: base, step: minute, count: 61 },
        { start: base + 7, step: hour, count: 1 },
      ]) {
        for (const measure of measures) {
          const query: SeriesQuery = {
            match: { tenant: "shop" },
            ...{ metric, tags, measure, buckets },
            lookBack: 24 * hour,
            pointLimit: 100_000,
          };
          await verifySeries(backend.stores.metrics, families, query, signal);
        }
      }
    }
  });
});
