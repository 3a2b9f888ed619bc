import fc from "fast-check";
import { expect, test } from "vitest";
import { runSteps } from "#src/core/async/turns.ts";
import { computeQuantileInSteps } from "#src/metrics/order-statistics.ts";

const values = fc.oneof(
  fc.array(fc.double({ noNaN: true, noDefaultInfinity: true }), { minLength: 1, maxLength: 200 }),
  // Many equal ones.
  fc.array(fc.nat(3), { minLength: 1, maxLength: 200 }),
);

/** By the definition: in order, and in proportion between the two values around the rank. */
function computeFromSorted(numbers: readonly number[], quantile: number): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  const rank = quantile * (numbers.length - 1);
  const [below, above] = [sorted[Math.floor(rank)] ?? Number.NaN, sorted[Math.ceil(rank)] ?? Number.NaN];
  return below * (1 - (rank % 1)) + above * (rank % 1);
}

test("a quantile is the one of the sorted values, whatever their order", () => {
  fc.assert(
    fc.property(values, fc.constantFrom(0, 0.5, 0.9, 0.95, 1), (numbers, quantile) => {
      const found = runSteps(computeQuantileInSteps(Float64Array.from(numbers), quantile));
      // 0 and -0 are equal.
      expect(found === computeFromSorted(numbers, quantile)).toBe(true);
    }),
  );
});

test.each([
  ["rising", (index: number) => index],
  ["falling", (index: number) => -index],
  ["equal", () => 7],
  ["rising and falling", (index: number) => Math.min(index, 300_000 - index)],
])("pauses within a quantile of many %s values", (_, read) => {
  const numbers = Array.from({ length: 300_000 }, (_, index) => read(index));
  const steps = computeQuantileInSteps(Float64Array.from(numbers), 0.95);
  expect(steps.next().done).toBe(false);
  expect(runSteps(steps)).toBe(computeFromSorted(numbers, 0.95));
});
