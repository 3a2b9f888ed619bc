// Remembers what a source said of its metrics: fresh answers cost nothing, stale ones are given at once and refreshed
// behind, a cold question is asked once for all who wait, and a source that fails is left alone for a moment.
import { LRUCache } from "lru-cache";
import type { Millis } from "../../../src/core/time.ts";
import type { IO } from "../../../src/store/store.ts";
import { raceAbort } from "../../http/guard.ts";

export interface SwrCache<V> {
  /**
   * The value of the key, at most `served` old; where `youngerThan` is given, at most that old. A caller who leaves
   * takes nothing from the others. Rejects as loading does, or with the signal's reason.
   */
  read(key: string, signal: AbortSignal, youngerThan?: Millis): Promise<V>;
}

interface SwrCacheSettings<V> {
  /** Its name in `/metrics`. */
  readonly name: string;
  readonly entries: number;
  /** Younger than this, a value is given without asking. */
  readonly freshFor: Millis;
  /** Older than this, it is not given at all. */
  readonly maxAge: Millis;
  /** Has no caller's signal: others wait for the same answer. The door's own deadline bounds it. */
  readonly load: (key: string) => Promise<V>;
}

/** How long a failure is repeated to others instead of asking a source in trouble again. */
const failureTtl: Millis = 1_000;

interface CachedValue<V> {
  readonly value: V;
  readonly at: number;
}

export function createSwrCache<V>(
  { name, entries, freshFor: fresh, maxAge: served, load }: SwrCacheSettings<V>,
  io: IO,
): SwrCache<V> {
  const failures = new LRUCache<string, { readonly error: unknown }>({ max: entries, ttl: failureTtl });
  const cache = new LRUCache<string, CachedValue<V>>({
    max: entries,
    ttl: fresh,
    allowStale: true,
    // A stale value outlives a refresh that fails; `served` bounds it.
    noDeleteOnFetchRejection: true,
    fetchMethod: async (key) => {
      const failed = failures.get(key);
      if (failed !== undefined) throw failed.error;
      try {
        return { value: await load(key), at: performance.now() };
      } catch (error) {
        failures.set(key, { error });
        throw error;
      }
    },
  });

  return {
    async read(key, signal, youngerThan = served) {
      const known = cache.peek(key, { allowStale: true });
      const age = known === undefined ? Number.POSITIVE_INFINITY : performance.now() - known.at;
      const forceRefresh = age > youngerThan;
      io.cache(name, !forceRefresh && age <= fresh);
      const entry = await raceAbort(cache.fetch(key, { forceRefresh, allowStale: !forceRefresh }), signal);
      if (entry === undefined) throw new Error(`nothing was loaded for ${key}`);
      return entry.value;
    },
  };
}
