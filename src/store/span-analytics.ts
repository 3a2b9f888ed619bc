// Requests, calls and slow events: what the API asks of the spans of a backend. `src/tracing/` defines the words of these
// comments (request, the entry above a span, namespace, action, digest, N+1, statement), and answers every method over a
// `SpanReader`; a store overrides a method where it is faster.
// The promises of every store (`backend.ts`) hold here too.
import type {
  ActionEdge,
  ActionRow,
  Edge,
  RevisionStats,
  SlowEvent,
  SlowEventAction,
  SpanKind,
  TraceLocation,
  TraceSummary,
} from "../core/rows.ts";
import type { TimeRange } from "../core/time.ts";
import type { Filter } from "../log-query/ast.ts";
import type { Budget, SpanReader, SpanSource, SpanSources } from "./spans.ts";

/**
 * A backend's spans and all that the API asks of them. The words of these docstrings (request, the entry above a
 * span, namespace, action, digest, N+1, statement) are defined in `src/tracing/` and nowhere else.
 */
export interface SpanStore extends SpanReader, SpanAnalytics {}

/**
 * Every function takes the budget's refusal and `BackendError` as its errors. Means and percentiles are in
 * milliseconds; percentiles lie within 2 % of the order statistics around the rank. Rows come in any order but for
 * `summaries`.
 */
export interface SpanAnalytics {
  /**
   * One row for each (site, trace) that has a candidate which the filter accepts, from the range by the row's `time`.
   *
   * - `requests`: candidates are requests: entries that are no reports. The row is the accepted root (a span without
   *   a parent), else the accepted one with the earliest start, then the least span id.
   * - `errors`: candidates are spans with an exception, reports too. The row is the accepted one with the earliest
   *   exception, then the least span id: its `span_id` with the fields of the entry above it, or where its site has
   *   none, with those that it would have as an entry.
   *
   * The row is chosen before `beyond` is applied. Order: by `time` or `duration`, then `site_id`, then `trace_id`
   * (by UTF-16 code unit); `desc` is the exact reverse. A batch ends between two milliseconds or two durations,
   * never inside one.
   *
   * @throws {Refused} `result_too_large` also when one millisecond or duration has more rows than `tieLimit`.
   */
  summaries(query: ListingQuery, signal: AbortSignal): AsyncIterable<readonly TraceSummary[]>;
  /** The requests and the exceptions of a trace, whenever they were, each combination once. */
  locate(query: LocateQuery, signal: AbortSignal): Promise<TraceLocation>;
  /** The requests of the range by namespace and action, whatever their service. */
  actions(query: ActionsQuery, signal: AbortSignal): Promise<readonly ActionRow[]>;
  /**
   * Calls whose CALLER ends in the range. A call is a pair of a span of kind client or producer (the caller) and a
   * request of a site or partner that names it as its parent, links to it or is its other side under one id; a caller
   * without one is one call of its `peer`, or none where that is absent. All figures are the caller's.
   */
  siteEdges(query: EdgesQuery, signal: AbortSignal): Promise<SiteEdges>;
  /** The calls of `siteEdges` that requests of one action make (downstream) and take (upstream). */
  actionEdges(query: ActionEdgesQuery, signal: AbortSignal): Promise<ActionEdges>;
  /**
   * The children (`SpanSelection`) whose own end lies in the range, by service, kind, name and normalised statement:
   * of the groups that have a span which passes the filters, the `limit` with the greatest impact, over those spans.
   */
  slowEvents(query: SlowEventsQuery, signal: AbortSignal): Promise<readonly SlowEvent[]>;
  /** The spans of one slow event by the namespace and action of the entry above them; both `""` where there is none. */
  slowEventActions(query: SlowEventActionsQuery, signal: AbortSignal): Promise<readonly SlowEventAction[]>;
  /** The requests of a revision; undefined where there is none. */
  revisionStats(query: RevisionQuery, signal: AbortSignal): Promise<RevisionStats | undefined>;
}

