// Which spans a reading has given already: sources of one site may hold the same documents.
import type { Span } from "../../../src/core/rows.ts";

/** Spans that were given already: by span id the first of each, and the keys of all others. */
export interface SeenSpans {
  readonly firstById: Map<string, Span>;
  readonly keys: Set<string>;
}

export function createSeenSpans(): SeenSpans {
  return { firstById: new Map(), keys: new Set() };
}

export function addIfNew({ keys }: SeenSpans, key: string): boolean {
  if (keys.has(key)) return false;
  keys.add(key);
  return true;
}

/** Both sides of a call may have one id, and an exporter may send a document twice. */
export function addSpanIfNew(given: SeenSpans, span: Span): boolean {
  const { trace_id, span_id, span_kind, start } = span;
  const first = given.firstById.get(span_id);
  if (first === undefined) {
    given.firstById.set(span_id, span);
    return true;
  }
  if (first.trace_id === trace_id && first.span_kind === span_kind && first.start === start) return false;
  return addIfNew(given, `${trace_id}${span_id}${span_kind}${start}`);
}
