import type { RateLimiter } from "#src/access/rate-limit.ts";

/** A limiter that decides as `take` does, and says that it allows 20 requests in 10 seconds. */
export function createFakeRateLimiter(take: RateLimiter["take"]): RateLimiter {
  return { take, describeQuota: () => ({ requests: 20, seconds: 10 }), measureUse: () => 1 };
}
