// Sites as they are without some of their backends. Only sites that allow partial answers are ever without one.
import type { MissingBackends, Part, Site, Sites } from "./sites.ts";
import { listPartBackends, type SitePartName } from "./used-backends.ts";

/** The sites, of which those that allow partial answers are read without these backends. */
export function omitBackends(sites: Sites, missing: MissingBackends): Sites {
  if (missing.size === 0) return sites;
  return new Map([...sites].map(([id, site]) => [id, omitFromSite(site, missing)]));
}

function omitFromSite(site: Site, missing: MissingBackends): Site {
  const { partial, logs, traces, reports, metrics, kubernetes } = site;
  if (partial === undefined) return site;
  return {
    ...site,
    ...(logs && { logs: omitFromPart(logs, missing) }),
    ...(traces && { traces: omitFromPart(traces, missing) }),
    ...(metrics && { metrics: omitFromPart(metrics, missing) }),
    ...(kubernetes && { kubernetes: omitFromPart(kubernetes, missing) }),
    ...(reports && missing.has(reports.backend) && { reports: undefined }),
  };
}

function omitFromPart<Store, P extends Part<Store>>(part: P & Part<Store>, missing: MissingBackends): P {
  return part.openWithout === undefined ? part : { ...part, store: part.openWithout(missing) };
}

/**
 * What clients are told of missing backends. Undefined where an answer may not lack them: a site that is asked for allows no
 * partial answers, or nothing of it is left.
 */
export function labelMissing(
  part: SitePartName | undefined,
  asked: readonly string[],
  sites: Sites,
  missing: MissingBackends,
): readonly string[] | undefined {
  if (part === undefined || asked.length === 0) return undefined;
  const labels = new Set<string>();
  for (const id of asked) {
    const site = sites.get(id);
    if (site?.partial === undefined) return undefined;
    if (listPartBackends(site, part).every((backend) => missing.has(backend))) return undefined;
    for (const backend of missing) labels.add(site.partial.label(backend));
  }
  return [...labels].sort();
}
