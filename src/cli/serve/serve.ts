// `readout serve`: from a configuration to a server that answers, and back. A source that does not answer does not prevent
// the start, because one dead backend must not take an instance out of service; a tenant filter that does not hold does.
// A changed file replaces the running configuration with new backends, since files that they read may have changed too.
// The old backends live until the requests that began with them have ended.
import { isDeepStrictEqual } from "node:util";
import { createAuthenticator, createTokenCheck } from "../../access/auth.ts";
import { createCertificateUsers } from "../../access/certificates.ts";
import { createReloadableJwtVerifier } from "../../access/jwt.ts";
import { createReloadableRateLimit } from "../../access/rate-limit.ts";
import type { Config } from "../../config/config.ts";
import { raceAbort } from "../../core/async/concurrency.ts";
import { runSteps, takeSteps } from "../../core/async/turns.ts";
import { ConfigError, formatErrorCode } from "../../core/errors.ts";
import type { Millis } from "../../core/time.ts";
import { version } from "../../core/version.ts";
import { type DocumentDirectory, openDocumentDirectory } from "../../graphql/document-directory.ts";
import { clientOperations, operations } from "../../operations/index.ts";
import { checkVisual } from "../../operations/metrics/visuals.ts";
import type { QueryRules } from "../../operations/runtime/session.ts";
import { describeSignIn } from "../../server/console-sign-in.ts";
import { createServer, type ServedConfig } from "../../server/server.ts";
import { createOtlpExporter } from "../../telemetry/otlp-exporter.ts";
import { createTelemetry, type Telemetry, type TelemetryOptions } from "../../telemetry/telemetry.ts";
import { openVisualDirectory } from "../../visuals/visual-directory.ts";
import { openConfigFile, readConfigInSteps } from "../support/config-file.ts";
import { createGraphqlLoader } from "../support/graphql-loader.ts";
import { exitCodes, type Shell } from "../support/shell.ts";
import { type AuditKeeper, openAuditKeeper } from "./audit.ts";
import {
  awaitAbort,
  type ConnectedConfig,
  closeAll,
  connectChangedConfig,
  connectConfig,
  watchBackend,
} from "./connected-config.ts";
import { type ErrorIntake, openErrorIntake } from "./error-intake.ts";
import { createSerialRunner, createWatchingShell } from "./file-watch.ts";
import { watchFreshness } from "./freshness.ts";
import { runRollers } from "./rollers.ts";

export const usage = `Usage: readout serve [--config readout.yaml]

Serves the read API. Prints its address when it answers; the request log goes to standard error.
SIGTERM or Ctrl-C: no new connections, requests under way finish, exit code 0.
SIGHUP, or a change of the file or of one that it names (secrets, certificates, layouts): reads them all again; a wrong
one changes nothing. \`listen\`, \`admin.listen\`, \`mesh\` (also its content, once GraphQL is loaded), \`intake.listen\` and
the spool need a restart. SIGHUP also opens the file of the audit log again.
`;

/** How long running requests may take after the signal to end. */
const drainTimeout: Millis = 20_000;

/** How long all that they are written to may take after that: the audit log, traces, reports. What is late is lost. */
const flushTimeout: Millis = 8_000;

/** How long the last of the program's own traces may take to be sent. */
const traceFlushTimeout: Millis = 5_000;

/** Exit code 0 after a drain, 1 when the configuration cannot be served, 2 for wrong arguments. */
export async function run(args: readonly string[], shell: Shell): Promise<number> {
  const { reading, watch } = createWatchingShell(shell);
  const opened = openConfigFile("serve", usage, args, reading);
  if (typeof opened === "number") return opened;
  const { file, config } = opened;
  return serve(config, reading, {
    file,
    again: { read: (signal) => takeSteps(readConfigInSteps(file, reading), signal), watch },
    level: "info",
    listening: (address) => shell.out(`Readout listens on ${address}\n`),
    inUse: (address) => `${address} is in use; set another \`listen\` in ${file}`,
  });
}

interface ServeOptions {
  /** The configuration file; paths of backends are relative to it. */
  readonly file: string;
  /** Absent where no file can change. */
  readonly again?: {
    /** @throws {ConfigError} */
    readonly read: (signal: AbortSignal) => Promise<Config>;
    /** Calls `changed` when any file changes from which the configuration was read, until `signal` aborts. */
    readonly watch: (changed: () => void, signal: AbortSignal) => void;
  };
  readonly level: NonNullable<TelemetryOptions["level"]>;
  /** Called with `http://host:port` once REST answers and signals are handled. */
  readonly listening: (address: string) => void;
  /** The message where the port is in use. */
  readonly inUse: (address: string) => string;
}

