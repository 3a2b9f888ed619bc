// Which lines have been delivered, as far back as they may be met again. By the second of their time, so that what has
// become too old is forgotten at once.
import { Refused } from "../core/errors.ts";
import type { LogLine } from "../core/rows.ts";
import { fromMillis, type Instant, second } from "../core/time.ts";

export interface RecentIds {
  readonly has: (line: LogLine) => boolean;
  /** False when it has been seen. @throws {Refused} `result_too_large` when there are too many to remember */
  readonly add: (line: LogLine) => boolean;
  readonly isFull: () => boolean;
  /** Lines before this will not be asked for again. */
  readonly forget: (before: Instant) => void;
}

/** What is forgotten together. */
const slotLength = fromMillis(second);

export function createRecentIds(limit: number): RecentIds {
  const seconds = new Map<bigint, Set<string>>();
  let count = 0;
  const keyOf = ({ source_id, id }: LogLine) => `${source_id}\n${id}`;
  return {
    has: (line) => seconds.get(line.time / slotLength)?.has(keyOf(line)) ?? false,
    add(line) {
      const slot = line.time / slotLength;
      const keys = seconds.get(slot) ?? new Set();
      const key = keyOf(line);
      if (keys.has(key)) return false;
      if (count >= limit) {
        const message = `More than ${limit} lines match within the time in which late lines are waited for; narrow the query or the sources`;
        throw new Refused("result_too_large", message, { limit });
      }
      seconds.set(slot, keys.add(key));
      count += 1;
      return true;
    },
    isFull: () => count >= limit,
    forget(before) {
      for (const [slot, keys] of seconds) {
        if ((slot + 1n) * slotLength > before) continue;
        seconds.delete(slot);
        count -= keys.size;
      }
    },
  };
}
