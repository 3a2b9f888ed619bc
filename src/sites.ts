// A site is what a token gives access to; this file ties its parts to the stores that answer for them.
import type { Config, FrontendPart, SiteConfig } from "./config.ts";
import type {
  Backend,
  KubernetesStore,
  LogSource,
  LogStore,
  Match,
  MetricStore,
  ReportStore,
  Stores,
} from "./store.ts";
import type { Millis } from "./time.ts";

/** A part is absent where the configuration has none, or its backend has no store for it. */
export interface Site {
  readonly id: string;
  readonly retention: Millis;
  /** What a counter answers without an aggregation. */
  readonly counterDefault: "cumulative" | "increment";
  readonly logs?: Part<LogStore> & { readonly sources: ReadonlyMap<string, LogSource> };
  readonly metrics?: Part<MetricStore> & { readonly match: Match };
  readonly kubernetes?: Part<KubernetesStore> & { readonly match: Match };
  /** Where front-end error reports are written; without a store those that carry its keys cannot be. */
  readonly frontend?: FrontendPart & { readonly store: ReportStore | undefined };
}
export type Sites = ReadonlyMap<string, Site>;

interface Part<Store> {
  readonly backend: string;
  readonly store: Store;
}

/** Ties each configured site to the stores of its backends, which the configuration has already checked to exist. */
export function connectSites(config: Config, backends: ReadonlyMap<string, Backend>): Sites {
  const find = <K extends keyof Stores>(kind: K, backend: string | undefined): Stores[K] | undefined =>
    backend === undefined ? undefined : backends.get(backend)?.stores[kind];
  return new Map(Object.entries(config.sites).map(([id, site]) => [id, connectSite(id, site, find)]));
}

function connectSite(
  id: string,
  { retention, counterDefault = "cumulative", logs, metrics, kubernetes, frontend }: SiteConfig,
  find: <K extends keyof Stores>(kind: K, backend: string | undefined) => Stores[K] | undefined,
): Site {
  const logStore = find("logs", logs?.backend);
  const metricStore = find("metrics", metrics?.backend);
  const reportStore = find("reports", frontend?.backend);
  const kubernetesStore = find("kubernetes", kubernetes?.backend);
  return {
    id,
    retention,
    counterDefault,
    ...(logs && logStore && { logs: { backend: logs.backend, store: logStore, sources: sourcesOf(logs) } }),
    ...(metrics && metricStore && { metrics: { ...metrics, store: metricStore } }),
    ...(frontend && { frontend: { ...frontend, store: reportStore } }),
    ...(kubernetes && kubernetesStore && { kubernetes: { ...kubernetes, store: kubernetesStore } }),
  };
}

function sourcesOf({ sources }: NonNullable<SiteConfig["logs"]>): ReadonlyMap<string, LogSource> {
  return new Map(Object.entries(sources).map(([id, entry]) => [id, { id, ...entry }]));
}
