// Random histograms of some services with all that happens to them: deployments that restart every one of them, restarts
// of one, gaps, births, ends, replacements, parts with samples that are no numbers, parts with a time of their own, parts
// that are missing, negative observations. And a reader that groups them at the source, or reads them.
import fc from "fast-check";
import type { PrometheusClient } from "#resolvers/prometheus/client/client.ts";
import { createSeriesReader } from "#resolvers/prometheus/counters/series-reader.ts";
import { readHistogram } from "#resolvers/prometheus/metrics/classic-histograms.ts";
import { createPlan } from "#resolvers/prometheus/metrics/series-groups.ts";
import type { Measure, Series } from "#src/core/rows.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import { base, minute, type RawSeries, second } from "../../conformance/metrics/fixture.ts";
import { buildFleetQuery } from "./counter-fleets.ts";

/** Buckets that the samples cover, a few more than are asked for. */
const covered = 30;
const asked = 20;

const part = fc.double({ min: 0, max: 1, noNaN: true });
const edge = fc.nat(covered).map((bucket) => bucket / covered);
const rarely = <T>(arbitrary: fc.Arbitrary<T>, weight = 12): fc.Arbitrary<T | undefined> =>
  fc.oneof({ weight, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary });

const partName = fc.constantFrom("_count", "_sum", "_bucket 0.5", "_bucket +Inf");

const fate = fc.record({
  restart: rarely(part, 3),
  birth: rarely(part),
  end: rarely(part),
  gap: rarely(fc.record({ at: fc.oneof(part, edge), restarts: fc.boolean() })),
  replaced: rarely(edge),
  /** A sample of one part is no number, or falls without a restart. */
  odd: rarely(
    fc.record({ at: part, name: partName, value: fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY, 0) }),
  ),
  late: rarely(partName),
  missing: rarely(partName, 40),
  negative: rarely(fc.constant(true), 8),
  respelt: rarely(edge),
  /** One of its buckets is there in two spellings. */
  twice: rarely(fc.constant(true), 12),
  /** Its bounds are others than those of its neighbours. */
  finer: rarely(fc.constant(true), 8),
  phase: fc.oneof(fc.constantFrom(0, 1, 14_999), fc.nat(29_999)),
  from: fc.constantFrom(0, 1_000, 1_000_000),
  busy: fc.constantFrom(0.2, 3, 20),
  seed: fc.nat(1_000),
});
type Fate = typeof fate extends fc.Arbitrary<infer T> ? T : never;

export interface HistogramFleet {
  readonly step: number;
  /** Each bound has one spelling, and all parts of a histogram have the same samples, which are numbers. */
  readonly isPlain: boolean;
  readonly series: readonly RawSeries[];
}

export const histogramFleet: fc.Arbitrary<HistogramFleet> = fc
  .record({
    interval: fc.constantFrom(15 * second, 30 * second),
    slower: fc.constantFrom(1, 10),
    deploy: fc.oneof(fc.constant(undefined), part),
    fates: fc.array(fate, { minLength: 2, maxLength: 6 }),
  })
  .map(({ interval, slower, deploy, fates }) => ({
    step: slower * minute,
    isPlain: fates.every(
      ({ odd, late, missing, respelt, twice }) => !(odd || late || missing || twice || respelt !== undefined),
    ),
    series: fates.flatMap((one, n) => {
      const rolled = deploy === undefined ? undefined : deploy + n / 100;
      return writeHistogram(interval, slower, [one.restart, rolled], one, n);
    }),
  }));

const readTime = (of: number, slower: number): number => base + (of * covered - 5) * minute * slower;

function writeHistogram(
  interval: number,
  slower: number,
  restarts: readonly (number | undefined)[],
  fate: Fate,
  n: number,
): readonly RawSeries[] {
  const { birth = 0, end = 1, gap, odd, phase, from, seed, busy, negative } = fate;
  const every = interval * (slower === 1 ? 1 : 8);
  const bounds = fate.finer ? [0.1, 0.5, 2] : [0.1, 0.5];
  const isAt = (of: number | undefined, time: number) =>
    of !== undefined && time >= readTime(of, slower) && time - every < readTime(of, slower);
  const samples = new Map<string, [time: number, value: number][]>();
  let counts = [...bounds, Number.POSITIVE_INFINITY].map((_, at) => from * (at + 1));
  let sum = from * 0.3;
  let random = seed + 1;
  const draw = () => {
    random = (random * 16_807) % 2_147_483_647;
    return random / 2_147_483_647;
  };
  for (let time = readTime(0, slower) + phase; time < readTime(1, slower); time += every) {
    if (restarts.some((at) => isAt(at, time)) || (gap?.restarts && isAt(gap.at, time))) {
      counts = counts.map(() => 0);
      sum = 0;
    }
    const more = Math.floor(draw() * 2 * busy);
    for (let one = 0; one < more; one++) {
      const value = Math.round(draw() * 3_000) / 1_000 - (negative ? 2 : 0);
      sum += value;
      counts = counts.map((count, at) => count + (value <= (bounds[at] ?? Number.POSITIVE_INFINITY) ? 1 : 0));
    }
    if (time < readTime(birth, slower) || time >= readTime(end, slower)) continue;
    const since = gap === undefined ? -1 : time - readTime(gap.at, slower);
    if (since >= 0 && since < 3 * minute * Math.min(slower, 2.5)) continue;
    const values: readonly (readonly [string, number])[] = [
      ["_count", counts.at(-1) ?? 0],
      ["_sum", sum],
      ...bounds.map((bound, at) => [`_bucket ${bound}`, counts[at] ?? 0] as const),
      ["_bucket +Inf", counts.at(-1) ?? 0],
    ];
    for (const [name, value] of values) {
      const list = samples.get(name) ?? [];
      samples.set(name, list);
      const isOdd = odd !== undefined && odd.name === name && isAt(odd.at, time);
      list.push([time + (fate.late === name ? 1_300 : 0), isOdd ? odd.value : value]);
    }
  }
  samples.delete(fate.missing ?? "");
  return [...samples].flatMap(([name, list]) => labelSamples(name, list, fate, slower, n));
}

