// The names of marks in a chart.
import fc from "fast-check";
import { expect, test } from "vitest";
import { placeNames } from "#src/console/base/deploy-marks.js";

const end = 1_000;
const marks = fc
  .array(fc.record({ x: fc.nat(end), width: fc.integer({ min: 1, max: 80 }) }), { maxLength: 40 })
  .map((all) => all.toSorted((a, b) => a.x - b.x));

test("names touch their marks, end within the chart and never cover each other", () => {
  fc.assert(
    fc.property(marks, (all) => {
      let taken = Number.NEGATIVE_INFINITY;
      for (const [at, left] of placeNames(all, end).entries()) {
        const { x, width } = all[at] ?? { x: 0, width: 0 };
        if (left === undefined) continue;
        expect([x, x - width]).toContain(left);
        expect(left).toBeGreaterThanOrEqual(taken);
        taken = left + width;
        expect(taken).toBeLessThanOrEqual(end);
      }
    }),
  );
});

test("the first of several at one place is named", () => {
  const same = { x: 10, width: 50 };
  expect(placeNames([same, same, { x: 70, width: 50 }, { x: 990, width: 50 }], end)).toEqual([
    10,
    undefined,
    70,
    940,
  ]);
});
