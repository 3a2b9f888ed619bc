// The schema of readout.yaml. A wrong file is answered with everything that is wrong with it, each with its path
// and line, because whoever repairs it should need one run and not one per mistake. That is why references and
// backends are checked on the file as written and not on what the schema has made of it. No message repeats a
// value that came from the environment or from a file: those are secrets.
import { isIPv4, isIPv6 } from "node:net";
import { z } from "zod";
import { ConfigError } from "../core/errors.ts";
import { day, type Millis, minute, parseDuration, parseInstant } from "../core/time.ts";
import { parseNumeral } from "./env-number.ts";
import { httpUrl } from "./http-url.ts";
import { type CustomLayoutsByPart, type LayoutReadersByPart, readCustomLayouts } from "./layout-files.ts";
import { renameOlderKeys } from "./older-keys.ts";
import {
  explainIssue,
  formatSuggestion,
  type IssueReporter,
  redactSecrets,
  reportIssue,
  strictObject,
} from "./validation.ts";
import {
  formatPathKey,
  type InterpolationContext,
  quoteAsWritten,
  readYamlTree,
  resolveBeside,
  sortInFileOrder,
  toMapping,
  type YamlTree,
} from "./yaml.ts";

export interface Config {
  readonly listen: Address;
  /** Front-end error reports; without `listen` they share the address above. */
  readonly intake?: IntakeConfig | undefined;
  readonly tokens: readonly TokenEntry[];
  /** Each backend's own settings, already parsed by its kind. */
  readonly backends: Readonly<Record<string, BackendEntry>>;
  readonly sites: Readonly<Record<string, SiteConfig>>;
  /** The folder of published visuals. */
  readonly visuals?: string | undefined;
  /** A `.meshrc.yaml` instead of the program's own. */
  readonly mesh?: string | undefined;
  readonly limits: Limits;
  /** Where the program's own traces are sent. */
  readonly otlp?: OtlpConfig | undefined;
}
export interface OtlpConfig {
  /** Of the receiver of OTLP over HTTP, without `/v1/traces`. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Which part of the traces that begin here is sent, from 0 to 1. */
  readonly ratio: number;
  readonly service: string;
}
export interface IntakeConfig {
  readonly listen?: Address | undefined;
  /** The file in which reports wait for their delivery. */
  readonly spool: string;
  /** Over it new reports are dropped. */
  readonly spoolBytes: number;
  /** Reports per second, for each key and for each sender; ten times as many at once. */
  readonly keyRate: number;
  readonly addressRate: number;
  /** How many proxies stand in front, each of which adds the address it sees to `X-Forwarded-For`. */
  readonly proxies: number;
}
export interface Address {
  readonly host: string;
  readonly port: number;
}
export interface TokenEntry {
  readonly user: string;
  /** Lower-case hex of the token's SHA-256. */
  readonly sha256: string;
  readonly sites: readonly string[] | "*";
  readonly expires?: bigint | undefined;
}
interface BackendEntry {
  readonly kind: string;
  readonly settings: unknown;
  /** The layouts of the user's own that its sources name, where there are any. */
  readonly layouts?: CustomLayoutsByPart | undefined;
}
export interface SiteConfig {
  /** By which clients of the GraphQL interface tell it from others. */
  readonly name?: string | undefined;
  readonly environment?: string | undefined;
  readonly retention: Millis;
  /** What a counter without aggregation answers. */
  readonly counterDefault?: "cumulative" | "increment" | undefined;
  readonly logs?: LogsPart | undefined;
  readonly traces?: TracesPart | undefined;
  readonly metrics?: MetricsPart | undefined;
  readonly kubernetes?: MetricsPart | undefined;
  readonly frontend?: FrontendPart | undefined;
}
interface LogsPart {
  readonly backend: string;
  readonly sources: Readonly<
    Record<string, { readonly index: string; readonly layout: string; readonly where?: string | undefined }>
  >;
}
export interface TracesPart {
  readonly backend: string;
  readonly index: string;
  readonly layout: string;
  readonly where?: string | undefined;
  /** The contract's where absent (`src/access/sites.ts`). */
  readonly tagPrefixes?: readonly string[] | undefined;
  readonly namespaceAttribute?: string | undefined;
  readonly actionAttribute?: string | undefined;
}
interface MetricsPart {
  readonly backend: string;
  /** Labels forced on every query: the wall between tenants. */
  readonly match: Readonly<Record<string, string>>;
}
/** Where a browser's error reports are written. */
export interface FrontendPart {
  readonly keys: readonly string[];
  readonly backend: string;
  readonly index: string;
  readonly layout: string;
}
export interface Limits {
  /** Rows of one answer. */
  readonly rows: number;
  /** Lines of one millisecond before its answer is split into parts; settable upwards only (default 10,000). */
  readonly linesPerMillisecond: number;
  /** Documents read from a source for one request. */
  readonly documents: number;
  readonly deadline: Millis;
  /** Requests under way at once. */
  readonly requests: number;
  /** Streamed answers under way at once. */
  readonly streams: number;
  /** Series times points of one answer. */
  readonly points: number;
  /** Spans of one trace. */
  readonly spans: number;
  /** How far before a range a counter's previous sample is looked for. */
  readonly lookBack: Millis;
  /** The same two, of one token. */
  readonly tokenRequests: number;
  readonly tokenStreams: number;
  /** Requests per second of one token, ten times as many at once. */
  readonly rate: number;
  /** Documents read from a source for one export. */
  readonly export: number;
  readonly tail: TailLimits;
}
interface TailLimits {
  /** How long after its own time a line may become visible and is still delivered. */
  readonly lateness: Millis;
  /** Live tails open at once. */
  readonly maxOpen: number;
  /** The same of one token. */
  readonly perToken: number;
}

