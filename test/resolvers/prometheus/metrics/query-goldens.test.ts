// The requests for every measure of every shape, to servers of both range edges, and the forced labels in all of them.
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Measure } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { toSingleBucket } from "#src/metrics/measures.ts";
import type { Backend } from "#src/store/backend.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import { sampleRuns } from "../../../support/law-runs.ts";
import { recordExchange } from "../../../support/prometheus/recording-proxy.ts";
import {
  buildMatrix,
  buildSeriesQuery,
  type FakePrometheus,
  openFakePrometheus,
} from "../../../support/prometheus/scripted-server.ts";
import { sendJson } from "../../../support/scripted-http-source.ts";

let signal: AbortSignal;
beforeEach(() => {
  // A signal per test: the file may be loaded long before its tests run.
  signal = new AbortController().signal;
});
const metrics = {
  g: "gauge",
  c_total: "counter",
  h_bucket: "x",
  h_sum: "x",
  h_count: "x",
  s_sum: "x",
  s_count: "x",
};
const shapes: Readonly<Record<string, readonly Measure[]>> = {
  g: [
    ...(["first", "last", "mean", "sum", "min", "max", "count"] as const).map(
      (combine): Measure => ({ of: "samples", combine }),
    ),
    { of: "samples", combine: "quantile", quantile: 0.9 },
  ],
  c_total: [
    { of: "increment" },
    ...(["first", "last", "mean", "min", "max"] as const).map(
      (combine): Measure => ({ of: "cumulative", combine }),
    ),
  ],
  h: [
    ...(["count", "mean", "min", "max"] as const).map(
      (combine): Measure => ({ of: "observations", combine }),
    ),
    { of: "observations", combine: "quantile", quantile: 0.95 },
  ],
  s: [
    { of: "observations", combine: "mean" },
    { of: "observations", combine: "quantile", quantile: 0.9 },
  ],
};

let fake: FakePrometheus | undefined;
let backend: Backend | undefined;
afterEach(async () => {
  await backend?.close();
  await fake?.close();
});

const formatMeasure = (measure: Measure) => Object.values(measure).join(" ");

test.each(["closed", "open"] as const)(
  "sends the golden queries for every measure, left edge %s",
  async (edge) => {
    fake = await openFakePrometheus({ edge, metrics });
    backend = fake.open();
    const lines: string[] = [];
    for (const [metric, measures] of Object.entries(shapes)) {
      for (const measure of measures) {
        fake.queries.length = 0;
        await backend.stores.metrics?.series(
          buildSeriesQuery({ metric, measure, tags: { host: "*", path: "/a.*" } }),
          signal,
        );
        const sent = fake.queries.map(({ query, form }) => {
          const [time, start, end, step] = ["time", "start", "end", "step"].map((key) => form.get(key));
          return `  ${time ?? `${start} … ${end} every ${step}`}  ${query}`;
        });
        lines.push(`${metric}: ${formatMeasure(measure)}`, ...sent.sort());
      }
    }
    await expect(`${lines.join("\n")}\n`).toMatchFileSnapshot(`plans.${edge}.txt`);
  },
);

describe("forced labels", () => {
  const hostile = fc.oneof(
    fc.string({ unit: "binary", maxLength: 8 }),
    fc.constantFrom('x"} or g{a="', "*", "a*", "\\", "\n", ".*", "site", "__name__", "le", "b"),
  );
  const measure = fc.constantFrom(
    ...Object.entries(shapes).flatMap(([metric, all]) => all.map((one) => ({ metric, one }))),
  );

  // The answers have new series, restarts, gaps and non-finite numbers, so that every path is taken.
  test("are in every selector, for random tags, values and responses", {
    timeout: 30_000,
  }, async () => {
    let turn = 0;
    fake = await openFakePrometheus({
      metrics,
      answer(form, response) {
        const query = form.get("query") ?? "";
        const [at, start] = [Number(form.get("time")), Number(form.get("start"))];
        if (query.startsWith("sum(count_over_time")) {
          return sendJson(response, buildMatrix([{ metric: {}, values: [[at, "6"]] }]));
        }
        if (query.startsWith("count(") || turn++ % 5 === 4) return false;
        const values = ["3", "NaN", "5", "+Inf", "1"];
        const series = ["x", 'y"', "z\n"].map((host, n) => ({
          metric: { host, le: ["1", "+Inf", "0.5"][n] },
          values: form.has("time")
            ? [[at, values[turn % 5]]]
            : Array.from({ length: Math.round((Number(form.get("end")) - start) / 60) + 1 }, (_, i) => [
                start + i * 60,
                values[(i + n + turn) % 5],
              ]),
        }));
        return sendJson(response, buildMatrix(series));
      },
    });
    backend = fake.open();
    const store = backend.stores.metrics;
    await fc.assert(
      fc.asyncProperty(measure, hostile, hostile, hostile, async ({ metric, one }, tenant, key, value) => {
        fc.pre(tenant.isWellFormed());
        if (fake) fake.requests.length = 0;
        const tags = Object.fromEntries([[key, value]]);
        const query: SeriesQuery = buildSeriesQuery({ match: { site: tenant }, metric, measure: one, tags });
        await store
          ?.series(query, signal)
          .catch((error: unknown) => expect(error).toMatchObject({ slug: expect.any(String) }));
        const sent = { selectors: [], metadata: new Set<string>(), strange: [] };
        for (const { path, body } of fake?.requests ?? []) recordExchange(sent, path, body);
        expect(sent.strange).toEqual([]);
        for (const matchers of sent.selectors) {
          expect(matchers).toContainEqual({ label: "site", operator: "=", value: tenant });
        }
        expect(
          [...sent.metadata].every((name) =>
            ["g", "c_total", "c", "h", "s", "s_count", "s_sum"].includes(name),
          ),
        ).toBe(true);
      }),
      { numRuns: sampleRuns(40) },
    );
  });
});

