// The twelve tracing and deploy routes over memory stores: request bodies, pages, answer shapes, and the merge of
// several backends.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createMemorySpans, type StoredSpan } from "#resolvers/memory/stores/span-store.ts";
import { buildSpanSource, type Site } from "#src/access/sites.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis } from "#src/core/time.ts";
import { operations } from "#src/operations/index.ts";
import type { Context } from "#src/operations/runtime/operation.ts";
import type { SpanStore } from "#src/store/span-analytics.ts";
import { encodeActionDigest, encodeEventDigest, hashStatement } from "#src/tracing/spans/digest.ts";
import { type ModelSpan, makeTraces, midnight, toSpan } from "../conformance/trace-fixture.ts";
import { at, base, createException, createSpan } from "../tracing/span-builder.ts";

type Json = Record<string, unknown>;
type Placed = StoredSpan & { readonly site_id: string };

function storedOf(model: ModelSpan): Placed {
  const { namespace: _, action: __, tags: ___, ...stored } = toSpan(model);
  return stored;
}

/** Sites with their backends. */
function serve(
  spans: readonly Placed[],
  places: Readonly<Record<string, string>> = { shop: "m", stock: "m", blog: "m" },
  now = base + 3_600_000,
) {
  const stores = new Map<string, ReturnType<typeof createMemorySpans>>();
  for (const backend of Object.values(places))
    stores.set(backend, stores.get(backend) ?? createMemorySpans());
  for (const [site, backend] of Object.entries(places)) {
    stores.get(backend)?.add(
      site,
      spans.filter(({ site_id }) => site_id === site),
    );
  }
  const sites = Object.entries(places).map(([id, backend]): Site => {
    const store: SpanStore = stores.get(backend) ?? createMemorySpans();
    const source = buildSpanSource(id, { index: id, layout: "auto" });
    return { id, retention: 86_400_000, counterDefault: "cumulative", traces: { backend, store, source } };
  });
  return ask(sites, now);
}

function ask(sites: readonly Site[], now: number, limits: Partial<Context["limits"]> = {}) {
  const context: Context = {
    user: "ana",
    sites: new Map(sites.map((site) => [site.id, site])),
    limits: { ...defaults.limits, ...limits },
    now: () => fromMillis(now),
    signal: new AbortController().signal,
  };
  return async <T = Json[]>(route: string, body: Json): Promise<T> => {
    const operation = operations.find(({ path }) => path === `/api/v2/${route}`);
    if (operation === undefined) throw new Error(`no route ${route}`);
    const answer = operation.prepare(body).run(context);
    if (!(Symbol.asyncIterator in answer)) return JSON.parse(JSON.stringify(await answer));
    const texts: string[] = [];
    for await (const { count, text } of answer) {
      expect(JSON.parse(`[${text}]`)).toHaveLength(count);
      texts.push(text);
    }
    return JSON.parse(`[${texts.join(",")}]`);
  };
}

const hex = (digit: string, length: number): string => digit.repeat(length);
/** A request of the shop, 16 and 32 digits of ids. */
function request(over: Parameters<typeof createSpan>[0] = {}): Placed {
  const {
    namespace: _,
    action: __,
    tags: ___,
    ...stored
  } = createSpan({
    ...{ trace_id: hex("a", 32), span_id: hex("a", 16), span_kind: "server", span_name: "GET /" },
    ...over,
  });
  return stored;
}
const first = { per_page: 100, order: "DESC", cursor: { time: null } };
const listing = { site_ids: ["shop"], pagination: first };
const range = { from: "2026-01-15T10:00:00Z", to: "2026-01-15T11:00:00Z" };

