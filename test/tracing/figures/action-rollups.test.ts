// Figures of requests where the definition is easily missed: requests that were sent twice, and reading that costs too much.
import { describe, expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import { minute } from "#src/core/time.ts";
import type { SpanReader } from "#src/store/spans.ts";
import { createRollupAnalytics } from "#src/tracing/figures/rollup-analytics.ts";
import { createRollupCatalogue } from "#src/tracing/rollup-store/catalogue.ts";
import { createRollupCache } from "#src/tracing/rollups/rollup-cache.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { length, openRolledSpans, type RolledSpans, rollGroup } from "../rollup-store/rolled-spans.ts";
import { at, createSpan, signal } from "../span-builder.ts";

async function rollAll(rolled: RolledSpans): Promise<void> {
  for (const target of rolled.targets) {
    for (let steps = 0; steps < 300; steps += 1) {
      const recent = { ...target, retention: length + 60 * minute };
      const { did } = await rollGroup(rolled.context, recent);
      if (did === "idle") break;
    }
  }
}

describe("a request that was sent twice", () => {
  const request = (over: object): Span =>
    createSpan({
      site_id: "a",
      trace_id: "t",
      span_id: "n1",
      span_kind: "server",
      revision: "r1",
      from: minute,
      to: 3 * minute,
      ...over,
    });
  const calls = createSpan({
    site_id: "a",
    trace_id: "t",
    span_id: "n2",
    parent_span_id: "n1",
    span_kind: "client",
    count: 5,
    statement: "select 1",
    from: 2 * minute,
    to: 2 * minute + 5,
  });

  test.each([
    ["as another revision", { revision: "r2" }],
    ["with another end", { to: 61 * minute }],
  ])("%s has its N+1 in both", async (_, over) => {
    const rolled = openRolledSpans();
    for (const span of [calls, request({}), request(over)]) rolled.spans.add([span]);
    await rollAll(rolled);
    for (const revision of [undefined, "r1", "r2"]) {
      for (const [from, to] of [
        [0, 60 * minute - 1e-6],
        [60 * minute, 120 * minute - 1e-6],
        [0, 120 * minute - 1e-6],
      ] as const) {
        const query = () => ({
          sources: [rolled.sources.a] as const,
          range: { from: at(from), to: at(to) },
          namespaces: [],
          revision,
          budget: createBudget(1_000_000),
        });
        const read = await rolled.definition().actions(query(), signal);
        expect(await rolled.analytics.actions(query(), signal)).toEqual(read);
      }
    }
  });
});

test("figures refuse nothing that the definition answers within the same limit", async () => {
  const rolled = openRolledSpans();
  const add = (n: number, to: number, statements: number): void => {
    const of = { site_id: "a", trace_id: `t${n}` };
    rolled.spans.add([
      createSpan({ ...of, span_id: `r${n}`, span_kind: "server", revision: "r1", from: to - 5, to }),
    ]);
    for (let call = 0; call < statements; call += 1) {
      const ids = { span_id: `s${n}-${call}`, parent_span_id: `r${n}` };
      const statement = `select ${"x".repeat(call)} from t`;
      rolled.spans.add([
        createSpan({ ...of, ...ids, span_kind: "client", statement, from: to - 4, to: to - 3 }),
      ]);
    }
  };
  for (let n = 0; n < 1_000; n += 1) add(n, n * 3_600 + 10, 0);
  await rollAll(rolled);
  // Beside what is kept a few requests, each with a hundred calls.
  for (let n = 1_000; n < 1_040; n += 1) add(n, 60 * minute + 50 + (n - 1_000) * 100, 100);
  const count: SpanReader["count"] = async ({ range: { from, to } }) =>
    rolled.spans.listSpans().filter(({ entry, end }) => entry && end >= from && end <= to).length;
  const { reader: inner } = rolled.spans;
  const reader: SpanReader = {
    ...inner,
    count,
    openSnapshot: async (...query) => {
      const snapshot = await inner.openSnapshot?.(...query);
      return snapshot && { ...snapshot, reader: { ...snapshot.reader, count } };
    },
  };
  let time = 0;
  const stored = createRollupCatalogue(
    () => rolled.inner,
    () => (time += minute),
    (error) => {
      throw error;
    },
  );
  const lookups: boolean[] = [];
  const cache = createRollupCache({
    backend: "es",
    maxBytes: 0,
    minSpans: 0,
    segmentSpans: 10,
    stored,
    recordLookup: (hit) => void lookups.push(hit),
  });
  const query = {
    sources: [rolled.sources.a] as const,
    range: { from: at(-60 * minute), to: at(62 * minute) },
    revision: "r1",
    budget: createBudget(2_000),
  };
  const found = await createRollupAnalytics(reader, cache).revisionStats(query, signal);
  expect(found).toMatchObject({ count: 1_040 });
  expect(lookups).toContain(true);
});
