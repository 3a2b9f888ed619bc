// The four metrics routes over HTTP: exact bodies, ids, order and limits for a few hand-written samples, and invalid
// input.
import { afterAll, describe, expect, test } from "vitest";
import { createMemoryMetrics } from "#resolvers/memory/stores/metric-store.ts";
import { hour, minute } from "#src/core/time.ts";
import type { MetricStore, SeriesQuery } from "#src/store/metrics.ts";
import { base, headers, iso, origin, serve } from "./metrics-harness.ts";

/** Two tenants; what matters of the first is in the comments of the tests. */
function fill() {
  const store = createMemoryMetrics("memory");
  const put = (
    metric: string,
    kind: "gauge" | "counter",
    labels: Readonly<Record<string, string>>,
    samples: readonly (readonly [at: number, value: number])[],
  ) => {
    const append = store.append(metric, kind, "value", labels);
    for (const [at, value] of samples) append(base + at, value);
  };
  const own = { tenant: "a" };
  put("cpu", "gauge", { ...own, host: "b,c", state: "x|y" }, [
    [0, 3],
    [30_000, 5],
    [2 * minute, 9],
  ]);
  put("cpu", "gauge", { ...own, host: "a", state: "50%=" }, [[minute, 2.5]]);
  put("cpu", "gauge", { tenant: "b", host: "secret" }, [[0, 1_000]]);
  put("hits", "counter", own, [
    [-minute, 100],
    [0, 110],
    [minute, 4],
    [2 * minute, 6],
  ]);
  put("quiet", "counter", { tenant: "b" }, [[0, 1]]);
  const part = (name: "bucket" | "sum" | "count", value: number, le?: string) =>
    store.append("took", "histogram", name, { ...own, ...(le === undefined ? {} : { le }) })(base, value);
  part("count", 4);
  part("sum", 8);
  part("bucket", 4, "+Inf");
  const odd = store.append("a/b c", "gauge", "value", { ...own, __proto__x: "1" });
  odd(base, 1);
  return store;
}

const store = fill();
const { post, get, server } = serve(store, { tenant: "a" });
const range = { from: iso(base), to: iso(base + 2 * minute) };
const body = (select: readonly unknown[], over = {}) => ({ site_id: "shop", ...range, select, ...over });
const selector = (over = {}) => ({ name: "cpu", tags: {}, field: "gauge", ...over });
const series = async (select: readonly unknown[], over = {}) => {
  const { status, body: answer } = await post("timeseries", body(select, over));
  expect(status, JSON.stringify(answer)).toBe(200);
  return answer.series as {
    id: string;
    tags: unknown;
    field: string;
    min: number;
    max: number;
    data: { timestamp: string; value: number }[];
  }[];
};
const rows = async (select: readonly unknown[], over = {}) => {
  const { status, body: answer } = await post("list", body(select, { group_by: [], ...over }));
  expect(status, JSON.stringify(answer)).toBe(200);
  return answer.rows as { id: string; group: unknown; data: Record<string, number> }[];
};
const refusal = async (route: "timeseries" | "list", asked: unknown) => {
  const { status, body: answer } = await post(route, asked);
  expect(status, JSON.stringify(answer)).toBe(422);
  return answer as { error: string; message: string; details: Record<string, unknown> };
};
const issues = async (route: "timeseries" | "list", asked: unknown) => {
  const { error, details } = await refusal(route, asked);
  expect(error).toBe("invalid_request");
  return (details.issues as { path: string }[]).map(({ path }) => path);
};

