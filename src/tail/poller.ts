// Polls one source for all live tails that follow it. A poll asks for what any of their queries matches and delivers each
// line once to each tail whose query it satisfies, so 500 tails cost a source no more than one.
//
// Lines become visible later than their own time: shippers buffer, indices refresh. So each poll reads some seconds again,
// and from time to time the whole lateness window. A poll that is refused is repeated query by query, and what has been
// delivered is remembered for each query, so that only those tails are refused whose own query cannot be answered.
import { createHash } from "node:crypto";
import { BackendError, Unprocessable } from "../core/errors.ts";
import type { LogLine } from "../core/rows.ts";
import { fromMillis, type Instant, later, type Millis, nanosPerMilli, type TimeRange } from "../core/time.ts";
import { createPause } from "../core/turns.ts";
import { type Filter, listComparisons } from "../log-query/ast.ts";
import { type Body, openBody } from "../log-query/json-body.ts";
import { compileFilter } from "../log-query/matches.ts";
import { type ExportQuery, limitExport } from "../operations/logs/lines.ts";
import { type RequestLifetime, startRequest } from "../operations/runtime/lifetime.ts";
import type { LogEvent } from "../store/backend.ts";
import type { LogQuery, LogSource, LogStore } from "../store/logs.ts";
import { createRecentIds, type RecentIds } from "./recent-ids.ts";

export const pollInterval: Millis = 1_000;
/** How far each poll reads back at least. */
const recentWindow: Millis = 10_000;
const maxRetryDelay: Millis = 30_000;
/** The pause after so many failures in a row: doubled each time. */
export function computeRetryDelay(failures: number): Millis {
  return Math.min(pollInterval * 2 ** failures, maxRetryDelay);
}
/** With more different queries than these, all lines are read: a larger query costs the index more than it saves. */
const maxSeparateQueries = 32;

export interface Listener {
  readonly filter: Filter;
  /** Lines that satisfy the filter, by time; never one twice. */
  readonly onLines: (lines: readonly LogLine[]) => void;
  /** A poll has succeeded: every line before `closed` that came in time has been delivered. */
  readonly onClosed: (closed: Instant) => void;
  /** A poll failed; the next one is after `rest`. */
  readonly onFailure: (error: unknown, rest: Millis) => void;
  /** No poll of its query can succeed; nothing more is delivered. */
  readonly onRefusal: (error: Unprocessable) => void;
}

export interface Poller {
  /** Delivers lines that become visible from now on, and maybe some that the listener knows. Returns what removes it. */
  readonly listen: (listener: Listener) => () => void;
  /** Resolves when the last poll, or the first one where none has ended, succeeded. Rejects with its failure. */
  readonly awaitOutcome: () => Promise<void>;
  readonly isIdle: () => boolean;
}

export interface PollerOptions {
  readonly store: LogStore;
  readonly sources: readonly [LogSource, ...LogSource[]];
  /** Of each batch of a poll. */
  readonly deadline: Millis;
  readonly lateness: Millis;
  readonly tieLimit: number;
  /** How many lines are remembered for each query. */
  readonly seenLimit: number;
  readonly now: () => Instant;
  /** Resolves after so long, or at once when the signal aborts. */
  readonly pause: (length: Millis, signal: AbortSignal) => Promise<void>;
  readonly log: (event: LogEvent) => void;
}

/** A hint to the store: one search answers a usual poll. */
const expectedLinesHint = 10_000;

interface ReadOptions {
  /** Called whenever the store makes progress. */
  readonly heard?: () => void;
  /** How many documents may be read, as for an export. Absent: a tail reads for ever, and one poll runs at a time. */
  readonly exportLimit?: number | undefined;
}

/**
 * Yields batches of lines by time. The deadline counts for each batch.
 * @throws {Unprocessable} {BackendError}
 */
