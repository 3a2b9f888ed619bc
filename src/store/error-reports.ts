// Error reports of browsers: the only data that Readout writes.
import type { Span } from "../core/rows.ts";

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

/** Where a site's front-end error reports are written. */
export interface ErrorReportTarget {
  readonly site: string;
  /** One index or data stream; no pattern. */
  readonly index: string;
  readonly layout: string;
}