/** A server that runs, with everything that a reload replaces. */
interface RunningServer {
  readonly shell: Shell;
  readonly options: ServeOptions;
  readonly telemetry: Telemetry;
  readonly exporter: ReturnType<typeof createOtlpExporter>;
  readonly graphql: ReturnType<typeof createGraphqlLoader>;
  readonly visuals: Awaited<ReturnType<typeof openVisualDirectory>>;
  readonly documents: DocumentDirectory;
  readonly server: ReturnType<typeof createServer>;
  readonly errorIntake: ErrorIntake | undefined;
  readonly audit: AuditKeeper;
  /** The configuration of the start: some settings stay until a restart. */
  readonly first: Config;
  /** The configuration now. */
  readonly state: { current: ConnectedConfig };
  readonly toServed: (connected: ConnectedConfig) => ServedConfig;
  /** What must end before the program: watches, reloads, and backends that old requests use. */
  readonly unfinished: Promise<unknown>[];
  /** Aborted when the program has to end because a tenant filter does not hold. */
  readonly failed: AbortController;
  /** Aborts when the program has to end. */
  readonly signal: AbortSignal;
}

/**
 * Serves until `shell.signal` aborts, or until a backend shows that a tenant filter of a site does not hold. Exit codes as
 * `run`.
 */
export async function serve(config: Config, shell: Shell, options: ServeOptions): Promise<number> {
  const running = await startServer(config, shell, options).catch((error: unknown) => {
    if (!(error instanceof ConfigError)) throw error;
    shell.err(`${error.message}\n`);
  });
  if (running === undefined) return exitCodes.failed;
  const address = await listen(running);
  if (address === undefined) return exitCodes.failed;
  watchBackends(running, running.state.current);
  startRollers(running, running.state.current);
  startFreshness(running, running.state.current);
  reloadOnChange(running);
  // Last, so that its reader may send signals.
  options.listening(address);
  await awaitAbort(running.signal);
  return drain(running);
}

/** Connects and builds everything, but does not listen yet. @throws {ConfigError} */
async function startServer(config: Config, shell: Shell, options: ServeOptions): Promise<RunningServer> {
  const telemetry = createTelemetry({ write: shell.err, level: options.level, process: shell });
  const now = () => shell.now();
  const { log, recordExportedSpans: exported } = telemetry;
  const exporter = createOtlpExporter({ config: config.otlp, now, log, exported });
  const createVerifier = createReloadableJwtVerifier(now);
  const createRateLimit = createReloadableRateLimit(() => performance.now());
  const toServed = ({ config, sites }: ConnectedConfig): ServedConfig => ({
    ...describeServed(config),
    authenticate: createAuthenticator(config.tokens, now, {
      rate: createRateLimit(config.limits.rate),
      recordUse: telemetry.recordUse,
      verifyJwt: createVerifier(config.jwtIssuers ?? []),
      findCertificateUser: createCertificateUsers(config.certificates ?? [], now),
    }),
    sites,
    queryRules: describeQueryRules(config, documents),
  });
  telemetry.addLimitReader(() => ({ rate: createRateLimit(state.current.config.limits.rate).measureUse() }));
  const state = { current: runSteps(connectConfig(config, shell, options.file, telemetry)) };
  const documents = await openDocumentDirectory({
    folder: () => state.current.config.graphql?.documents,
    log,
  });
  const served = toServed(state.current);
  const errorIntake = config.intake && (await openErrorIntake(config.intake, served.sites, telemetry, now));
  const audit = await openAuditKeeper(config.audit, telemetry, now);
  log({ level: "info", message: `readout ${version}`, version });
  const failed = new AbortController();
  const visuals = await openVisualDirectory({
    folder: () => state.current.config.visuals,
    check: checkVisual,
    log,
    deadline: () => state.current.config.limits.deadline,
  });
  const graphql = createGraphqlLoader(config, shell, telemetry);
  const server = createServer({
    operations: [...operations, ...clientOperations],
    loadGraphql: graphql.load,
    ...served,
    audit: audit.log(),
    telemetry,
    now,
    startSpan: exporter.startRequestSpan,
    visuals,
    hasProbeAddress: config.admin !== undefined,
    intake: config.intake?.listen === undefined ? errorIntake?.intake : undefined,
    isReady: () => state.current.untried.size === 0,
    describeBackends: () => [
      ...[...state.current.states].map(([name, state]) => `${name}: ${state}`),
      `graphql: ${graphql.state()}`,
    ],
  });
  return {
    shell,
    options,
    telemetry,
    exporter,
    graphql,
    visuals,
    documents,
    server,
    errorIntake,
    audit,
    first: config,
    state,
    toServed,
    unfinished: [],
    failed,
    signal: AbortSignal.any([shell.signal, failed.signal]),
  };
}

