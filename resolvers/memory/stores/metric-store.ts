// Metrics as raw samples in arrays, grouped and measured anew by `src/metrics/samples.ts` for every query. Like the log lines
// beside it, it is what other stores are compared with, so it prefers being plainly right over being fast.
import { setImmediate as nextTurn } from "node:timers/promises";
import { Refused } from "../../../src/core/errors.ts";
import type { Buckets, Measure, MetricType, Series } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import { compareLists, matchesTags } from "../../../src/metrics/measures.ts";
import {
  type CounterSamples,
  combineCumulative,
  combineIncrements,
  combineObservations,
  combineSamples,
  exportedQuantile,
  firstAtOrAfter,
  type Observations,
} from "../../../src/metrics/samples.ts";
import type { Match, MetricStore, SeriesQuery } from "../../../src/store/store.ts";

/** A metric's series; those of a histogram or summary are its parts, told apart by `Part` and by their own labels. */
export type FamilyKind = "gauge" | "counter" | "histogram" | "summary";
/** `bucket` has a label `le`, and the `value` of a summary a label `quantile`. */
export type Part = "value" | "bucket" | "sum" | "count";
/** Takes one series' samples in the order of their times. Those that are NaN or infinite are left out. */
export type Append = (time: Millis, value: number) => void;

export interface MemoryMetrics extends MetricStore {
  /** The series with these labels, made if it is not there. A family stays of the kind that it was first. */
  readonly append: (
    metric: string,
    kind: FamilyKind,
    part: Part,
    labels: Readonly<Record<string, string>>,
  ) => Append;
  /** Forgets samples before this time. */
  readonly forget: (before: Millis) => void;
  /** How many metrics of each type stand behind the wall. */
  readonly count: (match: Match) => ReadonlyMap<MetricType, number>;
}

interface Stored {
  readonly part: Part;
  readonly labels: ReadonlyMap<string, string>;
  times: number[];
  values: number[];
  /** Of its first sample, also when that has been forgotten. */
  first: Millis;
}
interface Family {
  readonly kind: FamilyKind;
  readonly series: Map<string, Stored>;
}
/** Series that become one. */
interface Group {
  readonly tags: readonly (readonly [key: string, value: string])[];
  readonly series: Stored[];
}

const types: Readonly<Record<FamilyKind, MetricType>> = {
  gauge: "gauge",
  counter: "counter",
  histogram: "measurement",
  summary: "measurement",
};
const partLabels: readonly string[] = ["le", "quantile"];

/** `name` is the backend's, for what it refuses. */
export function createMemoryMetrics(name: string): MemoryMetrics {
  const families = new Map<string, Family>();

  const within = (match: Match, metric: string): readonly Stored[] => {
    const wall = Object.entries(match);
    return [...(families.get(metric)?.series.values() ?? [])].filter(({ labels }) =>
      wall.every(([key, value]) => labels.get(key) === value),
    );
  };
  const typeOf = (match: Match, metric: string): MetricType | undefined => {
    const family = families.get(metric);
    return family !== undefined && within(match, metric).length > 0 ? types[family.kind] : undefined;
  };
  const namesOf = (match: Match): readonly string[] =>
    [...families.keys()].filter((metric) => within(match, metric).length > 0).sort();

  return {
    append: (metric, kind, part, labels) => {
      const family = families.get(metric) ?? { kind, series: new Map<string, Stored>() };
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
          const from = firstAtOrAfter(stored.times, before);
          stored.times.splice(0, from);
          stored.values.splice(0, from);
        }
      }
    },
    count: (match) => {
      const counts = new Map<MetricType, number>();
      for (const metric of namesOf(match)) {
        const type = typeOf(match, metric);
        if (type !== undefined) counts.set(type, (counts.get(type) ?? 0) + 1);
      }
      return counts;
    },
    names: async (match, signal) => {
      signal.throwIfAborted();
      return namesOf(match);
    },
    type: async (match, metric, signal) => {
      signal.throwIfAborted();
      return typeOf(match, metric);
    },
    tagKeys: async (match, metric, signal) => {
      signal.throwIfAborted();
      const series = within(match, metric);
      if (series.length === 0) return undefined;
      const combinations = series.map(({ labels }) => [...tagsOf(labels, match).keys()]);
      const distinct = new Map(combinations.map((keys) => [JSON.stringify(keys), keys]));
      return [...distinct.values()].filter((keys) => keys.length > 0).sort(compareLists);
    },
    series: async (query, signal) => {
      signal.throwIfAborted();
      const family = families.get(query.metric);
      if (family === undefined) return [];
      const all = within(query.match, query.metric);
      const begun = all.reduce((first, stored) => Math.min(first, stored.first), Number.POSITIVE_INFINITY);
      const groups = groupsOf(all, query);
      const points = groups.length * query.buckets.count;
      if (points > query.pointLimit) {
        const message = `${groups.length} series of ${query.buckets.count} points are more than ${query.pointLimit}`;
        throw new Refused("result_too_large", message, { limit: query.pointLimit, wanted: points });
      }
      const found: Series[] = [];
      for (const { tags, series } of groups) {
        await nextTurn();
        signal.throwIfAborted();
        const cut = (stored: Stored) => cutOut(stored, query, begun);
        const values =
          family.kind === "summary" && isQuantile(query.measure)
            ? exported(series, query.measure, query.buckets, cut)
            : measure(series, query.measure, query.buckets, cut);
        if (values.some((value) => !Number.isNaN(value)))
          found.push({ tags: Object.fromEntries(tags), values });
      }
      return found;
    },
  };

  function exported(
    series: readonly Stored[],
    measure: Extract<Measure, { of: "observations" }>,
    buckets: Buckets,
    cut: (stored: Stored) => CounterSamples,
  ): Float64Array {
    const quantile = measure.combine === "quantile" ? measure.quantile : measure.combine === "min" ? 0 : 1;
    const found = series.filter(
      ({ part, labels }) => part === "value" && Number(labels.get("quantile")) === quantile,
    );
    const [only] = found;
    if (only === undefined || found.length > 1 || byObserver(series).length > 1) {
      const feature = `quantile ${quantile} of a summary`;
      const reason =
        only === undefined ? "it does not export it" : "those of several series cannot be merged";
      throw new Refused("not_supported_by_backend", `The source cannot answer ${feature}: ${reason}`, {
        backend: name,
        feature,
      });
    }
    return exportedQuantile(cut(only), buckets);
  }
}

