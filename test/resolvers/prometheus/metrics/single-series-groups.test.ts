// Gauges whose groups seem to have one series each are read without aggregation, and with it if that was wrong.
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Measure } from "#src/core/rows.ts";
import type { Backend } from "#src/store/backend.ts";
import {
  buildMatrix,
  buildSeriesQuery,
  type FakePrometheus,
  openFakePrometheus,
} from "../../../support/prometheus/scripted-server.ts";
import { sendJson } from "../../../support/scripted-http-source.ts";

const { buckets } = buildSeriesQuery();
const toSeconds = (bucket: number) => (buckets.start + (bucket + 1) * buckets.step) / 1_000;
let signal: AbortSignal;
beforeEach(() => {
  // A signal per test: the file may be loaded long before its tests run.
  signal = new AbortController().signal;
});

let fake: FakePrometheus | undefined;
let backend: Backend | undefined;
afterEach(async () => {
  await backend?.close();
  await fake?.close();
});

interface ScriptedCounts {
  /** How many series the count finds. */
  readonly series: number;
  /** The same with those that lack the tag; by default as many. */
  readonly all?: number;
  readonly groups: number;
  /** The answer without aggregation: series or an error status. */
  readonly plain: readonly object[] | number;
}

async function serve({ series, all = series, groups, plain }: ScriptedCounts): Promise<FakePrometheus> {
  const counted = (size: number) => buildMatrix([{ metric: {}, values: [[toSeconds(0), String(size)]] }]);
  const whole = buildMatrix([{ metric: { host: "x" }, values: [[toSeconds(0), "7"]] }]);
  fake = await openFakePrometheus({
    answer: (form, response) => {
      const query = form.get("query") ?? "";
      if (query.startsWith("count(group")) sendJson(response, counted(groups));
      else if (query.startsWith("count(")) sendJson(response, counted(query.includes('!=""') ? series : all));
      else if (/by \(host\)/.test(query)) sendJson(response, whole);
      else if (typeof plain === "number") sendJson(response, { status: "error" }, plain);
      else sendJson(response, buildMatrix(plain));
    },
  });
  backend = fake.open();
  return fake;
}

const readSeries = (measure: Measure = { of: "samples", combine: "last" }, pointLimit = 6) =>
  backend?.stores.metrics?.series(buildSeriesQuery({ measure, pointLimit }), signal);
const aggregated = [{ tags: { host: "x" }, values: Float64Array.of(7, Number.NaN, Number.NaN) }];
const buildSeries = (host: string, job: string, value: string) => ({
  metric: { __name__: "g", host, job },
  values: [[toSeconds(1), value]],
});

test.each(["last", "mean", "sum", "min", "max", "count"] as const)(
  "reads the %s of single-series groups without aggregation",
  async (combine) => {
    const source = await serve({
      series: 2,
      groups: 2,
      plain: [buildSeries("b", "1", "5"), buildSeries("a", "2", "3.5")],
    });
    expect(await readSeries({ of: "samples", combine })).toEqual([
      { tags: { host: "a" }, values: Float64Array.of(Number.NaN, 3.5, Number.NaN) },
      { tags: { host: "b" }, values: Float64Array.of(Number.NaN, 5, Number.NaN) },
    ]);
    expect(source.queries.filter(({ query }) => !query.startsWith("count(") && / by /.test(query))).toEqual(
      [],
    );
  },
);

test("aggregates groups of several series at the source", async () => {
  const source = await serve({ series: 3, groups: 2, plain: 500 });
  expect(await readSeries()).toEqual(aggregated);
  // Counts of groups, series, and series that may lack the tag.
  expect(source.queries).toHaveLength(4);
});

test("keeps the presence matcher while some series lack the tag", async () => {
  const source = await serve({
    series: 2,
    all: 3,
    groups: 2,
    plain: [buildSeries("a", "1", "5"), buildSeries("b", "2", "3")],
  });
  expect(await readSeries()).toHaveLength(2);
  const [sent] = source.queries.filter(({ query }) => query.startsWith("last_over_time"));
  expect(sent?.query).toContain('host!=""');
});

test("drops series without the tag that appeared after the count, numbers and histograms", async () => {
  const plain = [
    buildSeries("a", "1", "5"),
    buildSeries("", "2", "3"),
    { metric: { __name__: "g" }, histograms: [] },
  ];
  const histogram = {
    metric: { job: "3" },
    histograms: [[toSeconds(0), { count: "1", sum: "1", buckets: [] }]],
  };
  const source = await serve({ series: 1, groups: 1, plain: [...plain, histogram] });
  expect(await readSeries()).toEqual([
    { tags: { host: "a" }, values: Float64Array.of(Number.NaN, 5, Number.NaN) },
  ]);
  const [sent] = source.queries.filter(({ query }) => query.startsWith("last_over_time"));
  expect(sent?.query).not.toContain("host");
});

test.each<[string, ScriptedCounts["plain"]]>([
  ["a group with a series that no count saw", [buildSeries("x", "1", "5"), buildSeries("x", "2", "3")]],
  ["more series than the limit of points allows", ["a", "b", "c"].map((host) => buildSeries(host, "1", "1"))],
  ["a rejected query", 422],
])("falls back to aggregation after %s, and remembers it", async (_, plain) => {
  const source = await serve({ series: 2, groups: 2, plain });
  for (let times = 0; times < 2; times++) expect(await readSeries()).toEqual(aggregated);
  expect(source.queries.filter(({ query }) => query.startsWith("last_over_time"))).toHaveLength(1);
});

