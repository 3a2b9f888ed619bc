// Native histograms on running servers, by remote write: beside classic ones, after them, and in large numbers. The
// expected values are computed from the observations of each scrape.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import { requireKey } from "#src/core/collections.ts";
import type { Measure } from "#src/core/rows.ts";
import { createFederatedMetrics } from "#src/federation/federated-metrics.ts";
import type { Backend } from "#src/store/backend.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import { type RunningPrometheus, startPrometheus } from "../../servers/prometheus.ts";
import { testIO } from "../../support/io.ts";
import { sendRemoteWrite, type WrittenSeries } from "../../support/prometheus/remote-write.ts";
import { namedPrometheus } from "../selected-servers.ts";

const signal = new AbortController().signal;
const [second, minute, hour] = [1_000, 60_000, 3_600_000];
const base = Date.UTC(2026, 0, 15, 10);

/** What one target has recorded between two scrapes. */
interface Scrape {
  readonly time: number;
  readonly observed: readonly number[];
  readonly restarted: boolean;
  readonly form: "classic" | "native" | "both";
}
interface Target {
  readonly metric: string;
  readonly host: string;
  readonly bounds: readonly number[];
  readonly scrapes: readonly Scrape[];
}

function recordTarget(
  metric: string,
  host: string,
  { from = -20 * minute, to = hour, step = 15 * second, form = (_: number): Scrape["form"] => "native" },
  restarts: readonly number[] = [],
  bounds: readonly number[] = [0.25, 0.5, 1, 2, 4, 8, 16],
  burst: readonly number[] = [],
): Target {
  const length = Math.ceil((to - from) / step);
  const scrapes = Array.from({ length }, (_, n): Scrape => {
    const time = base + from + n * step + 200;
    const observed = Array.from(
      { length: (n * 5 + host.length) % 4 },
      (_, i) => ((n * 7 + i * 13) % 60) / 4 + 0.3,
    );
    const restarted = restarts.includes(n);
    return {
      time,
      observed: restarted ? [...observed, ...burst] : observed,
      restarted,
      form: form(time - base),
    };
  });
  return { metric, host, bounds, scrapes };
}

function buildSeries({ metric, host, bounds, scrapes }: Target): readonly WrittenSeries[] {
  const labels = { site: "a", host };
  const uppers = Array.from({ length: 8 }, (_, index) => 2 ** (index - 2));
  let all: { below: number[]; counts: number[]; sum: number } | undefined;
  const rows = scrapes.map(({ time, observed, restarted, form }) => {
    const before = (!restarted && all) || { below: [], counts: [], sum: 0 };
    const within = (lower: number, upper: number) =>
      observed.filter((one) => one > lower && one <= upper).length;
    const ends = [...bounds, Number.POSITIVE_INFINITY];
    all = {
      below: ends.map((bound, n) => (before.below[n] ?? 0) + within(Number.NEGATIVE_INFINITY, bound)),
      counts: uppers.map((upper, n) => (before.counts[n] ?? 0) + within(upper / 2, upper)),
      sum: before.sum + observed.reduce((sum, one) => sum + one, 0),
    };
    return { time, form, ...all };
  });
  const classic = rows.filter(({ form }) => form !== "native");
  const part = (suffix: string, read: (row: (typeof rows)[number]) => number, more = {}): WrittenSeries => ({
    labels: { __name__: `${metric}_${suffix}`, ...labels, ...more },
    samples: classic.map((row) => [row.time, read(row)] as const),
  });
  const native = rows.filter(({ form }) => form !== "classic");
  const parts = [
    part("count", ({ below }) => below.at(-1) ?? 0),
    part("sum", ({ sum }) => sum),
    ...[...bounds, "+Inf"].map((le, n) => part("bucket", ({ below }) => below[n] ?? 0, { le: String(le) })),
  ];
  const histograms = native.map(({ time, sum, counts }) => ({ millis: time, sum, first: -2, counts }));
  return [
    ...(classic.length > 0 ? parts : []),
    ...(native.length > 0 ? [{ labels: { __name__: metric, ...labels }, histograms }] : []),
  ];
}

