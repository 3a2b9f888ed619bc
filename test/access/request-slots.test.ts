// Slots of requests under way: who gets the next one, and what a reload waits for.
import { expect, test } from "vitest";
import type { Principal } from "#src/access/auth.ts";
import { createRequestSlots, createSlotPool, takeSlotBriefly } from "#src/access/request-slots.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis } from "#src/core/time.ts";
import { anonymousPrincipal, createExecutor } from "#src/operations/runtime/executor.ts";

const never = new AbortController().signal;

/** One that has so many slots. */
const openExecutor = (requests: number) =>
  createExecutor({
    sites: new Map(),
    slots: createRequestSlots(),
    limits: { ...defaults.limits, requests, tokenRequests: requests },
    slotWait: 30_000,
    now: () => fromMillis(0),
    onLimitReached: () => undefined,
  });

test("of tokens that wait and hold as many, the one that was served the longest ago is next", async () => {
  const limits = { ...defaults.limits, requests: 3, tokenRequests: 3 };
  const pool = createSlotPool(createRequestSlots(), limits, 30_000);
  const take = (account: string) =>
    takeSlotBriefly(pool, { ...anonymousPrincipal, account } as Principal, never);
  const held = [await take("x"), await take("x"), await take("x")];
  const order: string[] = [];
  const asked = ["a", "a", "b"].map(async (account) => {
    const end = await take(account);
    order.push(account);
    // None of them holds one when the next one is free.
    end();
  });
  held.shift()?.();
  await Promise.all(asked);
  expect(order).toEqual(["a", "b", "a"]);
  for (const end of held) end();
  expect(pool.slots).toMatchObject({ taken: 0, waitingBriefly: 0, waiting: new Map() });
});

test("a reload waits for a public request that waits for its slot", async () => {
  const executor = openExecutor(1);
  const first = await executor.admit(anonymousPrincipal, never);
  const second = executor.admit(anonymousPrincipal, never);
  let isDrained = false;
  const drained = executor.drain().then(() => {
    isDrained = true;
  });
  first.end();
  const work = await second;
  await new Promise(setImmediate);
  expect(isDrained).toBe(false);
  work.end();
  await drained;
});

test("a request that is ended twice gives its slot back once", async () => {
  const executor = openExecutor(2);
  const [first, second] = [
    await executor.admit(anonymousPrincipal, never),
    await executor.admit(anonymousPrincipal, never),
  ];
  first.end();
  first.end();
  expect(executor.measureUse().requests).toBe(0.5);
  let isDrained = false;
  const drained = executor.drain().then(() => {
    isDrained = true;
  });
  await new Promise(setImmediate);
  expect(isDrained).toBe(false);
  second.end();
  await drained;
});
