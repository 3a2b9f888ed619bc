import { describe, expect, test } from "vitest";
import { createMemorySpans } from "#resolvers/memory/stores/span-store.ts";
import { buildSpanSource } from "#src/access/sites.ts";
import { encodeActionDigest, encodeEventDigest, hashStatement } from "#src/tracing/spans/digest.ts";
import { makeTraces } from "../conformance/trace-fixture.ts";
import { base, createException } from "../tracing/span-builder.ts";

import { ask, hex, type Json, listing, nights, range, request, serve, storedOf } from "./trace-harness.ts";

describe("trace analytics routes", () => {
  const root = request({ to: 100, revision: "r1" });
  const query = request({
    span_id: hex("1", 16),
    parent_span_id: root.span_id,
    span_kind: "client",
    span_name: "query",
    to: 40,
    statement: "SELECT 1",
    peer: "mysql",
    span_attributes: { "db.system": "mysql" },
    count: 6,
  });
  const caller = request({
    site_id: "blog",
    span_id: hex("c", 16),
    parent_span_id: hex("d", 16),
    span_kind: "client",
    to: 120,
  });
  const called = { ...root, parent_span_id: caller.span_id };
  const run = serve([called, query, caller, { ...root, trace_id: hex("9", 32), status_code: "ERROR" }]);
  const one = { site_id: "shop", ...range };

  test("return the actions of a range", async () => {
    expect(await run("tracing/actions", one)).toEqual([
      {
        namespace: "web",
        action: "GET /",
        digest: encodeActionDigest({ namespace: "web", action: "GET /" }),
        mean: 100,
        throughput: 2,
        error_rate: 50,
        has_npo: true,
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
          service: "web",
          namespace: "",
          action: "",
          span_kind: "client",
          peer_span_kind: "server",
          edge_type: "SYNC",
          ...figures(1, 120),
        },
      ],
      downstream: [
        {
          service: "mysql",
          namespace: null,
          action: null,
          span_kind: "client",
          peer_span_kind: null,
          edge_type: "SYNC",
          ...figures(6, 40 / 6),
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
        digest,
        count: 6,
        mean: 40 / 6,
        impact: 100,
        attributes: { "db.system": "mysql" },
        service: "web",
        span_kind: "client",
        span_name: "query",
        statement: "select ?",
      },
    ]);
    expect(await run("tracing/slow_events", { ...one, excluded_attributes: ["db.system"] })).toEqual([]);
    expect(await run("tracing/slow_events/actions", { ...one, digest })).toEqual([
      {
        action_name: "GET /",
        namespace: "web",
        count: 6,
        trace_id: root.trace_id,
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
      revision: "r1",
      first_seen: "2026-01-15T10:00:00.100Z",
      last_seen: "2026-01-15T10:00:00.100Z",
      throughput: 2,
      mean: 100,
      error_rate: 50,
      p_90: 100,
      p_95: 100,
      namespaces: ["web"],
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

  test("are refused where the spans take more than a request may hold", async () => {
    const store = createMemorySpans();
    store.add("shop", [root, query]);
    const source = buildSpanSource("shop", { index: "shop", layout: "auto" });
    const site = { id: "shop", retention: 86_400_000, counterDefault: "cumulative" } as const;
    const run = ask([{ ...site, traces: { backend: "m", store, source } }], base + 1_000, { heldBytes: 100 });
    for (const [route, body] of [
      ["tracing/actions", one],
      ["tracing/site_edges", one],
      ["tracing/traces/performance", listing],
    ] as const)
      await expect(run(route, body)).rejects.toMatchObject({
        slug: "result_too_large",
        message: expect.stringContaining("more than 100 bytes"),
      });
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
