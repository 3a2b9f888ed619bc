// `readout serve`: from a configuration to a server that answers, and back. A source that is down does not stop the
// start, because one dead backend must take no instance out; a wall between tenants that does not hold does.
import { parseArgs } from "node:util";
import { createAuthenticator } from "../auth.ts";
import { type Config, failureCode, type IntakeConfig, parseConfig, resolveBeside } from "../config.ts";
import { startDelivery } from "../delivery.ts";
import { ConfigError } from "../errors.ts";
import { createIntake, createIntakeServer, type Intake } from "../intake.ts";
import { operations } from "../operations/index.ts";
import { createServer } from "../server.ts";
import { connectSites, type Sites } from "../sites.ts";
import { startSpooler } from "../spooler.ts";
import type { Backend, IO } from "../store.ts";
import { createTelemetry, redact, type Telemetry, type TelemetryOptions } from "../telemetry.ts";
import type { Millis } from "../time.ts";
import { prepareGraphql } from "./graphql.ts";
import { exitCodes, type Shell } from "./shell.ts";

const usage = `Usage: readout serve [--config readout.yaml]

Serves the read API. Prints its address when it answers; the request log goes to standard error.
SIGTERM or Ctrl-C: no new connections, requests under way finish, exit code 0.
`;

/** How long requests under way may take when the server is told to end. */
const grace: Millis = 20_000;
/** How often each backend is asked whether it is there, and how long it has to say so. */
const probeEvery: Millis = 30_000;
const probePatience: Millis = 10_000;

/** Exit code 0 after a drain, 1 when the configuration cannot be served, 2 for wrong arguments. */
export async function run(args: readonly string[], shell: Shell): Promise<number> {
  let file: string;
  try {
    const { values } = parseArgs({
      args: [...args],
      options: { config: { type: "string", default: "readout.yaml" } },
    });
    file = values.config;
  } catch (error) {
    shell.err(`serve: ${error instanceof Error ? error.message : String(error)}\n\n${usage}`);
    return exitCodes.usage;
  }
  let config: Config;
  try {
    config = parseConfig(shell.readText(file), file, shell);
  } catch (error) {
    if (error instanceof ConfigError) shell.err(`${error.message}\n`);
    else shell.err(`${file}: cannot be read${failureCode(error)}\n`);
    return exitCodes.failed;
  }
  return serve(config, shell, {
    file,
    level: "info",
    listening: (address) => shell.out(`Readout listens on ${address}\n`),
    inUse: (address) => `${address} is in use; set another \`listen\` in ${file}`,
  });
}

export interface Serving {
  /** Paths of backends are relative to it. */
  readonly file: string;
  readonly level: NonNullable<TelemetryOptions["level"]>;
  /** Called once REST answers, with `http://host:port`. */
  readonly listening: (address: string) => void;
  /** What to say when the port is taken. */
  readonly inUse: (address: string) => string;
}

/** Serves until `shell.signal` aborts, or until a backend shows that a site's wall does not hold. Exit codes as `run`. */
export async function serve(config: Config, shell: Shell, serving: Serving): Promise<number> {
  const telemetry = createTelemetry({ write: shell.err, level: serving.level, processMetrics: true });
  const backends = connectBackends(config, shell, serving.file, telemetry);
  if (backends === undefined) return exitCodes.failed;
  const sites = connectSites(config, backends);
  let reports: Reports | undefined;
  try {
    reports = config.intake && (await openReports(config.intake, sites, telemetry, shell));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    shell.err(`${config.intake?.spool}: the spool of front-end reports cannot be used: ${reason}\n`);
    await closeAll(backends);
    return exitCodes.failed;
  }
  const states = new Map([...backends.keys()].map((name) => [name, "not asked yet"]));
  const graphql = prepareGraphql(config, shell, telemetry);
  const server = createServer({
    operations,
    graphql: graphql.load,
    authenticate: createAuthenticator(config.tokens, () => shell.now()),
    sites,
    limits: config.limits,
    telemetry,
    now: () => shell.now(),
    intake: config.intake?.listen === undefined ? reports?.intake : undefined,
    backends: () => [
      ...[...states].map(([name, state]) => `${name}: ${state}`),
      `graphql: ${graphql.state()}`,
    ],
  });
  const end = new AbortController();
  const signal = AbortSignal.any([shell.signal, end.signal]);
  let code: number = exitCodes.done;
  try {
    const { host, port } = await server.listen(config.listen);
    await reports?.listen();
    serving.listening(printAddress(host, port));
  } catch (error) {
    const address = printAddress(config.listen.host, config.listen.port);
    shell.err(
      `${failureCode(error).includes("EADDRINUSE") ? serving.inUse(address) : `${address}: cannot listen${failureCode(error)}`}\n`,
    );
    await server.close(0);
    await reports?.close(0);
    await closeAll(backends);
    return exitCodes.failed;
  }
  const watching = [...backends.values()].map(async (backend) => {
    const fallen = await watch(backend, config, telemetry, states, signal);
    if (fallen === undefined) return;
    for (const problem of fallen) shell.err(`${problem}\n`);
    code = exitCodes.failed;
    end.abort(new Error("a wall between tenants does not hold"));
  });
  await aborted(signal);
  telemetry.log({ level: "info", message: "draining" });
  const patience = code === exitCodes.done ? grace : 0;
  await Promise.all([server.close(patience), reports?.close(patience)]);
  await Promise.all(watching);
  await closeAll(backends);
  return code;
}

