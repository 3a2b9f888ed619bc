// Histograms and summaries of which one server has parts that the other lacks: what the tags select is answered or refused, whatever
// else the servers have.
import { afterEach, describe, expect, test } from "vitest";
import { createMemoryMetrics } from "#resolvers/memory/stores/metric-store.ts";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Measure } from "#src/core/rows.ts";
import { createFederatedMetrics } from "#src/federation/federated-metrics.ts";
import type { Backend } from "#src/store/backend.ts";
import { testIO } from "../support/io.ts";
import { sampleCases } from "../support/law-runs.ts";
import { openFakeServer } from "../support/prometheus/fake-thanos.ts";
import type { ScriptedSource } from "../support/scripted-http-source.ts";

const minute = 60_000;
const base = Date.UTC(2026, 0, 15, 10);
const times = Array.from({ length: 24 }, (_, n) => base - minute + n * 15_000 + 200);
type Labels = Readonly<Record<string, string>>;

/** A series that grows by `each` from scrape to scrape. */
const grow = (name: string, each: number, labels: Labels) => ({
  labels: { __name__: name, ...labels },
  samples: times.map((time, n) => [time, n * each] as const),
});

/** Each scrape finds 10 observations of 13 together: 4 up to 1, 5 more up to 2, and one above. */
const histogram = (labels: Labels) => [
  ...Object.entries({ "1": 4, "2": 9, "+Inf": 10 }).map(([le, each]) =>
    grow("x_seconds_bucket", each, { ...labels, le }),
  ),
  grow("x_seconds_count", 10, labels),
  grow("x_seconds_sum", 13, labels),
];

const opened: { readonly source: ScriptedSource; readonly backend: Backend }[] = [];
afterEach(async () => {
  for (const { source, backend } of opened.splice(0)) {
    await backend.close();
    await source.close();
  }
});

/** A server for each of these. */
async function openServers(servers: readonly Parameters<typeof openFakeServer>[0][], replica?: string) {
  const places = servers.map(async (series, at) => {
    const source = await openFakeServer(series);
    const backend = prometheus.create(`b${at}`, prometheus.parseConfig({ url: source.url }), testIO);
    opened.push({ source, backend });
    const store = backend.stores.metrics;
    if (store === undefined) throw new Error("no metric store");
    return { backend: backend.name, store, match: {}, replica };
  });
  const store = createFederatedMetrics(await Promise.all(places));
  const signal = new AbortController().signal;
  return {
    names: () => store.names({}, signal),
    type: (metric: string) => store.type({}, metric, signal),
    /** The values of two minutes by the values of the tags. */
    async read(metric: string, measure: Measure, tags: Labels = {}) {
      const buckets = { start: base, step: minute, count: 2 };
      const query = {
        match: {},
        metric,
        tags,
        measure,
        buckets,
        lookBack: 1_440 * minute,
        pointLimit: 1_000,
      };
      const found = await store.series(query, signal);
      return found.map((one) => [...Object.values(one.tags), ...one.values]);
    },
  };
}

const observed = (combine: "count" | "mean"): Measure => ({ of: "observations", combine });
const p90: Measure = { of: "observations", combine: "quantile", quantile: 0.9 };
const refused = { slug: "not_supported_by_backend" };

function toRefusal(error: unknown): "refused" {
  expect(error).toMatchObject(refused);
  return "refused";
}

const whole = histogram({ host: "h1" });
const withoutSum = histogram({ host: "h2" }).filter(({ labels }) => labels.__name__ !== "x_seconds_sum");
const ranges = [
  grow("x_seconds_bucket", 10, { host: "h2", vmrange: "1.000e+00...1.136e+00" }),
  grow("x_seconds_count", 10, { host: "h2" }),
  grow("x_seconds_sum", 11, { host: "h2" }),
];
const summary = [
  { ...grow("x_seconds", 0, { host: "h2", quantile: "0.9" }) },
  grow("x_seconds_count", 10, { host: "h2" }),
  grow("x_seconds_sum", 11, { host: "h2" }),
];

test.each([
  ["a sum", withoutSum, observed("mean"), [["h1", 1.3, 1.3]]],
  ["bounds", ranges, p90, [["h1", 2, 2]]],
  ["buckets", summary, p90, [["h1", 2, 2]]],
])("a server without %s refuses what the tags select of it alone", async (_, other, measure, expected) => {
  for (const replica of [undefined, "replica"]) {
    const store = await openServers([whole, other], replica);
    expect(await store.read("x_seconds", measure, { host: "h1" })).toEqual(expected);
    expect(await store.read("x_seconds", observed("count"))).toEqual([[80, 80]]);
    await expect(store.read("x_seconds", measure)).rejects.toMatchObject(refused);
    if (other !== summary || replica !== undefined)
      await expect(store.read("x_seconds", measure, { host: "h2" })).rejects.toMatchObject(refused);
  }
});

