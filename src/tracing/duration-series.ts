// How long the requests of actions took, over time.

import { type Millis, toMillis } from "../core/time.ts";
import type { SpanReader, SpanScan } from "../store/span-reader.ts";
import { createFigures, type Figures } from "./duration-stats.ts";
import { actionKey, isRequest, namesOf } from "./spans/requests.ts";

/** The figures of each action, by `actionKey`, of whole buckets of a width since 1970; buckets without any are left out. */
export async function findSeriesOfActions(
  reader: SpanReader,
  scan: Pick<SpanScan, "sources" | "range" | "budget">,
  width: Millis,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, ReadonlyMap<Millis, Figures>>> {
  const series = new Map<string, Map<Millis, Figures>>();
  for await (const batch of reader.scan({ ...scan, select: "entries", bare: true }, signal)) {
    for (const span of batch) {
      if (!isRequest(span)) continue;
      const key = actionKey(namesOf(span));
      const buckets = series.get(key) ?? new Map<Millis, Figures>();
      series.set(key, buckets);
      const start = Math.floor(toMillis(span.end) / width) * width;
      const figures = buckets.get(start) ?? createFigures();
      buckets.set(start, figures);
      figures.add(span);
    }
  }
  return series;
}
