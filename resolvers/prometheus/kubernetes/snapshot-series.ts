// An answer of Prometheus laid over the snapshots that were asked for.
import type { Buckets } from "../../../src/core/rows.ts";
import { type Labels, type SeriesFold, UnexpectedFormat } from "../client/response-scanner.ts";
import { formatSeriesKey } from "../metrics/series-reader.ts";

/** One series: its value at each snapshot, NaN where it has none. */
export interface SnapshotSeries {
  readonly labels: Labels;
  readonly values: Float64Array;
}
/** By question. */
export type SnapshotAnswers<Question extends string> = Readonly<Record<Question, readonly SnapshotSeries[]>>;

export function alignToSnapshots({
  start,
  step,
  count,
}: Buckets): () => SeriesFold<readonly SnapshotSeries[]> {
  return () => {
    const tracks: SnapshotSeries[] = [];
    return {
      series: ({ labels, times, values }) => {
        const laid = new Float64Array(count).fill(Number.NaN);
        for (let sample = 0; sample < times.length; sample += 1) {
          const index = ((times[sample] ?? Number.NaN) - start) / step;
          // Something on the way has moved the times, and with them every value.
          if (!Number.isInteger(index) || index < 0 || index >= count)
            throw new UnexpectedFormat("a time not asked for");
          laid[index] = values[sample] ?? Number.NaN;
        }
        tracks.push({ labels, values: laid });
      },
      result: () => tracks,
    };
  };
}

/** Undefined also for what is no number that a row could show. */
export function readValue(track: SnapshotSeries | undefined, index: number): number | undefined {
  const value = track?.values[index];
  return value !== undefined && Number.isFinite(value) ? value : undefined;
}

export function hasValue(track: SnapshotSeries | undefined, index: number): boolean {
  return readValue(track, index) !== undefined;
}

/** The greatest value that any of them has: they are twins, or all but one are absent. */
export function findGreatest(tracks: Iterable<SnapshotSeries>, index: number): number | undefined {
  let best: number | undefined;
  for (const track of tracks) {
    const value = readValue(track, index);
    if (value !== undefined && (best === undefined || value > best)) best = value;
  }
  return best;
}

/** The list under a key, made when it is first asked for. */
export function ensureList<Key, Item>(map: Map<Key, Item[]>, key: Key): Item[] {
  const held = map.get(key);
  if (held !== undefined) return held;
  const made: Item[] = [];
  map.set(key, made);
  return made;
}

/**
 * Of series that tell one thing with different labels, the one with the newest sample. A series that has ended is not
 * in `taken`; where none is (a scrape failed), what began since the moment before is newer than what was there then, and
 * else what was told last then. Labels decide at last, so that the answer is the same every time.
 */
export function findNewest(
  tracks: readonly SnapshotSeries[],
  taken: readonly SnapshotSeries[],
  index: number,
): SnapshotSeries | undefined {
  const fresh = tracks.filter((track) => hasValue(track, index));
  if (fresh.length < 2) return fresh[0];
  const takenOf = new Map(taken.map((track) => [formatSeriesKey(track.labels), track]));
  const ranked = fresh.map((track) => {
    const key = formatSeriesKey(track.labels);
    const times = takenOf.get(key);
    const began = hasValue(track, index - 1) ? 0 : 1;
    return { track, key, rank: [readValue(times, index) ?? 0, began, readValue(times, index - 1) ?? 0] };
  });
  const [best] = ranked.sort((a, b) => {
    const differing = a.rank.findIndex((value, place) => value !== b.rank[place]);
    if (differing >= 0) return (b.rank[differing] ?? 0) - (a.rank[differing] ?? 0);
    return a.key < b.key ? 1 : -1;
  });
  return best?.track;
}
