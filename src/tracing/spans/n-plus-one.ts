// N+1 queries: many database calls of one parent that differ in their values only.

import { groupInTurns } from "../../core/async/turns.ts";
import { requireFirst } from "../../core/collections.ts";
import type { Span } from "../../core/rows.ts";
import type { Budget, SpanReader, SpanSources } from "../../store/spans.ts";
import { findSpans, formatEntryKey, loadAncestors } from "./entry-lookup.ts";
import { releaseAfter } from "./read-budget.ts";
import { createNormaliser } from "./statement-cache.ts";

/** So many sibling calls with one normalised statement are an N+1. */
export const npoThreshold = 5;

/**
 * One span of each N+1: of at least five client spans with one parent and one normalised statement. A compressed span counts
 * as its `count`. Entries do not count, because they are requests of their own. Takes turns with other requests.
 */
export async function findNPlusOnes(spans: readonly Span[], signal: AbortSignal): Promise<readonly Span[]> {
  const normalise = createNormaliser();
  const byParent = await groupInTurns(
    spans.filter(isQuery),
    ({ site_id, trace_id, parent_span_id }) => `${site_id} ${trace_id} ${parent_span_id}`,
    signal,
  );
  const found: Span[] = [];
  for (const siblings of byParent.values()) {
    // Most parents have too few, so that their statements are not looked at.
    if (!areEnough(siblings)) continue;
    const byStatement = await groupInTurns(siblings, ({ statement }) => normalise(statement), signal);
    for (const calls of byStatement.values()) if (areEnough(calls)) found.push(requireFirst(calls));
  }
  return found;
}

interface Query extends Span {
  readonly statement: string;
}

function isQuery(span: Span): span is Query {
  return (
    !span.entry &&
    span.span_kind === "client" &&
    span.statement !== undefined &&
    span.parent_span_id !== undefined
  );
}

function areEnough(queries: readonly Query[]): boolean {
  return queries.reduce((sum, { count }) => sum + count, 0) >= npoThreshold;
}

/** The keys (`formatEntryKey`) of the entries in these traces that have an N+1 below them. */
export function findEntriesWithNpo(
  reader: SpanReader,
  sources: SpanSources,
  traceIds: readonly string[],
  budget: Budget,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  return releaseAfter(budget, (own) => searchEntriesWithNpo(reader, sources, traceIds, own, signal));
}

async function searchEntriesWithNpo(
  reader: SpanReader,
  sources: SpanSources,
  traceIds: readonly string[],
  budget: Budget,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const of = { by: "trace", traceIds, select: "statements" } as const;
  const statements = await findSpans(reader, { sources, of, withoutEvents: true, budget }, signal);
  const spans = await findNPlusOnes(statements, signal);
  const ancestors = await loadAncestors(reader, sources, spans, budget, signal);
  const keys = new Set<string>();
  for (const span of spans) {
    const entry = ancestors.findEntry(span);
    if (entry !== undefined) keys.add(formatEntryKey(entry));
  }
  return keys;
}
