// Error reports of browsers: the only data that Readout writes.
import type { Span } from "../core/rows.ts";

export interface ErrorReportStore {
  /**
   * Writes reports, each a span with one exception event, under their `trace_id`. Resolves when the source has confirmed
   * every report, so that the caller may delete them. Returns the reports that the source refuses for good, by `trace_id`
   * with the reason. Writing a report again to the same index changes nothing.
   *
   * @throws {BackendError} some may not be written; the caller has to deliver all of them again
   */
  deliver(
    target: ErrorReportTarget,
    reports: readonly Span[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, string>>;
}

/** Where the error reports of a site are written. */
export interface ErrorReportTarget {
  readonly site: string;
  /** An index or data stream, not a pattern. */
  readonly index: string;
  readonly layout: string;
}
