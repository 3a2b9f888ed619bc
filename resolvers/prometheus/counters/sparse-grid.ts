// Reads a few wide buckets, each by a query of its own. A query over a range decodes all samples of it, also those between
// its windows, and one at a single time hardly more than its window.
import { createTooManyPointsError } from "../../../src/core/errors.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import { hour, type Millis } from "../../../src/core/time.ts";
import type { Expression } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { formatSeriesKey, type GridSeries, runConcurrent, type SeriesReader } from "./series-reader.ts";

/** So many samples between two windows cost more than to look for the series once more. */
const shortestStep: Millis = 12 * hour;
/** Each costs a request. */
const mostBuckets = 64;

/** Whether buckets are so wide and so few that reading a small part of each costs little. */
export function isSparse({ step, count }: Buckets): boolean {
  return step >= shortestStep && count <= mostBuckets;
}

/**
 * As `SeriesReader.readGrid`, of an expression that needs only a small part of each bucket. @throws {Refused | BackendError}
 */
export async function readSparseGrid(
  reader: SeriesReader,
  expression: Expression,
  buckets: Buckets,
  limit: number,
  accepts: (labels: Labels) => boolean,
): Promise<readonly GridSeries[]> {
  const { start, step, count } = buckets;
  if (!isSparse(buckets)) return reader.readGrid(expression, buckets, limit, accepts);
  const own = Math.floor(limit / count);
  const found = await runConcurrent(
    Array.from({ length: count }, (_, bucket) => start + bucket * step),
    (from) => reader.readGrid(expression, { start: from, step, count: 1 }, own, accepts),
  );
  const merged = new Map<string, GridSeries>();
  for (const [bucket, series] of found.entries()) {
    for (const { labels, values } of series) {
      const key = formatSeriesKey(labels);
      const one = merged.get(key) ?? { labels, values: new Float64Array(count).fill(Number.NaN) };
      merged.set(key, one);
      one.values.set(values, bucket);
    }
  }
  if (merged.size > own) throw createTooManyPointsError(limit, merged.size * count);
  return [...merged.values()];
}
