// An answer of Prometheus laid over the snapshots that were asked for.
import type { Buckets } from "../../../src/core/rows.ts";
import { type Fold, type Labels, Surprise } from "../client/response-scanner.ts";
import { keyOf } from "../metrics/series-reader.ts";

/** One series: its value at each snapshot, NaN where it has none. */
export interface Track {
  readonly labels: Labels;
  readonly values: Float64Array;
}
/** By question. */
export type Answers<Question extends string> = Readonly<Record<Question, readonly Track[]>>;

export function layOver({ start, step, count }: Buckets): () => Fold<readonly Track[]> {
  return () => {
    const tracks: Track[] = [];
    return {
      series: ({ labels, times, values }) => {
        const laid = new Float64Array(count).fill(Number.NaN);
        for (let sample = 0; sample < times.length; sample += 1) {
          const index = ((times[sample] ?? Number.NaN) - start) / step;
          // Something on the way has moved the times, and with them every value.
          if (!Number.isInteger(index) || index < 0 || index >= count)
            throw new Surprise("a time not asked for");
          laid[index] = values[sample] ?? Number.NaN;
        }
        tracks.push({ labels, values: laid });
      },
      result: () => tracks,
    };
  };
}

/** Undefined also for what is no number that a row could show. */
export function at(track: Track | undefined, index: number): number | undefined {
  const value = track?.values[index];
  return value !== undefined && Number.isFinite(value) ? value : undefined;
}

export function has(track: Track | undefined, index: number): boolean {
  return at(track, index) !== undefined;
}

/** The greatest value that any of them has: they are twins, or all but one are absent. */
export function greatest(tracks: Iterable<Track>, index: number): number | undefined {
  let best: number | undefined;
  for (const track of tracks) {
    const value = at(track, index);
    if (value !== undefined && (best === undefined || value > best)) best = value;
  }
  return best;
}

/** The list under a key, made when it is first asked for. */
export function listOf<Key, Item>(map: Map<Key, Item[]>, key: Key): Item[] {
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
export function newest(tracks: readonly Track[], taken: readonly Track[], index: number): Track | undefined {
  const fresh = tracks.filter((track) => has(track, index));
  if (fresh.length < 2) return fresh[0];
  const takenOf = new Map(taken.map((track) => [keyOf(track.labels), track]));
  const ranked = fresh.map((track) => {
    const key = keyOf(track.labels);
    const times = takenOf.get(key);
    const began = has(track, index - 1) ? 0 : 1;
    return { track, key, rank: [at(times, index) ?? 0, began, at(times, index - 1) ?? 0] };
  });
  const [best] = ranked.sort((a, b) => {
    const differing = a.rank.findIndex((value, place) => value !== b.rank[place]);
    if (differing >= 0) return (b.rank[differing] ?? 0) - (a.rank[differing] ?? 0);
    return a.key < b.key ? 1 : -1;
  });
  return best?.track;
}
