// THE CONTRACT between the API and the sources. Above it nothing knows a database; below it nothing knows HTTP
// or GraphQL. It is written as if a stranger will implement it tonight, and `test/conformance` holds every
// implementation to it.
import type { Filter } from "./logql/ast.ts";
import type {
  Buckets,
  LogLine,
  Measure,
  MetricType,
  NodesRow,
  PodOverviewRow,
  PodState,
  PodsRow,
  Series,
  Span,
} from "./model.ts";
import type { Instant, Millis, TimeRange } from "./time.ts";

/**
 * What every store promises, whatever it is built on:
 *
 * - Exact or an error. It never answers with fewer, more or approximate rows: what it cannot answer exactly it
 *   refuses (`Refused`, final) or fails (`BackendError`, worth a retry). Failed shards, time-outs and cut
 *   results are errors.
 * - Nothing found is an empty result.
 * - `signal` aborts the work at the source too; the call then rejects with the signal's reason. Leaving an
 *   iteration early also ends the work at the source.
 * - Rows are immutable and may be shared between callers.
 * - Batches are never empty; their size is the store's business.
 */
export interface LogStore {
  /**
   * The lines of the named sources that satisfy the query, in its order: by `time`, then `source_id`, then `id`
   * (ids and sources compared by UTF-16 code unit, `desc` is the exact reverse). A batch ends between two
   * milliseconds, never inside one. A document that two sources hold appears once for each.
   *
   * @throws {Refused} `result_too_large` when more than `documentLimit` documents would have to be read to find
   *   the lines, or one millisecond holds more of them than `tieLimit`.
   * @throws {BackendError} before the first batch or between batches.
   */
  lines(query: LogQuery, signal: AbortSignal): AsyncIterable<readonly LogLine[]>;
}

export interface LogQuery {
  readonly sources: readonly [LogSource, ...LogSource[]];
  readonly range: TimeRange;
  readonly filter: Filter;
  readonly order: "asc" | "desc";
  /** How many lines the caller expects to read: a hint for the size of requests, not a limit. */
  readonly wanted: number;
  /** Documents that may be read from the source for this query, kept or not. */
  readonly documentLimit: number;
  /** Lines of one millisecond that may be held for sorting. */
  readonly tieLimit: number;
}

/** One `logs.sources` entry of a site's configuration. */
export interface LogSource {
  /** The `source_id` of its lines. */
  readonly id: string;
  readonly index: string;
  readonly profile: string;
  /** The wall between tenants: exact by the index alone, or refused when the source is checked. */
  readonly where?: string | undefined;
}

/** The wall of a metrics or Kubernetes part: labels with these values stand in every selector that is sent. */
export type Match = Readonly<Record<string, string>>;

/** The promises of `LogStore` hold here too. A metric is a family: the parts of a histogram or summary are one. */
export interface MetricStore {
  /** Every metric of the wall, sorted by UTF-16 code unit, each once. @throws {BackendError} */
  names(match: Match, signal: AbortSignal): Promise<readonly string[]>;
  /** Undefined for a metric that the source does not have within the wall. @throws {BackendError} */
  type(match: Match, metric: string, signal: AbortSignal): Promise<MetricType | undefined>;
  /**
   * Each combination of tag keys that some series has: keys sorted, combinations sorted, each once; `[]` where no
   * series has a tag. Forced labels and the source's own (`le`, `quantile`, `__name__`) are not tags. Undefined as
   * for `type`.
   * @throws {BackendError}
   */
  tagKeys(
    match: Match,
    metric: string,
    signal: AbortSignal,
  ): Promise<readonly (readonly string[])[] | undefined>;
  /**
   * One series for each distinct combination of the values of exactly the keys of `query.tags`, by those values in
   * the order of the sorted keys; other labels are aggregated away. A series without a value in any bucket is left
   * out; an unknown metric has none.
   *
   * @throws {Refused} `result_too_large` over `pointLimit`, `not_supported_by_backend` for a measure that the source
   *   cannot answer exactly (such as a quantile that a summary does not export).
   * @throws {BackendError}
   */
  series(query: SeriesQuery, signal: AbortSignal): Promise<readonly Series[]>;
}

export interface SeriesQuery {
  readonly match: Match;
  readonly metric: string;
  /** `*` is a wildcard: alone it means that the series has the tag. Names and values are data, never query text. */
  readonly tags: Readonly<Record<string, string>>;
  readonly measure: Measure;
  readonly buckets: Buckets;
  /** How far before the first bucket a counter's previous sample is looked for. */
  readonly lookBack: Millis;
  /** Series times buckets. */
  readonly pointLimit: number;
}

