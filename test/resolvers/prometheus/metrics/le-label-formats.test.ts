// Bounds and quantiles whose spelling changes: an upgrade to version 3 rewrites `le="1"` as `1.0`, `2097152` as
// `2.097152e+06` and `2.5E-4` as `0.00025`. It is one series, which does not start with its new spelling, may return to the
// old one, and may have samples of both at once.
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
import { testIO } from "../../../support/io.ts";
import { sampleCases } from "../../../support/law-runs.ts";
import { openFakeServer, openFakeThanos } from "../../../support/prometheus/fake-thanos.ts";
import type { ScriptedSource } from "../../../support/scripted-http-source.ts";

const signal = new AbortController().signal;
const metrics = ["balance", "latency_seconds", "rpc_seconds"];

/** Other bounds of the same order, so that they have exponents in one spelling or the other. */
const rescaled: Readonly<Record<string, string>> = {
  "0.1": "0.00025",
  "0.25": "2.5",
  "0.5": "1024",
  "1": "2097152",
  "2.5": "100000000",
};
const families = buildRawFamilies(false)
  .filter(({ metric }) => metrics.includes(metric))
  .map((family): RawFamily => {
    if (family.metric !== "latency_seconds") return family;
    const series = family.series.map((one) => {
      const { le } = one.labels;
      return le === undefined ? one : { ...one, labels: { ...one.labels, le: rescaled[le] ?? le } };
    });
    return { ...family, series };
  });

type Speller = (value: number) => string;
/** `FormatFloat(value, 'g', -1, 64)` of Go with `.0` after whole numbers, as Prometheus 3 writes bounds. */
const spellAsGo: Speller = (value) => {
  if (!Number.isFinite(value)) return "+Inf";
  const [digits = "", exponent = "0"] = value.toExponential().split("e");
  const power = Number(exponent);
  if (power >= -4 && power < 6) return Number.isInteger(value) ? `${value}.0` : String(value);
  return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
};
/** `Double.toString` of Java. */
const spellAsJava: Speller = (value) => {
  if (!Number.isFinite(value)) return "Inf";
  const size = Math.abs(value);
  const withPoint = (text: string) => (text.includes(".") ? text : `${text}.0`);
  if (size === 0 || (size >= 1e-3 && size < 1e7)) return withPoint(String(value));
  const [digits = "", exponent = "0"] = value.toExponential().split("e");
  return `${withPoint(digits)}E${Number(exponent)}`;
};
const spellPlain: Speller = (value) =>
  Number.isFinite(value) ? value.toFixed(9).replace(/\.?0+$/, "") : "+inf";

test("the spellers of this test write what the issue names", () => {
  const all = [2_097_152, 0.000_25, 1e8, 1, 0.5, Number.POSITIVE_INFINITY];
  expect(all.map(spellAsGo)).toEqual(["2.097152e+06", "0.00025", "1e+08", "1.0", "0.5", "+Inf"]);
  expect(all.map(spellAsJava)).toEqual(["2097152.0", "2.5E-4", "1.0E8", "1.0", "0.5", "Inf"]);
  expect(all.map(spellPlain)).toEqual(["2097152", "0.00025", "100000000", "1", "0.5", "+inf"]);
});

/** Which of the spellings the sample with this index has. */
type Choice = (time: number, index: number, labels: Readonly<Record<string, string>>) => readonly number[];

/** The first spelling, and the next one from each of these times on. */
const alternate =
  (...times: readonly number[]): Choice =>
  (at) => [times.filter((time) => time <= at).length % 2];

/** The series of a family with bounds and quantiles in several spellings. */
function spellSeries({ metric, series }: RawFamily, choose: Choice, spellers: readonly Speller[]) {
  return series.flatMap(({ suffix, labels, samples }) => {
    const named = { ...labels, __name__: `${metric}${suffix}` };
    const name = ["le", "quantile"].find((label) => Object.hasOwn(labels, label));
    if (name === undefined) return [{ labels: named, samples: [...samples] }];
    const value = Number(labels[name]?.replace("+Inf", "Infinity"));
    // Two spellers may write the same.
    const texts = [...new Set(spellers.map((spell) => spell(value)))];
    return texts.flatMap((text): { labels: Record<string, string>; samples: RawSample[] }[] => {
      const kept = samples.filter(([time], index) =>
        choose(time, index, labels).some((n) => spellers[n]?.(value) === text),
      );
      return kept.length === 0 ? [] : [{ labels: { ...named, [name]: text }, samples: kept }];
    });
  });
}

let source: ScriptedSource | undefined;
let backend: Backend | undefined;
afterEach(async () => {
  await backend?.close();
  await source?.close();
});

