// Log lines: the contract of a log store, its queries, and its explanation of a query.
// The promises of every store (`backend.ts`) hold here too.
import type { HeldBytes } from "../core/async/held-bytes.ts";
import type { LineCounts } from "../core/line-tally.ts";
import type { LogLine } from "../core/rows.ts";
import type { Instant, Millis, TimeRange } from "../core/time.ts";
import type { Compare, Filter, Path } from "../log-query/ast.ts";

export interface LogStore {
  /**
   * Returns the lines of the sources that satisfy the query, in its order: by `time`, then `source_id`, then `id`
   * (compared by UTF-16 code unit; `desc` is the exact reverse). A batch ends between two milliseconds, never inside
   * one. A document that two sources hold appears once for each.
   *
   * @throws {Refused} `result_too_large` when more than `documentLimit` documents would have to be read, or when one
   *   millisecond has more lines than `tieLimit`
   * @throws {BackendError} before the first batch or between batches
   */
  lines(query: LogQuery, signal: AbortSignal): AsyncIterable<readonly LogLine[]>;
  /**
   * Whether the first `expectedLines` lines, with the rest of their last millisecond, are certain to be found within the
   * limits of the query, so that `lines` does not refuse on the way to them. Ignores documents that are written later.
   * False where only reading can decide. Absent means the same. Costs one or two backend requests.
   *
   * @throws {Refused} {BackendError}
   */
  isWithinLimits?(query: LogQuery, signal: AbortSignal): Promise<boolean>;
  /**
   * Counts the lines of one source where the source itself can, exactly as `lines` would return them. Undefined where only
   * reading can count: so it always is without this method.
   *
   * @throws {Refused} {BackendError} as `lines` before the first batch
   */
  count?(query: LineCountQuery, signal: AbortSignal): Promise<LineCounts | undefined>;
  /**
   * Explains to people how `lines` would answer: one plan for each source, in their order. Reads no documents.
   *
   * @throws {Refused} as `lines` where the source cannot be read exactly
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
  /** The tenant filter. The index must answer it exactly; a source for which it cannot is refused when it is checked. */
  readonly tenantFilter: string | undefined;
}

export interface LogQuery {
  readonly sources: readonly [LogSource, ...LogSource[]];
  readonly range: TimeRange;
  /** Only lines of these milliseconds, each by its first instant; absent is all of the range. At most some hundred. */
  readonly moments?: readonly [Instant, ...Instant[]] | undefined;
  readonly filter: Filter;
  readonly order: "asc" | "desc";
  /** How many lines the caller expects to read: a hint for the size of backend requests, not a limit. */
  readonly expectedLines: number;
  /**
   * The part of them that this store will probably give, where several stores or sources answer one query together: a hint
   * for what is asked ahead, since any of them may have to give all. Absent is 1.
   */
  readonly expectedShare?: number | undefined;
  /** How many documents the query may read from the source, whether they match or not. */
  readonly documentLimit: number;
  /** How many lines of one millisecond may be held for sorting. */
  readonly tieLimit: number;
  /**
   * The store calls it for each answer of the source, with the documents in it: many may be read before a line is found.
   */
  readonly progressed?: ((documents: number) => void) | undefined;
  /**
   * Where the store counts lines that it holds beyond what one answer of the source may have, until their batch has been taken.
   * Its refusal counts as one by `documentLimit`.
   */
  readonly held?: HeldBytes | undefined;
  /**
   * What several stores that answer one query together have read, or count in `isWithinLimits`; the store adds its own. The
   * limit is on their sum. Absent where one store answers alone.
   */
  readonly budget?: { documents: number } | undefined;
}

export interface LineCountQuery extends Pick<LogQuery, "range" | "filter"> {
  readonly source: LogSource;
  /** The length of a bucket. Buckets begin at multiples of it, counted from 1970. */
  readonly step: Millis;
  readonly grouping?: LineGrouping | undefined;
  /** Whether the lines of each value are counted by time as well. */
  readonly hasGroupBuckets?: boolean | undefined;
}

/** What the lines of a source are grouped by: a field of the line, or a path of its body. */
export type LineGrouping =
  | { readonly kind: "line"; readonly name: "severity" | "hostname" | "group" }
  | { readonly kind: "json"; readonly path: Path };

/** How a log store answers a query from one of its sources. */
export interface SourcePlan {
  readonly source: LogSource;
  /** The name of the backend, where a site's sources are in several. */
  readonly backend?: string | undefined;
  /** The layout by which documents are decoded. */
  readonly layout: string;
  /** The indices that the pattern matches now, sorted; undefined where the source does not permit listing them. */
  readonly indices: readonly string[] | undefined;
  /** One entry for each leaf of the filter from left to right, and for each group of indices that treats it alike. */
  readonly leaves: readonly LeafPlan[];
  /** What else influences how much is read. */
  readonly notes: readonly string[];
}

export interface LeafPlan {
  readonly leaf: Compare;
  /**
   * - `index`: the index answers the leaf exactly.
   * - `candidates`: the index returns candidates, which the store verifies.
   * - `documents`: the index excludes nothing, so the store verifies every document that the rest of the filter leaves.
   */
  readonly by: "index" | "candidates" | "documents";
  readonly why: string;
  /** The indices that this is true of; empty where it is true of any index. */
  readonly indices: readonly string[];
}
