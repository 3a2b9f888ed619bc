// Computes the expected answer of a store from raw samples in the simplest way: for each bucket from all samples. It shares
// no code with the stores, so that both do not make the same mistake.
import type { Measure } from "#src/core/rows.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import type { RawFamily, RawSample, RawSeries, Tenant } from "./fixture.ts";

export interface Expected {
  readonly tags: Readonly<Record<string, string>>;
  readonly values: readonly number[];
}

/** Of one tenant; the query's `match` is ignored. */
export function computeExpectedSeries(
  families: readonly RawFamily[],
  tenant: Tenant,
  query: SeriesQuery,
): readonly Expected[] {
  const series = listSeries(families, tenant, query.metric);
  const metricBegan = Math.min(...series.flatMap(({ samples }) => clean(samples)[0]?.[0] ?? []));
  return groupSeries(series, query)
    .map(({ tags, members }) => ({ tags, values: computeValues(members, query, metricBegan) }))
    .filter(({ values }) => values.some((value) => !Number.isNaN(value)))
    .sort((a, b) => compare(Object.values(a.tags), Object.values(b.tags)));
}

/** Whether it asks for a quantile of several summaries at once, or for one that the only summary does not export. */
export function isRefusedQuantile(
  families: readonly RawFamily[],
  tenant: Tenant,
  query: SeriesQuery,
): boolean {
  const { metric, measure, buckets } = query;
  const isSummary = families.some((family) => family.metric === metric && family.kind === "summary");
  if (!isSummary || measure.of !== "observations") return false;
  if (measure.combine === "count" || measure.combine === "mean") return false;
  const end = buckets.start + buckets.step * buckets.count;
  const held = listSeries(families, tenant, metric).filter(({ samples }) =>
    clean(samples).some(([time]) => time >= buckets.start && time < end),
  );
  return groupSeries(held, query).some(({ members }) => {
    const summaries = new Set(members.map(formatIdentity));
    return summaries.size > 1 || !members.some((one) => exportsQuantile(one, measure));
  });
}

/** The series that the query selects, by their values of its tags. */
function groupSeries(
  series: readonly RawSeries[],
  query: SeriesQuery,
): readonly { readonly tags: Readonly<Record<string, string>>; readonly members: readonly RawSeries[] }[] {
  const keys = Object.keys(query.tags).sort();
  const groups = new Map<string, { tags: Record<string, string>; members: RawSeries[] }>();
  const patterns = keys.map((key) => [key, globToRegExp(query.tags[key] ?? "")] as const);
  for (const one of series) {
    const tags = dropTenantLabel(one.labels);
    if (!patterns.every(([key, pattern]) => pattern.test(Object.hasOwn(tags, key) ? (tags[key] ?? "") : "")))
      continue;
    const values = keys.map((key) => tags[key] ?? "");
    const group = groups.get(values.join("\0")) ?? {
      tags: Object.fromEntries(keys.map((key, n) => [key, values[n] ?? ""])),
      members: [],
    };
    group.members.push(one);
    groups.set(values.join("\0"), group);
  }
  return [...groups.values()];
}

export function listExpectedNames(families: readonly RawFamily[], tenant: Tenant): readonly string[] {
  return families
    .filter(({ metric }) => listSeries(families, tenant, metric).length > 0)
    .map(({ metric }) => metric)
    .sort();
}

export function listExpectedTagKeys(
  families: readonly RawFamily[],
  tenant: Tenant,
  metric: string,
): readonly (readonly string[])[] {
  const all = listSeries(families, tenant, metric).map(({ labels }) =>
    Object.keys(dropTenantLabel(labels)).sort(),
  );
  const distinct = new Map(all.filter((keys) => keys.length > 0).map((keys) => [keys.join("\0"), keys]));
  return [...distinct.values()].sort(compare);
}

function listSeries(families: readonly RawFamily[], tenant: Tenant, metric: string): readonly RawSeries[] {
  const all = families.find((family) => family.metric === metric)?.series ?? [];
  return all.filter(({ labels }) => labels.tenant === tenant);
}

function dropTenantLabel(labels: Readonly<Record<string, string>>): Record<string, string> {
  const { tenant, le, quantile, ...tags } = labels;
  return tags;
}

