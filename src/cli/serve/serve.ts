// `readout serve`: from a configuration to a server that answers, and back. A source that is down does not stop the
// start, because one dead backend must take no instance out; a wall between tenants that does not hold does. A changed
// file takes the place of the one before: all of its backends are made anew, since files that they read (certificates,
// layouts) may have changed too, and the old ones live until the requests that began with them are over.
import { isDeepStrictEqual } from "node:util";
import { createAuthenticator } from "../../access/auth.ts";
import { rememberRate } from "../../access/rate-limit.ts";
import { connectSites } from "../../access/sites.ts";
import type { Config } from "../../config/config.ts";
import { resolveBeside } from "../../config/yaml.ts";
import { parallel } from "../../core/concurrency.ts";
import { ConfigError, failureCode, type Issue, messageOf } from "../../core/errors.ts";
import type { Millis } from "../../core/time.ts";
import { version } from "../../core/version.ts";
import { operations } from "../../operations/index.ts";
import { checkVisual } from "../../operations/metrics/visuals.ts";
import { createServer, type Served } from "../../server/server.ts";
import type { Backend, IO } from "../../store/store.ts";
import { createExporter } from "../../telemetry/otlp-exporter.ts";
import { createTelemetry, redact, type Telemetry, type TelemetryOptions } from "../../telemetry/telemetry.ts";
import { openGallery } from "../../visuals/visual-directory.ts";
import { openFile, readConfig } from "../support/config-file.ts";
import { prepareGraphql } from "../support/graphql-loader.ts";
import { exitCodes, type Shell } from "../support/shell.ts";
import { type Question, questionsFor } from "../support/site-inspections.ts";
import { openReports, type Reports } from "./error-intake.ts";

export const usage = `Usage: readout serve [--config readout.yaml]

Serves the read API. Prints its address when it answers; the request log goes to standard error.
SIGTERM or Ctrl-C: no new connections, requests under way finish, exit code 0.
SIGHUP, or a change of the file or of one that it names (secrets, certificates, layouts): reads them all again; a wrong
one changes nothing. \`listen\`, \`mesh\` (also its content, once GraphQL has been asked for), \`intake.listen\` and the
spool need a restart.
`;

/** How long requests under way may take when the server is told to end. */
const grace: Millis = 20_000;
/** How long the last of the program's own traces may take to be sent. */
const farewell: Millis = 2_000;
/** How often each backend is asked whether it is there, and how long it has for each answer. */
const probeEvery: Millis = 30_000;
const patienceOfAnswer: Millis = 10_000;
/** How many of its sources are looked at together. */
const lookedAtOnce = 4;

