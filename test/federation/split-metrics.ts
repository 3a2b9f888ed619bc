// Random metrics, held by one memory store and divided over several. All values are multiples of 1/4, so that sums are equal
// in whatever order they are added up.
import fc from "fast-check";
import {
  createMemoryMetrics,
  type MemoryMetrics,
  type SeriesPart,
} from "#resolvers/memory/stores/metric-store.ts";
import { runSteps } from "#src/core/async/turns.ts";
import type { MetricType } from "#src/core/rows.ts";
import { createFederatedMetrics } from "#src/federation/federated-metrics.ts";
import { chooseTimes } from "#src/federation/replicas.ts";
import type { ForcedLabels, MetricStore } from "#src/store/metrics.ts";
import { sampleRuns } from "../support/law-runs.ts";

export const start = Date.UTC(2026, 0, 15, 10);
export const minute = 60_000;
const scrape = 15_000;

/** How often a law runs, and over which inputs. */
export const runs = (usual: number) => ({
  numRuns: Number(process.env.ROUNDS ?? sampleRuns(usual)),
  seed: Number(process.env.SEED ?? 1),
});

/** A series, or a histogram with all its parts. */
export interface SplitSeries {
  readonly type: MetricType;
  readonly tags: Readonly<Record<string, string>>;
  readonly samples: readonly SplitSample[];
}

/** One scrape: the values of a series' parts. */
interface SplitSample {
  readonly time: number;
  readonly parts: readonly { readonly part: SeriesPart; readonly le?: string; readonly value: number }[];
}

/** Which stores hold a sample, by the position of its series and its time. */
export type SplitChoice = (series: number, time: number) => readonly number[];

const host = fc.constantFrom("a", "b", "c", "d");

interface Shape {
  readonly type: MetricType;
  readonly host: string;
  readonly code: string | undefined;
  /** In scrapes before and after `start`. */
  readonly from: number;
  readonly length: number;
  readonly offset: number;
  readonly steps: readonly number[];
  /** Scrapes that are missing. */
  readonly gap: readonly [from: number, length: number];
}

/** Series with distinct tags. Some begin or end within the hour from `start` on, restart, or have gaps. */
export const randomSeries = fc
  .uniqueArray(
    fc.record({
      type: fc.constantFrom<MetricType>("gauge", "counter", "measurement"),
      host,
      code: fc.constantFrom("200", "500", undefined),
      from: fc.integer({ min: -60, max: 200 }),
      length: fc.integer({ min: 1, max: 240 }),
      offset: fc.nat(scrape - 1),
      steps: fc.array(fc.integer({ min: -6, max: 20 }), { minLength: 1, maxLength: 12 }),
      gap: fc.tuple(fc.integer({ min: 0, max: 200 }), fc.constantFrom(0, 0, 2, 40)),
    }),
    { maxLength: 9, selector: ({ type, host, code }) => `${type} ${host} ${code}` },
  )
  .map((shapes) => shapes.map(makeSeries));

function makeSeries({ type, host, code, from, length, offset, steps, gap }: Shape): SplitSeries {
  const counts = [0, 0, 0];
  let [value, sum] = [40, 0];
  const samples = Array.from({ length }, (_, n): SplitSample => {
    const step = steps[n % steps.length] ?? 0;
    // A negative step is a restart of a counter, and only a lower value of a gauge.
    if (step < 0 && type !== "gauge") [value, sum] = [0, counts.fill(0).length - 3];
    value = type === "gauge" ? value + step / 4 : value + Math.max(0, step);
    const bound = n % 3;
    for (let at = bound; at < counts.length; at++) counts[at] = (counts[at] ?? 0) + Math.max(0, step);
    sum += (Math.max(0, step) * (bound + 1)) / 4;
    return { time: start + (from + n) * scrape + offset, parts: listParts(type, value, counts, sum) };
  });
  const [first, missing] = gap;
  return {
    type,
    tags: { host, ...(code !== undefined && { code }) },
    samples: samples.filter((_, n) => n < first || n >= first + missing),
  };
}

function listParts(
  type: MetricType,
  value: number,
  counts: readonly number[],
  sum: number,
): SplitSample["parts"] {
  if (type !== "measurement") return [{ part: "value", value }];
  const bounds = ["0.5", "1", "+Inf"];
  return [
    ...bounds.map((le, at) => ({ part: "bucket" as const, le, value: counts[at] ?? 0 })),
    { part: "count", value: counts.at(-1) ?? 0 },
    { part: "sum", value: sum },
  ];
}

const kinds = { gauge: "gauge", counter: "counter", measurement: "histogram" } as const;

/** How a store has the label `zone`: as one that its place forces, as a tag of its series, or not at all. */
export type ZoneForm = "forced" | "tag" | "absent";

interface SplitOptions {
  /** Each store's series have this label with its number, unless `isLabelled` is false. */
  readonly replica?: string | undefined;
  readonly isLabelled?: boolean;
  /** How much later each store scrapes, in ms. The one store then has the samples that count. */
  readonly offsets?: readonly number[];
  /** By the position of the store. */
  readonly zones?: readonly ZoneForm[];
}

/** The same series in one store and in several. */
export function splitMetrics(
  series: readonly SplitSeries[],
  count: number,
  choose: SplitChoice,
  { replica, isLabelled = true, zones = [], offsets = [] }: SplitOptions = {},
): { readonly whole: MetricStore; readonly split: MetricStore } {
  const whole = createMemoryMetrics("whole");
  const stores = Array.from({ length: count }, (_, at) => createMemoryMetrics(`store ${at}`));
  const labelsOf = (at: number): Readonly<Record<string, string>> => ({
    ...(replica !== undefined && isLabelled && { [replica]: String(at) }),
    ...((zones[at] ?? "absent") !== "absent" && { zone: "eu" }),
  });
  for (const [position, { type, tags, samples }] of series.entries()) {
    const held = stores.map((store, at) => {
      const own = samples.filter(({ time }) => choose(position, time).includes(at));
      const shifted = own.map(({ time, parts }) => ({ time: time + (offsets[at] ?? 0), parts }));
      for (const { time, parts } of shifted)
        appendParts(store, type, { ...tags, ...labelsOf(at) }, time, parts);
      return shifted;
    });
    for (const { time, parts } of offsets.length > 0 ? chooseSamples(held) : samples)
      appendParts(whole, type, tags, time, parts);
  }
  const places = stores.map((store, at) => {
    const match: ForcedLabels = zones[at] === "forced" ? { zone: "eu" } : {};
    return { backend: `b${at}`, store, match, replica };
  });
  return { whole, split: createFederatedMetrics(places) };
}

/** Those that count of several scrapers' (`chooseTimes`, which has tests of its own), by time. */
function chooseSamples(held: readonly (readonly SplitSample[])[]): readonly SplitSample[] {
  const times = held.map((own) => Float64Array.from(own, ({ time }) => time));
  const chosen = runSteps(chooseTimes(times)).map((own) => new Set(own));
  const counting = held.flatMap((own, at) => own.filter(({ time }) => chosen[at]?.has(time)));
  return counting.sort((a, b) => a.time - b.time);
}

function appendParts(
  store: MemoryMetrics,
  type: MetricType,
  tags: SplitSeries["tags"],
  time: number,
  parts: SplitSample["parts"],
): void {
  for (const { part, le, value } of parts)
    store.append(type, kinds[type], part, { ...tags, ...(le !== undefined && { le }) })(time, value);
}
