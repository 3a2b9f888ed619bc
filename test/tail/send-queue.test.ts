// What waits for one client.
import { expect, test } from "vitest";
import { fromMillis } from "#src/core/time.ts";
import { createSendQueue } from "#src/tail/send-queue.ts";

test("whoever waits until the client has taken all goes on when the tail is ended", async () => {
  const queue = createSendQueue(fromMillis(0), new AbortController().signal);
  queue.push("lines", fromMillis(1));
  let goesOn = false;
  const waits = queue.waitUntilEmpty().then(() => {
    goesOn = true;
  });
  queue.end("slow");
  await waits;
  expect(goesOn).toBe(true);
  expect(await queue.next()).toEqual({ done: false, value: "slow" });
  expect(await queue.next()).toEqual({ done: true, value: undefined });
});