/** A summary that becomes a native histogram with its next process, and a gauge histogram. */
const buildUnusualSeries = (): readonly WrittenSeries[] => {
  const labels = { site: "a", host: "x" };
  const times = Array.from({ length: 40 }, (_, n) => base + n * 15 * second);
  const [old, young] = [times.slice(0, 20), times.slice(20)];
  const part = (suffix: string, more: object, read: (n: number) => number): WrittenSeries => ({
    labels: { __name__: `summed${suffix}`, ...labels, ...more },
    samples: old.map((time, n) => [time, read(n)] as const),
  });
  const histogram = (millis: number, counts: readonly number[]) => ({ millis, sum: 6, first: 0, counts });
  return [
    part("", { quantile: "0.9" }, () => 0.75),
    part("_count", {}, (n) => 30 + 3 * n),
    part("_sum", {}, (n) => 15 + n),
    {
      labels: { __name__: "summed", ...labels },
      histograms: young.map((time, n) => histogram(time, [n, n, n])),
    },
    {
      labels: { __name__: "rated", ...labels },
      histograms: times.map((time, n) => ({ ...histogram(time, [3, 1 + (n % 3)]), gauge: true })),
    },
  ];
};

const switchForm = (at: number) => (time: number) => (time < at ? "classic" : "native");
const targets: readonly Target[] = [
  // Changes from one form to the other in the middle of the range: without a restart, with one, and back again.
  recordTarget("moved", "plain", { form: switchForm(17 * minute) }, [40, 130]),
  recordTarget("moved", "restarts", { form: switchForm(20 * minute) }, [160]),
  recordTarget("moved", "back", {
    form: (time) => (time < 10 * minute || time > 30 * minute ? "classic" : "native"),
  }),
  // Both forms at once must not count twice.
  recordTarget("moved", "twice", { form: () => "both" }, [100]),
  recordTarget("moved", "old", { form: () => "classic" }, [100]),
  recordTarget("moved", "new", {}, [100]),
  // New in the native form: the first sample has grown from 0.
  recordTarget("moved", "born", { from: 25 * minute }),
  // The last sample before the range is classic, hours before.
  recordTarget("moved", "late", {
    from: -9 * hour,
    form: switchForm(-2 * hour),
    to: -7 * hour,
  }),
  // New in a form that the metric did not have before: the first sample has grown from 0.
  recordTarget("joined", "native", {}),
  recordTarget("joined", "classic", { from: 25 * minute, form: () => "classic" }),
  recordTarget("begun", "classic", { from: 5 * minute, form: () => "classic" }),
  recordTarget("begun", "native", { from: 25 * minute }),
  // Exactly in the middle of the hour, which then has as many samples of one form as of the other.
  recordTarget("halved", "plain", { form: switchForm(30 * minute) }),
  // At its first scrape a new process has more observations than the one before, but none as great.
  recordTarget(
    "overtaken",
    "plain",
    {},
    [100, 170],
    [],
    Array.from({ length: 500 }, (_, i) => (i % 20) / 4 + 0.3),
  ),
  // Bounds inside native buckets.
  recordTarget("cut", "plain", { form: switchForm(17 * minute) }, [], [0.3, 3, 5]),
  // 69,120 histograms: more than one slice.
  ...Array.from({ length: 12 }, (_, n) =>
    recordTarget("many", `h${n}`, { from: -24 * hour, to: 0 }, [n * 300 + 7]),
  ),
];

type Counted = readonly { readonly host: string; readonly observed: readonly number[] }[];

/** The observations per bucket: growth since the scrape before, or since 0 for a new series. */
function listObserved(metric: string, { start, step, count }: SeriesQuery["buckets"]): readonly Counted[] {
  const began = Math.min(
    ...targets.filter((one) => one.metric === metric).map(({ scrapes }) => scrapes[0]?.time ?? 0),
  );
  return Array.from({ length: count }, (_, bucket) =>
    targets
      .filter((one) => one.metric === metric)
      .flatMap(({ host, scrapes }) => {
        const inside = scrapes.filter(
          ({ time }, n) => Math.floor((time - start) / step) === bucket && (n > 0 || time > began),
        );
        const sampled = scrapes.some(({ time }) => Math.floor((time - start) / step) === bucket);
        return sampled ? [{ host, observed: inside.flatMap(({ observed }) => observed) }] : [];
      }),
  );
}

/** Interpolated in the power-of-two bucket that has the rank. */
function interpolate(all: readonly number[], quantile: number): number {
  const rank = quantile * all.length;
  const bounds = [0.25, 0.5, 1, 2, 4, 8, 16, 32];
  for (const [n, bound] of bounds.entries()) {
    const lower = bounds[n - 1] ?? 0;
    const below = all.filter((one) => one <= lower).length;
    const within = all.filter((one) => one <= bound).length;
    if (within >= rank && within > 0) return lower + ((bound - lower) * (rank - below)) / (within - below);
  }
  return Number.NaN;
}

