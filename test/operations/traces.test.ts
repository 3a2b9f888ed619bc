import { describe, expect, test } from "vitest";
import { createMemorySpans } from "#resolvers/memory/stores/span-store.ts";
import { buildSpanSource, type Site } from "#src/access/sites.ts";
import { defaults } from "#src/config/schema.ts";
import { operations } from "#src/operations/index.ts";
import { encodeActionDigest } from "#src/tracing/spans/digest.ts";
import { at, base, createException } from "../tracing/span-builder.ts";

import { ask, first, hex, type Json, listing, range, request, serve } from "./trace-harness.ts";

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
    revision: "3f9c",
    status_code: "ERROR",
    status_message: "it broke",
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
        trace_id: hex("a", 32),
        span_id: hex("a", 16),
        site_id: "shop",
        namespace: "web",
        action_name: "Cart#show",
        revision: "3f9c",
        time: "2026-01-15T10:00:00.010Z",
        duration: 10.000004,
        tags: { region: "eu" },
        has_npo: false,
      },
    ]);
    const bare = serve([request()]);
    expect(await bare("tracing/traces/performance", listing)).toMatchObject([{ revision: "", tags: {} }]);
  });

  test("returns a span with every key, literal dots, parallel arrays and full precision", async () => {
    const [row] = await run("tracing/trace", { site_ids: ["shop"], trace_id: hex("A", 32) });
    const digest = encodeActionDigest({ namespace: "web", action: "Cart#show" });
    expect(row).toEqual({
      start_time: "2026-01-15T10:00:00.000Z",
      end_time: "2026-01-15T10:00:00.010000004Z",
      duration: 10.000004,
      trace_id: hex("a", 32),
      span_id: hex("a", 16),
      parent_span_id: "",
      digest,
      site_id: "shop",
      trace_state: "",
      service_name: "web",
      namespace: "web",
      revision: "3f9c",
      action_name: "Cart#show",
      span_name: "GET /",
      span_kind: "server",
      scope_name: "",
      scope_version: "",
      status_code: "ERROR",
      status_message: "it broke",
      resource_attributes: { "service.name": "web" },
      span_attributes: expect.objectContaining({ nested: { list: [1, null, "x"] } }),
      "events.timestamp": ["2026-01-15T10:00:00.001Z"],
      "events.name": ["exception"],
      "events.attributes": [
        { "exception.type": "KeyError", "appsignal.incident_digest": expect.stringMatching(/^err_[\w-]+$/) },
      ],
      "links.trace_id": [hex("b", 32)],
      "links.span_id": [hex("b", 16)],
      "links.trace_state": ["a=b"],
      "links.attributes": [{}],
      subtrace_root: true,
    });
  });

  test("keeps the digits of integers beyond 2^53", async () => {
    const { store } = { store: createMemorySpans() };
    store.add("shop", [failed]);
    const site: Site = {
      id: "shop",
      retention: 86_400_000,
      counterDefault: "cumulative",
      traces: { backend: "m", store, source: buildSpanSource("shop", { index: "shop", layout: "auto" }) },
    };
    const operation = operations.find(({ name }) => name === "tracing.trace");
    const answer = operation?.prepare({ site_ids: ["shop"], trace_id: hex("a", 32) }).run({
      user: "ana",
      sites: new Map([["shop", site]]),
      limits: defaults.limits,
      now: () => at(0),
      signal: new AbortController().signal,
    });
    if (answer === undefined || !(Symbol.asyncIterator in answer)) throw new Error("rows expected");
    for await (const { text } of answer) expect(text).toContain('"big":9007199254740993,');
  });

  test("returns the location of a trace", async () => {
    expect(await run<Json>("tracing/locator", { site_ids: ["shop"], trace_id: hex("a", 32) })).toEqual({
      performance: [{ site_id: "shop", namespace: "web", action_name: "Cart#show" }],
      errors: [{ site_id: "shop", incident_number: 1390994194, exception_name: "KeyError" }],
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
    span_id: hex("0", 16),
    parent_span_id: root.span_id,
    span_kind: "internal",
    from: 5,
    to: 9,
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
      id: "shop",
      retention: 86_400_000,
      counterDefault: "cumulative",
      traces: { backend: "m", store, source },
    };
    const read = (limits: Parameters<typeof ask>[2]) =>
      ask([site], base + 1_000, limits)("tracing/trace", { site_ids: ["shop"], trace_id: root.trace_id });
    await expect(read({ spans: 1 })).rejects.toMatchObject({
      slug: "result_too_large",
      details: { limit: 1 },
    });
    await expect(read({ heldBytes: 700 })).rejects.toMatchObject({
      message: expect.stringContaining("more than 700 bytes of documents"),
      details: { limit: 700 },
    });
    expect(await read({ heldBytes: 10_000 })).toHaveLength(2);
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
