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

/** The spellings of a normalised id in documents: with leading zeros, without, and as the lower half of a trace id, in either case. */
export function listIdSpellings(id: string): readonly string[] {
  if (!/^[0-9a-f]+$/.test(id)) return [id];
  // Nearly all of them: thousands in each search.
  if (!id.startsWith("0")) return /[a-f]/.test(id) ? [id, id.toUpperCase()] : [id];
  const bare = id.replace(/^0+/, "");
  const half = id.length === 32 && /^0{16}/.test(id) ? [id.slice(16)] : [];
  const lower = [id, bare, ...half].filter((text) => text !== "");
  return [...new Set(lower.flatMap((text) => [text, text.toUpperCase()]))];
}

/** Span ids by trace, so that no text is built to look one up: a long range has hundred thousands of spans. */
export type SpanIdSet = ReadonlyMap<string, ReadonlySet<string>>;

export type MutableSpanIdSet = Map<string, Set<string>>;

export function createSpanIdSet(ids: Iterable<SpanId>): SpanIdSet {
  const set: MutableSpanIdSet = new Map();
  for (const { trace_id, span_id } of ids) addSpanId(set, trace_id, span_id);
  return set;
}

/** Returns whether the id is new. */
export function addSpanId(set: MutableSpanIdSet, traceId: string, spanId: string): boolean {
  const known = set.get(traceId);
  if (known === undefined) {
    set.set(traceId, new Set([spanId]));
    return true;
  }
  return known.size < known.add(spanId).size;
}

export function hasSpanId(set: SpanIdSet, traceId: string, spanId: string): boolean {
  return set.get(traceId)?.has(spanId) ?? false;
}

/** Each id once. */
export function listSpanIds(set: SpanIdSet): readonly SpanId[] {
  return [...set].flatMap(([trace_id, own]) => [...own].map((span_id) => ({ trace_id, span_id })));
}