/** Exit code 0 after a drain, 1 when the configuration cannot be served, 2 for wrong arguments. */
export async function run(args: readonly string[], shell: Shell): Promise<number> {
  const { reading, watch } = watchingReads(shell);
  const opened = openFile("serve", usage, args, reading);
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

interface Serving {
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
interface Connection {
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
export async function serve(config: Config, shell: Shell, serving: Serving): Promise<number> {
  const telemetry = createTelemetry({ write: shell.err, level: serving.level, processMetrics: true });
  const now = () => shell.now();
  const { log, exported } = telemetry;
  const exporter = createExporter({ config: config.otlp, now, log, exported });
  const connect = (config: Config): Connection => {
    const backends = connectBackends(config, shell, serving.file, telemetry);
    const states = new Map([...backends.keys()].map((name) => [name, "not asked yet"]));
    return { config, backends, states, described: new Set(), left: new AbortController() };
  };
  const rateOf = rememberRate(() => performance.now());
  const servedBy = ({ config, backends }: Connection): Served => ({
    authenticate: createAuthenticator(config.tokens, now, rateOf(config.limits.rate)),
    sites: connectSites(config, backends),
    limits: config.limits,
  });
  let current: Connection;
  let reports: Reports | undefined;
  try {
    current = connect(config);
    const { sites } = servedBy(current);
    reports = config.intake && (await openReports(config.intake, sites, telemetry, now));
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    shell.err(`${error.message}\n`);
    return exitCodes.failed;
  }
  log({ level: "info", message: `readout ${version}`, version });
  const gallery = await openGallery({
    folder: () => current.config.visuals,
    check: checkVisual,
    log: telemetry.log,
    deadline: () => current.config.limits.deadline,
  });
  const graphql = prepareGraphql(config, shell, telemetry);
  const server = createServer({
    operations,
    graphql: graphql.load,
    ...servedBy(current),
    telemetry,
    now,
    begin: exporter.begin,
    visuals: gallery,
    intake: config.intake?.listen === undefined ? reports?.intake : undefined,
    backends: () => [
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
    const reason = failureCode(error);
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
  const watchAll = (connection: Connection) => {
    const watched = AbortSignal.any([signal, connection.left.signal]);
    for (const backend of connection.backends.values()) {
      unfinished.push(
        watch(backend, connection, telemetry, watched).then((fallen) => {
          if (fallen === undefined) return;
          for (const problem of fallen) shell.err(`${problem}\n`);
          code = exitCodes.failed;
          end.abort(new Error("a wall between tenants does not hold"));
        }),
      );
    }
  };
  const replace = (next: Connection) => {
    const old = current;
    current = next;
    old.left.abort();
    exporter.configure(next.config.otlp);
    watchAll(next);
    const served = servedBy(next);
    // An intake that is no longer in the file stays until the restart, and may not keep the old backends.
    const intake = next.config.intake ?? config.intake;
    const over = [server.replace(served), intake && reports?.replace(intake, served.sites)];
    unfinished.push(Promise.all(over).then(() => closeAll(old.backends)));
  };
  watchAll(current);
  const { again } = serving;
  if (again !== undefined) {
    const reload = oneAtATime(async () => {
      const next = await connectAgain(() => connect(again.read()), telemetry, signal);
      if (next === undefined) return;
      const changed = ([, bound]: Binding) => !isDeepStrictEqual(bound(next.config), bound(config));
      const kept = new Set(bindings.filter(changed).map(([what]) => what));
      if (graphql.outdated()) kept.add("mesh");
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
  await aborted(signal);
  telemetry.log({ level: "info", message: "draining" });
  gallery.close();
  const patience = code === exitCodes.done ? grace : 0;
  // Senders of reports are told to go before their connections are waited for.
  await Promise.all([server.close(patience), reports?.intake.close()]);
  await reports?.close(patience);
  await Promise.all([...unfinished, exporter.close(farewell)]);
  await closeAll(current.backends);
  return code;
}

/**
 * A shell that remembers which files were read through it, and how to be told of their changes: the configuration, and
 * the secrets, certificates and layouts that it names. One that is no longer named stays watched: the reload that it may
 * still cause changes nothing.
 */
function watchingReads(shell: Shell) {
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

type Binding = readonly [what: string, bound: (config: Config) => unknown];

/** What a running program cannot let go of. */
const bindings: readonly Binding[] = [
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
  for (const [name, { kind, settings, profiles }] of Object.entries(config.backends)) {
    try {
      const backend = shell.kinds.get(kind)?.create(name, settings, io, profiles);
      if (backend !== undefined) backends.set(name, backend);
    } catch (error) {
      const message = redact(messageOf(error));
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
async function connectAgain(
  connect: () => Connection,
  telemetry: Telemetry,
  signal: AbortSignal,
): Promise<Connection | undefined> {
  const refuse = (problems: readonly string[]): undefined => {
    telemetry.log({ level: "error", message: "not reloaded: the configuration is wrong", problems });
  };
  let next: Connection;
  try {
    next = connect();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return refuse(error.message.split("\n"));
  }
  const found = [...next.backends.values()].map(async (backend) => {
    const fallen = await describe(backend, next.config, telemetry, signal).catch(() => undefined);
    if (fallen !== undefined) next.described.add(backend.name);
    return fallen ?? [];
  });
  const fallen = (await Promise.all(found)).flat();
  if (fallen.length === 0 && !signal.aborted) return next;
  await closeAll(next.backends);
  return signal.aborted ? undefined : refuse(fallen);
}

/** Runs `work` when it is asked for; asked while it runs, once more afterwards. */
function oneAtATime(work: () => Promise<void>): () => Promise<void> {
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
async function watch(
  backend: Backend,
  { config, states, described }: Connection,
  telemetry: Telemetry,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  while (!signal.aborted) {
    try {
      const { product, version } = await backend.probe(patient(signal));
      if (!described.has(backend.name)) {
        const fallen = await describe(backend, config, telemetry, signal);
        if (fallen.length > 0) return fallen;
        described.add(backend.name);
      }
      tell(`${product} ${version}`);
    } catch (error) {
      if (signal.aborted) return undefined;
      tell("does not answer", error);
    }
    await aborted(AbortSignal.any([signal, AbortSignal.timeout(probeEvery)]));
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
async function describe(
  backend: Backend,
  config: Config,
  telemetry: Telemetry,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const look = async ({ path, ask }: Question, signal: AbortSignal): Promise<readonly string[]> => {
    const { rows, problems } = await ask(patient(signal));
    telemetry.log({ level: "info", message: "found", path, found: rows.map((row) => row.join(", ")) });
    for (const problem of problems) telemetry.log({ level: "error", message: "problem", path, problem });
    return problems.filter((problem) => problem.startsWith("where:")).map((problem) => `${path}: ${problem}`);
  };
  return (await parallel(questionsFor(backend, config), lookedAtOnce, look, signal)).flat();
}

function patient(signal: AbortSignal): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(patienceOfAnswer)]);
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
