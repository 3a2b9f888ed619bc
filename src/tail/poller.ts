// Polls one source for all live tails that follow it. A poll asks for what any of their queries matches and delivers each
// line once to each tail whose query it satisfies, so 500 tails cost a source no more than one.
//
// Lines become visible later than their own time: shippers buffer, indices refresh. So each poll reads some seconds again,
// and from time to time the whole lateness window. A poll that is refused is repeated query by query, and what has been
// delivered is remembered for each query, so that only those tails are refused whose own query cannot be answered.
//
// Copies of a shard show a line at different times: a poll may have found one that a tail, which joins only then, does not find
// itself. So whoever joins also gets what others were given before, when it is read again.
//
// A query that is slow at the source must not hold up the others. So each is read alone until it has been answered about as fast
// as they are, and again where they may be slow or fail because of it (`slow-queries.ts`).
import { createPause, runInTurnsOf, takeSteps } from "../core/async/turns.ts";
import { Unprocessable } from "../core/errors.ts";
import type { LogLine } from "../core/rows.ts";
import {
  earlier,
  fromMillis,
  type Instant,
  later,
  type Millis,
  nanosPerMilli,
  type TimeRange,
} from "../core/time.ts";
import { type Body, openBody } from "../log-query/json-body.ts";
import { startRequest } from "../operations/runtime/lifetime.ts";
import type { LogEvent } from "../store/backend.ts";
import type { AccountTurns } from "./account-turns.ts";
import {
  closeRange,
  combineFilters,
  createAudience,
  digestFilter,
  type Listener,
  type QueryAudience,
  settleOutcome,
} from "./audience.ts";
import { computePollPause, computeRetryDelay } from "./poll-timing.ts";
import { type LineSource, logFailure, readLines, sharedAccount } from "./read-lines.ts";
import { createRecentIds, type RecentIds } from "./recent-ids.ts";
import {
  createPollHistory,
  findSlowness,
  isCausedByOne,
  isDown,
  isMuchSlower,
  isReadAsSeveral,
  type Poll,
  type PollHistory,
  settleDoubt,
} from "./slow-queries.ts";

/** How far each poll reads back at least. */
const recentWindow: Millis = 10_000;

export interface Poller {
  /** Delivers lines that become visible from now on, and maybe some that the listener knows. */
  readonly listen: (listener: Listener, account: string) => Listening;
  readonly isIdle: () => boolean;
}

export interface Listening {
  readonly leave: () => void;
  /** Resolves when the last poll of its query, or the first one where none has ended, succeeded. Rejects with its failure. */
  readonly outcome: Promise<void>;
}

export interface PollerOptions extends LineSource {
  readonly lateness: Millis;
  /** How many lines are remembered for each query. */
  readonly seenLimit: number;
  readonly now: () => Instant;
  /** Resolves after so long, or at once when the signal aborts. */
  readonly pause: (length: Millis, signal: AbortSignal) => Promise<void>;
  /** How many queries of each account are read alone at once. */
  readonly turns: AccountTurns;
  readonly log: (event: LogEvent) => void;
}

/** A poller and those who listen to it. */
interface PollerState {
  readonly options: PollerOptions;
  readonly audiences: Map<string, QueryAudience>;
  /** How many have joined. */
  joined: number;
  /**
   * What need not be matched again for those who had joined by then, with how many these were. As far as there is room: a line that
   * is missing here costs time and nothing else.
   */
  readonly matched: RecentIds;
  /** Resolves when the batches read so far have been delivered. */
  delivering: Promise<void>;
  /** Stops the polls of several queries; undefined while nobody listens. */
  pollingTogether: AbortController | undefined;
  readonly history: PollHistory;
}

export function createPoller(options: PollerOptions): Poller {
  const state: PollerState = {
    options,
    audiences: new Map(),
    joined: 0,
    matched: createRecentIds(options.seenLimit),
    delivering: Promise.resolve(),
    pollingTogether: undefined,
    history: createPollHistory(),
  };
  return {
    listen: (listener, account) => addListener(state, listener, account),
    isIdle: () => state.audiences.size === 0,
  };
}

