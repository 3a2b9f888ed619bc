// What waits to be written to one client. Whoever fills it never waits for the client: it looks at what waits, and
// ends the tail of a client that is too slow.
import type { Instant } from "../core/time.ts";

interface SendQueue {
  /** `point` is where a client goes on that has received this. */
  readonly push: (text: string, findResumePoint: Instant) => void;
  /** Characters that wait. */
  readonly countWaiting: () => number;
  /** Resolves when nothing waits, or nobody will read any more. */
  readonly waitUntilEmpty: () => Promise<void>;
  /** Where a client goes on that has received what was taken. */
  readonly findResumePoint: () => Instant;
  /** Forgets what waits; this is the last. */
  readonly end: (text: string) => void;
  /** The next text, as soon as there is one; done after the last. Rejects once `signal` has aborted. */
  readonly next: () => Promise<IteratorResult<string, void>>;
}

export function createSendQueue(start: Instant, signal: AbortSignal): SendQueue {
  let pieces: { readonly text: string; readonly point: Instant }[] = [];
  let taken = start;
  let waiting = 0;
  let ended = false;
  let filled = Promise.withResolvers<void>();
  let emptied = Promise.withResolvers<void>();
  emptied.resolve();
  const wake = () => {
    filled.resolve();
    emptied.resolve();
  };
  signal.addEventListener("abort", wake, { once: true });

  const push: SendQueue["push"] = (text, point) => {
    if (ended || signal.aborted) return;
    if (pieces.length === 0) emptied = Promise.withResolvers();
    pieces.push({ text, point });
    waiting += text.length;
    filled.resolve();
  };

  return {
    push,
    countWaiting: () => waiting,
    waitUntilEmpty: () => emptied.promise,
    findResumePoint: () => taken,
    end(text) {
      if (ended) return;
      pieces = [];
      waiting = 0;
      emptied.resolve();
      push(text, taken);
      ended = true;
    },
    async next() {
      signal.throwIfAborted();
      if (pieces.length === 0) {
        if (ended) return { done: true, value: undefined };
        filled = Promise.withResolvers();
        await filled.promise;
        signal.throwIfAborted();
      }
      const { text, point } = pieces.shift() ?? { text: "", point: taken };
      taken = point;
      waiting -= text.length;
      if (pieces.length === 0) emptied.resolve();
      return { done: false, value: text };
    },
  };
}
