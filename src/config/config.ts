// The configuration as the program uses it, and how `readout.yaml` becomes one. Everything that is wrong with a file is
// reported at once, each issue with its path and line. References and backends are therefore checked on the file as
// written, and not on what the schema made of it. No message repeats a value that came from the environment or a file.
import { z } from "zod";
import { runSteps, type Steps } from "../core/async/turns.ts";
import { ConfigError } from "../core/errors.ts";
import type { Scope } from "../core/scopes.ts";
import { formatSuggestion } from "../core/suggestion.ts";
import type { Millis } from "../core/time.ts";
import {
  type AuditConfig,
  type CertificateEntry,
  type CompressionConfig,
  readTlsFiles,
  type TlsConfig,
} from "./edge-settings.ts";
import type { JwtIssuer } from "./jwt-issuers.ts";
import { type CustomLayoutsByPart, type LayoutReadersByPart, readCustomLayouts } from "./layout-files.ts";
import type { Limits, TokenLimits } from "./limits.ts";
import type { MetricAliases } from "./metric-aliases.ts";
import { renameOlderKeys } from "./older-keys.ts";
import { collectTexts, deepFreeze, mapValues, toMapping } from "./plain-values.ts";
import { checkReferences } from "./references.ts";
import type { RollupsConfig } from "./rollup-settings.ts";
import { type Address, fileSchema, type tracesSchema } from "./schema.ts";
import { checkTenantFilters } from "./tenant-filters.ts";
import { explainIssue, type IssueReporter, redactSecrets, reportIssue } from "./validation.ts";
import {
  formatPathKey,
  type InterpolationContext,
  type Path,
  quoteAsWritten,
  readYamlTree,
  resolveBeside,
  sortInFileOrder,
  type YamlTree,
} from "./yaml/yaml.ts";

/** Which GraphQL queries are taken. */
interface GraphqlConfig {
  /** The folder of documents that clients name by a hash. */
  readonly documents?: string | undefined;
  /** Whether no others are taken. */
  readonly onlyDocuments: boolean;
  /** Whether clients may read the schema. */
  readonly introspection: boolean;
}

