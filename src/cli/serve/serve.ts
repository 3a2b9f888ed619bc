// `readout serve`: from a configuration to a server that answers, and back. A source that is down does not stop the
// start, because one dead backend must take no instance out; a wall between tenants that does not hold does. A changed
// file takes the place of the one before: all of its backends are made anew, since files that they read (certificates,
// layouts) may have changed too, and the old ones live until the requests that began with them are over.
import { isDeepStrictEqual } from "node:util";
import { createAuthenticator } from "../../access/auth.ts";
import { createReloadableRateLimit } from "../../access/rate-limit.ts";
import { connectSites } from "../../access/sites.ts";
import type { Config } from "../../config/config.ts";
import { resolveBeside } from "../../config/yaml.ts";
import { mapConcurrent } from "../../core/concurrency.ts";
import { ConfigError, formatErrorCode, type Issue, toErrorMessage } from "../../core/errors.ts";
import type { Millis } from "../../core/time.ts";
import { version } from "../../core/version.ts";
import { operations } from "../../operations/index.ts";
import { checkVisual } from "../../operations/metrics/visuals.ts";
import { createServer, type ServedConfig } from "../../server/server.ts";
import type { Backend, IO } from "../../store/backend.ts";
import { createOtlpExporter } from "../../telemetry/otlp-exporter.ts";
import {
  createTelemetry,
  redactCredentials,
  type Telemetry,
  type TelemetryOptions,
} from "../../telemetry/telemetry.ts";
import { openVisualDirectory } from "../../visuals/visual-directory.ts";
import { openConfigFile, readConfig } from "../support/config-file.ts";
import { createGraphqlLoader } from "../support/graphql-loader.ts";
import { exitCodes, type Shell } from "../support/shell.ts";
import { listInspections, type SiteInspection } from "../support/site-inspections.ts";
import { type ErrorIntake, openErrorIntake } from "./error-intake.ts";

export const usage = `Usage: readout serve [--config readout.yaml]

Serves the read API. Prints its address when it answers; the request log goes to standard error.
SIGTERM or Ctrl-C: no new connections, requests under way finish, exit code 0.
SIGHUP, or a change of the file or of one that it names (secrets, certificates, layouts): reads them all again; a wrong
one changes nothing. \`listen\`, \`mesh\` (also its content, once GraphQL has been asked for), \`intake.listen\` and the
spool need a restart.
`;

/** How long requests under way may take when the server is told to end. */
const drainTimeout: Millis = 20_000;
/** How long the last of the program's own traces may take to be sent. */
const traceFlushTimeout: Millis = 2_000;
/** How often each backend is asked whether it is there, and how long it has for each answer. */
const probeInterval: Millis = 30_000;
const answerTimeout: Millis = 10_000;
/** How many of its sources are looked at together. */
const maxConcurrentInspections = 4;

/** Exit code 0 after a drain, 1 when the configuration cannot be served, 2 for wrong arguments. */
export async function run(args: readonly string[], shell: Shell): Promise<number> {
  const { reading, watch } = createWatchingShell(shell);
  const opened = openConfigFile("serve", usage, args, reading);
  if (typeof opened === "number") return opened;
  const { file, config } = opened;
  return serve(config, reading, {
    file,
    again: { read: () => readConfig(file, reading), watch },
    level: "info",
    listening: (address) => shell.out(`Readout listens on ${address}\n`),
    inUse: (address) => `${address} is in use; set another \`listen\` in ${file}`,
  });
}

interface ServeOptions {
  /** Paths of backends are relative to it. */
  readonly file: string;
  /** Absent where no file can change. */
  readonly again?: {
    /** @throws {ConfigError} */
    readonly read: () => Config;
    /** Calls `changed` when any file is another one that the configuration was ever read from, until `signal` aborts. */
    readonly watch: (changed: () => void, signal: AbortSignal) => void;
  };
  readonly level: NonNullable<TelemetryOptions["level"]>;
  /** Called once REST answers and signals are heeded, with `http://host:port`. */
  readonly listening: (address: string) => void;
  /** What to say when the port is taken. */
  readonly inUse: (address: string) => string;
}

