// What only the whole file shows: names of backends and sites must exist, and no key, token or index may have two owners.
import { resolve } from "node:path";
import { formatSuggestion } from "../core/suggestion.ts";
import { listWrittenPlaces, type WrittenPlace } from "./places.ts";
import { toMapping } from "./plain-values.ts";
import { type Address, defaults, readAddress, siteParts } from "./schema.ts";
import type { IssueReporter } from "./validation.ts";
import { type Path, quoteAsWritten, resolveBeside, type YamlTree } from "./yaml/yaml.ts";

type Sites = Readonly<Record<string, unknown>>;

/** Reports names that do not exist, and whatever would have two owners. */
export function checkReferences(tree: YamlTree, path: string, report: IssueReporter): void {
  const file = toMapping(tree.value);
  const sites = toMapping(file.sites);
  checkBackendNames(tree, sites, Object.keys(toMapping(file.backends)), report);
  checkFrontendKeys(sites, report);
  checkWrittenIndices(sites, file.rollups, report);
  const tokens = toList(file.tokens);
  checkGrantSites(tree, ["tokens"], tokens, Object.keys(sites), report);
  checkCertificates(tree, file, Object.keys(sites), report);
  checkTokenHashes(tokens, report);
  const issuers = toList(toMapping(file.auth).jwt);
  checkJwtIssuers(tree, issuers, Object.keys(sites), report);
  checkConsoleClients(issuers, file.public_url, report);
  checkListenAddresses(file, report);
  checkWrittenFiles(file, path, report);
}

function checkBackendNames(
  tree: YamlTree,
  sites: Sites,
  known: readonly string[],
  report: IssueReporter,
): void {
  const names = new Set(known);
  const checkName = (path: Path, backend: unknown) => {
    if (typeof backend !== "string" || backend === "" || names.has(backend)) return;
    report(path, `unknown backend ${quoteAsWritten(tree, path, backend)}${formatSuggestion(backend, known)}`);
  };
  checkName(["rollups", "backend"], toMapping(toMapping(tree.value).rollups).backend);
  for (const [site, entry] of Object.entries(sites)) {
    for (const name of siteParts) {
      const part = toMapping(entry)[name];
      if (part === undefined) continue;
      const places = listWrittenPlaces(site, name, part);
      if (name === "logs") checkLogsBackend(site, part, places, checkName, report);
      for (const { path, entry } of places) checkName([...path, "backend"], entry.backend);
      checkDistinctBackends(places, report);
    }
  }
}

/** The logs part needs a backend unless each of its sources has one of its own. */
function checkLogsBackend(
  site: string,
  part: unknown,
  places: readonly WrittenPlace[],
  checkName: (path: Path, backend: unknown) => void,
  report: IssueReporter,
): void {
  const { backend, sources } = toMapping(part);
  const path = ["sites", site, "logs", "backend"];
  if (backend !== undefined) checkName(path, backend);
  else if (isEmpty(sources) || places.some(({ backend, isListed }) => backend === undefined && !isListed))
    report(path, "is missing");
}

