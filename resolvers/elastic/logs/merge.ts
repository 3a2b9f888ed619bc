// The order of lines across searches and sources, and the limit on lines of one millisecond.
import { Refused } from "../../../src/core/errors.ts";
import { compareLines, type LogLine } from "../../../src/core/rows.ts";
import { floorToMilli, type Instant } from "../../../src/core/time.ts";

/** Puts lines into the contract's order. */
export function sortLines(lines: LogLine[], order: "asc" | "desc"): LogLine[] {
  // The source sorts by time; only lines of one instant may still be out of order.
  if (isStrictlyOrdered(lines, order)) return lines;
  return lines.sort(order === "asc" ? compareLines : compareBackwards);
}

function compareBackwards(a: LogLine, b: LogLine): number {
  return compareLines(b, a);
}

/** Whether the lines are in order by their times alone, no two of which are the same. */
function isStrictlyOrdered(lines: readonly LogLine[], order: "asc" | "desc"): boolean {
  let before: LogLine | undefined;
  for (const line of lines) {
    if (before !== undefined && !(order === "asc" ? before.time < line.time : before.time > line.time))
      return false;
    before = line;
  }
  return true;
}

/**
 * Several streams of whole milliseconds as one. A stream is complete up to the last millisecond that it has given, so
 * everything up to the nearest of these can be let go.
 */
export async function* mergeStreams(
  streams: readonly AsyncGenerator<readonly LogLine[]>[],
  order: "asc" | "desc",
): AsyncGenerator<readonly LogLine[]> {
  const ahead = (a: bigint, b: bigint): boolean => (order === "asc" ? a < b : a > b);
  const heads = streams.map((stream) => ({ stream, lines: [] as readonly LogLine[], done: false }));
  async function refill(head: (typeof heads)[number]): Promise<void> {
    const { value, done } = await head.stream.next();
    if (done === true) head.done = true;
    else head.lines = value;
  }
  try {
    for (;;) {
      await Promise.all(heads.filter((head) => !head.done && head.lines.length === 0).map(refill));
      const open = heads.filter((head) => head.lines.length > 0);
      if (open.length === 0) return;
      let edge: Instant | undefined;
      for (const head of open) {
        const last = head.lines.at(-1);
        if (last === undefined) continue;
        const milli = floorToMilli(last.time);
        if (edge === undefined || ahead(milli, edge)) edge = milli;
      }
      let ready: LogLine[] = [];
      for (const head of open) {
        let end = 0;
        for (const line of head.lines) {
          const milli = floorToMilli(line.time);
          if (edge === undefined || ahead(edge, milli)) break;
          end++;
        }
        ready = ready.concat(head.lines.slice(0, end));
        head.lines = head.lines.slice(end);
      }
      if (ready.length > 0) yield sortLines(ready, order);
    }
  } finally {
    await Promise.allSettled(streams.map((stream) => stream.return(undefined)));
  }
}

/** Batches hold whole milliseconds, so one that is within the limit needs no look. */
export async function* limitTies(
  batches: AsyncIterable<readonly LogLine[]>,
  limit: number,
): AsyncGenerator<readonly LogLine[]> {
  for await (const lines of batches) {
    if (lines.length > limit) {
      const ties = new Map<Instant, number>();
      for (const { time } of lines) {
        const milli = floorToMilli(time);
        ties.set(milli, (ties.get(milli) ?? 0) + 1);
      }
      if (Math.max(...ties.values()) > limit) throw tooManyTiesError(limit);
    }
    yield lines;
  }
}

export function tooManyTiesError(limit: number): Refused {
  const message = "One millisecond holds more lines than can be answered; narrow the query";
  return new Refused("result_too_large", message, { limit });
}
