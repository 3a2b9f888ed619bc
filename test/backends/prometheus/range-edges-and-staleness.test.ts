// What only a running Prometheus shows: the edge of its ranges, native histograms and staleness markers, which come by
// remote write, and ranges of more points than it returns.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Measure } from "#src/core/rows.ts";
import { fromMillis, now } from "#src/core/time.ts";
import type { Backend } from "#src/store/backend.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import { type RunningPrometheus, startPrometheus } from "../../servers/prometheus.ts";
import { testIO } from "../../support/io.ts";
import { sendRemoteWrite, type WrittenHistogram } from "../../support/prometheus/remote-write.ts";
import { namedPrometheus } from "../selected-servers.ts";

const signal = new AbortController().signal;
const minute = 60_000;
const base = Date.UTC(2026, 0, 15, 10);
/** A sample every seven minutes, on the full minute. */
const sparse = Array.from(
  { length: 3_000 },
  (_, n) => [base - 15 * 24 * 60 * minute + n * 7 * minute, n] as const,
);

/** Observations of a process that restarts before the 25th of 50 scrapes. */
const scrapes = Array.from({ length: 50 }, (_, n) => ({
  millis: base + n * 15_000 + 200,
  observed: Array.from({ length: n % 4 }, (_, i) => ((n * 7 + i * 13) % 60) / 4 + 0.3),
  restarted: n === 25,
}));