describe("metrics/timeseries", () => {
  test("reports a reversed range together with all other issues", async () => {
    const wrong = { from: "2026-01-15T11:00:00Z", to: "2026-01-15T10:00:00Z", limit: 0 };
    const over = { ...body([{ name: "m", tags: {}, field: "p_90", id: 5 }], { group_by: ["x"] }), ...wrong };
    expect((await issues("timeseries", over)).sort()).toEqual(["from", "limit"]);
    expect((await issues("list", over)).sort()).toEqual(["from", "group_by.0", "limit", "select.0.id"]);
  });

  test("returns the complete body", async () => {
    const { text } = await post(
      "timeseries",
      body([selector({ tags: { host: "*", state: "*" } })], { resolution: "minutely" }),
    );
    expect(text).toBe(
      '{"resolution":"MINUTELY","from":"2026-01-15T10:00:00.000Z","to":"2026-01-15T10:02:00.000Z","series":[' +
        '{"id":"cpu|host=a,state=50%25%3D|gauge","name":"cpu","tags":{"host":"a","state":"50%="},"field":"gauge","min":2.5,"max":2.5,' +
        '"data":[{"timestamp":"2026-01-15T10:01:00.000Z","value":2.5}]},' +
        '{"id":"cpu|host=b%2Cc,state=x%7Cy|gauge","name":"cpu","tags":{"host":"b,c","state":"x|y"},"field":"gauge","min":5,"max":9,' +
        '"data":[{"timestamp":"2026-01-15T10:00:00.000Z","value":5},{"timestamp":"2026-01-15T10:02:00.000Z","value":9}]}]}',
    );
  });

  test("returns no series for unknown metrics, metrics of other tenants and unknown tags", async () => {
    for (const over of [
      { name: "nope" },
      { name: "quiet" },
      { tags: { host: "secret" } },
      { tags: { nope: "*" } },
    ]) {
      const { text } = await post("timeseries", body([selector(over)]));
      expect(text).toBe(
        '{"resolution":"MINUTELY","from":"2026-01-15T10:00:00.000Z","to":"2026-01-15T10:02:00.000Z","series":[]}',
      );
    }
  });

  test("names the aggregation in ids when the selector does", async () => {
    const found = await series([
      selector({ aggregation: "AVERAGE" }),
      selector({ field: "P90" }),
      selector({ field: "p_90", aggregation: null }),
      selector({ field: "Max", aggregation: "Sum" }),
    ]);
    expect(found.map(({ id }) => id)).toEqual(["cpu||gauge|avg", "cpu||p_90", "cpu||max|sum"]);
    expect(found.map(({ field }) => field)).toEqual(["gauge", "p_90", "max"]);
  });

  test("fills empty buckets with zero and includes them in min and max", async () => {
    const filled = { tags: { host: "a" }, draw_null_as_zero: true };
    const [found] = await series([selector(filled)], {
      from: iso(base - 5 * minute),
      to: iso(base + 4 * minute + 1),
    });
    expect(found?.data).toHaveLength(10);
    expect(found?.data.map(({ value }) => value)).toEqual([0, 0, 0, 0, 0, 0, 2.5, 0, 0, 0]);
    expect([found?.min, found?.max]).toEqual([0, 2.5]);
    expect(await series([selector({ ...filled, tags: { host: "nope" } })])).toEqual([]);
  });

  test("returns counters as cumulative values or as increments", async () => {
    const counter = { name: "hits", tags: {}, field: "COUNTER" };
    const values = async (answer: ReturnType<typeof series>) =>
      (await answer).flatMap(({ data }) => data.map(({ value }) => value));
    expect(await values(series([counter]))).toEqual([110, 114, 116]);
    expect(await values(series([{ ...counter, aggregation: "sum" }]))).toEqual([10, 4, 2]);
    const other = serve(store, { tenant: "a" }, { counterDefault: "increment" });
    const { body: answer } = await other.post("timeseries", body([counter]));
    expect(answer.series[0].data.map(({ value }: { value: number }) => value)).toEqual([10, 4, 2]);
  });

  test("keeps the first series by selector and id under `limit`", async () => {
    const select = [{ name: "hits", tags: {}, field: "counter" }, selector({ tags: { host: "*" } })];
    expect((await series(select, { limit: 2 })).map(({ id }) => id)).toEqual([
      "hits||counter",
      "cpu|host=a|gauge",
    ]);
    expect(await series(select, { limit: Number.MAX_SAFE_INTEGER })).toHaveLength(3);
    expect(await series(select, { limit: 1e300 })).toHaveLength(3);
  });

  test("handles zero-length, future and sub-millisecond ranges", async () => {
    const same = await series([selector()], { from: iso(base + 1), to: iso(base + 1) });
    expect(same[0]?.data.map(({ timestamp }) => timestamp)).toEqual([iso(base)]);
    expect(await series([selector()], { from: "2126-01-01T00:00:00Z", to: "2126-01-02T00:00:00Z" })).toEqual(
      [],
    );
    const fine = { from: "2026-01-15T11:00:00.0000001+01:00", to: "2026-01-15T10:00:00.5Z" };
    const { body: answer } = await post("timeseries", body([selector()], fine));
    expect([answer.from, answer.to]).toEqual(["2026-01-15T10:00:00.0000001Z", "2026-01-15T10:00:00.500Z"]);
  });

  test("chooses a resolution automatically", async () => {
    const to = iso(base + 30 * 24 * hour);
    expect((await post("timeseries", body([selector()], { to }))).body.resolution).toBe("DAILY");
  });

  test("answers a thousand selectors with bounded concurrency", {
    timeout: 60_000,
  }, async () => {
    let running = 0;
    let most = 0;
    const slow: MetricStore = {
      ...store,
      series: async (query: SeriesQuery, signal) => {
        most = Math.max(most, ++running);
        const found = await store.series(query, signal);
        running -= 1;
        return found;
      },
    };
    const other = serve(slow, { tenant: "a" });
    const select = Array.from({ length: 1_000 }, (_, n) =>
      selector({ tags: { host: n % 2 === 0 ? "*" : "a" } }),
    );
    const { status, body: answer } = await other.post("timeseries", body(select));
    expect([status, answer.series.length]).toEqual([200, 2]);
    expect(most).toBeLessThanOrEqual(8);
    expect(await issues("timeseries", body([...select, selector()]))).toEqual(["select"]);
  });

  test("aborts the other store calls after a failure", async () => {
    const gone: unknown[] = [];
    const failing: MetricStore = {
      ...store,
      series: async ({ tags }, signal) => {
        if (tags.host === "bad") throw new Error("broken");
        await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
        return [];
      },
      type: async () => "gauge",
    };
    const counted: MetricStore = {
      ...failing,
      series: (query, signal) =>
        failing.series(query, signal).catch((error) => {
          gone.push(query.tags.host);
          throw error;
        }),
    };
    const { status } = await serve(counted, {}).post(
      "timeseries",
      body(["a", "b", "bad"].map((host) => selector({ tags: { host } }))),
    );
    expect(status).toBe(500);
    expect(gone.sort()).toEqual(["a", "b", "bad"]);
  });
});

