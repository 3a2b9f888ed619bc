// The spans that an answer is made of count as held, as long as they are kept and no longer.
import { describe, expect, test } from "vitest";
import { createHeldBytes, createHeldLedger } from "#src/core/async/held-bytes.ts";
import type { ListingQuery } from "#src/store/span-analytics.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { createRollupAnalytics } from "#src/tracing/figures/rollup-analytics.ts";
import { createRollupCache } from "#src/tracing/rollups/rollup-cache.ts";
import { findSlowEventsByAction } from "#src/tracing/slow-events.ts";
import { encodeEventDigest } from "#src/tracing/spans/digest.ts";
import { createBudget, measureSpan } from "#src/tracing/spans/read-budget.ts";
import { createArrayReader } from "../conformance/trace-fixture.ts";
import { createStoredSpans } from "./rollups/stored-spans.ts";
import { at, createException, createSource, createSpan, signal } from "./span-builder.ts";

const second = 1_000;
/** A trace in each second: a request, which failed, and a call below it. */
const traces = Array.from({ length: 64 }, (_, n) => {
  const times = { trace_id: `t${n}`, from: n * second, to: n * second + 10 };
  const request = createSpan({
    ...times,
    span_id: `r${n}`,
    span_kind: "server",
    action: `A${n}`,
    events: [createException(n * second, "E")],
  });
  const call = createSpan({ ...times, span_id: `c${n}`, parent_span_id: `r${n}`, span_kind: "client" });
  return { request, call };
});
const spans = traces.flatMap(({ request, call }) => [request, call]);
const { request } = traces[0] ?? {};
const bytesPerSpan = request === undefined ? 0 : measureSpan(request);
const reader = createArrayReader(spans);
const analytics = createSpanAnalytics(reader);

function open(limit: number) {
  const ledger = createHeldLedger();
  const held = createHeldBytes(limit, { ledger, account: "ana" });
  return { ledger, held, budget: createBudget(10_000, undefined, held) };
}
type Opened = ReturnType<typeof open>;

const sources = [createSource("shop")] as const;
const all = { from: at(0), to: at(64 * second) };
const ofKey = { service: "web", kind: "client", name: "work", statement: undefined } as const;
const digest = encodeEventDigest(ofKey);
const noFilter = { requiredAttributes: [], excludedAttributes: [] };

async function list({ budget }: Opened, over: Partial<ListingQuery>): Promise<number> {
  const query: ListingQuery = {
    sources,
    range: all,
    candidates: "requests",
    filter: { query: { kind: "all" } },
    by: "time",
    order: "asc",
    expectedRows: 1,
    tieLimit: 100,
    budget,
    ...over,
  };
  let rows = 0;
  for await (const batch of analytics.summaries(query, signal)) rows += batch.length;
  return rows;
}

describe("spans are counted", () => {
  const asks: Readonly<Record<string, (opened: Opened) => Promise<unknown>>> = {
    actions: ({ budget }) => analytics.actions({ sources, range: all, namespaces: [], budget }, signal),
    siteEdges: ({ budget }) => analytics.siteEdges({ sources, partners: [], range: all, budget }, signal),
    actionEdges: ({ budget }) => {
      const of = { service: "web", namespace: "web", action: "A1" };
      return analytics.actionEdges({ sources, partners: [], range: all, ...of, budget }, signal);
    },
    slowEventActions: ({ budget }) =>
      analytics.slowEventActions({ sources, range: all, digest, budget }, signal),
    "slow events of each action": ({ budget }) =>
      findSlowEventsByAction(reader, { sources, range: all, budget }, 10, signal),
    "a listing by duration": (opened) => list(opened, { by: "duration" }),
    "a listing of errors": (opened) => list(opened, { by: "duration", candidates: "errors" }),
  };
  test.each(Object.entries(asks))("of %s", async (_, ask) => {
    const much = open(spans.length * bytesPerSpan * 4);
    await ask(much);
    expect(much.ledger.heldBytes).toBe(0);
    const little = open(30 * bytesPerSpan);
    await expect(ask(little)).rejects.toMatchObject({
      slug: "result_too_large",
      message: expect.stringContaining("bytes of documents or series at once"),
    });
    expect(little.ledger.heldBytes).toBe(0);
  });

  test("of slow events one for each, since the others are only added up", async () => {
    const ask = (opened: Opened) =>
      analytics.slowEvents({ sources, range: all, limit: 10, ...noFilter, budget: opened.budget }, signal);
    expect(await ask(open(2 * bytesPerSpan))).toHaveLength(1);
    await expect(ask(open(10))).rejects.toMatchObject({ slug: "result_too_large" });
  });

  test("of a trace that is located", async () => {
    const locate = (limit: number) =>
      analytics.locate({ sources, traceId: "t1", budget: open(limit).budget }, signal);
    expect((await locate(4 * bytesPerSpan)).performance).toHaveLength(1);
    await expect(locate(10)).rejects.toMatchObject({ slug: "result_too_large" });
  });
});

describe("spans are given back", () => {
  test.each(["requests", "errors"] as const)("by a listing of %s after each window", async (candidates) => {
    // A window has half of the traces at most, and reads the spans of each twice or three times.
    const copies = candidates === "requests" ? 2 : 3;
    const opened = open(0.75 * traces.length * copies * bytesPerSpan);
    expect(await list(opened, { candidates })).toBe(traces.length);
    expect(opened.ledger.heldBytes).toBe(0);
  });
});

test("rollups give back the spans of some segments before they read others", async () => {
  const store = createStoredSpans();
  // An hour apart: fifty segments are read at once, and then the others.
  const hour = 3_600 * second;
  for (const [n, { call }] of traces.entries()) {
    store.add([{ ...call, peer: "db", start: at(n * hour), end: at(n * hour + 10) }]);
  }
  const cache = createRollupCache({
    backend: "es",
    maxBytes: 1_000_000,
    minSpans: 0,
    behindPause: 0,
    segmentSpans: 1,
  });
  const rolled = createRollupAnalytics(store.reader, cache);
  const { budget, ledger } = open(56 * bytesPerSpan);
  const range = { from: at(0), to: at(64 * hour) };
  const { downstream } = await rolled.siteEdges({ sources, partners: [], range, budget }, signal);
  expect(downstream).toMatchObject([{ service: "db", count: traces.length }]);
  expect(ledger.heldBytes).toBe(0);
});

test("a document that comes twice is held once", async () => {
  const twice = createSpanAnalytics(createArrayReader([...spans, ...spans]));
  const { budget } = open(spans.length * (bytesPerSpan + 100));
  const { internal } = await twice.siteEdges({ sources, partners: [], range: all, budget }, signal);
  expect(internal).toEqual([]);
});
