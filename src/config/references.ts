// What only the whole file shows: names of backends and sites must exist, and no key, token or index may have two owners.

import { formatSuggestion } from "../core/suggestion.ts";
import { toMapping } from "./plain-values.ts";
import { siteParts } from "./schema.ts";
import type { IssueReporter } from "./validation.ts";
import { quoteAsWritten, type YamlTree } from "./yaml.ts";

type Sites = Readonly<Record<string, unknown>>;

/** Reports names that do not exist, and whatever would have two owners. */
export function checkReferences(tree: YamlTree, report: IssueReporter): void {
  const file = toMapping(tree.value);
  const sites = toMapping(file.sites);
  checkBackendNames(tree, sites, Object.keys(toMapping(file.backends)), report);
  checkFrontendKeys(sites, report);
  checkReportIndices(sites, report);
  const tokens = toList(file.tokens);
  checkTokenSites(tree, tokens, Object.keys(sites), report);
  checkTokenHashes(tokens, report);
}

function checkBackendNames(
  tree: YamlTree,
  sites: Sites,
  known: readonly string[],
  report: IssueReporter,
): void {
  for (const [site, entry] of Object.entries(sites)) {
    for (const part of siteParts) {
      const { backend } = toMapping(toMapping(entry)[part]);
      if (typeof backend !== "string" || backend === "" || known.includes(backend)) continue;
      const path = ["sites", site, part, "backend"];
      report(
        path,
        `unknown backend ${quoteAsWritten(tree, path, backend)}${formatSuggestion(backend, known)}`,
      );
    }
  }
}

/** A key names one site: the reports that carry it are of that site. */
function checkFrontendKeys(sites: Sites, report: IssueReporter): void {
  const owners = new Map<unknown, string>();
  for (const [site, entry] of Object.entries(sites)) {
    for (const [position, key] of toList(toMapping(toMapping(entry).frontend).keys).entries()) {
      const owner = owners.get(key);
      owners.set(key, site);
      if (owner === undefined) continue;
      report(["sites", site, "frontend", "keys", String(position)], `is a key of ${owner} already`);
    }
  }
}

/** Only the index tells whose report a document is, so two sites of one backend may not share an index. */
function checkReportIndices(sites: Sites, report: IssueReporter): void {
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

function checkTokenSites(
  tree: YamlTree,
  tokens: readonly unknown[],
  known: readonly string[],
  report: IssueReporter,
): void {
  for (const [index, token] of tokens.entries()) {
    for (const [position, site] of toList(toMapping(token).sites).entries()) {
      if (typeof site !== "string" || site === "" || known.includes(site)) continue;
      const path = ["tokens", String(index), "sites", String(position)];
      const hint = site === "*" ? `; for all sites write sites: "*"` : formatSuggestion(site, known);
      report(path, `unknown site ${quoteAsWritten(tree, path, site)}${hint}`);
    }
  }
}

/** One token for two users would be ambiguous. */
function checkTokenHashes(tokens: readonly unknown[], report: IssueReporter): void {
  const positions = new Map<string, number>();
  for (const [index, token] of tokens.entries()) {
    const { sha256 } = toMapping(token);
    if (typeof sha256 !== "string" || sha256 === "") continue;
    const first = positions.get(sha256.toLowerCase());
    if (first === undefined) positions.set(sha256.toLowerCase(), index);
    else report(["tokens", String(index), "sha256"], `is the same as tokens.${first}.sha256`);
  }
}

function toList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** Whether two index names could be equal, with any text for `{date}`. It may say so of names that never are. */
function mayOverlap(a: string, b: string): boolean {
  const [startOfA = "", restOfA] = a.split("{", 2);
  const [startOfB = "", restOfB] = b.split("{", 2);
  return (
    a === b ||
    (restOfA !== undefined && startOfB.startsWith(startOfA)) ||
    (restOfB !== undefined && startOfA.startsWith(startOfB))
  );
}
