// Metrics as raw samples in arrays, grouped and measured anew by `src/metrics/samples.ts` for every query. Like the log lines
// beside it, it is what other stores are compared with, so it prefers being plainly right over being fast.

import { yieldToEventLoop } from "../../../src/core/async/turns.ts";
import { compareLists, findFirstAtOrAfter, requireFirst } from "../../../src/core/collections.ts";
import {
  createTooManyPointsError,
  createTooManySamplesError,
  createUnsupportedError,
} from "../../../src/core/errors.ts";
import type { Buckets, Measure, MetricType, Series } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import {
  type CounterSamples,
  combineCumulative,
  combineExportedQuantile,
  combineIncrements,
  combineObservations,
  combineSamples,
  noSamples,
  type Observations,
  parseBound,
} from "../../../src/metrics/samples.ts";
import { matchesTags } from "../../../src/metrics/tag-patterns.ts";
import type {
  ForcedLabels,
  MemberReader,
  MetricQuery,
  MetricStore,
  SampledMember,
  SeriesMember,
  SeriesQuery,
  Tags,
} from "../../../src/store/metrics.ts";

/** A metric's series; those of a histogram or summary are its parts, told apart by `Part` and by their own labels. */
export type FamilyKind = "gauge" | "counter" | "histogram" | "summary";
/** `bucket` has a label `le`, and the `value` of a summary a label `quantile`. */
export type SeriesPart = "value" | "bucket" | "sum" | "count";
/** Takes one series' samples in the order of their times. Those that are NaN or infinite are left out. */
export type AppendSample = (time: Millis, value: number) => void;

export interface MemoryMetrics extends MetricStore {
  /** The series with these labels, made if it is not there. A family stays of the kind that it was first. */
  readonly append: (
    metric: string,
    kind: FamilyKind,
    part: SeriesPart,
    labels: Readonly<Record<string, string>>,
  ) => AppendSample;
  /** Forgets samples before this time. */
  readonly forget: (before: Millis) => void;
  /** How many metrics of each type have the forced labels. */
  readonly count: (match: ForcedLabels) => ReadonlyMap<MetricType, number>;
}

interface StoredSeries {
  readonly part: SeriesPart;
  readonly labels: ReadonlyMap<string, string>;
  times: number[];
  values: number[];
  /** Of its first sample, also when that has been forgotten. */
  first: Millis;
}
interface Family {
  readonly kind: FamilyKind;
  readonly series: Map<string, StoredSeries>;
}
/** Series that become one. */
interface SeriesGroup {
  readonly tags: readonly (readonly [key: string, value: string])[];
  readonly series: StoredSeries[];
}

const typesOfKinds: Readonly<Record<FamilyKind, MetricType>> = {
  gauge: "gauge",
  counter: "counter",
  histogram: "measurement",
  summary: "measurement",
};
/** Of a measurement they tell parts apart, and of other metrics they are tags. */
const partLabels: readonly string[] = ["le", "quantile"];

type Families = Map<string, Family>;

/** `name` is the backend's, for what it refuses. */
export function createMemoryMetrics(name: string): MemoryMetrics {
  const families: Families = new Map();
  return {
    append: (metric, kind, part, labels) => {
      const stored = findOrAddSeries(families, metric, kind, part, labels);
      return (time, value) => {
        if (!Number.isFinite(value)) return;
        stored.first = Math.min(stored.first, time);
        stored.times.push(time);
        stored.values.push(value);
      };
    },
    forget: (before) => {
      for (const { series } of families.values()) {
        for (const stored of series.values()) {
          const from = findFirstAtOrAfter(stored.times, before);
          if (from === 0) continue;
          stored.times.splice(0, from);
          stored.values.splice(0, from);
        }
      }
    },
    count: (match) => {
      const counts = new Map<MetricType, number>();
      for (const metric of listNames(families, match)) {
        const type = findType(families, match, metric);
        if (type !== undefined) counts.set(type, (counts.get(type) ?? 0) + 1);
      }
      return counts;
    },
    names: async (match, signal) => {
      signal.throwIfAborted();
      return listNames(families, match);
    },
    type: async (match, metric, signal) => {
      signal.throwIfAborted();
      return findType(families, match, metric);
    },
    tagKeys: async (match, metric, signal) => {
      signal.throwIfAborted();
      return listTagKeys(listSeries(families, match, metric), match, findType(families, match, metric));
    },
    series: (query, signal) => readSeries(name, families, query, signal),
    members: createMemberReader(name, families),
  };
}

