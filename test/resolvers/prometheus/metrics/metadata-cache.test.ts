// Cached names, types and tags. Cached look-ups send nothing, and a source in trouble is not asked again at once.
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { createSwrCache, type SwrCache } from "#resolvers/prometheus/client/swr-cache.ts";
import { findFamilyCandidates, groupIntoFamilies } from "#resolvers/prometheus/metrics/family-listing.ts";
import type { Millis } from "#src/core/time.ts";
import type { Backend } from "#src/store/backend.ts";
import type { MetricStore } from "#src/store/metrics.ts";
import { testIO } from "../../../support/io.ts";
import {
  buildMatrix,
  type FakePrometheus,
  openFakePrometheus,
  type ScriptedAnswers,
} from "../../../support/prometheus/scripted-server.ts";
import { sendJson } from "../../../support/scripted-http-source.ts";

let signal: AbortSignal;
beforeEach(() => {
  // A signal per test: the file may be loaded long before its tests run.
  signal = new AbortController().signal;
});

describe("the stale-while-revalidate cache", () => {
  let now = 0;
  let clock: { mockRestore(): void };
  beforeEach(() => {
    now = performance.now();
    clock = vi.spyOn(performance, "now").mockImplementation(() => now);
  });
  afterEach(() => clock.mockRestore());
  /** Time passes here alone. */
  async function pass(length: Millis): Promise<void> {
    now += length;
    // LRUCache looks at the clock again after a timer of 1 ms.
    await delay(2);
  }

  let loads = 0;
  let hits: boolean[] = [];
  let fail: Error | undefined;
  let gate: Promise<void> | undefined;
  function open(maxAge = 10_000): SwrCache<string> {
    [loads, hits, fail, gate] = [0, [], undefined, undefined];
    return createSwrCache(
      {
        name: "names",
        entries: 10,
        maxAge,
        load: async (key) => {
          const load = ++loads;
          await gate;
          if (fail) throw fail;
          return `${key}${load}`;
        },
      },
      { ...testIO, recordCacheLookup: (_, hit) => hits.push(hit) },
    );
  }

  test("returns fresh values without loading, per key", async () => {
    const cache = open();
    expect(await cache.read("a", signal)).toBe("a1");
    expect(await cache.read("a", signal)).toBe("a1");
    expect(await cache.read("b", signal)).toBe("b2");
    expect(hits).toEqual([false, true, false]);
  });

  test("loads a missing key once for all callers, also if one of them aborts", async () => {
    const cache = open();
    const opened = Promise.withResolvers<void>();
    gate = opened.promise;
    const leaving = new AbortController();
    const first = cache.read("a", leaving.signal);
    const others = Array.from({ length: 50 }, () => cache.read("a", signal));
    leaving.abort(new Error("left"));
    await expect(first).rejects.toThrow("left");
    opened.resolve();
    expect(new Set(await Promise.all(others))).toEqual(new Set(["a1"]));
    expect(loads).toBe(1);
  });

  // An unhandled rejection would end the program; here it fails the run.
  test("leaves no unhandled rejection if the only caller aborted before the load failed", async () => {
    const cache = open();
    fail = new Error("down");
    await expect(cache.read("a", AbortSignal.abort(new Error("left")))).rejects.toThrow("left");
    await delay(10);
  });

  test("returns a value of half its age at once and refreshes it in the background", async () => {
    const cache = open(400);
    await cache.read("a", signal);
    await pass(210);
    expect(await cache.read("a", signal)).toBe("a1");
    await expect.poll(() => cache.read("a", signal)).toBe("a2");
  });

  test("loads a value again that is older than the maximum age", async () => {
    const cache = open(50);
    await cache.read("a", signal);
    await pass(80);
    expect(await cache.read("a", signal)).toBe("a2");
    expect(await cache.read("a", signal, 10_000)).toBe("a2");
    await pass(5);
    expect(await cache.read("a", signal, 1)).toBe("a3");
  });

  test("lets many callers wait for one load of a value that is too old", async () => {
    const cache = open(50);
    await cache.read("a", signal);
    await pass(80);
    const opened = Promise.withResolvers<void>();
    gate = opened.promise;
    const all = Array.from({ length: 50 }, () => cache.read("a", signal));
    await delay(5);
    opened.resolve();
    expect(new Set(await Promise.all(all))).toEqual(new Set(["a2"]));
    expect(loads).toBe(2);
  });

  // What a source says of its metrics is as old as the request for it, not as its answer.
  test("counts the age from the beginning of the load", async () => {
    const cache = open(80);
    const opened = Promise.withResolvers<void>();
    gate = opened.promise;
    const first = cache.read("a", signal);
    await pass(100);
    opened.resolve();
    expect(await first).toBe("a1");
    expect(await cache.read("a", signal)).toBe("a2");
  });

  test("repeats a failure to all callers without loading again", async () => {
    const cache = open();
    fail = new Error("down");
    const reads = await Promise.allSettled(Array.from({ length: 20 }, () => cache.read("a", signal)));
    for (let n = 0; n < 20; n++) reads.push(...(await Promise.allSettled([cache.read("a", signal)])));
    expect(reads.every((read) => read.status === "rejected" && read.reason === fail)).toBe(true);
    expect(loads).toBe(1);
  });

  test("keeps a value after a failed refresh, and delays the next refresh", async () => {
    const cache = open(1_000);
    await cache.read("a", signal);
    await pass(510);
    fail = new Error("down");
    for (let n = 0; n < 20; n++) {
      expect(await cache.read("a", signal)).toBe("a1");
      await pass(1);
    }
    expect(loads).toBe(2);
  });
});

