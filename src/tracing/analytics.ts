// The analytics of a span store, defined over the primitives of its reader. A store may replace each by a native one with
// the same results.

import type { TraceLocation } from "../core/rows.ts";
import type { LocateQuery, SpanAnalytics } from "../store/span-analytics.ts";
import type { Budget, SpanReader } from "../store/spans.ts";
import { findActions } from "./action-stats.ts";
import { listSummaries } from "./listing/listing.ts";
import { findRevisionStats, findStatsOfRevisions } from "./revision-stats.ts";
import { findActionEdges, findSiteEdges } from "./service-edges.ts";
import { findSlowEventActions, findSlowEvents } from "./slow-events.ts";
import { findSpans, loadAncestors } from "./spans/entry-lookup.ts";
import { listExceptions } from "./spans/exceptions.ts";
import { releaseAfter } from "./spans/read-budget.ts";
import { deriveNames, isRequest } from "./spans/requests.ts";

export function createSpanAnalytics(reader: SpanReader): SpanAnalytics {
  return {
    summaries: (query, signal) => listSummaries(reader, query, signal),
    locate: answerBy(reader, locateTrace),
    actions: answerBy(reader, findActions),
    siteEdges: answerBy(reader, findSiteEdges),
    actionEdges: answerBy(reader, findActionEdges),
    slowEvents: answerBy(reader, findSlowEvents),
    slowEventActions: answerBy(reader, findSlowEventActions),
    revisionStats: answerBy(reader, findRevisionStats),
    statsOfRevisions: answerBy(reader, findStatsOfRevisions),
  };
}

/** Gives back the spans that were held with the answer, which has none of them. */
function answerBy<Query extends { readonly budget: Budget }, Answer>(
  reader: SpanReader,
  find: (reader: SpanReader, query: Query, signal: AbortSignal) => Promise<Answer>,
) {
  return (query: Query, signal: AbortSignal): Promise<Answer> =>
    releaseAfter(query.budget, (budget) => find(reader, { ...query, budget }, signal));
}

/** The actions of a trace's requests, and the errors of its exceptions, each once. */
async function locateTrace(
  reader: SpanReader,
  { sources, traceId, budget }: LocateQuery,
  signal: AbortSignal,
): Promise<TraceLocation> {
  const find = (select: "entries" | "exceptions") =>
    findSpans(reader, { sources, of: { by: "trace", traceIds: [traceId], select }, budget }, signal);
  const [entries, spans] = await Promise.all([find("entries"), find("exceptions")]);
  const ancestors = await loadAncestors(reader, sources, spans, budget, signal);
  const performance = entries.filter(isRequest).map((span) => {
    const { namespace, action: action_name } = deriveNames(span);
    return { site_id: span.site_id, namespace, action_name };
  });
  const errors = spans.flatMap((span) =>
    listExceptions(span, deriveNames(ancestors.findEntry(span) ?? span)).map(({ digest, name }) => {
      return { site_id: span.site_id, digest, exception_name: name };
    }),
  );
  return { performance: deduplicateRows(performance), errors: deduplicateRows(errors) };
}

/** Equal rows once, in the order of their first. */
export function deduplicateRows<T>(rows: readonly T[]): readonly T[] {
  return [...new Map(rows.map((row) => [JSON.stringify(row), row])).values()];
}
