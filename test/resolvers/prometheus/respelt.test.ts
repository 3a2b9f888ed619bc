// The bounds of a histogram that its Prometheus has spelt anew: `le="1"` became `le="1.0"` with version 3. It is one
// bucket, which has not begun with its spelling.
import { afterEach, expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Measure } from "#src/model.ts";
import type { Backend, SeriesQuery } from "#src/store.ts";
import { expectedSeries } from "../../conformance/metrics/oracle.ts";
import {
  base,
  hour,
  minute,
  type RawFamily,
  type RawSample,
  rawFamilies,
} from "../../conformance/metrics/raw.ts";
import { difference } from "../../conformance/metrics.ts";
import { testIO } from "../../support/cluster.ts";
import type { Fake } from "../../support/fake.ts";
import { openFakeThanos } from "../../support/thanos.ts";

const signal = AbortSignal.timeout(300_000);
const families = rawFamilies(false).filter(
  ({ metric }) => metric === "balance" || metric === "latency_seconds",
);

/** What a source holds that spells whole bounds so from `at` on. */
function written({ metric, series }: RawFamily, at: number, [before, after]: readonly [string, string]) {
  return series.flatMap(({ suffix, labels, samples }) => {
    const spelt = (end: string, kept: RawSample[]) => ({
      labels: {
        ...labels,
        ...(labels.le !== undefined && /^-?\d+$/.test(labels.le) && { le: `${labels.le}${end}` }),
        __name__: `${metric}${suffix}`,
      },
      samples: kept,
    });
    const [first, then] = [samples.filter(([time]) => time < at), samples.filter(([time]) => time >= at)];
    if (!/^-?\d+$/.test(labels.le ?? "")) return [spelt("", [...samples])];
    return [spelt(before, first), spelt(after, then)].filter((one) => one.samples.length > 0);
  });
}

let source: Fake | undefined;
let backend: Backend | undefined;
afterEach(async () => {
  await backend?.close();
  await source?.close();
});

const upgrade = ["", ".0"] as const;
const measures: readonly Measure[] = [
  { of: "observations", combine: "max" },
  { of: "observations", combine: "quantile", quantile: 0.9 },
];
test.each([
  ["in the middle of a bucket", base + 31 * minute + 20_000, upgrade],
  ["at the beginning of a bucket", base + 31 * minute, upgrade],
  ["just before the range", base + 1_000, upgrade],
  ["some minutes before the range", base - 5 * minute, upgrade],
  ["back to the old one", base + 31 * minute + 20_000, [".0", ""]],
] as const)("a new spelling %s is no new bucket", async (_, at, spellings) => {
  source = await openFakeThanos(families.flatMap((family) => written(family, at, spellings)));
  backend = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), testIO);
  for (const [metric, tags] of [
    ["balance", {}],
    ["latency_seconds", { route: "*" }],
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
        const found = (await backend.stores.metrics?.series(query, signal)) ?? [];
        expect(difference(found, expectedSeries(families, "shop", query), query)).toBeUndefined();
      }
    }
  }
});
