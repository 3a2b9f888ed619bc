// De-duplicates spans: overlapping index patterns of one site may return the same document twice.
import type { Span } from "../../../src/core/rows.ts";

/** The spans or documents that a read has returned already. */
export interface SeenSpans {
  /** By span id: the first span that has it. */
  readonly firstById: Map<string, Span>;
  /** Of further spans with a known id, and of documents. */
  readonly keys: Set<string>;
}

export function createSeenSpans(): SeenSpans {
  return { firstById: new Map(), keys: new Set() };
}

/** Adds a key. Returns whether it was new. */
export function addIfNew({ keys }: SeenSpans, key: string): boolean {
  if (keys.has(key)) return false;
  keys.add(key);
  return true;
}

/**
 * Adds a span. Returns whether it was new. The two sides of a call may share an id and are two spans; a document that an
 * exporter sent twice is one.
 */
export function addSpanIfNew(seen: SeenSpans, span: Span): boolean {
  const { trace_id, span_id, span_kind, start } = span;
  const first = seen.firstById.get(span_id);
  if (first === undefined) {
    seen.firstById.set(span_id, span);
    return true;
  }
  if (first.trace_id === trace_id && first.span_kind === span_kind && first.start === start) return false;
  return addIfNew(seen, `${trace_id}${span_id}${span_kind}${start}`);
}