/** One state of the configuration: its backends, and what has been seen of them. */
interface ConnectedConfig {
  readonly config: Config;
  readonly backends: ReadonlyMap<string, Backend>;
  /** By backend, for `/readyz`. */
  readonly states: Map<string, string>;
  /** Backends whose sources have been looked at. */
  readonly described: Set<string>;
  /** Aborted when another configuration takes its place. */
  readonly left: AbortController;
}

/** Serves until `shell.signal` aborts, or until a backend shows that a site's wall does not hold. Exit codes as `run`. */
export async function serve(config: Config, shell: Shell, serving: ServeOptions): Promise<number> {
  const telemetry = createTelemetry({ write: shell.err, level: serving.level, processMetrics: true });
  const now = () => shell.now();
  const { log, exported } = telemetry;
  const exporter = createOtlpExporter({ config: config.otlp, now, log, exported });
  const connect = (config: Config): ConnectedConfig => {
    const backends = connectBackends(config, shell, serving.file, telemetry);
    const states = new Map([...backends.keys()].map((name) => [name, "not asked yet"]));
    return { config, backends, states, described: new Set(), left: new AbortController() };
  };
  const rateOf = createReloadableRateLimit(() => performance.now());
  const servedBy = ({ config, backends }: ConnectedConfig): ServedConfig => ({
    authenticate: createAuthenticator(config.tokens, now, rateOf(config.limits.rate)),
    sites: connectSites(config, backends),
    limits: config.limits,
  });
  let current: ConnectedConfig;
  let reports: ErrorIntake | undefined;
  try {
    current = connect(config);
    const { sites } = servedBy(current);
    reports = config.intake && (await openErrorIntake(config.intake, sites, telemetry, now));
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    shell.err(`${error.message}\n`);
    return exitCodes.failed;
  }
  log({ level: "info", message: `readout ${version}`, version });
  const gallery = await openVisualDirectory({
    folder: () => current.config.visuals,
    check: checkVisual,
    log: telemetry.log,
    deadline: () => current.config.limits.deadline,
  });
  const graphql = createGraphqlLoader(config, shell, telemetry);
  const server = createServer({
    operations,
    loadGraphql: graphql.load,
    ...servedBy(current),
    telemetry,
    now,
    startSpan: exporter.startRequestSpan,
    visuals: gallery,
    intake: config.intake?.listen === undefined ? reports?.intake : undefined,
    describeBackends: () => [
      ...[...current.states].map(([name, state]) => `${name}: ${state}`),
      `graphql: ${graphql.state()}`,
    ],
  });
  const end = new AbortController();
  const signal = AbortSignal.any([shell.signal, end.signal]);
  let code: number = exitCodes.done;
  let wanted = config.intake?.listen ?? config.listen;
  let reached: string;
  try {
    await reports?.listen();
    wanted = config.listen;
    const { host, port } = await server.listen(config.listen);
    reached = printAddress(host, port);
  } catch (error) {
    const address = printAddress(wanted.host, wanted.port);
    const reason = formatErrorCode(error);
    shell.err(
      `${reason.includes("EADDRINUSE") ? serving.inUse(address) : `${address}: cannot listen${reason}`}\n`,
    );
    gallery.close();
    await reports?.close(0);
    await closeAll(current.backends);
    return exitCodes.failed;
  }
  /** What still has to end before the program may: watches, reloads, and backends that old requests use. */
  const unfinished: Promise<unknown>[] = [];
  const watchAll = (connection: ConnectedConfig) => {
    const watched = AbortSignal.any([signal, connection.left.signal]);
    for (const backend of connection.backends.values()) {
      unfinished.push(
        watchBackend(backend, connection, telemetry, watched).then((fallen) => {
          if (fallen === undefined) return;
          for (const problem of fallen) shell.err(`${problem}\n`);
          code = exitCodes.failed;
          end.abort(new Error("a wall between tenants does not hold"));
        }),
      );
    }
  };
  const replace = (next: ConnectedConfig) => {
    const old = current;
    current = next;
    old.left.abort();
    exporter.configure(next.config.otlp);
    watchAll(next);
    const served = servedBy(next);
    // An intake that is no longer in the file stays until the restart, and may not keep the old backends.
    const intake = next.config.intake ?? config.intake;
    const over = [server.reload(served), intake && reports?.replace(intake, served.sites)];
    unfinished.push(Promise.all(over).then(() => closeAll(old.backends)));
  };
  watchAll(current);
  const { again } = serving;
  if (again !== undefined) {
    const reload = createSerialRunner(async () => {
      const next = await connectChangedConfig(() => connect(again.read()), telemetry, signal);
      if (next === undefined) return;
      const changed = ([, bound]: RestartSetting) => !isDeepStrictEqual(bound(next.config), bound(config));
      const kept = new Set(restartSettings.filter(changed).map(([what]) => what));
      if (graphql.isOutdated()) kept.add("mesh");
      for (const what of kept)
        telemetry.log({ level: "warn", message: `a change of ${what} needs a restart` });
      replace(next);
      telemetry.log({ level: "info", message: "reloaded", file: serving.file });
    });
    const changed = () => {
      const failed = (err: unknown) => telemetry.log({ level: "error", message: "not reloaded", err });
      unfinished.push(reload().catch(failed));
    };
    again.watch(changed, signal);
    shell.onHangup(changed, signal);
  }
  // Last, so that whoever reads it may send signals.
  serving.listening(reached);
  await awaitAbort(signal);
  telemetry.log({ level: "info", message: "draining" });
  gallery.close();
  const patience = code === exitCodes.done ? drainTimeout : 0;
  // Senders of reports are told to go before their connections are waited for.
  await Promise.all([server.close(patience), reports?.intake.close()]);
  await reports?.close(patience);
  await Promise.all([...unfinished, exporter.close(traceFlushTimeout)]);
  await closeAll(current.backends);
  return code;
}

