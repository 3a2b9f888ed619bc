// What a backend finds out about its own data: for `readout check` and the start of a server by part of a site
// (`Inspections`), for `readout init` as a whole (`Survey`).
import type { Instant } from "../core/time.ts";
import type { ErrorReportTarget } from "./error-reports.ts";
import type { LogSource } from "./logs.ts";
import type { ForcedLabels } from "./metrics.ts";
import type { SpanSource } from "./spans.ts";

/** Each looks at one part of a site as its store will read it, for `readout check`. @throws {BackendError} */
export interface Inspections {
  readonly logs: (source: LogSource, signal: AbortSignal) => Promise<SourceInspection>;
  readonly metrics: (match: ForcedLabels, signal: AbortSignal) => Promise<PartInspection>;
  readonly kubernetes: (match: ForcedLabels, signal: AbortSignal) => Promise<PartInspection>;
  readonly traces: (source: SpanSource, signal: AbortSignal) => Promise<SourceInspection>;
  /** Proves the right to write, which may make the index but leaves no document in it. */
  readonly reports: (target: ErrorReportTarget, signal: AbortSignal) => Promise<PartInspection>;
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

/** What `readout check` tells of a metrics or Kubernetes part. */
export interface PartInspection {
  /** What was found, such as `214 metrics: 120 gauges, …`, for an operator to read. */
  readonly found: readonly string[];
  readonly limitations: readonly string[];
  readonly problems: readonly string[];
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