describe.each(namedPrometheus())("$name", ({ name, version }) => {
  let server: RunningPrometheus;
  let backend: Backend;
  beforeAll(async () => {
    const lines = sparse.map(([time, value]) => `sparse{site="a"} ${value} ${(time + 0.5) / 1_000}`);
    server = await startPrometheus(name, ["# TYPE sparse gauge", ...lines, "# EOF", ""].join("\n"));
    backend = prometheus.create("prom", prometheus.parseConfig({ url: server.url }), testIO);
    await sendRemoteWrite(server.url, [
      { labels: { __name__: "up", site: "scraped", host: "x" }, samples: [[base + 60_250, 1]] },
      { labels: { __name__: "up", site: "scraped", host: "dead" }, samples: [[base + 61_000, 0]] },
      { labels: { __name__: "target_info", site: "scraped" }, samples: [[base + 62_000, 1]] },
      { labels: { __name__: "target_info", site: "pushed" }, samples: [[base + 62_000, 1]] },
      { labels: { __name__: "kube_pod_info", site: "pods", pod: "a" }, samples: [[base + 60_000, 1]] },
      { labels: { __name__: "kube_pod_info", site: "pods", pod: "b" }, samples: [[base + 63_000, 1]] },
      { labels: { __name__: "kube_node_info", site: "pods" }, samples: [[base + 64_000, 1]] },
      { labels: { __name__: "node_uname_info", site: "nodes" }, samples: [[base + 65_000, 1]] },
      { labels: { __name__: "native", site: "a", host: "x" }, histograms: buildNativeHistograms() },
      {
        labels: { __name__: "blinks_total", site: "a" },
        samples: [
          [base - minute, 4],
          [base - minute + 5_000, "stale"],
          [base + 1_000, 5],
          [base + 2_000, "stale"],
          [base + 90_000, 9],
          [base + 150_000, 2],
          [base + 151_000, "stale"],
        ],
      },
    ]);
  });
  afterAll(async () => {
    await backend?.close();
    await server?.stop();
  });

  const read = (over: Partial<SeriesQuery> & Pick<SeriesQuery, "metric" | "measure">) =>
    backend.stores.metrics?.series(
      {
        match: { site: "a" },
        tags: {},
        buckets: { start: base, step: minute, count: 13 },
        lookBack: 24 * 60 * minute,
        pointLimit: 100_000,
        ...over,
      },
      signal,
    );

  test("tells its time", async () => {
    const before = now();
    const time = await backend.readClock?.(signal);
    expect(time).toBeGreaterThanOrEqual(before - 1_000_000n);
    expect(time).toBeLessThanOrEqual(now() + 1_000_000n);
  });

  test("tells when a target of a site was scraped, or has pushed, for the last time", async () => {
    const ask = async (site: string, now: number) => {
      const io = { ...testIO, now: () => fromMillis(now) };
      const own = prometheus.create("prom", prometheus.parseConfig({ url: server.url }), io);
      const newest = await own.findNewest?.metrics?.({ site }, signal);
      await own.close();
      return newest;
    };
    expect(await ask("scraped", base + 90_000)).toBe(fromMillis(base + 60_250));
    expect(await ask("pushed", base + 90_000)).toBe(fromMillis(base + 62_000));
    expect(await ask("scraped", base + 400_000)).toBeUndefined();
    expect(await ask("nobody", base + 90_000)).toBeUndefined();
  });

  test("tells when pods, or without any nodes, were seen for the last time", async () => {
    const io = { ...testIO, now: () => fromMillis(base + 90_000) };
    const own = prometheus.create("prom", prometheus.parseConfig({ url: server.url }), io);
    const ask = (site: string) => own.findNewest?.kubernetes?.({ site }, signal);
    expect(await ask("pods")).toBe(fromMillis(base + 63_000));
    expect(await ask("nodes")).toBe(fromMillis(base + 65_000));
    expect(await ask("pushed")).toBeUndefined();
    await own.close();
  });

  test("reports its version, and has that version's range edge", async () => {
    const info = await backend.probe(signal);
    expect(info.product).toBe("Prometheus");
    expect(info.version).toContain(version);
    const report = await backend.inspections.metrics?.({ site: "a" }, signal);
    expect(report?.problems).toEqual([]);
    expect(report?.found[0]).toMatch(/^3 metrics/);
    expect(report?.found[1]).toMatch(name === "prom2" ? /closed/ : /left-open/);
    const none = await backend.inspections.metrics?.({ site: "nobody" }, signal);
    expect(none?.problems).toEqual(['no series has the labels {site="nobody"}']);
  });

  test("reads 16,000 buckets with exactly one sample each", async () => {
    const start = base - 11 * 24 * 60 * minute;
    const buckets = { start, step: minute, count: 16_000 };
    const [found] =
      (await read({ metric: "sparse", measure: { of: "samples", combine: "sum" }, buckets })) ?? [];
    const expected = new Float64Array(buckets.count).fill(Number.NaN);
    for (const [time, value] of sparse) {
      const bucket = (time - start) / minute;
      if (bucket >= 0 && bucket < buckets.count) expected[bucket] = value;
    }
    expect(found?.values).toEqual(expected);
  });

  test("takes a staleness marker for neither a sample nor a restart", async () => {
    const buckets = { start: base, step: minute, count: 4 };
    const [grown] = (await read({ metric: "blinks_total", measure: { of: "increment" }, buckets })) ?? [];
    expect([...(grown?.values ?? [])]).toEqual([1, 4, 2, Number.NaN]);
    const [last] =
      (await read({ metric: "blinks_total", measure: { of: "samples", combine: "last" }, buckets })) ?? [];
    expect([...(last?.values ?? [])]).toEqual([5, 9, 2, Number.NaN]);
  });

  describe("a native histogram", () => {
    const bucketOf = (millis: number) => Math.floor((millis - base) / minute);
    const observedIn = (bucket: number) =>
      scrapes
        .filter(({ millis }, n) => n > 0 && bucketOf(millis) === bucket)
        .flatMap(({ observed }) => observed);

    test("has the type measurement and its tags", async () => {
      const store = backend.stores.metrics;
      expect(await store?.type({ site: "a" }, "native", signal)).toBe("measurement");
      expect(await store?.tagKeys({ site: "a" }, "native", signal)).toEqual([["host"]]);
    });

    // The first scrape begins the metric, so its growth is 0.
    const table: readonly (readonly [string, Measure, (observed: readonly number[]) => number])[] = [
      ["count", { of: "observations", combine: "count" }, (all) => all.length],
      [
        "mean",
        { of: "observations", combine: "mean" },
        (all) => all.reduce((sum, one) => sum + one, 0) / all.length,
      ],
      [
        "least",
        { of: "observations", combine: "min" },
        (all) => 2 ** Math.ceil(Math.log2(Math.min(...all)) - 1),
      ],
      [
        "greatest",
        { of: "observations", combine: "max" },
        (all) => 2 ** Math.ceil(Math.log2(Math.max(...all))),
      ],
      [
        "90th percentile",
        { of: "observations", combine: "quantile", quantile: 0.9 },
        (all) => interpolate(all, 0.9),
      ],
    ];
    test.each(table)("%s", async (_name, measure, expectedOf) => {
      const [found] = (await read({ metric: "native", measure, tags: { host: "*" } })) ?? [];
      expect(found?.tags).toEqual({ host: "x" });
      const expected = Array.from({ length: 13 }, (_, bucket) => expectedOf(observedIn(bucket)));
      for (const [bucket, value] of expected.entries()) {
        expect(found?.values[bucket], `bucket ${bucket}`).toBeCloseTo(value, 9);
      }
    });

    /** Interpolated in the power-of-two bucket that has the rank. */
    function interpolate(all: readonly number[], quantile: number): number {
      const rank = quantile * all.length;
      for (let exponent = -4; ; exponent++) {
        const below = all.filter((one) => one <= 2 ** (exponent - 1)).length;
        const within = all.filter((one) => one <= 2 ** exponent).length;
        if (within >= rank) return 2 ** (exponent - 1) * (1 + (rank - below) / (within - below));
      }
    }
  });
});

function buildNativeHistograms(): readonly WrittenHistogram[] {
  let all: number[] = [];
  return scrapes.map(({ millis, observed, restarted }) => {
    if (restarted) all = [];
    all = [...all, ...observed];
    const counts = Array.from({ length: 8 }, (_, index) => {
      const upper = 2 ** (index - 2);
      return all.filter((one) => one > upper / 2 && one <= upper).length;
    });
    return { millis, sum: all.reduce((sum, one) => sum + one, 0), first: -2, counts };
  });
}
