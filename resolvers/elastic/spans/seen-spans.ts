// De-duplicates spans: overlapping index patterns of one site may return the same document twice.
import { createHash } from "node:crypto";
import type { Span } from "../../../src/core/rows.ts";
import { formatSpanIdentity, isSameSpan } from "../../../src/tracing/spans/repeated-spans.ts";

/** The spans or documents that a read has returned already. */
export interface SeenSpans {
  /** By span id: the first span that has it. */
  readonly firstById: Map<string, Span>;
  /** By `formatSpanIdentity`: the first document of each further span with a known id. */
  readonly others: Map<string, Span>;
  /** Keys of documents. */
  readonly keys: Set<string>;
  /** Digests of the documents that repeat a span. */
  readonly digests: Set<string>;
}

export function createSeenSpans(): SeenSpans {
  return { firstById: new Map(), others: new Map(), keys: new Set(), digests: new Set() };
}

/** Adds a key to one of the sets. Returns whether it was new. */
export function addIfNew(keys: Set<string>, key: string): boolean {
  if (keys.has(key)) return false;
  keys.add(key);
  return true;
}

/**
 * Adds a span. Returns whether it was new: an exporter may send a span twice. Documents of one span that differ are all new,
 * since which of them counts must not depend on which is read first.
 */
export function addSpanIfNew(seen: SeenSpans, span: Span): boolean {
  const { firstById, others, digests } = seen;
  const first = firstById.get(span.span_id);
  if (first === undefined) {
    firstById.set(span.span_id, span);
    return true;
  }
  const identity = formatSpanIdentity(span);
  const known = isSameSpan(first, span) ? first : others.get(identity);
  if (known === undefined) {
    others.set(identity, span);
    return true;
  }
  addIfNew(digests, digestDocument(known));
  return addIfNew(digests, digestDocument(span));
}

function digestDocument(span: Span): string {
  const text = JSON.stringify(span, (_, value: unknown) =>
    typeof value === "bigint" ? String(value) : value,
  );
  return createHash("sha256").update(text).digest("base64");
}
