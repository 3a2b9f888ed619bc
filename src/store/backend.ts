// THE CONTRACT between the API and the sources of its data. Above it no module knows a database; below it no module knows
// HTTP or GraphQL. A backend is one configured source; it has one store for each kind of data that it serves: `logs.ts`,
// `spans.ts` and `span-analytics.ts`, `metrics.ts`, `kubernetes.ts`, `error-reports.ts`. `test/conformance` holds every
// implementation to the contract.
import type { Instant, Millis } from "../core/time.ts";
import type { ErrorReportStore } from "./error-reports.ts";
import type { Inspections, NewestTimes, Survey } from "./inspection.ts";
import type { KubernetesStore } from "./kubernetes.ts";
import type { LogStore } from "./logs.ts";
import type { MetricStore } from "./metrics.ts";
import type { RollupStore } from "./rollups.ts";
import type { SpanStore } from "./span-analytics.ts";

/** One configured source, such as "the production OpenSearch". It has a store for each kind of data that it serves. */
export interface Backend {
  readonly name: string;
  readonly kind: string;
  readonly stores: Partial<Stores>;
  /** Requests the product and its version from the source, each time anew. @throws {BackendError} */
  probe(signal: AbortSignal): Promise<BackendInfo>;
  /** The time by the source's own clock, perhaps in whole seconds; undefined where it does not tell. @throws {BackendError} */
  readClock?(signal: AbortSignal): Promise<Instant | undefined>;
  /** One inspection for each of `stores`. */
  readonly inspections: Partial<Inspections>;
  /** How fresh the data of a part is. Absent where nobody needs to know. */
  readonly findNewest?: Partial<NewestTimes>;
  /**
   * Looks at all data of the source, or only at what `patterns` name. Absent where a source cannot hold data of users.
   * @throws {BackendError}
   */
  survey?(patterns: readonly string[], signal: AbortSignal): Promise<Survey>;
  /** Opens a store of rollups in an index. Absent where the source cannot hold them. */
  openRollups?(index: string): RollupStore;
  close(): Promise<void>;
}

/**
 * What every store promises, whatever it is built on:
 *
 * - It is exact or it fails. It never answers with fewer, more or approximate rows. What it cannot answer exactly it
 *   refuses (`Refused`, final) or fails (`BackendError`, worth a retry). Failed shards, time-outs and truncated results
 *   are errors.
 * - An empty result means that nothing was found.
 * - `signal` aborts the work at the source too; the call then rejects with the signal's reason. Ending an iteration
 *   early also ends the work at the source.
 * - Rows are immutable and may be shared between callers.
 * - Batches are never empty. The store decides their size.
 */
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

/** A pluggable kind of backend, as `resolvers/index.ts` lists them. It parses its own part of the configuration. */
export interface BackendKind<Config, Logs = unknown, Traces = unknown> {
  readonly kind: string;
  /** @throws {ZodError} all issues at once, paths relative to the backend's entry */
  readonly parseConfig: (value: unknown) => Config;
  /** The layouts of log lines and of spans. A kind without them ignores the `layout` of sources. */
  readonly layouts?: { readonly logs: LayoutReader<Logs>; readonly traces: LayoutReader<Traces> };
  /**
   * Why the `where` of a source can select nothing exactly, as far as its text shows; undefined where it could. A kind without
   * it judges a `where` by its data alone.
   */
  readonly findTenantFilterFault?: (where: string) => string | undefined;
  readonly create: (name: string, config: Config, io: IO, own?: CustomLayouts<Logs, Traces>) => Backend;
}

/** Layouts of documents: built-in ones, and files of the user's own. */
export interface LayoutReader<Layout> {
  /** The names of the built-in layouts. */
  readonly names: ReadonlySet<string>;
  /** Parses a layout file. @throws {ZodError} all issues at once @throws {Error} where it is no YAML */
  readonly parse: (text: string) => Layout;
}

/** The parsed layout files of a backend, by the name under which its sources refer to them. */
export interface CustomLayouts<Logs, Traces> {
  readonly logs: ReadonlyMap<string, Logs>;
  readonly traces: ReadonlyMap<string, Traces>;
}

/** What a backend may use of the outside world. It is injected, so that tests need neither clock nor files. */
export interface IO {
  readonly now: () => Instant;
  readonly log: (event: LogEvent) => void;
  /** Reports one finished request to a source, for `/metrics`. */
  readonly recordRequest: (backend: string, outcome: string, duration: Millis) => void;
  readonly recordCacheLookup: (cache: string, hit: boolean) => void;
  /** Bytes of memory that figures kept between requests may take, for each backend; 0 keeps none. */
  readonly rollupBytes: number;
  /** The store in which such figures are kept as well, where there is one. It may be of a backend that is created later. */
  readonly findRollupStore?: () => RollupStore | undefined;
  /** How far back figures of a site are made for that store. */
  readonly findRetention?: (site: string) => Millis | undefined;
  /** Reports how many bytes such figures of a backend take. */
  readonly recordRollupBytes?: (backend: string, bytes: number) => void;
  /** Bytes of memory that values of metrics kept between requests may take, for each backend; 0 keeps none. */
  readonly metricCacheBytes: number;
  /** Reports how many bytes such values of a backend take. */
  readonly recordMetricCacheBytes?: (backend: string, bytes: number) => void;
  /** Reads a file that the configuration names; relative paths are relative to the configuration file. */
  readonly readText: (path: string) => string;
}

export interface LogEvent extends Record<string, unknown> {
  readonly level: "debug" | "info" | "warn" | "error";
  readonly message: string;
}
