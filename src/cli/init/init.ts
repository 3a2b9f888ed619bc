// `readout init`: surveys a stack and writes a readout.yaml that fits it. Everything that it proposes has passed the same
// inspections as in `check`. The file is complete or absent. It has references to credentials, never the credentials.
import { randomUUID } from "node:crypto";
import { existsSync, linkSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { generateToken, hashToken } from "../../access/auth.ts";
import { type Config, parseConfig } from "../../config/config.ts";
import { httpUrl } from "../../config/validation.ts";
import { BackendError, formatErrorCode, toErrorMessage } from "../../core/errors.ts";
import { type Millis, printInstantToMilli } from "../../core/time.ts";
import type { Backend, BackendInfo } from "../../store/backend.ts";
import type { Survey } from "../../store/inspection.ts";
import { run as check } from "../check/check.ts";
import { printConfigError } from "../support/config-file.ts";
import { describeError, openBackend } from "../support/open-backend.ts";
import { exitCodes, printUsageError, quoteForShell, type Shell } from "../support/shell.ts";
import { findHostMetrics } from "./host-metrics.ts";
import { type ProposedSite, proposeSites } from "./propose.ts";
import { type Draft, type DraftBackend, printBackends, printDraft } from "./render.ts";

export const usage = `Usage: readout init [--elastic URL …] [--prometheus URL …] [--out readout.yaml] [--force] [--site main]
                    [--index PATTERN …] [--user admin] [credentials]

Looks at the indices and data streams, their layouts and services, and at the metrics and their labels; writes a file
with sites and sources for them, with the reasons as comments; prints a token for it; and ends with \`readout check\`.
An Elasticsearch or OpenSearch, a Prometheus, or both. Of several clusters, equal index patterns are one source, and
spans are those of all. Of several Prometheus servers the series are those of all. Credentials are the same for each.

  --out FILE       the file to write, never over one that is there, but with --force
  --site NAME      what the site is called where nothing tells several apart
  --index PATTERN  looks at these alone; for users that may not list all names
  --user USER      whom the token is for

Credentials stand in the file as references, so that they are read from where they are whenever it is. Without options
these are \${ELASTIC_API_KEY}, or \${ELASTIC_USERNAME} and \${ELASTIC_PASSWORD}, and \${PROMETHEUS_BEARER}, or
\${PROMETHEUS_USERNAME} and \${PROMETHEUS_PASSWORD}, as far as they are set. In quotes, for the shell:

  --elastic-api-key, --elastic-bearer, --elastic-password, --prometheus-bearer, --prometheus-password REFERENCE
                   '\${NAME}' for an environment variable or '\${file:PATH}' for a file's text
  --elastic-username, --prometheus-username NAME
                   as it is, or such a reference
  --elastic-ca, --prometheus-ca PATH
                   a PEM file of certificates to trust; relative to the file that is written
`;

const credentials = {
  "elastic-username": { type: "string" },
  "elastic-password": { type: "string" },
  "elastic-api-key": { type: "string" },
  "elastic-bearer": { type: "string" },
  "elastic-ca": { type: "string" },
  "prometheus-username": { type: "string" },
  "prometheus-password": { type: "string" },
  "prometheus-bearer": { type: "string" },
  "prometheus-ca": { type: "string" },
} as const;

const options = {
  elastic: { type: "string", multiple: true },
  prometheus: { type: "string", multiple: true },
  out: { type: "string", default: "readout.yaml" },
  force: { type: "boolean", default: false },
  site: { type: "string", default: "main" },
  user: { type: "string", default: "admin" },
  index: { type: "string", multiple: true },
  ...credentials,
} as const;

/** How long the survey of one backend may take. */
const surveyTimeout: Millis = 120_000;

/** Exit code of `check` on what was written; 1 when nothing could be; 2 for wrong arguments. */
export async function run(args: readonly string[], shell: Shell, deadline = surveyTimeout): Promise<number> {
  let parsed: InitArguments;
  try {
    parsed = readArguments(args, shell.env);
  } catch (error) {
    return printUsageError(`init: ${toErrorMessage(error)}`, usage, shell);
  }
  const { out, force, site, user, backends, patterns } = parsed;
  if (!force && existsSync(out)) {
    shell.err(`${out} is there already; --force replaces it, --out names another\n`);
    return exitCodes.failed;
  }
  let config: Config;
  try {
    config = parseConfig([...printBackends(backends), "sites: {}"].join("\n"), out, shell);
  } catch (error) {
    return printConfigError(error, out, shell);
  }
  const signal = AbortSignal.any([shell.signal, AbortSignal.timeout(deadline)]);
  const surveys = await Promise.all(
    backends.map((backend) => surveyBackend(backend, config, out, patterns, shell, signal)),
  );
  shell.signal.throwIfAborted();
  const found = surveys.filter((one) => "survey" in one);
  if (found.length < surveys.length) {
    for (const one of surveys) if ("failure" in one) shell.err(`${one.failure}\n`);
    shell.err(`Nothing was written.\n`);
    return exitCodes.failed;
  }
  const token = generateToken();
  const proposal = proposeSites(
    found.map(({ draft: { name }, survey }) => ({ backend: name, survey })),
    site,
    shell.now(),
  );
  const sites = await addHostMetrics(proposal.sites, config, out, shell, signal);
  const draft: Draft = {
    preface: [
      `Written by \`readout init\` on ${printInstantToMilli(shell.now()).slice(0, 10)}: a proposal, to be changed as you like.`,
      "`readout check` says what of it works; docs/reference/configuration.md has every key.",
    ],
    listen: "127.0.0.1:8080",
    token: { user, sha256: hashToken(token) },
    backends: found.map(({ draft, info }) => ({ ...draft, reasons: [`${info.product} ${info.version}`] })),
    sites,
    notes: [
      ...found.flatMap(({ survey: { notes, metrics, kubernetes } }) => [
        ...notes,
        ...(metrics?.problems ?? []).map((problem) => `metrics: ${problem}`),
        ...kubernetes.flatMap(({ report }) => report.problems.map((problem) => `kubernetes: ${problem}`)),
      ]),
      ...proposal.notes,
    ],
  };
  const text = printDraft(draft);
  // A file that cannot be parsed would be a defect of this command: better found before it is written.
  parseConfig(text, out, shell);
  try {
    writeAtomically(out, text, force);
  } catch (error) {
    shell.err(`${out}: cannot be written${formatErrorCode(error)}\n`);
    return exitCodes.failed;
  }
  shell.out(describeDraft(draft, out, token));
  return check(["--config", out], shell);
}

// ---- Arguments ----------------------------------------------------------------------------------------------

interface InitArguments {
  readonly out: string;
  readonly force: boolean;
  readonly site: string;
  readonly user: string;
  readonly patterns: readonly string[];
  readonly backends: readonly DraftBackend[];
}

type Values = ReturnType<typeof parseArgs<{ options: typeof options }>>["values"];

/** @throws {Error} what is wrong with the arguments; no message repeats a credential */
function readArguments(args: readonly string[], env: Shell["env"]): InitArguments {
  const { values } = parseArgs({ args: [...args], options });
  const { elastic = [], prometheus = [], out, force, site, user, index: patterns = [] } = values;
  if (elastic.length + prometheus.length === 0) throw new Error("--elastic, --prometheus or both");
  if (!/^[\w.-]+$/.test(site)) throw new Error("--site: expected letters, digits and . _ -");
  for (const [option, urls] of Object.entries({ elastic, prometheus })) {
    if (new Set(urls.map(normaliseAddress)).size < urls.length)
      throw new Error(`--${option}: one address is there twice`);
  }
  if (user.trim() === "") throw new Error("--user is empty");
  if (patterns.some((pattern) => pattern.trim() === "")) throw new Error("--index is empty");
  const backends = [
    ...elastic.map((url, at) => buildBackendDraft(numberName("elk", at), "elastic", url, values, env)),
    ...prometheus.map((url, at) => buildBackendDraft(numberName("prom", at), "prometheus", url, values, env)),
  ];
  return { out, force, site, user, patterns, backends };
}

/** The name of the backend number `at` of a kind, counted from 0. */
function numberName(stem: string, at: number): string {
  return at === 0 ? stem : `${stem}-${at + 1}`;
}

/** One spelling of an address that may be written in several: case of the host, default port, a slash at the end. */
function normaliseAddress(url: string): string {
  return (URL.parse(url)?.href ?? url).replace(/\/$/, "");
}

function buildBackendDraft(
  name: string,
  kind: "elastic" | "prometheus",
  url: string,
  values: Values,
  env: Shell["env"],
): DraftBackend {
  const wrong = httpUrl.safeParse(url).error?.issues[0];
  if (wrong !== undefined) throw new Error(`--${kind}: ${wrong.message}`);
  const ca = values[`${kind}-ca`];
  const auth = readAuthOptions(kind, values) ?? readAuthFromEnvironment(kind, env);
  return { name, kind, url, auth, tls: ca === undefined ? {} : { ca }, reasons: [] };
}

const reference = /^\$\{(?:[A-Za-z_]\w*|file:[^}]+)\}$/;

