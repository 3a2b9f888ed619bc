// Bounded concurrency for the backend requests of one client request: some at a time, all given up when one fails; and which
// request a signal is of.
import { type ReadProgress, reportSent } from "./read-progress.ts";

/**
 * Runs `work` on each item, at most `limit` at a time. Returns the results in the order of the items.
 * On the first failure aborts the signal of those under way, starts no other, and rejects with that failure.
 */
export async function mapConcurrent<Item, Result>(
  items: readonly Item[],
  limit: number,
  work: (item: Item, signal: AbortSignal) => Promise<Result>,
  signal: AbortSignal,
): Promise<readonly Result[]> {
  const stop = new AbortController();
  const both = combineSignals(signal, stop.signal);
  const entries = items.entries();
  const results: Result[] = [];
  const worker = async (): Promise<void> => {
    for (const [index, item] of entries) {
      both.throwIfAborted();
      results[index] = await work(item, both);
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
  } catch (error) {
    stop.abort(error);
    throw error;
  }
  return results;
}

/** As `mapConcurrent`, for all items at once. */
export function mapAtOnce<Item, Result>(
  items: readonly Item[],
  work: (item: Item, signal: AbortSignal) => Promise<Result>,
  signal: AbortSignal,
): Promise<readonly Result[]> {
  return mapConcurrent(items, items.length, work, signal);
}

/** Sources that one request asks at once. A token may see hundreds, which would fill the queue of their backend. */
const sourcesAtOnce = 4;

/** As `mapConcurrent`, for the sources of one request. */
export function mapSources<Source, Result>(
  sources: readonly Source[],
  ask: (source: Source, signal: AbortSignal) => Promise<Result>,
  signal: AbortSignal,
): Promise<readonly Result[]> {
  return mapConcurrent(sources, sourcesAtOnce, ask, signal);
}

/**
 * Runs async generators, at most `limit` (4) at a time, and yields their items in the order in which they arrive.
 * A failure of one ends all; those still open are closed in any case.
 */
export async function* mergeConcurrent<T>(
  sources: readonly (() => AsyncGenerator<T>)[],
  limit = sourcesAtOnce,
): AsyncGenerator<T> {
  type Pending = { readonly source: AsyncGenerator<T>; readonly result: IteratorResult<T> };
  const waiting = [...sources];
  const pending = new Map<AsyncGenerator<T>, Promise<Pending>>();
  const advance = (source: AsyncGenerator<T>) => {
    const next = source.next().then((result) => ({ source, result }));
    // The race below reports a failure; without this handler one that fails while another is awaited is unhandled.
    next.catch(() => undefined);
    pending.set(source, next);
  };
  try {
    for (;;) {
      while (pending.size < limit) {
        const start = waiting.shift();
        if (start === undefined) break;
        advance(start());
      }
      if (pending.size === 0) return;
      const { source, result } = await Promise.race(pending.values());
      if (result.done === true) pending.delete(source);
      else {
        yield result.value;
        advance(source);
      }
    }
  } finally {
    // Each frees what it holds at the backend. One that still waits does so once its signal has stopped it.
    for (const source of pending.keys()) source.return(undefined).catch(() => undefined);
  }
}

const originals = new WeakMap<AbortSignal, AbortSignal>();

/** A signal of the same request that may end earlier. */
export function combineSignals(signal: AbortSignal, earlier: AbortSignal): AbortSignal {
  const both = AbortSignal.any([signal, earlier]);
  noteSameRequest(both, signal);
  return both;
}

/** For a signal that follows another one of the request without being combined from it. */
export function noteSameRequest(following: AbortSignal, signal: AbortSignal): void {
  originals.set(following, findOriginalSignal(signal));
}

/** The signal that others of a request were combined from. What is known for one of them holds for all. */
export function findOriginalSignal(signal: AbortSignal): AbortSignal {
  return originals.get(signal) ?? signal;
}

const clientRequests = new WeakMap<AbortSignal, ClientRequest>();

/** What the guard of a source has to know of a client's request: stores pass its signal on, and are told nothing else. */
export interface ClientRequest {
  /** Whose it is, as in `Principal`. */
  readonly account: string;
  readonly progress: ReadProgress;
}

export function noteClientRequest(signal: AbortSignal, request: ClientRequest): void {
  clientRequests.set(signal, request);
}

/** Undefined for work of the program's own, such as what is read once for all who wait for it. */
export function findClientRequest(signal: AbortSignal): ClientRequest | undefined {
  return clientRequests.get(findOriginalSignal(signal));
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

/** As `raceAbort`, for what a source is asked once for all who wait: it owes each of them an answer until then. */
export async function awaitShared<T>(shared: Promise<T>, signal: AbortSignal): Promise<T> {
  const endWait = reportSent(findClientRequest(signal)?.progress);
  try {
    return await raceAbort(shared, signal);
  } finally {
    endWait();
  }
}
