// Which of the queries that are polled together holds up the others. Where a poll of several fails, or is much slower than before,
// one of them is read alone; if the source answers that as usual, it may be one of the others, and each is read alone until it has
// been answered. A source that is down is asked for one query only.
import { BackendError, LimitReached } from "../core/errors.ts";
import { fromMillis, type Instant, type Millis, minute } from "../core/time.ts";
import { maxSeparateQueries, type QueryAudience } from "./audience.ts";
import { pollInterval } from "./poll-timing.ts";

/**
 * Queries that have failed together twice within so long are read alone for as long. Why they are slow together is looked for once
 * within it: a source that is slow itself must not be asked for more.
 */
const separationTime: Millis = 5 * minute;

/** When a poll began, and how long it took. */
export interface Poll {
  readonly begun: Instant;
  readonly duration: Millis;
}

/** What is known of the polls of several queries. */
export interface PollHistory {
  /** How long the last one took, but for those that were much slower than that. */
  usualDuration: Millis;
  /** How many of these there have been since. */
  slowPolls: number;
  /** When queries that failed or were slow together were last told apart. */
  lastSeparation: Instant | undefined;
}

export function createPollHistory(): PollHistory {
  return { usualDuration: 0, slowPolls: 0, lastSeparation: undefined };
}

export function isMuchSlower(duration: Millis, other: Millis): boolean {
  return duration > Math.max(pollInterval, 2 * other);
}

/** Whether the source may fail for one of the queries alone. A limit of our own is no failure of the source. */
export function isCausedByOne(error: unknown, together: readonly QueryAudience[]): boolean {
  if (!(error instanceof BackendError) || error instanceof LimitReached) return false;
  return !isDown(error) && isReadAsSeveral(together);
}

export function isReadAsSeveral({ length }: readonly QueryAudience[]): boolean {
  return length > 1 && length <= maxSeparateQueries;
}

export function isDown(error: unknown): boolean {
  return error instanceof BackendError && ["unreachable", "denied"].includes(error.failure);
}

/**
 * Returns how long the poll of all took if one of them may have held it up: where it is the second in a row that is much slower than
 * before. One of the whole lateness window may take longer.
 */
export function findSlowness(
  history: PollHistory,
  together: readonly QueryAudience[],
  { begun, duration }: Poll,
): Millis | undefined {
  const isSlow =
    isMuchSlower(duration, history.usualDuration) &&
    isReadAsSeveral(together) &&
    !isSeparated(history, begun);
  if (!isSlow) history.usualDuration = duration;
  history.slowPolls = isSlow ? history.slowPolls + 1 : 0;
  return history.slowPolls > 1 ? duration : undefined;
}

function isSeparated({ lastSeparation }: PollHistory, at: Instant): boolean {
  return lastSeparation !== undefined && at - lastSeparation < fromMillis(separationTime);
}

/** What a poll of one query says of it and the others. */
interface Separation {
  /** The doubt that is left. */
  readonly doubted: Millis | undefined;
  /** Those to be read alone, until then at least. */
  readonly audiences: readonly QueryAudience[];
  readonly aloneUntil: Instant;
}

/**
 * One of the queries was read alone, since it is in doubt which of them held up the poll of all, for as long as `doubted`. Tells
 * which of them are to be read alone.
 */
export function settleDoubt(
  history: PollHistory,
  doubted: Millis,
  { together, probed }: Readonly<Record<"together" | "probed", readonly QueryAudience[]>>,
  { begun, duration }: Poll,
): Separation {
  const isRepeated = isSeparated(history, begun);
  history.slowPolls = 0;
  if (isMuchSlower(doubted, duration)) {
    history.lastSeparation = begun;
    // What fails together again and again is kept apart for longer.
    const isLong = isRepeated && doubted === Number.POSITIVE_INFINITY;
    return {
      doubted: undefined,
      audiences: together.filter((audience) => !probed.includes(audience)),
      aloneUntil: isLong ? ((begun + fromMillis(separationTime)) as Instant) : begun,
    };
  }
  // A second one that is as slow alone as all are together: the source is slow for each.
  if (isRepeated) {
    history.usualDuration = duration;
    return { doubted: undefined, audiences: [], aloneUntil: begun };
  }
  history.lastSeparation = begun;
  return { doubted, audiences: probed, aloneUntil: begun };
}