describe("metrics/list", () => {
  test("returns the complete body, sorted by the first selector", async () => {
    const select = [
      { id: "mean", name: "cpu", tags: { host: "*" }, field: "mean", aggregation: null },
      { id: "hits", name: "hits", tags: {}, field: "counter", aggregation: "sum" },
      { id: "none", name: "nope", tags: { host: "*" }, field: "gauge" },
    ];
    const { text } = await post("list", body(select, { group_by: [{ tag: "host" }] }));
    expect(text).toBe(
      '{"resolution":null,"from":"2026-01-15T10:00:00.000Z","to":"2026-01-15T10:02:00.000Z","rows":[' +
        '{"id":"|host=b%2Cc","group":{"host":"b,c"},"data":{"mean":5.666666666666667}},' +
        '{"id":"|host=a","group":{"host":"a"},"data":{"mean":2.5}},' +
        '{"id":"|","group":{},"data":{"hits":16}}]}',
    );
  });

  test("groups by name, by name and tag, and by nothing", async () => {
    const select = [
      { id: "a", ...selector({ tags: { host: "a" } }) },
      { id: "b", name: "hits", tags: {}, field: "counter", aggregation: "max" },
    ];
    expect((await rows(select, { group_by: ["NAME"] })).map(({ id, group }) => [id, group])).toEqual([
      ["cpu|", { Name: "cpu" }],
      ["hits|", { Name: "hits" }],
    ]);
    expect(
      (await rows(select, { group_by: ["Name", { Tag: "host" }] })).map(({ id, group }) => [id, group]),
    ).toEqual([
      ["cpu|host=a", { Name: "cpu", host: "a" }],
      ["hits|", { Name: "hits" }],
    ]);
    expect(await rows(select)).toEqual([{ id: "|", group: {}, data: { a: 2.5, b: 116 } }]);
    const twice = [{ Tag: "host" }, "Name", { Tag: "host" }, "Name"];
    expect((await rows(select, { group_by: twice })).map(({ id }) => id)).toEqual(["cpu|host=a", "hits|"]);
  });

  test("uses the exact range without a resolution and whole buckets with one", async () => {
    const select = [{ id: "x", name: "hits", tags: {}, field: "counter", aggregation: "sum" }];
    const at = { from: iso(base + 1), to: iso(base + 2 * minute - 1) };
    expect((await rows(select, at))[0]?.data).toEqual({ x: 4 });
    expect((await rows(select, { ...at, resolution: "MINUTELY" }))[0]?.data).toEqual({ x: 14 });
    const mean = [{ id: "x", ...selector({ tags: { host: "b,c" }, aggregation: "avg" }) }];
    expect((await rows(mean))[0]?.data).toEqual({ x: 17 / 3 });
    expect((await rows(mean, { resolution: "MINUTELY" }))[0]?.data).toEqual({ x: 6.5 });
    const zeros = mean.map((one) => ({ ...one, draw_null_as_zero: true }));
    expect((await rows(zeros, { resolution: "MINUTELY" }))[0]?.data).toEqual({ x: 13 / 3 });
  });

  test("returns nothing for a range below one millisecond", async () => {
    const within = { from: "2026-01-15T10:00:00.0000001Z", to: "2026-01-15T10:00:00.0000009Z" };
    expect(await rows([{ id: "x", ...selector() }], within)).toEqual([]);
    expect(await rows([{ id: "x", ...selector() }], { from: iso(base), to: iso(base) })).toHaveLength(1);
  });

  test("keeps the largest rows under `limit`", async () => {
    const select = [{ id: "x", ...selector({ tags: { host: "*" } }) }];
    expect((await rows(select, { group_by: [{ Tag: "host" }], limit: 1 })).map(({ id }) => id)).toEqual([
      "|host=b%2Cc",
    ]);
  });

  test("refuses a wildcard that is not grouped and accepts a fixed value", async () => {
    for (const pattern of ["*", "b*"]) {
      const asked = body([{ id: "x", ...selector({ tags: { host: "a", state: pattern } }) }], {
        group_by: ["Name", { Tag: "host" }],
      });
      expect(await refusal("list", asked)).toMatchObject({
        error: "ungrouped_wildcard",
        details: { tag: "state" },
      });
    }
  });
});

