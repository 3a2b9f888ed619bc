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

export interface SpanStore extends SpanReader, SpanAnalytics {}

/**
 * Each method fails with the refusal of its budget or with `BackendError`. Means and percentiles are in milliseconds;
 * percentiles lie within 2 % of the order statistics around the rank. Only `summaries` has an order.
 */
export interface SpanAnalytics {
  /**
   * Returns a row for each (site, trace) with a candidate that the filter accepts and whose `time` is in the range.
   *
   * - `requests`: candidates are requests, which are entries but no error reports. The row is the accepted root (a span without
   *   a parent), else the accepted one with the earliest start, then the least span id.
   * - `errors`: candidates are spans with an exception, also error reports. The row is the accepted one with the earliest
   *   exception, then the least span id: its `span_id` with the fields of the entry above it, or where its site has
   *   none, with those that it would have as an entry.
   *
   * The row is chosen before `beyond` is applied. Order: by `time` or `duration`, then `site_id`, then `trace_id`
   * (by UTF-16 code unit); `desc` is the exact reverse. A batch ends between two milliseconds or two durations,
   * never inside one.
   *
   * @throws {Refused} `result_too_large` also when one millisecond or duration has more rows than `tieLimit`
   */
  summaries(query: ListingQuery, signal: AbortSignal): AsyncIterable<readonly TraceSummary[]>;
  /** Returns the actions and the exceptions of a trace, of any time, each combination once. */
  locate(query: LocateQuery, signal: AbortSignal): Promise<TraceLocation>;
  /** Returns the requests of the range by namespace and action, over all services. */
  actions(query: ActionsQuery, signal: AbortSignal): Promise<readonly ActionRow[]>;
  /**
   * Returns the calls whose CALLER ends in the range. A call is a pair: a span of kind client or producer (the caller),
   * and a request of a site or partner (the callee) that names the caller as parent, links to it, or is its callee side
   * under the same id. A caller without a callee is a call of its `peer`, where it has one. All figures are the caller's.
   */
  siteEdges(query: EdgesQuery, signal: AbortSignal): Promise<SiteEdges>;
  /** Returns the calls of `siteEdges` that requests of one action make (downstream) and receive (upstream). */
  actionEdges(query: ActionEdgesQuery, signal: AbortSignal): Promise<ActionEdges>;
  /**
   * Groups the children (`SpanSelection`) whose end lies in the range by service, kind, name and normalised statement.
   * Returns the `limit` groups with the greatest impact. Only spans that pass the filters count.
   */
  slowEvents(query: SlowEventsQuery, signal: AbortSignal): Promise<readonly SlowEvent[]>;
  /** Returns the spans of one slow event by the namespace and action of the entry above; both `""` without an entry. */
  slowEventActions(query: SlowEventActionsQuery, signal: AbortSignal): Promise<readonly SlowEventAction[]>;
  /** Returns figures of the requests of a revision; undefined where it has none. */
  revisionStats(query: RevisionQuery, signal: AbortSignal): Promise<RevisionStats | undefined>;
  /** Returns the same of several revisions or of all, which are counted together; those without a request are left out. */
  statsOfRevisions(query: RevisionsQuery, signal: AbortSignal): Promise<ReadonlyMap<string, RevisionStats>>;
}

export interface ListingQuery {
  readonly sources: SpanSources;
  readonly candidates: "requests" | "errors";
  readonly range: TimeRange;
  readonly filter: TraceFilter;
  /** A row for each (site, trace, namespace, action), as if each action had its own listing. Only of `requests`. */
  readonly byAction?: boolean | undefined;
  /**
   * A row for each (site, trace, error digest), with its `exception`, as if each digest had its own listing; `has_npo` is
   * not looked for. Only of `errors`.
   */
  readonly byError?: boolean | undefined;
  readonly by: "time" | "duration";
  readonly order: "asc" | "desc";
  /** Only rows strictly after this in the order: an `Instant`, or a duration in nanoseconds. */
  readonly beyond?: bigint | undefined;
  /** How many rows the caller expects to read: a hint for the size of backend requests, not a limit. */
  readonly expectedRows: number;
  readonly tieLimit: number;
  readonly budget: Budget;
}

/** What the row of a candidate must satisfy. `isRowAccepted` of `src/tracing/listing/trace-query.ts` defines it. */
export interface TraceFilter {
  readonly traceId?: string | undefined;
  readonly namespace?: string | undefined;
  readonly action?: string | undefined;
  /** Nanoseconds, inclusive. */
  readonly minDuration?: bigint | undefined;
  /**
   * Any of these: the digest of the row's action, or of an exception (of the candidate span in `errors`, of any span
   * of the request in `requests`). `decodeDigest` of `src/tracing/spans/digest.ts` decodes our own digests; any other
   * text can only be a digest that an exception has in its document.
   */
  readonly digests?: readonly [string, ...string[]] | undefined;
  readonly query: Filter<TraceField>;
}

/** A field of the trace query language (docs/reference/api/tracing.md, "Queries"). */
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
  /** Empty accepts all. */
  readonly namespaces: readonly string[];
  readonly revision?: string | undefined;
  readonly action?: string | undefined;
  readonly budget: Budget;
}

export interface EdgesQuery {
  readonly sources: SpanSources;
  /** Other sites of the backend, whose spans may be callers or callees too. */
  readonly partners: readonly SpanSource[];
  readonly range: TimeRange;
  readonly budget: Budget;
}

/** `service` and `namespace` are compared joined by a slash, as the API gives them: it does not say where one ends. */
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
  /** Keys of `span_attributes` that must all be present, with a value that is not null. */
  readonly requiredAttributes: readonly string[];
  /** Keys of which none may be present. */
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

export interface RevisionsQuery extends Omit<RevisionQuery, "revision"> {
  /** Absent is all that the requests of the range name; an empty text is no name. */
  readonly revisions?: readonly string[] | undefined;
}