describe("the starts of 250 series", () => {
  test("are looked up in chunks, for these series only", async () => {
    fake = await openFakePrometheus({
      metrics,
      answer(form, response) {
        if (!form.get("query")?.startsWith("last_over_time") || !form.has("end")) return false;
        const hosts = Array.from({ length: 250 }, (_, n) => `new${n}`);
        const values = [[Number(form.get("end")), "6"]];
        return sendJson(response, buildMatrix(hosts.map((host) => ({ metric: { host }, values }))));
      },
    });
    backend = fake.open();
    await backend.stores.metrics?.series(
      buildSeriesQuery({ metric: "c_total", measure: { of: "increment" } }),
      signal,
    );
    const past = fake.queries.filter(({ query }) => /^last_over_time.*new/.test(query));
    const named = past.flatMap(({ query }) => [...query.matchAll(/new\d+/g)].map(([host]) => host));
    expect(past).toHaveLength(3);
    expect(new Set(named).size).toBe(250);
  });
});

describe("ranges of centuries", () => {
  const everything = toSingleBucket({ from: fromMillis(Date.UTC(1, 0)), to: fromMillis(Date.UTC(9_999, 0)) });
  const day = 86_400_000;
  test.each([
    ["all time", everything],
    ["days of sixteen centuries", { start: Date.UTC(500, 0), step: day, count: 590_000 }],
    ["days from before 1970", { start: Date.UTC(1_960, 0), step: day, count: 30_000 }],
  ] as const)("%s: sends no range or step beyond 64-bit nanoseconds", async (_, buckets) => {
    if (buckets === undefined) throw new Error("no window");
    const last = buckets.start + buckets.step * buckets.count;
    fake = await openFakePrometheus({
      metrics,
      // A series only at the end of the range, so that its start is looked up.
      answer(form, response) {
        const [at, end] = [Number(form.get("time")), Number(form.get("end"))];
        if (Math.max(at, end) * 1_000 < last) return false;
        const values = [[Math.max(at, end), "6"]];
        return sendJson(response, buildMatrix([{ metric: { host: "x", le: "1" }, values }]));
      },
    });
    backend = fake.open();
    for (const [metric, measure] of [
      ["g", { of: "samples", combine: "quantile", quantile: 0.9 }],
      ["c_total", { of: "increment" }],
      ["c_total", { of: "cumulative", combine: "mean" }],
    ] as const) {
      const query = buildSeriesQuery({ metric, measure, buckets, pointLimit: 50_000_000 });
      await backend.stores.metrics?.series(query, signal);
    }
    const lengths = fake.queries.flatMap(({ query, form }) => [
      ...[...query.matchAll(/\[(-?[\dms]*)\]/g)].map(([, text = ""]) => text),
      ...form.getAll("step"),
    ]);
    expect(lengths.length).toBeGreaterThan(5);
    const strange = lengths.filter((text) => {
      const [, seconds = "0", millis = "0"] = /^(?:(\d+)s)?(?:(\d+)ms)?$/.exec(text) ?? [];
      const nanos = BigInt(seconds) * 1_000_000_000n + BigInt(millis) * 1_000_000n;
      return nanos <= 0n || nanos >= 2n ** 63n;
    });
    expect(strange).toEqual([]);
    // With a later end Prometheus returns an empty success.
    const ends = fake.queries.map(({ form }) => Number(form.get("end") ?? form.get("time")));
    expect(Math.max(...ends)).toBeLessThan(2 ** 63 / 1e9);
  });
});

describe("a range of more points than one query may return", () => {
  test("is split into queries whose results are joined", async () => {
    const seconds: number[] = [];
    fake = await openFakePrometheus({
      metrics,
      answer(form, response) {
        if (!form.get("query")?.startsWith("avg")) return false;
        const [start, end] = [
          Number(form.get("start") ?? form.get("time")),
          Number(form.get("end") ?? form.get("time")),
        ];
        const values = Array.from({ length: (end - start) / 60 + 1 }, (_, n) => [
          start + n * 60,
          String(start + n * 60),
        ]);
        seconds.push(values.length);
        return sendJson(response, buildMatrix([{ metric: { host: "x" }, values }]));
      },
    });
    backend = fake.open();
    const { start } = buildSeriesQuery().buckets;
    const buckets = { start, step: 60_000, count: 30_001 };
    const [series] =
      (await backend.stores.metrics?.series(buildSeriesQuery({ buckets, pointLimit: 40_000 }), signal)) ?? [];
    expect(seconds.sort((a, b) => b - a)).toEqual([10_000, 10_000, 10_000, 1]);
    const expected = Float64Array.from({ length: 30_001 }, (_, bucket) => start / 1_000 + (bucket + 1) * 60);
    expect(series?.values).toEqual(expected);
  });
});