describe("trace routes: request bodies", () => {
  const run = serve([request()]);
  const issues = async (route: string, body: Json): Promise<unknown> =>
    run(route, body).then(
      () => "answered",
      (error) => error.details?.issues?.map((issue: { path: string }) => issue.path) ?? error,
    );

  test.each([
    [{}, ["site_ids", "pagination"]],
    [{ ...listing, site_ids: [] }, ["site_ids"]],
    [{ ...listing, site_ids: "shop" }, ["site_ids"]],
    [{ ...listing, pagination: { order: "ASC" } }, ["pagination.per_page"]],
    [{ ...listing, pagination: { ...first, per_page: 0 } }, ["pagination.per_page"]],
    [{ ...listing, pagination: { ...first, per_page: 10_001 } }, ["pagination.per_page"]],
    [{ ...listing, pagination: { ...first, per_page: 1.5 } }, ["pagination.per_page"]],
    [{ ...listing, pagination: { ...first, order: "UP" } }, ["pagination.order"]],
    [{ ...listing, pagination: { ...first, cursor: "Size" } }, ["pagination.cursor"]],
    [{ ...listing, pagination: { ...first, cursor: { time: "yesterday" } } }, ["pagination.cursor"]],
    [{ ...listing, pagination: { ...first, cursor: { duration: -1 } } }, ["pagination.cursor"]],
    [{ ...listing, digests: "x", namespace: 1, ttl: "1h" }, ["digests", "namespace", "ttl"]],
    [{ ...listing, duration: -1, duration_ms: "x" }, ["duration", "duration_ms"]],
    [{ ...listing, from: "2026-01-15", to: "2026-02-30T00:00:00Z" }, ["from", "to"]],
    [{ ...listing, from: "2026-01-16T00:00:00Z", to: "2026-01-15T00:00:00Z" }, ["from"]],
  ])("refuses %j at %j", async (body, paths) => {
    expect(await issues("tracing/traces/performance", body)).toEqual(paths);
    expect(await issues("tracing/traces/errors", body)).toEqual(paths);
  });

  test.each([
    ["tracing/locator", {}, ["site_ids", "trace_id"]],
    ["tracing/trace", { site_ids: ["shop"], trace_id: 7 }, ["trace_id"]],
    ["tracing/trace/error", { site_ids: [] }, ["site_ids"]],
    ["tracing/actions", { site_id: "shop" }, ["from", "to"]],
    ["tracing/actions", { site_id: "shop", ...range, namespaces: "web" }, ["namespaces"]],
    ["tracing/site_edges", { ...range, from: range.to, to: range.from, site_id: "shop" }, ["from"]],
    ["tracing/action_edges", { site_id: "shop", ...range, namespace: "web", action: "x" }, ["namespace"]],
    ["tracing/slow_events", { site_id: "shop", ...range, limit: 0, span_kind: "db" }, ["span_kind", "limit"]],
    ["tracing/slow_events/actions", { site_id: "shop", ...range }, ["digest"]],
    ["deploys/stats", { site_id: "shop" }, ["revision"]],
  ])("%s refuses %j at %j", async (route, body, paths) => {
    expect(await issues(route, body)).toEqual(paths);
  });

  test("treats null as absent, ignores unknown keys and accepts keywords in any case", async () => {
    const nothing = { digests: null, action_name: null, namespace: null, query: null, duration: null };
    const body = {
      ...listing,
      ...nothing,
      duration_ms: null,
      from: null,
      to: null,
      ttl: null,
      colour: "red",
    };
    expect(await run("tracing/traces/performance", body)).toHaveLength(1);
    for (const cursor of [null, {}, "Time", "time", "DURATION", { time: null, duration: null }]) {
      const pagination = { per_page: 1, order: "asc", cursor };
      expect(await run("tracing/traces/performance", { ...listing, pagination })).toHaveLength(1);
    }
    const words = { site_id: "shop", ...range, span_kind: "CLIENT", wanted_attributes: null, limit: null };
    expect(await run("tracing/slow_events", words)).toEqual([]);
  });

  test("orders by time for a cursor whose fields are both null or absent", async () => {
    const longer = request({ trace_id: hex("1", 32), from: 1, to: 10 });
    const later = request({ trace_id: hex("2", 32), from: 19, to: 20 });
    const two = serve([longer, later]);
    const firstOf = async (cursor: unknown) => {
      const pagination = { per_page: 1, order: "DESC", cursor };
      return (await two("tracing/traces/performance", { ...listing, pagination }))[0]?.trace_id;
    };
    expect(await firstOf({ time: null, duration: null })).toBe(later.trace_id);
    expect(await firstOf({})).toBe(later.trace_id);
    expect(await firstOf({ duration: null })).toBe(longer.trace_id);
  });

  test("reports a query syntax error with its slug and position", async () => {
    const body = { ...listing, query: "tag.a=1 user=2" };
    await expect(run("tracing/traces/performance", body)).rejects.toMatchObject({
      slug: "invalid_log_query",
      details: { start: 8, end: 12 },
    });
  });

  test("refuses a site without traces", async () => {
    const bare: Site = { id: "bare", retention: 1, counterDefault: "cumulative" };
    const none = ask([bare], base);
    const expected = { slug: "not_supported_by_backend", details: { backend: null, feature: "traces" } };
    await expect(none("tracing/traces/errors", { ...listing, site_ids: ["bare"] })).rejects.toMatchObject(
      expected,
    );
    await expect(none("tracing/actions", { site_id: "bare", ...range })).rejects.toMatchObject(expected);
  });

  test("accepts 10,000 sites in one request", async () => {
    const places = Object.fromEntries(Array.from({ length: 10_000 }, (_, n) => [`site-${n}`, "m"]));
    const many = serve([request({ site_id: "site-77" }), request({ site_id: "site-9999" })], places);
    const body = { ...listing, site_ids: Object.keys(places) };
    expect((await many("tracing/traces/performance", body)).map(({ site_id }) => site_id)).toEqual([
      "site-9999",
      "site-77",
    ]);
  });
});

