// Ids of traces and spans: the one spelling in which they are returned and compared, and sets of them.
import type { SpanId } from "../../store/spans.ts";

const hex = /^[0-9a-f]+$/i;
const hexOfOneCase = /^(?:[0-9a-f]+|[0-9A-F]+)$/;

/**
 * Hex digits become lower case and are padded with zeros to `digits`: 32 for a trace, 16 for a span. Any other text stays as
 * it is. So do fewer digits in mixed case: no tracer drops their zeros, so that they belong to a case-sensitive alphabet.
 */
export function normaliseId(text: string, digits: 16 | 32): string {
  const isNumber = text.length < digits ? hexOfOneCase.test(text) : hex.test(text);
  return isNumber ? text.toLowerCase().padStart(digits, "0") : text;
}

/** Span ids by trace, so that no text is built to look one up: a long range has hundred thousands of spans. */
export type SpanIdSet = ReadonlyMap<string, ReadonlySet<string>>;

export function createSpanIdSet(ids: Iterable<SpanId>): SpanIdSet {
  const set = new Map<string, Set<string>>();
  for (const id of ids) addSpanId(set, id);
  return set;
}

/** Returns whether the id is new. */
export function addSpanId(set: Map<string, Set<string>>, { trace_id, span_id }: SpanId): boolean {
  const known = set.get(trace_id);
  if (known === undefined) {
    set.set(trace_id, new Set([span_id]));
    return true;
  }
  return known.size < known.add(span_id).size;
}

export function hasSpanId(set: SpanIdSet, traceId: string, spanId: string): boolean {
  return set.get(traceId)?.has(spanId) ?? false;
}

/** Each id once. */
export function listSpanIds(set: SpanIdSet): readonly SpanId[] {
  return [...set].flatMap(([trace_id, own]) => [...own].map((span_id) => ({ trace_id, span_id })));
}
