// Points printed as bytes are the JSON of their times and values, digit for digit.
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Buckets } from "#src/model.ts";
import { createPrinter, pointsOfTurn } from "#src/operations/points.ts";

/** As an answer has them, all but the brackets around them. */
function print(values: Float64Array, buckets: Buckets, missing: number, turn = pointsOfTurn): string {
  const printPoints = createPrinter(buckets);
  let text = "";
  let count = 0;
  for (let first = 0; first < buckets.count; first += turn) {
    const range = { first, end: Math.min(first + turn, buckets.count) };
    const printed = printPoints(values, range, missing, count === 0);
    text += printed.text;
    count += printed.count;
  }
  return count === 0 ? text : `${text}}`;
}

function stringify(values: Float64Array, { start, step }: Buckets, missing: number): string {
  const points = [...values]
    .map((found, bucket) => ({
      timestamp: new Date(start + bucket * step).toISOString(),
      value: Number.isFinite(found) ? found : missing,
    }))
    .filter(({ value }) => !Number.isNaN(value));
  return JSON.stringify(points).slice(1, -1);
}

const decimal = fc
  .tuple(fc.maxSafeInteger(), fc.integer({ min: 0, max: 17 }))
  .map(([digits, places]) => Number(`${digits}e-${places}`));
const near = fc
  .tuple(fc.constantFrom(1, 999_999_999, 1e9, 2 ** 31, 1e12, 2 ** 53, 1e15, 1e21, 0.001, 1e-6, 1e-7), decimal)
  .map(([edge, little]) => edge + little);
const number = fc.oneof(
  fc.double(),
  fc.integer(),
  fc.maxSafeInteger(),
  decimal,
  near,
  fc.constantFrom(0, -0, 0.1 + 0.2, Number.MIN_VALUE, -Number.MAX_VALUE, 1 / 3, 1e9, 1e12 - 0.001, 1e12),
);

test("any values, printed any number at a time", () => {
  const drawn = fc.tuple(
    fc.array(number, { maxLength: 40 }),
    fc.integer({ min: 1, max: 12 }),
    fc.constantFrom(0, Number.NaN),
    fc.constantFrom(0, 1_770_000_000_000, -62_167_219_200_000),
  );
  fc.assert(
    fc.property(drawn, ([drawnValues, turn, missing, start]) => {
      const values = Float64Array.from(drawnValues);
      const buckets = { start, step: 60_000, count: values.length };
      expect(print(values, buckets, missing, turn)).toBe(stringify(values, buckets, missing));
    }),
    // What is not finite has a sign as well.
    { numRuns: 2_000, examples: [[[[Number.NEGATIVE_INFINITY], 1, 0, 0]]] },
  );
});

test.each([100, 20_000])("a series of %i points, each with many digits", (count) => {
  const values = Float64Array.from({ length: count }, (_, n) => -Math.sin(n) * 1e-300);
  const buckets = { start: 1_770_000_000_000, step: 60_000, count };
  expect(print(values, buckets, Number.NaN)).toBe(stringify(values, buckets, Number.NaN));
});