test("ranges without a count are refused, since nothing counts them", async () => {
  const store = await openServers([whole, ranges.slice(0, 1)]);
  await expect(store.read("x_seconds", observed("count"))).rejects.toMatchObject(refused);
});

test("a percentile of summaries in two servers is refused as one of several summaries, without advice on replicas", async () => {
  const other = summary.map(({ labels, samples }) => ({ labels: { ...labels, host: "h1" }, samples }));
  const store = await openServers([summary, other]);
  await expect(store.read("x_seconds", p90)).rejects.toThrow("a quantile of several summaries");
  expect(await store.read("x_seconds", p90, { host: "*" })).toEqual([
    ["h1", 0, 0],
    ["h2", 0, 0],
  ]);
});

// A server makes a metric of the parts that it has by their names; what lacks too many of them has other names.
describe("parts of histograms that are divided over servers", () => {
  const parts = ["count", "sum", "bucket"] as const;
  const subsets = Array.from({ length: 7 }, (_, n) => parts.filter((_, at) => (n + 1) & (1 << at)));
  const keep = (host: string, kept: readonly string[]) =>
    histogram({ host }).filter(({ labels: { __name__: name } }) => kept.includes(name.replace(/.*_/, "")));
  // A count in one server and a sum in the other are a metric in neither: they are two.
  const divisions = subsets
    .flatMap((first) => subsets.map((second) => [first.join(), second.join()]))
    .filter((both) => both.toSorted().join() !== "count,sum");

  /** Of such parts in both servers, or of the same ones, something can be told: what is counted, if nothing else. */
  const isAnswered = (first: string, second: string) =>
    first === second || [first, second].every((one) => one.includes("bucket") || one === "count,sum");

  test.each(sampleCases(divisions))(
    "%s in one and %s in the other: as one server, or refused",
    async (first = "", second = "") => {
      const servers = [keep("h1", first.split(",")), keep("h2", second.split(","))];
      const [split, whole] = [await openServers(servers), await openServers([servers.flat()])];
      let answered = 0;
      const names = new Set([...(await split.names()), ...(await whole.names())]);
      for (const name of names) {
        const type = await split.type(name).catch(toRefusal);
        const measures: readonly Measure[] =
          type === "measurement"
            ? [observed("count"), observed("mean"), p90]
            : [{ of: "increment" }, { of: "samples", combine: "last" }];
        for (const measure of measures) {
          const found = await split.read(name, measure, { host: "*" }).catch(toRefusal);
          if (found === "refused") continue;
          expect(found).toEqual(await whole.read(name, measure, { host: "*" }));
          answered += 1;
        }
      }
      if (isAnswered(first, second)) expect(answered).toBeGreaterThan(0);
    },
  );

  test("are none of what another server declares as a gauge of such a name", async () => {
    const [timed, gauged] = [createMemoryMetrics("a"), createMemoryMetrics("b")];
    timed.append("x", "summary", "count", { host: "h1" })(base, 1);
    gauged.append("x_count", "gauge", "value", { host: "h2" })(base, 7);
    const store = createFederatedMetrics([
      { backend: "a", store: timed, match: {} },
      { backend: "b", store: gauged, match: {} },
    ]);
    const signal = new AbortController().signal;
    expect(await store.type({}, "x", signal)).toBe("measurement");
    expect(await store.type({}, "x_count", signal)).toBe("gauge");
  });

  test("are refused also where they restarted, and seem to be gauges", async () => {
    const counts = grow("x_seconds_count", 10, { host: "h3" });
    const samples = counts.samples.map(([time, value], n) => [time, n < 9 ? value : value - 90] as const);
    const store = await openServers([whole, [{ ...counts, samples }]]);
    for (const name of ["x_seconds", "x_seconds_count"])
      await expect(store.type(name)).rejects.toMatchObject(refused);
  });

  test("are refused by the names of both servers", async () => {
    const store = await openServers([whole, keep("h2", ["count"])]);
    for (const name of ["x_seconds", "x_seconds_count"])
      await expect(store.type(name)).rejects.toThrow(
        "x_seconds is in b0, and x_seconds_count without the rest of it in b1",
      );
  });
});
