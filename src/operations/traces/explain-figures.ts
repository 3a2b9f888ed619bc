// Explains figures over the spans of one site: what is read, and within which limit. Whether the store reads spans or has them
// aggregated is decided while it runs, so it is reported with the requests of that run.
import type { SpanPart } from "../../access/sites.ts";
import type { TimeRange } from "../../core/time.ts";
import { printTimeRange } from "../runtime/explain.ts";
import type { Context } from "../runtime/operation.ts";

export function explainFigures(
  { backend, source: { site, index, layout } }: SpanPart,
  range: TimeRange,
  { limits }: Context,
) {
  return {
    document_limit: limits.documents,
    sources: [{ site_id: site, backend, index, layout, range: printTimeRange(range) }],
  };
}
