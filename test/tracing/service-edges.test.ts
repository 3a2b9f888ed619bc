// Service edges against results worked out by hand.
import { describe, expect, test } from "vitest";
import type { EdgesQuery } from "#src/store/span-analytics.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { createArrayReader } from "../conformance/trace-fixture.ts";
import { at, createSource, createSpan, createTestBudget, range, signal } from "./span-builder.ts";

const shop = createSource("shop");
const stock = createSource("stock");

describe("service edges", () => {
  const root = createSpan({ span_id: "root", span_kind: "server", action: "Pay", to: 200 });
  const middle = createSpan({ span_id: "m", parent_span_id: "root" });
  const call = createSpan({
    span_id: "c",
    parent_span_id: "m",
    span_kind: "client",
    peer: "stock.internal",
    to: 40,
  });
  const taken = createSpan({
    site_id: "stock",
    span_id: "k",
    parent_span_id: "c",
    span_kind: "server",
    to: 30,
    service_name: "stock",
    action: "Reserve",
  });
  const query = createSpan({
    span_id: "q",
    parent_span_id: "m",
    span_kind: "client",
    peer: "postgresql",
    to: 60,
    count: 3,
    status_code: "ERROR",
  });
  const nameless = createSpan({ span_id: "n", parent_span_id: "m", span_kind: "client" });
  const send = createSpan({
    span_id: "p",
    parent_span_id: "root",
    span_kind: "producer",
    peer: "mails",
    to: 10,
  });
  const job = createSpan({
    span_id: "w",
    trace_id: "t2",
    span_kind: "consumer",
    service_name: "worker",
    action: "Mail",
    to: 900,
    links: [{ trace_id: "t1", span_id: "p", trace_state: "", attributes: {} }],
  });
  const { siteEdges, actionEdges } = createSpanAnalytics(
    createArrayReader([root, middle, call, taken, query, nameless, send, job]),
  );
  const scope = { sources: [shop], partners: [stock], range, budget: createTestBudget() } as const;
  const stats = (count: number, error_count: number, mean: number) => {
    return { count, error_count, mean, p_90: mean, p_95: mean };
  };

  test("lists a site's edges with the callers' figures, including named peers without spans and links", async () => {
    expect(await siteEdges(scope, signal)).toEqual({
      upstream: [],
      downstream: [
        { service: "stock", ...stats(1, 0, 40) },
        { service: "postgresql", ...stats(3, 3, 20) },
      ],
      internal: [{ service: "worker", ...stats(1, 0, 10) }],
    });
    expect(await siteEdges({ ...scope, sources: [stock], partners: [shop] }, signal)).toEqual({
      upstream: [{ service: "web", ...stats(1, 0, 40) }],
      downstream: [],
      internal: [],
    });
  });

  test("names a hidden partner by the caller's attributes and lists no calls of it", async () => {
    const { downstream } = await siteEdges({ ...scope, partners: [] }, signal);
    expect(downstream).toContainEqual({ service: "stock.internal", ...stats(1, 0, 40) });
    const { upstream } = await siteEdges({ ...scope, sources: [stock], partners: [] }, signal);
    expect(upstream).toEqual([]);
  });

  test("counts a span of several sites once, as the site's own if it has it", async () => {
    const spans = [root, middle, call, taken, query, nameless, send, job];
    const copies = spans.flatMap((one) => [
      { ...one, site_id: "both" },
      { ...one, site_id: "other" },
    ]);
    const shared = createSpanAnalytics(createArrayReader([...copies, ...spans])).siteEdges;
    const [both, other] = [createSource("both"), createSource("other")];
    const partners = [other, stock, both];
    const apart = await siteEdges(scope, signal);
    expect(await shared({ ...scope, partners }, signal)).toEqual(apart);
    const { upstream } = await shared({ ...scope, sources: [stock], partners: [both, shop, other] }, signal);
    expect(upstream).toEqual([{ service: "web", ...stats(1, 0, 40) }]);
    const whole = await shared({ ...scope, sources: [both], partners: [shop, stock, other] }, signal);
    expect(whole.upstream).toEqual([]);
    expect(whole.internal.map(({ service, count }) => [service, count]).sort()).toEqual([
      ["stock", 1],
      ["worker", 1],
    ]);
  });

  test("shared span id: pairs the two sides of a call, and not their children with the caller", async () => {
    const till = createSource("till");
    const reserve = { ...taken, span_id: "c", parent_span_id: "m" };
    const pay = { ...call, site_id: "stock", service_name: "stock", span_id: "d", parent_span_id: "c" };
    const charge = { ...taken, site_id: "till", service_name: "till", span_id: "d", parent_span_id: "c" };
    const spans = [root, middle, call, reserve, { ...pay, end: at(30) }, { ...charge, action: "Charge" }];
    const shared = createSpanAnalytics(createArrayReader(spans));
    const edgesOf = async (sources: EdgesQuery["sources"], over: Partial<EdgesQuery> = {}) => {
      const partners = [shop, stock, till].filter((partner) => partner !== sources[0]);
      const { upstream, downstream, internal } = await shared.siteEdges(
        { ...scope, sources, partners, ...over },
        signal,
      );
      return [upstream, downstream, internal].map((edges) => edges.map(({ service }) => service));
    };
    expect(await edgesOf([shop])).toEqual([[], ["stock"], []]);
    expect(await edgesOf([stock])).toEqual([["web"], ["till"], []]);
    expect(await edgesOf([till])).toEqual([["stock"], [], []]);
    // Its caller is not in the range, and what called that one is.
    expect(await edgesOf([till], { range: { from: at(35), to: range.to } })).toEqual([[], [], []]);
    const queue = [
      { ...call, span_kind: "producer" },
      { ...reserve, span_kind: "consumer" },
    ] as const;
    const queued = await createSpanAnalytics(createArrayReader([root, middle, ...queue])).siteEdges(
      scope,
      signal,
    );
    expect(queued.downstream).toMatchObject([{ service: "stock", count: 1 }]);
    const named = { sources: [till] as const, partners: [shop, stock], service: "till", namespace: "web" };
    const { upstream } = await shared.actionEdges({ ...scope, ...named, action: "Charge" }, signal);
    expect(upstream).toMatchObject([{ service: "stock", action: "Reserve", edge_type: "SYNC", count: 1 }]);
  });

  test("separates an action from a partner's action of the same name", async () => {
    const twin = { ...taken, service_name: "web", action: "Pay" };
    const twins = createSpanAnalytics(createArrayReader([root, middle, call, twin])).actionEdges;
    const pay = { service: "web", namespace: "web", action: "Pay" };
    const { upstream, downstream } = await twins({ ...scope, ...pay }, signal);
    expect(upstream).toEqual([]);
    expect(downstream).toMatchObject([{ service: "web", action: "Pay", count: 1 }]);
  });

  test("computes percentiles over all calls of an edge", async () => {
    const calls = Array.from({ length: 200 }, (_, n) =>
      createSpan({ span_id: `c${n}`, parent_span_id: "root", span_kind: "client", peer: "db", to: n + 1 }),
    );
    const { downstream } = await createSpanAnalytics(createArrayReader([root, ...calls])).siteEdges(
      scope,
      signal,
    );
    expect(downstream).toEqual([{ service: "db", ...stats(200, 0, 100.5), p_90: 180, p_95: 190 }]);
  });

  test.each([
    ["client", "server", false, "SYNC"],
    ["client", "server", true, "ASYNC"],
    ["client", "consumer", false, "ASYNC"],
    ["producer", "server", false, "ASYNC"],
  ] as const)("classifies a call from %s to %s, linked %s, as %s", async (kind, of, linked, type) => {
    const caller = { ...call, span_kind: kind, service_name: "library" };
    const links = [{ trace_id: "t1", span_id: "c", trace_state: "", attributes: {} }];
    const callee = { ...taken, span_kind: of, links: linked ? links : [], namespace: "web" };
    const { actionEdges } = createSpanAnalytics(createArrayReader([root, middle, caller, callee]));
    const reserve = { service: "stock", namespace: "web", action: "Reserve" };
    const up = { ...scope, sources: [stock] as const, partners: [shop], ...reserve };
    const kinds = { span_kind: kind, peer_span_kind: of, edge_type: type, count: 1 };
    const { upstream } = await actionEdges(up, signal);
    expect(upstream).toMatchObject([{ service: "web", action: "Pay", ...kinds }]);
    const { downstream } = await actionEdges(
      { ...scope, service: "web", namespace: "web", action: "Pay" },
      signal,
    );
    expect(downstream).toMatchObject([{ ...reserve, ...kinds }]);
  });

  test("selects calls by the caller's end", async () => {
    const { downstream } = await siteEdges({ ...scope, range: { from: at(50), to: at(60) } }, signal);
    expect(downstream.map(({ service }) => service)).toEqual(["postgresql"]);
  });

  test("compares service and namespace joined by a slash, because a namespace may contain one", async () => {
    const caller = createSpan({ span_kind: "server", span_id: "s1", namespace: "jobs/mail", action: "A" });
    const call = createSpan({ span_id: "s2", parent_span_id: "s1", span_kind: "client", peer: "smtp" });
    const { actionEdges } = createSpanAnalytics(createArrayReader([caller, call]));
    for (const [service, namespace] of [
      ["web", "jobs/mail"],
      ["web/jobs", "mail"],
    ] as const) {
      const named = { service, namespace, action: "A" };
      const { downstream } = await actionEdges({ ...scope, ...named }, signal);
      expect(downstream).toMatchObject([{ service: "smtp", count: 1 }]);
    }
  });

  test("reports the kinds of both sides of a call, and none for a side without spans", async () => {
    const pay = { service: "web", namespace: "web", action: "Pay" };
    const { upstream, downstream } = await actionEdges({ ...scope, ...pay }, signal);
    expect(upstream).toEqual([]);
    const rows = [
      ["stock", "web", "Reserve", "client", "server", "SYNC", stats(1, 0, 40)],
      ["worker", "background", "Mail", "producer", "consumer", "ASYNC", stats(1, 0, 10)],
      ["postgresql", undefined, undefined, "client", undefined, "SYNC", stats(3, 3, 20)],
    ] as const;
    expect(new Set(downstream)).toEqual(
      new Set(
        rows.map(([service, namespace, action, span_kind, peer_span_kind, edge_type, rest]) => ({
          service,
          namespace,
          action,
          span_kind,
          peer_span_kind,
          edge_type,
          ...rest,
        })),
      ),
    );
    const reserve = { service: "stock", namespace: "web", action: "Reserve" };
    const taken = await actionEdges({ ...scope, sources: [stock], partners: [shop], ...reserve }, signal);
    expect(taken.upstream).toMatchObject([{ ...pay, span_kind: "client", edge_type: "SYNC", count: 1 }]);
    const mail = { service: "worker", namespace: "background", action: "Mail" };
    const { upstream: senders } = await actionEdges({ ...scope, ...mail }, signal);
    expect(senders).toMatchObject([{ ...pay, span_kind: "producer", edge_type: "ASYNC" }]);
  });
});