test("does not fall back after a failure of the source", async () => {
  await serve({ series: 2, groups: 2, plain: 504 });
  await expect(readSeries()).rejects.toMatchObject({ failure: "timeout" });
});

describe("quantiles", () => {
  const quantile: Measure = { of: "samples", combine: "quantile", quantile: 0.9 };
  const raw = (
    host: string,
    job: string,
    samples: readonly (readonly [offset: number, value: string])[],
  ) => ({
    metric: { __name__: "g", host, job },
    values: samples.map(([offset, value]) => [(buckets.start + offset) / 1_000, value]),
  });

  interface ScriptedQuantiles {
    readonly series: number;
    readonly groups: number;
    /** What the source computes of each series. */
    readonly quantiles: readonly object[] | number;
    readonly marks?: readonly object[];
    readonly samples?: readonly ReturnType<typeof raw>[];
  }

  async function serveQuantiles(script: ScriptedQuantiles): Promise<FakePrometheus> {
    const { quantiles, marks = [], samples = [] } = script;
    const counted = (size: number) => buildMatrix([{ metric: {}, values: [[toSeconds(0), String(size)]] }]);
    fake = await openFakePrometheus({
      answer: (form, response) => {
        const query = form.get("query") ?? "";
        const count = samples.reduce((sum, { values }) => sum + values.length, 0);
        if (query.startsWith("count(group")) sendJson(response, counted(script.groups));
        else if (query.startsWith("count(")) sendJson(response, counted(script.series));
        else if (query.startsWith("sum(count_over_time"))
          sendJson(response, buildMatrix([{ metric: {}, values: [[toSeconds(2), String(count)]] }]));
        else if (query.startsWith("quantile_over_time") && typeof quantiles === "number")
          sendJson(response, { status: "error" }, quantiles);
        else if (query.startsWith("quantile_over_time"))
          sendJson(response, buildMatrix(typeof quantiles === "number" ? [] : quantiles));
        else if (query.includes("max by (host)")) sendJson(response, buildMatrix(marks));
        else sendJson(response, buildMatrix(samples));
      },
    });
    backend = fake.open();
    return fake;
  }

  const listRaw = (source: FakePrometheus) =>
    source.queries.map(({ query }) => query).filter((query) => /^\{[^(]*\]( offset 1ms)?$/.test(query));

  test("are those of the source where each group has one series", async () => {
    const source = await serveQuantiles({
      series: 2,
      groups: 2,
      quantiles: [buildSeries("b", "1", "5"), buildSeries("a", "2", "3.5")],
    });
    expect(await readSeries(quantile, 100)).toEqual([
      { tags: { host: "a" }, values: Float64Array.of(Number.NaN, 3.5, Number.NaN) },
      { tags: { host: "b" }, values: Float64Array.of(Number.NaN, 5, Number.NaN) },
    ]);
    expect(listRaw(source)).toEqual([]);
  });

  test("are computed from samples in buckets that two series of a group share", async () => {
    const source = await serveQuantiles({
      series: 2,
      groups: 2,
      quantiles: [
        buildSeries("a", "1", "1"),
        buildSeries("a", "2", "2"),
        { metric: { host: "b", job: "3" }, values: [0, 1, 2].map((bucket) => [toSeconds(bucket), "7"]) },
      ],
      samples: [raw("a", "1", [[60_000, "1"]]), raw("a", "2", [[90_000, "2"]])],
    });
    expect(await readSeries(quantile, 100)).toEqual([
      { tags: { host: "a" }, values: Float64Array.of(Number.NaN, 1.9, Number.NaN) },
      { tags: { host: "b" }, values: Float64Array.of(7, 7, 7) },
    ]);
    const [only, ...others] = listRaw(source);
    expect(only).toContain('host="a"');
    expect(others).toEqual([]);
  });

  test("are computed from samples in buckets with a value that is not finite", async () => {
    await serveQuantiles({
      series: 1,
      groups: 1,
      quantiles: [buildSeries("a", "1", "4")],
      marks: [{ metric: { host: "a" }, values: [[toSeconds(1), "NaN"]] }],
      samples: [
        raw("a", "1", [
          [60_000, "NaN"],
          [75_000, "5"],
          [90_000, "5"],
        ]),
      ],
    });
    expect(await readSeries(quantile, 100)).toEqual([
      { tags: { host: "a" }, values: Float64Array.of(Number.NaN, 5, Number.NaN) },
    ]);
  });

  test.each<[string, Pick<ScriptedQuantiles, "series" | "groups" | "quantiles">]>([
    ["groups have several series", { series: 3, groups: 2, quantiles: 500 }],
    ["the source rejects the query", { series: 2, groups: 2, quantiles: 422 }],
    [
      "groups turn out to have several series",
      { series: 1, groups: 1, quantiles: [buildSeries("a", "1", "1"), buildSeries("a", "2", "2")] },
    ],
  ])("are computed from all samples where %s", async (_, script) => {
    await serveQuantiles({ ...script, samples: [raw("a", "1", [[0, "1"]]), raw("a", "2", [[30_000, "2"]])] });
    expect(await readSeries(quantile, 100)).toEqual([
      { tags: { host: "a" }, values: Float64Array.of(1.9, Number.NaN, Number.NaN) },
    ]);
  });
});
