// A site is what a token gives access to. This file connects the parts of each site with the stores that serve them.
import type {
  Config,
  FrontendPart,
  LogSourceConfig,
  LogSourceInOne,
  LogsPart,
  MetricsPlace,
  SiteConfig,
  TracesPart,
} from "../config/config.ts";
import type { MetricAliases } from "../config/metric-aliases.ts";
import type { SitePart } from "../config/schema.ts";
import { runSteps, type Steps } from "../core/async/turns.ts";
import { requireFirst, toPlaces } from "../core/collections.ts";
import type { Scope } from "../core/scopes.ts";
import type { Millis } from "../core/time.ts";
import { createFederatedKubernetes } from "../federation/federated-kubernetes.ts";
import { createFederatedLogs, type FederatedSource } from "../federation/federated-logs.ts";
import { createFederatedMetrics } from "../federation/federated-metrics.ts";
import { createFederatedSpans, type SpanPlace } from "../federation/federated-spans.ts";
import { createRenamedMetrics } from "../federation/renamed-metrics.ts";
import type { Backend, Stores } from "../store/backend.ts";
import type { ErrorReportStore } from "../store/error-reports.ts";
import type { KubernetesStore } from "../store/kubernetes.ts";
import type { LogSource, LogStore } from "../store/logs.ts";
import type { ForcedLabels, MetricStore } from "../store/metrics.ts";
import type { SpanAnalytics, SpanStore } from "../store/span-analytics.ts";
import type { SpanReader, SpanSource } from "../store/spans.ts";
import type { Principal } from "./auth.ts";

/** A part is absent where the configuration lacks it, or its backend has no store for it. */
export interface Site {
  readonly id: string;
  /** For people and for clients that look sites up by name or environment. */
  readonly name?: string | undefined;
  readonly environment?: string | undefined;
  readonly retention: Millis;
  /** Absent where only whole answers are allowed. */
  readonly partial?: PartialAnswers | undefined;
  /** What a counter shows without an aggregation. */
  readonly counterDefault: "cumulative" | "increment";
  readonly logs?: Part<LogStore> & { readonly sources: ReadonlyMap<string, LogSource> };
  readonly traces?: SpanPart;
  /** The error reports of the site's browsers. They are spans too, but never requests. */
  readonly reports?: SpanPart | undefined;
  readonly metrics?: MetricPart;
  readonly kubernetes?: Part<KubernetesStore> & { readonly match: ForcedLabels };
  /** Where error reports are written. Without a store, reports with its keys cannot be written. */
  readonly frontend?: FrontendPart & { readonly store: ErrorReportStore | undefined };
}
export type Sites = ReadonlyMap<string, Site>;

/** Names of backends that an answer lacks. */
export type MissingBackends = ReadonlySet<string>;

/** That answers may lack what a failed backend holds. */
interface PartialAnswers {
  /** What clients are told of a backend. */
  readonly label: (backend: string) => string;
}

/** The store knows its metrics by the names too. */
type MetricPart = Part<MetricStore> & {
  /** Empty where metrics are in several places, each of which has its own. */
  readonly match: ForcedLabels;
  /** Of several places, the labels that every one forces. */
  readonly sharedLabels?: readonly string[] | undefined;
  readonly names?: MetricAliases | undefined;
};

export type SpanPart = Part<SpanStore> & { readonly source: SpanSource };

type Viewer = Pick<Principal, "maySee" | "hasScope">;

/**
 * Returns the sites that a principal may access, each without the parts that it has no scope for. They are determined once
 * for each principal object.
 */
export function createSiteViews(sites: Sites): (principal: Viewer) => Sites {
  const views = new WeakMap<object, Sites>();
  return (principal) => {
    const known = views.get(principal) ?? selectSites(sites, principal);
    views.set(principal, known);
    return known;
  };
}

function selectSites(sites: Sites, { maySee, hasScope }: Viewer): Sites {
  const hidden = sitePartScopes
    .filter(({ scopes }) => !scopes.some((scope) => hasScope(scope)))
    .map(({ part }) => [part, undefined]);
  const hide = (site: Site): Site =>
    hidden.length === 0 ? site : { ...site, ...Object.fromEntries(hidden) };
  return new Map([...sites].filter(([id]) => maySee(id)).map(([id, site]) => [id, hide(site)]));
}

/** The parts of a site, each with the scopes of the operations that read it. */
const sitePartScopes: readonly { readonly part: keyof Site; readonly scopes: readonly Scope[] }[] = [
  { part: "logs", scopes: ["logs"] },
  { part: "traces", scopes: ["tracing", "deploys"] },
  { part: "reports", scopes: ["tracing", "deploys"] },
  { part: "metrics", scopes: ["metrics"] },
  { part: "kubernetes", scopes: ["kubernetes"] },
];

export interface Part<Store> {
  /** The name of its backend; of several, all names joined by a comma and a space. */
  readonly backend: string;
  /** All names, where there are several. */
  readonly backends?: readonly string[];
  readonly store: Store;
  /** The same store without what these backends hold, where there are several. */
  readonly openWithout?: (missing: MissingBackends) => Store;
}

