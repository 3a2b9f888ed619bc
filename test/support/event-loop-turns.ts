import { vi } from "vitest";
import { type Steps, waitForTurn } from "#src/core/async/turns.ts";

/**
 * How many turns of the event loop there are, for everybody else, while this work is done by a computer so slow that what is
 * done between two looks at the clock takes longer than a turn may.
 */
export async function countTurns(work: () => Promise<unknown>): Promise<number> {
  let now = performance.now();
  // Whenever the clock is another one, the last turn is to have begun on it.
  const clock = vi.spyOn(performance, "now").mockImplementation(() => (now += 10));
  try {
    await waitForTurn();
    return await countWhile(work);
  } finally {
    clock.mockRestore();
    await waitForTurn();
  }
}

async function countWhile(work: () => Promise<unknown>): Promise<number> {
  let turns = 0;
  let over = false;
  const count = () => {
    turns += 1;
    if (!over) setImmediate(count);
  };
  setImmediate(count);
  await work();
  over = true;
  return turns;
}

/** In how many steps this work is done. */
export function countSteps(steps: Steps<unknown>): number {
  let count = 1;
  while (steps.next().done !== true) count += 1;
  return count;
}