describe("trace routes: answers", () => {
  const failed = request({
    ...{ revision: "3f9c", status_code: "ERROR", status_message: "it broke" },
    span_attributes: {
      "appsignal.tag.region": "eu",
      "appsignal.action_name": "Cart#show",
      big: 9_007_199_254_740_993n,
      nested: { list: [1, null, "x"] },
    },
    resource_attributes: { "service.name": "web" },
    events: [createException(1, "KeyError")],
    links: [{ trace_id: hex("b", 32), span_id: hex("b", 16), trace_state: "a=b", attributes: {} }],
    to: 10.00000425,
  });
  const run = serve([failed]);

  test("returns a trace summary with all its keys", async () => {
    expect(await run("tracing/traces/performance", listing)).toEqual([
      {
        ...{ trace_id: hex("a", 32), span_id: hex("a", 16), site_id: "shop", namespace: "web" },
        ...{
          action_name: "Cart#show",
          revision: "3f9c",
          time: "2026-01-15T10:00:00.010Z",
          duration: 10.000004,
        },
        ...{ tags: { region: "eu" }, has_npo: false },
      },
    ]);
    const bare = serve([request()]);
    expect(await bare("tracing/traces/performance", listing)).toMatchObject([{ revision: "", tags: {} }]);
  });

  test("returns a span with every key, literal dots, parallel arrays and full precision", async () => {
    const [row] = await run("tracing/trace", { site_ids: ["shop"], trace_id: hex("A", 32) });
    const digest = encodeActionDigest({ namespace: "web", action: "Cart#show" });
    expect(row).toEqual({
      ...{ start_time: "2026-01-15T10:00:00.000Z", end_time: "2026-01-15T10:00:00.010000004Z" },
      ...{ duration: 10.000004, trace_id: hex("a", 32), span_id: hex("a", 16), parent_span_id: "", digest },
      ...{ site_id: "shop", trace_state: "", service_name: "web", namespace: "web", revision: "3f9c" },
      ...{
        action_name: "Cart#show",
        span_name: "GET /",
        span_kind: "server",
        scope_name: "",
        scope_version: "",
      },
      ...{ status_code: "ERROR", status_message: "it broke", resource_attributes: { "service.name": "web" } },
      span_attributes: expect.objectContaining({ nested: { list: [1, null, "x"] } }),
      "events.timestamp": ["2026-01-15T10:00:00.001Z"],
      "events.name": ["exception"],
      "events.attributes": [
        { "exception.type": "KeyError", "appsignal.incident_digest": expect.stringMatching(/^err_[\w-]+$/) },
      ],
      ...{ "links.trace_id": [hex("b", 32)], "links.span_id": [hex("b", 16)], "links.trace_state": ["a=b"] },
      ...{ "links.attributes": [{}], subtrace_root: true },
    });
  });

  test("keeps the digits of integers beyond 2^53", async () => {
    const { store } = { store: createMemorySpans() };
    store.add("shop", [failed]);
    const site: Site = {
      ...{ id: "shop", retention: 86_400_000, counterDefault: "cumulative" },
      traces: { backend: "m", store, source: buildSpanSource("shop", { index: "shop", layout: "auto" }) },
    };
    const operation = operations.find(({ name }) => name === "tracing.trace");
    const answer = operation?.prepare({ site_ids: ["shop"], trace_id: hex("a", 32) }).run({
      ...{ user: "ana", sites: new Map([["shop", site]]), limits: defaults.limits },
      ...{ now: () => at(0), signal: new AbortController().signal },
    });
    if (answer === undefined || !(Symbol.asyncIterator in answer)) throw new Error("rows expected");
    for await (const { text } of answer) expect(text).toContain('"big":9007199254740993,');
  });

  test("returns the location of a trace", async () => {
    expect(await run<Json>("tracing/locator", { site_ids: ["shop"], trace_id: hex("a", 32) })).toEqual({
      performance: [{ site_id: "shop", namespace: "web", action_name: "Cart#show" }],
      errors: [{ site_id: "shop", incident_number: expect.any(Number), exception_name: "KeyError" }],
    });
  });

  test("returns no spans and no location for an unknown trace", async () => {
    const unknown = { site_ids: ["shop"], trace_id: "1234" };
    for (const route of ["trace", "trace/performance", "trace/error"]) {
      expect(await run(`tracing/${route}`, unknown)).toEqual([]);
    }
    expect(await run("tracing/locator", unknown)).toEqual({ performance: [], errors: [] });
  });
});