/** Connects each site with the stores of its backends. The configuration has checked that these exist. */
export function connectSites(
  config: Config,
  backends: ReadonlyMap<string, Backend>,
  createAnalytics?: CreateAnalytics,
): Sites {
  return runSteps(connectSitesInSteps(config, backends, createAnalytics));
}

/** The figures over spans that lie in several backends; without it they are read each time. */
type CreateAnalytics = (reader: SpanReader) => SpanAnalytics;

/** How many sites are connected in one step. */
const sitesPerStep = 1_000;

/** As `connectSites`, for a program that has other work. */
export function* connectSitesInSteps(
  config: Config,
  backends: ReadonlyMap<string, Backend>,
  createAnalytics?: CreateAnalytics,
): Steps<Sites> {
  const label = (backend: string) => config.backends[backend]?.label ?? encodeURIComponent(backend);
  const find: FindStore = (kind, backend) =>
    backend === undefined ? undefined : backends.get(backend)?.stores[kind];
  const spans = createSpanPlaces((backend) => find("traces", backend), createAnalytics);
  const sites = new Map<string, Site>();
  for (const [id, site] of Object.entries(config.sites)) {
    sites.set(id, connectSite(id, site, find, spans, label));
    if (sites.size % sitesPerStep === 0) yield;
  }
  return sites;
}

type FindStore = <K extends keyof Stores>(kind: K, backend: string | undefined) => Stores[K] | undefined;

function connectSite(
  id: string,
  {
    name,
    environment,
    retention,
    partial = false,
    counterDefault = "cumulative",
    logs,
    traces,
    frontend,
    metrics,
    kubernetes,
  }: SiteConfig,
  find: FindStore,
  spans: SpanPlaces,
  label: PartialAnswers["label"],
): Site {
  const reportReader = find("traces", frontend?.backend);
  const reportStore = find("reports", frontend?.backend);
  return {
    id,
    name,
    environment,
    retention,
    partial: partial ? { label } : undefined,
    counterDefault,
    ...(logs && connectLogs(logs, find)),
    ...(traces && connectTraces(id, toPlaces(traces), find, { ...spans, mayBeMissing: partial })),
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
    ...(metrics && connectMetrics(metrics, find)),
    ...(frontend && { frontend: { ...frontend, store: reportStore } }),
    ...(kubernetes && connectKubernetes(toPlaces(kubernetes), find)),
  };
}

/** The places of the spans of all sites, and the store that reads those of sites in several backends. */
interface SpanPlaces {
  readonly places: Map<SpanSource, readonly ConnectedSpans[]>;
  readonly store: SpanStore;
  /** One store for each object of missing backends: sources of one store are read together. */
  readonly openWithout: (missing: MissingBackends) => SpanStore;
}

interface ConnectedSpans extends SpanPlace {
  readonly mayBeMissing: boolean;
}

function createSpanPlaces(
  findStore: (backend: string) => SpanStore | undefined,
  createAnalytics: CreateAnalytics | undefined,
): SpanPlaces {
  const places = new Map<SpanSource, readonly ConnectedSpans[]>();
  const opened = new WeakMap<MissingBackends, SpanStore>();
  const listPlaces = (source: SpanSource) => places.get(source) ?? [];
  const openWithout = (missing: MissingBackends): SpanStore =>
    createFederatedSpans({
      listPlaces: (source) =>
        listPlaces(source).filter(({ backend, mayBeMissing }) => !mayBeMissing || !missing.has(backend)),
    });
  return {
    places,
    store: createFederatedSpans({ listPlaces, findStore }, createAnalytics),
    openWithout: (missing) => {
      const store = opened.get(missing) ?? openWithout(missing);
      opened.set(missing, store);
      return store;
    },
  };
}

/** Returns no traces where one of their backends has no store for them. */
function connectTraces(
  site: string,
  parts: readonly TracesPart[],
  find: FindStore,
  { places, store, openWithout, mayBeMissing }: SpanPlaces & Pick<ConnectedSpans, "mayBeMissing">,
): Pick<Site, "traces"> {
  const connected = parts.flatMap((part) => {
    const store = find("traces", part.backend);
    if (store === undefined) return [];
    return [{ backend: part.backend, store, source: buildSpanSource(site, part), mayBeMissing }];
  });
  const [first, ...others] = connected;
  if (first === undefined || connected.length < parts.length) return {};
  if (others.length === 0) {
    places.set(first.source, connected);
    return { traces: { backend: first.backend, store: first.store, source: first.source } };
  }
  const all = connected.map(({ source }) => source);
  const source = { ...first.source, index: all.map(({ index }) => index).join(","), places: all };
  places.set(source, connected);
  const backends = connected.map(({ backend }) => backend);
  return { traces: { backend: backends.join(", "), backends, store, openWithout, source } };
}