describe("metric look-ups", () => {
  let fake: FakePrometheus | undefined;
  let backend: Backend | undefined;
  afterEach(async () => {
    vi.useRealTimers();
    await backend?.close();
    await fake?.close();
  });
  async function serve(knowledge: ScriptedAnswers = {}): Promise<MetricStore> {
    fake = await openFakePrometheus(knowledge);
    backend = fake.open();
    const { metrics } = backend.stores;
    if (metrics === undefined) throw new Error("no metric store");
    return metrics;
  }

  test("sends nothing for cached look-ups, and caches per forced labels", async () => {
    const store = await serve();
    const ask = async (site: string) => [
      await store.names({ site }, signal),
      await store.type({ site }, "c_total", signal),
      await store.tagKeys({ site }, "g", signal),
    ];
    expect(await ask("a")).toEqual([["c_total", "g"], "counter", [["host"]]]);
    // Without the queries that detect the server's traits.
    const listRequests = () => fake?.requests.filter(({ body }) => !body.includes("vector")) ?? [];
    const sent = listRequests().length;
    expect(await ask("a")).toEqual([["c_total", "g"], "counter", [["host"]]]);
    expect(listRequests()).toHaveLength(sent);
    await ask("b");
    expect(listRequests()).toHaveLength(2 * sent);
    const scoped = listRequests()
      .slice(sent)
      .filter(({ path, body }) => decodeURIComponent(path + body).includes('site="b"'));
    // All but the metadata, which ignore forced labels and are read for names that were found under them.
    expect(scoped).toHaveLength(sent - 2);
  });

  test("asks anew, once for all callers, for names and tags that are older than a minute", async () => {
    vi.useFakeTimers({ toFake: ["performance"] });
    const series: object[] = [{ __name__: "g", host: "a" }];
    const names = { g: "gauge", c_total: "counter" };
    const store = await serve({
      metrics: names,
      intercept(response, { url = "" }) {
        if (!url.includes("/series")) return false;
        sendJson(response, { status: "success", data: series });
        return true;
      },
    });
    const ask = () => Promise.all([store.names({}, signal), store.tagKeys({}, "g", signal)]);
    const readNames = () => fake?.requests.filter(({ path }) => path.includes("/label/")).length ?? 0;
    expect(await ask()).toEqual([["c_total", "g"], [["host"]]]);
    const sent = readNames();
    Object.assign(names, { new_total: "counter" });
    series.push({ __name__: "g", host: "a", zone: "b" });
    // A tool that asks once a night.
    vi.advanceTimersByTime(61_000);
    const found = await Promise.all(Array.from({ length: 20 }, ask));
    const now = [
      ["c_total", "g", "new_total"],
      [["host"], ["host", "zone"]],
    ];
    expect(found).toEqual(found.map(() => now));
    expect(readNames()).toBe(2 * sent);
  });

  test("lists no forced or empty labels as tags, and le and quantile of a gauge", async () => {
    const own = {
      __name__: "g",
      __type__: "gauge",
      __unit__: "seconds",
      le: "1",
      quantile: "0.5",
      site: "a",
    };
    const store = await serve({
      intercept(response, { url = "" }) {
        if (!url.includes("/series")) return false;
        const data = [
          { ...own, host: "x", zone: "" },
          { ...own, host: "y", zone: "b" },
          { ...own, role: "z" },
          { ...own, ["__proto__"]: "w" },
          own,
        ];
        sendJson(response, { status: "success", data });
        return true;
      },
    });
    const found = await store.tagKeys({ site: "a" }, "g", signal);
    const both = ["le", "quantile"];
    expect(found).toEqual([
      ["__proto__", ...both],
      ["host", ...both],
      ["host", ...both, "zone"],
      both,
      [...both, "role"],
    ]);
  });

  // The proxy adds its own selector to the address, and a server returns what either of two selectors finds.
  test("lists the tags of one metric only behind prom-label-proxy", async () => {
    const store = await serve({
      metrics: { requests_total: "counter" },
      intercept(response, { method, url = "" }) {
        if (!url.includes("/series")) return false;
        const selectors = new URL(url, "http://source").searchParams.getAll("match[]");
        const other = { __name__: "logins_total", site: "a", user: "ana" };
        const own = { __name__: "requests_total", site: "a", code: "200" };
        const isSingle = method === "GET" && selectors.length === 1;
        sendJson(response, { status: "success", data: isSingle ? [own] : [own, other] });
        return true;
      },
    });
    expect(await store.tagKeys({ site: "a" }, "requests_total", signal)).toEqual([["code"]]);
  });

  test("decides a type by the declarations of targets, then by the name, then by samples", async () => {
    const looks: Record<string, readonly [resets: string, changes: string, least: string]> = {
      grows: ["0", "5", "1"],
      falls: ["2", "9", "1"],
      rests: ["0", "0", "1"],
      negative: ["0", "5", "-1"],
      threads_count: ["2", "9", "1"],
      state: ["0", "1", "0"],
    };
    const rows = {
      told_total: ["gauge", "gauge"],
      said: ["counter", "counter"],
      // A state set of OpenMetrics whose first state began within the hour.
      state: ["stateset", "gauge"],
      // The declaration of `bytes` may be about either of the two.
      bytes: ["gauge", "gauge"],
      bytes_total: [undefined, "counter"],
      falls_total: ["unknown", "counter"],
      lone_count: ["unknown", "counter"],
      threads_count: ["unknown", "gauge"],
      grows: ["unknown", "counter"],
      falls: ["counter", "gauge"],
      rests: ["unknown", "gauge"],
      negative: ["unknown", "gauge"],
    } as const;
    const store = await serve({
      metrics: Object.fromEntries(Object.entries(rows).map(([name, [declared]]) => [name, declared])),
      answer(form, response) {
        const query = form.get("query") ?? "";
        const [resets, changes, least] = looks[/__name__="(\w+)"/.exec(query)?.[1] ?? ""] ?? ["0", "0", "0"];
        if (query.includes("histogram_count")) return sendJson(response, { status: "error" }, 400);
        const value = query.includes("resets") ? resets : query.includes("changes") ? changes : least;
        return sendJson(response, buildMatrix([{ metric: {}, value: [1, value] }]));
      },
    });
    for (const [metric, [, type]] of Object.entries(rows)) {
      expect([metric, await store.type({ site: "a" }, metric, signal)]).toEqual([metric, type]);
    }
    expect(await store.type({ site: "a" }, "unheard_of", signal)).toBeUndefined();
    // For a guessed type the fields of both types are answered.
    const guesses = ["lone_count", "threads_count", "falls", "grows"];
    for (const metric of Object.keys(rows)) {
      const guess = guesses.includes(metric) || ["rests", "negative"].includes(metric);
      expect([metric, await store.isTypeGuessed?.({ site: "a" }, metric, signal)]).toEqual([metric, guess]);
    }
  });

  // Prometheus returns each declaration once: two for three targets with a gauge and one with a counter.
  test("decides a type by samples if targets contradict each other, and marks it as guessed", async () => {
    const store = await serve({
      metrics: { disputed: "counter" },
      intercept(response, { url = "" }) {
        if (!url.includes("/metadata")) return false;
        const declared = ["gauge", "counter"].map((type) => ({ type, help: "", unit: "" }));
        sendJson(response, { status: "success", data: { disputed: declared } });
        return true;
      },
      answer(form, response) {
        const query = form.get("query") ?? "";
        if (query.includes("histogram_count")) return false;
        return sendJson(
          response,
          buildMatrix([{ metric: {}, value: [1, query.includes("resets") ? "3" : "1"] }]),
        );
      },
    });
    expect(await store.type({ site: "a" }, "disputed", signal)).toBe("gauge");
    expect(await store.isTypeGuessed?.({ site: "a" }, "disputed", signal)).toBe(true);
  });

  test("ignores a warning about the rate of numbers", async () => {
    const warning = "PromQL warning: sample has start time that overlaps with previous sample timestamp";
    const store = await serve({
      metrics: { x_total: undefined },
      answer(form, response) {
        const query = form.get("query") ?? "";
        if (query.includes("rate(")) return sendJson(response, buildMatrix([], { warnings: [warning] }));
        if (query.includes("histogram_count")) return false;
        return sendJson(response, buildMatrix([{ metric: {}, value: [1, "2"] }]));
      },
    });
    expect(await store.type({ site: "a" }, "x_total", signal)).toBe("counter");
  });

  describe("undeclared native histograms", () => {
    const answers = (rate: object) =>
      serve({
        metrics: { h: "unknown" },
        answer(form, response) {
          const query = form.get("query") ?? "";
          if (query.includes("rate(")) return sendJson(response, buildMatrix([], rate));
          if (query.includes("histogram_count") || query.includes("last_over_time"))
            return sendJson(response, buildMatrix([{ metric: {}, value: [1, "2"] }]));
          return false;
        },
      });

    test("have the type measurement, also if their rate fails for mixed bucket schemas", async () => {
      const warning =
        "PromQL warning: vector contains a mix of histograms with exponential and custom buckets schemas";
      const store = await answers({ warnings: [warning] });
      expect(await store.type({}, "h", signal)).toBe("measurement");
    });

    test("are detected before functions run that only take numbers", async () => {
      const warnings = ['PromQL warning: this native histogram metric is not a gauge: "h" (1:2)'];
      const store = await serve({
        metrics: { h: "unknown" },
        answer(form, response) {
          const query = form.get("query") ?? "";
          const wrong = /delta|changes|resets|min_over_time/.test(query);
          const found = wrong
            ? buildMatrix([], { warnings })
            : buildMatrix([{ metric: {}, value: [1, "2"] }]);
          return sendJson(response, found);
        },
      });
      expect(await store.type({}, "h", signal)).toBe("measurement");
    });

    test("are refused if they are gauge histograms", async () => {
      const warning = 'PromQL warning: this native histogram metric is not a counter: "h" (1:2)';
      const store = await answers({ warnings: [warning] });
      const refused = { slug: "not_supported_by_backend", details: { backend: "prom" } };
      await expect(store.type({}, "h", signal)).rejects.toMatchObject(refused);
    });
  });

  describe.each(["gaugehistogram", "gauge histogram"])("a metric that targets declare as %s", (type) => {
    const parts = { h_bucket: undefined, h_count: undefined, h_sum: undefined };

    test("is refused in classic and native form", async () => {
      const refused = { slug: "not_supported_by_backend", details: { backend: "prom" } };
      for (const metrics of [{ h: type }, { h: type, ...parts }]) {
        const store = await serve({
          metrics,
          intercept: (response, request) => {
            const ofAll = request.url?.endsWith("/metadata") === true;
            if (ofAll) sendJson(response, { status: "success", data: { h: [{ type }] } });
            return ofAll;
          },
        });
        await expect(store.type({}, "h", signal)).rejects.toMatchObject(refused);
        const limitations = (await backend?.inspections.metrics?.({}, signal))?.limitations;
        expect(limitations).toContain("1 metrics are refused: their targets declare gauge histograms");
      }
    });

    test("has parts of type gauge under the OpenMetrics names", async () => {
      const store = await serve({
        metrics: { h: type, h_bucket: undefined, h_gcount: undefined, h_gsum: undefined },
      });
      const types = ["h_bucket", "h_gcount", "h_gsum"].map((name) => store.type({}, name, signal));
      expect(await Promise.all(types)).toEqual(["gauge", "gauge", "gauge"]);
    });
  });

  test("accepts a histogram that only one of two targets declares as a gauge histogram", async () => {
    const store = await serve({
      metrics: { h_bucket: undefined, h_count: undefined, h_sum: undefined },
      intercept: (response, request) => {
        const isMetadata = request.url?.includes("/metadata") === true;
        const declared = [{ type: "gaugehistogram" }, { type: "histogram" }];
        if (isMetadata) sendJson(response, { status: "success", data: { h: declared } });
        return isMetadata;
      },
    });
    expect(await store.type({}, "h", signal)).toBe("measurement");
  });

  describe("a count and a sum", () => {
    const declare = (declared: Readonly<Record<string, readonly string[]>>) =>
      serve({
        metrics: { thing_count: undefined, thing_sum: undefined },
        intercept(response, { url = "" }) {
          if (!url.includes("/metadata")) return false;
          const metric = new URL(url, "http://source").searchParams.get("metric");
          const data = Object.entries(declared)
            .filter(([name]) => metric === null || name === metric)
            .map(([name, types]) => [name, types.map((type) => ({ type, help: "", unit: "" }))]);
          sendJson(response, { status: "success", data: Object.fromEntries(data) });
          return true;
        },
      });
    const gauge = ["gauge"];

    test.each([
      { thing_count: gauge, thing_sum: gauge },
      { thing_count: gauge },
      { thing_count: ["unknown"], thing_sum: gauge },
    ])("are metrics of their own if targets declare %j", async (declared) => {
      const store = await declare(declared);
      expect(await store.names({}, signal)).toEqual(["thing_count", "thing_sum"]);
      expect(await store.type({}, "thing", signal)).toBeUndefined();
      for (const metric of Object.keys(declared).filter((name) => Object(declared)[name] === gauge)) {
        expect(await store.type({}, metric, signal)).toBe("gauge");
        expect(await store.isTypeGuessed?.({}, metric, signal)).toBe(false);
      }
    });

    // The declaration of a part may be another tenant's.
    test.each([
      {},
      { thing: ["summary"], thing_count: gauge, thing_sum: gauge },
      { thing_count: ["counter", "gauge"], thing_sum: ["unknown"] },
    ])("are a summary if targets declare %j", async (declared) => {
      const store = await declare(declared);
      expect(await store.names({}, signal)).toEqual(["thing"]);
      expect(await store.type({}, "thing", signal)).toBe("measurement");
    });
  });

  test("asks once for the types of all counts and sums", async () => {
    const names = Array.from({ length: 20 }, (_, n) => [`timer${n}_count`, `timer${n}_sum`]).flat();
    const asked: string[] = [];
    const store = await serve({
      metrics: Object.fromEntries(names.map((name) => [name, undefined])),
      intercept(_, { url = "" }) {
        if (url.includes("/metadata")) asked.push(url);
        return false;
      },
    });
    expect(await store.names({}, signal)).toHaveLength(20);
    expect(asked).toHaveLength(1);
  });

  test("takes buckets that targets declare as gauges for no histogram", async () => {
    const store = await serve({ metrics: { depth_bucket: "gauge" } });
    expect(await store.names({}, signal)).toEqual(["depth_bucket"]);
    expect(await store.type({}, "depth_bucket", signal)).toBe("gauge");
  });

  test("reports which labels no series has", async () => {
    await serve({ metrics: {} });
    const problems = async (match: Readonly<Record<string, string>>) =>
      (await backend?.inspections.metrics?.(match, signal))?.problems;
    expect(await problems({})).toEqual(["there are no series"]);
    expect(await problems({ site: "a" })).toEqual(['no series has the labels {site="a"}']);
  });

  test("works without metadata and build information", async () => {
    const store = await serve({
      metrics: { work_total: "unknown" },
      intercept: (response, request) => {
        const gone = /metadata|buildinfo/.test(request.url ?? "");
        if (gone) sendJson(response, "404 page not found", 404);
        return gone;
      },
    });
    expect(await store.type({}, "work_total", signal)).toBe("counter");
    expect(await backend?.probe(signal)).toEqual({ product: "Prometheus", version: "unknown" });
  });
});

