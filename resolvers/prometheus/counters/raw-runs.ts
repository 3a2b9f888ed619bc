// Buckets of some series that have to be read raw, put together into requests: as few as pay, each of few buckets.
import { type Millis, second } from "../../../src/core/time.ts";
import type { Labels } from "../client/response-scanner.ts";

export type SuspectBucket = { readonly bucket: number; readonly labels: Labels };
/** Buckets in a row, `to` included, that are read together. */
interface BucketRun<T extends SuspectBucket> {
  readonly from: number;
  to: number;
  readonly members: T[];
}

/** Each bucket by itself. */
export function groupByBucket<T extends SuspectBucket>(suspects: readonly T[]): readonly BucketRun<T>[] {
  const byBucket = Map.groupBy(suspects, ({ bucket }) => bucket);
  return [...byBucket].map(([bucket, members]) => ({ from: bucket, to: bucket, members }));
}

/** A request costs about as much as this many samples that are read in vain. */
const samplesPerRequest = 2_000;
/** How far apart samples are assumed to be. */
export const sampleInterval: Millis = 15 * second;
const maxRuns = 200;

/**
 * Groups suspects into runs. Neighbours are read together if that reads few samples in vain: all series of a run are read
 * in all of its buckets.
 */
export function groupIntoRuns<T extends SuspectBucket>(
  suspects: readonly T[],
  step: Millis,
): readonly BucketRun<T>[] {
  const perBucket = Math.max(1, step / sampleInterval);
  const byBucket = [...Map.groupBy(suspects, ({ bucket }) => bucket)].sort(([a], [b]) => a - b);
  for (let worth = samplesPerRequest; ; worth *= 2) {
    const runs: BucketRun<T>[] = [];
    for (const [bucket, members] of byBucket) {
      const run = runs.at(-1);
      if (run === undefined) {
        runs.push({ from: bucket, to: bucket, members: [...members] });
        continue;
      }
      const [before, length] = [run.to + 1 - run.from, bucket + 1 - run.from];
      const inVain = run.members.length * (length - before) + members.length * (length - 1);
      if (inVain * perBucket > worth) runs.push({ from: bucket, to: bucket, members: [...members] });
      else {
        run.to = bucket;
        for (const one of members) run.members.push(one);
      }
    }
    if (runs.length <= maxRuns) return runs;
  }
}