describe("metrics routes: invalid input", () => {
  const bad = {
    name: 1,
    tags: { a: 1, "": "x" },
    field: "foo",
    aggregation: "median",
    draw_null_as_zero: "yes",
  };

  test("report every issue at once", async () => {
    expect(
      await issues("timeseries", {
        from: "yesterday",
        resolution: "weekly",
        limit: 0,
        select: [bad, selector({ tags: [1] })],
      }),
    ).toEqual([
      "site_id",
      "from",
      "to",
      "resolution",
      "limit",
      "select.0.name",
      "select.0.tags.a",
      "select.0.tags.",
      "select.0.field",
      "select.0.aggregation",
      "select.0.draw_null_as_zero",
      "select.1.tags",
    ]);
    expect(
      await issues("list", body([{ ...bad, id: null }], { group_by: ["Nam", { Tag: 1 }, null], limit: 1.5 })),
    ).toEqual([
      "limit",
      "select.0.name",
      "select.0.tags.a",
      "select.0.tags.",
      "select.0.field",
      "select.0.aggregation",
      "select.0.draw_null_as_zero",
      "select.0.id",
      "group_by.0",
      "group_by.1",
      "group_by.2",
    ]);
    const { tags: _, ...without } = selector();
    expect(await issues("timeseries", body([without, selector({ tags: null })]))).toEqual([
      "select.0.tags",
      "select.1.tags",
    ]);
    expect(await issues("timeseries", body([]))).toEqual(["select"]);
    expect(await issues("list", { ...body([{ id: "x", ...selector() }]), group_by: null })).toEqual([
      "group_by",
    ]);
    const twice = [
      { id: "x", ...selector() },
      { id: "x", ...selector() },
    ];
    const turned = { from: range.to, to: range.from, group_by: ["Name", { Tag: "Name" }] };
    expect(await issues("list", body(twice, turned))).toEqual(["from", "select.1.id", "group_by.1"]);
  });

  test("refuse forced labels as tags", async () => {
    const forced = selector({ tags: { tenant: "b", host: "*" } });
    expect(await issues("timeseries", body([selector(), forced]))).toEqual(["select.1.tags.tenant"]);
    expect(await issues("list", body([{ id: "x", ...forced }], { group_by: [{ Tag: "tenant" }] }))).toEqual([
      "select.0.tags.tenant",
      "group_by.0",
    ]);
  });

  test("refuse an unknown field and list the allowed ones", async () => {
    for (const [field, told] of [
      ["p_50", "p_50"],
      ["P99", "p_99"],
      ["counter", "counter"],
    ] as const) {
      expect(await refusal("timeseries", body([selector({ field })]))).toMatchObject({
        error: "invalid_field",
        details: {
          field: told,
          metric: "cpu",
          allowed: ["gauge", "mean", "count", "min", "max", "p_90", "p_95"],
        },
      });
    }
    expect(
      await refusal("list", body([{ id: "x", name: "took", tags: {}, field: "gauge" }], { group_by: [] })),
    ).toMatchObject({
      error: "invalid_field",
      details: { allowed: ["mean", "count", "min", "max", "p_90", "p_95"] },
    });
  });

  test("accept `__proto__` as a tag and as an id", async () => {
    const tags = JSON.parse('{"__proto__":"*"}');
    expect(await series([selector({ tags })])).toEqual([]);
    const { text } = await post(
      "list",
      body([{ id: "__proto__", ...selector({ tags: { host: "a" } }) }], { group_by: [] }),
    );
    expect(text).toContain('"data":{"__proto__":2.5}');
  });

  test("refuse too many wildcards", async () => {
    const starred = (count: number) => body([selector({ tags: { host: "a*".repeat(count) } })]);
    expect(await series([selector({ tags: { host: "a*".repeat(100) } })])).toEqual([]);
    expect(await issues("timeseries", starred(101))).toEqual(["select.0.tags.host"]);
  });

  test("accept tag values of 64 kB", async () => {
    expect(await series([selector({ tags: { host: "x".repeat(65_536) } })])).toEqual([]);
  });

  test("refuse an answer that is too large, before reading if one series is", async () => {
    const small = serve(store, { tenant: "a" }, { limits: { points: 5 } });
    expect((await small.post("timeseries", body([selector({ tags: { host: "*" } })]))).body).toMatchObject({
      error: "result_too_large",
      details: { limit: 5, wanted: 6 },
    });
    const both = [selector(), { name: "hits", tags: {}, field: "counter" }];
    expect((await small.post("timeseries", body(both))).body).toMatchObject({
      error: "result_too_large",
      details: { limit: 5 },
    });
    const untouched: MetricStore = { ...store, type: () => Promise.reject(new Error("asked")) };
    const year = { from: "2000-01-01T00:00:00Z", resolution: "MINUTELY" };
    expect((await serve(untouched, {}).post("timeseries", body([selector()], year))).body).toMatchObject({
      error: "result_too_large",
      details: { limit: 5_000_000 },
    });
    const narrow = serve(store, { tenant: "a" }, { limits: { rows: 1 } });
    const list = body([{ id: "x", ...selector({ tags: { host: "*" } }) }], { group_by: [{ Tag: "host" }] });
    expect((await narrow.post("list", list)).body).toMatchObject({
      error: "result_too_large",
      details: { limit: 1, wanted: 2 },
    });
    expect((await narrow.post("list", { ...list, limit: 1 })).status).toBe(200);
  });

  test("refuse a site without metrics and a foreign site", async () => {
    for (const route of ["timeseries", "list"] as const) {
      const asked = { ...body([{ id: "x", ...selector() }], { group_by: [] }), site_id: "bare" };
      expect(await refusal(route, asked)).toMatchObject({
        error: "not_supported_by_backend",
        details: { backend: null, feature: "metrics" },
      });
      expect((await post(route, { ...asked, site_id: "nope" })).status).toBe(404);
    }
    expect((await get("names/bare")).status).toBe(422);
    expect((await get("names/nope")).text).toBe('{"error":"Not found"}');
  });
});