/** The credentials that options name; undefined without such options. */
function readAuthOptions(kind: "elastic" | "prometheus", values: Values): DraftBackend["auth"] | undefined {
  const given = (option: string): string | undefined => {
    const value = Object.entries(values).find(([key]) => key === `${kind}-${option}`)?.[1];
    if (typeof value !== "string" || option === "username" || reference.test(value)) return value?.toString();
    throw new Error(
      `--${kind}-${option}: expected a reference, '\${NAME}' or '\${file:PATH}': the file would hold what is written here`,
    );
  };
  const all = {
    api_key: given("api-key"),
    bearer: given("bearer"),
    username: given("username"),
    password: given("password"),
  };
  const ways = [all.api_key, all.bearer, all.username ?? all.password].filter((way) => way !== undefined);
  if (ways.length > 1) throw new Error(`--${kind}-…: one way to authenticate is enough`);
  if ((all.username === undefined) !== (all.password === undefined)) {
    throw new Error(`--${kind}-username and --${kind}-password belong together`);
  }
  return ways.length === 0 ? undefined : dropUndefined(all);
}

/** References to the usual environment variables, as far as they are set. */
function readAuthFromEnvironment(kind: "elastic" | "prometheus", env: Shell["env"]): DraftBackend["auth"] {
  const prefix = kind.toUpperCase();
  const ways: readonly Readonly<Record<string, string>>[] = [
    ...(kind === "elastic" ? [{ api_key: `${prefix}_API_KEY` }] : [{ bearer: `${prefix}_BEARER` }]),
    { username: `${prefix}_USERNAME`, password: `${prefix}_PASSWORD` },
  ];
  const set = ways.find((way) => Object.values(way).every((name) => (env[name] ?? "") !== ""));
  return Object.fromEntries(Object.entries(set ?? {}).map(([key, name]) => [key, `\${${name}}`]));
}

