// The rows of an answer that is held whole: how many may be, and how they are put together.

import { type HeldBytes, measureHeld } from "../../core/async/held-bytes.ts";
import { createPause, yieldToEventLoop } from "../../core/async/turns.ts";
import { BackendError, Refused } from "../../core/errors.ts";
import { parseLossless } from "../../core/json/lossless-json.ts";
import { closeIterator, type RequestLifetime } from "./lifetime.ts";
import type { RowBatch } from "./operation.ts";

/** How many rows may still be collected for one request, over all of its operations, and the bytes of those that were. */
export interface RowBudget {
  readonly limit: number;
  left: number;
  readonly held: HeldBytes;
}

/** Of a link's answer the rows for each that asked; of any other, one value. */
export function countLinked(answer: unknown): number {
  if (!Array.isArray(answer)) return 0;
  return answer.reduce<number>((sum, rows) => sum + (Array.isArray(rows) ? rows.length : 0), 0);
}

/** @throws {Refused} `result_too_large` */
export function spendRows(budget: RowBudget, rows: number): void {
  budget.left -= rows;
  if (budget.left >= 0) return;
  const message = `The answer holds more than ${budget.limit} rows; narrow it, or ask for it over REST`;
  throw new Refused("result_too_large", message, { limit: budget.limit });
}

export async function collectBatches<Batch>(
  batches: AsyncIterable<Batch>,
  work: RequestLifetime,
  budget: RowBudget,
  count: (batch: Batch) => number,
): Promise<readonly Batch[]> {
  const iterator = batches[Symbol.asyncIterator]();
  const collected: Batch[] = [];
  const held = budget.held.openPart();
  const pause = createPause(work.signal);
  let rows = 0;
  try {
    for (;;) {
      const next = await work.wait(iterator.next());
      if (next.done === true) return collected;
      const found = count(next.value);
      rows += found;
      spendRows(budget, found);
      held.hold(measureHeld(next.value));
      collected.push(next.value);
      // The batches of what is held already come one after the other.
      const paused = pause();
      if (paused !== undefined) await paused;
    }
  } catch (error) {
    closeIterator(iterator);
    held.release();
    // No answer holds the rows that came before a failure.
    if (error instanceof BackendError) budget.left += rows;
    throw error;
  }
}

export const countRows = ({ count }: RowBatch): number => count;

/** The rows of all batches, those of one in each turn of the event loop. */
export async function readBatches(batches: readonly RowBatch[]): Promise<unknown[]> {
  const all: unknown[] = [];
  for (const { text } of batches) {
    if (all.length > 0) await yieldToEventLoop();
    for (const row of readRows(text)) all.push(row);
  }
  return all;
}

/** The rows of a printed batch. Numbers that a double cannot hold keep their spelling. */
export function readRows(text: string): unknown[] {
  const rows = parseLossless(`[${text}]`);
  return Array.isArray(rows) ? rows : [];
}
