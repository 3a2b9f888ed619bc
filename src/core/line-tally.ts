// Counts of log lines, by time and by value. They are made piece by piece and added up.
import type { Millis } from "./time.ts";

export interface LineCounts {
  total: number;
  /** By the start of the bucket, without those that are empty. */
  readonly buckets: Map<Millis, number>;
  /** By value, as string operators compare it. A line with an array counts once for each distinct element. */
  readonly groups: Map<string, number>;
  /** The lines of each value by the start of the bucket; undefined where they are not asked for. */
  readonly groupBuckets?: Map<string, Map<Millis, number>> | undefined;
  /** The lines without a value to group by. */
  lacking: number;
}

export function createLineCounts(hasGroupBuckets: boolean): LineCounts {
  const groupBuckets = hasGroupBuckets ? new Map<string, Map<Millis, number>>() : undefined;
  return { total: 0, lacking: 0, buckets: new Map(), groups: new Map(), groupBuckets };
}

/** Adds `more` to `counts`. @throws {Error} `more` lacks the buckets of its groups, which `counts` has */
export function addLineCounts(counts: LineCounts, more: LineCounts): void {
  if (counts.groupBuckets !== undefined && more.groupBuckets === undefined && more.groups.size > 0)
    throw new Error("counts of groups without their buckets were added to counts with them");
  counts.total += more.total;
  counts.lacking += more.lacking;
  for (const [start, count] of more.buckets) addCount(counts.buckets, start, count);
  if (more.groupBuckets !== undefined)
    for (const [value, buckets] of more.groupBuckets) addGroup(counts, value, buckets);
  else for (const [value, count] of more.groups) addCount(counts.groups, value, count);
}

/** Adds the lines of a value, of which some are in each bucket. */
export function addGroup(
  { groups, groupBuckets }: LineCounts,
  value: string,
  buckets: ReadonlyMap<Millis, number>,
): void {
  const own = groupBuckets?.get(value) ?? new Map<Millis, number>();
  groupBuckets?.set(value, own);
  for (const [start, count] of buckets) {
    addCount(groups, value, count);
    addCount(own, start, count);
  }
}

export function addCount<Key>(counts: Map<Key, number>, key: Key, count: number): void {
  counts.set(key, (counts.get(key) ?? 0) + count);
}
