// Exponential backoff after refused credentials (status 401), so that a wrong password does not lock its account.
import type { Millis } from "../../src/core/time.ts";

export interface AuthBackoff {
  /** Whether a request may be sent. During a backoff, one caller at a time gets true, after each pause. */
  tryEnter(): boolean;
  /** Records whether the credentials of a request that began at `started` were refused. */
  record(refused: boolean, started: Millis): void;
}

interface BackoffSettings {
  /** The number of consecutive refusals that starts the backoff. */
  readonly threshold: number;
  /** The first pause; each further one is twice as long, up to `maxDelay`. */
  readonly initialDelay: Millis;
  readonly maxDelay: Millis;
  /** A monotonic clock. */
  readonly clock: () => Millis;
}

export function createAuthBackoff(settings: BackoffSettings): AuthBackoff {
  const { threshold, initialDelay, maxDelay, clock } = settings;
  let refusals = 0;
  let pause: Millis = 0;
  let blockedUntil = Number.NEGATIVE_INFINITY;
  let lastPaused = Number.NEGATIVE_INFINITY;
  return {
    tryEnter() {
      if (pause === 0) return true;
      const now = clock();
      if (now < blockedUntil) return false;
      blockedUntil = now + pause;
      return true;
    },
    record(refused, started) {
      if (!refused) {
        refusals = 0;
        pause = 0;
        return;
      }
      refusals += 1;
      // A pause is not extended by requests that began before it.
      if (refusals < threshold || (pause > 0 && started < lastPaused)) return;
      pause = pause === 0 ? initialDelay : Math.min(maxDelay, pause * 2);
      lastPaused = clock();
      blockedUntil = lastPaused + pause;
    },
  };
}
