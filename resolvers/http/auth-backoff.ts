// Exponential backoff after refused credentials (status 401), so that a wrong password does not lock its account.
import type { Millis } from "../../src/core/time.ts";

export interface AuthBackoff {
  /** Whether no request may be sent. False lets one caller try; until that is answered or due again, others are blocked. */
  isBlocked(): boolean;
  /** Records whether the credentials of a request that began at `started` were refused. */
  record(refused: boolean, started: Millis): void;
}

interface BackoffSettings {
  /** The number of consecutive refusals that starts the backoff. */
  readonly inRow: number;
  /** The first pause; each further one is twice as long, up to `longest`. */
  readonly first: Millis;
  readonly longest: Millis;
  /** A monotonic clock. */
  readonly clock: () => Millis;
}

export function createAuthBackoff({ inRow, first, longest, clock }: BackoffSettings): AuthBackoff {
  let refusals = 0;
  let pause: Millis = 0;
  let blockedUntil = Number.NEGATIVE_INFINITY;
  let lastPaused = Number.NEGATIVE_INFINITY;
  return {
    isBlocked() {
      if (pause === 0) return false;
      if (clock() < blockedUntil) return true;
      blockedUntil = clock() + pause;
      return false;
    },
    record(refused, started) {
      if (!refused) {
        refusals = 0;
        pause = 0;
        return;
      }
      refusals += 1;
      // Requests that were under way together count as one refusal.
      if (refusals < inRow || (pause > 0 && started < lastPaused)) return;
      pause = pause === 0 ? first : Math.min(longest, pause * 2);
      lastPaused = clock();
      blockedUntil = lastPaused + pause;
    },
  };
}
