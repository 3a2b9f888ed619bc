// Waits that take as long as they take. They count turns of the event loop, and leave fake timers
// alone: expect.poll moves those on.
import { setTimeout as delay } from "node:timers/promises";

export async function waitUntil(holds: () => boolean): Promise<void> {
  while (!holds()) await delay(5);
}

/** What a count comes to: it has stayed the same for fifty turns of the event loop, however long those take. */
export async function readSettledCount(count: () => number): Promise<number> {
  let last = count();
  for (let same = 0; same < 50; same += 1) {
    await delay(10);
    if (count() === last) continue;
    last = count();
    same = 0;
  }
  return last;
}
