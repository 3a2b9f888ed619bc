// Token buckets, one for each name that was seen lately.
import type { Millis } from "./time.ts";

/** Whether one more is allowed to `name` now. */
export type Rate = (name: string) => boolean;

/** Names that are remembered; whoever is forgotten starts with a full bucket again. */
const mostNames = 10_000;

/** How many seconds of a rate may come at once. */
export const burstSeconds = 10;

/**
 * `perSecond` in the long run, and `burst` at once. `clock` never goes back, in milliseconds.
 */
export function createRate(perSecond: number, burst: number, clock: () => Millis): Rate {
  // In the order of their last use, so that the first is the one to forget.
  const buckets = new Map<string, { tokens: number; at: Millis }>();
  return (name) => {
    const at = clock();
    const bucket = buckets.get(name) ?? { tokens: burst, at };
    bucket.tokens = Math.min(burst, bucket.tokens + ((at - bucket.at) * perSecond) / 1_000);
    bucket.at = at;
    buckets.delete(name);
    buckets.set(name, bucket);
    if (buckets.size > mostNames) {
      const [oldest] = buckets.keys();
      if (oldest !== undefined) buckets.delete(oldest);
    }
    if (bucket.tokens < 1) return false;
    bucket.tokens -= 1;
    return true;
  };
}
