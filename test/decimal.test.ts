// Digits become the double that `Number` makes of them, or none; doubles become the digits that JSON has.
import fc from "fast-check";
import { expect, test } from "vitest";
import { headDigits, longestNumber, nearest, tailDigits, writeNumber } from "#src/decimal.ts";

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

// ---- Printing ----------------------------------------------------------------------------------------------------

const filler = 0x23;

function write(value: number): string {
  const room = Buffer.alloc(longestNumber + 2, filler);
  const end = writeNumber(new DataView(room.buffer, room.byteOffset, room.length), 1, value);
  expect([room[0], room[longestNumber + 1]], "what is beside its room").toEqual([filler, filler]);
  return room.toString("latin1", 1, end);
}

/** With as many digits as drawn, at any place. */
const decimal = fc
  .tuple(fc.bigInt(1n, 10n ** 17n), fc.integer({ min: 0, max: 24 }))
  .map(([digits, places]) => Number(`${digits}e-${places}`));
const short = fc
  .tuple(fc.integer(), fc.integer({ min: 0, max: 12 }))
  .map(([digits, places]) => Number(`${digits}e-${places}`));
/** Half of these lie exactly between two decimals of 16 digits. */
const single = fc.float({ noNaN: true, noDefaultInfinity: true });
/** Up to four doubles from one whose neighbour below is nearer than that above, or at which digits become one more. */
const edge = fc
  .tuple(
    fc.oneof(
      fc.integer({ min: -25, max: 70 }).map((exponent) => 2 ** exponent),
      fc.integer({ min: -8, max: 22 }).map((exponent) => Number(`1e${exponent}`)),
    ),
    fc.bigInt(-4n, 4n),
    fc.constantFrom(1, -1),
  )
  .map(([value, steps, sign]) => {
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, value);
    view.setBigInt64(0, view.getBigInt64(0) + steps);
    return sign * view.getFloat64(0);
  });

test("every double is written as JSON has it", () => {
  const examples = [0, -0, -2_147_483_648, -0.0000012345678901234567, 1e15 + 0.125, 2 ** 53 + 2];
  const powers = Array.from({ length: 100 }, (_, exponent) => 2 ** (exponent - 25));
  const double = fc.double({ noNaN: true, noDefaultInfinity: true });
  const common = fc.double({ min: -1e16, max: 1e16, noNaN: true });
  const uniform = fc.maxSafeInteger().map((drawn) => drawn / 2 ** 46);
  fc.assert(
    fc.property(
      fc.oneof(double, common, uniform, decimal, short, single, edge, fc.integer(), fc.maxSafeInteger()),
      (value) => {
        expect(write(value)).toBe(JSON.stringify(value));
      },
    ),
    { numRuns: 20_000, examples: [...examples, ...powers].map((value) => [value]) },
  );
});
