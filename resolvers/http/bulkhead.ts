// A bound on the requests that a backend has under way, with a queue in front. Not from a library: the ones that were tried
// keep the queue position of a caller who has left, and know one queue for all.
import { type FairQueue, joinQueue, leaveQueue, serveNext } from "../../src/core/async/fair-queue.ts";

/** For whom a request is made; undefined for the program itself. */
export type Account = string | undefined;

export interface Bulkhead {
  /**
   * Takes a slot, at once or when its turn comes: a slot that is given back goes to the account that holds the fewest, and of
   * its callers to the first. The returned function releases it and is called once.
   * Rejects with the signal's reason when the caller leaves the queue.
   * @throws {QueueFullError}
   */
  acquire(account: Account, signal: AbortSignal): Promise<() => void>;
  /** Rejects with this reason all who wait, of the accounts that `isRejected` names. */
  rejectWaiting(reason: unknown, isRejected: (account: Account) => boolean): void;
}

/** All slots are taken and the queue is full. */
export class QueueFullError extends Error {
  override readonly name = "QueueFullError";
}

interface Waiting {
  readonly enter: () => void;
  readonly reject: (reason: unknown) => void;
}

interface BulkheadState {
  readonly concurrent: number;
  readonly queued: number;
  /** An eighth of the slots is kept from each account, so that the first request of another one finds a slot free. */
  readonly mostOfAccount: number;
  taken: number;
  readonly held: Map<Account, number>;
  waiting: number;
  readonly queue: FairQueue<Account, Waiting>;
}

/** `concurrent` is the number of slots, `queued` the most callers that wait. */
export function createBulkhead(concurrent: number, queued: number): Bulkhead {
  const state: BulkheadState = {
    concurrent,
    queued,
    mostOfAccount: concurrent - Math.round(concurrent / 8),
    taken: 0,
    held: new Map(),
    waiting: 0,
    queue: new Map(),
  };
  return {
    acquire: async (account, signal) => {
      signal.throwIfAborted();
      if (hasSlotFor(state, account)) return takeSlot(state, account);
      makeRoom(state, account);
      return waitInQueue(state, account, signal);
    },
    rejectWaiting: (reason, isRejected) => {
      const rejected = [...state.queue].filter(([account]) => isRejected(account));
      for (const { reject } of rejected.flatMap(([, own]) => [...own])) reject(reason);
    },
  };
}

function countHeld({ held }: BulkheadState, account: Account): number {
  return held.get(account) ?? 0;
}

function hasSlotFor(state: BulkheadState, account: Account): boolean {
  return state.taken < state.concurrent && countHeld(state, account) < state.mostOfAccount;
}

function takeSlot(state: BulkheadState, account: Account): () => void {
  state.taken += 1;
  state.held.set(account, countHeld(state, account) + 1);
  return () => {
    state.taken -= 1;
    const left = countHeld(state, account) - 1;
    if (left === 0) state.held.delete(account);
    else state.held.set(account, left);
    serveNext(
      state.queue,
      (account) => countHeld(state, account),
      ([first], account) => {
        if (!hasSlotFor(state, account)) return false;
        first?.enter();
        return true;
      },
    );
  };
}

/**
 * Where the queue is full, the account with the most callers in it loses the last of them to one with fewer.
 * @throws {QueueFullError}
 */
function makeRoom({ queued, waiting, queue }: BulkheadState, account: Account): void {
  if (waiting < queued) return;
  const full = new QueueFullError(`request queue full (${queued} waiting)`);
  const [, largest = new Set<Waiting>()] = [...queue].toSorted(([, a], [, b]) => b.size - a.size)[0] ?? [];
  if ((queue.get(account)?.size ?? 0) + 1 >= largest.size) throw full;
  [...largest].at(-1)?.reject(full);
}

function waitInQueue(state: BulkheadState, account: Account, signal: AbortSignal): Promise<() => void> {
  const { promise, resolve, reject } = Promise.withResolvers<() => void>();
  const leave = () => entry.reject(signal.reason);
  const dequeue = () => {
    leaveQueue(state.queue, account, entry);
    state.waiting -= 1;
    signal.removeEventListener("abort", leave);
  };
  const entry: Waiting = {
    enter: () => {
      dequeue();
      resolve(takeSlot(state, account));
    },
    reject: (reason) => {
      dequeue();
      reject(reason);
    },
  };
  joinQueue(state.queue, account, entry);
  state.waiting += 1;
  signal.addEventListener("abort", leave, { once: true });
  return promise;
}
