// The rows that stores return, with the names of the wire, so that no field is renamed on its way out. An absent value is
// `undefined` here; only `operations/` writes `""` or `{}` for it.
import type { Instant, Millis } from "./time.ts";

/** The ascending order of answers: texts by UTF-16 code unit. */
export function compare<T extends string | bigint | number>(a: T, b: T): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** By code points, as sources order texts that they keep as UTF-8. */
export function compareCodePoints(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let at = 0; at < length; at += 1) {
    const [left, right] = [a.charCodeAt(at), b.charCodeAt(at)];
    if (left === right) continue;
    // A surrogate stands for a code point above all that are one unit.
    const [isLeftHigh, isRightHigh] = [isSurrogate(left), isSurrogate(right)];
    return isLeftHigh === isRightHigh ? left - right : isLeftHigh ? 1 : -1;
  }
  return a.length - b.length;
}

function isSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdfff;
}

/** Spec, "Log line"; `unknown` is for a text that no rule recognises. `severity-words.ts` has the words of sources. */
export const severities = [
  "trace",
  "debug",
  "info",
  "notice",
  "warn",
  "error",
  "critical",
  "alert",
  "fatal",
  "unknown",
] as const;
export type Severity = (typeof severities)[number];

/**
 * A log line as a store returns it.
 *
 * - `time` is the instant by which the source sorts; the API shows its milliseconds.
 * - `id` is unique within its source.
 * - A line field that the source does not have is absent: it is answered as `""`, but no positive comparison
 *   holds for it. `severity` is never absent.
 * - `json` is the text of the structured body with every number spelled as in the source; `{}` where there is none.
 */
export interface LogLine {
  readonly id: string;
  readonly time: Instant;
  readonly source_id: string;
  readonly severity: Severity;
  readonly message?: string | undefined;
  readonly hostname?: string | undefined;
  readonly group?: string | undefined;
  readonly json: string;
}

/** The order in which lines are answered, ascending. */
export function compareLines(a: LogLine, b: LogLine): number {
  return compare(a.time, b.time) || compare(a.source_id, b.source_id) || compare(a.id, b.id);
}

// ---- Spans --------------------------------------------------------------------------------------------------

/** An attribute's value with every number exact: an integer that a double cannot hold is a bigint. */
export type AttributeValue =
  | string
  | number
  | bigint
  | boolean
  | null
  | readonly AttributeValue[]
  | { readonly [key: string]: AttributeValue };
/** Keys are literal: `http.route` is one key. */
export type Attributes = Readonly<Record<string, AttributeValue>>;

export const spanKinds = ["internal", "server", "client", "producer", "consumer"] as const;
export type SpanKind = (typeof spanKinds)[number];
export type StatusCode = "OK" | "ERROR" | "UNSET";

/** The attribute that is `true` on a span which is the error report of a browser. */
export const errorReportAttribute = "readout.report";

/**
 * A span of one site as its document has it. What only its trace shows (the names of its entry, whether it
 * begins a subtrace) is computed in `src/tracing/`, as are digests.
 */
export interface Span {
  readonly site_id: string;
  /** 32 lower-case hex digits, zeros on the left where the source leaves them out. */
  readonly trace_id: string;
  /** 16 lower-case hex digits; of an error by itself as many as its id has. */
  readonly span_id: string;
  /** Absent on a root. */
  readonly parent_span_id?: string | undefined;
  readonly trace_state?: string | undefined;
  /** With all digits that the source has. */
  readonly start: Instant;
  readonly end: Instant;
  readonly service_name: string;
  readonly span_name: string;
  readonly span_kind: SpanKind;
  readonly scope_name?: string | undefined;
  readonly scope_version?: string | undefined;
  readonly revision?: string | undefined;
  readonly status_code: StatusCode;
  readonly status_message?: string | undefined;
  readonly resource_attributes: Attributes;
  readonly span_attributes: Attributes;
  /** By time. Exceptions are events named `exception`, also those that the layout keeps in documents of their own. */
  readonly events: readonly SpanEvent[];
  readonly links: readonly SpanLink[];
  /** One request: no parent, or of kind server or consumer, or what its layout says. */
  readonly entry: boolean;
  /** What the site's attributes for namespace and action say; absent where the span has none. */
  readonly namespace?: string | undefined;
  readonly action?: string | undefined;
  /** The user's tags, without their prefix. */
  readonly tags: Attributes;
  /** More than 1 for a span that stands for several equal ones. */
  readonly count: number;
  /** What these took together, nanoseconds, where the source tells; else that is the span's length. */
  readonly sum?: bigint | undefined;
  /** The database statement, as sent. */
  readonly statement?: string | undefined;
  /** Who is called, by the span's own attributes. */
  readonly peer?: string | undefined;
  /** An error that has no span but this: a browser's report, or one whose request was not kept. Never a request. */
  readonly report: boolean;
}
export interface SpanEvent {
  readonly time: Instant;
  readonly name: string;
  readonly attributes: Attributes;
}
export interface SpanLink {
  readonly trace_id: string;
  readonly span_id: string;
  readonly trace_state: string;
  readonly attributes: Attributes;
}

