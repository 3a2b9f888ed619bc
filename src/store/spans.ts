// Spans: the primitives that a span store must have or may have. `span-analytics.ts` is everything else that the API asks
// of spans; `src/tracing/` defines it over these primitives.
// The promises of every store (`backend.ts`) hold here too.
import type { Span, SpanKind } from "../core/rows.ts";
import type { TimeRange } from "../core/time.ts";

/**
 * What every span store must be able to do; the promises of `LogStore` hold here too. `src/tracing/analytics.ts`
 * answers everything else from these two, and is the definition of it, so that a new store is
 * `{ ...reader, ...analyticsOver(reader) }`, and a fast one replaces some of those by its own.
 *
 * Batches come in any order and end anywhere. A span comes once: also when two sources of one site hold its document. A
 * document that an exporter sent twice is told from two spans by `find` only: what is counted over a range counts
 * documents, since no source could count anything else without sending them all. A span whose document lies in the
 * sources of two sites comes once for each, with that site's `site_id`. A span comes whole: with its events and
 * exceptions, wherever its layout keeps them.
 */
export interface SpanReader {
  /**
   * The spans of a kind whose END lies in the range; how long a span is, and so when it started, makes no difference.
   * @throws {Refused} `result_too_large` from the budget
   * @throws {BackendError}
   */
  scan(query: SpanScan, signal: AbortSignal): AsyncIterable<readonly Span[]>;
  /**
   * The spans that ids name, whenever they were. There may be many thousands of ids, each once; the store cuts them
   * into requests. Ids that nothing has find nothing. Errors as `scan`.
   */
  find(query: SpanLookup, signal: AbortSignal): AsyncIterable<readonly Span[]>;
  /**
   * The spans of `scan`, those that are alike counted together as far as the source can do so exactly. What it does
   * not know for sure comes span by span. Only with the sources of one site. Absent: `scan` is all there is.
   */
  tally?(query: TallyQuery, signal: AbortSignal): AsyncIterable<readonly SpanTally[]>;
  /**
   * Ids of spans that may have so many children of `statements` with one normalised statement, whenever they were: all
   * that do, and others. Undefined where the source cannot tell.
   */
  findNPlusOneParents?(query: NPlusOneQuery, signal: AbortSignal): Promise<readonly string[] | undefined>;
  /**
   * Where to cut a scan so that its first part has about `nth` spans: an instant or a length in nanoseconds, in the
   * order asked for. A hint, by which nothing is decided; undefined where there are not so many, or nobody knows.
   */
  findSplitPoint?(query: SplitPointQuery, signal: AbortSignal): Promise<bigint | undefined>;
  /**
   * Ids of the traces that may have an exception, whenever it was: of all that do, and of others. Undefined where the
   * source cannot tell by less than its spans.
   */
  findTraceIdsWithExceptions?(
    query: ExceptionTracesQuery,
    signal: AbortSignal,
  ): Promise<readonly string[] | undefined>;
  /** About how many spans a scan would read: a hint, by which nothing is decided. Undefined where nobody knows. */
  count?(query: SpanScan, signal: AbortSignal): Promise<number | undefined>;
}

/** The `traces` part of a site's configuration, or the index of its browsers' error reports. */
export interface SpanSource {
  readonly site: string;
  /** A comma list of patterns: spans, and the layout's documents of events or errors. */
  readonly index: string;
  readonly layout: string;
  /** As in `LogSource`; it scopes every request, look-ups by id too. */
  readonly where?: string | undefined;
  /** Attributes whose keys begin so are tags. */
  readonly tagPrefixes: readonly string[];
  readonly namespaceAttribute: string;
  readonly actionAttribute: string;
}

export type SpanSources = readonly [SpanSource, ...SpanSource[]];

/** A span within any site: span ids are unique in their trace only. */
export interface SpanId {
  readonly trace_id: string;
  readonly span_id: string;
}

/**
 * How much one request may still read, over all its calls and backends. A store spends a document (a span, an event or
 * error that its layout keeps apart, or a group of spans that the source has counted) for each that the source sends,
 * as early as it knows their number; a hundred ids alone are as one.
 */
export interface Budget {
  readonly limit: number;
  /** @throws {Refused} `result_too_large` when more than `limit` are spent in all. */
  spend(documents: number): void;
}

/**
 * - `all`
 * - `entries`: `Span.entry`, but no reports.
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
  /** Lets a store read less: it may leave out spans that do not satisfy all of it, and need not. */
  readonly pushdown?: SpanPushdown | undefined;
  /** As of a lookup; not with `exceptions`. */
  readonly withoutEvents?: boolean | undefined;
  readonly budget: Budget;
}

export interface SpanPushdown {
  readonly service?: string | undefined;
  readonly revision?: string | undefined;
  /** Any of these, as `namesOf` of `src/tracing/spans/requests.ts` names the span itself. */
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
     * Those that these spans called: entries (no reports) of the same trace that name one of them as parent or are its
     * other side (`isCalleeSide`), and entries of any trace with a link to one of them.
     */
    | { readonly by: "caller"; readonly spans: readonly SpanId[] }
    /** The spans of kind client with a statement that name one of these as their parent, in any trace. */
    | { readonly by: "parent"; readonly spanIds: readonly string[] };
  /** Lets a store leave out spans that no scan with these would have; not with `exceptions`. */
  readonly within?: Pick<SpanScan, "range" | "pushdown"> | undefined;
  /**
   * Nobody looks at the events, nor for reports: a store may leave out those that its layout keeps apart. Not with
   * `exceptions`.
   */
  readonly withoutEvents?: boolean | undefined;
  readonly budget: Budget;
}

export interface TallyQuery extends SpanScan {
  /**
   * What makes spans alike, besides `revision` where `narrow` names one:
   *
   * - `request`: kind, status, name, namespace and action, whether they are reports.
   * - `event`: service, kind, name, statement as sent.
   * - `deploy`: as `request` without name and action, and with `lengths`.
   */
  readonly by: "request" | "event" | "deploy";
}

/** Spans that are alike. */
export interface SpanTally {
  /** Where `whole`, the only span; else one that has what they share, and nothing else that means anything. */
  readonly span: Span;
  readonly isSingle: boolean;
  readonly spans: number;
  /** Of all their lengths, nanoseconds. */
  readonly total: bigint;
  /** How many are how long, each within 2 %, nanoseconds. */
  readonly lengths?: readonly { readonly length: number; readonly spans: number }[] | undefined;
}

export interface NPlusOneQuery {
  readonly sources: SpanSources;
  /** Spans that stand for several count as that many. */
  readonly least: number;
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
