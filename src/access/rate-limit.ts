// Token buckets, one for each name that was seen lately.
import type { Millis } from "../core/time.ts";

/** Whether one more is allowed to `name` now. */
export type RateLimiter = (name: string) => boolean;

/** Names that are remembered; whoever is forgotten starts with a full bucket again. */
const maxNames = 10_000;

/** How many seconds of a rate may come at once. */
const burstSeconds = 10;

/**
 * The rate of so many a second in the long run, made anew when that is another number than before: what was used up
 * outlives a reload of the configuration that leaves it as it is. `clock` never goes back.
 */
export function createReloadableRateLimit(clock: () => Millis): (perSecond: number) => RateLimiter {
  let known: { readonly perSecond: number; readonly rate: RateLimiter } | undefined;
  return (perSecond) => {
    if (known?.perSecond !== perSecond) known = { perSecond, rate: createRateLimiter(perSecond, clock) };
    return known.rate;
  };
}

function createRateLimiter(perSecond: number, clock: () => Millis): RateLimiter {
  const burst = perSecond * burstSeconds;
  // In the order of their last use, so that the first is the one to forget.
  const buckets = new Map<string, { tokens: number; at: Millis }>();
  return (name) => {
    const at = clock();
    const bucket = buckets.get(name) ?? { tokens: burst, at };
    bucket.tokens = Math.min(burst, bucket.tokens + ((at - bucket.at) * perSecond) / 1_000);
    bucket.at = at;
    buckets.delete(name);
    buckets.set(name, bucket);
    if (buckets.size > maxNames) {
      const [oldest] = buckets.keys();
      if (oldest !== undefined) buckets.delete(oldest);
    }
    if (bucket.tokens < 1) return false;
    bucket.tokens -= 1;
    return true;
  };
}
