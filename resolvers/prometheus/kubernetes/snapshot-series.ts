// The series of a response at the snapshots of a request, and how one is chosen where several describe the same thing.
import { readNumber, requireAt } from "../../../src/core/collections.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import { type Labels, type SeriesFold, UnexpectedFormat } from "../client/response-scanner.ts";
import { formatSeriesKey } from "../counters/series-reader.ts";

/** One series: its value at each snapshot, NaN where it has none. */
export interface SnapshotSeries {
  readonly labels: Labels;
  readonly values: Float64Array;
}

/** By the name of the query. */
export type SnapshotAnswers<Name extends string> = Readonly<Record<Name, readonly SnapshotSeries[]>>;

/** Puts values at their snapshots. @throws {UnexpectedFormat} at another time, since something has moved the range */
export function alignToSnapshots({
  start,
  step,
  count,
}: Buckets): () => SeriesFold<readonly SnapshotSeries[]> {
  return () => {
    const all: SnapshotSeries[] = [];
    return {
      series: ({ labels, times, values }) => {
        const aligned = new Float64Array(count).fill(Number.NaN);
        for (let sample = 0; sample < times.length; sample += 1) {
          const index = (readNumber(times, sample) - start) / step;
          if (!Number.isInteger(index) || index < 0 || index >= count)
            throw new UnexpectedFormat("a time that was not requested");
          aligned[index] = readNumber(values, sample);
        }
        all.push({ labels, values: aligned });
      },
      result: () => all,
    };
  };
}

/** The value at a snapshot; `undefined` also for NaN and infinities, which no row can show. */
export function readValue(series: SnapshotSeries | undefined, index: number): number | undefined {
  const value = series?.values[index];
  return value !== undefined && Number.isFinite(value) ? value : undefined;
}

export function hasValue(series: SnapshotSeries | undefined, index: number): boolean {
  return readValue(series, index) !== undefined;
}

/** The greatest value at a snapshot. The series are duplicates, or all but one have no value. */
export function findGreatest(group: Iterable<SnapshotSeries>, index: number): number | undefined {
  let greatest: number | undefined;
  for (const series of group) {
    const value = readValue(series, index);
    if (value !== undefined && (greatest === undefined || value > greatest)) greatest = value;
  }
  return greatest;
}

/** The list of a key, added if there is none. */
export function ensureList<Key, Item>(map: Map<Key, Item[]>, key: Key): Item[] {
  const known = map.get(key);
  if (known !== undefined) return known;
  const list: Item[] = [];
  map.set(key, list);
  return list;
}

/**
 * Of series that describe the same thing with different labels, the one with the newest sample by `times`. An ended series
 * is not in `times`. If none is (a scrape failed), a series that began after the snapshot before wins, and then the one
 * that was the newest at that snapshot. At last labels decide, so that the answer does not depend on the order of series.
 */
export function findNewest(
  group: readonly SnapshotSeries[],
  times: readonly SnapshotSeries[],
  index: number,
): SnapshotSeries | undefined {
  const fresh = group.filter((series) => hasValue(series, index));
  if (fresh.length < 2) return fresh[0];
  const timesByKey = new Map(times.map((series) => [formatSeriesKey(series.labels), series]));
  const ranked = fresh.map((series) => {
    const key = formatSeriesKey(series.labels);
    const own = timesByKey.get(key);
    const began = hasValue(series, index - 1) ? 0 : 1;
    return { series, key, rank: [readValue(own, index) ?? 0, began, readValue(own, index - 1) ?? 0] };
  });
  const [newest] = ranked.sort((a, b) => {
    const differing = a.rank.findIndex((value, position) => value !== b.rank[position]);
    if (differing >= 0) return requireAt(b.rank, differing) - requireAt(a.rank, differing);
    return a.key < b.key ? 1 : -1;
  });
  return newest?.series;
}
