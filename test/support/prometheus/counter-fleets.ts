// Random counters of some services, with all that happens to counters: deployments that restart every series once, restarts
// of one, gaps, births, ends, samples that are no numbers, staleness markers, samples exactly at the edges of buckets. And
// a reader that groups them at the source however few they are.
import fc from "fast-check";
import type { PrometheusClient } from "#resolvers/prometheus/client/client.ts";
import { createSeriesReader } from "#resolvers/prometheus/counters/series-reader.ts";
import { readIncrements } from "#resolvers/prometheus/metrics/increments.ts";
import { createPlan } from "#resolvers/prometheus/metrics/series-groups.ts";
import type { Measure, Series } from "#src/core/rows.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import { base, minute, second } from "../../conformance/metrics/fixture.ts";
import { computeExpectedSeries, type Expected } from "../../conformance/metrics/oracle.ts";

type FleetSample = readonly [millis: number, value: number | "stale"];

export interface FleetSeries {
  readonly labels: Readonly<Record<string, string>>;
  readonly samples: readonly FleetSample[];
}

/** Buckets that the samples cover, a few more than are asked for. */
const covered = 40;

const part = fc.double({ min: 0, max: 1, noNaN: true });
/** Exactly where a bucket begins. */
const edge = fc.nat(covered).map((bucket) => bucket / covered);
const rarely = <T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.oneof({ weight: 12, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary });

/** What happens to one series, each at a part of the range. */
const fate = fc.record({
  restart: fc.oneof({ weight: 3, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: part }),
  birth: rarely(part),
  end: rarely(part),
  gap: rarely(fc.record({ at: fc.oneof(part, edge), restarts: fc.boolean() })),
  /** From here on it is a series with another label, as that of a new process. */
  replaced: rarely(edge),
  odd: rarely(
    fc.record({
      at: fc.oneof(part, edge),
      value: fc.constantFrom<number | "stale">(Number.NaN, Infinity, -Infinity, "stale", -5),
    }),
  ),
  phase: fc.oneof(fc.constantFrom(0, 1, 14_999), fc.nat(29_999)),
  from: fc.oneof(fc.nat(1_000), fc.nat(1_000_000_000)),
  seed: fc.nat(1_000),
});
type Fate = typeof fate extends fc.Arbitrary<infer T> ? T : never;

export interface Fleet {
  readonly step: number;
  readonly series: readonly FleetSeries[];
}

/** Series of one metric, and the length of the buckets that they are asked in. */
export const fleet: fc.Arbitrary<Fleet> = fc
  .record({
    interval: fc.constantFrom(15 * second, 20 * second, 30 * second),
    // Wide buckets have few samples, so that samples lie far apart inside a bucket.
    slower: fc.constantFrom(1, 10),
    // So that decimal fractions, sums of which are rounded, stand beside whole numbers.
    unit: fc.constantFrom(1, 1, 1, 0.1, 0.125),
    deploy: fc.oneof(fc.constant(undefined), part),
    fates: fc.array(fate, { minLength: 3, maxLength: 9 }),
  })
  .map(({ interval, slower, unit, deploy, fates }) => ({
    step: slower * minute,
    series: fates.flatMap((one, n) => {
      const labels = { path: `/p${n % 2}`, n: String(n), tenant: "shop" };
      const rolled = deploy === undefined ? undefined : deploy + n / 100;
      const samples = writeSamples(interval, slower, unit, [one.restart, rolled], one);
      const at = readTime(one.replaced ?? 2, slower);
      const [before, after] = [samples.filter(([time]) => time < at), samples.filter(([time]) => time >= at)];
      return [
        { labels, samples: before },
        { labels: { ...labels, n: `${n} again` }, samples: after },
      ].filter((series) => series.samples.length > 0);
    }),
  }));

const readTime = (of: number, slower: number): number => base + (of * covered - 5) * minute * slower;

