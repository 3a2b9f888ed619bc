// Token buckets, one for each name that was seen lately.
import type { Millis } from "../core/time.ts";

/** Whether one more is allowed to `name` now. */
export type Rate = (name: string) => boolean;

/** Names that are remembered; whoever is forgotten starts with a full bucket again. */
const mostNames = 10_000;

/** How many seconds of a rate may come at once. */
const burstSeconds = 10;

/**
 * The rate of so many a second in the long run, made anew when that is another number than before: what was used up
 * outlives a reload of the configuration that leaves it as it is. `clock` never goes back.
 */
export function rememberRate(clock: () => Millis): (perSecond: number) => Rate {
  let known: { readonly perSecond: number; readonly rate: Rate } | undefined;
  return (perSecond) => {
    if (known?.perSecond !== perSecond) known = { perSecond, rate: createRate(perSecond, clock) };
    return known.rate;
  };
}

function createRate(perSecond: number, clock: () => Millis): Rate {
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
    if (buckets.size > mostNames) {
      const [oldest] = buckets.keys();
      if (oldest !== undefined) buckets.delete(oldest);
    }
    if (bucket.tokens < 1) return false;
    bucket.tokens -= 1;
    return true;
  };
}
