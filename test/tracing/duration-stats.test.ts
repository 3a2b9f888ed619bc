import fc from "fast-check";
import { expect, test } from "vitest";
import { createDurationDistribution } from "#src/tracing/duration-stats.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { createSpan } from "./span-builder.ts";

test("percentiles are the nearest rank over all spans, each compressed span as often as it counts", () => {
  const one = fc.record({ millis: fc.integer({ min: 0, max: 20 }), count: fc.constantFrom(1, 1, 1, 2, 5) });
  const property = fc.property(
    fc.array(fc.array(one, { maxLength: 8 }), { minLength: 1, maxLength: 3 }),
    fc.constantFrom(1, 50, 90, 95, 100),
    (rounds, percent) => {
      const distribution = createDurationDistribution();
      const values: number[] = [];
      // Percentiles are asked between additions as well.
      for (const spans of rounds) {
        for (const { millis, count } of spans) {
          distribution.add(createSpan({ to: millis * count, count }));
          values.push(...Array<number>(count).fill(millis));
        }
        const sorted = values.toSorted((a, b) => a - b);
        const expected = sorted[Math.ceil((percent * sorted.length) / 100) - 1] ?? 0;
        expect(distribution.percentile(percent)).toBe(expected);
      }
    },
  );
  fc.assert(property, { numRuns: sampleRuns(500) });
});
