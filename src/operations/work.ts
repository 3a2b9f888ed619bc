// The life of an operation under way: its deadline, a client that may leave, and how far its answer is read before
// the status is decided.
import { BackendError } from "../errors.ts";
import type { Millis } from "../time.ts";
import type { Rows } from "./operation.ts";

// Answers up to here are completed before the status is sent, so that a late failure is still a 500.
const completedRows = 1_000;
const completedChars = 4 * 1_048_576;

/** The client left: no answer, no error in the log. */
export class ClientGone extends Error {
  override readonly name = "ClientGone";
}

/** The life of one request: it is given up when the client leaves or the deadline passes. */
export interface Work {
  readonly signal: AbortSignal;
  /** The promise, or the signal's reason as soon as it aborts, even when the work ignores the signal. */
  readonly wait: <T>(promise: Promise<T>) => Promise<T>;
  /**
   * A streamed answer has got on: from then on the deadline is for each step, as a slow client is no failure.
   * Throws the signal's reason when it is too late.
   */
  readonly progressed: () => void;
  readonly end: () => void;
}

export function startWork(gone: AbortSignal, deadline: Millis): Work {
  const control = new AbortController();
  const { signal } = control;
  const timer = setTimeout(
    () => control.abort(new BackendError("readout", "timeout", `the deadline of ${deadline} ms has passed`)),
    deadline,
  );
  // A request within a request inherits its deadline.
  const leave = () => control.abort(gone.reason instanceof BackendError ? gone.reason : new ClientGone());
  if (gone.aborted) leave();
  else gone.addEventListener("abort", leave, { once: true });
  return {
    signal,
    wait: (promise) =>
      new Promise((resolve, reject) => {
        const stop = () => reject(signal.reason);
        if (signal.aborted) stop();
        signal.addEventListener("abort", stop, { once: true });
        const over = () => signal.removeEventListener("abort", stop);
        promise.then(resolve, reject).finally(over);
      }),
    progressed: () => {
      signal.throwIfAborted();
      timer.refresh();
    },
    end: () => {
      clearTimeout(timer);
      gone.removeEventListener("abort", leave);
    },
  };
}

/** Reads an answer as far as it is completed before its status is sent. */
export async function readHead(
  rows: AsyncIterator<Rows>,
  work: Work,
): Promise<{ texts: string[]; done: boolean }> {
  const texts: string[] = [];
  let count = 0;
  let size = 0;
  try {
    while (count <= completedRows && size <= completedChars) {
      const next = await work.wait(rows.next());
      if (next.done === true) return { texts, done: true };
      texts.push(next.value.text);
      count += next.value.count;
      size += next.value.text.length;
    }
    return { texts, done: false };
  } catch (error) {
    abandon(rows);
    throw error;
  }
}

/** Ends an iteration without waiting for it: its source may be what hangs. */
export function abandon(rows: AsyncIterator<Rows>): void {
  rows.return?.().catch(() => {});
}
