// A source loads only so many samples for one query (`--query.max-samples` of Prometheus), and refuses others. What it
// refuses is asked again in parts of the time, each of which needs fewer.
import { BackendError } from "../../../src/core/errors.ts";
import type { Buckets } from "../../../src/core/rows.ts";

/** Whether the source refused the query since it would load too many samples. */
export function isOverSampleLimit(error: unknown): boolean {
  return (
    error instanceof BackendError &&
    error.failure === "rejected" &&
    /too many samples|maxSamplesPer(Query|Series)/.test(error.message)
  );
}

/** The two halves of some buckets; `undefined` if there is one bucket only. */
export function halveBuckets({ start, step, count }: Buckets): readonly [Buckets, Buckets] | undefined {
  if (count < 2) return undefined;
  const half = count >> 1;
  return [
    { start, step, count: half },
    { start: start + half * step, step, count: count - half },
  ];
}