function compare(a: readonly string[], b: readonly string[]): number {
  const at = a.findIndex((text, n) => text !== b[n]);
  if (at === -1) return a.length - b.length;
  return b[at] === undefined || (a[at] ?? "") > (b[at] ?? "") ? 1 : -1;
}

/** An empty value, as of a missing tag, matches no pattern. */
function globToRegExp(pattern: string): RegExp {
  const literal = (text: string) =>
    [...text].map((one) => `\\u{${one.codePointAt(0)?.toString(16)}}`).join("");
  return new RegExp(`^(?!$)${pattern.split(/\*+/).map(literal).join("[^]*")}$`, "u");
}

// ---- Values -------------------------------------------------------------------------------------------------

/** One series with what is computed from it. */
interface Member {
  readonly series: RawSeries;
  /** Counts all observations of its histogram or summary. */
  readonly isCount: boolean;
  /** A count that stands for a missing bucket +Inf. */
  readonly isInfinite: boolean;
  readonly gathered: Gathered;
}

/** By the number of the bucket. Most measures read one of them. */
interface Gathered {
  readonly values: () => ReadonlyMap<number, readonly number[]>;
  readonly growth: () => ReadonlyMap<number, number>;
  /** Its own values since the first within the buckets, made monotonic. */
  readonly running: () => ReadonlyMap<number, readonly number[]>;
}

const cleaned = new WeakMap<readonly RawSample[], readonly RawSample[]>();
function clean(samples: readonly RawSample[]): readonly RawSample[] {
  const known = cleaned.get(samples) ?? samples.filter(([, value]) => Number.isFinite(value));
  cleaned.set(samples, known);
  return known;
}

function computeValues(
  series: readonly RawSeries[],
  query: SeriesQuery,
  metricBegan: number,
): readonly number[] {
  const members = series.map((one): Member => {
    const partner = findCount(series, one);
    const hasInfinity = series.some(
      (other) => other.labels.le === "+Inf" && formatIdentity(other) === formatIdentity(one),
    );
    return {
      series: one,
      isCount: one === partner,
      isInfinite: one.suffix === "_count" && !hasInfinity,
      gathered: gatherOnce(one, one === partner ? undefined : partner, query, metricBegan),
    };
  });
  // Other buckets have no value, and centuries of days are mostly such buckets.
  const touched = new Set(members.flatMap(({ gathered }) => [...gathered.values().keys()]));
  return Array.from({ length: query.buckets.count }, (_, n) =>
    touched.has(n) ? computeValue(n, members, query.measure) : Number.NaN,
  );
}

const lastGathered = new WeakMap<
  RawSeries,
  { key: string; count: RawSeries | undefined; gathered: Gathered }
>();

/** Tests ask for one measure of a window after the other, so what was gathered last is kept. */
function gatherOnce(
  one: RawSeries,
  count: RawSeries | undefined,
  query: SeriesQuery,
  metricBegan: number,
): Gathered {
  const { buckets, lookBack } = query;
  const key = [buckets.start, buckets.step, buckets.count, lookBack, metricBegan].join(" ");
  const last = lastGathered.get(one);
  if (last?.key === key && last.count === count) return last.gathered;
  const gathered = gatherByBucket(one, count, query, metricBegan);
  lastGathered.set(one, { key, count, gathered });
  return gathered;
}

function gatherByBucket(
  one: RawSeries,
  count: RawSeries | undefined,
  query: SeriesQuery,
  metricBegan: number,
): Gathered {
  const { start, step, count: end } = query.buckets;
  const at = (time: number) => Math.floor((time - start) / step);
  const inside = clean(one.samples).filter(([time]) => time >= start && at(time) < end);
  const gather = (samples: readonly RawSample[]) => {
    const byBucket = new Map<number, number[]>();
    for (const [time, value] of samples) {
      const own = byBucket.get(at(time));
      if (own === undefined) byBucket.set(at(time), [value]);
      else own.push(value);
    }
    return byBucket;
  };
  return {
    values: once(() => gather(inside)),
    growth: once(() => {
      const grown = gather(listSteps(one, count, query, metricBegan));
      return new Map([...grown].map(([n, all]) => [n, sum(all)]));
    }),
    running: once(() => gather(sumRises(inside))),
  };
}

