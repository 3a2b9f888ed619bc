// The parser returns the double of `Number` or declines; the printer writes the digits of JSON.
import fc from "fast-check";
import { expect, test } from "vitest";
import { maxNumberBytes, scanNumber, writeNumber } from "#src/metrics/float-text.ts";
import { sampleRuns } from "../support/law-runs.ts";

/** The number parsed between two texts and its end; NaN when the parser declines. */
function readIn(before: string, text: string, after: string): { read: number; end: number } {
  const room = Buffer.from(before + text + after, "latin1");
  const numbers = Float64Array.of(7, 7, 7);
  const view = new DataView(room.buffer, room.byteOffset, room.length);
  const end = scanNumber(view, before.length, room.length, numbers, 1);
  expect([numbers[0], numbers[2]], "what is beside it").toEqual([7, 7]);
  return { read: end < 0 ? Number.NaN : (numbers[1] ?? 0), end: end - before.length };
}
function read(text: string): number {
  const { read, end } = readIn("[", text, '",xy');
  if (!Number.isNaN(read)) expect(end).toBe(text.length);
  return read;
}
/** With this many digits after the point, padded with leading zeros. */
function place(digits: string, decimals: number): string {
  if (decimals === 0) return digits;
  const padded = digits.padStart(decimals + 1, "0");
  return `${padded.slice(0, -decimals)}.${padded.slice(-decimals)}`;
}
const digit = fc.constantFrom(..."0123456789");
const digits = fc
  .tuple(fc.integer({ min: 1, max: 9 }), fc.string({ unit: digit, maxLength: 16 }))
  .map(([first, rest]) => `${first}${rest}`);
const decimals = fc.nat(30);
/** The digits of the midpoint of two doubles, cut to those that are read. */
const halfway = fc
  .tuple(fc.bigInt(2n ** 52n, 2n ** 53n - 1n), fc.nat(40))
  .map(([mantissa, shift]) => `${(mantissa * 2n + 1n) * 5n ** BigInt(shift)}`.slice(0, 17));

test("parses any digits as Number does, also near the middle of two doubles", () => {
  let open = 0;
  fc.assert(
    fc.property(fc.oneof(digits, halfway), decimals, (digits, decimals) => {
      const found = read(place(digits, decimals));
      if (!Number.isNaN(found)) expect(found).toBe(Number(`${digits}e-${decimals}`));
      else if (decimals <= 22) open += 1;
    }),
    { numRuns: sampleRuns(20_000) },
  );
  // About one in a hundred of these hard inputs is declined; twice as many would show that the error bound is too wide.
  expect(open).toBeLessThan(400);
});

test("parses the shortest text of every double with a decimal point", () => {
  fc.assert(
    fc.property(fc.double({ min: 1e-5, max: 1e15, noNaN: true }), (value) => {
      const text = String(value);
      fc.pre(!text.includes("e"));
      expect(read(text)).toBe(value);
      expect(read(`-${text}`)).toBe(-value);
    }),
    { numRuns: sampleRuns(5_000) },
  );
});

test("declines a decimal exactly between two doubles", () => {
  // 2^53 + 1 in sixteen digits.
  expect(read("9007199254740993")).toBeNaN();
});

test("parses the number at the start of any characters", () => {
  const character = fc.constantFrom(
    ..."0123456789.-+eE",
    ",",
    '"',
    "/",
    ":",
    " ",
    "\u00b0",
    "\u00ff",
    "\u00ca",
  );
  const texts = fc.string({ unit: character, maxLength: 24 });
  fc.assert(
    fc.property(texts, texts, (before, text) => {
      const { read, end } = readIn(before, text, "");
      if (Number.isNaN(read)) return;
      const [number = ""] = /^-?[0-9]*(?:\.[0-9]*)?/.exec(text) ?? [];
      expect(text.slice(0, end)).toBe(number);
      expect(read).toBe(Number(number));
    }),
    { numRuns: sampleRuns(20_000) },
  );
});

test.each(["", "-", ".", "-.", "x1", "+1", "--1"])("reads no number from %j", (text) => {
  expect(readIn("[", text, '",x').end).toBe(-2);
});

test("declines digits at the end of the received bytes", () => {
  for (const rest of ["", '"', '",']) expect(readIn("[", "12.5", rest).end, rest).toBe(-2);
  expect(readIn("[", "12.5", '",[').read).toBe(12.5);
});

// ---- Printing ----------------------------------------------------------------------------------------------------

const filler = 0x23;

function write(value: number): string {
  const room = Buffer.alloc(maxNumberBytes + 2, filler);
  const view = new DataView(room.buffer, room.byteOffset, room.length);
  const end = writeNumber(view, 1, Float64Array.of(7, value), 1);
  expect([room[0], room[maxNumberBytes + 1]], "what is beside its room").toEqual([filler, filler]);
  return room.toString("latin1", 1, end);
}

/** With the drawn number of digits, at any magnitude. */
const decimal = fc
  .tuple(fc.bigInt(1n, 10n ** 17n), fc.integer({ min: 0, max: 24 }))
  .map(([digits, places]) => Number(`${digits}e-${places}`));
const short = fc
  .tuple(fc.integer(), fc.integer({ min: 0, max: 12 }))
  .map(([digits, places]) => Number(`${digits}e-${places}`));
/** Half of these lie exactly between two decimals of 16 digits. */
const single = fc.float({ noNaN: true, noDefaultInfinity: true });
/** Up to four doubles away from a power of two, where the spacing changes, or a power of ten. */
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

test("prints every double as JSON.stringify does", () => {
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
    { numRuns: sampleRuns(20_000), examples: [...examples, ...powers].map((value) => [value]) },
  );
});
