// An answer that is held whole is collected in turns of the event loop: the batches of what is read already come at once.
import { expect, test } from "vitest";
import { createHeldBytes } from "#src/core/async/held-bytes.ts";
import { collectBatches, countRows } from "#src/operations/runtime/collected-rows.ts";
import { startRequest } from "#src/operations/runtime/lifetime.ts";
import type { RowBatch } from "#src/operations/runtime/operation.ts";
import { countTurns } from "../support/event-loop-turns.ts";

const batches: readonly RowBatch[] = Array.from({ length: 50 }, (_, n) => ({ text: `${n}`, count: 1 }));

test("collects the batches of an answer in turns", async () => {
  const work = startRequest(new AbortController().signal, 60_000);
  const budget = { limit: 100, left: 100, held: createHeldBytes(1_000_000) };
  const printed = async function* () {
    yield* batches;
  };
  let collected: readonly RowBatch[] = [];
  try {
    const turns = await countTurns(async () => {
      collected = await collectBatches(printed(), work, budget, countRows);
    });
    expect(turns).toBeGreaterThanOrEqual(batches.length);
  } finally {
    work.end();
  }
  expect(collected).toEqual(batches);
  expect(budget.left).toBe(50);
});