/** What an absent key means. The README's reference is tested against it. */
export const defaults = deepFreeze({
  listen: { host: "127.0.0.1", port: 8080 },
  spool: "data/spool.db",
  spoolBytes: 1_073_741_824,
  keyRate: 2_000,
  addressRate: 100,
  proxies: 0,
  retention: 30 * day,
  counterDefault: "cumulative",
  layout: "auto",
  otlp: { ratio: 1, service: "readout" },
  limits: {
    rows: 200_000,
    linesPerMillisecond: 10_000,
    documents: 500_000,
    deadline: minute / 2,
    requests: 64,
    streams: 32,
    // Half of all, so that no token takes every place.
    tokenRequests: 32,
    tokenStreams: 16,
    points: 5_000_000,
    spans: 50_000,
    lookBack: day,
    rate: 100,
    export: 10_000_000,
    tail: { lateness: minute, maxOpen: 500, perToken: 100 },
  },
} as const satisfies Record<string, unknown> & { limits: Limits });

interface ConfigContext extends InterpolationContext {
  readonly kinds: BackendKinds;
}

/** The kinds of backends, by name; each validates its own settings (the entry without `kind`), and its profiles. */
export type BackendKinds = ReadonlyMap<
  string,
  { parseConfig(value: unknown): unknown; readonly layouts?: LayoutReadersByPart }
>;

/**
 * The configuration that `text`, the content of `file`, describes: defaults filled in, secrets put in, paths
 * resolved, frozen to the bottom.
 *
 * @throws {ConfigError} all issues at once, in the order of the file
 */
