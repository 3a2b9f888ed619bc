// Durations of the requests of each action over time.
import { type Millis, toMillis } from "../core/time.ts";
import type { SpanReader, SpanScan } from "../store/spans.ts";
import { createDurationStats, type DurationStats } from "./duration-stats.ts";
import { deriveNames, formatActionKey, isRequest } from "./spans/requests.ts";

/**
 * The statistics of each action, by `formatActionKey`, in buckets of `width` aligned to the epoch. Buckets without requests
 * are absent.
 */
export async function readActionSeries(
  reader: SpanReader,
  scan: Pick<SpanScan, "sources" | "range" | "budget">,
  width: Millis,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, ReadonlyMap<Millis, DurationStats>>> {
  const series = new Map<string, Map<Millis, DurationStats>>();
  for await (const batch of reader.scan({ ...scan, select: "entries", withoutEvents: true }, signal)) {
    for (const span of batch) {
      if (!isRequest(span)) continue;
      const key = formatActionKey(deriveNames(span));
      const buckets = series.get(key) ?? new Map<Millis, DurationStats>();
      series.set(key, buckets);
      const start = Math.floor(toMillis(span.end) / width) * width;
      const stats = buckets.get(start) ?? createDurationStats();
      buckets.set(start, stats);
      stats.add(span);
    }
  }
  return series;
}
