// Digits become the double that `Number` makes of them, or none.
import fc from "fast-check";
import { expect, test } from "vitest";
import { headDigits, nearest, tailDigits } from "#resolvers/prometheus/decimal.ts";

/** Of a decimal with a head of nine digits or fewer, and eight more only behind nine. */
function read(digits: string, decimals: number): number {
  const tail = digits.slice(headDigits);
  return nearest(Number(digits.slice(0, headDigits)), Number(tail), tail.length, decimals);
}
const digits = fc
  .tuple(fc.integer({ min: 1, max: 9 }), fc.string({ unit: fc.constantFrom(..."0123456789"), maxLength: 16 }))
  .map(([first, rest]) => `${first}${rest}`);
const decimals = fc.nat(30);
/** Digits of a point half-way between two doubles, cut to those that are read. */
const halfway = fc
  .tuple(fc.bigInt(2n ** 52n, 2n ** 53n - 1n), fc.nat(40))
  .map(([mantissa, shift]) =>
    `${(mantissa * 2n + 1n) * 5n ** BigInt(shift)}`.slice(0, headDigits + tailDigits),
  );

test("any digits, and those beside the middle of two doubles", () => {
  let open = 0;
  fc.assert(
    fc.property(fc.oneof(digits, halfway), decimals, (digits, decimals) => {
      const found = read(digits, decimals);
      if (!Number.isNaN(found)) expect(found).toBe(Number(`${digits}e-${decimals}`));
      else if (decimals <= 22) open += 1;
    }),
    { numRuns: 20_000 },
  );
  // Some one in a hundred of these, which are drawn to be hard; twice as many would tell of a bound that is too wide.
  expect(open).toBeLessThan(400);
});

test("the digits of every double that is printed with a point are enough to know it", () => {
  fc.assert(
    fc.property(fc.double({ min: 1e-5, max: 1e15, noNaN: true }), (value) => {
      const [, whole = "", fraction = ""] = /^(\d+)(?:\.(\d+))?$/.exec(String(value)) ?? [];
      const digits = `${whole}${fraction}`.replace(/^0+(?=.)/, "");
      expect(read(digits, fraction.length)).toBe(value);
    }),
    { numRuns: 5_000 },
  );
});

test("a point exactly between two doubles is left to others", () => {
  // 2^53 + 1 in sixteen digits.
  expect(read("9007199254740993", 0)).toBeNaN();
});
