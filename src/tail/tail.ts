// One live tail, from its first reading to its last event. It reads by itself what lies behind, with back-pressure, until
// it is close to now; then it listens to the poller of its sources. A line is sent once in each connection: the poller
// gives it once, and what the tail's own reading has sent is remembered until the poller cannot meet it again.
//
// What is sent is bounded, in characters that wait for the client: a tail that passes the bound is ended, and its
// client may come back with the last id, at its own pace.

import { BackendError, Unprocessable } from "../core/errors.ts";
import type { LogLine } from "../core/rows.ts";
import {
  earlier,
  floorToMilli,
  fromMillis,
  type Instant,
  later,
  type Millis,
  nanosPerMilli,
} from "../core/time.ts";
import type { StreamedBody } from "../http/response.ts";
import type { Filter } from "../log-query/ast.ts";
import { countLineChars, maxChunkChars } from "../operations/logs/lines.ts";
import { describeFailure } from "../operations/runtime/error-response.ts";
import { computeRetryDelay, type Listener, type PollerOptions, readLines } from "./poller.ts";
import { createRecentIds } from "./recent-ids.ts";
import { createSendQueue } from "./send-queue.ts";
import {
  encodeEventId,
  printEnd,
  printHeartbeat,
  printLines,
  printOpening,
  printRetry,
  resumedEvent,
  type TailEnd,
} from "./sse.ts";

/** Characters that may wait for a client. */
const maxWaitingChars = 1_048_576;
const heartbeatInterval: Millis = 15_000;
/** How long the last event may take, and how long a client may leave what waits untouched. */
const finalEventTimeout: Millis = 10_000;
const slowClientTimeout: Millis = 60_000;

interface TailOptions {
  readonly pollerOptions: PollerOptions;
  readonly filter: Filter;
  /** Absent: from now on. */
  readonly from: Instant | undefined;
  /** Absent: without end. */
  readonly to: Instant | undefined;
  /** The first instant that was open when the client was cut. */
  readonly resume: Instant | undefined;
  /** When its token is worth nothing any more. */
  readonly expires: bigint | undefined;
  /** Aborted when the client leaves. */
  readonly clientGone: AbortSignal;
  /** Joins those who follow the same sources. `outcome` is of the poller. */
  readonly listen: (listener: Listener) => { readonly leave: () => void; readonly outcome: Promise<void> };
  /** Called once, when all is over; `cut` when the last event was not taken. */
  readonly onClose: (cut: boolean) => void;
}

export interface Tail {
  readonly chunks: StreamedBody;
  /** Resolves once the sources have answered for the first time; rejects with what a page would. */
  readonly started: Promise<void>;
  readonly closed: Promise<void>;
  /** Tells the client why, and is over when it has been told. */
  readonly end: (end: TailEnd) => void;
  /** To be called every second or so. */
  readonly tick: () => void;
}