/** Spec, "Trace summary". */
export interface TraceSummary {
  readonly site_id: string;
  readonly trace_id: string;
  readonly span_id: string;
  /** Never empty, as is `action_name`. */
  readonly namespace: string;
  readonly action_name: string;
  readonly revision?: string | undefined;
  /** The end of the request, not of its trace. */
  readonly time: Instant;
  /** Nanoseconds. */
  readonly duration: bigint;
  readonly tags: Attributes;
  readonly has_npo: boolean;
  /** Only in listings by error. */
  readonly exception?: ErrorOccurrence | undefined;
}

/** An exception as an event of a span has it. */
export interface ErrorOccurrence {
  /** Identifies the error within its site. */
  readonly digest: string;
  readonly name: string;
  readonly message?: string | undefined;
  /** As the client recorded it, one frame a line. */
  readonly stacktrace?: string | undefined;
}

/** Spec, "TraceLocation". */
export interface TraceLocation {
  readonly performance: readonly {
    readonly site_id: string;
    readonly namespace: string;
    readonly action_name: string;
  }[];
  readonly errors: readonly {
    readonly site_id: string;
    /** The exception's digest, of which the incident's number is made. */
    readonly digest: string;
    readonly exception_name: string;
  }[];
}

export interface ActionRow {
  readonly namespace: string;
  readonly action: string;
  readonly count: number;
  /** Of them with status ERROR. */
  readonly error_count: number;
  readonly mean: Millis;
  readonly has_npo: boolean;
}

/** Spec, "Edge". */
export interface Edge {
  /** Who is at the other end, also where that is no service of its own. */
  readonly service: string;
  readonly count: number;
  readonly error_count: number;
  readonly mean: Millis;
  readonly p_90: Millis;
  readonly p_95: Millis;
}
export interface ActionEdge extends Edge {
  /** Absent, as `action`, at an end without spans; `""` where the caller's entry cannot be found. */
  readonly namespace?: string | undefined;
  readonly action?: string | undefined;
  /** Of the caller. */
  readonly span_kind: SpanKind;
  /** Of the callee; absent where it has no spans. */
  readonly peer_span_kind?: SpanKind | undefined;
  /** ASYNC when either end is a producer or consumer, or a link joins them. */
  readonly edge_type: "SYNC" | "ASYNC";
}

/** Spec, "Slow event". A span that stands for several counts as that many, each as long as its share. */
export interface SlowEvent {
  readonly service: string;
  readonly kind: SpanKind;
  readonly name: string;
  /** Normalised; absent for spans without one. */
  readonly statement?: string | undefined;
  readonly count: number;
  readonly mean: Millis;
  /** The share of the total time of all children of the range, filtered or not: 0 to 100. */
  readonly impact: number;
  /** What the longest span (then the earliest, then by trace and span id) has under the requested names. */
  readonly attributes: Attributes;
}
export interface SlowEventAction {
  readonly namespace: string;
  readonly action_name: string;
  readonly count: number;
  /** Of the longest span, chosen as in `SlowEvent`. */
  readonly trace_id: string;
  readonly start_time: Instant;
}

export interface RevisionStats {
  /** The ends of its first and its last request. */
  readonly first_seen: Instant;
  readonly last_seen: Instant;
  readonly count: number;
  readonly error_count: number;
  readonly mean: Millis;
  readonly p_90: Millis;
  readonly p_95: Millis;
  /** Sorted, each once. */
  readonly namespaces: readonly string[];
}

// ---- Metrics ------------------------------------------------------------------------------------------------

/** Spec, "Metric types". */
export const metricTypes = ["gauge", "counter", "measurement"] as const;
export type MetricType = (typeof metricTypes)[number];

/** Whole buckets `[start + i * step, start + (i + 1) * step)` for `i` from 0 to `count - 1`; milliseconds since 1970. */
export interface Buckets {
  readonly start: Millis;
  readonly step: Millis;
  readonly count: number;
}

