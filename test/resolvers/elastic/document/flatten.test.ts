// The flat form of documents, and JSON with exact integers.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { flattenDocument, isValueObject } from "#resolvers/elastic/document/flatten.ts";
import { parseExactIntegers } from "#src/core/json/lossless-json.ts";
import { sampleRuns } from "../../../support/law-runs.ts";

describe("flattenDocument and parseExactIntegers", () => {
  const key = fc.stringMatching(/^[a-z]{1,3}$/);
  const leaf = fc.oneof(fc.string(), fc.integer(), fc.boolean());

  test("nested and dotted keys flatten to the same names", () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.tuple(fc.array(key, { minLength: 2, maxLength: 4 }), leaf), {
          selector: ([path]) => path.join("."),
          maxLength: 6,
        }),
        (leaves) => {
          const names = leaves.map(([path]) => path.join("."));
          // A name that is also an object above another cannot be written nested.
          fc.pre(!names.some((name) => names.some((other) => other.startsWith(`${name}.`))));
          const nested: Record<string, unknown> = {};
          for (const [path, value] of leaves) {
            let at = nested;
            for (const segment of path.slice(0, -1)) {
              at[segment] ??= {};
              at = at[segment] as Record<string, unknown>;
            }
            at[path.at(-1) ?? ""] = value;
          }
          const dotted = Object.fromEntries(leaves.map(([path, value]) => [path.join("."), value]));
          const flat = (value: unknown) => {
            const document = parseExactIntegers(JSON.stringify(value));
            return isValueObject(document) ? new Map([...flattenDocument(document)].sort()) : undefined;
          };
          expect(flat(nested)).toEqual(flat(dotted));
        },
      ),
    );
  });

  test("integers are exact, whatever their length and surroundings", () => {
    const integer = fc.oneof(
      fc.bigInt({ min: -(2n ** 70n), max: 2n ** 70n }),
      fc.bigInt({ min: 2n ** 53n - 9n, max: 2n ** 53n + 9n }),
      fc.bigInt({ min: 10n ** 15n, max: 10n ** 17n }),
    );
    const beside = fc.string({ unit: fc.constantFrom(..."0189a.-"), maxLength: 40 });
    fc.assert(
      fc.property(fc.array(fc.tuple(beside, integer), { minLength: 1, maxLength: 3 }), (pairs) => {
        const value = parseExactIntegers(`[${pairs.map(([text, integer]) => `"${text}", ${integer}`)}]`);
        const found = Array.isArray(value) ? value : [];
        expect(found.map((one) => (typeof one === "number" ? BigInt(one) : one))).toEqual(pairs.flat());
      }),
      { numRuns: sampleRuns(1_000) },
    );
    for (const integer of [2n ** 53n + 1n, -(2n ** 53n) - 1n, 12_345_678_901_234_567n]) {
      expect(parseExactIntegers(String(integer))).toBe(integer);
      for (let before = 0; before < 40; before++)
        for (const beside of ["", "1,"])
          expect(parseExactIntegers(`["${"x".repeat(before)}",${beside}${integer}]`)).toContain(integer);
      expect(parseExactIntegers(`[${integer}]`)).toEqual([integer]);
    }
  });
});
