// Waiting that ends early when a caller leaves.
import { raceAbort } from "../../src/core/async/concurrency.ts";
import type { Millis } from "../../src/core/time.ts";

/** Waits for so long. Rejects with the signal's reason as soon as it is aborted. */
export async function sleep(duration: Millis, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, duration);
  try {
    await raceAbort(promise, signal);
  } finally {
    clearTimeout(timer);
  }
}
