// Histograms and summaries that lack a part: no sum (OpenTelemetry), buckets alone (VictoriaMetrics' own metrics of Go), ranges
// instead of bounds. And the labels `le` and `quantile` on metrics that are neither.
import { afterEach, describe, expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Measure } from "#src/core/rows.ts";
import type { Backend } from "#src/store/backend.ts";
import { testIO } from "../../../support/io.ts";
import { openFakeServer } from "../../../support/prometheus/fake-thanos.ts";
import type { ScriptedSource } from "../../../support/scripted-http-source.ts";

const minute = 60_000;
const base = Date.UTC(2026, 0, 15, 10);
const times = Array.from({ length: 24 }, (_, n) => base - minute + n * 15_000 + 200);
type Labels = Readonly<Record<string, string>>;

/** A series that grows by `each` from scrape to scrape. */
const grow = (name: string, each: number, labels: Labels = {}) => ({
  labels: { __name__: name, ...labels } as Labels,
  samples: times.map((time, n) => [time, n * each] as const),
});
const hold = (name: string, value: number, labels: Labels = {}) => ({
  labels: { __name__: name, ...labels },
  samples: times.map((time) => [time, value] as const),
});
/** Each scrape finds 10 observations: 4 up to 1, 5 more up to 2, and one above. */
const buckets = (name: string, labels: Labels = {}) =>
  [
    ["1", 4],
    ["2", 9],
    ["+Inf", 10],
  ].map(([le, each]) => grow(`${name}_bucket`, Number(each), { ...labels, le: String(le) }));

let source: ScriptedSource | undefined;
let backend: Backend | undefined;
afterEach(async () => {
  await backend?.close();
  await source?.close();
});

async function openStore(series: Parameters<typeof openFakeServer>[0]) {
  source = await openFakeServer(series);
  backend = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), testIO);
  const store = backend.stores.metrics;
  if (store === undefined) throw new Error("no metric store");
  const signal = new AbortController().signal;
  return {
    names: () => store.names({}, signal),
    type: (metric: string) => store.type({}, metric, signal),
    tagKeys: (metric: string) => store.tagKeys({}, metric, signal),
    /** The values of two minutes by the values of the tags. */
    async read(metric: string, measure: Measure, tags: Labels = {}) {
      const query = { match: {}, metric, tags, measure, lookBack: 1_440 * minute, pointLimit: 1_000 };
      const found = await store.series(
        { ...query, buckets: { start: base, step: minute, count: 2 } },
        signal,
      );
      return found.map((one) => [...Object.values(one.tags), ...one.values]);
    },
    /** How many series are found whose samples several scrapers put together. */
    async countMembers(metric: string, measure: Measure, tags: Labels = {}) {
      const buckets = { start: base, step: 2 * minute, count: 1 };
      const query = { match: {}, metric, tags, measure, buckets, sampleLimit: 10_000 };
      return (await store.members?.readRaw(query, signal))?.length;
    },
  };
}
const observed = (combine: "count" | "mean" | "min" | "max"): Measure => ({ of: "observations", combine });
const p90: Measure = { of: "observations", combine: "quantile", quantile: 0.9 };
const last: Measure = { of: "samples", combine: "last" };
const refused = { slug: "not_supported_by_backend" };