describe("trace routes: ranges", () => {
  const day = 86_400_000;
  const spans = [0, 999_999, 1_000_000].map((nanos, n) =>
    request({ trace_id: `${n}`, to: nanos / 1e6, from: -1_000 }),
  );
  const old = request({ trace_id: "old", from: -2 * day, to: -2 * day + 5 });
  const run = serve([...spans, old]);
  const traces = async (body: Json) =>
    (
      await run("tracing/traces/performance", {
        ...listing,
        ...body,
        pagination: { per_page: 10, order: "ASC" },
      })
    ).map(({ trace_id }) => trace_id);

  test("select by the end of the request; a bound to the millisecond includes all of it", async () => {
    expect(await traces({ from: "2026-01-15T10:00:00Z", to: "2026-01-15T10:00:00Z" })).toEqual(["0", "1"]);
    expect(await traces({ from: "2026-01-15T10:00:00.0000001Z", to: "2026-01-15T10:00:00.001Z" })).toEqual([
      "1",
      "2",
    ]);
    expect(await traces({ from: "2026-01-15T10:00:00Z", to: "2026-01-15T10:00:00.0009Z" })).toEqual(["0"]);
  });

  test("default to the retention; an earlier `from` is honoured and `ttl` limits both", async () => {
    expect(await traces({})).toEqual(["0", "1", "2"]);
    expect(await traces({ from: "2026-01-01T00:00:00Z" })).toEqual(["old", "0", "1", "2"]);
    expect(await traces({ from: "2026-01-01T00:00:00Z", ttl: 3_600 })).toEqual(["0", "1", "2"]);
    expect(await traces({ ttl: 3_599.999 })).toEqual(["2"]);
    expect(await traces({ ttl: 60 })).toEqual([]);
  });

  test("do not limit lookups by trace id", async () => {
    const trace_id = "Ab".repeat(16);
    const run = serve([request({ trace_id: trace_id.toLowerCase(), from: -2 * day, to: -2 * day + 5 })]);
    expect(await run("tracing/traces/performance", listing)).toEqual([]);
    for (const route of ["trace", "trace/performance"]) {
      expect(await run(`tracing/${route}`, { site_ids: ["shop"], trace_id })).toHaveLength(1);
    }
    const bounded = { site_ids: ["shop"], trace_id, from: range.from };
    expect(await run("tracing/trace/performance", bounded)).toEqual([]);
    expect(await run("tracing/trace/performance", { site_ids: ["shop"], trace_id, ttl: 3_600 })).toEqual([]);
  });
});

describe("trace detail routes", () => {
  const root = request({ to: 100 });
  const child = request({
    ...{ span_id: hex("0", 16), parent_span_id: root.span_id, span_kind: "internal", from: 5, to: 9 },
    events: [createException(6, "KeyError", "digest-1")],
  });
  const other = request({ trace_id: hex("c", 32), to: 50 });
  const run = serve([child, root, other]);
  const ids = async (route: string, body: Json) =>
    (await run(`tracing/${route}`, { site_ids: ["shop"], ...body })).map(({ span_id }) => span_id);

  test("need no pagination; filters choose a trace and keep all its spans", async () => {
    const trace = await run("tracing/trace", { site_ids: ["shop"], trace_id: root.trace_id });
    expect(trace.map(({ parent_span_id }) => parent_span_id)).toEqual(["", root.span_id]);
    expect(await ids("trace/performance", { trace_id: root.trace_id })).toEqual([
      root.span_id,
      child.span_id,
    ]);
    expect(await ids("trace/performance", { duration_ms: 60 })).toEqual([root.span_id, child.span_id]);
    expect(await ids("trace/performance", { trace_id: root.trace_id, duration: 200 })).toEqual([]);
    expect(await ids("trace/performance", { trace_id: root.trace_id, namespace: "none" })).toEqual([]);
  });

  test("return the first trace of the listing without an id", async () => {
    expect(await ids("trace/performance", {})).toHaveLength(2);
    expect(await ids("trace/performance", { pagination: { order: "ASC" } })).toHaveLength(1);
    expect(await ids("trace/performance", { pagination: { cursor: { duration: 100 } } })).toHaveLength(1);
  });

  test("return the span of the error first", async () => {
    expect(await ids("trace/error", { trace_id: root.trace_id, digests: ["digest-1"] })).toEqual([
      child.span_id,
      root.span_id,
    ]);
    expect(await ids("trace/error", { trace_id: root.trace_id, digests: ["digest-2"] })).toEqual([]);
    expect(await ids("trace/error", { trace_id: root.trace_id, digests: [] })).toHaveLength(2);
    expect(await ids("trace/error", {})).toEqual([child.span_id, root.span_id]);
    expect(await ids("trace/error", { trace_id: other.trace_id })).toEqual([]);
  });

  test("refuse a trace with more spans than the limit", async () => {
    const store = createMemorySpans();
    store.add("shop", [root, child]);
    const source = buildSpanSource("shop", { index: "shop", layout: "auto" });
    const site: Site = {
      ...{ id: "shop", retention: 86_400_000, counterDefault: "cumulative" },
      traces: { backend: "m", store, source },
    };
    const small = ask([site], base + 1_000, { spans: 1 });
    await expect(
      small("tracing/trace", { site_ids: ["shop"], trace_id: root.trace_id }),
    ).rejects.toMatchObject({
      slug: "result_too_large",
      details: { limit: 1 },
    });
  });

  test("return only spans of the requested sites", async () => {
    const stock = request({ site_id: "stock", span_id: hex("d", 16), parent_span_id: child.span_id });
    const both = serve([root, child, stock]);
    const trace_id = root.trace_id;
    expect(await both("tracing/trace", { site_ids: ["stock"], trace_id })).toMatchObject([
      { site_id: "stock", subtrace_root: true, namespace: "web" },
    ]);
    expect(await both("tracing/trace", { site_ids: ["stock", "shop", "shop"], trace_id })).toHaveLength(3);
  });
});

