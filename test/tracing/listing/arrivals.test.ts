// Listings while spans arrive, and of spans that were stored twice: one row for each trace, on whichever page.
import { describe, expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import type { ListingQuery } from "#src/store/span-analytics.ts";
import type { SpanReader } from "#src/store/spans.ts";
import { listSummaries } from "#src/tracing/listing/listing.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createArrayReader } from "../../conformance/trace-fixture.ts";
import { at, createException, createSource, createSpan, listRows, signal } from "../span-builder.ts";

const child = createSpan({
  trace_id: "late",
  span_id: "c",
  parent_span_id: "r",
  span_kind: "server",
  from: 10,
  to: 5_000,
  span_name: "GET /stock",
});
const others = Array.from({ length: 30 }, (_, n) =>
  createSpan({ span_kind: "server", from: 0, to: 9_900 - 200 * n, trace_id: `t${n}`, span_id: `x${n}` }),
);

/** The rows of a listing; the span arrives before the scan of this number. */
async function listWhileArriving(arriving: Span, before: number, over: Partial<ListingQuery>) {
  const spans = [child, ...others];
  let scans = 0;
  const reader: SpanReader = {
    scan: (query, signal) => {
      scans += 1;
      if (scans === before) spans.push(arriving);
      return createArrayReader([...spans]).scan(query, signal);
    },
    find: (query, signal) => createArrayReader([...spans]).find(query, signal),
    findSplitPoint: async ({ pushdown, order, nth }) => {
      const { minDuration: min = 0n, maxDuration: max } = pushdown ?? {};
      const durations = spans
        .map(({ start, end }) => end - start)
        .filter((one) => one >= min && (max === undefined || one <= max))
        .sort((a, b) => (a < b ? -1 : 1));
      return durations.length < 8 ? undefined : durations.at(order === "asc" ? 3 : -3 - (nth > 0 ? 0 : 1));
    },
  };
  const query: ListingQuery = {
    sources: [createSource("shop")],
    candidates: "requests",
    range: { from: at(0), to: at(10_000) },
    filter: { query: { kind: "all" } },
    by: "time",
    order: "desc",
    expectedRows: 5,
    tieLimit: 1_000,
    budget: createBudget(10_000),
    ...over,
  };
  const rows = (await Array.fromAsync(listSummaries(reader, query, signal))).flat();
  return { traces: rows.map(({ trace_id }) => trace_id).sort(), scans };
}

describe.each([
  ["time", "desc"],
  ["time", "asc"],
  ["duration", "desc"],
  ["duration", "asc"],
] as const)("a trace whose root arrives while it is listed by %s, %s", (by, order) => {
  test.each([500, 2_500, 7_500, 9_500])("has one row, with a root that ends at %d", async (to) => {
    const root = createSpan({
      trace_id: "late",
      span_id: "r",
      span_kind: "server",
      from: 0,
      to,
      span_name: "GET /checkout",
    });
    const all = ["late", ...others.map(({ trace_id }) => trace_id)].sort();
    const { scans } = await listWhileArriving(root, 0, { by, order });
    expect(scans).toBeGreaterThan(1);
    for (let before = 1; before <= scans; before++)
      expect((await listWhileArriving(root, before, { by, order })).traces, `before ${before}`).toEqual(all);
  });
});

test.each(["time", "duration"] as const)(
  "a request that was stored twice is on one page by %s",
  async (by) => {
    const twice = [100, 300].map((to) =>
      createSpan({
        span_kind: "server",
        from: 0,
        to,
        trace_id: "twice",
        span_id: "s",
        span_name: `GET /${to}`,
      }),
    );
    const others = Array.from({ length: 11 }, (_, n) =>
      createSpan({ span_kind: "server", from: 0, to: 250 - 5 * n, trace_id: `t${n}`, span_id: `x${n}` }),
    );
    for (const spans of [
      [...twice, ...others],
      [...twice.toReversed(), ...others],
    ]) {
      const seen: string[] = [];
      let beyond: bigint | undefined;
      for (;;) {
        const range = { from: at(-60_000), to: at(60_000) };
        const found = await listRows(spans, { by, order: "desc", range, beyond, expectedRows: 5 });
        const rows = found.slice(0, 5);
        const last = rows.at(-1);
        if (last === undefined) break;
        seen.push(...rows.map(({ trace_id, action_name }) => `${trace_id} ${action_name}`));
        beyond = last[by];
      }
      expect(seen).toHaveLength(12);
      expect(seen).toContain("twice GET /300");
    }
  },
);

test("whoever reads on after few expected rows needs few searches", async () => {
  const day = 86_400_000;
  const spans = Array.from({ length: 500 }, (_, n) => {
    const from = (n * 30 * day) / 500;
    const events = [createException(from + 5, "A")];
    return createSpan({
      span_kind: "server",
      trace_id: `t${n}`,
      span_id: `s${n}`,
      from,
      to: from + 10,
      events,
    });
  });
  const held = createArrayReader(spans);
  let searches = 0;
  const reader: SpanReader = {
    scan: (query, signal) => {
      searches += 1;
      return held.scan(query, signal);
    },
    find: held.find,
  };
  const query: ListingQuery = {
    sources: [createSource("shop")],
    candidates: "errors",
    byError: true,
    by: "time",
    order: "desc",
    range: { from: at(0), to: at(30 * day) },
    filter: { query: { kind: "all" } },
    expectedRows: 1,
    tieLimit: 1_000,
    budget: createBudget(1_000_000),
  };
  let rows = 0;
  for await (const batch of listSummaries(reader, query, signal)) rows += batch.length;
  expect(rows).toBe(500);
  expect(searches).toBeLessThan(60);
});
