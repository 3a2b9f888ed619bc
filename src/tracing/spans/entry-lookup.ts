// What has to be looked up beside the spans of a scan: the entries above them, their requests' N+1 queries.
import type { Span } from "../../core/rows.ts";
import type { Budget, SpanId, SpanReader, SpanSources } from "../../store/spans.ts";
import { type AncestorIndex, createAncestorIndex, formatSpanKey } from "./requests.ts";
import { createNormaliser } from "./statement-cache.ts";

export async function readAllSpans(batches: AsyncIterable<readonly Span[]>): Promise<Span[]> {
  const spans: Span[] = [];
  for await (const batch of batches) for (const span of batch) spans.push(span);
  return spans;
}

/** Most entries are a few levels up. What is deeper than this is recursion, whose every level would cost a round. */
const maxLevels = 16;

/**
 * The spans with all that is needed to tell the entry above each of them: level by level, and of deep traces whole. A
 * parent that is in hand is asked for as well: both sides of a call may have one id, and only one of them be in hand.
 */
export async function loadAncestors(
  reader: SpanReader,
  sources: SpanSources,
  spans: readonly Span[],
  budget: Budget,
  signal: AbortSignal,
): Promise<AncestorIndex> {
  const family = createAncestorIndex(spans);
  const asked = new Set<string>();
  let level: readonly Span[] = spans;
  for (let round = 1; level.length > 0; round++) {
    const missing: SpanId[] = [];
    for (const span of level) {
      const { trace_id, parent_span_id: span_id } = span;
      if (span.entry || span_id === undefined) continue;
      const key = formatSpanKey({ trace_id, span_id });
      if (asked.has(key)) continue;
      asked.add(key);
      missing.push({ trace_id, span_id });
    }
    if (missing.length === 0) break;
    if (round > maxLevels) {
      const traceIds = [...new Set(missing.map(({ trace_id }) => trace_id))];
      const of = { by: "trace", traceIds, select: "all" } as const;
      family.add(await readAllSpans(reader.find({ sources, of, withoutEvents: true, budget }, signal)));
      break;
    }
    level = await readAllSpans(
      reader.find({ sources, of: { by: "span", spans: missing }, withoutEvents: true, budget }, signal),
    );
    family.add(level);
  }
  return family;
}

/** So many equal sibling queries make an N+1. */
export const npoThreshold = 5;

/**
 * One span of each N+1 among the spans: at least five client spans of one parent with the same normalised statement;
 * a compressed span counts as its count. An entry is a request of its own, and no query of what is above it.
 */
export function findNPlusOnes(spans: Iterable<Span>): readonly Span[] {
  const normalise = createNormaliser();
  const groups = new Map<string, { readonly span: Span; count: number }>();
  for (const span of spans) {
    const { site_id, trace_id, parent_span_id, span_kind, statement, entry } = span;
    if (entry || span_kind !== "client" || statement === undefined || parent_span_id === undefined) continue;
    const key = `${site_id} ${trace_id} ${parent_span_id} ${normalise(statement)}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { span, count: span.count });
    else group.count += span.count;
  }
  return [...groups.values()].filter(({ count }) => count >= npoThreshold).map(({ span }) => span);
}

/** The entries, of the given traces, below which there is an N+1; by `formatEntryKey`. */
export async function findEntriesWithNpo(
  reader: SpanReader,
  sources: SpanSources,
  traceIds: readonly string[],
  budget: Budget,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const statements = reader.find(
    { sources, of: { by: "trace", traceIds, select: "statements" }, withoutEvents: true, budget },
    signal,
  );
  const found = findNPlusOnes(await readAllSpans(statements));
  const family = await loadAncestors(reader, sources, found, budget, signal);
  const entries = found.flatMap((span) => family.findEntry(span) ?? []);
  return new Set(entries.map(formatEntryKey));
}

/** Tells entries from each other: both sides of a call may have one id, and both be entries. */
export function formatEntryKey({
  site_id,
  trace_id,
  span_id,
  span_kind,
  start,
}: Pick<Span, "site_id" | "trace_id" | "span_id" | "span_kind" | "start">): string {
  return `${site_id} ${trace_id} ${span_id} ${span_kind} ${start}`;
}