/** The first one starts the polls, the last one that leaves ends them. */
function addListener(state: PollerState, listener: Listener, account: string): Listening {
  const key = digestFilter(listener.filter);
  const audience = state.audiences.get(key) ?? addAudience(state, key, listener, account);
  state.joined += 1;
  audience.newest = state.joined;
  audience.listeners.set(listener, state.joined);
  return {
    leave: () => {
      if (audience.listeners.delete(listener) && audience.listeners.size === 0)
        removeAudience(state, audience);
    },
    outcome: audience.outcome.promise,
  };
}

function addAudience(state: PollerState, key: string, { filter }: Listener, account: string): QueryAudience {
  const { now, seenLimit } = state.options;
  const audience = createAudience({ key, filter, account, began: now(), seenLimit });
  state.audiences.set(key, audience);
  if (state.pollingTogether === undefined) {
    state.pollingTogether = new AbortController();
    const { signal } = state.pollingTogether;
    void runInTurnsOf(sharedAccount, () => pollTogether(state, signal));
  }
  startPollAlone(state, audience);
  return audience;
}

/** Later listeners of its query are another one, and start a new poll where nobody else listens. */
function removeAudience(state: PollerState, { key, left }: QueryAudience): void {
  state.audiences.delete(key);
  left.abort(new Error("no listeners left"));
  if (state.audiences.size > 0) return;
  state.pollingTogether?.abort(new Error("no listeners left"));
  state.pollingTogether = undefined;
}

/** Polls for one query until it may be read with others. */
function startPollAlone(state: PollerState, audience: QueryAudience): void {
  void runInTurnsOf(audience.account, () => pollAlone(state, audience));
}

async function pollAlone(state: PollerState, audience: QueryAudience): Promise<void> {
  const { pause, now } = state.options;
  const { signal } = audience.left;
  let failures = 0;
  while (audience.isAlone && !signal.aborted) {
    try {
      const endTurn = await takeTurn(state, audience);
      const { begun, duration } = await pollOnce(state, [audience], signal).finally(endTurn);
      failures = 0;
      if (begun >= audience.aloneUntil) joinOthers(state, audience, { begun, duration });
      if (audience.isAlone) await pause(computePollPause(duration), signal);
    } catch (error) {
      if (signal.aborted) return;
      await pauseAfterFailure(state, [audience], error, failures, signal);
      failures += 1;
      // Of a source that is down the others ask as well.
      if (isDown(error) && now() >= audience.aloneUntil) audience.isAlone = false;
    }
  }
}

/** Waits no longer than a poll may take: whoever opens the tail is told so, and whoever has it open that it is late. */
async function takeTurn({ options }: PollerState, { account, left }: QueryAudience): Promise<() => void> {
  const waiting = startRequest(left.signal, options.deadline);
  try {
    return await options.turns.take(account, waiting.signal);
  } finally {
    waiting.end();
  }
}

/** Where its poll took about as long as that of the others. If these are much slower, it is one of them that is. */
function joinOthers(state: PollerState, audience: QueryAudience, { begun, duration }: Poll): void {
  const { history } = state;
  const together = listTogether(state);
  if (together.length === 0) history.usualDuration = duration;
  if (isMuchSlower(duration, history.usualDuration)) return;
  if (isMuchSlower(history.usualDuration, duration)) separateAudiences(state, together, begun);
  else audience.isAlone = false;
}

function listTogether({ audiences }: PollerState): readonly QueryAudience[] {
  return [...audiences.values()].filter(({ isAlone }) => !isAlone);
}