export interface Config {
  readonly listen: Address;
  /** What TLS on that address needs; absent: it has none. */
  readonly tls?: TlsConfig | undefined;
  /** The address by which clients know the read API, without a slash at its end. */
  readonly publicUrl?: string | undefined;
  /** Probes and metrics, which without it share the address above. */
  readonly admin?: { readonly listen: Address } | undefined;
  /** Addresses and networks of reverse proxies, through which many clients come. */
  readonly proxies?: readonly string[] | undefined;
  /** Origins, in lower case, whose pages in a browser may ask as agents do. */
  readonly origins?: readonly string[] | undefined;
  /** Front-end error reports; without `listen` they share the address above. */
  readonly intake?: IntakeConfig | undefined;
  readonly tokens: readonly TokenEntry[];
  /** Identity providers whose tokens are taken beside these. */
  readonly jwtIssuers?: readonly JwtIssuer[] | undefined;
  /** Users who are known by their TLS certificates. */
  readonly certificates?: readonly CertificateEntry[] | undefined;
  /** Each backend's own settings, already parsed by its kind. */
  readonly backends: Readonly<Record<string, BackendEntry>>;
  readonly sites: Readonly<Record<string, SiteConfig>>;
  readonly graphql?: GraphqlConfig | undefined;
  /** The folder of published visuals. */
  readonly visuals?: string | undefined;
  /** A `.meshrc.yaml` instead of the program's own. */
  readonly mesh?: string | undefined;
  /** No answer is compressed where it is absent. */
  readonly compression?: CompressionConfig | undefined;
  readonly limits: Limits;
  /** Where figures of spans are kept and made; absent: nowhere but in memory. */
  readonly rollups?: RollupsConfig | undefined;
  /** How often each source is asked for its newest row, for `/metrics`; never where it is absent. */
  readonly freshness?: Millis | undefined;
  /** Where the program's own traces are sent. */
  readonly otlp?: OtlpConfig | undefined;
  /** Where who asked what is written; nowhere where it is absent. */
  readonly audit?: AuditConfig | undefined;
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

export interface TokenEntry {
  readonly user: string;
  /** Which of the user's tokens it is, for the audit log. */
  readonly name?: string | undefined;
  /** Lower-case hex of the token's SHA-256, or of two while one replaces the other. */
  readonly sha256: string | readonly string[];
  readonly sites: readonly string[] | "*";
  /** What it may be used for; absent: everything. */
  readonly scopes?: readonly Scope[] | undefined;
  readonly expires?: bigint | undefined;
  /** Before then it is refused. */
  readonly notBefore?: bigint | undefined;
  readonly limits?: TokenLimits | undefined;
}

interface BackendEntry {
  readonly kind: string;
  /** What clients are told of it; its name where absent. */
  readonly label?: string | undefined;
  readonly settings: unknown;
  /** The layout files that its sources name, where there are any. */
  readonly layouts?: CustomLayoutsByPart | undefined;
}

export interface SiteConfig {
  /** For people and for clients of GraphQL, which look sites up by it. */
  readonly name?: string | undefined;
  readonly environment?: string | undefined;
  readonly retention: Millis;
  /** Whether an answer may lack what a failed backend holds, where a client asks for that. */
  readonly partial?: boolean | undefined;
  /** What a counter without aggregation answers. */
  readonly counterDefault?: "cumulative" | "increment" | undefined;
  readonly logs?: LogsPart | undefined;
  /** Several where its spans lie in several backends. */
  readonly traces?: TracesPart | readonly TracesPart[] | undefined;
  /** Several where its series lie in several backends; these have no names of their own. */
  readonly metrics?:
    | (MetricsPart & { readonly names?: MetricAliases | undefined })
    | readonly MetricsPlace[]
    | undefined;
  readonly kubernetes?: MetricsPart | readonly MetricsPlace[] | undefined;
  readonly frontend?: FrontendPart | undefined;
}

export interface LogsPart {
  /** Of the sources that name none. */
  readonly backend?: string | undefined;
  readonly sources: Readonly<Record<string, LogSourceConfig>>;
}

export type LogSourceConfig = LogSourceInOne | LogSourceInSeveral;

interface LogPlaceConfig {
  readonly index: string;
  readonly layout: string;
  readonly where?: string | undefined;
}

export interface LogSourceInOne extends LogPlaceConfig {
  readonly backend?: string | undefined;
  readonly backends?: undefined;
  readonly dedupe?: undefined;
}

interface LogSourceInSeveral extends Partial<Record<keyof LogPlaceConfig | "backend", undefined>> {
  /** The places of its lines, each in another backend. */
  readonly backends: readonly (LogPlaceConfig & { readonly backend: string })[];
  /** Whether a line with an id that an earlier place has too is a copy of that line. */
  readonly dedupe?: "id" | undefined;
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

export interface MetricsPart {
  readonly backend: string;
  /** The forced labels: every query to Prometheus carries them, which separates tenants. */
  readonly match: Readonly<Record<string, string>>;
}

/** One of several parts. */
export interface MetricsPlace extends MetricsPart {
  /** The label that distinguishes scrapers of one target. */
  readonly replica?: string | undefined;
}

/** Where a browser's error reports are written. */
export interface FrontendPart {
  readonly keys: readonly string[];
  readonly backend: string;
  readonly index: string;
  readonly layout: string;
}

interface ConfigContext extends InterpolationContext {
  readonly kinds: BackendKinds;
}

/** The kinds of backends, by name; each parses its own settings (the entry without `kind`) and its layout files. */
export interface BackendKinds {
  readonly get: (name: string) => KindParser | undefined;
  /** The names of those that the program has. */
  readonly keys: () => Iterable<string>;
  /** Why a name that is no kind cannot be one, where more is known than that. */
  readonly findFault?: (name: string) => string | undefined;
}

interface KindParser {
  parseConfig(value: unknown): unknown;
  readonly layouts?: LayoutReadersByPart;
  findTenantFilterFault?(where: string): string | undefined;
}

/**
 * Parses the content of `file`: fills in defaults, substitutes secrets, resolves paths, and freezes the result deeply.
 *
 * @throws {ConfigError} all issues at once, in the order of the file
 */
export function parseConfig(text: string, file: string, context: ConfigContext): Config {
  return runSteps(parseConfigInSteps(text, file, context));
}

/** As `parseConfig`, for a program that has other work: no step is long, however many sites there are. */
export function* parseConfigInSteps(text: string, file: string, context: ConfigContext): Steps<Config> {
  const written = yield* readYamlTree(text, file, context);
  // A substitution that failed is reported already; further issues of that value would distract.
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
  const backends = parseBackends(tree, context.kinds, report);
  yield;
  checkReferences(tree, file, report);
  yield;
  yield* checkTenantFilters(tree, context.kinds, report);
  const readText = (path: string) => context.readText(resolveBeside(file, path));
  const layouts = readCustomLayouts(tree.value, context.kinds, readText, report);
  const tls = readTlsFiles(tree.value, readText, report);
  const parsed = yield* parseFile(tree.value, report);
  if (issues.length > 0 || parsed === undefined)
    throw new ConfigError(file, sortInFileOrder(issues, yield* tree.findLines()));
  const config = assembleConfig(parsed, backends, layouts, (path) => resolveBeside(file, path));
  for (const [at, site] of Object.values(config.sites).entries()) {
    if (at % sitesPerStep === 0) yield;
    deepFreeze(site);
  }
  return deepFreeze({ ...config, tls });
}

type ParsedFile = z.infer<typeof fileSchema>;

/** How many sites are parsed in one step. */
const sitesPerStep = 200;

/** Returns undefined where the schema is broken, which is then reported. */
function* parseFile(value: unknown, report: IssueReporter): Steps<ParsedFile | undefined> {
  const all = toMapping(value).sites;
  // What is no map is left to the schema.
  const entries = Object.entries(toMapping(all));
  const file = parseWithSchema(
    fileSchema,
    entries.length === 0 ? value : { ...toMapping(value), sites: {} },
    [],
    report,
  );
  const sites: ParsedFile["sites"][] = [];
  for (let first = 0; first < entries.length; first += sitesPerStep) {
    yield;
    const some = Object.fromEntries(entries.slice(first, first + sitesPerStep));
    sites.push(parseWithSchema(fileSchema.shape.sites, some, ["sites"], report) ?? {});
  }
  return file && (entries.length === 0 ? file : { ...file, sites: Object.assign({}, ...sites) });
}

/** Returns undefined where the schema is broken, which is then reported. */
function parseWithSchema<T extends z.ZodType>(
  schema: T,
  value: unknown,
  path: Path,
  report: IssueReporter,
): z.output<T> | undefined {
  const parsed = schema.safeParse(value, { error: explainIssue });
  for (const issue of parsed.error?.issues ?? []) reportIssue(issue, path, report);
  return parsed.data;
}

/** Returns the settings of each backend, parsed by its kind. Reports issues under `backends.<name>`. */
function parseBackends(
  tree: YamlTree,
  kinds: BackendKinds,
  report: IssueReporter,
): ReadonlyMap<string, unknown> {
  const parsed = new Map<string, unknown>();
  for (const [name, entry] of Object.entries(toMapping(toMapping(tree.value).backends))) {
    const { kind: kindName, label: _, ...settings } = toMapping(entry);
    if (typeof kindName !== "string" || kindName === "") continue; // the schema says so
    const kind = kinds.get(kindName);
    if (kind === undefined) {
      const path = ["backends", name, "kind"];
      const fault = kinds.findFault?.(kindName);
      const written = quoteAsWritten(tree, path, kindName);
      const reason =
        fault === undefined
          ? `unknown kind ${written}${formatSuggestion(kindName, [...kinds.keys()])}`
          : `${written}: ${redactSecrets(fault, tree.secrets)}`;
      report(path, reason);
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

function assembleConfig(
  file: ParsedFile,
  settings: ReadonlyMap<string, unknown>,
  layouts: ReadonlyMap<string, CustomLayoutsByPart>,
  resolve: (path: string) => string,
): Config {
  const { look_back, lines_per_millisecond, rollup_bytes, metric_cache_bytes, held_bytes, ...rest } =
    file.limits;
  const {
    token_requests = Math.ceil(rest.requests / 2),
    token_streams = Math.ceil(rest.streams / 2),
    address_connections = Math.ceil(rest.connections / 2),
    ...limits
  } = rest;
  const { lateness, max_open, per_token } = file.tail;
  return {
    listen: "address" in file.listen ? file.listen.address : file.listen,
    publicUrl: file.public_url?.replace(/(?<!\/)\/+$/, ""),
    admin: file.admin,
    proxies: file.proxies,
    origins: [
      ...file.mcp.origins,
      ...(file.public_url === undefined ? [] : [new URL(file.public_url).origin]),
    ],
    intake: file.intake && {
      listen: file.intake.listen,
      spool: resolve(file.intake.spool),
      spoolBytes: file.intake.spool_bytes,
      keyRate: file.intake.key_rate,
      addressRate: file.intake.address_rate,
      proxies: file.intake.proxies,
    },
    tokens: file.tokens.map(({ not_before: notBefore, ...token }) => ({ ...token, notBefore })),
    jwtIssuers: file.auth?.jwt,
    certificates: file.auth?.certificates,
    backends: mapValues(file.backends, ({ kind, label }, name) => ({
      kind,
      label,
      settings: settings.get(name),
      layouts: layouts.get(name),
    })),
    sites: mapValues(file.sites, ({ counter_default: counterDefault, traces, ...rest }) => ({
      ...rest,
      counterDefault,
      ...(traces !== undefined && {
        traces: Array.isArray(traces) ? traces.map(toTracesPart) : toTracesPart(traces),
      }),
    })),
    visuals: file.visuals === undefined ? undefined : resolve(file.visuals),
    graphql: file.graphql && {
      documents: file.graphql.documents === undefined ? undefined : resolve(file.graphql.documents),
      onlyDocuments: file.graphql.only_documents,
      introspection: file.graphql.introspection,
    },
    mesh: file.mesh === undefined ? undefined : resolve(file.mesh),
    otlp: file.otlp,
    rollups: file.rollups,
    freshness: file.freshness,
    audit: file.audit && toAuditConfig(file.audit, resolve),
    compression: {
      codings: file.compression.codings,
      level: file.compression.level,
      minBytes: file.compression.min_bytes,
      loopback: file.compression.loopback,
    },
    limits: {
      ...limits,
      linesPerMillisecond: lines_per_millisecond,
      lookBack: look_back,
      tokenRequests: token_requests,
      tokenStreams: token_streams,
      addressConnections: address_connections,
      rollupBytes: rollup_bytes,
      metricCacheBytes: metric_cache_bytes,
      heldBytes: held_bytes,
      tail: { lateness, maxOpen: max_open, perToken: per_token },
    },
  };
}

type WrittenAudit = NonNullable<z.infer<typeof fileSchema>["audit"]>;

function toAuditConfig(
  { on_full: onFull, file, ...others }: WrittenAudit,
  resolve: (path: string) => string,
): AuditConfig {
  return { ...others, onFull, file: file === undefined ? undefined : resolve(file) };
}

type WrittenTraces = z.infer<typeof tracesSchema>;

function toTracesPart({
  tag_prefixes: tagPrefixes,
  namespace_attribute: namespaceAttribute,
  action_attribute: actionAttribute,
  ...other
}: WrittenTraces): TracesPart {
  return { ...other, tagPrefixes, namespaceAttribute, actionAttribute };
}
