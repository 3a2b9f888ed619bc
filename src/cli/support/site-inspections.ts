// Lists the inspections of a backend for a configuration: one for each log source of a site, and one for each other part.
// `check` prints the results, `serve` logs the problems. Both use this list, so neither can forget a part.

import { buildSpanSource, listLogPlaces, listPartBackends } from "../../access/sites.ts";
import type { Config, MetricsPart, SiteConfig, TracesPart } from "../../config/config.ts";
import { type SitePart, siteParts } from "../../config/schema.ts";
import { toPlaces } from "../../core/collections.ts";
import { type Instant, now } from "../../core/time.ts";
import { formatIndexName } from "../../intake/intake.ts";
import type { Backend } from "../../store/backend.ts";
import type { SourceInspection } from "../../store/inspection.ts";
import { inspectMetricAliases } from "./metric-alias-inspection.ts";

export interface SiteInspection {
  readonly site: string;
  readonly part: SitePart;
  /** Where the configuration has it: `sites.shop.logs.sources.app`. */
  readonly path: string;
  /** What distinguishes it from the others of its part; empty where there are no others. */
  readonly title: readonly string[];
  /** @throws {BackendError} */
  readonly inspect: (signal: AbortSignal) => Promise<InspectionResult>;
}
export interface InspectionResult {
  /** What was found, as rows of cells. */
  readonly rows: readonly (readonly string[])[];
  /** The newest item, where items have times and were looked at; its `time` is undefined where there is none. */
  readonly newest?: { readonly what: string; readonly time: Instant | undefined };
  readonly limitations: readonly string[];
  readonly problems: readonly string[];
  /** The one of the problems that says why a tenant filter does not hold. */
  readonly tenantFilterFault?: string;
}

export type NamedSite = readonly [id: string, site: SiteConfig];

/** Groups the sites by the backends of all their parts, in the order of the configuration. */
export function groupSitesByBackend(sites: Config["sites"]): ReadonlyMap<string, readonly NamedSite[]> {
  const groups = new Map<string, NamedSite[]>();
  for (const [id, site] of Object.entries(sites)) {
    const backends = new Set(siteParts.flatMap((part) => listPartBackends(site, part)));
    for (const backend of backends) {
      const own = groups.get(backend);
      if (own === undefined) groups.set(backend, [[id, site]]);
      else own.push([id, site]);
    }
  }
  return groups;
}

/** Returns the inspections in the order of the sites, without parts for which the backend has no store. */
export function listInspections(backend: Backend, sites: readonly NamedSite[]): readonly SiteInspection[] {
  return sites.flatMap(([site, entry]) => [
    ...listLogInspections(backend, site, entry),
    ...listSpanInspections(backend, site, entry),
    ...listMetricInspections(backend, site, entry),
    ...listKubernetesInspections(backend, site, entry),
    ...listErrorReportInspections(backend, site, entry),
  ]);
}

function listLogInspections(
  { name, inspections: { logs: inspect } }: Backend,
  site: string,
  { logs }: SiteConfig,
): readonly SiteInspection[] {
  if (logs === undefined || inspect === undefined) return [];
  return Object.entries(logs.sources).flatMap(([id, entry]) =>
    [...listLogPlaces(id, entry, logs).entries()]
      .filter(([, { backend }]) => backend === name)
      .map(([at, { source }]) => ({
        site,
        part: "logs" as const,
        path: `sites.${site}.logs.sources.${id}${entry.backends === undefined ? "" : `.backends.${at}`}`,
        title: [id, source.index],
        inspect: async (signal) => describeSource(await inspect(source, signal), source.index, "line"),
      })),
  );
}

function listSpanInspections(
  { name, inspections: { traces: inspect } }: Backend,
  site: string,
  { traces }: SiteConfig,
): readonly SiteInspection[] {
  if (inspect === undefined) return [];
  return listOwnPlaces<TracesPart>(name, traces).map(({ place, path }) => ({
    site,
    part: "traces",
    path: `sites.${site}.traces${path}`,
    title: [place.index],
    inspect: async (signal) =>
      describeSource(await inspect(buildSpanSource(site, place), signal), place.index, "span"),
  }));
}

/** `what` is the singular of what the index holds. */
function describeSource(report: SourceInspection, index: string, what: string): InspectionResult {
  const { layout, indices, newest, limitations, problems, tenantFilterFault } = report;
  const count = indices === undefined ? [] : [indices === 1 ? "1 index" : `${indices} indices`];
  return {
    rows: [[`layout ${layout}`, ...count]],
    // With problems nobody may have looked for the newest.
    ...((newest !== undefined || problems.length === 0) && { newest: { what, time: newest } }),
    limitations,
    problems: indices === 0 && problems.length === 0 ? [`no index is named ${index}`] : problems,
    ...(tenantFilterFault !== undefined && { tenantFilterFault }),
  };
}

function listMetricInspections(
  { name, inspections: { metrics: inspect }, stores }: Backend,
  site: string,
  { metrics }: SiteConfig,
): readonly SiteInspection[] {
  if (inspect === undefined) return [];
  const names = metrics !== undefined && "backend" in metrics ? metrics.names : undefined;
  return listOwnPlaces<MetricsPart>(name, metrics).map(({ place: { match }, path }) => ({
    site,
    part: "metrics",
    path: `sites.${site}.metrics${path}`,
    title: [],
    inspect: async (signal) => {
      const { found, limitations, problems } = await inspect(match, signal);
      const ofNames =
        names === undefined || stores.metrics === undefined
          ? []
          : await inspectMetricAliases(stores.metrics, match, names, signal);
      return { rows: found.map((line) => [line]), limitations: [...limitations, ...ofNames], problems };
    },
  }));
}

function listKubernetesInspections(
  { name, inspections: { kubernetes: inspect } }: Backend,
  site: string,
  { kubernetes }: SiteConfig,
): readonly SiteInspection[] {
  if (inspect === undefined) return [];
  return listOwnPlaces<MetricsPart>(name, kubernetes).map(({ place: { match }, path }) => ({
    site,
    part: "kubernetes",
    path: `sites.${site}.kubernetes${path}`,
    title: [],
    inspect: async (signal) => {
      const { found, limitations, problems } = await inspect(match, signal);
      return { rows: found.map((line) => [line]), limitations, problems };
    },
  }));
}

/** The places of a part that are in the backend, each with what follows the part in its path. */
export function listOwnPlaces<Place extends { readonly backend: string }>(
  name: string,
  part: Place | readonly Place[] | undefined,
): readonly { readonly place: Place; readonly path: string }[] {
  return toPlaces<Place>(part).flatMap((place, at) =>
    place.backend === name ? [{ place, path: Array.isArray(part) ? `.${at}` : "" }] : [],
  );
}

/** Inspects whether reports of today can be written. */
function listErrorReportInspections(
  { name, inspections: { reports: inspect } }: Backend,
  site: string,
  { frontend }: SiteConfig,
): readonly SiteInspection[] {
  if (frontend?.backend !== name || inspect === undefined) return [];
  const ask = async (signal: AbortSignal): Promise<InspectionResult> => {
    const target = { site, index: formatIndexName(frontend.index, now()), layout: frontend.layout };
    const { found, limitations, problems } = await inspect(target, signal);
    return { rows: found.map((line) => [line]), limitations, problems };
  };
  return [{ site, part: "frontend", path: `sites.${site}.frontend`, title: [], inspect: ask }];
}
