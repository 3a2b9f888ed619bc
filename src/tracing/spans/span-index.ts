// Indexes many spans by trace and span id. No text is built for a span's key, because a long range has hundred thousands of
// spans, and a span id alone is nearly always unique. Exporters that number the spans of each trace, or that write one id
// everywhere, must not make a look-up slow for all others.
import { Refused } from "../../core/errors.ts";
import type { Span } from "../../core/rows.ts";
import type { SpanId } from "../../store/spans.ts";
import { compareDocuments } from "./repeated-spans.ts";

export interface SpanIndex {
  /** By span id: the spans that have it, mostly one. Of a shared id by span id and trace. */
  readonly groups: Map<string, Span[]>;
  /** Span ids that many traces have. */
  readonly sharedIds: Set<string>;
}

/** Whether two documents with one span id count as one. */
export type IsSame = (a: Span, b: Span) => boolean;

/** From so many spans on, the spans of an id are divided by trace. */
const sharedFrom = 16;

/** How many documents of one trace may have one span id, and not count as one. */
const maxPerSpanId = 1_000;

export function createSpanIndex(): SpanIndex {
  return { groups: new Map(), sharedIds: new Set() };
}

function formatKey({ sharedIds }: SpanIndex, { trace_id, span_id }: SpanId): string {
  return sharedIds.has(span_id) ? `${span_id} ${trace_id}` : span_id;
}

/** The spans with this id in this trace. The two sides of a call may share an id. */
export function findIndexedSpans(index: SpanIndex, id: SpanId): readonly Span[] {
  const spans = index.groups.get(formatKey(index, id));
  if (spans === undefined) return noSpans;
  return spans.every((span) => span.trace_id === id.trace_id)
    ? spans
    : spans.filter((span) => span.trace_id === id.trace_id);
}

const noSpans: readonly Span[] = [];

/**
 * Adds a span. Of documents that count as one, keeps the one that stands for all, in whatever order they come. Returns whether
 * it is one more than before.
 * @throws {Refused} `result_too_large` for more than a thousand spans of one trace with one id
 */
export function addToIndex(index: SpanIndex, span: Span, isSame: IsSame): boolean {
  const key = formatKey(index, span);
  const known = index.groups.get(key);
  if (known === undefined) {
    index.groups.set(key, [span]);
    return true;
  }
  const at = known.findIndex((other) => isSame(other, span));
  const other = known[at];
  if (other !== undefined) {
    if (compareDocuments(span, other) < 0) known[at] = span;
    return false;
  }
  known.push(span);
  if (known.length < sharedFrom) return true;
  if (!index.sharedIds.has(span.span_id)) divideByTrace(index, span.span_id, known);
  // Beyond what is divided, a group is of one trace.
  if (known.length > maxPerSpanId) {
    const message = `More than ${maxPerSpanId.toLocaleString("en")} spans of one trace have the id ${span.span_id}, and an id has to be unique; narrow the range to leave them out`;
    throw new Refused("result_too_large", message, { limit: maxPerSpanId });
  }
  return true;
}

function divideByTrace({ groups, sharedIds }: SpanIndex, id: string, spans: readonly Span[]): void {
  sharedIds.add(id);
  groups.delete(id);
  for (const [trace, own] of Map.groupBy(spans, ({ trace_id }) => trace_id))
    groups.set(`${id} ${trace}`, own);
}

/** Whether the index holds a document that counts as this one. */
export function hasSame(index: SpanIndex, span: Span, isSame: IsSame): boolean {
  return index.groups.get(formatKey(index, span))?.some((other) => isSame(other, span)) ?? false;
}

/** The spans of each trace that have one id: nearly always one. */
export function* listSameIds({ groups }: SpanIndex): Generator<readonly Span[]> {
  for (const spans of groups.values()) {
    if (spans.length === 1) yield spans;
    else yield* Map.groupBy(spans, ({ trace_id }) => trace_id).values();
  }
}