// ---- Pages --------------------------------------------------------------------------------------------------

const nights = midnight + 3_600_000;
const everywhere = ["shop", "stock", "blog"];

/** Reads all pages as a client does: the cursor is the last row's value, and the first short page is the last. */
async function readPages(
  run: ReturnType<typeof serve>,
  route: string,
  by: "time" | "duration",
  order: string,
  per_page: number,
): Promise<Json[]> {
  const rows: Json[] = [];
  let cursor: unknown = { [by]: null };
  for (;;) {
    const pagination = { per_page, order, cursor };
    const page = await run(`tracing/traces/${route}`, { site_ids: everywhere, pagination });
    rows.push(...page);
    const last = page.at(-1);
    if (page.length < per_page || last === undefined) return rows;
    cursor = { [by]: last[by] };
  }
}

describe("trace listing pages", () => {
  const pagesArbitrary = [
    fc.nat(1_000),
    fc.constantFrom("performance", "errors"),
    fc.constantFrom("time", "duration"),
    fc.constantFrom("ASC", "DESC"),
    fc.integer({ min: 1, max: 30 }),
  ] as const;

  test("concatenated equal the full listing, for every order, cursor and page size", async () => {
    const law = fc.asyncProperty(...pagesArbitrary, async (seed, route, by, order, per_page) => {
      const run = serve(makeTraces(seed, 25).map(storedOf), undefined, nights);
      const cursor = by === "time" ? "Time" : "Duration";
      const whole = await run(`tracing/traces/${route}`, {
        site_ids: everywhere,
        pagination: { per_page: 10_000, order, cursor },
      });
      const keys = (rows: readonly Json[]) =>
        rows.map((row) => `${row.site_id} ${row.trace_id} ${row.span_id}`);
      expect(keys(await readPages(run, route, by, order, per_page))).toEqual(keys(whole));
      const values = whole.map((row) =>
        by === "time" ? Date.parse(String(row.time)) : Number(row.duration),
      );
      const ascending = values.toSorted((a, b) => a - b);
      expect(values).toEqual(order === "ASC" ? ascending : ascending.reverse());
    });
    await fc.assert(law, { numRuns: 40 });
  });

  test("of sites on several backends equal those of one backend with all sites", async () => {
    const law = fc.asyncProperty(
      ...pagesArbitrary,
      fc.array(fc.constantFrom("a", "b", "c"), { minLength: 3, maxLength: 3 }),
      async (seed, route, by, order, per_page, backends) => {
        const spans = makeTraces(seed, 25).map(storedOf);
        const places = Object.fromEntries(everywhere.map((site, n) => [site, backends[n] ?? "a"]));
        const [one, several] = [serve(spans, undefined, nights), serve(spans, places, nights)];
        const rows = await readPages(one, route, by, order, per_page);
        expect(await readPages(several, route, by, order, per_page)).toEqual(rows);
        const traces = [...new Set(rows.map(({ trace_id }) => trace_id))].slice(0, 3);
        for (const trace_id of traces) {
          for (const detail of ["trace", "trace/performance", "trace/error", "locator"]) {
            const body = { site_ids: everywhere, trace_id };
            expect(await several(`tracing/${detail}`, body)).toEqual(await one(`tracing/${detail}`, body));
          }
        }
      },
    );
    await fc.assert(law, { numRuns: 25 });
  });

  const tied = Array.from({ length: 30 }, (_, n) =>
    request({ trace_id: `${n}`.padStart(32, "0"), from: n % 3, to: 10 + (n % 3) }),
  );

  test("end between two milliseconds or durations, and grow rather than cut one", async () => {
    const run = serve(tied);
    const page = async (cursor: unknown, per_page = 5, order = "ASC") =>
      (await run("tracing/traces/performance", { ...listing, pagination: { per_page, order, cursor } }))
        .length;
    expect(await page("Time")).toBe(10);
    expect(await page({ time: "2026-01-15T10:00:00.010Z" })).toBe(10);
    expect(await page({ time: "2026-01-15T10:00:00.010Z" }, 11)).toBe(20);
    expect(await page({ time: "2026-01-15T10:00:00.012Z" })).toBe(0);
    expect(await page({ time: "2026-01-15T10:00:00.012Z" }, 5, "DESC")).toBe(10);
    expect(await page({ time: "2026-01-15T10:00:00.0125Z" }, 5, "DESC")).toBe(10);
    expect(await page("Duration")).toBe(30);
    expect(await page({ duration: 10 })).toBe(0);
    expect(await page({ duration: 9.9999 })).toBe(30);
    expect(await page({ duration: 10.0001 }, 5, "DESC")).toBe(30);
  });

  test("accept duration cursors larger than any duration", async () => {
    const run = serve(tied);
    const page = async (over: Json, order = "ASC", cursor: unknown = "Duration") =>
      (
        await run("tracing/traces/performance", {
          ...listing,
          ...over,
          pagination: { per_page: 5, order, cursor },
        })
      ).length;
    expect(await page({ duration: 1e308 })).toBe(0);
    expect(await page({}, "ASC", { duration: 1e308 })).toBe(0);
    expect(await page({}, "DESC", { duration: 1e308 })).toBe(30);
  });

  test("choose the row of a trace before the cursor, so that no trace appears twice", async () => {
    const early = request({ span_id: hex("1", 16), parent_span_id: hex("a", 16), from: 1, to: 5 });
    const run = serve([request({ to: 20 }), early]);
    const next = { ...listing, pagination: { ...first, cursor: { time: "2026-01-15T10:00:00.020Z" } } };
    expect(await run("tracing/traces/performance", next)).toEqual([]);
    expect(
      await run("tracing/traces/performance", { ...listing, to: "2026-01-15T10:00:00.019Z" }),
    ).toHaveLength(1);
  });

  test("allow 10,000 traces on one millisecond and refuse more", async () => {
    const many = Array.from({ length: 10_001 }, (_, n) => request({ trace_id: `${n}` }));
    await expect(serve(many)("tracing/traces/performance", listing)).rejects.toMatchObject({
      slug: "result_too_large",
      details: { limit: 10_000 },
    });
    expect(await serve(many.slice(1))("tracing/traces/performance", listing)).toHaveLength(10_000);
    const halves = many.map((one, n) => ({ ...one, site_id: n % 2 === 0 ? "shop" : "blog" }));
    const both = { ...listing, site_ids: ["shop", "blog"] };
    await expect(
      serve(halves, { shop: "a", blog: "b" })("tracing/traces/performance", both),
    ).rejects.toMatchObject({ slug: "result_too_large", details: { limit: 10_000 } });
  });
});