function once<T extends object>(compute: () => T): () => T {
  let known: T | undefined;
  return () => {
    known ??= compute();
    return known;
  };
}

/** The samples with what a counter has risen by until each, from zero on. */
function sumRises(samples: readonly RawSample[]): readonly RawSample[] {
  let running = 0;
  return samples.map(([time, value], n) => {
    const before = samples[n - 1]?.[1] ?? 0;
    running += value >= before ? value - before : value;
    return [time, running];
  });
}

function computeValue(bucket: number, members: readonly Member[], measure: Measure): number {
  switch (measure.of) {
    case "samples":
      return combineSamples(bucket, members, measure);
    case "increment":
      return sum(listGrowth(bucket, members), Number.NaN);
    case "cumulative":
      return members.some(({ gathered }) => gathered.running().has(bucket))
        ? sum(members.map(({ gathered }) => readRunning(bucket, gathered.running(), measure.combine)))
        : Number.NaN;
    case "observations":
      return combineObservations(bucket, members, measure);
  }
}

/** The series that counts all observations of a histogram or summary: without a count it is the bucket +Inf. */
function findCount(series: readonly RawSeries[], one: RawSeries): RawSeries | undefined {
  const own = series.filter((other) => formatIdentity(other) === formatIdentity(one));
  return own.find(({ suffix }) => suffix === "_count") ?? own.find(({ labels }) => labels.le === "+Inf");
}

function listGrowth(bucket: number, members: readonly Member[]): readonly number[] {
  return members.flatMap(({ gathered }) => gathered.growth().get(bucket) ?? []);
}

function combineSamples(
  bucket: number,
  members: readonly Member[],
  measure: Extract<Measure, { of: "samples" }>,
): number {
  const own = members
    .map(({ gathered }) => gathered.values().get(bucket) ?? [])
    .filter((values) => values.length > 0);
  const all = own.flat();
  if (all.length === 0) return Number.NaN;
  switch (measure.combine) {
    case "first":
      return mean(own.map((values) => values[0] ?? 0));
    case "last":
      return mean(own.map((values) => values.at(-1) ?? 0));
    case "count":
      return all.length;
    case "sum":
      return sum(all);
    case "mean":
      return mean(all);
    case "min":
      return Math.min(...all);
    case "max":
      return Math.max(...all);
    case "quantile": {
      const sorted = all.sort((a, b) => a - b);
      const rank = measure.quantile * (sorted.length - 1);
      const low = sorted[Math.trunc(rank)] ?? 0;
      const high = sorted[Math.min(Math.trunc(rank) + 1, sorted.length - 1)] ?? 0;
      return low + (high - low) * (rank % 1);
    }
  }
}

/** A series without a sample in the bucket keeps its last value before. */
function readRunning(
  bucket: number,
  running: ReadonlyMap<number, readonly number[]>,
  combine: Extract<Measure, { of: "cumulative" }>["combine"],
): number {
  const own = running.get(bucket);
  if (own === undefined) {
    const passed = [...running.keys()].filter((n) => n < bucket);
    return passed.length === 0 ? 0 : (running.get(Math.max(...passed))?.at(-1) ?? 0);
  }
  if (combine === "mean") return mean(own);
  return (combine === "first" || combine === "min" ? own[0] : own.at(-1)) ?? 0;
}

