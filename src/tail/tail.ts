// One live tail, from its first reading to its last event. It reads by itself what lies behind, with back-pressure, until
// it is close to now, and is an export for so long; then it listens to the poller of its sources. A line is sent once in
// each connection: the poller gives it once to each tail, and what the tail's own reading has sent is remembered until the poller
// cannot meet it again.
//
// What is sent is bounded, in characters that wait for the client: a tail that passes the bound is ended, and its
// client may come back with the last id, at its own pace.

import { noteClientRequest } from "../core/async/concurrency.ts";
import { createReadProgress } from "../core/async/read-progress.ts";
import { Unprocessable } from "../core/errors.ts";
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
import type { StreamedBody } from "../http/body.ts";
import type { Filter } from "../log-query/ast.ts";
import { countLineChars, maxChunkChars } from "../operations/logs/lines.ts";
import { describeFailure } from "../operations/runtime/error-response.ts";
import type { Listener } from "./audience.ts";
import { computeRetryDelay } from "./poll-timing.ts";
import type { Listening, PollerOptions } from "./poller.ts";
import { logFailure, readLines } from "./read-lines.ts";
import { createRecentIds, type RecentIds } from "./recent-ids.ts";
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
  /** How many documents it may read of what lies far behind. */
  readonly exportLimit: number;
  /** A place among the exports that read at once. @throws {TooMany} {LimitReached} */
  readonly takePlace: () => () => void;
  /** When its token is worth nothing any more. */
  readonly expires: bigint | undefined;
  /** Aborted when the client leaves. */
  readonly clientGone: AbortSignal;
  /** Whose it is, as in `Principal`. */
  readonly account: string;
  /** Joins those who follow the same sources. */
  readonly listen: (listener: Listener) => Listening;
  /** Called once, when all is over; `isCut` when the last event was not taken. */
  readonly onClose: (isCut: boolean) => void;
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

/** One tail: where it is, what its client has been told, and how it ends. */
interface TailState {
  readonly options: TailOptions;
  readonly control: AbortController;
  readonly lateness: bigint;
  /** The first instant of the tail. */
  readonly start: Instant;
  readonly queue: ReturnType<typeof createSendQueue>;
  readonly begun: PromiseWithResolvers<void>;
  readonly finished: PromiseWithResolvers<void>;
  /** The first instant that is still open. */
  point: Instant;
  /** Older lines than this came too late if the tail's own reading did not find them. */
  floor: Instant;
  /** What was sent of the time that the poller may still read; undefined once the poller has passed all of it. */
  sent: RecentIds | undefined;
  /** Up to when this tail has read by itself, once it has. */
  joined: Instant | undefined;
  isFailing: boolean;
  hasBegun: boolean;
  /** The last event is queued; nothing more is sent. */
  hasEnded: boolean;
  isFinished: boolean;
  /** When something was last queued, and when the client last took something. */
  queuedAt: Instant;
  takenAt: Instant;
  leavePoller: (() => void) | undefined;
  readonly onClientGone: () => void;
}

/** Begins at once. What it has to send waits in `chunks`. */
export function startTail(options: TailOptions): Tail {
  const state = createTailState(options);
  const { control, queue, begun, finished, start } = state;
  const { signal } = control;
  // A caller that did not wait for the beginning has left.
  begun.promise.catch(() => {});
  // Also where nobody reads: whoever waits for the end of the tail must not wait for a reader.
  signal.addEventListener("abort", () => finishTail(state, true), { once: true });
  if (options.clientGone.aborted) queueMicrotask(state.onClientGone);
  else options.clientGone.addEventListener("abort", state.onClientGone, { once: true });
  queueText(state, printOpening(encodeEventId(start)));
  runTail(state).catch((error: unknown) => {
    if (error instanceof Unprocessable) refuseTail(state, error);
    else if (state.hasBegun) finishTail(state, true);
    else begun.reject(error);
  });
  const chunks: StreamedBody = {
    async next() {
      try {
        const next = await queue.next();
        state.takenAt = options.pollerOptions.now();
        if (next.done === true) finishTail(state, false);
        return next;
      } catch (error) {
        finishTail(state, true);
        throw error;
      }
    },
    cancel: async () => finishTail(state, false),
    signal,
  };
  return {
    chunks,
    started: begun.promise,
    closed: finished.promise,
    end: (end) => endTail(state, end),
    tick: () => tickTail(state),
  };
}

