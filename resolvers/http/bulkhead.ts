// A bound on the requests that a backend has under way, with a queue in front. Not from a library: the ones that were tried
// keep the queue position of a caller who has left.

export interface Bulkhead {
  /**
   * Takes a slot, at once or in the order of arrival. The returned function releases it and is called once.
   * Rejects with the signal's reason when the caller leaves the queue.
   * @throws {QueueFullError}
   */
  acquire(signal: AbortSignal): Promise<() => void>;
  /** Rejects all who wait with this reason. */
  rejectWaiting(reason: unknown): void;
}

/** All slots are taken and the queue is full. */
export class QueueFullError extends Error {
  override readonly name = "QueueFullError";
}

interface Waiting {
  readonly enter: () => void;
  readonly reject: (reason: unknown) => void;
}

/** `concurrent` is the number of slots, `queued` the most callers that wait. */
export function createBulkhead(concurrent: number, queued: number): Bulkhead {
  let taken = 0;
  // In the order of arrival.
  const waiting = new Set<Waiting>();

  function release(): void {
    const [next] = waiting;
    if (next === undefined) taken -= 1;
    else next.enter();
  }

  return {
    acquire: async (signal) => {
      signal.throwIfAborted();
      if (taken < concurrent) {
        taken += 1;
        return release;
      }
      if (waiting.size >= queued) throw new QueueFullError(`request queue full (${queued} waiting)`);
      await waitInQueue(waiting, signal);
      return release;
    },
    rejectWaiting: (reason) => {
      for (const entry of [...waiting]) entry.reject(reason);
    },
  };
}

function waitInQueue(waiting: Set<Waiting>, signal: AbortSignal): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const leave = () => entry.reject(signal.reason);
  const dequeue = () => {
    waiting.delete(entry);
    signal.removeEventListener("abort", leave);
  };
  const entry: Waiting = {
    enter: () => {
      dequeue();
      resolve();
    },
    reject: (reason) => {
      dequeue();
      reject(reason);
    },
  };
  waiting.add(entry);
  signal.addEventListener("abort", leave, { once: true });
  return promise;
}