type QuantileMeasure = Extract<Measure, { of: "observations" }>;

function isQuantile(measure: Measure): measure is QuantileMeasure {
  return measure.of === "observations" && measure.combine !== "count" && measure.combine !== "mean";
}

/** The series that the selector means and that have a sample within the buckets, by their values of its tags. */
function groupsOf(all: readonly Stored[], { match, tags, buckets }: SeriesQuery): readonly Group[] {
  const keys = Object.keys(tags).sort();
  const end = buckets.start + buckets.step * buckets.count;
  const groups = new Map<string, Group>();
  for (const stored of all) {
    const visible = tagsOf(stored.labels, match);
    if (!matchesTags(tags, visible)) continue;
    const next = stored.times[firstAtOrAfter(stored.times, buckets.start)];
    if (next === undefined || next >= end) continue;
    const values = keys.map((key) => [key, visible.get(key) ?? ""] as const);
    const key = JSON.stringify(values);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { tags: values, series: [stored] });
    else group.series.push(stored);
  }
  const valuesOf = (group: Group) => group.tags.map(([, value]) => value);
  return [...groups.values()].sort((a, b) => compareLists(valuesOf(a), valuesOf(b)));
}

/** The tags of a series, sorted: neither the wall's labels nor those that tell parts of a family apart. */
function tagsOf(labels: ReadonlyMap<string, string>, match: Match): ReadonlyMap<string, string> {
  return new Map([...labels].filter(([key]) => !Object.hasOwn(match, key) && !partLabels.includes(key)));
}

/** `begun`: the time of the metric's first sample. */
function cutOut(
  { times, values, first }: Stored,
  { buckets, lookBack }: SeriesQuery,
  begun: Millis,
): CounterSamples {
  const from = firstAtOrAfter(times, buckets.start - lookBack);
  const end = firstAtOrAfter(times, buckets.start + buckets.step * buckets.count);
  return {
    times: Float64Array.from(times.slice(from, end)),
    values: Float64Array.from(values.slice(from, end)),
    birth: times[from] === first && begun < first ? "zero" : "own",
  };
}

function measure(
  series: readonly Stored[],
  measure: Measure,
  buckets: Buckets,
  cut: (stored: Stored) => CounterSamples,
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
        byObserver(series).map((parts) => observations(parts, cut)),
        measure,
        buckets,
      );
  }
  return measure satisfies never;
}

const none: CounterSamples = { times: new Float64Array(), values: new Float64Array(), birth: "own" };

function observations(parts: readonly Stored[], cut: (stored: Stored) => CounterSamples): Observations {
  const one = (wanted: Part): CounterSamples => {
    const found = parts.find(({ part }) => part === wanted);
    return found === undefined ? none : cut(found);
  };
  const buckets = parts
    .filter(({ part }) => part === "bucket")
    .map((stored) => ({ bound: boundOf(stored.labels.get("le")), samples: cut(stored) }));
  return { count: one("count"), sum: one("sum"), buckets };
}

function boundOf(le = ""): number {
  return le === "+Inf" ? Number.POSITIVE_INFINITY : Number(le);
}

/** The parts of each histogram or summary: series whose labels differ only in what tells parts apart. */
function byObserver(series: readonly Stored[]): readonly (readonly Stored[])[] {
  const keyOf = ({ labels }: Stored) =>
    JSON.stringify([...labels].filter(([key]) => !partLabels.includes(key)));
  return [...Map.groupBy(series, keyOf).values()];
}
