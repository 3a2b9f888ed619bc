import { setImmediate as nextIteration } from "node:timers/promises";
import fc from "fast-check";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import {
  nameTurnOwner,
  runInUnownedTurns,
  runSteps,
  type Steps,
  selectFirstInSteps,
  sortInSteps,
  takeSteps,
  waitForTurn,
  yieldToEventLoop,
} from "../../../src/core/async/turns.ts";
import { countSteps } from "../../support/event-loop-turns.ts";

/** Milliseconds of work that all tasks have done. */
let worked = 0;
beforeEach(async () => {
  worked = 0;
  vi.spyOn(performance, "now").mockImplementation(() => worked);
  await waitForTurn();
});
afterEach(async () => {
  // The last turn is to end on this clock.
  await nextIteration();
  vi.restoreAllMocks();
  await waitForTurn();
});

function* workInSteps(count: number, millis: number, onStep?: () => void): Steps<void> {
  for (let step = 0; step < count; step += 1) {
    worked += millis;
    onStep?.();
    yield;
  }
}

function workFor(account: string, steps: Steps<void>, signal?: AbortSignal): Promise<void> {
  return runInUnownedTurns(async () => {
    // As a request that has been read, and whose token is then looked up.
    await nextIteration();
    nameTurnOwner(account);
    await takeSteps(steps, signal);
  });
}

test("work in many short steps waits for others as often as the same work in few long ones", async () => {
  const stop = new AbortController();
  const others = Array.from({ length: 8 }, () => workFor("a", workInSteps(10_000, 4), stop.signal));
  const millis: number[] = [];
  for (const [count, step] of [
    [1_000, 0.1],
    [25, 4],
  ] as const) {
    const began = worked;
    await workFor("a", workInSteps(count, step));
    millis.push(worked - began);
  }
  stop.abort(new Error("enough"));
  await expect(Promise.all(others)).rejects.toThrow("enough");
  const [short = 0, long = 0] = millis;
  expect(short).toBeLessThan(2 * long);
  expect(long).toBeLessThan(100 * 20);
});

test("an account has every other turn, however much another one does", async () => {
  const stop = new AbortController();
  const others = Array.from({ length: 30 }, () => workFor("b", workInSteps(10_000, 4), stop.signal));
  let own = 0;
  await workFor(
    "a",
    workInSteps(100, 4, () => {
      own += 4;
    }),
  );
  expect(own).toBe(400);
  // The first of all steps is no turn yet: each of the thirty does its own before.
  expect(worked - own).toBeLessThan(30 * 4 + 2 * own);
  stop.abort(new Error("enough"));
  await expect(Promise.all(others)).rejects.toThrow("enough");
});

test("an account whose turns are short has more of them", async () => {
  const stop = new AbortController();
  const long = Array.from({ length: 4 }, () => workFor("b", workInSteps(10_000, 4), stop.signal));
  let own = 0;
  const short = Array.from({ length: 10 }, () =>
    runInUnownedTurns(async () => {
      await nextIteration();
      nameTurnOwner("a");
      // A piece of a large answer, and then a turn for others.
      for (let piece = 0; piece < 40; piece += 1) {
        worked += 1;
        own += 1;
        await waitForTurn();
      }
    }),
  );
  const began = worked;
  await Promise.all(short);
  expect(own).toBe(400);
  expect(worked - began).toBeLessThan(2.5 * own);
  stop.abort(new Error("enough"));
  await expect(Promise.all(long)).rejects.toThrow("enough");
});

test("of tasks that ask at the same moment one goes on in a young turn", async () => {
  const longest = await runInUnownedTurns(async () => {
    let isDone = false;
    const stalls: number[] = [];
    const watch = async () => {
      for (let last = worked; !isDone; last = worked) {
        await nextIteration();
        stalls.push(worked - last);
      }
    };
    const watching = watch();
    await waitForTurn();
    const work = async () => {
      await yieldToEventLoop();
      worked += 4;
    };
    await Promise.all(Array.from({ length: 30 }, work));
    isDone = true;
    await watching;
    return Math.max(...stalls);
  });
  expect(longest).toBeLessThanOrEqual(5 + 4);
});

test("requests of one account take turns with each other", async () => {
  const ended: string[] = [];
  const done = (name: string) => () => ended.push(name);
  await Promise.all([
    workFor("a", workInSteps(100, 4)).then(done("long")),
    workFor("a", workInSteps(10, 4)).then(done("short")),
  ]);
  expect(ended).toEqual(["short", "long"]);
});

test("the event loop goes round after some milliseconds of work, of however many tasks", async () => {
  const stalls: number[] = [];
  let isDone = false;
  const watch = async () => {
    for (let last = worked; !isDone; last = worked) {
      await nextIteration();
      stalls.push(worked - last);
    }
  };
  const watching = watch();
  await Promise.all(
    Array.from({ length: 20 }, (_, n) => workFor(`account ${n % 3}`, workInSteps(200, 1 + (n % 3)))),
  );
  isDone = true;
  await watching;
  // The first steps of all are in one iteration here; a store waits for a turn before it.
  expect(Math.max(...stalls.slice(3))).toBeLessThanOrEqual(5 + 3);
  expect(stalls.length).toBeGreaterThan(400);
});

test("items are sorted in steps as they are in one, also those that are equal", () => {
  const items = fc
    .tuple(fc.integer({ min: 0, max: 12_000 }), fc.integer({ min: 1, max: 9_000 }), fc.integer())
    .map(([length, keys, seed]) =>
      Array.from({ length }, (_, at) => ({ key: Math.abs(Math.imul(at + 1, seed | 1)) % keys, at })),
    );
  const byKey = (a: { readonly key: number }, b: { readonly key: number }) => a.key - b.key;
  const property = fc.property(items, (some) => {
    expect(runSteps(sortInSteps(some, byKey))).toEqual(some.toSorted(byKey));
  });
  fc.assert(property, { numRuns: 30 });
});

test("many items are sorted in many steps", () => {
  const items = Array.from({ length: 20_000 }, (_, at) => (at * 7_919) % 20_000);
  const compared: number[] = [0];
  const steps = sortInSteps(items, (a, b) => {
    compared[compared.length - 1] = (compared.at(-1) ?? 0) + 1;
    return a - b;
  });
  while (steps.next().done !== true) compared.push(0);
  expect(Math.max(...compared)).toBeLessThan(30_000);
});

test("runs that only have to be moved are moved in steps too", () => {
  const items = Array.from({ length: 64_000 }, (_, at) => -at);
  let steps = 0;
  for (const sorting = sortInSteps(items, (a, b) => a - b); sorting.next().done !== true; ) steps += 1;
  // Of the 32 runs of 2,000 items, one step for each; then each of five merges moves all items, 2,000 in a step.
  expect(steps).toBe(31 + 5 * 32);
});

test("the first of many are those that sorting all would put first", () => {
  const pairs = fc.array(fc.tuple(fc.integer({ min: 0, max: 9 }), fc.integer()), { maxLength: 200 });
  fc.assert(
    fc.property(pairs, fc.integer({ min: 0, max: 20 }), (items, limit) => {
      const compare = ([a]: readonly [number, number], [b]: readonly [number, number]): number => a - b;
      expect(runSteps(selectFirstInSteps(items, limit, compare))).toEqual(
        items.toSorted(compare).slice(0, limit),
      );
    }),
  );
});

test("the first of many are found in steps", () => {
  const items = Array.from({ length: 20_000 }, (_, n) => n);
  expect(countSteps(selectFirstInSteps(items, 5, (a, b) => b - a))).toBeGreaterThanOrEqual(10);
});