function combineObservations(
  bucket: number,
  members: readonly Member[],
  measure: Extract<Measure, { of: "observations" }>,
): number {
  const part = (suffix: RawSeries["suffix"]) => members.filter(({ series }) => series.suffix === suffix);
  const counts = members.filter(({ isCount }) => isCount);
  if (measure.combine === "count") return sum(listGrowth(bucket, counts), Number.NaN);
  if (measure.combine === "mean") {
    const count = sum(listGrowth(bucket, counts));
    return count > 0 ? sum(listGrowth(bucket, part("_sum"))) / count : Number.NaN;
  }
  const quantiles = part("");
  if (quantiles.length > 0) {
    const exported = quantiles.find(({ series }) => exportsQuantile(series, measure));
    return exported?.gathered.values().get(bucket)?.at(-1) ?? Number.NaN;
  }
  const boundOf = ({ series }: Member) => Number((series.labels.le ?? "+Inf").replace("+Inf", "Infinity"));
  const infinite = members.filter(({ isInfinite }) => isInfinite);
  // Buckets of a query do not know each other: a bound counts in those where one of its series has a sample.
  const sampled = [...part("_bucket"), ...infinite].filter(({ gathered }) => gathered.growth().has(bucket));
  const byBound = Map.groupBy(sampled, boundOf);
  const bounds = [...byBound.keys()].sort((a, b) => a - b);
  if (bounds.length < 2 || bounds.at(-1) !== Number.POSITIVE_INFINITY) return Number.NaN;
  // Histograms of other bounds add nothing at this one, so that sums may fall from one bound to the next.
  const sums = bounds.map((bound) => sum(listGrowth(bucket, byBound.get(bound) ?? [])));
  const below = sums.map((_, n) => Math.max(...sums.slice(0, n + 1)));
  return estimate(bounds, below, measure.combine === "quantile" ? measure.quantile : measure.combine);
}

/** The least and the greatest observation are the quantiles 0 and 1. */
function exportsQuantile(
  { suffix, labels }: RawSeries,
  measure: Extract<Measure, { of: "observations" }>,
): boolean {
  const quantile = measure.combine === "quantile" ? measure.quantile : measure.combine === "min" ? 0 : 1;
  return suffix === "" && Number(labels.quantile) === quantile;
}

/** Walks the bounds upwards and interpolates within the one where the wanted share of observations is reached. */
function estimate(
  bounds: readonly number[],
  below: readonly number[],
  wanted: number | "min" | "max",
): number {
  const all = below.at(-1) ?? 0;
  if (all === 0) return Number.NaN;
  const reached = bounds.findIndex((_, n) => isReached(below[n] ?? 0, all, wanted));
  const bound = bounds[reached];
  if (bound === undefined) return Number.NaN;
  const lower = reached === 0 ? Math.min(bound, 0) : (bounds[reached - 1] ?? 0);
  if (wanted === "min" || !Number.isFinite(bound)) return lower;
  if (wanted === "max") return bound;
  const [count, fewer] = [below[reached] ?? 0, below[reached - 1] ?? 0];
  return lower + ((bound - lower) * (wanted * all - fewer)) / (count - fewer);
}

function isReached(count: number, all: number, wanted: number | "min" | "max"): boolean {
  if (wanted === "min") return count > 0;
  return wanted === "max" ? count === all : count >= wanted * all;
}

/** By how much each sample exceeds the one before it. `count` shows the restarts of the other parts of a histogram. */
function listSteps(
  one: RawSeries,
  count: RawSeries | undefined,
  { buckets, lookBack }: SeriesQuery,
  metricBegan: number,
): readonly RawSample[] {
  const held = clean(one.samples);
  const fallen = clean(count?.samples ?? []).filter(([, value], n, all) => value < (all[n - 1]?.[1] ?? 0));
  const end = buckets.start + buckets.step * buckets.count;
  const steps: RawSample[] = [];
  for (const [n, [time, value]] of held.entries()) {
    if (time < buckets.start || time >= end) continue;
    const before = held[n - 1];
    const ofFirst = metricBegan < time ? value : 0;
    steps.push([time, before === undefined ? ofFirst : growFrom(before, time, value)]);
  }
  return steps;

  function growFrom(before: RawSample, time: number, value: number): number {
    if (before[0] < buckets.start - lookBack) return 0;
    const restarted =
      (value < before[1] && one.suffix !== "_sum") ||
      fallen.some(([fall]) => fall > before[0] && fall <= time);
    return restarted ? value : value - before[1];
  }
}

const identities = new WeakMap<RawSeries, string>();
function formatIdentity(series: RawSeries): string {
  const known = identities.get(series);
  if (known !== undefined) return known;
  const { le, quantile, ...rest } = series.labels;
  const identity = JSON.stringify(Object.entries(rest).sort());
  identities.set(series, identity);
  return identity;
}

function sum(values: readonly number[], ofNone = 0): number {
  return values.length === 0 ? ofNone : values.reduce((a, b) => a + b, 0);
}

function mean(values: readonly number[]): number {
  return sum(values) / values.length;
}
