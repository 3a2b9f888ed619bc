// When the spans that no figures cover are read, and when the source adds up all of the range instead.
import { expect, test, vi } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import { allTime } from "#src/core/time.ts";
import type { SpanReader } from "#src/store/spans.ts";
import { isReadingCheaper } from "#src/tracing/rollups/reading-cost.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";

const sources = [buildSpanSource("shop", { index: "t", layout: "auto" })] as const;
const none = async function* (): AsyncGenerator<never> {};

async function ask(spans: number, toRead: number, statements: number | undefined, limit = 500_000) {
  const count = vi.fn(async () => statements);
  const reader: SpanReader = { scan: none, find: none, count };
  const extraSearch = "statements" as const;
  const cost = { spans, toRead, extraSearch, sources, budget: createBudget(limit) };
  const isCheaper = await isReadingCheaper(reader, cost, new AbortController().signal);
  return { isCheaper, asked: count.mock.calls.length, count };
}

test("a small part of the range is read, whatever the source holds", async () => {
  expect(await ask(1_000_000, 50_000, undefined)).toMatchObject({ isCheaper: true, asked: 0 });
});

test("the two ends of a short range are read where the search for an N+1 goes through many spans", async () => {
  const { isCheaper, count } = await ask(77_000, 6_700, 5_200_000);
  expect(isCheaper).toBe(true);
  expect(count).toHaveBeenCalledExactlyOnceWith(
    expect.objectContaining({ range: allTime, select: "statements" }),
    expect.anything(),
  );
});

test("they are not where that is little, or unknown", async () => {
  expect(await ask(77_000, 6_700, 200_000)).toMatchObject({ isCheaper: false });
  expect(await ask(77_000, 6_700, undefined)).toMatchObject({ isCheaper: false });
});

test("nothing is read that may exceed limits.documents with what belongs to it", async () => {
  expect(await ask(10_000_000, 70_000, 100_000_000)).toMatchObject({ isCheaper: false, asked: 0 });
});
