// Rate limits by token buckets, one for each name that was used recently.
import type { Quota } from "../core/errors.ts";
import type { Millis } from "../core/time.ts";

export interface RateLimiter {
  /** Whether `name` may make one more request now, which then counts. `own` is a lower rate of that name alone. */
  readonly take: (name: string, own?: number) => boolean;
  readonly describeQuota: (own?: number) => Quota;
  /** The part of its quota that is used by the name nearest to it, from 0 to 1. */
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
  // In the order of their last use, so that the first is dropped.
  const buckets = new Map<string, Bucket>();
  const chooseRate = (own: number | undefined) => Math.min(perSecond, own ?? perSecond);
  const take = (name: string, own?: number): boolean => {
    const at = clock();
    const rate = chooseRate(own);
    const known = buckets.get(name);
    const full = rate * burstSeconds;
    const bucket: Bucket = { rate, tokens: known === undefined ? full : countTokens(known, at), at };
    bucket.tokens = Math.min(full, bucket.tokens);
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
    let largest = 0;
    for (const bucket of buckets.values()) {
      const left = Math.floor(countTokens(bucket, now)) / (bucket.rate * burstSeconds);
      largest = Math.max(largest, 1 - left);
    }
    return largest;
  };
  const describeQuota = (own?: number): Quota => ({
    requests: chooseRate(own) * burstSeconds,
    seconds: burstSeconds,
  });
  return { take, measureUse, describeQuota };
}

/** What was left at that time, and how fast it is refilled. */
interface Bucket {
  readonly rate: number;
  tokens: number;
  readonly at: Millis;
}

function countTokens({ rate, tokens, at }: Bucket, now: Millis): number {
  return Math.min(rate * burstSeconds, tokens + ((now - at) * rate) / 1_000);
}
