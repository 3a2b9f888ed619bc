// Each request, call or event may have a name of its own. Their figures are made in turns of the event loop.
import { expect, test } from "vitest";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { rankEvents } from "#src/tracing/slow-events.ts";
import { createArrayReader } from "../conformance/trace-fixture.ts";
import { countTurns } from "../support/event-loop-turns.ts";
import { createSource, createSpan, createTestBudget, range, signal } from "./span-builder.ts";

const query = { sources: [createSource("shop")] as const, range, budget: createTestBudget() };

/** As many requests, each of its own action, that call as many services. */
function createAnalytics(count: number) {
  const ids = Array.from({ length: count }, (_, n) => ({ trace_id: `t${n}`, n }));
  return createSpanAnalytics(
    createArrayReader(
      ids.flatMap(({ trace_id, n }) => [
        createSpan({ trace_id, span_id: `r${n}`, span_kind: "server", action: `A${n}` }),
        createSpan({
          trace_id,
          span_id: `c${n}`,
          parent_span_id: `r${n}`,
          span_kind: "client",
          peer: `peer${n}`,
        }),
      ]),
    ),
  );
}

type Analytics = ReturnType<typeof createSpanAnalytics>;
test.each<[string, (analytics: Analytics) => Promise<unknown>]>([
  [
    "the actions of a site",
    async (analytics) => {
      const rows = await analytics.actions({ ...query, namespaces: [] }, signal);
      return expect(rows.length).toBeGreaterThan(9);
    },
  ],
  [
    "the edges of a site",
    async (analytics) => {
      const { downstream } = await analytics.siteEdges({ ...query, partners: [] }, signal);
      return expect(downstream.length).toBeGreaterThan(9);
    },
  ],
])("%s take one turn more for each one more", async (_, ask) => {
  const few = await countTurns(() => ask(createAnalytics(10)));
  expect(await countTurns(() => ask(createAnalytics(210)))).toBeGreaterThanOrEqual(few + 200);
});

test("slow events are ranked in turns", async () => {
  const events = Array.from({ length: 10_000 }, (_, n) => {
    const key = { service: "web", kind: "client" as const, name: `n${n}`, statement: undefined };
    return [String(n), { key, count: 1, total: BigInt(n), attributes: {} }] as const;
  });
  const turns = await countTurns(async () => {
    const [first] = await rankEvents(events, 1, 1n, signal);
    expect(first?.name).toBe("n9999");
  });
  expect(turns).toBeGreaterThanOrEqual(5);
});
