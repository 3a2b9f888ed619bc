// Waiting that ends early: when a caller leaves, or at the deadline of a request that cannot be sent yet.
import { awaitShared, raceAbort } from "../../src/core/async/concurrency.ts";
import type { BackendError } from "../../src/core/errors.ts";
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

const lateErrors = new WeakMap<AbortSignal, () => BackendError>();

/**
 * Waits for what a request needs before it can be sent, such as a token. Where the deadline of the request passes meanwhile, it
 * fails with `createLateError`: its source was asked nothing, and is not the one that is late.
 */
export async function awaitNeeded<T>(
  needed: Promise<T>,
  signal: AbortSignal,
  createLateError: () => BackendError,
): Promise<T> {
  lateErrors.set(signal, createLateError);
  const found = await awaitShared(needed, signal);
  lateErrors.delete(signal);
  return found;
}

/** The failure of a request that is late before it was sent; undefined for one that waits for its source. */
export function findLateError(signal: AbortSignal): BackendError | undefined {
  return lateErrors.get(signal)?.();
}

/** Whether the request could be sent, as far as it needed something before. */
export function wasSent(signal: AbortSignal): boolean {
  return !lateErrors.has(signal);
}