function createTailState(options: TailOptions): TailState {
  const { pollerOptions, from, resume } = options;
  const opened = pollerOptions.now();
  const isLive = startsLive(options);
  const start = isLive
    ? ((floorToMilli(opened) + nanosPerMilli) as Instant)
    : later(from ?? resume ?? opened, resume ?? from ?? opened);
  const control = new AbortController();
  noteClientRequest(control.signal, { account: options.account, progress: createReadProgress() });
  const state: TailState = {
    options,
    control,
    start,
    lateness: fromMillis(pollerOptions.lateness),
    queue: createSendQueue(start, control.signal),
    begun: Promise.withResolvers(),
    finished: Promise.withResolvers(),
    point: start,
    floor: start,
    sent: createRecentIds(pollerOptions.seenLimit),
    joined: isLive ? opened : undefined,
    isFailing: false,
    hasBegun: false,
    hasEnded: false,
    isFinished: false,
    queuedAt: opened,
    takenAt: opened,
    leavePoller: undefined,
    onClientGone: () => finishTail(state, false),
  };
  return state;
}

/** Nothing of what it follows lies in the past, so it need not read by itself. */
function startsLive({ from, resume }: TailOptions): boolean {
  return from === undefined && resume === undefined;
}

// ---- What the client is sent --------------------------------------------------------------------------------

function queueText(state: TailState, text: string): void {
  state.queuedAt = state.options.pollerOptions.now();
  if (state.queue.countWaiting() === 0) state.takenAt = state.queuedAt;
  state.queue.push(text, state.point);
}

function beginTail(state: TailState): void {
  if (!state.hasBegun) state.takenAt = state.options.pollerOptions.now();
  state.hasBegun = true;
  state.begun.resolve();
}

/** Queues the last event, and cuts the client off if it does not take that. */
function endTail(state: TailState, end: TailEnd): void {
  if (state.hasEnded) return;
  state.hasEnded = true;
  state.leavePoller?.();
  const { queue, control, options } = state;
  queue.end(printEnd(end, encodeEventId(queue.findResumePoint())));
  beginTail(state);
  void options.pollerOptions
    .pause(finalEventTimeout, control.signal)
    .then(() => control.abort(new Error("the last event was not taken")));
}

function finishTail(state: TailState, isCut: boolean): void {
  if (state.isFinished) return;
  state.isFinished = true;
  state.hasEnded = true;
  state.leavePoller?.();
  const { options, control, begun, finished } = state;
  options.clientGone.removeEventListener("abort", state.onClientGone);
  control.abort(new Error("the tail is over"));
  begun.reject(control.signal.reason);
  finished.resolve();
  options.onClose(isCut);
}

function reportFailure(state: TailState, error: unknown, rest: Millis): void {
  state.isFailing = true;
  queueText(state, printRetry(describeFailure(error).body.error, rest));
}

function refuseTail(state: TailState, error: Unprocessable): void {
  if (state.hasBegun) endTail(state, { reason: "refused", error });
  else state.begun.reject(error);
}

/** The source has answered: the tail begins, or goes on after a failure. */
function reportSuccess(state: TailState): void {
  beginTail(state);
  if (!state.isFailing) return;
  state.isFailing = false;
  queueText(state, resumedEvent);
}

/** Ends a tail whose token has expired or whose client is slow; sends a heartbeat where it is quiet. */
function tickTail(state: TailState): void {
  // Nobody reads before the answer has begun.
  if (!state.hasBegun) return;
  const { expires, pollerOptions } = state.options;
  const at = pollerOptions.now();
  if (expires !== undefined && expires <= at) {
    endTail(state, { reason: "expired" });
    return;
  }
  // A clock that is put back must not keep the tail silent.
  state.queuedAt = earlier(state.queuedAt, at);
  state.takenAt = earlier(state.takenAt, at);
  if (state.queue.countWaiting() > 0) {
    if (at - state.takenAt > fromMillis(slowClientTimeout)) endTail(state, { reason: "slow" });
  } else if (at - state.queuedAt >= fromMillis(heartbeatInterval)) {
    queueText(state, printHeartbeat(encodeEventId(state.point)));
  }
}

// ---- Reading ------------------------------------------------------------------------------------------------

async function runTail(state: TailState): Promise<void> {
  const { to, pollerOptions } = state.options;
  if (startsLive(state.options)) {
    await joinPoller(state);
    return reportSuccess(state);
  }
  const endIfComplete = () => {
    if (to !== undefined && state.point > to) endTail(state, { reason: "complete" });
  };
  const isExport = isExportedFirst(state);
  const leavePlace = isExport ? state.options.takePlace() : undefined;
  try {
    // Far behind, a tail reads by itself, so that no other waits for it. Near to now it joins the others.
    while (!state.hasEnded && pollerOptions.now() - state.point > 2n * state.lateness) {
      await catchUp(state, isExport ? state.options.exportLimit : undefined);
      state.joined = undefined;
      endIfComplete();
    }
  } finally {
    leavePlace?.();
  }
  if (state.hasEnded) return;
  // The tail's own reading shows how the sources do.
  joinPoller(state).catch(() => {});
  await catchUp(state, undefined);
  endIfComplete();
}

