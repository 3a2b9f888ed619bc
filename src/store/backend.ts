// THE CONTRACT between the API and the sources of its data. Above it no module knows a database; below it no module knows
// HTTP or GraphQL. A backend is one configured source; it has one store for each kind of data that it serves: `logs.ts`,
// `spans.ts` and `span-analytics.ts`, `metrics.ts`, `kubernetes.ts`, `error-reports.ts`. `test/conformance` holds every
// implementation to the contract.
import type { Instant, Millis } from "../core/time.ts";
import type { ErrorReportStore } from "./error-reports.ts";
import type { Inspections, Survey } from "./inspection.ts";
import type { KubernetesStore } from "./kubernetes.ts";
import type { LogStore } from "./logs.ts";
import type { MetricStore } from "./metrics.ts";
import type { SpanStore } from "./span-analytics.ts";

/** One configured source, such as "the production OpenSearch". It serves the stores it has and omits the rest. */
export interface Backend {
  readonly name: string;
  readonly kind: string;
  readonly stores: Partial<Stores>;
  /** Asks the source who it is. Not cached. @throws {BackendError} */
  probe(signal: AbortSignal): Promise<BackendInfo>;
  /** One for each of `stores`. */
  readonly inspections: Partial<Inspections>;
  /** Looks at everything there, or at the `patterns` that are given; absent where there is nothing to find. @throws {BackendError} */
  survey?(patterns: readonly string[], signal: AbortSignal): Promise<Survey>;
  close(): Promise<void>;
}

export interface Stores {
  readonly logs: LogStore;
  readonly metrics: MetricStore;
  readonly kubernetes: KubernetesStore;
  readonly traces: SpanStore;
  readonly reports: ErrorReportStore;
}

export interface BackendInfo {
  readonly product: string;
  readonly version: string;
}

/** A pluggable resolver: what `resolvers/index.ts` lists. Each kind validates its own configuration. */
export interface BackendKind<Config, Logs = unknown, Traces = unknown> {
  readonly kind: string;
  /** @throws {ZodError} all issues at once, paths relative to the backend's entry */
  readonly parseConfig: (value: unknown) => Config;
  /** Of what the log sources and the traces of a site name; a kind without them takes no notice of the names. */
  readonly layouts?: { readonly logs: LayoutReader<Logs>; readonly traces: LayoutReader<Traces> };
  readonly create: (name: string, config: Config, io: IO, own?: CustomLayouts<Logs, Traces>) => Backend;
}

/** How the documents of a source may lie: built in, or files of the user's own. */
export interface LayoutReader<Profile> {
  /** Whether one is built in. */
  readonly has: (name: string) => boolean;
  /** Reads a file. @throws {ZodError} all issues at once @throws {Error} where it is no YAML */
  readonly parse: (text: string) => Profile;
}

/** The files that the sources in a backend name, by that name, as `parse` has read them. */
export interface CustomLayouts<Logs, Traces> {
  readonly logs: ReadonlyMap<string, Logs>;
  readonly traces: ReadonlyMap<string, Traces>;
}

/** The outside world, injected, so that tests need no network and no clock. */
export interface IO {
  readonly now: () => Instant;
  readonly log: (event: LogEvent) => void;
  /** Reports one finished request to a source, for `/metrics`. */
  readonly requested: (backend: string, outcome: string, duration: Millis) => void;
  readonly cache: (cache: string, hit: boolean) => void;
  /** Reads a file that the configuration names; relative paths are relative to the configuration file. */
  readonly readText: (path: string) => string;
}

export interface LogEvent extends Record<string, unknown> {
  readonly level: "debug" | "info" | "warn" | "error";
  readonly message: string;
}