describe("metrics/names and metrics/type_and_tags", () => {
  test("names lists the site's own metrics", async () => {
    expect(await get("names/shop")).toEqual({ status: 200, text: '["a/b c","cpu","hits","took"]' });
  });

  test.each([
    ["cpu", '{"metric_type":"gauge","available_tags":[["host","state"]]}'],
    ["hits", '{"metric_type":"counter","available_tags":[]}'],
    ["took", '{"metric_type":"measurement","available_tags":[]}'],
    ["a%2Fb%20c", '{"metric_type":"gauge","available_tags":[["__proto__x"]]}'],
  ])("answer GET %s", async (path, text) => {
    expect(await get(`type_and_tags/shop/${path}`)).toEqual({ status: 200, text });
  });

  test.each(["nope", "quiet", "%00", "%zz", "%", "a/b c", "took_bucket", "__proto__", ""])(
    "%j is not found",
    async (path) => {
      expect(await get(`type_and_tags/shop/${path}`)).toEqual({ status: 404, text: '{"error":"Not found"}' });
    },
  );
});

describe("metrics/timeseries: large answers", () => {
  const many = createMemoryMetrics("memory");
  for (let host = 0; host < 40; host += 1) {
    const append = many.append("load", "gauge", "value", { host: `h${host}` });
    for (let at = 0; at < 3_000; at += 1) append(base + at * minute, at + host / 64);
  }
  /** Of the points until then. */
  const asked = (until: number) =>
    body([{ name: "load", tags: { host: "*" }, field: "gauge" }], {
      to: iso(base + until * minute),
      resolution: "MINUTELY",
    });

  test("are streamed, with the same text as without a connection", async () => {
    const { server, post } = serve(many, {});
    const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
    try {
      const { text, body: answer } = await post("timeseries", asked(3_000), `http://127.0.0.1:${port}`);
      expect(text.length).toBeGreaterThan(5 * 1_048_576);
      expect(answer.series).toHaveLength(40);
      for (const { data, min, max } of answer.series) {
        expect(data).toHaveLength(3_000);
        expect(max - min).toBe(2_999);
      }
    } finally {
      await server.close(1_000);
    }
  });

  test("take a stream slot only above 4 MiB", async () => {
    const { server } = serve(
      many,
      {},
      { limits: { requests: 3, streams: 1, tokenRequests: 2, tokenStreams: 2 } },
    );
    const open = (until: number) => {
      const init = { method: "POST", headers: { ...headers }, body: JSON.stringify(asked(until)) };
      return server.fetch(`${origin}/api/v2/metrics/timeseries`, init);
    };
    const unread = [await open(1_000), await open(1_000), await open(1_000), await open(1_000)];
    expect(unread.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    const streamed = await open(3_000);
    expect((await open(3_000)).status).toBe(500);
    for (const response of unread) {
      const { series } = await response.json();
      expect(series.map(({ data }: { data: object[] }) => data.length)).toEqual(Array(40).fill(1_001));
    }
    expect((await streamed.json()).series).toHaveLength(40);
    const [left, last] = [await open(3_000), await open(1_000)];
    await left.body?.cancel();
    await last.body?.cancel();
    expect((await open(3_000)).status).toBe(200);
  });
});

test("the field decides the type of a metric whose type is a guess", async () => {
  const other = { gauge: "counter", counter: "gauge" } as const;
  const guessing: MetricStore = {
    ...store,
    type: async (match, metric, signal) => {
      const type = await store.type(match, metric, signal);
      return type === "gauge" || type === "counter" ? other[type] : type;
    },
    isTypeGuessed: async () => true,
  };
  const guessed = serve(guessing, { tenant: "a" });
  const asked = [
    selector({ tags: { host: "*" } }),
    selector({ tags: { host: "a" }, field: "mean" }),
    selector({ name: "hits", field: "counter", aggregation: "sum" }),
  ];
  const { body: answer } = await guessed.post("timeseries", body(asked));
  expect(answer.series).toEqual(await series(asked));
  expect(answer.series).toHaveLength(4);
  // The explanation shows the computed measure, not that of the guessed type.
  const told = await guessed.explain(body(asked));
  expect(told.selectors).toMatchObject([
    { type: "counter", measure: { of: "samples", combine: "last" } },
    { type: "counter", measure: { of: "samples", combine: "mean" } },
    { type: "gauge", measure: { of: "increment" } },
  ]);
  const nonsense = await guessed.post("timeseries", body([selector({ field: "speed" })]));
  expect(nonsense.status).toBe(422);
});

afterAll(() => server.close(0));
