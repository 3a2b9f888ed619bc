// Which backends an operation reads: those of one part of each site that is asked for.
import type { Site, Sites } from "./sites.ts";

export type SitePartName = "logs" | "traces" | "metrics" | "kubernetes";

/** Which part of a site each family of operations reads. */
const partByFamily: Readonly<Record<string, SitePartName>> = {
  logs: "logs",
  tracing: "traces",
  deploys: "traces",
  metrics: "metrics",
  saved_visuals: "metrics",
  kubernetes: "kubernetes",
};

/** Without repetition; of sites that are not among these, none. */
export function listBackends(operation: string, asked: readonly string[], sites: Sites): readonly string[] {
  const part = findReadPart(operation);
  const backends = asked.flatMap((id) => {
    const site = sites.get(id);
    return part === undefined || site === undefined ? [] : listPartBackends(site, part);
  });
  return [...new Set(backends)];
}

/** The part of a site that an operation reads. */
export function findReadPart(operation: string): SitePartName | undefined {
  return partByFamily[operation.split(".", 1)[0] ?? ""];
}

/** How many backends all operations read. */
export function countBackends(sites: Sites): number {
  const parts = Object.values(partByFamily);
  return new Set([...sites.values()].flatMap((site) => parts.flatMap((part) => listPartBackends(site, part))))
    .size;
}

export function listPartBackends(site: Site, part: SitePartName): readonly string[] {
  const { backend, backends } = site[part] ?? {};
  return backends ?? (backend === undefined ? [] : [backend]);
}
