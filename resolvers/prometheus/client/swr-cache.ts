// A stale-while-revalidate cache of what a server says of its metrics. In the second half of its age a value is returned at
// once and refreshed in the background, so that frequent callers never wait. A missing or older one is loaded once for all
// callers, who wait for it. A failure is repeated for a second instead of loading.

import { LRUCache } from "lru-cache";
import { awaitShared } from "../../../src/core/async/concurrency.ts";
import { runInUnownedTurns } from "../../../src/core/async/turns.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { IO } from "../../../src/store/backend.ts";

export interface SwrCache<V> {
  /**
   * The value of the key, at most `maxAge` old, or the age given here. A caller that aborts does not end the loading for
   * others. Rejects with the error of `load` or the signal's reason.
   */
  read(key: string, signal: AbortSignal, maxAge?: Millis): Promise<V>;
}

interface SwrCacheSettings<V> {
  /** Its name in `/metrics`. */
  readonly name: string;
  readonly entries: number;
  /** Beyond this age, a value is not returned at all. From half of it on, a value is refreshed behind the caller. */
  readonly maxAge: Millis;
  /** Takes no caller's signal, since others wait for the same value: it has to end by itself. */
  readonly load: (key: string) => Promise<V>;
}

/** How long a failure is repeated instead of loading again from a source in trouble. */
const failureTtl: Millis = 1_000;

interface CachedValue<V> {
  readonly value: V;
  /** When its loading began: what it says may be that old. */
  readonly at: number;
}

export function createSwrCache<V>(settings: SwrCacheSettings<V>, io: IO): SwrCache<V> {
  const { name, maxAge } = settings;
  const freshFor = Math.ceil(maxAge / 2);
  // A cache takes its memory when it is made, and most backends of many are rarely asked.
  let opened: LRUCache<string, CachedValue<V>> | undefined;

  return {
    async read(key, signal, youngerThan = maxAge) {
      opened ??= openCache(settings, freshFor);
      const cache = opened;
      const known = cache.peek(key, { allowStale: true });
      const age = known === undefined ? Number.POSITIVE_INFINITY : performance.now() - known.at;
      const forceRefresh = age > youngerThan;
      io.recordCacheLookup(name, !forceRefresh && age <= freshFor);
      const entry = await awaitShared(cache.fetch(key, { forceRefresh, allowStale: !forceRefresh }), signal);
      if (entry === undefined) throw new Error(`nothing was loaded for ${key}`);
      return entry.value;
    },
  };
}

function openCache<V>(
  { entries, load }: SwrCacheSettings<V>,
  freshFor: Millis,
): LRUCache<string, CachedValue<V>> {
  const failures = new LRUCache<string, { readonly error: unknown }>({ max: entries, ttl: failureTtl });
  return new LRUCache<string, CachedValue<V>>({
    max: entries,
    ttl: freshFor,
    allowStale: true,
    // A stale value outlives a refresh that fails; `maxAge` bounds it.
    noDeleteOnFetchRejection: true,
    fetchMethod: async (key) => {
      const failure = failures.get(key);
      if (failure !== undefined) throw failure.error;
      const at = performance.now();
      try {
        // Others wait for it too.
        return { value: await runInUnownedTurns(() => load(key)), at };
      } catch (error) {
        failures.set(key, { error });
        throw error;
      }
    },
  });
}