/** Polls for all queries that are not read alone. */
async function pollTogether(state: PollerState, signal: AbortSignal): Promise<void> {
  const { history } = state;
  const { pause } = state.options;
  let failures = 0;
  // How long a poll took that one of the queries may have held up: without end, where it has failed.
  let doubted: Millis | undefined;
  while (!signal.aborted) {
    const together = listTogether(state);
    // Nothing is left that the one could be told apart from.
    if (!isReadAsSeveral(together)) doubted = undefined;
    const probed = doubted === undefined ? together : together.slice(failures % together.length).slice(0, 1);
    try {
      const poll = await pollOnce(state, probed, signal);
      if (doubted === undefined) doubted = findSlowness(history, together, poll);
      else {
        const separation = settleDoubt(history, doubted, { together, probed }, poll);
        separateAudiences(state, separation.audiences, separation.aloneUntil);
        doubted = separation.doubted;
      }
      failures = 0;
      await pause(computePollPause(poll.duration), signal);
    } catch (error) {
      if (signal.aborted) return;
      if (isCausedByOne(error, together)) doubted = Number.POSITIVE_INFINITY;
      await pauseAfterFailure(state, together, error, failures, signal);
      failures += 1;
    }
  }
}

/** Reads each alone, until then at least. */
function separateAudiences(
  state: PollerState,
  audiences: readonly QueryAudience[],
  aloneUntil: Instant,
): void {
  for (const audience of audiences) {
    if (audience.isAlone) continue;
    audience.isAlone = true;
    audience.aloneUntil = aloneUntil;
    startPollAlone(state, audience);
  }
}

/** Polls the range that may have new lines for these queries: the lateness window from time to time, else the recent part of it. */
async function pollOnce(
  state: PollerState,
  audiences: readonly QueryAudience[],
  signal: AbortSignal,
): Promise<Poll> {
  const { now } = state.options;
  const lateness = fromMillis(state.options.lateness);
  // A clock that is put back must not move the lower bound.
  const begun = audiences.reduce((at, { last }) => later(at, last), now());
  const lastWhole = audiences.reduce((at, audience) => earlier(at, audience.lastWhole), begun);
  const last = audiences.reduce((at, audience) => earlier(at, audience.last), begun);
  const isWholeWindow = begun - lastWhole >= lateness / 4n;
  const oldest = (lastWhole - lateness) as Instant;
  const recent = (last - fromMillis(recentWindow)) as Instant;
  const from = isWholeWindow ? oldest : later(recent, oldest);
  if (audiences.length > 0) await readForAudiences(state, audiences, { from, to: begun }, signal);
  // All may have been refused.
  signal.throwIfAborted();
  if (isWholeWindow) state.matched.forget((begun - lateness) as Instant);
  for (const audience of audiences) closeRange(audience, begun, isWholeWindow, lateness);
  // Below 0 while the clock has been put back.
  return { begun, duration: Math.max(0, Number((now() - begun) / nanosPerMilli)) };
}

async function pauseAfterFailure(
  state: PollerState,
  audiences: readonly QueryAudience[],
  error: unknown,
  failures: number,
  signal: AbortSignal,
): Promise<void> {
  const rest = computeRetryDelay(failures);
  logFailure(state.options.log, error, rest);
  for (const audience of audiences) {
    settleOutcome(audience, error);
    for (const listener of audience.listeners.keys()) listener.onFailure(error, rest);
  }
  await state.options.pause(rest, signal);
}

/**
 * Reads once for the queries of all of these. Once one of them is refused, reads again for the others alone. If the source
 * refuses the reading, reads for each query alone and refuses only those that cannot be answered.
 */