describe("traces with missing or late spans", () => {
  const run = async (spans: readonly Placed[], route = "traces/performance") =>
    serve(spans)(`tracing/${route}`, { ...listing, site_ids: everywhere });

  test("are listed when the root is missing, late or in another site", async () => {
    const entry = request({ span_id: hex("1", 16), parent_span_id: hex("f", 16), to: 5 });
    expect(await run([entry])).toMatchObject([{ span_id: entry.span_id }]);
    const root = request({ span_id: hex("f", 16), to: 50 });
    expect(await run([entry, root])).toMatchObject([{ span_id: root.span_id }]);
    const elsewhere = { ...root, site_id: "stock" };
    expect(await run([entry, elsewhere])).toMatchObject([{ site_id: "stock" }, { site_id: "shop" }]);
  });

  test("list an error below a missing parent, with empty names", async () => {
    const lost = request({
      ...{ parent_span_id: hex("e", 16), span_kind: "client", span_name: "charge", to: 5 },
      events: [createException(1, "Oops")],
    });
    expect(await run([lost])).toEqual([]);
    expect(await run([lost], "traces/errors")).toMatchObject([
      { namespace: "background", action_name: "charge" },
    ]);
    const [row] = await serve([lost])("tracing/trace", { site_ids: ["shop"], trace_id: lost.trace_id });
    expect(row).toMatchObject({ namespace: "", action_name: "", digest: "", subtrace_root: true });
  });

  test("return 10,000 spans", async () => {
    const root = request();
    const children = Array.from({ length: 9_999 }, (_, n) =>
      request({
        span_id: n.toString(16).padStart(16, "0"),
        parent_span_id: root.span_id,
        span_kind: "internal",
      }),
    );
    const rows = await serve([root, ...children])("tracing/trace", {
      site_ids: ["shop"],
      trace_id: root.trace_id,
    });
    expect(rows).toHaveLength(10_000);
    expect(rows[0]).toMatchObject({ span_id: root.span_id });
    expect(new Set(rows.map(({ action_name }) => action_name))).toEqual(new Set(["GET /"]));
  });
});