/** Further behind than the last id of a client that was just cut, which may be as old as a heartbeat. */
function isExportedFirst({ point, lateness, options }: TailState): boolean {
  return options.pollerOptions.now() - point > 2n * lateness + fromMillis(heartbeatInterval);
}

/** Reads up to now until that succeeds. @throws {Refused} where more documents than `exportLimit` would be read */
async function catchUp(state: TailState, exportLimit: number | undefined): Promise<void> {
  const { log, pause } = state.options.pollerOptions;
  const { signal } = state.control;
  for (let failures = 0; !state.hasEnded; failures += 1) {
    try {
      return await readUpToNow(state, exportLimit);
    } catch (error) {
      if (signal.aborted) throw error;
      // Before the first answer a failure is the answer.
      if (error instanceof Unprocessable || !state.hasBegun) throw error;
      const rest = computeRetryDelay(failures);
      logFailure(log, error, rest);
      reportFailure(state, error, rest);
      await pause(rest, signal);
    }
  }
}

/** Reads from the open instant to now, by time, and as fast as the client takes it. */
async function readUpToNow(state: TailState, exportLimit: number | undefined): Promise<void> {
  const { control, options } = state;
  const { pollerOptions, filter, to } = options;
  const at = pollerOptions.now();
  state.floor = (at - state.lateness) as Instant;
  const range = { from: earlier(state.point, at), to: to === undefined ? at : earlier(to, at) };
  if (range.from <= range.to) {
    // Also before there is a line: a client that waits for few lines among many documents gets an answer and heartbeats.
    const reading = { heard: () => reportSuccess(state), exportLimit };
    for await (const batch of readLines(pollerOptions, filter, range, control.signal, reading)) {
      for (const lines of splitByMillisecond(batch)) {
        if (state.hasEnded) return;
        await sendOwnLines(state, lines);
      }
    }
  }
  reportSuccess(state);
  advancePoint(state, state.floor);
  state.sent?.forget(state.floor);
  state.joined = at;
}

async function sendOwnLines(state: TailState, lines: readonly LogLine[]): Promise<void> {
  reportSuccess(state);
  const fresh = lines.filter((line) => isInRange(state, line) && isNewLine(state, line));
  if (fresh.length > 0) queueText(state, printLines(fresh, encodeEventId(state.point)));
  const last = lines.at(-1);
  if (last !== undefined) {
    advancePoint(state, earlier((floorToMilli(last.time) + nanosPerMilli) as Instant, state.floor));
  }
  await state.queue.waitUntilEmpty();
}

function advancePoint(state: TailState, to: Instant): void {
  state.point = later(state.point, to);
}

function isInRange({ start, options: { to } }: TailState, { time }: LogLine): boolean {
  return time >= start && (to === undefined || time <= to);
}

function isNewLine({ sent, floor, joined }: TailState, line: LogLine): boolean {
  if (sent === undefined) return true;
  const known = line.time < floor || joined !== undefined ? sent.find(line) : sent.remember(line, 0);
  return known === undefined;
}

/** Sends what the poller has read; a client that is too far behind is told so. */
function sendPolledLines(state: TailState, lines: readonly LogLine[]): void {
  const own = lines.filter(
    (line) => isInRange(state, line) && line.time >= state.floor && isNewLine(state, line),
  );
  if (own.length === 0) return;
  // The same array where nothing was left out: its text is shared between tails.
  const text = printLines(own.length === lines.length ? lines : own, encodeEventId(state.point));
  const waiting = state.queue.countWaiting();
  if (waiting > 0 && waiting + text.length > maxWaitingChars) endTail(state, { reason: "slow" });
  else queueText(state, text);
}

function joinPoller(state: TailState): Promise<void> {
  const { filter, to, listen } = state.options;
  const joining = listen({
    filter,
    onLines(lines) {
      try {
        sendPolledLines(state, lines);
      } catch (error) {
        if (!(error instanceof Unprocessable)) throw error;
        refuseTail(state, error);
      }
    },
    onClosed(closed) {
      if (state.isFailing) reportSuccess(state);
      if (state.joined === undefined) return;
      advancePoint(state, closed);
      if (closed > state.joined) state.sent = undefined;
      if (to !== undefined && closed > to) endTail(state, { reason: "complete" });
    },
    // Before the first answer the tail's own reading shows the failure.
    onFailure: (error, rest) => state.hasBegun && reportFailure(state, error, rest),
    onRefusal: (error) => refuseTail(state, error),
  });
  state.leavePoller = joining.leave;
  return joining.outcome;
}

/** Yields whole milliseconds, few at a time, so that a client that is cut off meanwhile has made progress. */
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