async function readForAudiences(
  state: PollerState,
  audiences: readonly QueryAudience[],
  range: TimeRange,
  signal: AbortSignal,
): Promise<void> {
  const readAgain = (others: readonly QueryAudience[]) => readForAudiences(state, others, range, signal);
  try {
    await readAndDeliver(state, audiences, range, signal);
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
  audiences: readonly QueryAudience[],
  range: TimeRange,
  signal: AbortSignal,
): Promise<void> {
  for await (const batch of readLines(state.options, combineFilters(audiences), range, signal)) {
    // One batch after the other: a range is not closed while what it holds is still being delivered for another reading.
    // It is for all who listen, whoever's reading found it.
    const delivering = state.delivering.then(() =>
      runInTurnsOf(sharedAccount, () => deliverLines(state, batch)),
    );
    state.delivering = delivering.catch(() => {});
    await delivering;
    for (const { refusal } of audiences) if (refusal !== undefined) throw refusal;
  }
}

function refuseAudience(state: PollerState, audience: QueryAudience, error: Unprocessable): void {
  const refused = [...audience.listeners.keys()];
  // They have left, and another audience may have their query by now.
  if (refused.length === 0) return;
  audience.refusal = error;
  audience.listeners.clear();
  removeAudience(state, audience);
  settleOutcome(audience, error);
  for (const listener of refused) listener.onRefusal(error);
}

/** A line that is to be matched, with how many had joined when it last was. */
interface OpenedLine {
  readonly line: LogLine;
  readonly body: Body;
  readonly matchedFor: number;
}

/** What is given to those who were among the first `joined`. */
interface Delivery {
  readonly lines: readonly OpenedLine[];
  readonly joined: number;
  /** Aborted when nobody listens any more. */
  readonly signal: AbortSignal | undefined;
}

/**
 * To those who listen when it begins, the shortest queries first: they wait for no long one. Whoever comes later gets what is read
 * later. It goes on when those have left for whom the batch was read. @throws the reason why nobody listens any more
 */
async function deliverLines(state: PollerState, batch: readonly LogLine[]): Promise<void> {
  const { joined, matched } = state;
  const opened: OpenedLine[] = [];
  for (const line of batch) {
    const matchedFor = matched.find(line) ?? 0;
    if (matchedFor < joined) opened.push({ line, body: openBody(line.json), matchedFor });
  }
  if (opened.length === 0) return;
  const delivery = { lines: opened, joined, signal: state.pollingTogether?.signal };
  const audiences = [...state.audiences.values()].sort((a, b) => a.comparisons - b.comparisons);
  for (const audience of audiences) await deliverToAudience(state, audience, delivery);
  for (const { line } of opened)
    if (!matched.isFull() || matched.find(line) !== undefined) matched.remember(line, joined);
}

/** Gives each line once to each. The audience is refused where its query matches more lines than can be remembered. */
async function deliverToAudience(
  state: PollerState,
  audience: QueryAudience,
  { lines, joined, signal }: Delivery,
): Promise<void> {
  const { matches, listeners } = audience;
  const lateness = fromMillis(state.options.lateness);
  const pause = createPause(signal);
  const own: { readonly line: LogLine; readonly seen: number }[] = [];
  for (const { line, body, matchedFor } of lines) {
    if (listeners.size === 0) return;
    if (matchedFor >= audience.newest) continue;
    const found = matches(line, body);
    const isOwn = typeof found === "boolean" ? found : await takeSteps(found, signal);
    // What is read for another query, which has failed for long, may be older than what is remembered of this one.
    const isOpen = line.time >= audience.lastWhole - lateness;
    if (isOwn && isOpen) own.push({ line, seen: noteSeen(state, audience, line, joined) });
    const paused = pause();
    if (paused !== undefined) await paused;
  }
  giveUnseen(own, listeners, joined);
}

function giveUnseen(
  lines: readonly { readonly line: LogLine; readonly seen: number }[],
  listeners: QueryAudience["listeners"],
  joined: number,
): void {
  const listUnseen = (place: number) => lines.filter(({ seen }) => seen < place).map(({ line }) => line);
  // One array for nearly all: its text is shared between tails.
  const fresh = listUnseen(1);
  for (const [listener, place] of listeners) {
    if (place > joined) continue;
    const unseen = fresh.length === lines.length ? fresh : listUnseen(place);
    if (unseen.length > 0) listener.onLines(unseen.length === fresh.length ? fresh : unseen);
  }
}

/** Returns how many had joined when it was last delivered. */
function noteSeen(state: PollerState, audience: QueryAudience, line: LogLine, joined: number): number {
  try {
    return audience.seen.remember(line, joined) ?? 0;
  } catch (error) {
    if (!(error instanceof Unprocessable)) throw error;
    refuseAudience(state, audience, error);
    return joined;
  }
}
