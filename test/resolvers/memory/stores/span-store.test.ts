// Spans are looked at without holding the event loop up. What the store answers is tested by test/conformance/memory.test.ts.
import { expect, test } from "vitest";
import { createMemorySpans, type StoredSpan } from "#resolvers/memory/stores/span-store.ts";
import { countTurns } from "../../../support/event-loop-turns.ts";
import { at, createSource, createSpan, createTestBudget, signal } from "../../../tracing/span-builder.ts";

const count = 1_000;
const spans = Array.from({ length: count }, (_, n) => createSpan({ span_id: `s${n}`, to: n }));

/** The ids of all spans, in the order in which they are read. */
async function scan({ scan }: ReturnType<typeof createMemorySpans>): Promise<readonly string[]> {
  const range = { from: at(0), to: at(10_000) };
  const query = { sources: [createSource("shop")] as const, range, budget: createTestBudget() };
  const found: string[] = [];
  for await (const batch of scan({ ...query, select: "all" }, signal))
    found.push(...batch.map(({ span_id }) => span_id));
  return found;
}

test("a request waits for others before its first span", async () => {
  const store = createMemorySpans();
  store.add("shop", spans);
  expect(await countTurns(() => scan(store))).toBeGreaterThanOrEqual(count);
});

test("spans that come in order are not compared with all that are there, and late ones find their place", async () => {
  let compared = 0;
  const watch = (span: StoredSpan): StoredSpan =>
    Object.defineProperty({ ...span }, "end", {
      get: () => {
        compared += 1;
        return span.end;
      },
    });
  const store = createMemorySpans();
  store.add("shop", spans.map(watch));
  compared = 0;
  store.add("shop", []);
  store.add("shop", [createSpan({ span_id: "newest", to: count })]);
  store.forget("shop", at(0));
  expect(compared).toBeLessThan(40);
  store.add("shop", [
    createSpan({ span_id: "newer", to: count + 1 }),
    createSpan({ span_id: "late", to: 500 }),
  ]);
  store.forget("shop", at(499));
  const found = await scan(store);
  expect(found.slice(0, 4)).toEqual(["s499", "s500", "late", "s501"]);
  expect(found.slice(-3)).toEqual(["s999", "newest", "newer"]);
});
