// Reads one value of each series for a long window of time, in parts where the source would load too many samples.
import type { Millis } from "../../../src/core/time.ts";
import type { Expression, Selector } from "../client/promql.ts";
import type { SampleSeries } from "../client/response-scanner.ts";
import { isOverSampleLimit } from "./sample-limit.ts";
import { formatSeriesKey, type SeriesReader } from "./series-reader.ts";

/** A question about a window of time whose answers for two halves make that for the whole. */
interface WindowQuery {
  readonly selector: Selector;
  readonly build: (samples: Expression) => Expression;
  readonly join: (one: number, other: number) => number;
}

/** The answer for the samples from `from` until before `to`, one value for each series. @throws {BackendError} */
export async function readWindow(
  reader: SeriesReader,
  query: WindowQuery,
  from: Millis,
  to: Millis,
): Promise<readonly SampleSeries[]> {
  const samples = reader.selectRange(query.selector, { from: to - from, to: 1 });
  try {
    return await reader.readInstant(query.build(samples), to);
  } catch (error) {
    const middle = from + Math.floor((to - from) / 2);
    // Left-closed ranges cannot express a window of 1 ms.
    if (!isOverSampleLimit(error) || middle - from < 2) throw error;
    const first = await readWindow(reader, query, from, middle);
    return joinWindows(query, first, await readWindow(reader, query, middle, to));
  }
}

function joinWindows(
  { join }: WindowQuery,
  first: readonly SampleSeries[],
  second: readonly SampleSeries[],
): readonly SampleSeries[] {
  const joined = new Map(first.map((series) => [formatSeriesKey(series.labels), series]));
  for (const series of second) {
    const key = formatSeriesKey(series.labels);
    const before = joined.get(key);
    const other = before?.values[0] ?? Number.NaN;
    const values = series.values.map((value) => join(other, value));
    joined.set(key, before === undefined ? series : { ...series, values });
  }
  return [...joined.values()];
}