/** The promises of `LogStore` hold here too. Rows come by `timestamp`, then namespace, then name. */
export interface KubernetesStore {
  /** A row per node at each snapshot. @throws {Refused} `result_too_large` over `rowLimit` @throws {BackendError} */
  nodes(query: SnapshotQuery & NodeFilter, signal: AbortSignal): AsyncIterable<readonly NodesRow[]>;
  /** A row per pod at each snapshot: of pods that replaced each other under one name, the newest. Errors as `nodes`. */
  pods(query: SnapshotQuery & PodFilter, signal: AbortSignal): AsyncIterable<readonly PodsRow[]>;
  /** One row per pod seen within the snapshots, as it was at the last of them. Errors as `nodes`. */
  overview(
    query: SnapshotQuery & OverviewFilter,
    signal: AbortSignal,
  ): AsyncIterable<readonly PodOverviewRow[]>;
}

/** Snapshots are taken at `start + i * step`; the deltas of the first are taken against the moment one step before. */
export interface SnapshotQuery {
  readonly match: Match;
  readonly snapshots: Buckets;
  readonly rowLimit: number;
}
/** Absent or empty filters let everything pass. */
export interface NodeFilter {
  readonly node?: string | undefined;
}
export interface PodFilter {
  readonly namespaces: readonly string[];
  readonly pod?: string | undefined;
  readonly nodes: readonly string[];
  readonly state?: PodState | undefined;
}
export interface OverviewFilter {
  readonly namespaces: readonly string[];
  /** Case-insensitive part of the pod's, namespace's, node's or an owner's name, or of a `label=value`. */
  readonly text: string;
}

/** What `readout check` tells of a metrics or Kubernetes part. */
export interface PartReport {
  /** What was found, such as `214 metrics: 120 gauges, …`, for an operator to read. */
  readonly found: readonly string[];
  readonly limitations: readonly string[];
  readonly problems: readonly string[];
}

/** The `traces` part of a site's configuration. */
export interface SpanSource {
  readonly site: string;
  /** A comma list of patterns: spans, and the layout's documents of events or errors. */
  readonly index: string;
  readonly profile: string;
  /** As in `LogSource`; it scopes every request, look-ups by id too. */
  readonly where?: string | undefined;
  /** Attributes whose keys begin so are tags. */
  readonly tagPrefixes: readonly string[];
  readonly namespaceAttribute: string;
  readonly actionAttribute: string;
}

/** Where a site's front-end error reports are written. */
export interface ReportTarget {
  readonly site: string;
  /** One index or data stream; no pattern. */
  readonly index: string;
  readonly profile: string;
}

/** The one store that writes. */
export interface ReportStore {
  /**
   * Writes reports, each a span with one exception event, under their `trace_id`. Resolves when the source has
   * confirmed them all, so that they may be forgotten here; what it refuses for good, and will whenever it is asked, is
   * in the answer by `trace_id`, with the reason. A second delivery to the same index changes nothing.
   *
   * @throws {BackendError} some may not have been written: all have to be delivered again
   */
  deliver(
    target: ReportTarget,
    reports: readonly Span[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, string>>;
}

/** What `readout check` tells of an index pattern and its layout. */
export interface SourceReport {
  readonly profile: string;
  readonly indices: number;
  readonly newest?: Instant | undefined;
  /** What cannot be answered exactly or cheaply, each with its reason, for an operator to read. */
  readonly limitations: readonly string[];
  /** What makes the source unusable, such as a `where` that the index cannot answer exactly. */
  readonly problems: readonly string[];
}

export interface Stores {
  readonly logs: LogStore;
  readonly metrics: MetricStore;
  readonly kubernetes: KubernetesStore;
  readonly reports: ReportStore;
}

/** Each looks at one part of a site as its store will read it, for `readout check`. @throws {BackendError} */
export interface Inspections {
  readonly logs: (source: LogSource, signal: AbortSignal) => Promise<SourceReport>;
  readonly metrics: (match: Match, signal: AbortSignal) => Promise<PartReport>;
  readonly kubernetes: (match: Match, signal: AbortSignal) => Promise<PartReport>;
  /** Proves the right to write, which may make the index but leaves no document in it. */
  readonly reports: (target: ReportTarget, signal: AbortSignal) => Promise<PartReport>;
}

export interface BackendInfo {
  readonly product: string;
  readonly version: string;
}

/** One configured source, such as "the production OpenSearch". It serves the stores it has and omits the rest. */
export interface Backend {
  readonly name: string;
  readonly kind: string;
  readonly stores: Partial<Stores>;
  /** Asks the source who it is. Not cached. @throws {BackendError} */
  probe(signal: AbortSignal): Promise<BackendInfo>;
  /** One for each of `stores`. */
  readonly inspections: Partial<Inspections>;
  close(): Promise<void>;
}

/** A pluggable resolver: what `resolvers/index.ts` lists. Each kind validates its own configuration. */
export interface BackendKind<Config> {
  readonly kind: string;
  /** @throws {ZodError} all issues at once, paths relative to the backend's entry */
  readonly parseConfig: (value: unknown) => Config;
  readonly create: (name: string, config: Config, io: IO) => Backend;
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
