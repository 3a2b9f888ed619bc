// Spans that are alike, counted together by the source where it can do so exactly. Over a source that cannot count,
// every span is a tally of its own, so what is computed from tallies is computed from spans.
import type { Span } from "../../core/rows.ts";
import type { SpanReader, SpanTally, TallyQuery } from "../../store/spans.ts";
import { calculateTotalTime } from "./requests.ts";

export function toTally(span: Span): SpanTally {
  return { span, isSingle: true, spans: 1, total: calculateTotalTime(span) };
}

/** `SpanReader.tally`, also of a reader that has none. */
export async function* readTallies(
  reader: SpanReader,
  query: TallyQuery,
  signal: AbortSignal,
): AsyncGenerator<readonly SpanTally[]> {
  if (reader.tally !== undefined) yield* reader.tally(query, signal);
  else
    for await (const batch of reader.scan({ ...query, withoutEvents: true }, signal))
      yield batch.map(toTally);
}