function findOrAddSeries(
  families: Families,
  metric: string,
  kind: FamilyKind,
  part: SeriesPart,
  labels: Readonly<Record<string, string>>,
): StoredSeries {
  const family = families.get(metric) ?? { kind, series: new Map<string, StoredSeries>() };
  families.set(metric, family);
  const sorted = Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));
  const key = JSON.stringify([part, sorted]);
  const stored = family.series.get(key) ?? {
    part,
    labels: new Map(sorted),
    times: [],
    values: [],
    first: Number.POSITIVE_INFINITY,
  };
  family.series.set(key, stored);
  return stored;
}

/** The series of a metric that have the forced labels. */
function listSeries(families: Families, match: ForcedLabels, metric: string): readonly StoredSeries[] {
  const forced = Object.entries(match);
  return [...(families.get(metric)?.series.values() ?? [])].filter(({ labels }) =>
    forced.every(([key, value]) => labels.get(key) === value),
  );
}

function findType(families: Families, match: ForcedLabels, metric: string): MetricType | undefined {
  const family = families.get(metric);
  return family !== undefined && listSeries(families, match, metric).length > 0
    ? typesOfKinds[family.kind]
    : undefined;
}

function listNames(families: Families, match: ForcedLabels): readonly string[] {
  return [...families.keys()].filter((metric) => listSeries(families, match, metric).length > 0).sort();
}

/** Each combination of tag keys once; undefined without series. */
function listTagKeys(
  series: readonly StoredSeries[],
  match: ForcedLabels,
  type: MetricType | undefined,
): readonly (readonly string[])[] | undefined {
  if (series.length === 0) return undefined;
  const combinations = series.map(({ labels }) => [...selectTags(labels, match, type).keys()]);
  const distinct = new Map(combinations.map((keys) => [JSON.stringify(keys), keys]));
  return [...distinct.values()].filter((keys) => keys.length > 0).sort(compareLists);
}

async function readSeries(
  backend: string,
  families: Families,
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly Series[]> {
  signal.throwIfAborted();
  const family = families.get(query.metric);
  if (family === undefined) return [];
  const begun = findBegin(listSeries(families, query.match, query.metric));
  const groups = groupSeries(selectSampled(families, query), query);
  const points = groups.length * query.buckets.count;
  if (points > query.pointLimit) throw createTooManyPointsError(query.pointLimit, points);
  const found: Series[] = [];
  for (const { tags, series } of groups) {
    await yieldToEventLoop();
    signal.throwIfAborted();
    const cut = (stored: StoredSeries) => sliceSamples(stored, query, begun);
    const values =
      family.kind === "summary" && isQuantile(query.measure)
        ? readExportedQuantile(backend, series, query.measure, query.buckets, cut)
        : combineSeries(backend, series, query.measure, query.buckets, cut);
    if (values.some((value) => !Number.isNaN(value))) found.push({ tags: Object.fromEntries(tags), values });
  }
  return found;
}

function findBegin(series: readonly StoredSeries[]): Millis {
  return series.reduce((first, stored) => Math.min(first, stored.first), Number.POSITIVE_INFINITY);
}

/** The quantile that a summary exports. @throws {Refused} `not_supported_by_backend` without one, or with several */
function readExportedQuantile(
  backend: string,
  series: readonly StoredSeries[],
  measure: QuantileMeasure,
  buckets: Buckets,
  cut: (stored: StoredSeries) => CounterSamples,
): Float64Array {
  const quantile = measure.combine === "quantile" ? measure.quantile : measure.combine === "min" ? 0 : 1;
  const found = series.filter(
    ({ part, labels }) => part === "value" && parseBound(labels.get("quantile") ?? "") === quantile,
  );
  const [only] = found;
  if (only === undefined || found.length > 1 || groupByObserver(series).length > 1) {
    const feature =
      only === undefined
        ? `the quantile ${quantile} of a summary that does not export it`
        : "a quantile of several summaries";
    throw createUnsupportedError(backend, feature);
  }
  return combineExportedQuantile(cut(only), buckets);
}

type QuantileMeasure = Extract<Measure, { of: "observations" }>;

function isQuantile(measure: Measure): measure is QuantileMeasure {
  return measure.of === "observations" && measure.combine !== "count" && measure.combine !== "mean";
}

/** A series with its tags. */
interface SelectedSeries {
  readonly tags: ReadonlyMap<string, string>;
  readonly stored: StoredSeries;
}

/** The series that the selector means. */
function selectSeries(families: Families, { match, metric, tags }: MetricQuery): readonly SelectedSeries[] {
  const type = findType(families, match, metric);
  return listSeries(families, match, metric)
    .map((stored) => ({ tags: selectTags(stored.labels, match, type), stored }))
    .filter((one) => matchesTags(tags, one.tags));
}

/** Those of them that have a sample within the buckets. */
function selectSampled(
  families: Families,
  query: MetricQuery & Pick<SeriesQuery, "buckets">,
): readonly SelectedSeries[] {
  const { start, step, count } = query.buckets;
  return selectSeries(families, query).filter(
    ({ stored: { times } }) =>
      (times[findFirstAtOrAfter(times, start)] ?? Number.POSITIVE_INFINITY) < start + step * count,
  );
}

/** By their values of the tags that the selector names. */
function groupSeries(
  selected: readonly SelectedSeries[],
  { tags }: Pick<SeriesQuery, "tags">,
): readonly SeriesGroup[] {
  const keys = Object.keys(tags).sort();
  const groups = new Map<string, SeriesGroup>();
  for (const { tags: own, stored } of selected) {
    const values = keys.map((key) => [key, own.get(key) ?? ""] as const);
    const key = JSON.stringify(values);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { tags: values, series: [stored] });
    else group.series.push(stored);
  }
  const valuesOf = (group: SeriesGroup) => group.tags.map(([, value]) => value);
  return [...groups.values()].sort((a, b) => compareLists(valuesOf(a), valuesOf(b)));
}