describe("a histogram", () => {
  test.each([
    ["of buckets alone", []],
    ["without a sum", [grow("h_seconds_count", 10, { job: "a" })]],
  ])("%s is a measurement whose mean is refused", async (_, more) => {
    const store = await openStore([...buckets("h_seconds", { job: "a" }), ...more]);
    expect(await store.names()).toEqual(["h_seconds"]);
    expect(await store.type("h_seconds")).toBe("measurement");
    expect(await store.type("h_seconds_bucket")).toBeUndefined();
    expect(await store.tagKeys("h_seconds")).toEqual([["job"]]);
    expect(await store.read("h_seconds", observed("count"))).toEqual([[40, 40]]);
    expect(await store.read("h_seconds", observed("count"), { job: "*" })).toEqual([["a", 40, 40]]);
    expect(await store.read("h_seconds", p90)).toEqual([[2, 2]]);
    expect(await store.read("h_seconds", observed("min"))).toEqual([[0, 0]]);
    expect(await store.read("h_seconds", observed("max"))).toEqual([[2, 2]]);
    await expect(store.read("h_seconds", observed("mean"))).rejects.toMatchObject(refused);
    await expect(store.read("h_seconds", observed("mean"))).rejects.toThrow("without its sum");
  });

  test("without a count has a mean of its sum and its bucket +Inf", async () => {
    const store = await openStore([...buckets("h_seconds"), grow("h_seconds_sum", 13)]);
    expect(await store.names()).toEqual(["h_seconds"]);
    expect(await store.read("h_seconds", observed("mean"))).toEqual([[1.3, 1.3]]);
  });

  test("without the bucket +Inf takes its count for it", async () => {
    const all = buckets("h_seconds").filter(({ labels }) => labels.le !== "+Inf");
    const store = await openStore([...all, grow("h_seconds_count", 10), grow("h_seconds_sum", 13)]);
    expect(await store.read("h_seconds", p90)).toEqual([[2, 2]]);
  });

  test("with neither a count nor a bucket +Inf is refused", async () => {
    const all = buckets("h_seconds").filter(({ labels }) => labels.le !== "+Inf");
    const store = await openStore(all);
    await expect(store.read("h_seconds", p90)).rejects.toMatchObject(refused);
    await expect(store.read("h_seconds", observed("count"))).rejects.toMatchObject(refused);
  });

  test("with neither, beside one with all parts, is refused where it is asked for", async () => {
    const lone = buckets("h_seconds", { job: "lone" }).filter(({ labels }) => labels.le !== "+Inf");
    const store = await openStore([
      ...buckets("h_seconds", { job: "full" }),
      grow("h_seconds_count", 10, { job: "full" }),
      grow("h_seconds_sum", 13, { job: "full" }),
      ...lone,
      grow("h_seconds_sum", 13, { job: "lone" }),
    ]);
    for (const measure of [observed("count"), observed("mean"), p90]) {
      await expect(store.read("h_seconds", measure)).rejects.toMatchObject(refused);
      await expect(store.read("h_seconds", measure, { job: "lone" })).rejects.toMatchObject(refused);
    }
    expect(await store.read("h_seconds", observed("count"), { job: "full" })).toEqual([["full", 40, 40]]);
    expect(await store.read("h_seconds", observed("mean"), { job: "full" })).toEqual([["full", 1.3, 1.3]]);
  });

  test("with neither is refused where several scrapers are put together", async () => {
    const lone = buckets("h_seconds", { job: "lone" }).filter(({ labels }) => labels.le !== "+Inf");
    const store = await openStore([
      ...buckets("h_seconds", { job: "full" }),
      grow("h_seconds_count", 10, { job: "full" }),
      ...lone,
    ]);
    for (const measure of [observed("count"), p90]) {
      await expect(store.countMembers("h_seconds", measure)).rejects.toMatchObject(refused);
      expect(await store.countMembers("h_seconds", measure, { job: "full" })).toBe(1);
    }
  });

  // Such as the scheduler's latencies, which one library exports with all parts and another as buckets alone.
  describe("that only some targets export with all parts", () => {
    const full = (job: string) => [
      ...buckets("h_seconds", { job }),
      grow("h_seconds_count", 10, { job }),
      grow("h_seconds_sum", 13, { job }),
    ];

    test("is looked for once", async () => {
      const store = await openStore([
        ...full("full"),
        ...buckets("h_seconds", { job: "lone" }),
        grow("h_seconds_sum", 13, { job: "lone" }),
      ]);
      for (const combine of ["count", "mean"] as const) {
        const before = source?.requests.length;
        await store.read("h_seconds", observed(combine));
        const searches = source?.requests
          .slice(before)
          .filter(({ path, body }) => `${path}${body}`.includes("unless"));
        expect(searches).toHaveLength(1);
      }
    });

    test("is counted over all of them", async () => {
      const store = await openStore([...full("full"), ...buckets("h_seconds", { job: "lone" })]);
      expect(await store.read("h_seconds", observed("count"))).toEqual([[80, 80]]);
      expect(await store.read("h_seconds", observed("count"), { job: "*" })).toEqual([
        ["full", 40, 40],
        ["lone", 40, 40],
      ]);
      expect(await store.read("h_seconds", p90, { job: "*" })).toEqual([
        ["full", 2, 2],
        ["lone", 2, 2],
      ]);
      expect(await store.read("h_seconds", observed("mean"), { job: "full" })).toEqual([["full", 1.3, 1.3]]);
      await expect(store.read("h_seconds", observed("mean"))).rejects.toMatchObject(refused);
    });

    test("has a mean over those with a sum, if all have one", async () => {
      const lone = [...buckets("h_seconds", { job: "lone" }), grow("h_seconds_sum", 33, { job: "lone" })];
      const store = await openStore([...full("full"), ...lone]);
      expect(await store.read("h_seconds", observed("mean"))).toEqual([[2.3, 2.3]]);
    });
  });

  // From 0, and not from its first value, as the first series of its metric.
  describe.each([
    ["before the range", base - minute],
    ["in the range", base],
  ])("that is new, after another one began %s", (_, began) => {
    test.each([
      ["_count", "without a count"],
      ["_sum", "without a sum"],
      ["_bucket", "without buckets"],
    ])("(%s) %s, counts from 0", async (suffix) => {
      const first = [
        ...buckets("h_seconds", { job: "first" }),
        grow("h_seconds_count", 10, { job: "first" }),
        grow("h_seconds_sum", 13, { job: "first" }),
      ]
        .filter(({ labels }) => !labels.__name__?.endsWith(suffix))
        .map((one) => ({ ...one, samples: one.samples.filter(([time]) => time >= began) }));
      // Before its first scrape it has seen 90 observations, 54 of them up to 1.
      const second = [
        ...buckets("h_seconds", { job: "second" }),
        grow("h_seconds_count", 10, { job: "second" }),
        grow("h_seconds_sum", 13, { job: "second" }),
      ].map(({ labels, samples }) => {
        const more = labels.__name__ === "h_seconds_sum" ? 12 : 30;
        const seen = samples.filter(([time]) => time >= base + 30_000);
        return { labels, samples: seen.map(([time, value]) => [time, value + more] as const) };
      });
      const store = await openStore([...first, ...second]);
      const ask = (measure: Measure) => store.read("h_seconds", measure, { job: "second" });
      expect(await ask(observed("count"))).toEqual([["second", 100, 40]]);
      expect(await ask(observed("mean"))).toEqual([["second", 1.03, 1.3]]);
      // The rank 90 of 100 is the 32nd of the 35 between 1 and 2.
      expect(await ask(p90)).toEqual([["second", 1 + 32 / 35, 2]]);
    });
  });

  test("with a restart in a bucket is exact without a count", async () => {
    const fall = ({ labels, samples }: ReturnType<typeof grow>) => ({
      labels,
      samples: samples.map(
        ([time, value], n) => [time, n >= 6 ? value - (samples[5]?.[1] ?? 0) : value] as const,
      ),
    });
    const store = await openStore(buckets("h_seconds").map(fall));
    expect(await store.read("h_seconds", observed("count"))).toEqual([[40, 40]]);
    expect(await store.read("h_seconds", p90)).toEqual([[2, 2]]);
  });

  test("of ranges has count and mean, and what needs bounds is refused by their name", async () => {
    const ranges = ["1.000e+00...1.136e+00", "1.136e+00...1.292e+00"].map((vmrange) =>
      grow("v_seconds_bucket", 5, { vmrange }),
    );
    const store = await openStore([...ranges, grow("v_seconds_count", 10), grow("v_seconds_sum", 11)]);
    expect(await store.names()).toEqual(["v_seconds"]);
    expect(await store.type("v_seconds")).toBe("measurement");
    expect(await store.read("v_seconds", observed("count"))).toEqual([[40, 40]]);
    expect(await store.read("v_seconds", observed("mean"))).toEqual([[1.1, 1.1]]);
    for (const measure of [p90, observed("min"), observed("max")]) {
      await expect(store.read("v_seconds", measure)).rejects.toMatchObject(refused);
      await expect(store.read("v_seconds", measure)).rejects.toThrow("vmrange");
    }
  });
});

