// The life of an operation under way: its deadline, a client that may leave, and how far its answer is read before
// the status is decided.

import { createHeldBytes, type HeldBytes } from "../../core/async/held-bytes.ts";
import { createReadProgress, describeLateRead, type ReadProgress } from "../../core/async/read-progress.ts";
import { yieldToEventLoop } from "../../core/async/turns.ts";
import { BackendError, LimitReached, Refused } from "../../core/errors.ts";
import type { Millis } from "../../core/time.ts";
import type { RowBatch } from "./operation.ts";

// Answers up to here are completed before the status is sent, so that a late failure is still a 500. Of those that cannot
// fail any more, what is up to here is as good as completed.
const bufferedRows = 1_000;
export const bufferedChars = 4 * 1_048_576;
/** What is held of an answer that may still be refused. */
const maxHeldChars = 32 * 1_048_576;

/** The client left: no answer, no error in the log. */
export class ClientGone extends Error {
  override readonly name = "ClientGone";
}

/** The life of one request: it is given up when the client leaves or the deadline passes. */
export interface RequestLifetime {
  readonly signal: AbortSignal;
  /** What the operation reads, which it counts itself. */
  readonly progress: ReadProgress;
  /** What it holds of documents. */
  readonly held: HeldBytes;
  /** The promise, or the signal's reason as soon as it aborts, even when the work ignores the signal. */
  readonly wait: <T>(promise: Promise<T>) => Promise<T>;
  /**
   * A streamed answer has got on: from then on the deadline is for each step, as a slow client is no failure.
   * Throws the signal's reason when it is too late.
   */
  readonly reportProgress: () => void;
  /** Gives up what is under way for it. Returns the reason: the first that there was. */
  readonly fail: (reason: unknown) => unknown;
  readonly end: () => void;
}

export function startRequest(
  gone: AbortSignal,
  deadline: Millis,
  held: HeldBytes = createHeldBytes(Number.POSITIVE_INFINITY),
): RequestLifetime {
  const control = new AbortController();
  const { signal } = control;
  const progress = createReadProgress();
  const giveUp = () => {
    const sentence = describeLateRead(progress, deadline);
    const message = `the deadline of ${deadline} ms has passed`;
    control.abort(new LimitReached("deadline", "timeout", message, sentence));
  };
  const timer = setTimeout(giveUp, deadline);
  // A request within a request inherits its deadline.
  const leave = () => control.abort(gone.reason instanceof BackendError ? gone.reason : new ClientGone());
  if (gone.aborted) leave();
  else gone.addEventListener("abort", leave, { once: true });
  let ended = false;
  /** One listener for all that is waited for: to add one and to take it away costs more than all the rest of a wait. */
  const waiting = new Set<() => void>();
  signal.addEventListener("abort", () => {
    for (const stop of waiting) stop();
  });
  return {
    signal,
    progress,
    held,
    wait: (promise) =>
      new Promise((resolve, reject) => {
        const stop = () => reject(signal.reason);
        if (signal.aborted) stop();
        waiting.add(stop);
        promise.then(resolve, reject).finally(() => waiting.delete(stop));
      }),
    reportProgress: () => {
      signal.throwIfAborted();
      // A source may still answer when its request has failed by another.
      if (!ended) timer.refresh();
    },
    fail: (reason) => {
      control.abort(reason);
      return signal.reason;
    },
    end: () => {
      ended = true;
      clearTimeout(timer);
      gone.removeEventListener("abort", leave);
    },
  };
}

/** What was read of an answer before its status is sent. */
interface BufferedHead {
  readonly texts: readonly string[];
  readonly rows: number;
  /** `done`: that is all. `settled`: what follows is little, and only has to be printed. */
  readonly state: "done" | "settled" | "open";
}

/**
 * Reads an answer as far as it is completed before its status is sent: further while it may still be refused, and no
 * further than to its first piece where nothing can fail any more.
 * @throws {Refused} `result_too_large` when it may still be refused and no more of it can be held
 */
export async function bufferHead(
  rows: AsyncIterator<RowBatch>,
  work: RequestLifetime,
): Promise<BufferedHead> {
  const texts: string[] = [];
  let count = 0;
  let size = 0;
  let refusable = false;
  try {
    while (refusable || (count <= bufferedRows && size <= bufferedChars)) {
      if (size > maxHeldChars) throw createTooLargeToHoldError();
      const next = await work.wait(rows.next());
      if (next.done === true) return { texts, rows: count, state: "done" };
      texts.push(next.value.text);
      count += next.value.count;
      size += next.value.text.length;
      const { unprinted = 0 } = next.value;
      if (unprinted > 0) {
        return { texts, rows: count, state: unprinted <= bufferedChars ? "settled" : "open" };
      }
      refusable = next.value.refusable ?? false;
      // Printing is work without a wait: large answers take turns, and no small one waits for all of them.
      if (texts.length > 1) await yieldToEventLoop();
    }
    return { texts, rows: count, state: "open" };
  } catch (error) {
    closeIterator(rows);
    throw error;
  }
}

/**
 * Marks what comes after the completed rows as refusable, unless `fits` says that no refusal can follow. It is asked
 * ahead where more rows are `wanted`, else when the answer turns out to be that large.
 */
export async function* holdWhileRefusable(
  rows: AsyncIterable<RowBatch>,
  wanted: number,
  fits: () => Promise<boolean>,
): AsyncGenerator<RowBatch> {
  // An answer whose source cannot tell is completed before it is sent.
  const ask = () => fits().catch(() => false);
  let asking = wanted > bufferedRows ? ask() : undefined;
  let count = 0;
  let size = 0;
  for await (const batch of rows) {
    count += batch.count;
    size += batch.text.length;
    if (count <= bufferedRows && size <= bufferedChars) {
      yield batch;
    } else {
      asking ??= ask();
      yield { ...batch, refusable: !(await asking) };
    }
  }
}

function createTooLargeToHoldError(): Refused {
  const message = `The source cannot tell whether it can answer in full before more than ${maxHeldChars / 1_048_576} MiB are read; ask for fewer rows a page, or narrow the range or the query`;
  return new Refused("result_too_large", message, { limit: maxHeldChars });
}

/** Ends an iteration without waiting for it: its source may be what hangs. */
export function closeIterator(rows: AsyncIterator<unknown>): void {
  rows.return?.().catch(() => {});
}
