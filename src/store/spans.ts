// Spans: the primitives that a span store must have or may have. `span-analytics.ts` is everything else that the API asks
// of spans; `src/tracing/` defines it over these primitives.
// The promises of every store (`backend.ts`) hold here too.
import type { HeldBytes } from "../core/async/held-bytes.ts";
import type { Span, SpanKind } from "../core/rows.ts";
import type { TimeRange } from "../core/time.ts";

/**
 * What a span store must be able to do (`scan`, `find`), and what it may do faster than over these two (the others).
 * `src/tracing/analytics.ts` defines all of `SpanAnalytics` over a reader (`createSpanAnalytics`).
 *
 * - Batches are in any order and end anywhere.
 * - A span is returned once, also when two sources of one site hold its document. A document in sources of two sites is
 *   returned for each site, with its `site_id`.
 * - `find` may recognise a span that an exporter sent twice, if its documents say the same; it returns each that differs.
 *   Counts over a range count documents: a source could not count anything else without sending them all.
 * - A span is complete: it has its events and exceptions, wherever its layout keeps them.
 */
export interface SpanReader {
  /**
   * Returns the selected spans whose END lies in the range, whenever they started.
   * @throws {Refused} `result_too_large` from the budget
   * @throws {BackendError}
   */
  scan(query: SpanScan, signal: AbortSignal): AsyncIterable<readonly Span[]>;
  /**
   * Returns the spans that ids name, of any time. There may be many thousands of ids, each once; the store divides them
   * among requests. An id that no span has finds nothing. Errors as `scan`.
   */
  find(query: SpanLookup, signal: AbortSignal): AsyncIterable<readonly Span[]>;
  /**
   * Returns the spans of `scan`, with equal ones (`TallyQuery.by`) counted together where the source can do so exactly,
   * and the others one by one. Only with the sources of one site. Errors as `scan`.
   */
  tally?(query: TallyQuery, signal: AbortSignal): AsyncIterable<readonly SpanTally[]>;
  /**
   * Returns ids of spans that may have at least `least` children of `statements` with one normalised statement, of any
   * time: a superset of those that have. Undefined where the source cannot find them. Errors as `scan`.
   */
  findNPlusOneParents?(query: NPlusOneQuery, signal: AbortSignal): Promise<readonly string[] | undefined>;
  /**
   * Returns where to split a scan so that its first part has about `nth` spans: an instant or a duration in nanoseconds,
   * in the order of the query. A hint, which never changes an answer. Undefined where there are fewer spans, or the
   * source cannot estimate it.
   */
  findSplitPoint?(query: SplitPointQuery, signal: AbortSignal): Promise<bigint | undefined>;
  /**
   * Returns ids of traces that may have an exception, of any time: a superset of those that have. Undefined where the
   * source cannot find them without reading spans. Errors as `scan`.
   */
  findTraceIdsWithExceptions?(
    query: ExceptionTracesQuery,
    signal: AbortSignal,
  ): Promise<readonly string[] | undefined>;
  /**
   * Returns ids of the traces that may have a span of the scan: a superset of those that have one. Undefined where the source
   * cannot list them without reading spans. Errors as `scan`.
   */
  findTraceIds?(query: SpanScan, signal: AbortSignal): Promise<readonly string[] | undefined>;
  /** Estimates how many spans a scan would read: a hint, which never changes an answer. Undefined where unknown. */
  count?(query: SpanScan, signal: AbortSignal): Promise<number | undefined>;
  /**
   * Opens a snapshot of the sources and compares it with an earlier one. Undefined where the source cannot hold one moment,
   * or cannot tell what has changed. Errors as `scan`.
   */
  openSnapshot?(
    sources: SpanSources,
    since: SnapshotVersion | undefined,
    signal: AbortSignal,
  ): Promise<SpanSnapshot | undefined>;
  /**
   * Reads a version that `SnapshotVersion.print` has printed, also in another process. Undefined where it is none, or is of
   * another user or another way to decode documents.
   */
  parseVersion?(text: string): SnapshotVersion | undefined;
}

