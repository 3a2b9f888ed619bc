// A site is what a token gives access to. This file connects the parts of each site with the stores that serve them.
import type { Config, FrontendPart, SiteConfig, TracesPart } from "../config/config.ts";
import type { Millis } from "../core/time.ts";
import type { Backend, Stores } from "../store/backend.ts";
import type { ErrorReportStore } from "../store/error-reports.ts";
import type { KubernetesStore } from "../store/kubernetes.ts";
import type { LogSource, LogStore } from "../store/logs.ts";
import type { ForcedLabels, MetricStore } from "../store/metrics.ts";
import type { SpanStore } from "../store/span-analytics.ts";
import type { SpanSource } from "../store/spans.ts";

/** A part is absent where the configuration lacks it, or its backend has no store for it. */
export interface Site {
  readonly id: string;
  /** For people and for clients that look sites up by name or environment. */
  readonly name?: string | undefined;
  readonly environment?: string | undefined;
  readonly retention: Millis;
  /** What a counter shows without an aggregation. */
  readonly counterDefault: "cumulative" | "increment";
  readonly logs?: Part<LogStore> & { readonly sources: ReadonlyMap<string, LogSource> };
  readonly traces?: SpanPart;
  /** The error reports of the site's browsers. They are spans too, but never requests. */
  readonly reports?: SpanPart;
  readonly metrics?: Part<MetricStore> & { readonly match: ForcedLabels };
  readonly kubernetes?: Part<KubernetesStore> & { readonly match: ForcedLabels };
  /** Where error reports are written. Without a store, reports with its keys cannot be written. */
  readonly frontend?: FrontendPart & { readonly store: ErrorReportStore | undefined };
}
export type Sites = ReadonlyMap<string, Site>;

export type SpanPart = Part<SpanStore> & { readonly source: SpanSource };

/** Returns the sites that a principal may access. They are determined once for each principal object. */
export function createSiteViews(sites: Sites): (principal: { maySee(site: string): boolean }) => Sites {
  const views = new WeakMap<object, Sites>();
  return (principal) => {
    const known = views.get(principal) ?? new Map([...sites].filter(([id]) => principal.maySee(id)));
    views.set(principal, known);
    return known;
  };
}

interface Part<Store> {
  readonly backend: string;
  readonly store: Store;
}

/** Connects each site with the stores of its backends. The configuration has checked that these exist. */
export function connectSites(config: Config, backends: ReadonlyMap<string, Backend>): Sites {
  const find = <K extends keyof Stores>(kind: K, backend: string | undefined): Stores[K] | undefined =>
    backend === undefined ? undefined : backends.get(backend)?.stores[kind];
  return new Map(Object.entries(config.sites).map(([id, site]) => [id, connectSite(id, site, find)]));
}

function connectSite(
  id: string,
  {
    name,
    environment,
    retention,
    counterDefault = "cumulative",
    logs,
    traces,
    frontend,
    metrics,
    kubernetes,
  }: SiteConfig,
  find: <K extends keyof Stores>(kind: K, backend: string | undefined) => Stores[K] | undefined,
): Site {
  const logStore = find("logs", logs?.backend);
  const traceStore = find("traces", traces?.backend);
  const reportReader = find("traces", frontend?.backend);
  const metricStore = find("metrics", metrics?.backend);
  const reportStore = find("reports", frontend?.backend);
  const kubernetesStore = find("kubernetes", kubernetes?.backend);
  return {
    id,
    name,
    environment,
    retention,
    counterDefault,
    ...(logs &&
      logStore && { logs: { backend: logs.backend, store: logStore, sources: buildLogSources(logs) } }),
    ...(traces &&
      traceStore && {
        traces: { backend: traces.backend, store: traceStore, source: buildSpanSource(id, traces) },
      }),
    ...(frontend &&
      reportReader && {
        reports: {
          backend: frontend.backend,
          store: reportReader,
          source: buildSpanSource(id, {
            ...frontend,
            index: frontend.index.replaceAll(datePlaceholder, "*"),
          }),
        },
      }),
    ...(metrics && metricStore && { metrics: { ...metrics, store: metricStore } }),
    ...(frontend && { frontend: { ...frontend, store: reportStore } }),
    ...(kubernetes && kubernetesStore && { kubernetes: { ...kubernetes, store: kubernetesStore } }),
  };
}

/** The placeholders for the date of a report in the name of its index. */
const datePlaceholder = /\{(?:date|month)\}/g;

function buildLogSources({ sources }: NonNullable<SiteConfig["logs"]>): ReadonlyMap<string, LogSource> {
  return new Map(Object.entries(sources).map(([id, entry]) => [id, buildLogSource(id, entry)]));
}

/** A source of lines as the configuration has it. */
export function buildLogSource(id: string, { index, layout, where }: LogSourceConfig): LogSource {
  return { id, index, layout, tenantFilter: where };
}

type LogSourceConfig = NonNullable<SiteConfig["logs"]>["sources"][string];

/** Fills in the defaults of a part: contract, "Requests and their names". */
export function buildSpanSource(
  site: string,
  part: Pick<TracesPart, "index" | "layout"> & Partial<TracesPart>,
): SpanSource {
  return {
    site,
    index: part.index,
    layout: part.layout,
    tenantFilter: part.where,
    tagPrefixes: part.tagPrefixes ?? ["appsignal.tag."],
    namespaceAttribute: part.namespaceAttribute ?? "appsignal.namespace",
    actionAttribute: part.actionAttribute ?? "appsignal.action_name",
  };
}
