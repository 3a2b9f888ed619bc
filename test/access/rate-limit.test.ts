import fc from "fast-check";
import { expect, test } from "vitest";
import { createReloadableRateLimit } from "#src/access/rate-limit.ts";
import { sampleRuns } from "../support/law-runs.ts";

test("a name may use its quota at once, and then makes requests at the rate", () => {
  let at = 0;
  const { take, describeQuota } = createReloadableRateLimit(() => at)(2);
  expect(describeQuota()).toEqual({ requests: 20, seconds: 10 });
  expect(Array.from({ length: 21 }, () => take("a")).filter(Boolean)).toHaveLength(20);
  expect(take("b")).toBe(true);
  at = 499;
  expect(take("a")).toBe(false);
  at = 500;
  expect([take("a"), take("a")]).toEqual([true, false]);
  at = 20_500;
  expect(Array.from({ length: 21 }, () => take("a")).filter(Boolean)).toHaveLength(20);
});

test("the use is that of the name nearest to the quota, and falls as time passes", () => {
  let at = 0;
  const { take, measureUse } = createReloadableRateLimit(() => at)(2);
  expect(measureUse()).toBe(0);
  for (let n = 0; n < 15; n += 1) take("a");
  take("b");
  expect(measureUse()).toBe(0.75);
  at = 5_000;
  expect(measureUse()).toBe(0.25);
  at = 60_000;
  expect(measureUse()).toBe(0);
  for (let n = 0; n < 30; n += 1) take("b");
  expect(measureUse()).toBe(1);
});

test("a reload with the same rate refills nothing", () => {
  const create = createReloadableRateLimit(() => 0);
  for (let n = 0; n < 20; n += 1) create(2).take("a");
  expect([create(2).take("a"), create(3).take("a")]).toEqual([false, true]);
});

test("a name with a rate of its own has the smaller one, and others keep theirs", () => {
  const rates = fc.integer({ min: 1, max: 5 });
  fc.assert(
    fc.property(rates, rates, fc.array(fc.integer({ min: 0, max: 3_000 })), (perSecond, own, waits) => {
      let at = 0;
      const clock = () => at;
      const limited = createReloadableRateLimit(clock)(perSecond);
      const smaller = createReloadableRateLimit(clock)(Math.min(perSecond, own));
      const plain = createReloadableRateLimit(clock)(perSecond);
      expect(limited.describeQuota(own)).toEqual(smaller.describeQuota());
      for (const wait of waits) {
        at += wait;
        for (let n = 0; n < 12; n += 1) {
          expect(limited.take("a", own)).toBe(smaller.take("a"));
          expect(limited.take("b")).toBe(plain.take("b"));
        }
        expect(limited.measureUse()).toBe(Math.max(smaller.measureUse(), plain.measureUse()));
      }
    }),
    { numRuns: sampleRuns(30) },
  );
});

test("a lower rate holds at once, whatever the name had left", () => {
  const { take } = createReloadableRateLimit(() => 0)(10);
  expect(take("a")).toBe(true);
  expect(Array.from({ length: 30 }, () => take("a", 2)).filter(Boolean)).toHaveLength(20);
});
