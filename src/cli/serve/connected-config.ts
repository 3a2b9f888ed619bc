// A configuration with its backends: connecting, inspecting and watching them.
import { connectSitesInSteps, type Sites } from "../../access/sites.ts";
import type { Config } from "../../config/config.ts";
import { type LocatedIssue, resolveBeside } from "../../config/yaml/yaml.ts";
import { mapConcurrent } from "../../core/async/concurrency.ts";
import { type Steps, yieldToEventLoop } from "../../core/async/turns.ts";
import { readOwn } from "../../core/collections.ts";
import { BackendError, ConfigError } from "../../core/errors.ts";
import type { Millis } from "../../core/time.ts";
import type { Backend, IO } from "../../store/backend.ts";
import type { RollupStore } from "../../store/rollups.ts";
import type { KeptTelemetry } from "../../telemetry/kept-telemetry.ts";
import { redactCredentials } from "../../telemetry/redaction.ts";
import type { Telemetry } from "../../telemetry/telemetry.ts";
import { createRollupAnalytics } from "../../tracing/figures/rollup-analytics.ts";
import { openKeptFigures } from "../../tracing/rollup-store/kept-figures.ts";
import { createKindLookup } from "../support/backend-kinds.ts";
import { createLateConfigError } from "../support/config-file.ts";
import { toBackendIssue } from "../support/open-backend.ts";
import type { Shell } from "../support/shell.ts";
import {
  groupSitesByBackend,
  listInspections,
  type NamedSite,
  type SiteInspection,
} from "../support/site-inspections.ts";
import { openRollupStore } from "./rollers.ts";

/** A configuration that is served or about to be: its backends, and what is known of them. */
export interface ConnectedConfig {
  readonly config: Config;
  readonly backends: ReadonlyMap<string, Backend>;
  readonly sites: Sites;
  readonly sitesByBackend: ReadonlyMap<string, readonly NamedSite[]>;
  /** Where figures of spans are kept. */
  readonly rollupStore: RollupStore | undefined;
  readonly keptTelemetry: KeptTelemetry;
  /** The state of each backend, for `/readyz`. */
  readonly states: Map<string, string>;
  /** The names of backends whose sources have been inspected. */
  readonly inspected: Set<string>;
  /**
   * The names of backends that have not been tried yet, or whose tenant filters do not hold. The program is not ready before
   * this is empty: a backend that does not answer is tried as well.
   */
  readonly untried: Set<string>;
  /** Aborted when another configuration takes its place. */
  readonly replaced: AbortController;
  /** Settles when nobody makes figures with these backends any more. */
  rollers?: Promise<void>;
}

/** How often each backend is probed. */
const probeInterval: Millis = 30_000;
/** How long a backend may take for a probe or an inspection. */
const answerTimeout: Millis = 10_000;

/** How many sources of one backend are inspected at once. */
const maxConcurrentInspections = 4;

/** No step is long, however many sites there are. @throws {ConfigError} when a backend's settings cannot be used */
export function* connectConfig(
  config: Config,
  shell: Shell,
  file: string,
  telemetry: Telemetry,
): Steps<ConnectedConfig> {
  let rollupStore: RollupStore | undefined;
  const keptTelemetry = telemetry.openKeptTelemetry();
  const io = createIO(
    config,
    shell,
    file,
    { ...telemetry, ...keptTelemetry },
    config.rollups && (() => rollupStore),
  );
  const backends = yield* connectBackends(config, shell, file, io);
  rollupStore = openRollupStore(config, backends);
  if (config.rollups !== undefined && rollupStore === undefined) {
    void closeAll(backends);
    const message = "is of a kind that cannot keep figures; Elasticsearch and OpenSearch can";
    throw yield* createLateConfigError(file, [{ path: ["rollups", "backend"], message }], shell);
  }
  const states = new Map([...backends.keys()].map((name) => [name, "not probed yet"]));
  const untried = new Set(backends.keys());
  yield;
  const kept = openKeptFigures(severalBackends, io);
  const sites = yield* connectSitesInSteps(config, backends, (reader) => createRollupAnalytics(reader, kept));
  yield;
  return {
    config,
    backends,
    sites,
    sitesByBackend: groupSitesByBackend(config.sites),
    rollupStore,
    keptTelemetry,
    states,
    inspected: new Set(),
    untried,
    replaced: new AbortController(),
  };
}

/** Whose figures those of sites in several backends are, in explanations and metrics. */
const severalBackends = "several backends";

function createIO(
  config: Config,
  shell: Shell,
  file: string,
  telemetry: Telemetry & KeptTelemetry,
  findRollupStore: IO["findRollupStore"],
): IO {
  return {
    ...(findRollupStore !== undefined && { findRollupStore }),
    findRetention: (site) => readOwn(config.sites, site)?.retention,
    now: () => shell.now(),
    log: telemetry.log,
    recordRequest: telemetry.recordRequest,
    recordCacheLookup: telemetry.recordCacheLookup,
    rollupBytes: config.limits.rollupBytes,
    recordRollupBytes: telemetry.recordRollupBytes,
    metricCacheBytes: config.limits.metricCacheBytes,
    recordMetricCacheBytes: telemetry.recordMetricCacheBytes,
    readText: (path) => shell.readText(resolveBeside(file, path)),
  };
}

/** How many backends are opened in one step. */
const backendsPerStep = 20;