describe("a summary without a sum", () => {
  test("is a measurement whose mean is refused", async () => {
    const store = await openStore([
      ...["0.5", "0.9"].map((quantile) => hold("s_seconds", Number(quantile), { quantile, task: "map" })),
      grow("s_seconds_count", 10, { task: "map" }),
    ]);
    expect(await store.names()).toEqual(["s_seconds"]);
    expect(await store.type("s_seconds")).toBe("measurement");
    expect(await store.tagKeys("s_seconds")).toEqual([["task"]]);
    expect(await store.read("s_seconds", observed("count"))).toEqual([[40, 40]]);
    expect(await store.read("s_seconds", p90)).toEqual([[0.9, 0.9]]);
    await expect(store.read("s_seconds", observed("mean"))).rejects.toMatchObject(refused);
  });
});

describe("a metric that is no histogram or summary", () => {
  test("has recorded quantiles as tags", async () => {
    const store = await openStore(
      ["0.5", "0.9"].map((quantile) => hold("job:took_seconds:q", Number(quantile), { quantile, job: "a" })),
    );
    expect(await store.type("job:took_seconds:q")).toBe("gauge");
    expect(await store.tagKeys("job:took_seconds:q")).toEqual([["job", "quantile"]]);
    expect(await store.read("job:took_seconds:q", last, { quantile: "*" })).toEqual([
      ["0.5", 0.5, 0.5],
      ["0.9", 0.9, 0.9],
    ]);
    expect(await store.read("job:took_seconds:q", last, { quantile: "0.9" })).toEqual([["0.9", 0.9, 0.9]]);
  });

  test.each(["job:h_seconds_bucket:rate5m", "job:h_seconds_bucket", "rates_bucket"])(
    "has the bounds of the recorded rates %s as tags",
    async (name) => {
      const store = await openStore([
        hold(name, 0.25, { le: "1" }),
        hold(name, 0.75, { le: "+Inf" }),
        // As all of the parts may be recorded.
        ...(name === "job:h_seconds_bucket"
          ? [hold("job:h_seconds_count", 0.75), hold("job:h_seconds_sum", 0.125)]
          : []),
      ]);
      expect(await store.names()).toContain(name);
      expect(await store.names()).not.toContain("job:h_seconds");
      expect(await store.tagKeys(name)).toEqual([["le"]]);
      expect(await store.read(name, last, { le: "*" })).toEqual([
        ["+Inf", 0.75, 0.75],
        ["1", 0.25, 0.25],
      ]);
      expect(await store.read(name, last, { le: "1" })).toEqual([["1", 0.25, 0.25]]);
    },
  );

  // 40 an earlier and a later minute, and not all that was ever counted, as of a new series.
  test.each([{}, { le: "*" }, { le: "1.0" }])("grows on when its bound is respelt: %j", async (tags) => {
    const until = base + 40_000;
    const whole = grow("hits_total", 10, { le: "1" });
    const store = await openStore([
      { ...whole, samples: whole.samples.filter(([time]) => time < until) },
      {
        labels: { ...whole.labels, le: "1.0" },
        samples: whole.samples.filter(([time]) => time >= until),
      },
      grow("hits_total", 1, { le: "7" }),
    ]);
    const [sum = []] = await store.read("hits_total", { of: "increment" }, tags);
    const expected = "le" in tags ? [40, 40] : [44, 44];
    expect(sum.slice(-2)).toEqual(expected);
  });
});