export async function* readLines(
  { store, sources, deadline, tieLimit }: PollerOptions,
  filter: Filter,
  range: TimeRange,
  signal: AbortSignal,
  { heard, exportLimit }: ReadOptions = {},
): AsyncGenerator<readonly LogLine[]> {
  const leaving = new AbortController();
  const limited = AbortSignal.any([signal, leaving.signal]);
  let step: RequestLifetime | undefined;
  const progressed = () => {
    step?.reportProgress();
    heard?.();
  };
  const waitForStep = <T>(promise: Promise<T>): Promise<T> => {
    step = startRequest(limited, deadline);
    return step.wait(promise).finally(step.end);
  };
  const all: ExportQuery = { sources, range, filter, order: "asc", tieLimit, progressed };
  let rows: AsyncIterator<readonly LogLine[]> | undefined;
  try {
    const query: LogQuery =
      exportLimit === undefined
        ? { ...all, expectedLines: expectedLinesHint, documentLimit: Number.MAX_SAFE_INTEGER }
        : await waitForStep(limitExport(store, all, exportLimit, limited));
    rows = store.lines(query, limited)[Symbol.asyncIterator]();
    for (;;) {
      const next = await waitForStep(rows.next());
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    leaving.abort(new Error("the reader has stopped"));
    rows?.return?.()?.catch(() => {});
  }
}

/** Listeners of one query. */
interface QueryAudience {
  readonly key: string;
  readonly filter: Filter;
  /** How many its filter has. */
  readonly comparisons: number;
  readonly matches: (line: LogLine, body: Body) => boolean;
  readonly listeners: Set<Listener>;
  /** What has been delivered to them. */
  readonly seen: RecentIds;
  /** Why nothing more is read for them. */
  refusal: Unprocessable | undefined;
}

/** A poller and those who listen to it. */
interface PollerState {
  readonly options: PollerOptions;
  readonly audiences: Map<string, QueryAudience>;
  /** Stops the polls under way; undefined while nobody listens. */
  leaving: AbortController | undefined;
  /** Of the next poll. */
  outcome: PromiseWithResolvers<void>;
}

export function createPoller(options: PollerOptions): Poller {
  const state: PollerState = {
    options,
    audiences: new Map(),
    leaving: undefined,
    outcome: Promise.withResolvers(),
  };
  return {
    listen: (listener) => addListener(state, listener),
    awaitOutcome: () => state.outcome.promise,
    isIdle: () => state.audiences.size === 0,
  };
}

/** Returns what removes the listener again. The first one starts the polls, the last one ends them. */
function addListener(state: PollerState, listener: Listener): () => void {
  const { audiences } = state;
  const { filter } = listener;
  const key = digestFilter(filter);
  const audience: QueryAudience = audiences.get(key) ?? {
    ...{ key, filter, comparisons: listComparisons(filter).length, matches: compileFilter(filter) },
    listeners: new Set(),
    ...{ seen: createRecentIds(state.options.seenLimit), refusal: undefined },
  };
  audiences.set(key, audience);
  audience.listeners.add(listener);
  if (state.leaving === undefined) {
    state.leaving = new AbortController();
    renewOutcome(state);
    void pollUntilAborted(state, state.leaving.signal);
  }
  return () => {
    if (audience.listeners.delete(listener) && audience.listeners.size === 0) removeAudience(state, audience);
  };
}

/** Equal for filters that mean the same comparisons: a long query is not held once more as a key. */
function digestFilter(filter: Filter): string {
  const text = JSON.stringify(filter, (name, value) => (name === "span" ? undefined : value));
  return createHash("sha256").update(text).digest("base64url");
}

/** Later listeners of its query are another one, and start a new poll where nobody else listens. */
function removeAudience(state: PollerState, { key }: QueryAudience): void {
  state.audiences.delete(key);
  if (state.audiences.size > 0) return;
  state.leaving?.abort(new Error("no listeners left"));
  state.leaving = undefined;
}

function renewOutcome(state: PollerState): void {
  state.outcome = Promise.withResolvers();
  state.outcome.promise.catch(() => {});
}

/** Settles the outcome that is awaited, and replaces one that is known. */
function settleOutcome(state: PollerState, error?: unknown): void {
  const pending = state.outcome;
  renewOutcome(state);
  for (const { resolve, reject } of [pending, state.outcome]) error === undefined ? resolve() : reject(error);
}

/** What has been read so far. */
interface PollProgress {
  /** When the last poll of the whole lateness window began. */
  complete: Instant;
  /** When the last poll of any range began. */
  last: Instant;
  failures: number;
  /** What need not be matched again, as far as there is room: a line that is missing here costs time and nothing else. */
  readonly matched: RecentIds;
}

async function pollUntilAborted(state: PollerState, signal: AbortSignal): Promise<void> {
  const { now, pause, seenLimit } = state.options;
  const began = now();
  const matched = createRecentIds(seenLimit);
  const progress: PollProgress = { complete: began, last: began, failures: 0, matched };
  while (!signal.aborted) {
    // A clock that is put back must not move the lower bound.
    const begun = later(now(), progress.last);
    try {
      await pollOnce(state, progress, begun, signal);
      // Below 0 while the clock has been put back.
      const spent = Math.max(0, Number((now() - begun) / nanosPerMilli));
      await pause(Math.max(pollInterval - spent, pollInterval / 5), signal);
    } catch (error) {
      if (signal.aborted) return;
      settleOutcome(state, error);
      await pauseAfterFailure(state, progress, error, signal);
    }
  }
}

/** Polls the range that may have new lines: the lateness window from time to time, else the recent part of it. */
async function pollOnce(
  state: PollerState,
  progress: PollProgress,
  begun: Instant,
  signal: AbortSignal,
): Promise<void> {
  const lateness = fromMillis(state.options.lateness);
  const isComplete = begun - progress.complete >= lateness / 4n;
  const oldest = (progress.complete - lateness) as Instant;
  const recent = (progress.last - fromMillis(recentWindow)) as Instant;
  const from = isComplete ? oldest : later(recent, oldest);
  await readForAudiences(state, progress, [...state.audiences.values()], { from, to: begun }, signal);
  // All may have been refused.
  signal.throwIfAborted();
  progress.last = begun;
  settleOutcome(state);
  if (isComplete) {
    progress.complete = begun;
    const remembered = [progress.matched, ...[...state.audiences.values()].map(({ seen }) => seen)];
    for (const lines of remembered) lines.forget((begun - lateness) as Instant);
  }
  const closed = (progress.complete - lateness) as Instant;
  for (const listener of listListeners(state)) listener.onClosed(closed);
  progress.failures = 0;
}

async function pauseAfterFailure(
  state: PollerState,
  progress: PollProgress,
  error: unknown,
  signal: AbortSignal,
): Promise<void> {
  const rest = computeRetryDelay(progress.failures);
  progress.failures += 1;
  const level = error instanceof BackendError ? "warn" : "error";
  state.options.log({ level, message: "tail: reading failed", err: error, rest });
  for (const listener of listListeners(state)) listener.onFailure(error, rest);
  await state.options.pause(rest, signal);
}

/**
 * Reads once for the queries of all of these. Once one of them is refused, reads again for the others alone. If the source
 * refuses the reading, reads for each query alone and refuses only those that cannot be answered.
 */
async function readForAudiences(
  state: PollerState,
  progress: PollProgress,
  audiences: readonly QueryAudience[],
  range: TimeRange,
  signal: AbortSignal,
): Promise<void> {
  const readAgain = (others: readonly QueryAudience[]) =>
    readForAudiences(state, progress, others, range, signal);
  try {
    await readAndDeliver(state, progress, audiences, range, signal);
  } catch (error) {
    if (!(error instanceof Unprocessable)) throw error;
    const left = audiences.filter(({ refusal }) => refusal === undefined);
    const [first, ...more] = left;
    if (first === undefined) return;
    if (left.length < audiences.length) await readAgain(left);
    else if (more.length === 0) refuseAudience(state, first, error);
    else for (const audience of left) if (audience.listeners.size > 0) await readAgain([audience]);
  }
}

/** Stops where one of the audiences is refused: the rest may be what only its query matches. */
async function readAndDeliver(
  state: PollerState,
  progress: PollProgress,
  audiences: readonly QueryAudience[],
  range: TimeRange,
  signal: AbortSignal,
): Promise<void> {
  for await (const batch of readLines(state.options, combineFilters(audiences), range, signal)) {
    const lines = batch.filter((line) => !progress.matched.has(line));
    await deliverLines(state, lines, signal);
    for (const line of lines) if (!progress.matched.isFull()) progress.matched.add(line);
    for (const { refusal } of audiences) if (refusal !== undefined) throw refusal;
  }
}

function refuseAudience(state: PollerState, audience: QueryAudience, error: Unprocessable): void {
  const refused = [...audience.listeners];
  // They have left, and another audience may have their query by now.
  if (refused.length === 0) return;
  audience.refusal = error;
  audience.listeners.clear();
  removeAudience(state, audience);
  if (state.audiences.size === 0) settleOutcome(state, error);
  for (const listener of refused) listener.onRefusal(error);
}

/** Matches what any listener follows; all lines where there are too many queries. */
function combineFilters(audiences: readonly QueryAudience[]): Filter {
  const filters = audiences.map(({ filter }) => filter);
  const [first, second, ...rest] = filters;
  const isAll = filters.length > maxSeparateQueries || filters.some(({ kind }) => kind === "all");
  if (first === undefined || isAll) return { kind: "all" };
  if (second === undefined) return first;
  return { kind: "or", operands: [first, second, ...rest], span: { start: 0, end: 0 } };
}

/**
 * To those who listen when it begins, the shortest queries first: they wait for no long one. Whoever comes later reads himself
 * what lies before. Those are refused whose query matches more lines than can be remembered. @throws the signal's reason
 */
async function deliverLines(
  state: PollerState,
  lines: readonly LogLine[],
  signal: AbortSignal,
): Promise<void> {
  if (lines.length === 0) return;
  const opened = lines.map((line) => ({ line, body: openBody(line.json) }));
  const pause = createPause(signal);
  const audiences = [...state.audiences.values()].sort((a, b) => a.comparisons - b.comparisons);
  for (const audience of audiences) {
    const { matches, listeners } = audience;
    const own: LogLine[] = [];
    for (const { line, body } of opened) {
      if (listeners.size === 0) break;
      if (matches(line, body) && addUnlessSeen(state, audience, line)) own.push(line);
      const paused = pause();
      if (paused !== undefined) await paused;
    }
    if (own.length > 0) for (const listener of listeners) listener.onLines(own);
  }
}

function addUnlessSeen(state: PollerState, audience: QueryAudience, line: LogLine): boolean {
  try {
    return audience.seen.add(line);
  } catch (error) {
    if (!(error instanceof Unprocessable)) throw error;
    refuseAudience(state, audience, error);
    return false;
  }
}

function listListeners({ audiences }: PollerState): readonly Listener[] {
  return [...audiences.values()].flatMap((audience) => [...audience.listeners]);
}
