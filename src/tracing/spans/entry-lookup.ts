// Reads spans from a store together with the entries above them.

import { takeSteps, takeTurns, visitInTurns } from "../../core/async/turns.ts";
import type { Span } from "../../core/rows.ts";
import type { Budget, SpanId, SpanLookup, SpanReader, SpanSources } from "../../store/spans.ts";
import { holdSpans } from "./read-budget.ts";
import { chooseDocuments } from "./repeated-spans.ts";
import { type AncestorIndex, createAncestorIndex, listTraceIds } from "./requests.ts";
import { addSpanId, type MutableSpanIdSet } from "./span-ids.ts";

/** All spans of the batches, which count as held where there is a budget. */
export async function readAllSpans(
  batches: AsyncIterable<readonly Span[]>,
  budget?: Budget,
): Promise<Span[]> {
  const spans: Span[] = [];
  for await (const batch of batches) {
    if (budget !== undefined) holdSpans(budget, batch);
    for (const span of batch) spans.push(span);
  }
  return spans;
}

/** One document of each span that `SpanReader.find` finds. */
export async function findSpans(
  reader: Pick<SpanReader, "find">,
  lookup: SpanLookup,
  signal: AbortSignal,
): Promise<Span[]> {
  return takeSteps(chooseDocuments(await readAllSpans(reader.find(lookup, signal), lookup.budget)), signal);
}

/** Most entries are a few levels up. Deeper nesting is recursion, and costs a read of the whole trace. */
const maxLevels = 16;

/**
 * The spans with all spans that are needed to find the entry above each: read level by level, or whole traces beyond the
 * last level. A parent is read even where a span with its id is among the spans: the two sides of a call may share an id.
 */
export async function loadAncestors(
  reader: SpanReader,
  sources: SpanSources,
  spans: readonly Span[],
  budget: Budget,
  signal: AbortSignal,
): Promise<AncestorIndex> {
  const ancestors = createAncestorIndex();
  const addInTurns = async (added: readonly Span[]) => {
    for await (const chunk of takeTurns(added, signal)) ancestors.add(chunk);
  };
  await addInTurns(spans);
  const requested: MutableSpanIdSet = new Map();
  let parents = await listNewParents(spans, requested, signal);
  for (let level = 1; parents.length > 0; level++) {
    const isLast = level > maxLevels;
    const of = isLast
      ? ({ by: "trace", traceIds: listTraceIds(parents), select: "all" } as const)
      : ({ by: "span", spans: parents } as const);
    const finding = reader.find({ sources, of, withoutEvents: true, budget }, signal);
    const found = await readAllSpans(finding, budget);
    await addInTurns(found);
    if (isLast) break;
    parents = await listNewParents(found, requested, signal);
  }
  return ancestors;
}

/** The parents of spans below an entry that are not requested yet. Marks them as requested. */
async function listNewParents(
  spans: readonly Span[],
  requested: MutableSpanIdSet,
  signal: AbortSignal,
): Promise<readonly SpanId[]> {
  const parents: SpanId[] = [];
  const list = ({ trace_id, parent_span_id: span_id, entry }: Span) => {
    if (entry || span_id === undefined) return;
    if (addSpanId(requested, trace_id, span_id)) parents.push({ trace_id, span_id });
  };
  await visitInTurns(spans, list, signal);
  return parents;
}

/**
 * Identifies an entry. The two sides of a call may share an id, and both may be entries. Joined, since V8 keeps the parts of a
 * template beside its text, and there may be hundred thousands.
 */
export function formatEntryKey({
  site_id,
  trace_id,
  span_id,
  span_kind,
  start,
}: Pick<Span, "site_id" | "trace_id" | "span_id" | "span_kind" | "start">): string {
  return [site_id, trace_id, span_id, span_kind, start].join(" ");
}