/** What is served as the configuration says it, whatever is connected. */
function describeServed(config: Config): Omit<ServedConfig, "authenticate" | "sites" | "queryRules"> {
  return {
    isToken: createTokenCheck(config.tokens),
    limits: config.limits,
    compression: config.compression,
    proxies: config.proxies,
    resource: describeResource(config),
    signIn: describeSignIn(config),
    origins: config.origins,
    publicUrl: config.publicUrl,
    tls: config.tls,
  };
}

function describeQueryRules({ graphql }: Config, documents: DocumentDirectory): QueryRules | undefined {
  if (graphql === undefined) return undefined;
  const { documents: folder, onlyDocuments, introspection } = graphql;
  return { findDocument: folder === undefined ? undefined : documents.find, onlyDocuments, introspection };
}

function describeResource({ publicUrl, jwtIssuers = [] }: Config): ServedConfig["resource"] {
  if (publicUrl === undefined || jwtIssuers.length === 0) return undefined;
  return { publicUrl, issuers: jwtIssuers.map(({ issuer }) => issuer) };
}

/** Returns the address of the read API; undefined where it cannot listen, which is then printed. */
async function listen(running: RunningServer): Promise<string | undefined> {
  const { shell, options, server, errorIntake, audit, visuals, documents, first, state } = running;
  let tried = first.intake?.listen ?? first.listen;
  try {
    await errorIntake?.listen();
    if (first.admin !== undefined) {
      tried = first.admin.listen;
      await server.listenForProbes(tried);
    }
    tried = first.listen;
    const { host, port } = await server.listen(first.listen);
    return printAddress(host, port, first.tls === undefined ? "http" : "https");
  } catch (error) {
    const address = printAddress(tried.host, tried.port);
    const reason = formatErrorCode(error);
    const isInUse = reason.includes("EADDRINUSE");
    shell.err(`${isInUse ? options.inUse(address) : `${address}: cannot listen${reason}`}\n`);
    visuals.close();
    documents.close();
    await server.close(0);
    await errorIntake?.close(0);
    await audit.close();
    await closeAll(state.current.backends);
    return undefined;
  }
}

function watchBackends(running: RunningServer, connected: ConnectedConfig): void {
  const { shell, telemetry, unfinished, failed, signal } = running;
  const watched = AbortSignal.any([signal, connected.replaced.signal]);
  for (const backend of connected.backends.values()) {
    unfinished.push(
      watchBackend(backend, connected, telemetry, watched).then((problems) => {
        if (problems === undefined) return;
        for (const problem of problems) shell.err(`${problem}\n`);
        failed.abort(new Error("a tenant filter does not hold"));
      }),
    );
  }
}

/** Tells how fresh the sources are until the program ends or another configuration takes its place. */
function startFreshness({ telemetry, unfinished, signal }: RunningServer, connected: ConnectedConfig): void {
  unfinished.push(watchFreshness(connected, telemetry, AbortSignal.any([signal, connected.replaced.signal])));
}

/** Makes figures until the program ends or another configuration takes its place. */
function startRollers(running: RunningServer, connected: ConnectedConfig): void {
  const { shell, telemetry, unfinished, signal } = running;
  const until = AbortSignal.any([signal, connected.replaced.signal]);
  const { rollupStore, keptTelemetry } = connected;
  const ofRollers = { log: telemetry.log, recordRolled: keptTelemetry.recordRolled };
  connected.rollers = runRollers(connected, rollupStore, ofRollers, () => shell.now(), until);
  unfinished.push(connected.rollers);
}

function reloadOnChange(running: RunningServer): void {
  const { shell, options, telemetry, unfinished, signal } = running;
  const { again } = options;
  if (again === undefined) return;
  const reload = createSerialRunner(() => reloadConfig(running, again.read));
  const onChange = () => {
    const onError = (err: unknown) => telemetry.log({ level: "error", message: "not reloaded", err });
    unfinished.push(reload().catch(onError));
  };
  again.watch(onChange, signal);
  const onHangup = () => {
    onChange();
    running.audit.reopen();
  };
  shell.onHangup(onHangup, signal);
}

