// Shares work between kinds of figures that are made of the same spans. Only for readers that hold one moment: any other may
// find other spans the next time.
import type { TimeRange } from "../../core/time.ts";
import type { SpanReader, SpanSource } from "../../store/spans.ts";

interface SharedResult {
  readonly key: string;
  readonly result: unknown;
}

const resultsByReader = new WeakMap<SpanReader, Map<string, SharedResult>>();

/** Has `shareWork` keep what is made from this reader, which has to hold one moment. */
export function startSharing(reader: SpanReader): void {
  if (!resultsByReader.has(reader)) resultsByReader.set(reader, new Map());
}

/** Returns what was made last under this name, where the key is the same and the reader shares work; else makes it. */
export function shareWork<Result>(
  reader: SpanReader,
  { name, key }: { readonly name: string; readonly key: string },
  make: () => Result,
): Result {
  const results = resultsByReader.get(reader);
  if (results === undefined) return make();
  const known = results.get(name);
  // Whoever uses a name makes results of one type of it.
  if (known?.key === key) return known.result as Result;
  const result = make();
  results.set(name, { key, result });
  return result;
}

/** The key of work on the spans of these sources and ranges. */
export function formatWorkKey(
  sources: readonly (readonly SpanSource[])[],
  ranges: readonly TimeRange[],
): string {
  return JSON.stringify([sources, ranges.map(({ from, to }) => [String(from), String(to)])]);
}
