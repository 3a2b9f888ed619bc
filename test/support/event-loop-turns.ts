import type { Steps } from "#src/core/async/turns.ts";

/** How many turns of the event loop there are, for everybody else, while this work is done. */
export async function countTurns(work: () => Promise<unknown>): Promise<number> {
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