/** The tags of a series, sorted: without the forced labels and those that tell parts of a family apart. */
function selectTags(
  labels: ReadonlyMap<string, string>,
  match: ForcedLabels,
  type: MetricType | undefined,
): ReadonlyMap<string, string> {
  const isPart = (key: string) => type === "measurement" && partLabels.includes(key);
  return new Map([...labels].filter(([key]) => !Object.hasOwn(match, key) && !isPart(key)));
}

/** `begun`: the time of the metric's first sample. */
function sliceSamples(
  { times, values, first }: StoredSeries,
  { buckets, lookBack }: Pick<SeriesQuery, "buckets" | "lookBack">,
  begun: Millis,
): CounterSamples {
  const from = findFirstAtOrAfter(times, buckets.start - lookBack);
  const end = findFirstAtOrAfter(times, buckets.start + buckets.step * buckets.count);
  return {
    times: Float64Array.from(times.slice(from, end)),
    values: Float64Array.from(values.slice(from, end)),
    baseline: times[from] === first && begun < first ? "zero" : "own",
  };
}

function combineSeries(
  backend: string,
  series: readonly StoredSeries[],
  measure: Measure,
  buckets: Buckets,
  cut: (stored: StoredSeries) => CounterSamples,
): Float64Array {
  switch (measure.of) {
    case "samples":
      return combineSamples(series.map(cut), measure, buckets);
    case "increment":
      return combineIncrements(series.map(cut), buckets);
    case "cumulative":
      return combineCumulative(series.map(cut), measure, buckets);
    case "observations":
      return combineObservations(
        groupByObserver(series).map((parts) => toObservations(backend, parts, cut)),
        measure,
        buckets,
      );
  }
  return measure satisfies never;
}

/**
 * The count and the bucket +Inf say the same: where one of them is missing, the other stands for it.
 * @throws {Refused} `not_supported_by_backend` where buckets have neither
 */
function toObservations(
  backend: string,
  parts: readonly StoredSeries[],
  cut: (stored: StoredSeries) => CounterSamples,
): Observations {
  const one = (wanted: SeriesPart): CounterSamples | undefined => {
    const found = parts.find(({ part }) => part === wanted);
    return found && cut(found);
  };
  const buckets = parts
    .filter(({ part }) => part === "bucket")
    .map((stored) => ({ bound: parseBound(stored.labels.get("le") ?? ""), samples: cut(stored) }));
  const all = buckets.find(({ bound }) => bound === Number.POSITIVE_INFINITY)?.samples;
  const count = one("count") ?? all;
  if (count === undefined && buckets.length > 0)
    throw createUnsupportedError(backend, "a histogram without a count or a bucket +Inf");
  if (count !== undefined && all === undefined && buckets.length > 0)
    buckets.push({ bound: Number.POSITIVE_INFINITY, samples: count });
  return { count: count ?? noSamples, sum: one("sum") ?? noSamples, buckets };
}

