// What native histograms have grown by, over processes that restart and overtake the one before between two scrapes, and
// are made coarser on their way. Expected is what was observed, which no sample tells.
import fc from "fast-check";
import { expect, test } from "vitest";
import type { HistogramBucket, HistogramSample } from "#resolvers/prometheus/client/response-scanner.ts";
import type { CounterQuery } from "#resolvers/prometheus/metrics/counter-downsampling.ts";
import {
  findCommonBounds,
  type HistogramForm,
  readGrowth,
  toObservations,
} from "#resolvers/prometheus/metrics/native-histograms.ts";
import type { SeriesReader } from "#resolvers/prometheus/metrics/series-reader.ts";
import { combineObservations } from "#src/metrics/samples.ts";

const [start, step, count] = [1_000_000, 1_000, 8];

/** How many were observed below each power of two, in buckets that are as wide as so many of the finest. */
function sampled(time: number, observed: readonly number[], width: number): HistogramSample {
  const held = Map.groupBy(observed, (exponent) => Math.floor(exponent / width));
  const buckets = [...held].map(([at, some]): HistogramBucket => {
    return { lower: 2 ** (at * width), upper: 2 ** ((at + 1) * width), count: some.length };
  });
  const sum = observed.reduce((all, exponent) => all + 2 ** exponent, 0);
  return { time, count: observed.length, sum, buckets: buckets.sort((a, b) => a.upper - b.upper) };
}

/** Bounds at which both were counted, with what has fallen between two of them, or in all. */
function fell(before: HistogramSample, after: HistogramSample): boolean {
  const all = [...before.buckets, ...after.buckets];
  const bounds = [...new Set(all.flatMap(({ lower, upper }) => [lower, upper]))]
    .filter((bound) => !all.some(({ lower, upper }) => lower < bound && bound < upper))
    .sort((a, b) => a - b);
  const between = ({ buckets }: HistogramSample, at: number) =>
    buckets
      .filter(({ lower, upper }) => lower >= (bounds[at] ?? 0) && upper <= (bounds[at + 1] ?? 0))
      .reduce((sum, { count }) => sum + count, 0);
  return after.count < before.count || bounds.some((_, at) => between(after, at) < between(before, at));
}

const scrape = fc.record({
  observed: fc.array(fc.nat(7), { maxLength: 6 }),
  restarts: fc.boolean(),
  coarser: fc.boolean(),
  after: fc.integer({ min: 1, max: 900 }),
});

test("computes the growth of native histograms across detectable restarts", async () => {
  let restarts = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(scrape, { minLength: 2, maxLength: 16 }), async (scrapes) => {
      const samples: HistogramSample[] = [];
      const grown = Array.from({ length: count }, () => ({ observed: [] as number[], sampled: false }));
      let all: readonly number[] = [];
      let width = 1;
      let time = start - 500;
      for (const { observed, restarts: wanted, coarser, after } of scrapes) {
        const before = samples.at(-1);
        const again = sampled(time, observed, 1);
        const restarted = wanted && before !== undefined && fell(before, again);
        if (restarted && again.count >= before.count) restarts += 1;
        width = restarted ? 1 : coarser ? Math.min(width * 2, 4) : width;
        all = restarted ? observed : [...all, ...observed];
        samples.push(sampled(time, all, width));
        const bucket = grown[Math.floor((time - start) / step)];
        if (bucket !== undefined) {
          bucket.observed.push(...observed);
          bucket.sampled = true;
        }
        time += samples.length === 1 ? 500 + after : after;
      }
      const buckets = { start, step, count };
      const query = { selector: {}, buckets, lookBack: 1_000, limit: 1_000 } as unknown as CounterQuery;
      const form: HistogramForm = {
        query,
        read: async (_, from, to) => {
          const histograms = samples.filter((one) => one.time >= from && one.time < to);
          return histograms.length === 0 ? [] : [{ labels: {}, histograms }];
        },
      };
      // Of the reader nothing is asked but how many samples there are.
      const held = async () => [{ values: [samples.length] }];
      const reader = { selectRange: () => ({}), readInstant: held } as unknown as SeriesReader;
      for (const bucketed of [true, false]) {
        const group = await readGrowth(reader, [form], query, bucketed);
        const observations = group.map((one) =>
          toObservations(one, bucketed ? findCommonBounds(group) : [], buckets),
        );
        const counted = combineObservations(observations, { of: "observations", combine: "count" }, buckets);
        const means = combineObservations(observations, { of: "observations", combine: "mean" }, buckets);
        for (const [at, { observed, sampled }] of grown.entries()) {
          expect(counted[at]).toBe(sampled ? observed.length : Number.NaN);
          const sum = observed.reduce((all, exponent) => all + 2 ** exponent, 0);
          expect(means[at]).toBe(observed.length === 0 ? Number.NaN : sum / observed.length);
        }
        if (!bucketed) continue;
        for (const { bound, samples } of observations[0]?.buckets ?? []) {
          let before = 0;
          for (const [at, time] of samples.times.entries()) {
            const below = grown[Math.floor((time - start) / step)]?.observed.filter(
              (one) => 2 ** one < bound,
            );
            expect((samples.values[at] ?? 0) - before).toBe(below?.length);
            before = samples.values[at] ?? 0;
          }
        }
      }
    }),
    { numRuns: 300 },
  );
  expect(restarts).toBeGreaterThan(20);
});