export function parseConfig(text: string, file: string, world: ConfigContext): Config {
  const written = readYamlTree(text, file, world);
  // A value that could not be put in is wrong already: what else is said of it would only distract.
  const unreadable = new Set(
    written.issues.map(({ path }) => formatPathKey(path)).filter((key) => written.templates.has(key)),
  );
  const issues = [...written.issues];
  const reportWritten: IssueReporter = (path, message) => {
    if (!unreadable.has(formatPathKey(path))) issues.push({ path, message });
  };
  const { value, toWrittenPath } = renameOlderKeys(written.value, reportWritten);
  const tree = { ...written, value };
  const report: IssueReporter = (path, message) => reportWritten(toWrittenPath(path), message);
  const backends = parseBackends(tree, world.kinds, report);
  checkReferences(tree, report);
  const readText = (path: string) => world.readText(resolveBeside(file, path));
  const layouts = readCustomLayouts(tree.value, world.kinds, readText, report);
  const parsed = fileSchema.safeParse(tree.value, { error: explainIssue });
  for (const issue of parsed.error?.issues ?? []) reportIssue(issue, [], report);
  if (issues.length > 0 || !parsed.success) throw new ConfigError(file, sortInFileOrder(issues, tree));
  return deepFreeze(assemble(parsed.data, backends, layouts, (path) => resolveBeside(file, path)));
}

// ---- What is checked on the file as written -----------------------------------------------------------------

/** Each backend's settings by its kind; what is wrong with one is reported under `backends.<name>`. */
function parseBackends(
  tree: YamlTree,
  kinds: BackendKinds,
  report: IssueReporter,
): ReadonlyMap<string, unknown> {
  const parsed = new Map<string, unknown>();
  for (const [name, entry] of Object.entries(toMapping(toMapping(tree.value).backends))) {
    const { kind: kindName, ...settings } = toMapping(entry);
    if (typeof kindName !== "string" || kindName === "") continue; // the schema says so
    const kind = kinds.get(kindName);
    if (kind === undefined) {
      const path = ["backends", name, "kind"];
      report(
        path,
        `unknown kind ${quoteAsWritten(tree, path, kindName)}${formatSuggestion(kindName, [...kinds.keys()])}`,
      );
      continue;
    }
    const redacted = new Set([
      ...tree.secrets,
      ...collectTexts(settings.auth),
      ...collectTexts(settings.headers),
    ]);
    try {
      parsed.set(name, kind.parseConfig(settings));
    } catch (error) {
      if (!(error instanceof z.ZodError)) throw error;
      for (const issue of error.issues) {
        reportIssue(issue, ["backends", name], (path, message) =>
          report(path, redactSecrets(message, redacted)),
        );
      }
    }
  }
  return parsed;
}

/** The parts of a site, each of which names a backend. */
export const siteParts = ["logs", "traces", "metrics", "kubernetes", "frontend"] as const;
export type SitePart = (typeof siteParts)[number];

