// Turns of the event loop for work that would hold it up in one piece. All such work takes turns with all other, whatever
// request it is for: a few milliseconds of each of thirty requests would else follow each other without a break.
import type { Millis } from "../time.ts";

let lastTurn: Promise<unknown> = Promise.resolve();

/** Resolves in a turn of the event loop of its own. Those who wait take their turns in the order in which they came. */
export function yieldToEventLoop(): Promise<unknown> {
  lastTurn = lastTurn.then(() => new Promise((resolve) => setImmediate(resolve)));
  return lastTurn;
}

/** Items that are visited in one turn or step: some milliseconds of work where each is a span. */
export const itemsPerTurn = 2_000;

/** Yields the items in chunks, each in a turn of the event loop of its own. @throws the signal's reason */
export async function* takeTurns<T>(items: Iterable<T>, signal?: AbortSignal): AsyncGenerator<readonly T[]> {
  let chunk: T[] = [];
  for (const item of items) {
    chunk.push(item);
    if (chunk.length < itemsPerTurn) continue;
    yield chunk;
    chunk = [];
    await yieldToEventLoop();
    signal?.throwIfAborted();
  }
  if (chunk.length > 0) yield chunk;
}

/** How long one turn takes. */
const turnTime: Millis = 5;

/**
 * Returns what yields to the event loop where a turn has lasted some milliseconds, and otherwise goes on. It throws the signal's
 * reason.
 */
export function createPause(signal?: AbortSignal): () => Promise<void> | undefined {
  let began = performance.now();
  const pause = async () => {
    await yieldToEventLoop();
    signal?.throwIfAborted();
    began = performance.now();
  };
  return () => (performance.now() - began < turnTime ? undefined : pause());
}

/** Work that can pause after each of its steps, some milliseconds long. */
export type Steps<T> = Generator<undefined, T>;

/** Does all steps without a pause. */
export function runSteps<T>(steps: Steps<T>): T {
  let step = steps.next();
  while (step.done !== true) step = steps.next();
  return step.value;
}

/** Does each step in a turn of the event loop of its own. @throws the signal's reason */
export async function takeSteps<T>(steps: Steps<T>, signal?: AbortSignal): Promise<T> {
  let step = steps.next();
  while (step.done !== true) {
    await yieldToEventLoop();
    signal?.throwIfAborted();
    step = steps.next();
  }
  return step.value;
}