describe("groupIntoFamilies", () => {
  const shapes = async (
    names: readonly string[],
    bounds: readonly string[] = [],
    quantiles: readonly string[] = [],
    others: readonly string[] = [],
    ranges: readonly string[] = [],
    uncounted: readonly string[] = [],
  ) => {
    const sets = {
      all: new Set(names),
      withBounds: new Set(bounds),
      withRanges: new Set(ranges),
      withQuantiles: new Set(quantiles),
      withoutQuantiles: new Set(others),
    };
    const candidates = await findFamilyCandidates(sets, signal);
    const listing = await groupIntoFamilies(sets, candidates, new Set(uncounted), signal);
    return Object.fromEntries([...listing].map(([name, { kind }]) => [name, kind]));
  };

  test("groups complete histograms and summaries", async () => {
    const names = ["h_bucket", "h_sum", "h_count", "s", "s_sum", "s_count", "bare_sum", "bare_count"];
    expect(await shapes(names, ["h_bucket"], ["s"])).toEqual({
      h: "histogram",
      s: "summary",
      bare: "summary",
    });
  });

  test("marks families that also have native samples", async () => {
    const names = ["s", "s_sum", "s_count", "h", "h_sum", "h_count", "h_bucket"];
    expect(await shapes(names, ["h_bucket"], ["s"], ["s"])).toEqual({ h: "both", s: "both" });
    expect(await shapes(names, ["h_bucket"], ["s", "h"], [])).toEqual({ h: "histogram", s: "summary" });
    expect(await shapes(names, ["h_bucket"], ["s", "h"], ["h"])).toEqual({ h: "both", s: "summary" });
  });

  test("groups histograms without a count or a sum, and summaries without a sum", async () => {
    expect(await shapes(["a_bucket"], ["a_bucket"])).toEqual({ a: "histogram" });
    expect(await shapes(["a_bucket", "a_count"], ["a_bucket"])).toEqual({ a: "histogram" });
    expect(await shapes(["a_bucket", "a_sum"], ["a_bucket"])).toEqual({ a: "histogram" });
    expect(await shapes(["s", "s_count"], [], ["s"])).toEqual({ s: "summary" });
    expect(await shapes(["v_bucket", "v_sum", "v_count"], [], [], [], ["v_bucket"])).toEqual({
      v: "summary",
    });
    expect(await shapes(["v_bucket"], [], [], [], ["v_bucket"])).toEqual({ v: "summary" });
  });

  test("keeps names as plain metrics if they form no family or its name is taken", async () => {
    const lone = ["a_count", "b_sum", "d", "d_sum", "d_count", "q", "_count", "_sum", "_bucket"];
    expect(await shapes(lone, ["_bucket"], ["q"])).toEqual(
      Object.fromEntries(lone.map((name) => [name, "plain"])),
    );
    expect(await shapes(["h_bucket", "h_sum", "h_count"])).toEqual({ h: "summary", h_bucket: "plain" });
    // A metric of its own beside the quantiles, and recorded rates beside the name of a histogram.
    expect(await shapes(["s", "s_count"], [], ["s"], ["s"])).toEqual({ s: "plain", s_count: "plain" });
    expect(await shapes(["c", "c_bucket"], ["c_bucket"])).toEqual({ c: "plain", c_bucket: "plain" });
    const gauge = ["g_bucket", "g_gcount", "g_gsum"];
    expect(await shapes(gauge, ["g_bucket"])).toEqual(
      Object.fromEntries(gauge.map((name) => [name, "plain"])),
    );
  });

  test("keeps the parts of a histogram plain whose buckets count nothing", async () => {
    const names = ["r_bucket", "r_sum", "r_count"];
    expect(await shapes(names, ["r_bucket"], [], [], [], ["r"])).toEqual(
      Object.fromEntries(names.map((name) => [name, "plain"])),
    );
  });

  test("sorts names by code unit", async () => {
    expect(Object.keys(await shapes(["b", "Z", "a", "é", "a_"]))).toEqual(["Z", "a", "a_", "b", "é"]);
  });
});
