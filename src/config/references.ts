// What only the whole file shows: names of backends and sites must exist, and no key, token or index may have two owners.

import { toMapping } from "./plain-values.ts";
import { siteParts } from "./schema.ts";
import { formatSuggestion, type IssueReporter } from "./validation.ts";
import { quoteAsWritten, type YamlTree } from "./yaml.ts";

/** Names that stand for something else in the file must exist; the same token for two users would be ambiguous. */
export function checkReferences(tree: YamlTree, report: IssueReporter): void {
  const { backends, sites, tokens } = toMapping(tree.value);
  const backendNames = Object.keys(toMapping(backends));
  const siteNames = Object.keys(toMapping(sites));
  for (const [site, entry] of Object.entries(toMapping(sites))) {
    for (const part of siteParts) {
      const backend = toMapping(toMapping(entry)[part]).backend;
      if (typeof backend !== "string" || backend === "" || backendNames.includes(backend)) continue;
      const path = ["sites", site, part, "backend"];
      report(
        path,
        `unknown backend ${quoteAsWritten(tree, path, backend)}${formatSuggestion(backend, backendNames)}`,
      );
    }
  }
  const owners = new Map<string, string>();
  for (const [site, entry] of Object.entries(toMapping(sites))) {
    const { keys } = toMapping(toMapping(entry).frontend);
    for (const [position, key] of (Array.isArray(keys) ? keys : []).entries()) {
      const owner = owners.get(key);
      owners.set(key, site);
      if (owner !== undefined)
        report(["sites", site, "frontend", "keys", String(position)], `is a key of ${owner} already`);
    }
  }
  checkReportIndices(toMapping(sites), report);
  const hashes = new Map<string, number>();
  for (const [index, token] of (Array.isArray(tokens) ? tokens : []).entries()) {
    const { sites: allowed, sha256 } = toMapping(token);
    for (const [position, site] of (Array.isArray(allowed) ? allowed : []).entries()) {
      if (typeof site !== "string" || site === "" || siteNames.includes(site)) continue;
      const path = ["tokens", String(index), "sites", String(position)];
      const hint = site === "*" ? `; for all sites write sites: "*"` : formatSuggestion(site, siteNames);
      report(path, `unknown site ${quoteAsWritten(tree, path, site)}${hint}`);
    }
    if (typeof sha256 !== "string" || sha256 === "") continue;
    const first = hashes.get(sha256.toLowerCase());
    if (first === undefined) hashes.set(sha256.toLowerCase(), index);
    else report(["tokens", String(index), "sha256"], `is the same as tokens.${first}.sha256`);
  }
}

/** Nothing but its index tells a report's site, so no site may read what another one writes. */
function checkReportIndices(sites: Readonly<Record<string, unknown>>, report: IssueReporter): void {
  const seen: { readonly site: string; readonly backend: unknown; readonly index: string }[] = [];
  for (const [site, entry] of Object.entries(sites)) {
    const { backend, index } = toMapping(toMapping(entry).frontend);
    if (typeof index !== "string") continue;
    const rival = seen.find((other) => other.backend === backend && mayOverlap(other.index, index));
    if (rival !== undefined) {
      report(
        ["sites", site, "frontend", "index"],
        `may hold reports of ${rival.site} too: a site needs an index of its own`,
      );
    }
    seen.push({ site, backend, index });
  }
}

/** Names with `{date}` are read with a star in its place. Rather too careful than not enough. */
function mayOverlap(a: string, b: string): boolean {
  const [startOfA = "", restOfA] = a.split("{", 2);
  const [startOfB = "", restOfB] = b.split("{", 2);
  return (
    a === b ||
    (restOfA !== undefined && startOfB.startsWith(startOfA)) ||
    (restOfB !== undefined && startOfA.startsWith(startOfB))
  );
}
