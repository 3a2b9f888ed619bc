// What several kinds of figures make of the same spans, made once. Only readers of one moment share it, which find the same
// whenever they are asked.
import type { TimeRange } from "../../core/time.ts";
import type { SpanReader, SpanSource } from "../../store/spans.ts";

interface SharedResult {
  readonly key: string;
  readonly result: unknown;
}

const resultsByReader = new WeakMap<SpanReader, Map<string, SharedResult>>();

/** From now on what `shareWork` makes from this reader is shared. It has to hold one moment. */
export function startSharing(reader: SpanReader): void {
  if (!resultsByReader.has(reader)) resultsByReader.set(reader, new Map());
}

/** What `make` returned for this name and key last; of a reader that shares nothing it is made each time. */
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

/** The key of what is made of the spans of these sources and ranges. */
export function formatReading(
  sources: readonly (readonly SpanSource[])[],
  ranges: readonly TimeRange[],
): string {
  return JSON.stringify([sources, ranges.map(({ from, to }) => [String(from), String(to)])]);
}