/** What one backend held in two places would be answered twice, and a source would have two lines of one id. */
function checkDistinctBackends(places: readonly WrittenPlace[], report: IssueReporter): void {
  const seen = new Set<string>();
  for (const { path, entry, backend, isListed } of places) {
    if (!isListed || typeof backend !== "string") continue;
    const key = JSON.stringify([path.slice(0, -1), backend]);
    const advice = "index" in entry ? ": join the patterns of one backend by commas" : "";
    if (seen.has(key)) report([...path, "backend"], `is named before${advice}`);
    seen.add(key);
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

/**
 * Only the index tells whose report a document is, so two sites of one backend may not share an index. Nor may a site share
 * that of rollups, which has other mappings.
 */
function checkWrittenIndices(sites: Sites, rollups: unknown, report: IssueReporter): void {
  const seen: { readonly content: string; readonly backend: unknown; readonly index: string }[] = [];
  const { backend: keeper, index: kept = defaults.rollups.index } = toMapping(rollups);
  if (typeof keeper === "string" && typeof kept === "string")
    seen.push({ content: "the rollups", backend: keeper, index: kept });
  for (const [site, entry] of Object.entries(sites)) {
    const { backend, index } = toMapping(toMapping(entry).frontend);
    if (typeof index !== "string") continue;
    const rival = seen.find((other) => other.backend === backend && mayOverlap(other.index, index));
    if (rival !== undefined) {
      report(
        ["sites", site, "frontend", "index"],
        `may hold ${rival.content} too: a site needs an index of its own`,
      );
    }
    seen.push({ content: `reports of ${site}`, backend, index });
  }
}

/** Users by certificates need what verifies these, and the name by which browsers know this server. */
function checkCertificates(
  tree: YamlTree,
  file: Readonly<Record<string, unknown>>,
  known: readonly string[],
  report: IssueReporter,
): void {
  const path = ["auth", "certificates"];
  const entries = toList(toMapping(file.auth).certificates);
  checkGrantSites(tree, path, entries, known, report);
  checkDistinctCertificates(path, entries, report);
  if (entries.length === 0) return;
  if (toMapping(file.listen).client_ca === undefined)
    report(path, "needs listen.client_ca, which verifies them");
  if (file.public_url === undefined)
    report(path, "needs public_url, the address by which clients know this server");
}

/** A certificate that means two users is nobody's. */
function checkDistinctCertificates(path: Path, entries: readonly unknown[], report: IssueReporter): void {
  const written = entries.flatMap((entry, index) => {
    const { subject, san } = toMapping(entry);
    const at = [...path, String(index)];
    if (san !== undefined) return [{ path: [...at, "san"], key: JSON.stringify(san) }];
    if (subject === undefined) return [];
    // A name alone is a list of one.
    const names = Object.entries(toMapping(subject)).map(([name, value]) => [name, [value].flat()] as const);
    return [{ path: [...at, "subject"], key: JSON.stringify(names.toSorted()) }];
  });
  checkDistinct(written, report);
}

/** Reports each value that stands earlier in the list. */
function checkDistinct(
  values: readonly { readonly path: Path; readonly key: string }[],
  report: IssueReporter,
): void {
  const earlier = new Map<string, Path>();
  for (const { path, key } of values) {
    const first = earlier.get(key);
    if (first === undefined) earlier.set(key, path);
    else report(path, `is the same as ${first.join(".")}`);
  }
}

function checkGrantSites(
  tree: YamlTree,
  list: Path,
  tokens: readonly unknown[],
  known: readonly string[],
  report: IssueReporter,
): void {
  for (const [index, token] of tokens.entries()) {
    const path = [...list, String(index), "sites"];
    checkSiteNames(tree, path, toMapping(token).sites, known, report);
  }
}

/** A group's sites exist, and tokens of one issuer are judged in one way. */
function checkJwtIssuers(
  tree: YamlTree,
  issuers: readonly unknown[],
  known: readonly string[],
  report: IssueReporter,
): void {
  const written = issuers.flatMap((entry, index) => {
    const { issuer } = toMapping(entry);
    return typeof issuer === "string"
      ? [{ path: ["auth", "jwt", String(index), "issuer"], key: issuer }]
      : [];
  });
  checkDistinct(written, report);
  for (const [index, entry] of issuers.entries()) {
    const { sites } = toMapping(entry);
    const path = ["auth", "jwt", String(index)];
    for (const [group, list] of Object.entries(toMapping(toMapping(sites).map))) {
      checkSiteNames(tree, [...path, "sites", "map", group], list, known, report);
    }
  }
}

/** One port cannot be listened on twice. Port 0 is any free one. */
function checkListenAddresses(file: Readonly<Record<string, unknown>>, report: IssueReporter): void {
  const { listen = `${defaults.listen.host}:${defaults.listen.port}` } = file;
  const written: readonly (readonly [Path, unknown])[] = [
    [["listen"], toMapping(listen).address ?? listen],
    [["admin", "listen"], toMapping(file.admin).listen],
    [["intake", "listen"], toMapping(file.intake).listen],
  ];
  const taken: { readonly path: Path; readonly address: Address }[] = [];
  for (const [path, value] of written) {
    const address = typeof value === "string" ? readAddress(value) : undefined;
    if (address === undefined || address.port === 0) continue;
    const rival = taken.find((other) => areOneSocket(other.address, address));
    if (rival !== undefined) report(path, `is the address of ${rival.path.join(".")} too`);
    taken.push({ path, address });
  }
}

/** Whether two addresses are of one socket: that of all addresses of a machine is also that of each. */
function areOneSocket(a: Address, b: Address): boolean {
  const first = a.host.toLowerCase();
  const second = b.host.toLowerCase();
  const coversOther = (host: string, other: string) =>
    host === "::" || (host === "0.0.0.0" && !other.includes(":")) || host === other;
  return a.port === b.port && (coversOther(first, second) || coversOther(second, first));
}

/** What is written to one of them would destroy the other. */
function checkWrittenFiles(
  file: Readonly<Record<string, unknown>>,
  configuration: string,
  report: IssueReporter,
): void {
  const { spool = defaults.spool } = toMapping(file.intake);
  const written: readonly (readonly [Path, unknown])[] = [
    [["intake", "spool"], file.intake === undefined ? undefined : spool],
    [["audit", "file"], toMapping(file.audit).file],
  ];
  const taken = new Map([[resolve(configuration), "this configuration"]]);
  for (const [path, value] of written) {
    if (typeof value !== "string" || value === "") continue;
    const place = resolve(resolveBeside(configuration, value));
    const owner = taken.get(place);
    if (owner !== undefined) report(path, `is the file of ${owner}`);
    taken.set(place, path.join("."));
  }
}

/** Nobody may overhear a sign-in: a browser needs secure addresses of the provider and of this server. */
function checkConsoleClients(issuers: readonly unknown[], publicUrl: unknown, report: IssueReporter): void {
  for (const [index, entry] of issuers.entries()) {
    const { console: client, issuer, discovery } = toMapping(entry);
    if (client === undefined) continue;
    const path = ["auth", "jwt", String(index)];
    if (publicUrl === undefined)
      report([...path, "console"], "needs public_url, the address to which people come back");
    else if (isKnownInsecure(publicUrl))
      report([...path, "console"], "needs a public_url with https, or on this machine");
    if (isKnownInsecure(issuer))
      report([...path, "console"], "needs an issuer with https, or on this machine");
    const origins = toList(toMapping(client).origins);
    for (const [position, origin] of origins.entries()) {
      if (isKnownInsecure(origin))
        report([...path, "console", "origins", String(position)], "needs https, or to be on this machine");
    }
    // The console may ask these origins and no other.
    if (discovery !== undefined && ![issuer, ...origins].map(readOrigin).includes(readOrigin(discovery)))
      report([...path, "discovery"], "has to be on the issuer's origin, or on one of `console.origins`");
  }
}

/** Whether a browser treats no page from there as a secure context. The schema reports what is no address. */
function isKnownInsecure(address: unknown): boolean {
  if (typeof address !== "string" || !URL.canParse(address)) return false;
  const { protocol, hostname } = new URL(address);
  return protocol === "http:" && !["localhost", "127.0.0.1", "[::1]"].includes(hostname);
}

function readOrigin(address: unknown): string | undefined {
  return typeof address === "string" && URL.canParse(address) ? new URL(address).origin : undefined;
}

function checkSiteNames(
  tree: YamlTree,
  path: Path,
  sites: unknown,
  known: readonly string[],
  report: IssueReporter,
): void {
  for (const [position, site] of toList(sites).entries()) {
    if (typeof site !== "string" || site === "" || known.includes(site)) continue;
    const own = [...path, String(position)];
    const hint = site === "*" ? `; for all sites write ${path.at(-1)}: "*"` : formatSuggestion(site, known);
    report(own, `unknown site ${quoteAsWritten(tree, own, site)}${hint}`);
  }
}

/** One token for two users would be ambiguous. */
function checkTokenHashes(tokens: readonly unknown[], report: IssueReporter): void {
  const written = tokens.flatMap((token, index) => {
    const path = ["tokens", String(index), "sha256"];
    const { sha256 } = toMapping(token);
    const hashes = Array.isArray(sha256)
      ? sha256.map((hash, position) => ({ path: [...path, String(position)], hash: hash as unknown }))
      : [{ path, hash: sha256 }];
    return hashes.flatMap(({ path, hash }) =>
      typeof hash === "string" && hash !== "" ? [{ path, key: hash.toLowerCase() }] : [],
    );
  });
  checkDistinct(written, report);
}

function isEmpty(value: unknown): boolean {
  return Object.keys(toMapping(value)).length === 0;
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
