// When a roller waits for documents that are missing, and when no more.
import { describe, expect, test } from "vitest";
import { minute, second } from "#src/core/time.ts";
import {
  isUnstable,
  type MissingByOrigin,
  mayTakeAsDeleted,
  noteMissing,
} from "#src/tracing/rollup-store/missing-documents.ts";

const none: ReadonlySet<string> = new Set();

/** A roller that takes a step every five seconds. Returns the steps in which it waited. */
function follow(known: MissingByOrigin, from: number, to: number, missingAt: (time: number) => boolean) {
  const waited: number[] = [];
  for (let time = from; time < to; time += 5 * second) {
    const isMissing = missingAt(time);
    const isWaiting = isMissing && !mayTakeAsDeleted(known, "a", time);
    if (isWaiting) waited.push(time);
    noteMissing(known, { origins: isMissing ? new Set(["a"]) : none, isWaiting }, time);
  }
  return waited;
}

describe("documents that are missing", () => {
  test("are waited for as long as a copy may show them again, and again when they were there between", () => {
    const known: MissingByOrigin = new Map();
    const late = (time: number): boolean => time % minute < 30 * second;
    // Always in another copy.
    expect(follow(known, 0, 60 * minute, late)).toHaveLength(60 * 6);
    expect(isUnstable(known, "a", 60 * minute)).toBe(false);
  });

  test("are waited for once where they were deleted", () => {
    const known: MissingByOrigin = new Map();
    const deletedAt = (deleted: number) => {
      let isTaken = false;
      return (time: number): boolean => {
        if (time < deleted || isTaken) return false;
        isTaken = mayTakeAsDeleted(known, "a", time);
        return true;
      };
    };
    const twoMinutes = 24;
    expect(follow(known, 0, 20 * minute, deletedAt(minute))).toHaveLength(twoMinutes);
    expect(known.size).toBe(0);
    // Each of them, as long as they are rare.
    expect(follow(known, 20 * minute, 40 * minute, deletedAt(30 * minute))).toHaveLength(twoMinutes);
    expect(isUnstable(known, "a", 40 * minute)).toBe(false);
  });

  test("are waited for twice in half an hour where more go missing all the time", () => {
    const known: MissingByOrigin = new Map();
    const waited = follow(known, 0, 34 * minute, () => true);
    expect(waited).toHaveLength(48);
    expect(Math.max(...waited)).toBeLessThan(5 * minute);
    expect(isUnstable(known, "a", 34 * minute)).toBe(true);
    // Then a wait shows whether it is still so.
    expect(follow(known, 34 * minute, 64 * minute, () => true)).toHaveLength(24);
    const isLate = (time: number): boolean => time % minute === 0;
    expect(follow(known, 64 * minute, 100 * minute, isLate)).toHaveLength(33);
    expect(isUnstable(known, "a", 100 * minute)).toBe(false);
  });

  test("are waited for in four minutes at a time where one index after another begins to lack some", () => {
    const known: MissingByOrigin = new Map();
    const taken = new Set<string>();
    let [waiting, longest] = [0, 0];
    for (let time = 0; time < 60 * minute; time += 5 * second) {
      const began = Array.from({ length: Math.floor(time / (110 * second)) + 1 }, (_, n) => `index-${n}`);
      const origins = new Set(began.filter((origin) => !taken.has(origin)));
      const isWaiting = [...origins].some((origin) => !mayTakeAsDeleted(known, origin, time));
      noteMissing(known, { origins, isWaiting }, time);
      if (!isWaiting) for (const origin of origins) taken.add(origin);
      waiting = isWaiting ? waiting + 5 * second : 0;
      longest = Math.max(longest, waiting);
    }
    expect(longest).toBe(4 * minute);
  });

  test("of one index are not those of another one", () => {
    const known: MissingByOrigin = new Map();
    follow(known, 0, 20 * minute, () => true);
    expect([isUnstable(known, "a", 20 * minute), isUnstable(known, "b", 20 * minute)]).toEqual([true, false]);
    expect(mayTakeAsDeleted(known, "b", 20 * minute)).toBe(false);
  });
});