function* connectBackends(
  config: Config,
  shell: Shell,
  file: string,
  io: IO,
): Steps<ReadonlyMap<string, Backend>> {
  const kinds = createKindLookup(file, shell);
  const backends = new Map<string, Backend>();
  const issues: LocatedIssue[] = [];
  for (const [name, { kind, settings, layouts }] of Object.entries(config.backends)) {
    if (backends.size % backendsPerStep === 0) yield;
    try {
      const backend = kinds.get(kind)?.create(name, settings, io, layouts);
      if (backend !== undefined) backends.set(name, backend);
    } catch (error) {
      const { path, message } = toBackendIssue(name, error);
      issues.push({ path, message: redactCredentials(message) });
    }
  }
  if (issues.length === 0) return backends;
  void closeAll(backends);
  throw yield* createLateConfigError(file, issues, shell);
}

/**
 * Connects a changed configuration. Returns undefined when it is wrong, which is then logged. Its tenant filters are
 * inspected first: a fault that would end the program at its start must not end it now. A backend that does not answer
 * is watched as after a start.
 */
export async function connectChangedConfig(
  connect: () => Promise<ConnectedConfig>,
  telemetry: Telemetry,
  signal: AbortSignal,
): Promise<ConnectedConfig | undefined> {
  const refuse = (problems: readonly string[]): undefined => {
    telemetry.log({ level: "error", message: "not reloaded: the configuration is wrong", problems });
  };
  let next: ConnectedConfig;
  try {
    next = await connect();
  } catch (error) {
    if (signal.aborted) return undefined;
    if (!(error instanceof ConfigError)) throw error;
    return refuse(error.message.split("\n"));
  }
  const inspections = [...next.backends.values()].map(async (backend) => {
    await yieldToEventLoop();
    const broken = await inspectSources(backend, next, telemetry, signal).catch(() => undefined);
    if (broken !== undefined) next.inspected.add(backend.name);
    return broken ?? [];
  });
  const broken = (await Promise.all(inspections)).flat();
  next.untried.clear();
  if (broken.length === 0 && !signal.aborted) return next;
  await closeAll(next.backends);
  return signal.aborted ? undefined : refuse(broken);
}

export async function closeAll(backends: ReadonlyMap<string, Backend>): Promise<void> {
  await Promise.allSettled([...backends.values()].map((backend) => backend.close()));
}

/**
 * Probes a backend again and again, keeps its state for `/readyz`, and inspects its sources once, when it first answers.
 * Resolves with the faults of tenant filters, or with undefined when `signal` aborts.
 */
export async function watchBackend(
  backend: Backend,
  connected: ConnectedConfig,
  telemetry: Telemetry,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  const { states, inspected, untried } = connected;
  const setState = (state: string, error?: unknown): void => {
    if (states.get(backend.name) === state) return;
    states.set(backend.name, state);
    const level = error === undefined ? "info" : "warn";
    const reason = error instanceof Error ? error.message : undefined;
    telemetry.log({ level, message: "backend", backend: backend.name, state, reason });
  };
  await yieldToEventLoop();
  while (!signal.aborted) {
    try {
      const { product, version } = await backend.probe(addAnswerTimeout(signal));
      if (!inspected.has(backend.name)) {
        const broken = await inspectSources(backend, connected, telemetry, signal);
        if (broken.length > 0) return broken;
        inspected.add(backend.name);
      }
      setState(`${product} ${version}`);
    } catch (error) {
      if (signal.aborted) return undefined;
      setState("does not answer", error);
    }
    untried.delete(backend.name);
    await awaitAbort(AbortSignal.any([signal, AbortSignal.timeout(probeInterval)]));
  }
  return undefined;
}

/**
 * Inspects all sources of a backend and logs the results. Returns the faults of tenant filters, also where other sources
 * cannot be inspected. @throws {BackendError} where one cannot, and no fault was found
 */
async function inspectSources(
  backend: Backend,
  { sitesByBackend }: ConnectedConfig,
  telemetry: Telemetry,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const failures: unknown[] = [];
  const inspectSource = async (
    { path, inspect }: SiteInspection,
    signal: AbortSignal,
  ): Promise<readonly string[]> => {
    // A backend that has stopped answering would take its whole time for each of many sources.
    if (failures.filter(isUnanswered).length >= maxConcurrentInspections) return [];
    const result = await inspect(addAnswerTimeout(signal)).catch(
      (error: unknown) => void failures.push(error),
    );
    if (result === undefined) return [];
    const { rows, problems, tenantFilterFault } = result;
    telemetry.log({ level: "info", message: "found", path, found: rows.map((row) => row.join(", ")) });
    for (const problem of problems) telemetry.log({ level: "error", message: "problem", path, problem });
    return tenantFilterFault === undefined ? [] : [`${path}: ${tenantFilterFault}`];
  };
  const inspections = listInspections(backend, sitesByBackend.get(backend.name) ?? []);
  const broken = (await mapConcurrent(inspections, maxConcurrentInspections, inspectSource, signal)).flat();
  if (broken.length === 0 && failures.length > 0) throw failures[0];
  return broken;
}

function isUnanswered(error: unknown): boolean {
  return !(error instanceof BackendError) || ["unreachable", "timeout"].includes(error.failure);
}

export function addAnswerTimeout(signal: AbortSignal): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(answerTimeout)]);
}

export function awaitAbort(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
