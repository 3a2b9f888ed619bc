// Tallies of spans that the store aggregates where it can do so exactly. Of a store that cannot aggregate, each span is a tally
// of its own, so that statistics are always computed from tallies.
import type { Span } from "../../core/rows.ts";
import type { SpanReader, SpanTally, TallyQuery } from "../../store/spans.ts";
import { calculateTotalTime } from "./requests.ts";

/** The tally of a single span. */
export function toTally(span: Span): SpanTally {
  return { span, isSingle: true, spans: 1, total: calculateTotalTime(span) };
}

/** The tallies of a reader, or one for each span of its scan if it has no `tally`. */
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
