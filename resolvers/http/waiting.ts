// Waiting that ends early when a caller leaves.
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

/** Settles with `shared`, or rejects with the signal's reason as soon as this caller leaves. */
export async function raceAbort<T>(shared: Promise<T>, signal: AbortSignal): Promise<T> {
  // A caller who has already left does not handle the failure of `shared`.
  if (signal.aborted) shared.catch(() => {});
  signal.throwIfAborted();
  const left = Promise.withResolvers<never>();
  const leave = () => left.reject(signal.reason);
  signal.addEventListener("abort", leave, { once: true });
  try {
    return await Promise.race([shared, left.promise]);
  } finally {
    signal.removeEventListener("abort", leave);
  }
}
