// The metric suite through a mapping: a subject is filled with other names of metrics and tags, and read by a store that
// knows them under the names of the suite.
import { createRenamedMetrics } from "#src/federation/renamed-metrics.ts";
import type { MetricStore } from "#src/store/metrics.ts";
import type { RawFamily } from "./metrics/fixture.ts";

const toStored = (name: string) => `stored_${name}`;
/** Labels that have a meaning for the suite or the source. */
const kept = new Set(["tenant", "le", "quantile"]);

export function renameFamilies(families: readonly RawFamily[]): readonly RawFamily[] {
  return families.map((family) => ({
    ...family,
    metric: toStored(family.metric),
    series: family.series.map((series) => ({
      ...series,
      labels: Object.fromEntries(
        Object.entries(series.labels).map(([key, value]) => [kept.has(key) ? key : toStored(key), value]),
      ),
    })),
  }));
}

/** The store by the names of `families`. The names of the source, which are listed beside them, are left out. */
export function readByOriginalNames(store: MetricStore, families: readonly RawFamily[]): MetricStore {
  const aliases = families.map(({ metric, series }) => {
    const keys = new Set(series.flatMap(({ labels }) => Object.keys(labels)).filter((key) => !kept.has(key)));
    const tags = Object.fromEntries([...keys].map((key) => [key, toStored(key)]));
    return [metric, { metric: toStored(metric), tags, match: {}, factor: 1 }] as const;
  });
  const renamed = createRenamedMetrics(store, Object.fromEntries(aliases));
  return {
    ...renamed,
    names: async (forced, signal) =>
      (await renamed.names(forced, signal)).filter((name) => !name.startsWith(toStored(""))),
  };
}
