// Rate limits by token buckets, one for each name that was used recently.
import type { Quota } from "../core/errors.ts";
import type { Millis } from "../core/time.ts";

export interface RateLimiter {
  /** Whether `name` may make one more request now, which then counts. */
  readonly take: (name: string) => boolean;
  readonly quota: Quota;
  /** The part of the quota that is used by the name nearest to it, from 0 to 1. */
  readonly measureUse: () => number;
}

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
  const buckets = new Map<string, Bucket>();
  const countTokens = ({ tokens, at }: Bucket, now: Millis): number =>
    Math.min(burst, tokens + ((now - at) * perSecond) / 1_000);
  const take = (name: string): boolean => {
    const at = clock();
    const known = buckets.get(name);
    const bucket: Bucket = { tokens: known === undefined ? burst : countTokens(known, at), at };
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
  const measureUse = (): number => {
    const now = clock();
    let least = burst;
    for (const bucket of buckets.values()) least = Math.min(least, countTokens(bucket, now));
    return 1 - Math.floor(least) / burst;
  };
  return { take, measureUse, quota: { requests: burst, seconds: burstSeconds } };
}

/** What was left at that time. */
interface Bucket {
  tokens: number;
  readonly at: Millis;
}