const percentile: Measure = { of: "observations", combine: "quantile", quantile: 0.9 };
const greatest: Measure = { of: "observations", combine: "max" };
const least: Measure = { of: "observations", combine: "min" };
const upgrade = [spellPlain, spellAsGo];
describe.each([
  ["where restarts show", openFakeServer],
  ["where they are hidden", openFakeThanos],
])("%s", (_, open) => {
  const cases: readonly (readonly [string, Choice, readonly Speller[]])[] = [
    ["in the middle of a bucket", alternate(base + 31 * minute + 20_000), upgrade],
    ["at the beginning of a bucket", alternate(base + 31 * minute), upgrade],
    ["just before the range", alternate(base + 1_000), upgrade],
    ["some minutes before the range", alternate(base - 5 * minute), upgrade],
    ["from Java's spelling", alternate(base + 31 * minute + 20_000), [spellAsJava, spellAsGo]],
    ["from Java's spelling before the range", alternate(base - 70_000), [spellAsJava, spellAsGo]],
    ["back to the old one", alternate(base + 31 * minute + 20_000), [spellAsGo, spellPlain]],
    ["for some minutes", alternate(base + 31 * minute + 20_000, base + 37 * minute + 35_000), upgrade],
    [
      "within one bucket, and again",
      alternate(...[12, 31, 48, 55].map((at) => base + 25 * minute + at * 1_000)),
      upgrade,
    ],
    [
      "since shortly before the range, for a while",
      alternate(base - 40_000, base + 9 * minute + 5_000),
      upgrade,
    ],
    // The last sample before the range has a spelling that has no sample in it, and the first one in it has an older one.
    ["before the range and back at its beginning", alternate(base - 60_000, base), upgrade],
    [
      "long before the range, and there is a gap",
      (time) => (time < base - 4 * minute ? [0] : time < base + 5 * minute ? [] : [1]),
      upgrade,
    ],
    ["from scrape to scrape", (_, index) => [index % 2], upgrade],
    ["never: each scrape has both", () => [0, 1], upgrade],
    ["on one of the targets only", (_, __, { method }) => [method === "GET" ? 0 : 1], upgrade],
  ];
  test.each(sampleCases(cases, { share: 8 }))(
    "joins a series whose le or quantile is spelt in two ways: %s",
    async (_, choose, spellers) => {
      const series = families.flatMap((family) => spellSeries(family, choose, spellers));
      source = await open(series);
      backend = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), testIO);
      const isLost = ([time]: RawSample) => choose(time, 0, {}).length === 0;
      const held = families.map((family) => ({
        ...family,
        series: family.series.map((one) => ({
          ...one,
          samples:
            "le" in one.labels || "quantile" in one.labels
              ? one.samples.filter((at) => !isLost(at))
              : one.samples,
        })),
      }));
      for (const [metric, tags, measures] of [
        ["balance", {}, [greatest, percentile]],
        ["latency_seconds", { route: "/rare" }, [greatest, percentile]],
        ["latency_seconds", {}, [percentile]],
        ["rpc_seconds", { method: "read" }, [greatest, least, percentile]],
      ] as const) {
        for (const buckets of [
          { start: base, step: minute, count: 61 },
          { start: base + 7, step: hour, count: 1 },
        ]) {
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
            await verifySeries(backend.stores.metrics, held, query, signal);
          }
        }
      }
    },
  );
});

describe("an upgrade of a source that keeps its data", () => {
  const at = (hours: number, minutes: number, seconds = 0) => Date.UTC(2026, 1, 3, hours, minutes, seconds);
  /** Samples of the old spelling until 02:14:45, and of the new one from 02:25 on. */
  const bucket = (old: string, now: string, before: number, after: number) => [
    {
      labels: { __name__: "size_bytes_bucket", le: old },
      samples: [
        [at(2, 0), 0],
        [at(2, 14, 45), before],
      ] as RawSample[],
    },
    {
      labels: { __name__: "size_bytes_bucket", le: now },
      samples: [
        [at(2, 25), after],
        [at(2, 26), after],
      ] as RawSample[],
    },
  ];
  const total = (suffix: string, before: number, after: number) => ({
    labels: { __name__: `size_bytes${suffix}` },
    samples: [
      [at(2, 0), 0],
      [at(2, 14, 45), before],
      [at(2, 25), after],
      [at(2, 26), after],
    ] as RawSample[],
  });

  test.each([at(2, 0), at(2, 10), at(2, 14, 50), at(2, 20), at(2, 24, 59)])(
    "has the same growth in the first bucket after it, asked from %d",
    async (from) => {
      source = await openFakeServer([
        ...bucket("1024", "1024.0", 20, 21),
        ...bucket("2097152", "2.097152e+06", 830, 871),
        ...bucket("Inf", "+Inf", 840, 884),
        total("_count", 840, 884),
        total("_sum", 1, 2),
      ]);
      backend = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), testIO);
      const start = from - (from % minute);
      const count = (at(2, 27) - start) / minute;
      const query: SeriesQuery = {
        match: {},
        metric: "size_bytes",
        tags: {},
        measure: percentile,
        buckets: { start, step: minute, count },
        lookBack: 24 * hour,
        pointLimit: 100_000,
      };
      const [found] = (await backend.stores.metrics?.series(query, signal)) ?? [];
      // 44 have come, 1 of them below 1,024 and 41 below 2,097,152: the 39.6th lies among the 40 between.
      const last = found?.values.at(-2) ?? Number.NaN;
      expect(last).toBeCloseTo(1_024 + ((39.6 - 1) / 40) * (2_097_152 - 1_024), 6);
    },
  );
});