/** Begins at once; what it has to say waits in `chunks`. */
export function startTail({
  pollerOptions: reading,
  filter,
  from,
  to,
  resume,
  expires,
  clientGone: gone,
  listen,
  onClose: over,
}: TailOptions): Tail {
  const { now, pause, log } = reading;
  const lateness = fromMillis(reading.lateness);
  const control = new AbortController();
  const { signal } = control;
  const opened = now();
  /** Of what it wants nothing lies behind: it need not read by itself. */
  const fresh = from === undefined && resume === undefined;
  const start = fresh
    ? ((floorToMilli(opened) + nanosPerMilli) as Instant)
    : later(from ?? resume ?? opened, resume ?? from ?? opened);
  const outbox = createSendQueue(start, signal);
  /** The first instant that is still open. */
  let point = start;
  const advance = (to: Instant) => {
    point = later(point, to);
  };
  /** Older lines than this have come too late when the tail's own reading did not find them. */
  let floor = start;
  /** What was sent of the time that the poller can still meet; absent once it has passed all that was read here. */
  let sent: ReturnType<typeof createRecentIds> | undefined = createRecentIds(reading.seenLimit);
  /** Until when this tail has read by itself, once it has. */
  let joined: Instant | undefined = fresh ? opened : undefined;
  let failing = false;
  let said = opened;
  let taken = opened;
  let ended = false;
  let hasBegun = false;
  let leavePoller: (() => void) | undefined;
  const begun = Promise.withResolvers<void>();
  const finished = Promise.withResolvers<void>();
  // Whoever was not told of its beginning has left.
  begun.promise.catch(() => {});
  const begin = () => {
    if (!hasBegun) taken = now();
    hasBegun = true;
    begun.resolve();
  };

  const say = (text: string) => {
    said = now();
    if (outbox.countWaiting() === 0) taken = said;
    outbox.push(text, point);
  };

  function end(end: TailEnd): void {
    if (ended) return;
    ended = true;
    leavePoller?.();
    outbox.end(printEnd(end, encodeEventId(outbox.findResumePoint())));
    begin();
    void pause(finalEventTimeout, signal).then(() =>
      control.abort(new Error("the last event was not taken")),
    );
  }

  let isOver = false;
  function finish(cut: boolean): void {
    if (isOver) return;
    isOver = true;
    ended = true;
    leavePoller?.();
    gone.removeEventListener("abort", leave);
    control.abort(new Error("the tail is over"));
    begun.reject(signal.reason);
    finished.resolve();
    over(cut);
  }
  // Also where nobody reads: whoever waits for its end must not wait for that.
  signal.addEventListener("abort", () => finish(true), { once: true });
  const leave = () => finish(false);
  if (gone.aborted) queueMicrotask(leave);
  else gone.addEventListener("abort", leave, { once: true });

  const inRange = ({ time }: LogLine) => time >= start && (to === undefined || time <= to);

  function failed(error: unknown, rest: Millis): void {
    failing = true;
    const { body } = describeFailure(error);
    say(printRetry(body.error, rest));
  }
  function refused(error: Unprocessable): void {
    if (hasBegun) end({ reason: "refused", error });
    else begun.reject(error);
  }
  function works(): void {
    begin();
    if (!failing) return;
    failing = false;
    say(resumedEvent);
  }

  /** Reads `[from, now]` by itself, by time and as fast as the client takes it. */
  async function readBehind(): Promise<void> {
    const at = now();
    floor = (at - lateness) as Instant;
    const range = { from: earlier(point, at), to: to === undefined ? at : earlier(to, at) };
    if (range.from <= range.to) {
      // Also before there is a line: whoever waits for few lines among many documents has an answer, and its heartbeat.
      for await (const batch of readLines(reading, filter, range, signal, works)) {
        for (const lines of splitByMillisecond(batch)) {
          if (ended) return;
          works();
          const fresh = lines.filter((line) => inRange(line) && isNew(line));
          if (fresh.length > 0) say(printLines(fresh, encodeEventId(point)));
          const last = lines.at(-1);
          if (last !== undefined) {
            advance(earlier((floorToMilli(last.time) + nanosPerMilli) as Instant, floor));
          }
          await outbox.waitUntilEmpty();
        }
      }
    }
    works();
    advance(floor);
    sent?.forget(floor);
    joined = at;
  }

  /** The same until it succeeds. */
  async function catchUp(): Promise<void> {
    for (let failures = 0; !ended; failures += 1) {
      try {
        return await readBehind();
      } catch (error) {
        if (signal.aborted) throw error;
        // Before the first answer a failure is the answer.
        if (error instanceof Unprocessable || !hasBegun) throw error;
        const rest = computeRetryDelay(failures);
        const level = error instanceof BackendError ? "warn" : "error";
        log({ level, message: "tail: reading failed", err: error, rest });
        failed(error, rest);
        await pause(rest, signal);
      }
    }
  }
  function isNew(line: LogLine): boolean {
    if (sent === undefined) return true;
    return line.time < floor || joined !== undefined ? !sent.has(line) : sent.add(line);
  }

  function deliver(lines: readonly LogLine[]): void {
    const wanted = lines.filter((line) => inRange(line) && line.time >= floor && isNew(line));
    if (wanted.length === 0) return;
    // The same array again, where nothing was left out: its text is shared.
    const text = printLines(wanted.length === lines.length ? lines : wanted, encodeEventId(point));
    if (outbox.countWaiting() > 0 && outbox.countWaiting() + text.length > maxWaitingChars)
      end({ reason: "slow" });
    else say(text);
  }

  function join(): Promise<void> {
    const joining = listen({
      filter,
      onLines(lines) {
        try {
          deliver(lines);
        } catch (error) {
          if (!(error instanceof Unprocessable)) throw error;
          refused(error);
        }
      },
      onClosed(closed) {
        if (failing) works();
        if (joined === undefined) return;
        advance(closed);
        if (closed > joined) sent = undefined;
        if (to !== undefined && closed > to) end({ reason: "complete" });
      },
      // Before the first answer the tail's own reading tells.
      onFailure: (error, rest) => hasBegun && failed(error, rest),
      onRefusal: refused,
    });
    leavePoller = joining.leave;
    return joining.outcome;
  }

  async function run(): Promise<void> {
    if (fresh) {
      await join();
      return works();
    }
    // Far behind it reads alone, so that nothing waits for it meanwhile; near to now it joins the others.
    while (!ended && now() - point > 2n * lateness) {
      await catchUp();
      joined = undefined;
      if (to !== undefined && point > to) end({ reason: "complete" });
    }
    if (ended) return;
    // Its own reading tells how the sources do.
    join().catch(() => {});
    await catchUp();
    if (to !== undefined && point > to) end({ reason: "complete" });
  }

  say(printOpening(encodeEventId(start)));
  run().catch((error: unknown) => {
    if (error instanceof Unprocessable) refused(error);
    else if (hasBegun) finish(true);
    else begun.reject(error);
  });

  const chunks: StreamedBody = {
    async next() {
      try {
        const next = await outbox.next();
        taken = now();
        if (next.done === true) finish(false);
        return next;
      } catch (error) {
        finish(true);
        throw error;
      }
    },
    cancel: async () => finish(false),
    signal,
  };
  const tick = () => {
    // Nobody reads before the answer has begun.
    if (!hasBegun) return;
    const at = now();
    if (expires !== undefined && expires <= at) return end({ reason: "expired" });
    // A clock that is put back must not keep it silent.
    [said, taken] = [earlier(said, at), earlier(taken, at)];
    if (outbox.countWaiting() > 0) {
      if (at - taken > fromMillis(slowClientTimeout)) end({ reason: "slow" });
    } else if (at - said >= fromMillis(heartbeatInterval)) say(printHeartbeat(encodeEventId(point)));
  };
  return { chunks, started: begun.promise, closed: finished.promise, end, tick };
}

/** Whole milliseconds, few enough at a time that whoever is cut while large ones are sent has got on. */
function* splitByMillisecond(lines: readonly LogLine[]): Generator<readonly LogLine[]> {
  let first = 0;
  let weight = 0;
  for (const [at, line] of lines.entries()) {
    const before = lines[at - 1] ?? line;
    if (weight >= maxChunkChars && floorToMilli(before.time) !== floorToMilli(line.time)) {
      yield lines.slice(first, at);
      first = at;
      weight = 0;
    }
    weight += countLineChars(line);
  }
  yield first === 0 ? lines : lines.slice(first);
}
