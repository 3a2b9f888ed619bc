// Rate limits by token buckets, one for each name that was used recently.
import type { Millis } from "../core/time.ts";

/** Whether `name` may make one more request now, which then counts. */
export type RateLimiter = (name: string) => boolean;

/** The most names that are kept. A name that was dropped starts with a full bucket again. */
const maxNames = 10_000;

/** A burst may be as large as the rate of this many seconds. */
const burstSeconds = 10;

/**
 * Returns a limiter of so many requests a second in the long run. Called again with the same number it returns the same
 * limiter, so that a reload of the configuration does not refill the buckets. `clock` never goes back.
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
  // In the order of their last use, so that the first is dropped.
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
