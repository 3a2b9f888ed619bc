// What a backend reports of its data. An inspection is of one part of a site, for `readout check` and for the start of a
// server; a survey is of all data of a source, for `readout init`.
import type { Instant } from "../core/time.ts";
import type { ErrorReportTarget } from "./error-reports.ts";
import type { LogSource } from "./logs.ts";
import type { ForcedLabels } from "./metrics.ts";
import type { SpanSource } from "./spans.ts";

/** Each inspects one part of a site as its store will read it. @throws {BackendError} */
export interface Inspections {
  readonly logs: (source: LogSource, signal: AbortSignal) => Promise<SourceInspection>;
  readonly metrics: (match: ForcedLabels, signal: AbortSignal) => Promise<PartInspection>;
  readonly kubernetes: (match: ForcedLabels, signal: AbortSignal) => Promise<PartInspection>;
  readonly traces: (source: SpanSource, signal: AbortSignal) => Promise<SourceInspection>;
  /** Verifies that reports can be written. May create the index, but leaves no document in it. */
  readonly reports: (target: ErrorReportTarget, signal: AbortSignal) => Promise<PartInspection>;
}

/**
 * Each returns the time of the newest row of a part, as far as a few small requests show it: the newest line, the end of the span
 * that started last, the last scrape. Undefined where there is none. @throws {BackendError}
 */
export interface NewestTimes {
  readonly logs: (source: LogSource, signal: AbortSignal) => Promise<Instant | undefined>;
  readonly traces: (source: SpanSource, signal: AbortSignal) => Promise<Instant | undefined>;
  readonly metrics: (match: ForcedLabels, signal: AbortSignal) => Promise<Instant | undefined>;
  readonly kubernetes: (match: ForcedLabels, signal: AbortSignal) => Promise<Instant | undefined>;
}

/** What was found behind an index pattern. Its texts are for operators. */
export interface SourceInspection {
  readonly layout: string;
  /** The number of indices; absent where the source does not permit listing them. */
  readonly indices?: number;
  readonly newest?: Instant | undefined;
  /** What cannot be answered exactly or cheaply, each with its reason. */
  readonly limitations: readonly string[];
  /** What makes the source unusable, such as a `where` that the index cannot answer exactly. */
  readonly problems: readonly string[];
  /** The indices that the problems are about; absent where one of these is about the whole pattern. */
  readonly faultyIndices?: readonly string[];
  /** The one of the problems that says why the tenant filter (`where`) does not hold. Such a source must not be served. */
  readonly tenantFilterFault?: string;
}

/** What was found of a part without an index pattern. Its texts are for operators. */
export interface PartInspection {
  /** What there is, such as `214 metrics: 120 gauges, …`. */
  readonly found: readonly string[];
  readonly limitations: readonly string[];
  readonly problems: readonly string[];
}

/** All data of a source that `readout init` may propose: the inspection of each part has found no problem. */
export interface Survey {
  /** Log sources by pattern. No index matches two of the patterns. */
  readonly logs: readonly FoundSource[];
  /** Spans, and events in documents of their own. The `traces` of a site name those of one layout together. */
  readonly traces: readonly FoundSource[];
  /** The metrics without any forced label. */
  readonly metrics?: PartInspection | undefined;
  /** Labels that could separate sites, with their values, sorted. */
  readonly labels: ReadonlyMap<string, readonly string[]>;
  /** Each Kubernetes cluster, by the labels that select it. */
  readonly kubernetes: readonly { readonly match: ForcedLabels; readonly report: PartInspection }[];
  /** What was left out, each with the reason. */
  readonly notes: readonly string[];
}

export interface FoundSource {
  readonly holds: "lines" | "spans" | "events";
  /** Of events: whether a source of lines is looked for in the same indices. */
  readonly areLines?: boolean;
  /** A data stream, or a pattern over indices whose names differ by dates and counters only. */
  readonly index: string;
  readonly layout: string;
  /** Set where the mapping does not show the layout. */
  readonly shownBy?: "documents" | undefined;
  /** Why this layout is proposed, where the documents do not show it with certainty. */
  readonly guess?: string | undefined;
  readonly indices: number;
  readonly newest?: Instant | undefined;
  /** The namespaces of its data streams, which usually name the environment; absent without data streams. */
  readonly namespaces?: readonly string[];
  /** The most frequent services of the documents, and the field by which `where` can select one. */
  readonly services?: { readonly field: string; readonly names: readonly string[] } | undefined;
  readonly limitations: readonly string[];
}
