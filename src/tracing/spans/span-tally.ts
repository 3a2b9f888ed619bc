// Spans that are alike, counted together by the source where it can do so exactly. Over a source that cannot count,
// every span is a tally of its own, so what is computed from tallies is computed from spans.
import type { Span } from "../../core/rows.ts";
import type { SpanReader, SpanTally, TallyQuery } from "../../store/span-reader.ts";
import { timeOf } from "./requests.ts";

export function tallyOf(span: Span): SpanTally {
  return { span, whole: true, spans: 1, total: timeOf(span) };
}

/** `SpanReader.tally`, also of a reader that has none. */
export async function* tally(
  reader: SpanReader,
  query: TallyQuery,
  signal: AbortSignal,
): AsyncGenerator<readonly SpanTally[]> {
  if (reader.tally !== undefined) yield* reader.tally(query, signal);
  else for await (const batch of reader.scan({ ...query, bare: true }, signal)) yield batch.map(tallyOf);
}
