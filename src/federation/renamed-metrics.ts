// A metric store under the names that existing dashboards ask for. A name is one metric of the source, or those of its
// series that carry given labels; its tag keys may be renamed and its values multiplied. What has no such name is answered
// as it is, also the metrics behind the names.
import type { MetricAlias, MetricAliases } from "../config/metric-aliases.ts";
import { mapConcurrent } from "../core/async/concurrency.ts";
import { compareLists } from "../core/collections.ts";
import type { Series } from "../core/rows.ts";
import type { ForcedLabels, MetricStore, SeriesQuery } from "../store/metrics.ts";

/** Calls that one listing of names has under way. */
const maxConcurrentLookups = 8;

/**
 * The values of a name are those of its metric times its factor; counts are no values of the metric and stay. A tag of the
 * source whose key is renamed, or taken by the new key of another, is no tag under the name.
 */
export function createRenamedMetrics(store: MetricStore, aliases: MetricAliases): MetricStore {
  const renamings = new Map(Object.entries(aliases).map(([name, alias]) => [name, createRenaming(alias)]));
  /** The metric and the labels that a name stands for. */
  const locate = (forced: ForcedLabels, name: string) => {
    const { metric = name, match = {} } = renamings.get(name) ?? {};
    return { metric, forced: { ...forced, ...match } };
  };
  return {
    names: async (forced, signal) => {
      const stored = await store.names(forced, signal);
      const known = new Set(stored);
      const findName = async ([name, { metric, match }]: [string, Renaming], signal: AbortSignal) => {
        const isAbsent =
          !known.has(metric) ||
          (match !== undefined && (await store.type({ ...forced, ...match }, metric, signal)) === undefined);
        return isAbsent ? [] : [name];
      };
      const found = await mapConcurrent([...renamings], maxConcurrentLookups, findName, signal);
      return [...stored.filter((name) => !renamings.has(name)), ...found.flat()].sort();
    },
    type: (forced, name, signal) => {
      const place = locate(forced, name);
      return store.type(place.forced, place.metric, signal);
    },
    isTypeGuessed: async (forced, name, signal) => {
      const place = locate(forced, name);
      return (await store.isTypeGuessed?.(place.forced, place.metric, signal)) === true;
    },
    tagKeys: async (forced, name, signal) => {
      const place = locate(forced, name);
      const stored = await store.tagKeys(place.forced, place.metric, signal);
      const renaming = renamings.get(name);
      return renaming === undefined || stored === undefined ? stored : renameKeys(stored, renaming);
    },
    series: async (query, signal) => {
      const renaming = renamings.get(query.metric);
      return renaming === undefined
        ? await store.series(query, signal)
        : await readRenamed(store, renaming, query, signal);
    },
  };
}

interface Renaming {
  readonly metric: string;
  /** Undefined where the name stands for the whole metric. */
  readonly match: ForcedLabels | undefined;
  readonly factor: number;
  /** The source's key of a tag; undefined where the key is no tag under the name. */
  readonly toStoredKey: (key: string) => string | undefined;
  readonly toShownKey: (key: string) => string | undefined;
}

function createRenaming({ metric, tags, match, factor }: MetricAlias): Renaming {
  const stored = new Map(Object.entries(tags));
  const shown = new Map([...stored].map(([key, label]) => [label, key]));
  return {
    metric,
    match: Object.keys(match).length === 0 ? undefined : match,
    factor,
    toStoredKey: (key) => stored.get(key) ?? (shown.has(key) ? undefined : key),
    toShownKey: (label) => shown.get(label) ?? (stored.has(label) ? undefined : label),
  };
}

/** In the order that the store's contract asks for, which the new keys change. */
function renameKeys(
  combinations: readonly (readonly string[])[],
  { toShownKey }: Renaming,
): readonly (readonly string[])[] {
  const renamed = combinations.map((keys) => keys.flatMap((key) => toShownKey(key) ?? []).sort());
  const distinct = new Map(renamed.map((keys) => [JSON.stringify(keys), keys]));
  return [...distinct.values()].filter((keys) => keys.length > 0).sort(compareLists);
}

async function readRenamed(
  store: MetricStore,
  { metric, match, factor, toStoredKey }: Renaming,
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly Series[]> {
  const patterns: [string, string][] = [];
  const labels: [string, string][] = [];
  for (const [key, pattern] of Object.entries(query.tags)) {
    const label = toStoredKey(key);
    if (label === undefined) {
      signal.throwIfAborted();
      return []; // no series has the tag
    }
    patterns.push([label, pattern]);
    labels.push([key, label]);
  }
  labels.sort(([a], [b]) => (a < b ? -1 : 1));
  const found = await store.series(
    { ...query, metric, match: { ...query.match, ...match }, tags: Object.fromEntries(patterns) },
    signal,
  );
  const isCount = "combine" in query.measure && query.measure.combine === "count";
  return found
    .map(({ tags, values }) => ({
      order: labels.map(([, label]) => tags[label] ?? ""),
      tags: Object.fromEntries(labels.map(([key, label]) => [key, tags[label] ?? ""])),
      values: isCount || factor === 1 ? values : values.map((value) => value * factor),
    }))
    .sort((a, b) => compareLists(a.order, b.order))
    .map(({ tags, values }) => ({ tags, values }));
}
