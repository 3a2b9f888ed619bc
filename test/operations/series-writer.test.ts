// The series writer prints points as bytes; the result must equal JSON.stringify of the times and values.
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Buckets } from "#src/core/rows.ts";
import {
  createChunkWriter,
  pointsPerTurn,
  printNumber,
  printPoints,
  printText,
  takeText,
} from "#src/operations/metrics/series-writer.ts";
import { sampleRuns } from "../support/law-runs.ts";

/** The points as in an answer, without the brackets. */
function print(values: Float64Array, buckets: Buckets, turn = pointsPerTurn): string {
  const piece = createChunkWriter(buckets);
  let text = "";
  let count = 0;
  for (let first = 0; first < buckets.count; first += turn) {
    const range = { first, end: Math.min(first + turn, buckets.count) };
    count += printPoints(piece, values, range, count === 0);
    // Every second time the chunk continues.
    if (first % (2 * turn) === 0) text += takeText(piece);
  }
  text += takeText(piece);
  return count === 0 ? text : `${text}}`;
}

function stringify(values: Float64Array, { start, step }: Buckets): string {
  const points = [...values]
    .map((value, bucket) => ({ timestamp: new Date(start + bucket * step).toISOString(), value }))
    .filter(({ value }) => Number.isFinite(value));
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

test("the chunk writer prints any values in slices of any size", () => {
  const drawn = fc.tuple(
    fc.array(number, { maxLength: 40 }),
    fc.integer({ min: 1, max: 12 }),
    fc.constantFrom(0, 1_770_000_000_000, -62_167_219_200_000),
  );
  fc.assert(
    fc.property(drawn, ([drawnValues, turn, start]) => {
      const values = Float64Array.from(drawnValues);
      const buckets = { start, step: 60_000, count: values.length };
      expect(print(values, buckets, turn)).toBe(stringify(values, buckets));
    }),
    // Non-finite values have a sign too.
    { numRuns: sampleRuns(2_000), examples: [[[[Number.NEGATIVE_INFINITY], 1, 0]]] },
  );
});

test.each([100, 20_000])("the chunk writer prints a series of %i points with many digits", (count) => {
  const values = Float64Array.from({ length: count }, (_, n) => -Math.sin(n) * 1e-300);
  const buckets = { start: 1_770_000_000_000, step: 60_000, count };
  expect(print(values, buckets)).toBe(stringify(values, buckets));
});

test("the chunk writer prints texts and numbers between points unchanged", () => {
  const text = fc.oneof(
    fc.string({ unit: "binary" }),
    fc.constantFrom("é".repeat(50_000), "a".repeat(80_000), "😀".repeat(30_000)),
  );
  fc.assert(
    fc.property(fc.array(fc.tuple(text, number.filter(Number.isFinite)), { maxLength: 6 }), (drawn) => {
      const values = Float64Array.of(1.5);
      const buckets = { start: 0, step: 1, count: 1 };
      const piece = createChunkWriter(buckets);
      for (const [text, number] of drawn) {
        printText(piece, text);
        printNumber(piece, number);
        printPoints(piece, values, { first: 0, end: 1 }, true);
      }
      const point = stringify(values, buckets).slice(0, -1);
      const expected = drawn.map(([text, number]) => `${text}${JSON.stringify(number)}${point}`);
      expect(takeText(piece)).toBe(expected.join("").toWellFormed());
      expect(takeText(piece)).toBe("");
    }),
    { numRuns: sampleRuns(300) },
  );
});