/** The intake with what stands behind it. */
interface Reports {
  readonly intake: Intake;
  /** Where the intake has an address of its own. @throws {Error} as `Server.listen` */
  readonly listen: () => Promise<void>;
  readonly close: (grace: Millis) => Promise<void>;
}

/** @throws {Error} when the spool cannot be opened */
async function openReports(
  config: IntakeConfig,
  sites: Sites,
  telemetry: Telemetry,
  shell: Shell,
): Promise<Reports> {
  const spooler = await startSpooler({ path: config.spool, limitBytes: config.spoolBytes });
  const delivery = startDelivery({ spooler, sites, telemetry });
  telemetry.intake.watch(() => spooler.level());
  for (const [site, waiting] of Object.entries((await spooler.level()).sites)) {
    if (sites.get(site)?.frontend?.store !== undefined) continue;
    const message = "front-end reports wait in the spool for a site that has no place for them";
    telemetry.log({ level: "warn", message, site, reports: waiting });
  }
  const now = () => shell.now();
  const intake = createIntake({ config, sites, spooler, spooled: delivery.wake, telemetry, now });
  const own = config.listen && { address: config.listen, http: createIntakeServer(intake) };
  return {
    intake,
    listen: async () => {
      if (own === undefined) return;
      const { http, address } = own;
      await new Promise<void>((resolve, reject) => {
        http.once("error", reject);
        http.listen(address.port, address.host, resolve);
      });
    },
    close: async (grace) => {
      const timer = setTimeout(() => own?.http.closeAllConnections(), grace);
      own?.http.close();
      await intake.close();
      clearTimeout(timer);
      own?.http.closeAllConnections();
      await delivery.close();
      await spooler.close();
    },
  };
}

function printAddress(host: string, port: number): string {
  return `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** Undefined when a backend's settings cannot be used, which has been told. */
function connectBackends(
  config: Config,
  shell: Shell,
  file: string,
  telemetry: Telemetry,
): ReadonlyMap<string, Backend> | undefined {
  const io: IO = {
    now: () => shell.now(),
    log: telemetry.log,
    requested: telemetry.requested,
    cache: telemetry.cache,
    readText: (path) => shell.readText(resolveBeside(file, path)),
  };
  const backends = new Map<string, Backend>();
  let failed = false;
  for (const [name, { kind, settings }] of Object.entries(config.backends)) {
    try {
      const backend = shell.kinds.get(kind)?.create(name, settings, io);
      if (backend !== undefined) backends.set(name, backend);
    } catch (error) {
      shell.err(
        `${file}: backends.${name}: ${redact(error instanceof Error ? error.message : String(error))}\n`,
      );
      failed = true;
    }
  }
  return failed ? undefined : backends;
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
  config: Config,
  telemetry: Telemetry,
  states: Map<string, string>,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  let described = false;
  while (!signal.aborted) {
    const patience = AbortSignal.any([signal, AbortSignal.timeout(probePatience)]);
    try {
      const { product, version } = await backend.probe(patience);
      if (!described) {
        const fallen = await describe(backend, config, telemetry, patience);
        if (fallen.length > 0) return fallen;
        described = true;
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

/** Logs every problem of the backend's sources; the answer holds those of `where`. @throws {BackendError} */
async function describe(
  backend: Backend,
  config: Config,
  telemetry: Telemetry,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const fallen: string[] = [];
  const inspect = backend.inspections.logs;
  for (const [site, { logs }] of Object.entries(config.sites)) {
    if (logs?.backend !== backend.name || inspect === undefined) continue;
    for (const [source, entry] of Object.entries(logs.sources)) {
      const { problems } = await inspect({ id: source, ...entry }, signal);
      for (const problem of problems) {
        telemetry.log({ level: "error", message: "log source", site, source, problem });
        if (problem.startsWith("where:")) fallen.push(`sites.${site}.logs.sources.${source}: ${problem}`);
      }
    }
  }
  return fallen;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
