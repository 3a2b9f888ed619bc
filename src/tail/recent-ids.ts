// Which lines have been delivered, as far back as they may be met again, each with a number. By the second of their time, so
// that what has become too old is forgotten at once.
import { Refused } from "../core/errors.ts";
import type { LogLine } from "../core/rows.ts";
import { floorToMilli, fromMillis, type Instant, second } from "../core/time.ts";

export interface RecentIds {
  /** The number of a line that is remembered. */
  readonly find: (line: LogLine) => number | undefined;
  /**
   * Remembers it with this number, and returns the one that it had.
   * @throws {Refused} `result_too_large` when there are too many to remember
   */
  readonly remember: (line: LogLine, number: number) => number | undefined;
  readonly isFull: () => boolean;
  /** Lines before this will not be asked for again. */
  readonly forget: (before: Instant) => void;
}

/** What is forgotten together. */
const slotLength = fromMillis(second);

export function createRecentIds(limit: number): RecentIds {
  const seconds = new Map<bigint, Map<string, number>>();
  let count = 0;
  // Of copies in two clusters only those in one millisecond are one line.
  const keyOf = ({ source_id, id, time }: LogLine) => `${floorToMilli(time)}\n${source_id}\n${id}`;
  return {
    find: (line) => seconds.get(line.time / slotLength)?.get(keyOf(line)),
    remember(line, number) {
      const slot = line.time / slotLength;
      const numbers = seconds.get(slot) ?? new Map<string, number>();
      const key = keyOf(line);
      const known = numbers.get(key);
      if (known === undefined && count >= limit) {
        const message = `More than ${limit} lines match within the time in which late lines are waited for; narrow the query or the sources`;
        throw new Refused("result_too_large", message, { limit });
      }
      if (known === undefined) count += 1;
      seconds.set(slot, numbers.set(key, number));
      return known;
    },
    isFull: () => count >= limit,
    forget(before) {
      for (const [slot, numbers] of seconds) {
        if ((slot + 1n) * slotLength > before) continue;
        seconds.delete(slot);
        count -= numbers.size;
      }
    },
  };
}
