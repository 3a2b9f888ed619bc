// The spans of slow events are many, and a statement takes some twenty microseconds: they are looked at in turns.
import { expect, test } from "vitest";
import type { TimeRange } from "#src/core/time.ts";
import type { SpanReader } from "#src/store/spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import {
  actionsByEventRollups,
  slowEventActionRollups,
  slowEventRollups,
} from "#src/tracing/figures/event-rollups.ts";
import { findSlowEventsByAction } from "#src/tracing/slow-events.ts";
import { encodeEventDigest } from "#src/tracing/spans/digest.ts";
import { createArrayReader } from "../conformance/trace-fixture.ts";
import { countTurns } from "../support/event-loop-turns.ts";
import { at, createSource, createSpan, createTestBudget, signal } from "./span-builder.ts";

const count = 500;
const ofRequest = { trace_id: "t", from: 0, to: 10 };
const spans = [
  createSpan({ ...ofRequest, span_id: "r", span_kind: "server", action: "A" }),
  ...Array.from({ length: count }, (_, n) =>
    createSpan({ ...ofRequest, span_id: `c${n}`, parent_span_id: "r", span_kind: "client" }),
  ),
];
/** Without turns of its own. */
const reader: SpanReader = createArrayReader(spans);
const range: TimeRange = { from: at(0), to: at(1_000) };
const query = { sources: [createSource("shop")] as const, range, budget: createTestBudget() };
const noFilter = { requiredAttributes: [], excludedAttributes: [], limit: 10 };
const digest = encodeEventDigest({ service: "web", kind: "client", name: "work", statement: undefined });
const analytics = createSpanAnalytics(reader);

test.each<[string, number, () => Promise<unknown>]>([
  ["slow events", count, () => analytics.slowEvents({ ...query, ...noFilter }, signal)],
  // The spans, and their parents.
  ["slow events of each action", 2 * count, () => findSlowEventsByAction(reader, query, 10, signal)],
  ["the actions of a slow event", 3 * count, () => analytics.slowEventActions({ ...query, digest }, signal)],
  [
    "figures of slow events",
    count,
    () => slowEventRollups.read(reader, { ...query, ...noFilter }, [range], signal),
  ],
  [
    "figures of the actions of a slow event",
    3 * count,
    () => slowEventActionRollups.read(reader, { ...query, digest }, [range], signal),
  ],
  [
    "figures of the actions of all",
    2 * count,
    async () => actionsByEventRollups[0]?.read(createArrayReader(spans), query, [range], signal),
  ],
])("%s leave turns to others", async (_, least, ask) => {
  expect(await countTurns(ask)).toBeGreaterThanOrEqual(least);
});
