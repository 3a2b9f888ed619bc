// THE CONTRACT between the API and the sources. Above it nothing knows a database; below it nothing knows HTTP
// or GraphQL. It is written as if a stranger will implement it tonight, and `test/conformance` holds every
// implementation to it.

import type {
  ActionEdge,
  ActionRow,
  Buckets,
  Edge,
  LogLine,
  Measure,
  MetricType,
  NodesRow,
  PodOverviewRow,
  PodState,
  PodsRow,
  RevisionStats,
  Series,
  SlowEvent,
  SlowEventAction,
  Span,
  SpanKind,
  TraceLocation,
  TraceSummary,
} from "../core/rows.ts";
import type { Instant, Millis, TimeRange } from "../core/time.ts";
import type { Compare, Filter } from "../log-query/ast.ts";
import type { Budget, SpanReader, SpanSource, SpanSources } from "./span-reader.ts";

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

/** One `logs.sources` entry of a site's configuration. */
export interface LogSource {
  /** The `source_id` of its lines. */
  readonly id: string;
  readonly index: string;
  readonly layout: string;
  /** The wall between tenants: exact by the index alone, or refused when the source is checked. */
  readonly where?: string | undefined;
}

/**
 * The wall of a metrics or Kubernetes part: labels with these values stand in every selector that is sent. Behind it
 * nothing else exists, so neither the names nor the first sample of a metric (`baseline` in `samples.ts`) are another's.
 */
export type ForcedLabels = Readonly<Record<string, string>>;

/**
 * The promises of `LogStore` hold here too. A metric is a family: the parts of a histogram or summary are one, under
 * the family's name. What a measure is over raw samples is defined by `samples.ts`.
 */