/** As one series, or as several one after the other. */
function labelSamples(
  name: string,
  samples: readonly (readonly [time: number, value: number])[],
  { replaced = 2, respelt = 2, twice }: Fate,
  slower: number,
  n: number,
): readonly RawSeries[] {
  const [suffix = "", le] = name.split(" ");
  const spellings = le === "0.5" && (twice || respelt < 2) ? [le, "5e-01"] : [le];
  return [0, 1].flatMap((again) =>
    spellings.flatMap((spelt, spelling): readonly RawSeries[] => {
      const own = samples.filter(
        ([time]) =>
          time >= readTime(replaced, slower) === (again === 1) &&
          (spellings.length === 1 || twice || time >= readTime(respelt, slower) === (spelling === 1)),
      );
      const labels = {
        path: `/p${n % 2}`,
        n: again === 1 ? `${n} again` : String(n),
        tenant: "shop",
        ...(spelt !== undefined && { le: spelt }),
      };
      return own.length === 0 ? [] : [{ suffix: suffix as RawSeries["suffix"], labels, samples: own }];
    }),
  );
}

export const observationMeasures: readonly Extract<Measure, { of: "observations" }>[] = [
  { of: "observations", combine: "count" },
  { of: "observations", combine: "mean" },
  { of: "observations", combine: "max" },
  { of: "observations", combine: "min" },
  { of: "observations", combine: "quantile", quantile: 0.9 },
];

export function buildHistogramQuery(
  metric: string,
  step: number,
  tags: Readonly<Record<string, string>>,
  measure: Measure,
): SeriesQuery {
  return buildFleetQuery(metric, step, tags, measure, asked);
}

/** Grouped or read, whatever the number of series is: what is remembered of it says that they are many, or few. */
export async function readHistogramFleet(
  client: PrometheusClient,
  query: SeriesQuery,
  groups: boolean,
  signal: AbortSignal,
): Promise<readonly Series[]> {
  const { measure } = query;
  if (measure.of !== "observations") throw new Error("no measure of histograms");
  const few = groups ? 50_000 : 1;
  const sizes = { get: (key: string) => (key.startsWith("group") ? 1 : few), set: () => undefined };
  const reader = createSeriesReader("prom", client, await client.readTraits(signal), sizes, signal);
  const family = { kind: "histogram", hasCount: true, hasSum: true, hasRanges: false } as never;
  return readHistogram(
    createPlan("prom", query, family, reader, async () => []),
    measure,
  );
}

type Answer = readonly { readonly tags: object; readonly values: ArrayLike<number> }[];

/** The first difference of two answers or refusals: if they are exact any, and of others more than the ninth digit. */
export function describeObservedDifference(
  found: Answer | string,
  expected: Answer | string,
  isExact: boolean,
): string | undefined {
  if (typeof found === "string" || typeof expected === "string")
    return found === expected ? undefined : `${JSON.stringify(found)} instead of ${JSON.stringify(expected)}`;
  const tagsOf = (all: Answer) => JSON.stringify(all.map(({ tags }) => tags));
  if (tagsOf(found) !== tagsOf(expected)) return `${tagsOf(found)} instead of ${tagsOf(expected)}`;
  for (const [n, { tags, values }] of expected.entries()) {
    for (let bucket = 0; bucket < values.length; bucket++) {
      const [own = Number.NaN, value = Number.NaN] = [found[n]?.values[bucket], values[bucket]];
      const isNear = !isExact && Math.abs(own - value) <= 2e-9 * Math.abs(value);
      if (!Object.is(own, value) && own !== value && !isNear)
        return `${JSON.stringify(tags)}, bucket ${bucket}: ${own} instead of ${value}`;
    }
  }
  return undefined;
}
