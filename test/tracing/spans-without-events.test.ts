// Separate events cost a search for each thousand spans, so only callers that need events may read them. Spans that are read
// without events throw when their events are accessed.
import { expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import type { ListingQuery } from "#src/store/span-analytics.ts";
import type { SpanReader } from "#src/store/spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { encodeEventDigest } from "#src/tracing/spans/digest.ts";
import { createArrayReader, makeTraces, midnight, toSpan } from "../conformance/trace-fixture.ts";
import { createSource, createTestBudget, signal } from "./span-builder.ts";

const spans = makeTraces(3, 40).map(toSpan);
const range = { from: fromMillis(midnight - 3_600_000), to: fromMillis(midnight + 3_600_000) };

test("reads events only for exceptions and for complete traces", async () => {
  const reader = createArrayReader(spans);
  const whole: string[] = [];
  async function* reading(
    batches: AsyncIterable<readonly Span[]>,
    withoutEvents: boolean | undefined,
    what: string,
  ) {
    if (!withoutEvents) whole.push(what);
    for await (const batch of batches) {
      yield withoutEvents
        ? batch.map((span) =>
            Object.defineProperty({ ...span }, "events", {
              get: () => {
                throw new Error(`events of ${what}`);
              },
            }),
          )
        : batch;
    }
  }
  const listening: SpanReader = {
    scan: (query, signal) => reading(reader.scan(query, signal), query.withoutEvents, `scan ${query.select}`),
    find: (query, signal) =>
      reading(
        reader.find(query, signal),
        query.withoutEvents,
        `find ${"select" in query.of ? query.of.select : query.of.by}`,
      ),
  };
  const [own, defined] = [createSpanAnalytics(listening), createSpanAnalytics(reader)];
  const createScope = () => ({
    sources: [createSource("shop")] as const,
    partners: [createSource("stock")],
    range,
    budget: createTestBudget(),
    namespaces: [],
    requiredAttributes: [],
    excludedAttributes: [],
    limit: 100,
  });
  const event = { service: "shop-web", kind: "client", name: "query", statement: undefined } as const;
  const action = { service: "shop-web", namespace: "web", action: "Cart#show" };
  for (const analytics of [
    (store: typeof own) => store.actions(createScope(), signal),
    (store: typeof own) => store.siteEdges(createScope(), signal),
    (store: typeof own) => store.actionEdges({ ...createScope(), ...action }, signal),
    (store: typeof own) =>
      store.slowEvents({ ...createScope(), requiredAttributes: ["db.system.name"] }, signal),
    (store: typeof own) =>
      store.slowEventActions({ ...createScope(), digest: encodeEventDigest(event) }, signal),
    (store: typeof own) => store.revisionStats({ ...createScope(), revision: "r1" }, signal),
  ]) {
    expect(await analytics(own)).toEqual(await analytics(defined));
  }
  expect(whole).toEqual([]);
  const listing: Omit<ListingQuery, "candidates"> = {
    ...createScope(),
    filter: { query: { kind: "all" } },
    by: "time",
    order: "desc",
    expectedRows: 10,
    tieLimit: 100,
    beyond: undefined,
  };
  for (const candidates of ["requests", "errors"] as const) {
    for await (const rows of own.summaries({ ...listing, candidates }, signal)) expect(rows).not.toEqual([]);
  }
  expect(new Set(whole)).toEqual(new Set(["scan exceptions", "find exceptions"]));
});
