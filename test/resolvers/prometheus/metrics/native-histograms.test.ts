// The growth of native histograms whose processes restart, sometimes with more observations than before, and whose
// resolution is reduced on the way. It is compared with the observations themselves, which no sample shows.
import fc from "fast-check";
import { expect, type Mock, test, vi } from "vitest";
import type { HistogramBucket, HistogramSample } from "#resolvers/prometheus/client/response-scanner.ts";
import type { CounterQuery } from "#resolvers/prometheus/counters/bucket-survey.ts";
import type { SeriesReader } from "#resolvers/prometheus/counters/series-reader.ts";
import {
  findCommonBounds,
  type HistogramForm,
  readGrowth,
  readNativeHistogram,
  toObservations,
} from "#resolvers/prometheus/metrics/native-histograms.ts";
import { createPlan } from "#resolvers/prometheus/metrics/series-groups.ts";
import { combineObservations, type Observations } from "#src/metrics/samples.ts";
import { countTurns } from "../../../support/event-loop-turns.ts";
import { sampleRuns } from "../../../support/law-runs.ts";

const [start, step, count] = [1_000_000, 1_000, 8];
const buckets = { start, step, count };

/** A histogram of observations, given as exponents of two, in buckets of `width` powers of two. */
function buildSample(time: number, observed: readonly number[], width: number): HistogramSample {
  const held = Map.groupBy(observed, (exponent) => Math.floor(exponent / width));
  const own = [...held].map(([at, some]): HistogramBucket => {
    return { lower: 2 ** (at * width), upper: 2 ** ((at + 1) * width), count: some.length };
  });
  const sorted = own.sort((a, b) => a.upper - b.upper);
  return { time, count: observed.length, sum: sumObservations(observed), buckets: sorted };
}

function sumObservations(observed: readonly number[]): number {
  return observed.reduce((sum, exponent) => sum + 2 ** exponent, 0);
}

/** Whether a restart shows: less is counted in all, or between two bounds that lie inside no bucket of either. */
function hasVisibleRestart(before: HistogramSample, after: HistogramSample): boolean {
  const all = [...before.buckets, ...after.buckets];
  const bounds = [...new Set(all.flatMap(({ lower, upper }) => [lower, upper]))]
    .filter((bound) => !all.some(({ lower, upper }) => lower < bound && bound < upper))
    .sort((a, b) => a - b);
  const countBetween = ({ buckets }: HistogramSample, at: number) =>
    buckets
      .filter(({ lower, upper }) => lower >= (bounds[at] ?? 0) && upper <= (bounds[at + 1] ?? 0))
      .reduce((sum, { count }) => sum + count, 0);
  return (
    after.count < before.count || bounds.some((_, at) => countBetween(after, at) < countBetween(before, at))
  );
}

const scrape = fc.record({
  observed: fc.array(fc.nat(7), { maxLength: 6 }),
  restarts: fc.boolean(),
  coarser: fc.boolean(),
  after: fc.integer({ min: 1, max: 900 }),
});

type Scrape = typeof scrape extends fc.Arbitrary<infer Value> ? Value : never;

/** What was observed in one bucket of the answer. */
interface ObservedBucket {
  readonly observed: number[];
  sampled: boolean;
}

interface History {
  readonly samples: readonly HistogramSample[];
  readonly grown: readonly ObservedBucket[];
  /** Restarts after which no less is counted in all. */
  readonly overtaking: number;
}

/** The samples of a process and its successors. The first one lies before the buckets. */
function simulateScrapes(scrapes: readonly Scrape[]): History {
  const samples: HistogramSample[] = [];
  const grown = Array.from({ length: count }, (): ObservedBucket => ({ observed: [], sampled: false }));
  let all: readonly number[] = [];
  let width = 1;
  let time = start - 500;
  let overtaking = 0;
  for (const { observed, restarts, coarser, after } of scrapes) {
    const before = samples.at(-1);
    const again = buildSample(time, observed, 1);
    const restarted = restarts && before !== undefined && hasVisibleRestart(before, again);
    if (restarted && again.count >= before.count) overtaking += 1;
    width = restarted ? 1 : coarser ? Math.min(width * 2, 4) : width;
    all = restarted ? observed : [...all, ...observed];
    samples.push(buildSample(time, all, width));
    const bucket = grown[Math.floor((time - start) / step)];
    if (bucket !== undefined) {
      bucket.observed.push(...observed);
      bucket.sampled = true;
    }
    time += samples.length === 1 ? 500 + after : after;
  }
  return { samples, grown, overtaking };
}

