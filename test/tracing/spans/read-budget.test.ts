// What spans take in memory, roughly, and what becomes of it when a read ends.
import { expect, test } from "vitest";
import { createHeldBytes, createHeldLedger } from "#src/core/async/held-bytes.ts";
import {
  createBudget,
  createBudgetShare,
  holdSpans,
  measureSpan,
  releaseAfter,
  trackBudget,
} from "#src/tracing/spans/read-budget.ts";
import { at, createSpan } from "../span-builder.ts";

test("a span counts with the texts of its attributes, events and links, however they nest", () => {
  const plain = createSpan();
  const bytes = measureSpan(plain);
  const text = "x".repeat(1_000);
  const link = { trace_id: "t", span_id: "s", trace_state: "", attributes: { text } };
  for (const over of [
    { span_name: text },
    { span_attributes: { text } },
    { resource_attributes: { list: [text] } },
    { span_attributes: { deep: { deeper: { text } } } },
    { events: [{ name: "exception", time: at(0), attributes: { text } }] },
    { links: [link] },
  ]) {
    expect(measureSpan(createSpan(over)) - bytes).toBeGreaterThan(990);
    expect(measureSpan(createSpan(over)) - bytes).toBeLessThan(1_200);
  }
  const mixed = { number: 1, nothing: null, big: 2n ** 63n, is: true };
  expect(measureSpan(createSpan({ span_attributes: mixed })) - bytes).toBeLessThan(100);
});

test("shares of a budget hold for the same request, and a read gives back what it holds, also where it fails", async () => {
  const ledger = createHeldLedger();
  const held = createHeldBytes(Number.MAX_SAFE_INTEGER, { ledger, account: "ana" });
  const budget = createBudget(10, undefined, held);
  const bytes = measureSpan(createSpan());
  holdSpans(createBudgetShare(budget, 5), [createSpan()]);
  holdSpans(trackBudget(budget).budget, [createSpan()]);
  expect(ledger.heldBytes).toBe(2 * bytes);
  const failing = releaseAfter(budget, async (own) => {
    holdSpans(own, [createSpan(), createSpan()]);
    expect(ledger.heldBytes).toBe(4 * bytes);
    throw new Error("lost");
  });
  await expect(failing).rejects.toThrow("lost");
  expect(ledger.heldBytes).toBe(2 * bytes);
});
