// The order of lines: sorting, merging the streams of several searches, what is left of a range after a millisecond, and
// the limit on the lines of one millisecond.
import { requireLast } from "./collections.ts";
import { Refused } from "./errors.ts";
import { compareLines, type LogLine } from "./rows.ts";
import { earlier, endOfMilli, floorToMilli, type Instant, later, type TimeRange } from "./time.ts";

type Order = "asc" | "desc";

/** Sorts lines in place into the order of the contract: by time, source and id. */
export function sortLines(lines: LogLine[], order: Order): LogLine[] {
  // A search sorts by time; only lines of one instant may still be out of order.
  if (isStrictlyOrdered(lines, order)) return lines;
  return lines.sort(order === "asc" ? compareLines : compareBackwards);
}

function compareBackwards(a: LogLine, b: LogLine): number {
  return compareLines(b, a);
}

/** Whether the lines are in order by time, and no two times are equal. */
function isStrictlyOrdered(lines: readonly LogLine[], order: Order): boolean {
  let before: LogLine | undefined;
  for (const line of lines) {
    if (before !== undefined && !(order === "asc" ? before.time < line.time : before.time > line.time))
      return false;
    before = line;
  }
  return true;
}

/**
 * What is left of a range once everything up to a millisecond (in the order) is read. `includesMilli` says whether that
 * millisecond is still to be read. Undefined when nothing is left.
 */
export function computeRest(
  milli: Instant,
  { from, to }: TimeRange,
  order: Order,
  includesMilli: boolean,
): TimeRange | undefined {
  const end = endOfMilli(milli);
  const rest: TimeRange =
    order === "asc"
      ? { from: includesMilli ? later(from, milli) : ((end + 1n) as Instant), to }
      : { from, to: includesMilli ? earlier(to, end) : ((milli - 1n) as Instant) };
  return rest.from > rest.to ? undefined : rest;
}

/** A stream, and the lines that it has yielded and the merge has not. */
interface StreamHead {
  readonly stream: AsyncGenerator<readonly LogLine[]>;
  lines: readonly LogLine[];
  isDone: boolean;
}

/**
 * Merges streams whose batches hold whole milliseconds. A stream is complete up to the last millisecond that it has yielded,
 * so the merge can yield everything up to the first of these. A single stream is returned as it is.
 */
export function mergeStreams(
  streams: readonly AsyncGenerator<readonly LogLine[]>[],
  order: Order,
): AsyncGenerator<readonly LogLine[]> {
  const [only] = streams;
  return only !== undefined && streams.length === 1 ? only : mergeSeveral(streams, order);
}

async function* mergeSeveral(
  streams: readonly AsyncGenerator<readonly LogLine[]>[],
  order: Order,
): AsyncGenerator<readonly LogLine[]> {
  const heads = streams.map((stream): StreamHead => ({ stream, lines: [], isDone: false }));
  try {
    for (;;) {
      await Promise.all(heads.map(fillHead));
      const open = heads.filter((head) => head.lines.length > 0);
      if (open.length === 0) return;
      const ready = takeReadyLines(open, order);
      if (ready.length > 0) yield sortLines(ready, order);
    }
  } finally {
    await Promise.allSettled(streams.map((stream) => stream.return(undefined)));
  }
}

/** Reads on after an empty batch, which does not say how far the stream is complete. */
async function fillHead(head: StreamHead): Promise<void> {
  while (!head.isDone && head.lines.length === 0) {
    const { value, done } = await head.stream.next();
    if (done === true) head.isDone = true;
    else head.lines = value;
  }
}

/** Takes the lines up to the first of the last milliseconds. Every head has lines. */
function takeReadyLines(heads: readonly StreamHead[], order: Order): LogLine[] {
  const isBefore = (a: Instant, b: Instant) => (order === "asc" ? a < b : a > b);
  const edge = heads
    .map(({ lines }) => floorToMilli(requireLast(lines).time))
    .reduce((first, milli) => (isBefore(milli, first) ? milli : first));
  let ready: LogLine[] = [];
  for (const head of heads) {
    const end = head.lines.findIndex(({ time }) => isBefore(edge, floorToMilli(time)));
    ready = ready.concat(end < 0 ? head.lines : head.lines.slice(0, end));
    head.lines = end < 0 ? [] : head.lines.slice(end);
  }
  return ready;
}

/**
 * Passes batches on. Batches hold whole milliseconds, so only one that is longer than the limit has to be counted.
 * @throws {Refused} where a millisecond holds more lines than the limit
 */
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
      if (Math.max(...ties.values()) > limit) throw createTooManyTiesError(limit);
    }
    yield lines;
  }
}

export function createTooManyTiesError(limit: number): Refused {
  const message = "One millisecond holds more lines than can be answered; narrow the query";
  return new Refused("result_too_large", message, { limit });
}