/** Names that stand for something else in the file must exist; the same token for two users would be ambiguous. */
function checkReferences(tree: YamlTree, report: IssueReporter): void {
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

// ---- The schema ---------------------------------------------------------------------------------------------

/** Text that `read` turns into something; undefined is `message`. */
function createTextSchema<T>(read: (text: string) => T | undefined, message: string) {
  return z
    .string({ error: (issue) => (issue.input == null ? undefined : message) })
    .transform((value, context) => {
      const result = read(value);
      if (result !== undefined) return result;
      context.issues.push({ code: "custom", message, input: undefined });
      return z.NEVER;
    });
}

// Names appear in paths of the API, in messages and in queries.
const named = <Value extends z.ZodType>(value: Value) =>
  z.record(z.string().regex(/^[^\s/$,{}"\\]+$/, 'a name holds no space and none of / $ , { } " \\'), value);

const text = z.string().min(1, "must not be empty");
const duration = (most: Millis) =>
  createTextSchema(
    (value) => {
      const length = parseDuration(value);
      return length !== undefined && length > 0 && length <= most ? length : undefined;
    },
    `expected a duration such as 250ms, 10s or 30d, at most ${most / day}d`,
  );
const count = (least: number, message = `expected a whole number from ${least} up`) =>
  z.preprocess(
    parseNumeral,
    z.int({ error: (issue) => (issue.input == null ? undefined : message) }).min(least, message),
  );

const address = createTextSchema(readAddress, "expected host:port, such as 127.0.0.1:8080 or [::1]:8080");

function readAddress(value: string): Address | undefined {
  const [, bracketed, plain, digits] = /^(?:\[([^\]]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})$/.exec(value) ?? [];
  const port = Number(digits);
  if (digits === undefined || port > 65_535) return undefined;
  if (bracketed !== undefined) return isIPv6(bracketed) ? { host: bracketed, port } : undefined;
  if (plain === undefined || (/^[\d.]+$/.test(plain) && !isIPv4(plain))) return undefined;
  return { host: plain, port };
}

const hashOfEmptyText = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const hash = createTextSchema((value) => {
  const hex = value.toLowerCase();
  return /^[0-9a-f]{64}$/.test(hex) && hex !== hashOfEmptyText ? hex : undefined;
}, "expected the token's SHA-256 as 64 hex digits in quotes; `readout token new` prints it");

const token = strictObject({
  user: text,
  sha256: hash,
  sites: z.union([z.literal("*"), z.array(text).min(1, 'names no site; for all sites write "*"')], {
    error: (issue) => (issue.input == null ? undefined : 'expected a list of sites, or "*" for all'),
  }),
  expires: createTextSchema(
    parseInstant,
    "expected an ISO 8601 time with a zone, such as 2027-01-01T00:00:00Z",
  ).optional(),
});

const lines = { index: text, layout: text.default(defaults.layout), where: text.optional() };
const metrics = strictObject({ backend: text, match: z.record(z.string(), text).default({}) });

const site = strictObject({
  name: text.optional(),
  environment: text.optional(),
  retention: duration(36_500 * day).default(defaults.retention),
  counter_default: z
    .enum(["cumulative", "increment"], {
      error: (issue) => (issue.input == null ? undefined : "expected cumulative or increment"),
    })
    .default(defaults.counterDefault),
  logs: strictObject({
    backend: text,
    sources: named(strictObject(lines)).refine((all) => Object.keys(all).length > 0, "names no source"),
  }).optional(),
  traces: strictObject({
    backend: text,
    ...lines,
    tag_prefixes: z.array(text).optional(),
    namespace_attribute: text.optional(),
    action_attribute: text.optional(),
  }).optional(),
  metrics: metrics.optional(),
  kubernetes: metrics.optional(),
  frontend: strictObject({
    keys: z.array(text).min(1, "names no key"),
    backend: text,
    index: text.regex(
      /^(?:[^{},*?\s]|\{date\}|\{month\})+$/,
      "expected the name of one index, with {date} or {month} or neither",
    ),
    layout: text.default(defaults.layout),
  }).optional(),
});

const { limits: most } = defaults;
const limits = strictObject({
  rows: count(1).default(most.rows),
  // Upwards only: a client's cursor may have been issued under the default (README, "Log lines", Paging).
  lines_per_millisecond: count(
    most.linesPerMillisecond,
    `can only be raised: expected ${most.linesPerMillisecond} or more`,
  ).default(most.linesPerMillisecond),
  points: count(1).default(most.points),
  documents: count(1).default(most.documents),
  spans: count(1).default(most.spans),
  look_back: duration(366 * day).default(most.lookBack),
  // A timer overflows after 24 days and then fires at once.
  deadline: duration(day).default(most.deadline),
  requests: count(1).default(most.requests),
  streams: count(1).default(most.streams),
  token_requests: count(1).default(most.tokenRequests),
  token_streams: count(1).default(most.tokenStreams),
  rate: count(1).default(most.rate),
  export: count(1).default(most.export),
});

const tail = strictObject({
  lateness: duration(day).default(most.tail.lateness),
  max_open: count(1).default(most.tail.maxOpen),
  per_token: count(1).default(most.tail.perToken),
});

const expectedRatio = "expected a number from 0 to 1";
const otlp = strictObject({
  url: httpUrl,
  headers: z
    .record(
      z.string().regex(/^[\w!#$%&'*+.^`|~-]+$/, "no name of a header"),
      text.regex(/^[\t\x20-\x7e\x80-\xff]+$/, "expected what may stand in a header"),
    )
    .default({}),
  ratio: z
    .preprocess(
      parseNumeral,
      z
        .number({ error: (issue) => (issue.input == null ? undefined : expectedRatio) })
        .min(0, expectedRatio)
        .max(1, expectedRatio),
    )
    .default(defaults.otlp.ratio),
  service: text.default(defaults.otlp.service),
});

const fileSchema = strictObject({
  listen: address.default(defaults.listen),
  intake: strictObject({
    listen: address.optional(),
    spool: text.default(defaults.spool),
    spool_bytes: count(1_000_000).default(defaults.spoolBytes),
    key_rate: count(1).default(defaults.keyRate),
    address_rate: count(1).default(defaults.addressRate),
    proxies: count(0).default(defaults.proxies),
  }).optional(),
  tokens: z.array(token).default([]),
  backends: named(z.looseObject({ kind: text })),
  sites: named(site),
  visuals: text.optional(),
  mesh: text.optional(),
  limits: limits.prefault({}),
  tail: tail.prefault({}),
  otlp: otlp.optional(),
});

function assemble(
  file: z.infer<typeof fileSchema>,
  settings: ReadonlyMap<string, unknown>,
  layouts: ReadonlyMap<string, CustomLayoutsByPart>,
  resolve: (path: string) => string,
): Config {
  const { look_back, lines_per_millisecond, token_requests, token_streams, ...limits } = file.limits;
  const { lateness, max_open, per_token } = file.tail;
  return {
    listen: file.listen,
    intake: file.intake && {
      listen: file.intake.listen,
      spool: resolve(file.intake.spool),
      spoolBytes: file.intake.spool_bytes,
      keyRate: file.intake.key_rate,
      addressRate: file.intake.address_rate,
      proxies: file.intake.proxies,
    },
    tokens: file.tokens,
    backends: mapValues(file.backends, ({ kind }, name) => ({
      kind,
      settings: settings.get(name),
      layouts: layouts.get(name),
    })),
    sites: mapValues(file.sites, ({ counter_default: counterDefault, traces, ...rest }) => {
      if (traces === undefined) return { ...rest, counterDefault };
      const { tag_prefixes, namespace_attribute, action_attribute, ...other } = traces;
      return {
        ...rest,
        counterDefault,
        traces: {
          ...other,
          tagPrefixes: tag_prefixes,
          namespaceAttribute: namespace_attribute,
          actionAttribute: action_attribute,
        },
      };
    }),
    visuals: file.visuals === undefined ? undefined : resolve(file.visuals),
    mesh: file.mesh === undefined ? undefined : resolve(file.mesh),
    otlp: file.otlp,
    limits: {
      ...limits,
      linesPerMillisecond: lines_per_millisecond,
      lookBack: look_back,
      tokenRequests: token_requests,
      tokenStreams: token_streams,
      tail: { lateness, maxOpen: max_open, perToken: per_token },
    },
  };
}

// ---- Values of unknown shape --------------------------------------------------------------------------------

function mapValues<In, Out>(
  record: Readonly<Record<string, In>>,
  change: (value: In, key: string) => Out,
): Record<string, Out> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, change(value, key)]));
}

/** All texts within a value. */
function collectTexts(value: unknown): readonly string[] {
  if (typeof value === "string") return [value];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(collectTexts) : [];
}

/** Freezes plain objects and lists to the bottom; what a kind has made otherwise is its own. */
function deepFreeze<T>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== Array.prototype && prototype !== null) return value;
  for (const child of Object.values(value)) deepFreeze(child);
  return Object.freeze(value);
}
