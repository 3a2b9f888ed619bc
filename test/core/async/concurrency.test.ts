// Some calls at a time: in order, and given up as soon as one fails, also by those who heed no signal.
import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { runConcurrent } from "#resolvers/prometheus/counters/series-reader.ts";
import { mapConcurrent } from "#src/core/async/concurrency.ts";

const never = new AbortController().signal;
const items = Array.from({ length: 40 }, (_, n) => n);

test("mapConcurrent returns results in the order of the items and runs at most `limit` at once", async () => {
  let [now, most] = [0, 0];
  const work = async (item: number) => {
    now += 1;
    most = Math.max(most, now);
    await delay((item * 7) % 5);
    now -= 1;
    return -item;
  };
  expect(await mapConcurrent(items, 3, work, never)).toEqual(items.map((item) => -item));
  expect(most).toBe(3);
});

test.each([
  ["parallel", (work: (item: number) => Promise<void>) => mapConcurrent(items, 4, work, never)],
  ["inTurns", (work: (item: number) => Promise<void>) => runConcurrent(items, work)],
])("%s starts no other item after a failure", async (_, run) => {
  let begun = 0;
  const failed = run(async (item) => {
    begun += 1;
    await delay(1);
    if (item === 2) throw new Error("down");
  });
  await expect(failed).rejects.toThrow("down");
  const before = begun;
  await delay(50);
  expect(begun).toBe(before);
});
