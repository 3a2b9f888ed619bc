// N+1 queries: many database calls of one parent that differ in their values only.

import type { Span } from "../../core/rows.ts";
import type { Budget, SpanReader, SpanSources } from "../../store/spans.ts";
import { findSpans, formatEntryKey, loadAncestors } from "./entry-lookup.ts";
import { createNormaliser } from "./statement-cache.ts";

/** So many sibling calls with one normalised statement are an N+1. */
export const npoThreshold = 5;

/**
 * One span of each N+1: of at least five client spans with one parent and one normalised statement. A compressed span counts
 * as its `count`. Entries do not count, because they are requests of their own.
 */
export function findNPlusOnes(spans: Iterable<Span>): readonly Span[] {
  const normalise = createNormaliser();
  return listSiblings(spans).flatMap((siblings) => {
    const groups = new Map<string, { readonly span: Span; count: number }>();
    for (const { span, statement } of siblings) {
      const key = normalise(statement);
      const group = groups.get(key);
      if (group === undefined) groups.set(key, { span, count: span.count });
      else group.count += span.count;
    }
    return [...groups.values()].filter(isNPlusOne).map(({ span }) => span);
  });
}

interface StatementSpan {
  readonly span: Span;
  readonly statement: string;
}

/** Client spans with statements, by parent. Most parents have too few for an N+1 and are left out. */
function listSiblings(spans: Iterable<Span>): readonly (readonly StatementSpan[])[] {
  const byParent = new Map<string, { count: number; readonly own: StatementSpan[] }>();
  for (const span of spans) {
    const { site_id, trace_id, parent_span_id, span_kind, statement, entry } = span;
    if (entry || span_kind !== "client" || statement === undefined || parent_span_id === undefined) continue;
    const key = `${site_id} ${trace_id} ${parent_span_id}`;
    const siblings = byParent.get(key) ?? { count: 0, own: [] };
    if (siblings.own.length === 0) byParent.set(key, siblings);
    siblings.count += span.count;
    siblings.own.push({ span, statement });
  }
  return [...byParent.values()].filter(isNPlusOne).map(({ own }) => own);
}

const isNPlusOne = ({ count }: { readonly count: number }): boolean => count >= npoThreshold;

/** The keys (`formatEntryKey`) of the entries in these traces that have an N+1 below them. */
export async function findEntriesWithNpo(
  reader: SpanReader,
  sources: SpanSources,
  traceIds: readonly string[],
  budget: Budget,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const of = { by: "trace", traceIds, select: "statements" } as const;
  const statements = await findSpans(reader, { sources, of, withoutEvents: true, budget }, signal);
  const spans = findNPlusOnes(statements);
  const ancestors = await loadAncestors(reader, sources, spans, budget, signal);
  const keys = new Set<string>();
  for (const span of spans) {
    const entry = ancestors.findEntry(span);
    if (entry !== undefined) keys.add(formatEntryKey(entry));
  }
  return keys;
}