async function reloadConfig(
  running: RunningServer,
  read: (signal: AbortSignal) => Promise<Config>,
): Promise<void> {
  const { shell, options, telemetry, graphql, first, signal } = running;
  const connect = async () =>
    takeSteps(connectConfig(await read(signal), shell, options.file, telemetry), signal);
  const next = await connectChangedConfig(connect, telemetry, signal);
  if (next === undefined) return;
  if (!(await replaceAudit(running, next.config))) return closeAll(next.backends);
  const isChanged = ([, read]: RestartSetting) => !isDeepStrictEqual(read(next.config), read(first));
  const kept = new Set(restartSettings.filter(isChanged).map(([name]) => name));
  if (graphql.isOutdated()) kept.add("mesh");
  for (const name of kept) telemetry.log({ level: "warn", message: `a change of ${name} needs a restart` });
  const takeFolders = await prepareFolders(running, next.config);
  replaceConfig(running, next);
  takeFolders();
  telemetry.log({ level: "info", message: "reloaded", file: options.file });
}

/** Whether the audit log is as the configuration says; else why is logged, and all is as it was. */
async function replaceAudit(
  { audit, telemetry }: RunningServer,
  { audit: config }: Config,
): Promise<boolean> {
  try {
    await audit.configure(config);
    return true;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const problems = error.message.split("\n");
    telemetry.log({ level: "error", message: "not reloaded: the configuration is wrong", problems });
    return false;
  }
}

/** Reads the folders that the configuration names. What it returns takes their files: not before the configuration counts. */
async function prepareFolders(
  { visuals, documents }: RunningServer,
  { visuals: visualFolder, graphql }: Config,
): Promise<() => void> {
  const prepared = [visuals.prepare(visualFolder), documents.prepare(graphql?.documents)];
  const takes = await Promise.all(prepared);
  return () => {
    for (const take of takes) take();
  };
}

function replaceConfig(running: RunningServer, next: ConnectedConfig): void {
  const { audit, exporter, server, errorIntake, first, toServed, unfinished, state } = running;
  const old = state.current;
  state.current = next;
  old.replaced.abort();
  exporter.configure(next.config.otlp);
  watchBackends(running, next);
  startRollers(running, next);
  startFreshness(running, next);
  const served = { ...toServed(next), audit: audit.log() };
  // An intake that is no longer in the file runs until the restart, but must not keep the old backends.
  const intake = next.config.intake ?? first.intake;
  const over = [server.reload(served), intake && errorIntake?.replace(intake, served.sites), old.rollers];
  const closeOld = async () => {
    await closeAll(old.backends);
    old.keptTelemetry.close();
  };
  unfinished.push(Promise.all(over).then(closeOld));
}

/** Ends everything, at once after a failure. Returns the exit code. */
async function drain(running: RunningServer): Promise<number> {
  const { telemetry, visuals, documents, server, errorIntake, audit, exporter, unfinished, failed } = running;
  telemetry.log({ level: "info", message: "draining" });
  visuals.close();
  documents.close();
  const hasFailed = failed.signal.aborted;
  const grace = hasFailed ? 0 : drainTimeout;
  const until = performance.now() + grace;
  // Senders of reports must close before their connections are waited for. There may always be one that sends.
  await Promise.all([
    server.close(grace),
    errorIntake && endsWithin(errorIntake.intake.close(), drainTimeout),
  ]);
  await errorIntake?.close(Math.max(0, until - performance.now()));
  const flushed = Promise.all([audit.close(), exporter.close(traceFlushTimeout), ...unfinished]).then(() =>
    closeAll(running.state.current.backends),
  );
  if (!(await endsWithin(flushed, flushTimeout)))
    telemetry.log({ level: "warn", message: "ended before everything was written" });
  return hasFailed ? exitCodes.failed : exitCodes.done;
}

/** Whether it has; its failure is thrown. */
async function endsWithin(work: Promise<unknown>, length: Millis): Promise<boolean> {
  const late = AbortSignal.timeout(length);
  try {
    await raceAbort(work, late);
    return true;
  } catch (error) {
    if (error !== late.reason) throw error;
    return false;
  }
}

type RestartSetting = readonly [name: string, read: (config: Config) => unknown];

/** Settings that a running program cannot change. */
const restartSettings: readonly RestartSetting[] = [
  ["listen", ({ listen, tls }) => [listen, tls !== undefined]],
  ["admin.listen", ({ admin }) => admin?.listen],
  ["mesh", ({ mesh }) => mesh],
  ["intake's address or spool", ({ intake }) => intake && [intake.listen, intake.spool, intake.spoolBytes]],
];

function printAddress(host: string, port: number, scheme = "http"): string {
  return `${scheme}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}