/** The `traces` part of a site, or the index of the error reports of its browsers. */
export interface SpanSource {
  readonly site: string;
  /** A comma list of patterns: spans, and the layout's documents of events or errors. */
  readonly index: string;
  readonly layout: string;
  /** The tenant filter, as of a `LogSource`. It applies to every request, also to look-ups by id. */
  readonly tenantFilter: string | undefined;
  /** Attributes whose keys begin with one of these are tags. */
  readonly tagPrefixes: readonly string[];
  readonly namespaceAttribute: string;
  readonly actionAttribute: string;
  /** Where spans lie in several backends: as each of these reads them. What is kept of the spans depends on all of it. */
  readonly places?: readonly SpanSource[];
}

export type SpanSources = readonly [SpanSource, ...SpanSource[]];

/** Names a span in any site: span ids are unique only within their trace. */
export interface SpanId {
  readonly trace_id: string;
  readonly span_id: string;
}

/**
 * How many documents one request may read, over all its calls and backends. A document is a span, a separate event, a
 * standalone error, or a group of spans that the source has counted; a hundred ids without documents count as one. A
 * store spends documents as soon as it knows how many the source sends.
 */
export interface Budget {
  readonly limit: number;
  /** @throws {Refused} `result_too_large` when more than `limit` documents are spent in all */
  spend(documents: number): void;
  /** Reports documents that have arrived, for messages. */
  reportRead?(documents: number): void;
  /** Counts what the caller keeps of what it reads: no store counts what it passes on. */
  readonly held?: HeldBytes | undefined;
}

/**
 * Which spans a query is about:
 *
 * - `all`.
 * - `entries`: `Span.entry`, but no error reports.
 * - `children`: all but entries.
 * - `calls`: of kind client or producer, entries or not.
 * - `exceptions`: with an event named `exception`.
 * - `statements`: of kind client with a `statement`.
 */
export type SpanSelection = "all" | "entries" | "children" | "calls" | "exceptions" | "statements";

export interface SpanScan {
  readonly sources: SpanSources;
  readonly range: TimeRange;
  readonly select: SpanSelection;
  /** Lets a store read less: it may omit spans that do not satisfy all of these conditions, and need not. */
  readonly pushdown?: SpanPushdown | undefined;
  /** As in `SpanLookup`; not with `exceptions`. */
  readonly withoutEvents?: boolean | undefined;
  readonly budget: Budget;
}

export interface SpanPushdown {
  readonly service?: string | undefined;
  readonly revision?: string | undefined;
  /** Any of these, as `deriveNames` of `src/tracing/spans/requests.ts` names the span itself. */
  readonly namespaces?: readonly string[] | undefined;
  readonly actions?: readonly string[] | undefined;
  /** All of these: the text is the tag's value, or one of its values. */
  readonly tags?: readonly { readonly name: string; readonly value: string }[] | undefined;
  /** Any of these exceptions: with this digest of its own, or of this type; only with `exceptions`. */
  readonly errors?:
    | readonly { readonly digest: string; readonly exception?: string | undefined }[]
    | undefined;
  readonly kind?: SpanKind | undefined;
  readonly name?: string | undefined;
  /** Nanoseconds, inclusive, as `maxDuration`. */
  readonly minDuration?: bigint | undefined;
  readonly maxDuration?: bigint | undefined;
}

export interface SpanLookup {
  readonly sources: SpanSources;
  readonly of: /** All spans of the selection in these traces. */
    | { readonly by: "trace"; readonly traceIds: readonly string[]; readonly select: SpanSelection }
    /** These spans. */
    | { readonly by: "span"; readonly spans: readonly SpanId[] }
    /** The spans with these ids, in any trace. */
    | { readonly by: "id"; readonly spanIds: readonly string[] }
    /**
     * The spans that these spans called: entries (no error reports) of the same trace that name one of them as parent or
     * are its callee side under the same id (`isCalleeSide`), and entries of any trace with a link to one of them. And the
     * `calls` of the same trace that name one of them as parent, which tell whose the callee sides under their ids are.
     */
    | {
        readonly by: "caller";
        readonly spans: readonly SpanId[];
        /** Lets a store omit spans of the callers' own traces, because a look-up by trace has returned them. */
        readonly areTracesRead?: boolean | undefined;
      }
    /** The spans of kind client with a statement that name one of these as their parent, in any trace. */
    | { readonly by: "parent"; readonly spanIds: readonly string[] };
  /** Lets a store omit spans that a scan with these would not return; not with `exceptions`. */
  readonly within?: Pick<SpanScan, "range" | "pushdown"> | undefined;
  /** Lets a store omit spans whose end lies in this range, because a scan has returned them. Only by `caller` and `trace`. */
  readonly outside?: TimeRange | undefined;
  /**
   * The caller needs neither events nor error reports, so a store may omit those in documents of their own. Not with
   * `exceptions`.
   */
  readonly withoutEvents?: boolean | undefined;
  readonly budget: Budget;
}

