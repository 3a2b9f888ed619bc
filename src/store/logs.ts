// Log lines: the contract of a log store, its queries, and its explanation of a query.
// The promises of every store (`backend.ts`) hold here too.
import type { LogLine } from "../core/rows.ts";
import type { TimeRange } from "../core/time.ts";
import type { Compare, Filter } from "../log-query/ast.ts";

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
   * The lines of the named sources that satisfy the query, in its order: by `timeSchema`, then `source_id`, then `formatId`
   * (ids and sources compared by UTF-16 code unit, `desc` is the exact reverse). A batch ends between two
   * milliseconds, never inside one. A document that two sources hold appears once for each.
   *
   * @throws {Refused} `result_too_large` when more than `documentLimit` documents would have to be read to find
   *   the lines, or one millisecond holds more of them than `computeTieLimit`.
   * @throws {BackendError} before the first batch or between batches.
   */
  lines(query: LogQuery, signal: AbortSignal): AsyncIterable<readonly LogLine[]>;
  /**
   * Whether the first `wanted` lines, and the rest of their last millisecond, are surely found within the query's
   * limits, so that `onLines` will not refuse on the way to them. Documents that are written after the question do not
   * count. False where only reading can tell, as always in a store without it. Costs a request or two to the source.
   *
   * @throws {Refused} {BackendError}
   */
  isWithinLimits?(query: LogQuery, signal: AbortSignal): Promise<boolean>;
  /**
   * How `onLines` would find them, for people, one for each source in order. Reads no documents.
   *
   * @throws {Refused} as `onLines` where the source cannot be read exactly
   * @throws {BackendError}
   */
  explain?(query: LogQuery, signal: AbortSignal): Promise<readonly SourcePlan[]>;
}

/** One `logs.sources` entry of a site's configuration. */
export interface LogSource {
  /** The `source_id` of its lines. */
  readonly id: string;
  readonly index: string;
  readonly layout: string;
  /** The wall between tenants: exact by the index alone, or refused when the source is checked. */
  readonly where?: string | undefined;
}

export interface LogQuery {
  readonly sources: readonly [LogSource, ...LogSource[]];
  readonly range: TimeRange;
  readonly filter: Filter;
  readonly order: "asc" | "desc";
  /** How many lines the caller expects to read: a hint for the size of requests, not a limit. */
  readonly expectedLines: number;
  /** Documents that may be read from the source for this query, kept or not. */
  readonly documentLimit: number;
  /** Lines of one millisecond that may be held for sorting. */
  readonly tieLimit: number;
  /** To be called when the source has answered: many documents may have to be read before there is a line. */
  readonly progressed?: (() => void) | undefined;
}

/** What a log store makes of a query for one of its sources. */
export interface SourcePlan {
  readonly source: LogSource;
  /** The layout by which documents are read. */
  readonly layout: string;
  /** Those behind the pattern now, sorted; undefined where the source does not let us look. */
  readonly indices: readonly string[] | undefined;
  /** For each leaf of the filter, from left to right, and within that for each part of the indices that differs. */
  readonly leaves: readonly LeafPlan[];
  /** What else decides how much is read. */
  readonly notes: readonly string[];
}

export interface LeafPlan {
  readonly leaf: Compare;
  /**
   * - `arrayIndex`: what the index finds is what the leaf means.
   * - `candidates`: the index finds more than that, and the documents found are verified.
   * - `documents`: the index excludes nothing, so every document that the rest of the filter leaves is looked at.
   */
  readonly by: "index" | "candidates" | "documents";
  readonly why: string;
  /** Where this holds; empty where it holds whatever the index. */
  readonly indices: readonly string[];
}