function writeSamples(
  interval: number,
  slower: number,
  unit: number,
  restarts: readonly (number | undefined)[],
  { birth = 0, end = 1, gap, odd, phase, from, seed }: Fate,
): readonly FleetSample[] {
  const every = interval * (slower === 1 ? 1 : 8);
  const isAt = (of: number | undefined, time: number) =>
    of !== undefined && time >= readTime(of, slower) && time - every < readTime(of, slower);
  let steps = from;
  const samples: FleetSample[] = [];
  for (let time = readTime(0, slower) + phase; time < readTime(1, slower); time += every) {
    if (restarts.some((at) => isAt(at, time)) || (gap?.restarts && isAt(gap.at, time))) steps = 0;
    steps += (seed * 7 + samples.length * 13) % 11;
    if (time < readTime(birth, slower) || time >= readTime(end, slower)) continue;
    const since = gap === undefined ? -1 : time - readTime(gap.at, slower);
    if (since >= 0 && since < 3 * minute * Math.min(slower, 2.5)) continue;
    samples.push([time, odd !== undefined && isAt(odd.at, time) ? odd.value : steps * unit]);
  }
  return samples;
}

/** The samples as numbers: a staleness marker is no sample. */
export function dropStale({ samples }: FleetSeries): (readonly [millis: number, value: number])[] {
  return samples.flatMap(([time, value]) => (value === "stale" ? [] : [[time, value] as const]));
}

export function buildFleetQuery(
  metric: string,
  step: number,
  tags: Readonly<Record<string, string>>,
  measure: Measure = { of: "increment" },
  count = 30,
): SeriesQuery {
  const buckets = { start: base, step, count };
  return {
    match: { tenant: "shop" },
    metric,
    tags,
    measure,
    buckets,
    lookBack: 10 * step,
    pointLimit: 10_000,
  };
}

/** What the raw samples say. */
export function computeGrowth(query: SeriesQuery, series: readonly FleetSeries[]): readonly Expected[] {
  const raw = series.map((one) => ({ suffix: "" as const, labels: one.labels, samples: dropStale(one) }));
  return computeExpectedSeries([{ metric: query.metric, kind: "counter", series: raw }], "shop", query);
}

/** What is remembered of the number of series says that they are many. */
const manySeries = {
  get: (key: string) => (key.startsWith("sum") ? undefined : key.startsWith("group") ? 1 : 100_000),
  set: () => undefined,
};

/** Groups whatever the number of series is. */
export async function readGrouped(
  client: PrometheusClient,
  query: SeriesQuery,
  signal: AbortSignal,
  sizes: Parameters<typeof createSeriesReader>[3] = manySeries,
): Promise<readonly Series[]> {
  const reader = createSeriesReader("prom", client, await client.readTraits(signal), sizes, signal);
  const family = { kind: "counter", hasCount: false, hasSum: false, hasRanges: false } as never;
  return readIncrements(
    createPlan("prom", query, family, reader, async () => []),
    query.metric,
  );
}

/** The first difference. Whole numbers are exact. */
export function describeGrowthDifference(
  series: readonly FleetSeries[],
  found: readonly Series[],
  expected: readonly Expected[],
): string | undefined {
  const isWhole = series.every((one) =>
    dropStale(one).every(([, value]) => Number.isInteger(value) || !Number.isFinite(value)),
  );
  return describeSeriesDifference(found, expected, isWhole);
}

/** The first difference; unless `isExact`, one beyond the ninth digit. */
export function describeSeriesDifference(
  found: readonly Series[],
  expected: readonly Expected[],
  isExact: boolean,
): string | undefined {
  const tagsOf = (all: readonly { readonly tags: object }[]) => JSON.stringify(all.map(({ tags }) => tags));
  if (tagsOf(found) !== tagsOf(expected)) return `${tagsOf(found)} instead of ${tagsOf(expected)}`;
  for (const [n, { tags, values }] of expected.entries()) {
    for (const [bucket, value] of values.entries()) {
      const own = found[n]?.values[bucket] ?? Number.NaN;
      const isSame = Object.is(own, value) || own === value;
      const isNear = !isExact && Math.abs(own - value) <= 1e-9 * Math.max(1, Math.abs(value));
      if (!isSame && !isNear) return `${JSON.stringify(tags)}, bucket ${bucket}: ${own} instead of ${value}`;
    }
  }
  return undefined;
}