describe("trace analytics routes", () => {
  const root = request({ to: 100, revision: "r1" });
  const query = request({
    ...{
      span_id: hex("1", 16),
      parent_span_id: root.span_id,
      span_kind: "client",
      span_name: "query",
      to: 40,
    },
    ...{ statement: "SELECT 1", peer: "mysql", span_attributes: { "db.system": "mysql" }, count: 6 },
  });
  const caller = request({
    ...{ site_id: "blog", span_id: hex("c", 16), parent_span_id: hex("d", 16), span_kind: "client", to: 120 },
  });
  const called = { ...root, parent_span_id: caller.span_id };
  const run = serve([called, query, caller, { ...root, trace_id: hex("9", 32), status_code: "ERROR" }]);
  const one = { site_id: "shop", ...range };

  test("return the actions of a range", async () => {
    expect(await run("tracing/actions", one)).toEqual([
      {
        ...{
          namespace: "web",
          action: "GET /",
          digest: encodeActionDigest({ namespace: "web", action: "GET /" }),
        },
        ...{ mean: 100, throughput: 2, error_rate: 50, has_npo: true },
      },
    ]);
    for (const none of [{ namespaces: ["x"] }, { revision: "x" }, { action: "x" }]) {
      expect(await run("tracing/actions", { ...one, ...none })).toEqual([]);
    }
    expect(await run("tracing/actions", { ...one, namespaces: [] })).toHaveLength(1);
  });

  test("return action names and digests that filter the listing", async () => {
    const [row] = await run("tracing/actions", one);
    for (const filter of [
      { namespace: row?.namespace, action_name: row?.action },
      { digests: [row?.digest] },
      { digests: ["unknown", row?.digest] },
    ]) {
      expect(await run("tracing/traces/performance", { ...listing, ...filter })).toHaveLength(2);
    }
  });

  test("return edges to partners on the same backend only", async () => {
    const figures = (count: number, mean: number) => ({
      count,
      error_count: 0,
      mean,
      p_90: mean,
      p_95: mean,
    });
    expect(await run("tracing/site_edges", one)).toEqual({
      upstream: [{ service: "web", ...figures(1, 120) }],
      downstream: [{ service: "mysql", ...figures(6, 40 / 6) }],
      internal: [],
    });
    expect(await run("tracing/action_edges", { ...one, namespace: "web/web", action: "GET /" })).toEqual({
      upstream: [
        {
          ...{ service: "web", namespace: "", action: "", span_kind: "client", peer_span_kind: "server" },
          ...{ edge_type: "SYNC", ...figures(1, 120) },
        },
      ],
      downstream: [
        {
          ...{ service: "mysql", namespace: null, action: null, span_kind: "client", peer_span_kind: null },
          ...{ edge_type: "SYNC", ...figures(6, 40 / 6) },
        },
      ],
    });
    const apart = serve([called, query, caller], { shop: "a", blog: "b" });
    expect(await apart("tracing/site_edges", one)).toMatchObject({ upstream: [] });
    const unknown = { ...one, namespace: "a/b/web", action: "none" };
    expect(await run("tracing/action_edges", unknown)).toEqual({ upstream: [], downstream: [] });
  });

  test("return slow events and their actions", async () => {
    const statement = hashStatement("select ?");
    const digest = encodeEventDigest({ service: "web", kind: "client", name: "query", statement });
    const wanted = { wanted_attributes: ["db.system"], excluded_attributes: ["none"], span_kind: "client" };
    expect(await run("tracing/slow_events", { ...one, ...wanted })).toEqual([
      {
        ...{ digest, count: 6, mean: 40 / 6, impact: 100, attributes: { "db.system": "mysql" } },
        ...{ service: "web", span_kind: "client", span_name: "query", statement: "select ?" },
      },
    ]);
    expect(await run("tracing/slow_events", { ...one, excluded_attributes: ["db.system"] })).toEqual([]);
    expect(await run("tracing/slow_events/actions", { ...one, digest })).toEqual([
      {
        ...{ action_name: "GET /", namespace: "web", count: 6, trace_id: root.trace_id },
        start_time: "2026-01-15T10:00:00.000Z",
      },
    ]);
    expect(await run("tracing/slow_events/actions", { ...one, digest: "evt_x" })).toEqual([]);
  });

  test("return rows in their documented order", async () => {
    const run = serve(makeTraces(3, 60).map(storedOf), undefined, nights);
    const night = { site_id: "shop", from: "2026-01-15T23:00:00Z", to: "2026-01-16T01:00:00Z" };
    const expectOrder = (rows: readonly Json[], most: string, ...names: readonly string[]) => {
      expect(rows.length).toBeGreaterThan(1);
      const keys = rows.map((row) => [-Number(row[most]), ...names.map((name) => row[name] ?? "")]);
      const compare = (a: unknown, b: unknown) => (String(a) < String(b) ? -1 : 1);
      const sorted = keys.toSorted(([a, ...as], [b, ...bs]) => {
        const at = as.findIndex((text, n) => text !== bs[n]);
        return Number(a) - Number(b) || (at < 0 ? 0 : compare(as[at], bs[at]));
      });
      expect(keys).toEqual(sorted);
    };
    const events = await run("tracing/slow_events", night);
    expectOrder(events, "impact", "digest");
    for (const { digest } of events.slice(0, 3)) {
      const actions = await run("tracing/slow_events/actions", { ...night, digest });
      expectOrder(actions, "count", "namespace", "action_name");
    }
    const site = await run<Record<string, Json[]>>("tracing/site_edges", night);
    expectOrder(site.downstream ?? [], "count", "service");
    const parts = ["service", "namespace", "action", "span_kind", "peer_span_kind", "edge_type"];
    for (const action of ["Cart#show", "Cart#pay", "Items#index"]) {
      const asked = { ...night, namespace: "shop-web/web", action };
      const { downstream } = await run<Record<string, Json[]>>("tracing/action_edges", asked);
      expectOrder(downstream ?? [], "count", ...parts);
    }
  });

  test("return a deploy's statistics, and 404 for a revision without data", async () => {
    expect(await run<Json>("deploys/stats", { site_id: "shop", revision: "r1" })).toEqual({
      ...{ revision: "r1", first_seen: "2026-01-15T10:00:00.100Z", last_seen: "2026-01-15T10:00:00.100Z" },
      ...{ throughput: 2, mean: 100, error_rate: 50, p_90: 100, p_95: 100, namespaces: ["web"] },
    });
    for (const body of [
      { revision: "r2" },
      { revision: "r1", from: "2026-01-15T10:00:01Z" },
      { revision: "r1", to: "2020-01-01T00:00:00Z" },
    ]) {
      await expect(run("deploys/stats", { site_id: "shop", ...body })).rejects.toMatchObject({
        name: "NotFound",
      });
    }
  });

  test("read browser reports from their own source and count none as a request", async () => {
    const store = createMemorySpans();
    const report = request({
      report: true,
      span_kind: "internal",
      events: [createException(0, "TypeError")],
      to: 0,
    });
    store.add("reports", [{ ...report, span_attributes: { "appsignal.namespace": "frontend" } }]);
    const part = {
      backend: "other",
      store,
      source: buildSpanSource("shop", { index: "reports", layout: "otel" }),
    };
    const traces = { ...part, backend: "m", store: createMemorySpans() };
    const run = ask(
      [{ id: "shop", retention: 86_400_000, counterDefault: "cumulative", traces, reports: part }],
      base + 1_000,
    );
    expect(await run("tracing/traces/errors", listing)).toMatchObject([{ namespace: "frontend" }]);
    expect(await run("tracing/trace/error", { site_ids: ["shop"] })).toHaveLength(1);
    expect(await run("tracing/traces/performance", listing)).toEqual([]);
    const located = await run<Json>("tracing/locator", { site_ids: ["shop"], trace_id: report.trace_id });
    expect(located).toMatchObject({ performance: [], errors: [{ exception_name: "TypeError" }] });
    expect(await run("tracing/actions", one)).toEqual([]);
  });
});
