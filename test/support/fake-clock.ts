// Time as a test tells it. Whoever pauses wakes up in the order of time, and what follows from one waking has run
// before the next.
import { setImmediate as nextTurn } from "node:timers/promises";
import { fromMillis, type Instant, type Millis } from "#src/core/time.ts";

export interface Clock {
  readonly now: () => Instant;
  /** Resolves after so long, or at once when the signal aborts. */
  readonly pause: (length: Millis, signal: AbortSignal) => Promise<void>;
  /** Runs `act` at this time. */
  readonly at: (time: Millis, act: () => void) => void;
  readonly advance: (length: Millis) => Promise<void>;
  /** What `now` tells is so much earlier from here on; pauses end when they would have. */
  readonly putBack: (length: Millis) => void;
}

/** `turns` of the event loop are enough for what a waking sets off. */
export function createClock(start: Millis, turns = 12): Clock {
  let time = start;
  let late = 0;
  let count = 0;
  const waiting: { readonly time: Millis; readonly order: number; readonly act: () => void }[] = [];
  const add = (at: Millis, act: () => void) => {
    waiting.push({ time: at, order: count++, act });
    waiting.sort((a, b) => a.time - b.time || a.order - b.order);
  };
  const settle = async () => {
    for (let turn = 0; turn < turns; turn += 1) await nextTurn();
  };
  return {
    now: () => fromMillis(time - late),
    pause: (length, signal) =>
      new Promise((resolve) => {
        if (signal.aborted) return resolve();
        signal.addEventListener("abort", () => resolve(), { once: true });
        add(time + length, resolve);
      }),
    at: add,
    async advance(length) {
      const end = time + length;
      await settle();
      for (let next = waiting[0]; next !== undefined && next.time <= end; next = waiting[0]) {
        waiting.shift();
        time = next.time;
        next.act();
        await settle();
      }
      time = end;
      await settle();
    },
    putBack: (length) => {
      late += length;
    },
  };
}