/**
 * What a bucket's samples, of one group of series, become. `src/metrics/measures.ts` says which request asks for which,
 * `src/metrics/samples.ts` defines each over raw samples. NaN and infinite samples are left out first.
 *
 * - `samples`, of gauges: over all samples of the group, but for `first` and `last`: the mean of each series' own.
 * - `increment`, of counters: the exact growth, each step in the bucket of its later sample.
 * - `cumulative`, of counters: each series made monotonic over restarts from its first raw value within the buckets,
 *   combined over its samples of the bucket or carried on where it has none; then the sum of the series.
 * - `observations`, of measurements: over what was recorded in the bucket.
 */
export type Measure =
  | { readonly of: "samples"; readonly combine: "first" | "last" | "mean" | "sum" | "min" | "max" | "count" }
  | { readonly of: "samples"; readonly combine: "quantile"; readonly quantile: number }
  | { readonly of: "increment" }
  | { readonly of: "cumulative"; readonly combine: "first" | "last" | "mean" | "min" | "max" }
  | { readonly of: "observations"; readonly combine: "count" | "mean" | "min" | "max" }
  | { readonly of: "observations"; readonly combine: "quantile"; readonly quantile: number };

/** One value per bucket; NaN where the bucket has none. */
export interface Series {
  /** Exactly the keys that the query's `tags` name. */
  readonly tags: Readonly<Record<string, string>>;
  readonly values: Float64Array;
}

// ---- Kubernetes: rows as in the specification, "NodesRow", "PodsRow", "PodOverviewRow" --------------------------

export const podPhases = ["Running", "Succeeded", "Pending", "Failed", "Unknown"] as const;
export type PodPhase = (typeof podPhases)[number];
export type PodState = PodPhase;
export const containerStatuses = ["Running", "Terminated", "Waiting", "Unknown"] as const;

export interface Container {
  readonly name: string;
  readonly status: (typeof containerStatuses)[number];
  readonly exit_code: number;
  readonly reason: string;
}

export interface OwnerReference {
  readonly name: string;
  readonly kind: string;
  readonly namespace: string;
}

/** Figures that the source does not export are 0. */
export interface NodesRow {
  readonly timestamp: Millis;
  readonly node_name: string;
  readonly cpu_usage_nano_cores: number;
  readonly memory_rss_bytes: number;
  readonly memory_usage_bytes: number;
  readonly memory_working_set_bytes: number;
  /** Page faults are cumulative. */
  readonly memory_page_faults: number;
  readonly memory_major_page_faults: number;
  readonly fs_used_bytes: number;
  readonly fs_available_bytes: number;
  readonly fs_capacity_bytes: number;
  readonly fs_inodes_free: number;
  readonly fs_inodes_used: number;
  readonly fs_inodes: number;
  /** Growth since the snapshot before: from 0 where the counter restarted, 0 where nothing is known of that snapshot. */
  readonly network_rx_bytes: number;
  readonly network_tx_bytes: number;
  /** 2 Ready, 4 not ready, 0 unknown. */
  readonly phase: 0 | 2 | 4;
}

interface Pod {
  readonly timestamp: Millis;
  readonly pod_name: string;
  readonly pod_namespace: string;
  /** `""` while the pod is not scheduled. */
  readonly node_name: string;
  readonly phase: PodPhase;
  readonly state: PodState;
  readonly containers: readonly Container[];
  readonly pod_restart_count: number;
  readonly pod_uptime_seconds: number;
}

export interface PodsRow extends Pod {
  readonly cpu_usage_nano_cores: number;
  /** Cumulative, as are page faults. */
  readonly cpu_usage_core_nano_seconds: number;
  readonly memory_rss_bytes: number;
  readonly memory_usage_bytes: number;
  readonly memory_working_set_bytes: number;
  readonly memory_page_faults: number;
  readonly memory_major_page_faults: number;
  readonly ephemeral_storage_used_bytes: number;
  readonly ephemeral_storage_capacity_bytes: number;
  /** As of nodes, but a pod that began since the snapshot before counts from 0. 0 on the node's own network. */
  readonly network_rx_bytes: number;
  readonly network_tx_bytes: number;
  readonly process_count: number;
}

export interface PodOverviewRow extends Pod {
  readonly pod_uuid: string;
  readonly labels: Readonly<Record<string, string>>;
  /** The direct owners. */
  readonly owner_references: readonly OwnerReference[];
}