export interface ListingQuery {
  readonly sources: SpanSources;
  readonly candidates: "requests" | "errors";
  readonly range: TimeRange;
  readonly filter: TraceFilter;
  /** One row for each (site, trace, namespace and action), as if each action had a listing of its own; of `requests`. */
  readonly byAction?: boolean | undefined;
  readonly by: "time" | "duration";
  readonly order: "asc" | "desc";
  /** Only rows strictly beyond this in the order: an `Instant`, or a duration in nanoseconds. */
  readonly beyond?: bigint | undefined;
  /** How many rows the caller expects to read: a hint for the size of requests, not a limit. */
  readonly expectedRows: number;
  readonly tieLimit: number;
  readonly budget: Budget;
}

/** What a candidate's row must satisfy; absent lets everything pass. `isRowAccepted` of `src/tracing/listing/trace-query.ts` is the definition. */
export interface TraceFilter {
  readonly traceId?: string | undefined;
  readonly namespace?: string | undefined;
  readonly action?: string | undefined;
  /** Nanoseconds, inclusive. */
  readonly minDuration?: bigint | undefined;
  /**
   * Any of these: the digest of the row's action, or of an exception (of the candidate span in `errors`, of any span
   * of the request in `requests`). `decodeDigest` of `src/tracing/spans/digest.ts` says what one of ours stands for; any
   * other text can only be a digest that the source's exceptions carry themselves.
   */
  readonly digests?: readonly [string, ...string[]] | undefined;
  readonly query: Filter<TraceField>;
}

/** A field of the trace query language (contract, "Tracing"). */
export type TraceField =
  | { readonly kind: "tag"; readonly name: string }
  | { readonly kind: "row"; readonly name: (typeof traceFields)[number] }
  /** A bare word: the action, or any tag's value. */
  | { readonly kind: "any" };

export const traceFields = [
  "revision",
  "trace_id",
  "span_id",
  "site_id",
  "namespace",
  "action_name",
] as const;

export interface LocateQuery {
  readonly sources: SpanSources;
  readonly traceId: string;
  readonly budget: Budget;
}

/** `sources` of the queries below are those of one site. */
export interface ActionsQuery {
  readonly sources: SpanSources;
  readonly range: TimeRange;
  /** Empty lets all pass. */
  readonly namespaces: readonly string[];
  readonly revision?: string | undefined;
  readonly action?: string | undefined;
  readonly budget: Budget;
}

export interface EdgesQuery {
  readonly sources: SpanSources;
  /** Other sites of the backend among which partners are looked for. */
  readonly partners: readonly SpanSource[];
  readonly range: TimeRange;
  readonly budget: Budget;
}

/** `service` and `namespace` are compared as the API joins them, by a slash: where one ends, it does not say. */
export interface ActionEdgesQuery extends EdgesQuery {
  readonly service: string;
  readonly namespace: string;
  readonly action: string;
}

export interface SiteEdges {
  readonly upstream: readonly Edge[];
  readonly downstream: readonly Edge[];
  readonly internal: readonly Edge[];
}

export interface ActionEdges {
  readonly upstream: readonly ActionEdge[];
  readonly downstream: readonly ActionEdge[];
}

export interface SlowEventsQuery {
  readonly sources: SpanSources;
  readonly range: TimeRange;
  readonly kind?: SpanKind | undefined;
  /** Keys of `span_attributes`: all must be there, with a value that is not null. */
  readonly requiredAttributes: readonly string[];
  /** None may be there. */
  readonly excludedAttributes: readonly string[];
  readonly limit: number;
  readonly budget: Budget;
}

export interface SlowEventActionsQuery {
  readonly sources: SpanSources;
  readonly range: TimeRange;
  readonly digest: string;
  readonly budget: Budget;
}

export interface RevisionQuery {
  readonly sources: SpanSources;
  readonly range: TimeRange;
  readonly revision: string;
  readonly budget: Budget;
}
