import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { matchesPattern } from "#src/metrics/tag-patterns.ts";
import { sampleRuns } from "../support/law-runs.ts";

describe("matchesPattern", () => {
  test.each([
    ["*", "a", true],
    ["*", "", false],
    ["**", "", false],
    ["", "", false],
    ["*", undefined, false],
    ["web*", "web", true],
    ["web*", "wet", false],
    ["*b*b*", "ab", false],
    ["*b*b*", "abcb", true],
    ["a*a", "a", false],
    ["a*a", "aa", true],
    ["a.c", "abc", false],
    ["a*c", "a\nb\nc", true],
    ["A", "a", false],
    ["ab*bc*cd", "abcd", false],
  ] as const)("pattern %j and value %j: %s", (pattern, value, expected) => {
    expect(matchesPattern(pattern, value)).toBe(expected);
  });

  test("equals the regular expression of its parts", () => {
    const text = fc.string({ unit: fc.constantFrom("a", "b", "*", ".", "\n", "\\"), maxLength: 8 });
    const law = fc.property(text, text, (pattern, value) => {
      const literal = (part: string) =>
        [...part].map((one) => `\\u{${one.codePointAt(0)?.toString(16)}}`).join("");
      const meant = new RegExp(`^${pattern.split(/\*+/).map(literal).join("[^]*")}$`, "u");
      expect(matchesPattern(pattern, value)).toBe(value !== "" && meant.test(value));
    });
    fc.assert(law, { numRuns: sampleRuns(2_000) });
  });

  test("matches a long run of wildcards in linear time", () => {
    expect(matchesPattern(`${"*".repeat(10_000)}y`, "x".repeat(100_000))).toBe(false);
    expect(matchesPattern("*a".repeat(5_000), "b".repeat(100_000))).toBe(false);
  });
});
