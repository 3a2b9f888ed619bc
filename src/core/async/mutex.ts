// A mutex: callers that must not work at the same time go one after the other.

import { raceAbort } from "./concurrency.ts";

export interface Mutex {
  /** Settles when the last caller has released it. */
  last: Promise<void>;
}

/** Waits for all earlier callers. Returns what releases the mutex. Rejects with the signal's reason once it is aborted. */
export async function lockMutex(mutex: Mutex, signal?: AbortSignal): Promise<() => void> {
  signal?.throwIfAborted();
  const before = mutex.last;
  const own = Promise.withResolvers<void>();
  mutex.last = before.then(() => own.promise);
  try {
    await (signal === undefined ? before : raceAbort(before, signal));
    return own.resolve;
  } catch (error) {
    own.resolve();
    throw error;
  }
}