function dropUndefined(
  values: Readonly<Record<string, string | undefined>>,
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(values).flatMap(([key, value]) => (value === undefined ? [] : [[key, value]])),
  );
}

// ---- Survey -------------------------------------------------------------------------------------------------

type SurveyOutcome =
  | { readonly draft: DraftBackend; readonly info: BackendInfo; readonly survey: Survey }
  | { readonly failure: string };

async function surveyBackend(
  draft: DraftBackend,
  config: Config,
  out: string,
  patterns: readonly string[],
  shell: Shell,
  signal: AbortSignal,
): Promise<SurveyOutcome> {
  let backend: Backend | undefined;
  try {
    backend = openBackend(draft.name, config, out, shell);
    if (backend?.survey === undefined) return { failure: `--${draft.kind}: there is nothing to look at` };
    const info = await backend.probe(signal);
    return { draft, info, survey: await backend.survey(patterns, signal) };
  } catch (error) {
    const cause = error instanceof BackendError ? `${error.failure}: ` : "";
    const late = signal.aborted && !shell.signal.aborted ? "it takes too long: " : "";
    return { failure: `--${draft.kind} ${draft.url}: ${late}${cause}${describeError(error)}` };
  } finally {
    // The survey is valid even where the connections cannot be closed.
    await backend?.close().catch(() => undefined);
  }
}

