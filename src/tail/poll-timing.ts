// How often a tail polls its source, and how long it pauses after a poll and after failures.
import type { Millis } from "../core/time.ts";

export const pollInterval: Millis = 1_000;
const maxRetryDelay: Millis = 30_000;
/** The pause after so many failures in a row: doubled each time. */
export function computeRetryDelay(failures: number): Millis {
  return Math.min(pollInterval * 2 ** failures, maxRetryDelay);
}

/** The pause after a poll that took so long. */
export function computePollPause(duration: Millis): Millis {
  return Math.max(pollInterval - duration, pollInterval / 5);
}
