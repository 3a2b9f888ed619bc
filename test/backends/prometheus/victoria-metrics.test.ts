// What VictoriaMetrics cannot hold or say. Each excuse is asked for nevertheless, and has to fail in the way that it says,
// so that one which is no longer true shows. Everything else it answers as the conformance suites demand.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Measure } from "#src/core/rows.ts";
import { now } from "#src/core/time.ts";
import type { Backend } from "#src/store/backend.ts";
import { base, minute, second } from "../../conformance/metrics/fixture.ts";
import { startVictoriaMetrics } from "../../servers/victoria-metrics.ts";
import { testIO } from "../../support/io.ts";
import { sendRemoteWrite, type WrittenSeries } from "../../support/prometheus/remote-write.ts";
import { namedMetricServers } from "../selected-servers.ts";
import { type FilledServer, startEmpty } from "./filled-server.ts";

const signal = new AbortController().signal;

interface Excuse {
  readonly reason: string;
  readonly series: WrittenSeries;
  readonly tags?: Readonly<Record<string, string>>;
  readonly measure: Measure;
  /** What the definition demands of the minute. */
  readonly wanted: number;
  /** What comes instead: another number, or a refusal. */
  readonly found: number | "not_supported_by_backend";
}

const label = (name: string, more = {}) => ({ __name__: name, site: "a", ...more });
const last: Measure = { of: "samples", combine: "last" };

const excuses: readonly Excuse[] = [
  {
    reason: "it keeps decimal digits, about 15 of them",
    series: { labels: label("digits"), samples: [[base, 0.1 + 0.2]] },
    measure: last,
    wanted: 0.1 + 0.2,
    found: 0.3,
  },
  {
    reason: "`resets` takes a fall in the 13th digit for an error of rounding",
    series: {
      labels: label("large_total"),
      samples: [1e13, 1e13 + 1, 1e13, 1e13 + 2].map((value, n) => [
        base - 10 * second + n * 15 * second,
        value,
      ]),
    },
    measure: { of: "increment" },
    wanted: 1 + 1e13 + 2,
    found: 2,
  },
  {
    reason: "it has no syntax for a quote in the names of labels to group by",
    series: { labels: label("quoted", { "'": "x" }), samples: [[base, 1]] },
    tags: { "'": "*" },
    measure: last,
    wanted: 1,
    found: "not_supported_by_backend",
  },
  {
    reason: "it keeps native histograms as ranges of values (`vmrange`) instead of bounds",
    series: {
      labels: label("native"),
      histograms: [0, 1].map((n) => ({
        millis: base + n * 15 * second,
        sum: 3 + n,
        first: 1,
        counts: [2 + n],
      })),
    },
    measure: { of: "observations", combine: "max" },
    wanted: 2,
    found: "not_supported_by_backend",
  },
];

/** Two series with infinities of both signs in one minute. */
const swinging = [1, Number.POSITIVE_INFINITY, 5, Number.NEGATIVE_INFINITY, 9].map(
  (value, n) => [base + n * 10 * second, value] as const,
);
const swingingSeries: readonly WrittenSeries[] = [
  { labels: label("swinging", { n: "1" }), samples: swinging },
  {
    labels: label("swinging", { n: "2" }),
    samples: swinging.slice(0, 4).map(([time, value]) => [time, -value] as const),
  },
];

const servers = namedMetricServers().filter(({ name }) => name === "vm");

describe.each(servers)("$name $version", (named) => {
  let server: FilledServer;
  let backend: Backend;
  beforeAll(async () => {
    server = await startEmpty(named);
    await sendRemoteWrite(server.url, [...excuses.map(({ series }) => series), ...swingingSeries]);
    await server.flush?.();
    backend = prometheus.create("prom", prometheus.parseConfig({ url: server.url }), testIO);
  });
  afterAll(async () => {
    await backend?.close();
    await server?.stop();
  });

  test.each(excuses.map((one) => [one.reason, one] as const))(
    "%s",
    async (_, { series, tags = {}, measure, wanted, found }) => {
      const buckets = { start: base, step: minute, count: 1 };
      const query = { metric: series.labels.__name__ ?? "", match: { site: "a" }, tags, measure, buckets };
      const answer = backend.stores.metrics?.series({ ...query, lookBack: minute, pointLimit: 10 }, signal);
      if (typeof found === "string") await expect(answer).rejects.toMatchObject({ slug: found });
      else {
        expect((await answer)?.map(({ values }) => [...values])).toEqual([[found]]);
        expect(found).not.toBe(wanted);
      }
    },
  );

  test("tells its time", async () => {
    const before = now();
    const time = await backend.readClock?.(signal);
    // In whole seconds.
    expect(time).toBeGreaterThan(before - 1_000_000_000n);
    expect(time).toBeLessThanOrEqual(now() + 1_000_000n);
  });

  test("answers the last seconds as they are, where the server would repeat older values", async () => {
    const flags = ["-search.maxStepForPointsAdjustment=1h", "-search.latencyOffset=10m"];
    const repeating = await startVictoriaMetrics(signal, flags);
    const start = Date.now() - 5 * minute;
    const samples = [1, 2, 4, 8, 16].map((value, n) => [start + n * minute + 30 * second, value] as const);
    await sendRemoteWrite(repeating.url, [{ labels: label("recent"), samples }]);
    await repeating.flush();
    const asking = prometheus.create("prom", prometheus.parseConfig({ url: repeating.url }), testIO);
    const buckets = { start, step: minute, count: 5 };
    const query = { metric: "recent", match: { site: "a" }, tags: {}, measure: last, buckets };
    const found = await asking.stores.metrics?.series({ ...query, lookBack: minute, pointLimit: 10 }, signal);
    expect(found?.map(({ values }) => [...values])).toEqual([[1, 2, 4, 8, 16]]);
    await asking.close();
    await repeating.stop();
  });

  test("loses no value of infinities, nor answers times before 1970 with others", async () => {
    const ask = async (combine: "sum" | "mean" | "count" | "last", start: number) => {
      const buckets = { start, step: minute, count: 1 };
      const measure = { of: "samples", combine } as const;
      const query = { metric: "swinging", match: { site: "a" }, tags: {}, measure, buckets };
      const found = await backend.stores.metrics?.series(
        { ...query, lookBack: minute, pointLimit: 10 },
        signal,
      );
      return found?.map((one) => one.values[0]);
    };
    expect(await ask("sum", base)).toEqual([9]);
    expect(await ask("mean", base)).toEqual([9 / 5]);
    expect(await ask("count", base)).toEqual([5]);
    expect(await ask("last", base)).toEqual([2]);
    // To it a negative time is one before now.
    expect(await ask("sum", base - Date.now() - minute)).toEqual([]);
  });
});