/**
 * Adds the names of host metrics where one server has the metrics: several can have no such names. A source that does not answer
 * any more gets none: it has answered the survey.
 */
async function addHostMetrics(
  sites: readonly ProposedSite[],
  config: Config,
  out: string,
  shell: Shell,
  signal: AbortSignal,
): Promise<readonly ProposedSite[]> {
  const addNames = async (site: ProposedSite): Promise<ProposedSite> => {
    const [metrics, ...others] = site.metrics ?? [];
    if (others.length > 0) return site;
    const backend = metrics && openBackend(metrics.backend, config, out, shell);
    const store = backend?.stores.metrics;
    try {
      if (metrics === undefined || store === undefined) return site;
      return {
        ...site,
        metrics: [{ ...metrics, names: await findHostMetrics(store, metrics.match, signal) }],
      };
    } catch (error) {
      shell.signal.throwIfAborted();
      if (!(error instanceof BackendError) && !signal.aborted) throw error;
      return site;
    } finally {
      await backend?.close().catch(() => undefined);
    }
  };
  return await Promise.all(sites.map(addNames));
}

// ---- Writing ------------------------------------------------------------------------------------------------

/** Writes the file completely or not at all; without `force` never over an existing one. Throws what the system throws. */
function writeAtomically(path: string, text: string, force: boolean): void {
  const draft = join(dirname(path), `.${basename(path)}.${randomUUID().slice(0, 8)}`);
  try {
    writeFileSync(draft, text, { flag: "wx" });
    if (force) renameSync(draft, path);
    else linkOrRename(draft, path);
  } finally {
    rmSync(draft, { force: true });
  }
}

function linkOrRename(draft: string, path: string): void {
  try {
    linkSync(draft, path);
  } catch (error) {
    // Some file systems have no links; there the check and the renaming are two steps.
    if (existsSync(path)) throw error;
    renameSync(draft, path);
  }
}

/** As it may be copied from the terminal. Without `--no-install`, npx runs a stranger's package where this one is not installed. */
function printCommand(name: string, out: string): string {
  const path = /^[\w./-]+$/.test(out) ? out : quoteForShell(out);
  return `npx --no-install readout ${name}${out === options.out.default ? "" : ` --config ${path}`}`;
}

function describeDraft({ sites, notes, token: { user } }: Draft, out: string, token: string): string {
  const parts = sites.map((site) => {
    const sources =
      site.logs === undefined ? [] : [`logs (${site.logs.sources.map(({ id }) => id).join(", ")})`];
    const others = (["traces", "metrics", "kubernetes"] as const).filter((part) => site[part] !== undefined);
    return `  ${site.id}: ${[...sources, ...others].join(", ") || "nothing was found"}`;
  });
  return [
    `${out} is written. Its sites:`,
    ...parts,
    ...(notes.length === 0 ? [] : ["", "Left out:", ...notes.map((note) => `  ${note}`)]),
    "",
    `Token (shown this once; whoever holds it reads as ${user}):`,
    "",
    `  ${token}`,
    "",
    `Next: read the file, then \`${printCommand("serve", out)}\`. What \`${printCommand("check", out)}\` says of it:`,
    "",
    "",
  ].join("\n");
}