export interface TallyQuery extends SpanScan {
  /**
   * Which fields equal spans have in common, besides `revision` where `pushdown` names one:
   *
   * - `request`: kind, status, name, namespace and action, and whether they are error reports.
   * - `event`: service, kind, name, statement as sent.
   * - `deploy`: as `request` with `revision` and without name and action, and with `lengths`.
   */
  readonly by: "request" | "event" | "deploy";
}

/** Equal spans, counted together. */
export interface SpanTally {
  /** The only span where `isSingle`; else a span of which only the common fields have a meaning. */
  readonly span: Span;
  readonly isSingle: boolean;
  readonly spans: number;
  /** The sum of their durations, nanoseconds. */
  readonly total: bigint;
  /** Durations in nanoseconds, each within 2 %, with the number of spans. */
  readonly lengths?: readonly { readonly length: number; readonly spans: number }[] | undefined;
}

export interface NPlusOneQuery {
  readonly sources: SpanSources;
  /** The least number of children. A span that stands for several counts as that many. */
  readonly least: number;
  /** Lets a store omit parents whose children are in other traces. */
  readonly traceIds?: readonly string[] | undefined;
  readonly budget: Budget;
}

export interface ExceptionTracesQuery {
  readonly sources: SpanSources;
  readonly errors?: SpanPushdown["errors"];
  readonly budget: Budget;
}

export interface SplitPointQuery extends SpanScan {
  readonly by: "time" | "duration";
  readonly order: "asc" | "desc";
  /** From 1 to 10,000. */
  readonly nth: number;
}

// ---- Snapshots ------------------------------------------------------------------------------------------------

/** Identifies what a snapshot holds. Only the store that made it can read the rest. */
export interface SnapshotVersion {
  /** About how many bytes of memory it takes. */
  readonly bytes: number;
  /** A text that `SpanReader.parseVersion` reads. Absent where versions end with the process. */
  readonly print?: () => string;
}

/**
 * The spans of some sources as they were at one moment. It lets figures be kept that were read once: a later snapshot proves
 * which of them still hold.
 */
export interface SpanSnapshot {
  /** Reads the documents of the snapshot. Its scans and look-ups are `withoutEvents`. */
  readonly reader: SpanReader;
  /**
   * Returns a reader of the same documents that reports where they come from: at least each origin of what it returns. What is
   * made of that holds as long as none of these has changed.
   */
  readonly trackOrigins: (report: (origin: string) => void) => SpanReader;
  readonly version: SnapshotVersion;
  /**
   * What this snapshot holds beyond an earlier one. Undefined without an earlier one, and where nobody can say of which origins
   * documents have changed or are gone.
   */
  readonly added: AddedSpans | undefined;
  /**
   * Origins of which documents of the earlier one are missing: they are deleted, or this snapshot is of copies that do not show
   * them yet.
   */
  readonly behindOrigins: ReadonlySet<string>;
  /** What the snapshot is for some of its sources, compared with an earlier version of these. Errors as `SpanReader.scan`. */
  readonly select: (
    sources: SpanSources,
    since: SnapshotVersion | undefined,
    signal: AbortSignal,
  ) => Promise<Pick<SpanSnapshot, "version" | "added" | "behindOrigins">>;
  /** Frees the snapshot at the source without waiting. */
  readonly close: () => void;
}

export interface AddedSpans {
  /** How many documents may have been added, of these sources or of others in the same place. */
  readonly documents: number;
  /**
   * Origins of which nothing that was made holds any more: an index was deleted, or is another one, or some of its documents have
   * changed or are gone. What it may have beyond the earlier one is added.
   */
  readonly changedOrigins: ReadonlySet<string>;
  /** Returns the added spans of the sources in the range, and maybe others that were there. Errors as `SpanReader.scan`. */
  readonly read: (
    query: Pick<SpanScan, "range" | "budget">,
    signal: AbortSignal,
  ) => AsyncIterable<readonly Span[]>;
}
