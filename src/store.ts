// THE CONTRACT between the API and the sources. Above it nothing knows a database; below it nothing knows HTTP
// or GraphQL. It is written as if a stranger will implement it tonight, and `test/conformance` holds every
// implementation to it.
import type { Filter } from "./logql/ast.ts";
import type { LogLine } from "./model.ts";
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
}

/** Each looks at one part of a site as its store will read it, for `readout check`. @throws {BackendError} */
export interface Inspections {
  readonly logs: (source: LogSource, signal: AbortSignal) => Promise<SourceReport>;
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
