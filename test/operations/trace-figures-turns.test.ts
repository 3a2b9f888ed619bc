// Figures of a site with very many actions, edges or slow events are put together in turns of the event loop.
import { expect, test } from "vitest";
import { defaults } from "#src/config/schema.ts";
import type { ActionEdge, ActionRow, SlowEvent, SlowEventAction } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { type Context, createEndpoint, type Operation } from "#src/operations/runtime/operation.ts";
import {
  actionEdges,
  actions,
  siteEdges,
  slowEventActions,
  slowEvents,
} from "#src/operations/traces/analytics.ts";
import type { SpanStore } from "#src/store/span-analytics.ts";
import { countTurns } from "../support/event-loop-turns.ts";
import { never } from "../support/signals.ts";
import { createSource } from "../tracing/span-builder.ts";

/** Rows that are sorted in several steps. */
const count = 5_000;
const range = { site_id: "shop", from: "2026-01-15T10:00:00Z", to: "2026-01-15T11:00:00Z" };
const figures = { error_count: 0, mean: 1, p_90: 1, p_95: 1 };

function createRows<Row>(toRow: (n: number) => Row): readonly Row[] {
  return Array.from({ length: count }, (_, n) => toRow(n));
}

const edges = createRows(
  (n): ActionEdge => ({
    ...figures,
    service: `s${n}`,
    count: n % 7,
    span_kind: "client",
    edge_type: "SYNC",
  }),
);
const store = {
  actions: async () =>
    createRows(
      (n): ActionRow => ({ namespace: "web", action: `a${n}`, count: 1, has_npo: false, ...figures }),
    ),
  siteEdges: async () => ({ upstream: edges, downstream: [], internal: [] }),
  actionEdges: async () => ({ upstream: edges, downstream: [] }),
  slowEvents: async () =>
    createRows(
      (n): SlowEvent => ({
        service: "web",
        kind: "client",
        name: `n${n}`,
        count: 1,
        mean: 1,
        impact: n % 7,
        attributes: {},
      }),
    ),
  slowEventActions: async () =>
    createRows(
      (n): SlowEventAction => ({
        namespace: "web",
        action_name: `a${n}`,
        count: n % 7,
        trace_id: "t",
        start_time: fromMillis(0),
      }),
    ),
} satisfies Partial<SpanStore>;

const context: Context = {
  user: "ana",
  sites: new Map([
    [
      "shop",
      {
        id: "shop",
        retention: 86_400_000,
        counterDefault: "cumulative",
        traces: { backend: "elk", source: createSource("shop"), store: store as unknown as SpanStore },
      },
    ],
  ]),
  limits: defaults.limits,
  now: () => fromMillis(Date.UTC(2026, 0, 16)),
  signal: never,
};

/** Up to the last row, without the text of any. */
async function answer<Input>(operation: Operation<Input, unknown>, body: object): Promise<void> {
  const result = createEndpoint(operation)
    .prepare({ ...range, ...body })
    .run(context);
  if ("then" in result) return void (await result);
  if ("pieces" in result || "follow" in result) throw new Error("rows expected");
  await result[Symbol.asyncIterator]().next();
}

test.each<[string, () => Promise<void>]>([
  ["actions", () => answer(actions, {})],
  ["edges of a site", () => answer(siteEdges, {})],
  ["edges of an action", () => answer(actionEdges, { namespace: "shop/web", action: "a" })],
  ["slow events", () => answer(slowEvents, { limit: count })],
  ["actions of a slow event", () => answer(slowEventActions, { digest: "d" })],
])("%s are sorted in turns", async (_, ask) => {
  // One for each part, and some for each time that parts are merged.
  expect(await countTurns(ask)).toBeGreaterThanOrEqual(6);
});