export interface MetricStore {
  /** Every metric of the wall, sorted by UTF-16 code unit, each once. @throws {BackendError} */
  names(match: ForcedLabels, signal: AbortSignal): Promise<readonly string[]>;
  /** Undefined for a metric that the source does not have within the wall. @throws {BackendError} */
  type(match: ForcedLabels, metric: string, signal: AbortSignal): Promise<MetricType | undefined>;
  /**
   * Whether that the metric is a gauge or that it is a counter is a guess from its samples, which others may change: a
   * measure of either is answered. @throws {BackendError}
   */
  isTypeGuessed?(match: ForcedLabels, metric: string, signal: AbortSignal): Promise<boolean>;
  /**
   * Each combination of tag keys that some series has: keys sorted, combinations sorted, each once; `[]` where no
   * series has a tag. Forced labels and the source's own (`le`, `calculateQuantile`, `__name__`) are not tags. Undefined as
   * for `type`.
   * @throws {BackendError}
   */
  tagKeys(
    match: ForcedLabels,
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
  readonly match: ForcedLabels;
  readonly metric: string;
  /**
   * Patterns by key, as `matchesTags` of `metrics.ts` reads them: a series has each of the tags, with a value that is
   * not empty. Names and values are data, never query text; a name that is no tag (a forced label, the source's own)
   * matches nothing. Keys may be any text, also `__proto__`.
   */
  readonly tags: Readonly<Record<string, string>>;
  readonly measure: Measure;
  readonly buckets: Buckets;
  /** How far before the first bucket a counter's previous sample is looked for: from `start - lookBack` on. */
  readonly lookBack: Millis;
  /** Series times buckets. The caller has made sure that one series fits. */
  readonly pointLimit: number;
}

/**
 * The promises of `LogStore` hold here too. Rows come by `timestamp`, then namespace, then name. A row shows the newest
 * that is known at its snapshot, within a bound that the store states: so what is gone may be shown until the bound is
 * over. A refusal comes before the first batch. What stores must agree on is in `kubernetes.ts`.
 */
export interface KubernetesStore {
  /** A row per node at each snapshot. @throws {Refused} `result_too_large` over `rowLimit` @throws {BackendError} */
  nodes(query: SnapshotQuery & NodeFilter, signal: AbortSignal): AsyncIterable<readonly NodesRow[]>;
  /** A row per pod at each snapshot: of pods that replaced each other under one name, the newest. Errors as `nodes`. */
  pods(query: SnapshotQuery & PodFilter, signal: AbortSignal): AsyncIterable<readonly PodsRow[]>;
  /** One row per pod that is seen, as it was when it was seen last. Errors as `nodes`. */
  overview(
    query: OverviewQuery & OverviewFilter,
    signal: AbortSignal,
  ): AsyncIterable<readonly PodOverviewRow[]>;
}

/** Snapshots are taken at `start + i * step`; the deltas of the first are taken against the moment one step before. */
export interface SnapshotQuery {
  readonly match: ForcedLabels;
  readonly snapshots: Buckets;
  readonly rowLimit: number;
}
/** Pods are looked for at each full minute from `from` to `to`, and at `to`. */
export interface OverviewQuery {
  readonly match: ForcedLabels;
  readonly from: Millis;
  readonly to: Millis;
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
export interface PartInspection {
  /** What was found, such as `214 metrics: 120 gauges, …`, for an operator to read. */
  readonly found: readonly string[];
  readonly limitations: readonly string[];
  readonly problems: readonly string[];
}

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
   * One row for each (site, trace) that has a candidate which the filter accepts, from the range by the row's `timeSchema`.
   *
   * - `requests`: candidates are requests: entries that are no reports. The row is the accepted root (a span without
   *   a parent), else the accepted one with the earliest start, then the least span id.
   * - `errors`: candidates are spans with an exception, reports too. The row is the accepted one with the earliest
   *   exception, then the least span id: its `span_id` with the fields of the entry above it, or where its site has
   *   none, with those that it would have as an entry.
   *
   * The row is chosen before `computeRest` is applied. Order: by `timeSchema` or `formatDuration`, then `site_id`, then `trace_id`
   * (by UTF-16 code unit); `desc` is the exact reverse. A batch ends between two milliseconds or two durations,
   * never inside one.
   *
   * @throws {Refused} `result_too_large` also when one millisecond or duration has more rows than `computeTieLimit`.
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

/** Where a site's front-end error reports are written. */
export interface ErrorReportTarget {
  readonly site: string;
  /** One index or data stream; no pattern. */
  readonly index: string;
  readonly layout: string;
}

/** The one store that writes. */
export interface ErrorReportStore {
  /**
   * Writes reports, each a span with one exception event, under their `trace_id`. Resolves when the source has
   * confirmed them all, so that they may be forgotten here; what it refuses for good, and will whenever it is asked, is
   * in the answer by `trace_id`, with the reason. A second delivery to the same index changes nothing.
   *
   * @throws {BackendError} some may not have been written: all have to be delivered again
   */
  deliver(
    target: ErrorReportTarget,
    reports: readonly Span[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, string>>;
}

/** What `readout check` tells of an index pattern and its layout. */
export interface SourceInspection {
  readonly layout: string;
  /** Absent where the source does not let us look. */
  readonly indices?: number;
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
  readonly traces: SpanStore;
  readonly reports: ErrorReportStore;
}

/** Each looks at one part of a site as its store will read it, for `readout check`. @throws {BackendError} */
export interface Inspections {
  readonly logs: (source: LogSource, signal: AbortSignal) => Promise<SourceInspection>;
  readonly metrics: (match: ForcedLabels, signal: AbortSignal) => Promise<PartInspection>;
  readonly kubernetes: (match: ForcedLabels, signal: AbortSignal) => Promise<PartInspection>;
  readonly traces: (source: SpanSource, signal: AbortSignal) => Promise<SourceInspection>;
  /** Proves the right to write, which may make the index but leaves no document in it. */
  readonly reports: (target: ErrorReportTarget, signal: AbortSignal) => Promise<PartInspection>;
}

/** What a look at all of a source found, for `readout init` to propose: parts that `Inspections` finds no fault with. */
export interface Survey {
  /** By their pattern. No index is behind two of them. */
  readonly logs: readonly FoundSource[];
  /** Spans, and the documents of their events; a site's `traces` names those of one layout together. */
  readonly traces: readonly FoundSource[];
  /** What is behind no wall at all. */
  readonly metrics?: PartInspection | undefined;
  /** Labels by which metrics may be parted, with their values, sorted. */
  readonly labels: ReadonlyMap<string, readonly string[]>;
  /** Each Kubernetes cluster by its wall. */
  readonly kubernetes: readonly { readonly match: ForcedLabels; readonly report: PartInspection }[];
  /** What was left out, each with the reason, for an operator to read. */
  readonly notes: readonly string[];
}

export interface FoundSource {
  readonly holds: "lines" | "spans" | "events";
  /** A data stream, or a pattern over indices that are alike but for dates and counters. */
  readonly index: string;
  readonly layout: string;
  /** Why it is read so, where nothing shows the layout for sure. */
  readonly guess?: string | undefined;
  readonly indices: number;
  readonly newest?: Instant | undefined;
  /** The environment that its name says it is of: the namespace of a data stream. */
  readonly namespace?: string | undefined;
  /** The services that its documents name most, and the field by which `where` would part them. */
  readonly services?: { readonly field: string; readonly names: readonly string[] } | undefined;
  readonly limitations: readonly string[];
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
  /** Looks at everything there, or at the `patterns` that are given; absent where there is nothing to find. @throws {BackendError} */
  survey?(patterns: readonly string[], signal: AbortSignal): Promise<Survey>;
  close(): Promise<void>;
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

/** A pluggable resolver: what `resolvers/index.ts` lists. Each kind validates its own configuration. */
export interface BackendKind<Config, Logs = unknown, Traces = unknown> {
  readonly kind: string;
  /** @throws {ZodError} all issues at once, paths relative to the backend's entry */
  readonly parseConfig: (value: unknown) => Config;
  /** Of what the log sources and the traces of a site name; a kind without them takes no notice of the names. */
  readonly layouts?: { readonly logs: LayoutReader<Logs>; readonly traces: LayoutReader<Traces> };
  readonly create: (name: string, config: Config, io: IO, own?: CustomLayouts<Logs, Traces>) => Backend;
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