/** The parts of each histogram or summary: series whose labels differ only in what tells parts apart. */
function groupByObserver(series: readonly StoredSeries[]): readonly (readonly StoredSeries[])[] {
  const keyOf = ({ labels }: StoredSeries) =>
    JSON.stringify([...labels].filter(([key]) => !partLabels.includes(key)));
  return [...Map.groupBy(series, keyOf).values()];
}

// ---- Members ------------------------------------------------------------------------------------------------

function createMemberReader(backend: string, families: Families): MemberReader {
  return {
    read: async (query, signal) => {
      const { metric, measure, buckets } = query;
      const family = families.get(metric);
      if (family?.kind === "summary" && isQuantile(measure))
        return readSeries(backend, families, query, signal);
      const begun = findBegin(listSeries(families, query.match, metric));
      return readMembers(backend, families, query, signal, (stored) =>
        sliceSamples(stored, query, begun),
      ).map(
        (member): SeriesMember =>
          measure.of === "samples" && measure.combine !== "quantile" && "samples" in member
            ? { tags: member.tags, values: combineSamples([member.samples], measure, buckets) }
            : member,
      );
    },
    readRaw: async (query, signal) => {
      const cut = (stored: StoredSeries): CounterSamples => ({
        ...sliceSamples(stored, { ...query, lookBack: 0 }, 0),
        baseline: "own",
      });
      const found = readMembers(backend, families, query, signal, cut);
      const isSummary = families.get(query.metric)?.kind === "summary";
      if (isSummary && isQuantile(query.measure) && found.length > 0)
        throw createUnsupportedError(backend, "a quantile of a summary that several scrapers keep");
      const size = found.reduce((sum, member) => sum + countSamples(member), 0);
      if (size > query.sampleLimit) throw createTooManySamplesError(query.sampleLimit, size);
      return query.only === undefined ? found : found.filter(({ tags }) => hasAnyOf(tags, query.only ?? []));
    },
    findHeldBefore: async (query, before, only, signal) => {
      signal.throwIfAborted();
      const held = selectSeries(families, query).filter(({ stored }) => stored.first < before);
      return held.map(({ tags }) => Object.fromEntries(tags)).filter((tags) => hasAnyOf(tags, only));
    },
    findFirstTime: async ({ match, metric, buckets: { start, step, count } }, signal) => {
      signal.throwIfAborted();
      const begun = findBegin(listSeries(families, match, metric));
      if (begun < start) return Number.NEGATIVE_INFINITY;
      return begun < start + step * count ? begun : Number.POSITIVE_INFINITY;
    },
  };
}

function readMembers(
  backend: string,
  families: Families,
  query: MetricQuery & Pick<SeriesQuery, "buckets">,
  signal: AbortSignal,
  cut: (stored: StoredSeries) => CounterSamples,
): readonly SampledMember[] {
  signal.throwIfAborted();
  const groups = Map.groupBy(selectSampled(families, query), ({ tags }) => JSON.stringify([...tags]));
  return [...groups.values()].map((parts): SampledMember => {
    const { tags, stored } = requireFirst(parts);
    const common = { tags: Object.fromEntries(tags) };
    if (query.measure.of !== "observations") return { ...common, samples: cut(stored) };
    const own = parts.map((part) => part.stored);
    return { ...common, observations: toObservations(backend, own, cut) };
  });
}

function countSamples(member: SampledMember): number {
  if ("samples" in member) return member.samples.times.length;
  const { count, sum, buckets } = member.observations;
  const parts = [count, sum, ...buckets.map(({ samples }) => samples)];
  return parts.reduce((size, { times }) => size + times.length, 0);
}

function hasAnyOf(tags: Tags, sets: readonly Tags[]): boolean {
  return sets.some((set) => Object.entries(set).every(([key, value]) => tags[key] === value));
}
