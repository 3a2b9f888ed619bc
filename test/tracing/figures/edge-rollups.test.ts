// A site may call tens of thousands of others, whose figures are put together in turns of the event loop.
import { expect, test } from "vitest";
import { siteEdgeRollups } from "#src/tracing/figures/edge-rollups.ts";
import { createArrayReader } from "../../conformance/trace-fixture.ts";
import { countTurns } from "../../support/event-loop-turns.ts";
import { createSource, createSpan, createTestBudget, range, signal } from "../span-builder.ts";

test("puts the edges of a site together in turns", async () => {
  const count = 200;
  const spans = Array.from({ length: count }, (_, n) =>
    createSpan({ span_id: `c${n}`, parent_span_id: "r", span_kind: "client", peer: `peer${n}` }),
  );
  const query = { sources: [createSource("shop")], partners: [], range, budget: createTestBudget() } as const;
  const figures = await siteEdgeRollups.read(createArrayReader(spans), query, [range], signal);
  let edges = 0;
  const turns = await countTurns(async () => {
    const answer = await siteEdgeRollups.combine(figures, query);
    edges = answer.upstream.length + answer.downstream.length + answer.internal.length;
  });
  expect(edges).toBe(count);
  expect(turns).toBeGreaterThanOrEqual(count);
});
