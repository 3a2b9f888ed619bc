import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test, vi } from "vitest";
import { failures } from "#src/core/errors.ts";
import { describeFailure } from "#src/operations/runtime/error-response.ts";
import { startRequest } from "#src/operations/runtime/lifetime.ts";
import { createBudget, createBudgetShare, trackBudget } from "#src/tracing/spans/read-budget.ts";

async function describeLate(
  read: (budget: ReturnType<typeof createBudget>) => void,
  silence?: number,
): Promise<unknown> {
  vi.useFakeTimers();
  const work = startRequest(new AbortController().signal, 30_000);
  const budget = createBudget(1_000_000, work.progress);
  vi.advanceTimersByTime(silence === undefined ? 28_000 : 30_000 - silence);
  read(budget);
  vi.advanceTimersByTime(30_000);
  vi.useRealTimers();
  while (!work.signal.aborted) await sleep(5);
  work.end();
  return describeFailure(work.signal.reason).body;
}

describe("deadline of a request", () => {
  test("names how many documents were read when its sources have sent some", async () => {
    const body = await describeLate((budget) => {
      budget.spend(400_000);
      budget.reportRead?.(300_000);
      const share = createBudgetShare(trackBudget(budget).budget, 200_000);
      share.spend(80_000);
      share.reportRead?.(10_000);
    });
    expect(body).toEqual({
      error:
        "The request took longer than 30s; 310,000 of about 480,000 documents were read; narrow the range or the filters",
    });
  });

  test("names a source that did not answer when it has sent nothing for a while", async () => {
    const read = (budget: ReturnType<typeof createBudget>): void => {
      budget.spend(400);
      budget.reportRead?.(300);
    };
    expect(await describeLate(read, 10_000)).toEqual({ error: failures.timeout });
  });

  test("names a source that did not answer when none has sent documents", async () => {
    expect(await describeLate((budget) => budget.spend(400))).toEqual({ error: failures.timeout });
  });
});

test("a spent budget says how much there is and what the limit is", () => {
  expect(() => createBudget(500_000).spend(1_234_567)).toThrowError(
    expect.objectContaining({
      message:
        "At least 1,234,567 documents would have to be read, and the limit is 500,000; narrow the range or the filters",
      details: { limit: 500_000, wanted: 1_234_567 },
    }),
  );
});
