// The analytics against results worked out by hand.
import { describe, expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { createDurationDistribution } from "#src/tracing/duration-stats.ts";
import { encodeEventDigest, hashStatement } from "#src/tracing/spans/digest.ts";
import { createAncestorIndex } from "#src/tracing/spans/requests.ts";
import { createArrayReader } from "../conformance/trace-fixture.ts";
import {
  at,
  createException,
  createSource,
  createSpan,
  createTestBudget,
  listRows,
  range,
  signal,
} from "./span-builder.ts";

const shop = createSource("shop");

test("createDurationDistribution computes nearest-rank percentiles and weights compressed spans", () => {
  const durations = createDurationDistribution();
  for (let n = 1; n <= 60; n += 1) durations.add(createSpan({ span_id: `s${n}`, to: n }));
  expect([durations.percentile(90), durations.percentile(95), durations.mean()]).toEqual([54, 57, 30.5]);
  for (let n = 61; n <= 200; n += 1) durations.add(createSpan({ span_id: `s${n}`, to: n }));
  expect([durations.percentile(90), durations.percentile(95)]).toEqual([180, 190]);
  const weighted = createDurationDistribution();
  weighted.add(createSpan({ to: 90, count: 9 }));
  weighted.add(createSpan({ to: 100, status_code: "ERROR" }));
  expect([weighted.count(), weighted.errorCount(), weighted.mean()]).toEqual([10, 1, 19]);
  expect([weighted.percentile(90), weighted.percentile(95)]).toEqual([10, 100]);
  expect(createDurationDistribution().percentile(95)).toBe(0);
});

test("actions groups requests by namespace and action, with errors and N+1", async () => {
  const request = (id: string, over: Partial<Span> = {}): Span =>
    createSpan({ span_id: id, trace_id: id, span_kind: "server", action: "A", to: 100, ...over });
  const queries = Array.from({ length: 5 }, (_, n) =>
    createSpan({ span_id: `q${n}`, trace_id: "a", parent_span_id: "a", span_kind: "client", statement: "q" }),
  );
  const spans = [
    request("a"),
    request("b", { service_name: "api", status_code: "ERROR", end: at(300), revision: "r2" }),
    request("c", { action: "B", namespace: "admin" }),
    request("d", { end: at(5_000) }),
    request("e", { report: true }),
    ...queries,
  ];
  const { actions } = createSpanAnalytics(createArrayReader(spans));
  const ask = (over: object) =>
    actions({ sources: [shop], range, namespaces: [], budget: createTestBudget(), ...over }, signal);
  const a = { namespace: "web", action: "A", count: 2, error_count: 1, mean: 200, has_npo: true };
  const b = { namespace: "admin", action: "B", count: 1, error_count: 0, mean: 100, has_npo: false };
  expect(await ask({})).toEqual([a, b]);
  expect(await ask({ namespaces: ["admin", "none"] })).toEqual([b]);
  expect(await ask({ action: "B" })).toEqual([b]);
  expect(await ask({ revision: "r2" })).toEqual([{ ...a, count: 1, mean: 300, has_npo: false }]);
});

test("actions finds an N+1 in the first and the last of many traces", async () => {
  const requests = Array.from({ length: 1_200 }, (_, n) =>
    createSpan({
      trace_id: `${n}`,
      span_id: "r",
      span_kind: "server",
      action: n === 0 ? "First" : "Last",
    }),
  );
  const queries = ["0", "1199"].map((trace_id) =>
    createSpan({
      trace_id,
      span_id: "q",
      parent_span_id: "r",
      span_kind: "client",
      statement: "q",
      count: 9,
    }),
  );
  const actions = async (spans: readonly Span[]) => {
    const query = { sources: [shop], range, namespaces: [], budget: createTestBudget() } as const;
    const rows = await createSpanAnalytics(createArrayReader(spans)).actions(query, signal);
    return rows.map(({ action, has_npo }) => [action, has_npo]);
  };
  expect(await actions([...requests, ...queries])).toEqual([
    ["First", true],
    ["Last", true],
  ]);
  expect(await actions([...requests, ...queries.slice(0, 1)])).toEqual([
    ["First", true],
    ["Last", false],
  ]);
  // Beside a request whose action is known to have one already.
  const beside = { trace_id: "1199", span_id: "x", parent_span_id: "r", span_kind: "server" } as const;
  expect(await actions([...requests, createSpan({ ...beside, action: "First" }), ...queries])).toEqual([
    ["First", true],
    ["Last", true],
  ]);
});

describe("slow events", () => {
  const root = createSpan({ span_id: "root", span_kind: "server", action: "Pay", to: 500 });
  const query = (id: string, over: Partial<Span> & { from?: number; to?: number } = {}): Span =>
    createSpan({
      span_id: id,
      parent_span_id: "root",
      span_kind: "client",
      span_name: "query",
      statement: `SELECT '${id}'`,
      span_attributes: { "db.system": "mysql", host: id },
      ...over,
    });
  const render = createSpan({ span_id: "r", parent_span_id: "root", span_name: "render", to: 40 });
  const spans = [
    root,
    query("a", { to: 10 }),
    query("b", { to: 30, count: 2 }),
    render,
    query("late", { to: 2_000 }),
  ];
  const { slowEvents, slowEventActions } = createSpanAnalytics(createArrayReader(spans));
  const everything = {
    sources: [shop] as const,
    range,
    requiredAttributes: [],
    excludedAttributes: [],
    limit: 10,
    budget: createTestBudget(),
  };
  const ask = (over: object) => slowEvents({ ...everything, ...over }, signal);
  const queries = {
    service: "web",
    kind: "client",
    name: "query",
    statement: "select ?",
    count: 3,
    impact: 50,
  };

  test("slowEvents relates impact to the time of all children of the range, filtered or not", async () => {
    expect(await ask({})).toMatchObject([
      { ...queries, mean: 40 / 3, attributes: {} },
      {
        service: "web",
        kind: "internal",
        name: "render",
        statement: undefined,
        count: 1,
        mean: 40,
        impact: 50,
      },
    ]);
    expect(await ask({ kind: "client" })).toMatchObject([queries]);
    expect(await ask({ limit: 1 })).toMatchObject([queries]);
    const names = async (spans: readonly Span[]) =>
      (
        await createSpanAnalytics(createArrayReader(spans)).slowEvents({ ...everything, limit: 2 }, signal)
      ).map(({ name }) => name);
    const alike = ["c", "a", "b"].map((name) => ({ ...render, span_id: name, span_name: name }));
    expect(await names(alike)).toEqual(["a", "b"]);
    expect(await ask({ excludedAttributes: ["db.system"] })).toMatchObject([{ name: "render", impact: 50 }]);
    expect(await ask({ requiredAttributes: ["host"], excludedAttributes: ["none"] })).toMatchObject([
      { ...queries, attributes: { host: "b" } },
    ]);
  });

  test("slowEventActions lists the actions of an event with its longest span", async () => {
    const digest = encodeEventDigest({
      service: "web",
      kind: "client",
      name: "query",
      statement: hashStatement("select ?"),
    });
    const scope = { sources: [shop], range, digest, budget: createTestBudget() } as const;
    expect(await slowEventActions(scope, signal)).toEqual([
      { namespace: "web", action_name: "Pay", count: 3, trace_id: "t1", start_time: at(0) },
    ]);
    expect(await slowEventActions({ ...scope, digest: "nothing" }, signal)).toEqual([]);
    const withoutRoot = createSpanAnalytics(createArrayReader(spans.filter((span) => span !== root)));
    expect(await withoutRoot.slowEventActions(scope, signal)).toMatchObject([
      { namespace: "", action_name: "", count: 3 },
    ]);
  });
});

test("shared span id: children resolve to the server span, also when the client span is loaded", async () => {
  const call = { service_name: "web", span_kind: "client", span_name: "call" } as const;
  const spans = [
    createSpan({ span_id: "root", span_kind: "server", action: "Pay" }),
    createSpan({ ...call, span_id: "both", parent_span_id: "root", events: [createException(1, "Refused")] }),
    createSpan({ span_id: "both", parent_span_id: "root", span_kind: "server", action: "Reserve" }),
    createSpan({
      ...call,
      span_id: "below",
      parent_span_id: "both",
      peer: "db",
      events: [createException(2, "Lost")],
    }),
  ];
  const { slowEventActions, actionEdges } = createSpanAnalytics(createArrayReader(spans));
  const scope = { sources: [shop] as const, range, budget: createTestBudget() };
  const digest = encodeEventDigest({ service: "web", kind: "client", name: "call", statement: undefined });
  const rows = await slowEventActions({ ...scope, digest }, signal);
  expect(rows.map(({ action_name, count }) => [action_name, count]).sort()).toEqual([
    ["Pay", 1],
    ["Reserve", 1],
  ]);
  const named = { partners: [], service: "web", namespace: "web", action: "Reserve" };
  const { downstream } = await actionEdges({ ...scope, ...named }, signal);
  expect(downstream).toMatchObject([{ service: "db", count: 1 }]);
  const errorsOfReserve = { filter: { query: { kind: "all" }, action: "Reserve" } } as const;
  expect(await listRows(spans, { candidates: "errors", ...errorsOfReserve })).toMatchObject([
    { span_id: "below" },
  ]);
});

test("shared span id at the root: both sides are requests and the server span owns the children", async () => {
  const call = createSpan({
    trace_id: "t9",
    span_id: "x",
    span_kind: "client",
    from: 0,
    to: 90,
    action: "Call",
  });
  const called = { ...call, ...({ span_kind: "server", start: at(1), action: "Serve" } as const) };
  const queries = Array.from({ length: 5 }, (_, n) =>
    createSpan({
      trace_id: "t9",
      span_id: `q${n}`,
      parent_span_id: "x",
      span_kind: "client",
      from: 2,
      statement: `SELECT ${n}`,
      events: n === 0 ? [createException(3, "Lost", "lost")] : [],
    }),
  );
  for (const spans of [
    [call, called, ...queries],
    [...queries, called, call],
  ]) {
    const { findEntry: entryOf } = createAncestorIndex(spans);
    expect(queries.map(entryOf)).toEqual(queries.map(() => called));
    const { actions } = createSpanAnalytics(createArrayReader(spans));
    const scope = { sources: [shop] as const, range, namespaces: [], budget: createTestBudget() };
    const rows = await actions(scope, signal);
    expect(rows.map(({ action, has_npo }) => [action, has_npo]).sort()).toEqual([
      ["Call", false],
      ["Serve", true],
    ]);
    expect(await listRows(spans)).toMatchObject([{ action_name: "Call", has_npo: false }]);
    const filter = { query: { kind: "all" }, digests: ["lost"] } as const;
    expect(await listRows(spans, { filter })).toMatchObject([{ action_name: "Serve", has_npo: true }]);
  }
});

test("revisionStats counts a revision's requests and finds their first and last end", async () => {
  const request = (id: string, to: number, over: Partial<Span> = {}): Span =>
    createSpan({ span_id: id, trace_id: id, span_kind: "server", to, revision: "r1", ...over });
  const spans = [
    request("a", 100),
    request("b", 20, { status_code: "ERROR", namespace: "admin" }),
    request("c", 30, { revision: "r2" }),
    request("d", 40, { report: true }),
    request("e", 2_000),
  ];
  const { revisionStats } = createSpanAnalytics(createArrayReader(spans));
  const query = { sources: [shop], range, revision: "r1", budget: createTestBudget() } as const;
  expect(await revisionStats(query, signal)).toEqual({
    first_seen: at(20),
    last_seen: at(100),
    count: 2,
    error_count: 1,
    mean: 60,
    p_90: 100,
    p_95: 100,
    namespaces: ["admin", "web"],
  });
  expect(await revisionStats({ ...query, revision: "r3" }, signal)).toBeUndefined();
});