/** A reader of these answers, and the releases of its parts. */
function createReader(answers: object) {
  const releases: Mock[] = [];
  const bare = { selectRange: () => ({}), ...answers };
  const openPart = () => {
    const release = vi.fn();
    releases.push(release);
    return { ...bare, release };
  };
  return { reader: { ...bare, openPart } as unknown as SeriesReader, releases };
}

async function readObservations(
  samples: readonly HistogramSample[],
  bucketed: boolean,
): Promise<readonly Observations[]> {
  const query = { selector: {}, buckets, lookBack: 1_000, limit: 1_000 } as unknown as CounterQuery;
  const form: HistogramForm = {
    query,
    read: async (_reader, _labels, from, to) => {
      const histograms = samples.filter((one) => one.time >= from && one.time < to);
      return histograms.length === 0 ? [] : [{ labels: {}, histograms }];
    },
  };
  // The reader only has to count the samples.
  const readInstant = async () => [{ values: [samples.length] }];
  const { reader, releases } = createReader({ readInstant });
  const group = await readGrowth(reader, [form], query, bucketed);
  expect(releases).not.toEqual([]);
  for (const release of releases) expect(release).toHaveBeenCalledOnce();
  const bounds = bucketed ? await findCommonBounds(group) : [];
  return group.map((one) => toObservations(one, bounds, buckets));
}

function expectTotals(observations: readonly Observations[], grown: readonly ObservedBucket[]): void {
  const counted = combineObservations(observations, { of: "observations", combine: "count" }, buckets);
  const means = combineObservations(observations, { of: "observations", combine: "mean" }, buckets);
  for (const [at, { observed, sampled }] of grown.entries()) {
    expect(counted[at]).toBe(sampled ? observed.length : Number.NaN);
    const mean = observed.length === 0 ? Number.NaN : sumObservations(observed) / observed.length;
    expect(means[at]).toBe(mean);
  }
}

function expectBuckets(observations: readonly Observations[], grown: readonly ObservedBucket[]): void {
  for (const { bound, samples } of observations[0]?.buckets ?? []) {
    let before = 0;
    for (const [at, time] of samples.times.entries()) {
      const observed = grown[Math.floor((time - start) / step)]?.observed;
      const below = observed?.filter((one) => 2 ** one < bound);
      expect((samples.values[at] ?? 0) - before).toBe(below?.length);
      before = samples.values[at] ?? 0;
    }
  }
}

test("computes the growth of native histograms across detectable restarts", async () => {
  const runs = sampleRuns(300);
  let overtaking = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(scrape, { minLength: 2, maxLength: 16 }), async (scrapes) => {
      const history = simulateScrapes(scrapes);
      overtaking += history.overtaking;
      const bucketed = await readObservations(history.samples, true);
      expectTotals(bucketed, history.grown);
      expectBuckets(bucketed, history.grown);
      expectTotals(await readObservations(history.samples, false), history.grown);
    }),
    { numRuns: runs },
  );
  expect(overtaking).toBeGreaterThan(runs / 15);
});

const hostCount = 200;

test.each([
  ["of each host", { host: "*" }, hostCount],
  ["of all", {}, 1],
])("combines many histograms %s in turns", async (_, tags, groupCount) => {
  const histograms = [1, 2].map((n) => buildSample(start + n * step, Array(n).fill(3), 1));
  const raw = Array.from({ length: hostCount }, (_, n) => ({ labels: { host: String(n) }, histograms }));
  const { reader } = createReader({
    readInstant: async () => [],
    readRaw: async (_: unknown, from: number) => (from < start ? [] : raw),
  });
  const measure = { of: "observations", combine: "max" } as const;
  const query = { match: {}, metric: "h", tags, measure, buckets, lookBack: 0, pointLimit: 10_000 };
  const family = { kind: "histogram", hasCount: true, hasSum: true, hasRanges: false } as const;
  let series: readonly unknown[] = [];
  const turns = await countTurns(async () => {
    series = await readNativeHistogram(
      createPlan("prom", query, family, reader, async () => []),
      measure,
    );
  });
  expect(series).toHaveLength(groupCount);
  // Samples are grouped and folded, growths finished and grouped; then bounds and spans are collected, and all combined.
  expect(turns).toBeGreaterThanOrEqual(7 * hostCount);
});