/**
 * A shell that remembers which files were read through it, and how to be told of their changes: the configuration, and
 * the secrets, certificates and layouts that it names. One that is no longer named stays watched: the reload that it may
 * still cause changes nothing.
 */
function createWatchingShell(shell: Shell) {
  const paths = new Set<string>();
  let missed = false;
  let tell = (): void => {
    missed = true;
  };
  const reading: Shell = {
    ...shell,
    readText(path) {
      // Before it is read, and also where it cannot be: a file that is missing may come.
      if (!paths.has(path)) shell.onChange(path, () => tell(), shell.signal);
      paths.add(path);
      return shell.readText(path);
    },
  };
  const watch = (changed: () => void, signal: AbortSignal) => {
    tell = () => {
      if (!signal.aborted) changed();
    };
    if (missed) tell();
  };
  return { reading, watch };
}

type RestartSetting = readonly [what: string, bound: (config: Config) => unknown];

/** What a running program cannot let go of. */
const restartSettings: readonly RestartSetting[] = [
  ["listen", ({ listen }) => listen],
  ["mesh", ({ mesh }) => mesh],
  ["intake's address or spool", ({ intake }) => intake && [intake.listen, intake.spool, intake.spoolBytes]],
];

function printAddress(host: string, port: number): string {
  return `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** @throws {ConfigError} when a backend's settings cannot be used */
function connectBackends(
  config: Config,
  shell: Shell,
  file: string,
  telemetry: Telemetry,
): ReadonlyMap<string, Backend> {
  const io: IO = {
    now: () => shell.now(),
    log: telemetry.log,
    requested: telemetry.requested,
    cache: telemetry.cache,
    readText: (path) => shell.readText(resolveBeside(file, path)),
  };
  const backends = new Map<string, Backend>();
  const issues: Issue[] = [];
  for (const [name, { kind, settings, layouts }] of Object.entries(config.backends)) {
    try {
      const backend = shell.kinds.get(kind)?.create(name, settings, io, layouts);
      if (backend !== undefined) backends.set(name, backend);
    } catch (error) {
      const message = redactCredentials(toErrorMessage(error));
      issues.push({ path: `backends.${name}`, message });
    }
  }
  if (issues.length === 0) return backends;
  void closeAll(backends);
  throw new ConfigError(file, issues);
}

/**
 * The connection that a changed file makes, or undefined when the file is wrong, which has been logged. Its walls are
 * looked at first: what would end the program at a start must not end it now. A backend that does not answer is watched
 * as after a start.
 */
async function connectChangedConfig(
  connect: () => ConnectedConfig,
  telemetry: Telemetry,
  signal: AbortSignal,
): Promise<ConnectedConfig | undefined> {
  const refuse = (problems: readonly string[]): undefined => {
    telemetry.log({ level: "error", message: "not reloaded: the configuration is wrong", problems });
  };
  let next: ConnectedConfig;
  try {
    next = connect();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return refuse(error.message.split("\n"));
  }
  const found = [...next.backends.values()].map(async (backend) => {
    const fallen = await inspectSources(backend, next.config, telemetry, signal).catch(() => undefined);
    if (fallen !== undefined) next.described.add(backend.name);
    return fallen ?? [];
  });
  const fallen = (await Promise.all(found)).flat();
  if (fallen.length === 0 && !signal.aborted) return next;
  await closeAll(next.backends);
  return signal.aborted ? undefined : refuse(fallen);
}

/** Runs `work` when it is asked for; asked while it runs, once more afterwards. */
function createSerialRunner(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | undefined;
  let again = false;
  const run = async () => {
    try {
      while (again) {
        again = false;
        await work();
      }
    } finally {
      running = undefined;
    }
  };
  return () => {
    again = true;
    running ??= run();
    return running;
  };
}

async function closeAll(backends: ReadonlyMap<string, Backend>): Promise<void> {
  await Promise.allSettled([...backends.values()].map((backend) => backend.close()));
}

/**
 * Keeps a backend's state for `/readyz`, and looks once, as soon as the backend answers, at every source that lies
 * in it. Resolves with what is wrong with a source's `where`, or undefined when `signal` aborts.
 */
async function watchBackend(
  backend: Backend,
  { config, states, described }: ConnectedConfig,
  telemetry: Telemetry,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  while (!signal.aborted) {
    try {
      const { product, version } = await backend.probe(addAnswerTimeout(signal));
      if (!described.has(backend.name)) {
        const fallen = await inspectSources(backend, config, telemetry, signal);
        if (fallen.length > 0) return fallen;
        described.add(backend.name);
      }
      tell(`${product} ${version}`);
    } catch (error) {
      if (signal.aborted) return undefined;
      tell("does not answer", error);
    }
    await awaitAbort(AbortSignal.any([signal, AbortSignal.timeout(probeInterval)]));
  }
  return undefined;

  function tell(state: string, error?: unknown): void {
    if (states.get(backend.name) === state) return;
    states.set(backend.name, state);
    const level = error === undefined ? "info" : "warn";
    const reason = error instanceof Error ? error.message : undefined;
    telemetry.log({ level, message: "backend", backend: backend.name, state, reason });
  }
}

/** Logs what was found in the backend and every problem; the answer holds those of `where`. @throws {BackendError} */
async function inspectSources(
  backend: Backend,
  config: Config,
  telemetry: Telemetry,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const look = async (
    { path, inspect: ask }: SiteInspection,
    signal: AbortSignal,
  ): Promise<readonly string[]> => {
    const { rows, problems } = await ask(addAnswerTimeout(signal));
    telemetry.log({ level: "info", message: "found", path, found: rows.map((row) => row.join(", ")) });
    for (const problem of problems) telemetry.log({ level: "error", message: "problem", path, problem });
    return problems.filter((problem) => problem.startsWith("where:")).map((problem) => `${path}: ${problem}`);
  };
  return (
    await mapConcurrent(listInspections(backend, config), maxConcurrentInspections, look, signal)
  ).flat();
}

function addAnswerTimeout(signal: AbortSignal): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(answerTimeout)]);
}

function awaitAbort(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
