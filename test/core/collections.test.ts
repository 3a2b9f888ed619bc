// Checked access: what is there is returned, what is missing throws.
import { describe, expect, test } from "vitest";
import {
  isNonEmpty,
  type NonEmpty,
  readNumber,
  requireAt,
  requireFirst,
  requireKey,
  requireLast,
  zip,
} from "#src/core/collections.ts";

describe("checked access to lists", () => {
  test("returns the element at an index", () => {
    expect([requireAt(["a", "b"], 1), requireFirst(["a", "b"]), requireLast(["a", "b"])]).toEqual([
      "b",
      "a",
      "b",
    ]);
  });

  test("returns null, false and 0 as they are", () => {
    expect([null, false, 0].map((_, index) => requireAt([null, false, 0], index))).toEqual([null, false, 0]);
  });

  test.each([-1, 2, 0.5, Number.NaN])("throws for index %s of two elements", (index) => {
    expect(() => requireAt(["a", "b"], index)).toThrow(RangeError);
  });

  test("throws for the first and the last element of an empty list", () => {
    expect(() => requireFirst([])).toThrow("no element 0 in a list of 0");
    expect(() => requireLast([])).toThrow("no element -1 in a list of 0");
  });

  test("narrows a list with elements to one whose first element is there", () => {
    const list: readonly number[] = [7];
    const first = (known: NonEmpty<number>): number => known[0];
    expect(isNonEmpty(list) && first(list)).toBe(7);
  });

  test("tells an empty list from one with elements", () => {
    expect([isNonEmpty([]), isNonEmpty([undefined])]).toEqual([false, true]);
  });
});

describe("checked access to typed arrays", () => {
  test("returns the number at an index, NaN included", () => {
    expect(readNumber(Float64Array.of(1.5, Number.NaN), 1)).toBeNaN();
  });

  test("throws behind the end", () => {
    expect(() => readNumber(Float64Array.of(1), 1)).toThrow("no number 1 in 1");
  });
});

describe("checked access to maps", () => {
  test("returns the value of a key", () => {
    expect(requireKey(new Map([["a", 0]]), "a")).toBe(0);
  });

  test("throws for a key that is missing", () => {
    expect(() => requireKey(new Map(), "a")).toThrow("no entry a in a map of 0");
  });
});

describe("zip", () => {
  test("pairs elements at equal indices", () => {
    expect(zip([1, 2], ["a", "b"])).toEqual([
      [1, "a"],
      [2, "b"],
    ]);
  });

  test("throws for lists of different length", () => {
    expect(() => zip([1], [])).toThrow("lists of 1 and 0 cannot be paired");
  });
});