/** Returns no metrics where one of their backends has no store for them. */
function connectMetrics(metrics: NonNullable<SiteConfig["metrics"]>, find: FindStore): Pick<Site, "metrics"> {
  if ("backend" in metrics) {
    const store = find("metrics", metrics.backend);
    if (store === undefined) return {};
    const { names } = metrics;
    return {
      metrics: { ...metrics, store: names === undefined ? store : createRenamedMetrics(store, names) },
    };
  }
  const places = findPlaces(metrics, (backend) => find("metrics", backend));
  if (places.length < metrics.length) return {};
  const sharedLabels = Object.keys(requireFirst(places).match).filter((label) =>
    places.every(({ match }) => Object.hasOwn(match, label)),
  );
  return { metrics: { ...connectPlaces(places, createFederatedMetrics), match: {}, sharedLabels } };
}

/** Likewise. */
function connectKubernetes(parts: readonly MetricsPlace[], find: FindStore): Pick<Site, "kubernetes"> {
  const places = findPlaces(parts, (backend) => find("kubernetes", backend));
  const [first, ...others] = places;
  if (first === undefined || places.length < parts.length) return {};
  if (others.length === 0) return { kubernetes: first };
  return { kubernetes: { ...connectPlaces(places, createFederatedKubernetes), match: {} } };
}

function findPlaces<Store>(
  parts: readonly MetricsPlace[],
  find: (backend: string) => Store | undefined,
): readonly (MetricsPlace & { readonly store: Store })[] {
  return parts.flatMap((part) => {
    const store = find(part.backend);
    return store === undefined ? [] : [{ ...part, store }];
  });
}

function connectPlaces<Place extends MetricsPlace, Store>(
  places: readonly Place[],
  createStore: (places: readonly Place[]) => Store,
): Part<Store> {
  const backends = places.map(({ backend }) => backend);
  const openWithout = (missing: MissingBackends) =>
    createStore(places.filter(({ backend }) => !missing.has(backend)));
  return { backend: backends.join(", "), backends, store: createStore(places), openWithout };
}

/** The placeholders for the date of a report in the name of its index. */
const datePlaceholder = /\{(?:date|month)\}/g;

/** Returns no logs where one of their backends has no store for them. */
function connectLogs(logs: LogsPart, find: FindStore): Pick<Site, "logs"> {
  const places = Object.entries(logs.sources).map(
    ([id, source]) => [id, listLogPlaces(id, source, logs)] as const,
  );
  const backends = [...new Set(places.flatMap(([, all]) => all.map(({ backend }) => backend)))];
  const [first = ""] = backends;
  if (backends.length === 1) {
    const store = find("logs", first);
    const sources = new Map(places.flatMap(([id, all]) => all.map(({ source }) => [id, source] as const)));
    return store === undefined ? {} : { logs: { backend: first, store, sources } };
  }
  const federated = new Map<string, FederatedSource>();
  const sources = new Map<string, LogSource>();
  for (const [id, all] of places) {
    const connected = all.flatMap((place) => {
      const store = find("logs", place.backend);
      return store === undefined ? [] : [{ ...place, store }];
    });
    if (connected.length < all.length) return {};
    federated.set(id, { places: connected, dedupe: logs.sources[id]?.dedupe });
    const [only] = all;
    const index = all.map(({ source }) => source.index).join(",");
    if (only !== undefined) sources.set(id, { ...only.source, index });
  }
  const store = createFederatedLogs(federated);
  const openWithout = (missing: MissingBackends) => createFederatedLogs(federated, missing);
  return { logs: { backend: backends.join(", "), backends, store, openWithout, sources } };
}

/** The places of a source's lines, as the configuration has them. */
export function listLogPlaces(
  id: string,
  source: LogSourceConfig,
  { backend: ofPart = "" }: Pick<LogsPart, "backend">,
): readonly { readonly backend: string; readonly source: LogSource }[] {
  const entries = source.backends ?? [{ ...source, backend: source.backend ?? ofPart }];
  return entries.map((entry) => ({ backend: entry.backend, source: buildLogSource(id, entry) }));
}

/** A source of lines as the configuration has it. */
export function buildLogSource(
  id: string,
  { index, layout, where }: Pick<LogSourceInOne, "index" | "layout" | "where">,
): LogSource {
  return { id, index, layout, tenantFilter: where };
}

/** Lists the backends of a part of a site, in the order of the configuration. */
export function listPartBackends(site: SiteConfig, part: SitePart): readonly string[] {
  const { logs } = site;
  if (part !== "logs")
    return toPlaces<{ readonly backend: string }>(site[part]).map(({ backend }) => backend);
  if (logs === undefined) return [];
  const { backend: ofPart = "" } = logs;
  const named = Object.values(logs.sources).flatMap(({ backends, backend = ofPart }) =>
    backends === undefined ? [backend] : backends.map((place) => place.backend),
  );
  return [...new Set(named)];
}

/** Fills in the defaults of a part (docs/reference/configuration.md, "Traces"). */
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