const count: Measure = { of: "observations", combine: "count" };
const mean: Measure = { of: "observations", combine: "mean" };
const p90: Measure = { of: "observations", combine: "quantile", quantile: 0.9 };
const expectedOf = new Map<Measure, (all: readonly number[]) => number>([
  [count, (all) => all.length],
  [mean, (all) => (all.length === 0 ? Number.NaN : all.reduce((sum, one) => sum + one, 0) / all.length)],
  [p90, (all) => (all.length === 0 ? Number.NaN : interpolate(all, 0.9))],
]);

describe.each(namedPrometheus())("native histograms on $name", ({ name }) => {
  let server: RunningPrometheus;
  let backend: Backend;
  beforeAll(async () => {
    server = await startPrometheus(name, "");
    backend = prometheus.create("prom", prometheus.parseConfig({ url: server.url }), testIO);
    const series = [...targets.flatMap(buildSeries), ...buildUnusualSeries()];
    // A server refuses samples that are much older than its newest.
    for (let from = base - 24 * hour; from < base + hour; from += hour / 2) {
      const inside = (time: number) => time >= from && time < from + hour / 2;
      const part = series.map(({ labels, samples = [], histograms = [] }) => ({
        labels,
        samples: samples.filter(([time]) => inside(time)),
        histograms: histograms.filter(({ millis }) => inside(millis)),
      }));
      await sendRemoteWrite(
        server.url,
        part.filter(({ samples, histograms }) => samples.length + histograms.length > 0),
      );
    }
  });
  afterAll(async () => {
    await backend?.close();
    await server?.stop();
  });

  const read = async (over: Pick<SeriesQuery, "metric" | "measure" | "buckets"> & Partial<SeriesQuery>) => {
    const query = { match: { site: "a" }, tags: {}, lookBack: 24 * hour, pointLimit: 100_000, ...over };
    return (await backend.stores.metrics?.series(query, signal)) ?? [];
  };
  async function verify(
    metric: string,
    measure: Measure,
    buckets: SeriesQuery["buckets"],
    tags: Readonly<Record<string, string>>,
  ): Promise<void> {
    const found = await read({ metric, measure, buckets, tags });
    const observedByBucket = listObserved(metric, buckets);
    const hosts =
      "host" in tags ? [...new Set(observedByBucket.flatMap((all) => all.map(({ host }) => host)))] : [""];
    const expected = hosts.sort().map((host) => {
      const values = observedByBucket.map((all) => {
        const own = all.filter((one) => host === "" || one.host === host);
        return own.length === 0
          ? Number.NaN
          : requireKey(expectedOf, measure)(own.flatMap((one) => one.observed));
      });
      return { tags: host === "" ? {} : { host }, values };
    });
    const held = expected.filter(({ values }) => values.some((value) => !Number.isNaN(value)));
    expect(found.map((one) => one.tags)).toEqual(held.map((one) => one.tags));
    for (const [n, { values }] of held.entries()) {
      for (const [bucket, value] of values.entries()) {
        const what = `${JSON.stringify(held[n]?.tags)} ${measure.of} bucket ${bucket} of ${buckets.count}`;
        if (Number.isNaN(value)) expect(found[n]?.values[bucket], what).toBeNaN();
        else expect(found[n]?.values[bucket], what).toBeCloseTo(value, 7);
      }
    }
  }

  const grids = [
    { start: base, step: minute, count: 60 },
    { start: base, step: hour, count: 1 },
    { start: base + 18 * minute, step: 5 * minute, count: 5 },
    { start: base + 17 * minute, step: minute, count: 10 },
    { start: base - 10 * minute, step: 7 * minute + 1, count: 3 },
  ];

  test("answers the one of several places that has it, unless it has it of several scrapers", async () => {
    const { metrics: store } = backend.stores;
    if (store === undefined) throw new Error("no metrics");
    const places = ["a", "b"].map((site) => ({ backend: site, store, match: { site } }));
    const buckets = { start: base, step: 5 * minute, count: 12 };
    for (const metric of ["many", "moved"])
      for (const measure of [count, mean, p90]) {
        const query = {
          match: {},
          metric,
          tags: {},
          measure,
          buckets,
          lookBack: hour,
          pointLimit: 1_000,
        };
        const readAs = (replica: string) =>
          createFederatedMetrics(places.map((place) => ({ ...place, replica }))).series(query, signal);
        expect(await readAs("prometheus_replica")).toEqual(await read(query));
        await expect(readAs("host")).rejects.toMatchObject({ slug: "not_supported_by_backend" });
      }
  });

  describe("a histogram that changed between classic and native", () => {
    test("is one measurement with the tags of both forms", async () => {
      const store = backend.stores.metrics;
      expect(await store?.type({ site: "a" }, "moved", signal)).toBe("measurement");
      expect(await store?.tagKeys({ site: "a" }, "moved", signal)).toEqual([["host"]]);
      expect(await store?.names({ site: "a" }, signal)).toEqual([
        "begun",
        "cut",
        "halved",
        "joined",
        "many",
        "moved",
        "overtaken",
        "rated",
        "summed",
      ]);
    });

    test.each([
      ["count", count],
      ["mean", mean],
      ["90th percentile, where the bounds of one are bounds of the other", p90],
    ] as const)("%s", async (_, measure) => {
      for (const buckets of grids) {
        await verify("moved", measure, buckets, { host: "*" });
        await verify("moved", measure, buckets, {});
      }
    });

    test("is found by its last sample within the look-back only", async () => {
      await verify("moved", count, { start: base - 8 * hour, step: hour, count: 3 }, { host: "*" });
    });

    test("refuses a percentile over incompatible bounds, and is exact on either side", async () => {
      const over = { metric: "cut", measure: p90, tags: { host: "*" } };
      const across = read({ ...over, buckets: { start: base, step: hour, count: 1 } });
      await expect(across).rejects.toMatchObject({ slug: "not_supported_by_backend" });
      await expect(across).rejects.toThrow("before or after the change");
      await verify("cut", p90, { start: base + 20 * minute, step: 5 * minute, count: 5 }, { host: "*" });
      await verify("cut", count, { start: base, step: hour, count: 1 }, {});
      await verify("cut", mean, { start: base, step: minute, count: 60 }, {});
    });
  });

  test("counts a native histogram that was classic until the middle of a bucket", async () => {
    for (const buckets of grids)
      for (const measure of [count, mean, p90]) await verify("halved", measure, buckets, { host: "*" });
  });

  test.each(["joined", "begun"])("counts a new series of the other form from 0: %s", async (metric) => {
    for (const buckets of grids)
      for (const measure of [count, mean, p90]) await verify(metric, measure, buckets, { host: "*" });
  });

  test("continues the count of a former summary, with percentiles per form", async () => {
    const over = (start: number, length: number) => ({
      metric: "summed",
      buckets: { start, step: length * minute, count: 1 },
    });
    // 19 times 3 before the restart and 19 times 3 after it.
    const [counted] = await read({ ...over(base, 10), measure: count });
    expect(counted?.values[0]).toBe(114);
    const [old] = await read({ ...over(base, 5), measure: p90 });
    expect(old?.values[0]).toBe(0.75);
    const [young] = await read({ ...over(base + 6 * minute, 3), measure: p90 });
    expect(young?.values[0]).toBeCloseTo(3.4);
    await expect(read({ ...over(base, 10), measure: p90 })).rejects.toMatchObject({
      slug: "not_supported_by_backend",
    });
  });

  test("refuses a gauge histogram if the source warns of it", async () => {
    const buckets = { start: base, step: minute, count: 5 };
    const answer = read({ metric: "rated", measure: count, buckets });
    // Version 2 does not.
    if (name === "prom2") expect(await answer).toHaveLength(1);
    else await expect(answer).rejects.toMatchObject({ slug: "not_supported_by_backend" });
  });

  test.each([
    ["count", count],
    ["mean", mean],
    ["90th percentile", p90],
  ] as const)("detects a restart by single buckets: %s", async (_, measure) => {
    for (const buckets of grids)
      for (const tags of [{ host: "*" }, {}] as const) await verify("overtaken", measure, buckets, tags);
  });

  test("reads a day of twelve series in slices", { timeout: 150_000 }, async () => {
    const buckets = { start: base - 24 * hour, step: hour, count: 24 };
    for (const measure of [count, mean, p90]) await verify("many", measure, buckets, {});
  });
});
