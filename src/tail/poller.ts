// One reader for all tails of the same sources of a store. It asks for what any of their queries wants, and gives each
// line, once, to those whose query it satisfies; so 500 tails cost a source no more than one.
//
// Lines become visible later than their own time: shippers gather, indices refresh. Every reading therefore begins
// again before the last one: each second a little, so that nearly all lines show at once, and every quarter of the
// lateness as far back as a line may still come. What is refused for all together is asked for query by query, so that
// only those are told whose own it is.
import { BackendError, Unprocessable } from "../core/errors.ts";
import type { LogLine } from "../core/rows.ts";
import { fromMillis, type Instant, later, type Millis, nanosPerMilli, type TimeRange } from "../core/time.ts";
import type { Filter } from "../log-query/ast.ts";
import { compileMatcher } from "../log-query/matches.ts";
import { type RequestLifetime, startRequest } from "../operations/runtime/lifetime.ts";
import type { LogEvent } from "../store/backend.ts";
import type { LogQuery, LogSource, LogStore } from "../store/logs.ts";
import { createRecentIds } from "./recent-ids.ts";

/** How often is read, and how far back at least. */
export const pollInterval: Millis = 1_000;
const recentWindow: Millis = 10_000;
const maxRetryDelay: Millis = 30_000;
/** How long a source that has failed so often before is left alone. */
export function computeRetryDelay(failures: number): Millis {
  return Math.min(pollInterval * 2 ** failures, maxRetryDelay);
}
/** With more different queries than these all lines are read: the index would be asked more than it spares. */
const maxSeparateQueries = 32;

export interface Listener {
  readonly filter: Filter;
  /** Lines that satisfy the filter, by time; never one twice. */
  readonly onLines: (onLines: readonly LogLine[]) => void;
  /** A reading has succeeded: every line before `onClosed` that comes in time has been given. */
  readonly onClosed: (onClosed: Instant) => void;
  /** A reading failed; the next try is in so many milliseconds. */
  readonly onFailure: (error: unknown, rest: Millis) => void;
  /** No reading of its query will succeed; nothing more is given. */
  readonly onRefusal: (error: Unprocessable) => void;
}

export interface Poller {
  /** Lines that become visible from now on, and older ones that the listener may know. Returns how to leave. */
  readonly listen: (listener: Listener) => () => void;
  /** How the last reading went, or the first one when none has ended. Rejects with what it failed with. */
  readonly awaitOutcome: () => Promise<void>;
  readonly isIdle: () => boolean;
}

export interface PollerOptions {
  readonly store: LogStore;
  readonly sources: readonly [LogSource, ...LogSource[]];
  /** Of each step of a reading. */
  readonly deadline: Millis;
  readonly lateness: Millis;
  readonly tieLimit: number;
  /** How many lines are remembered. */
  readonly seenLimit: number;
  readonly now: () => Instant;
  /** Resolves after so long, or at once when the signal aborts. */
  readonly pause: (length: Millis, signal: AbortSignal) => Promise<void>;
  readonly log: (event: LogEvent) => void;
}

/** A hint: one search answers what came lately, and few read far back. */
const wantedHint = 10_000;

/**
 * Batches of lines by time; the deadline is for each step of the source, `heard` is called after each.
 * @throws {Unprocessable} {BackendError}
 */
export async function* readLines(
  { store, sources, deadline, tieLimit }: PollerOptions,
  filter: Filter,
  range: TimeRange,
  signal: AbortSignal,
  heard?: () => void,
): AsyncGenerator<readonly LogLine[]> {
  const leaving = new AbortController();
  const limited = AbortSignal.any([signal, leaving.signal]);
  // Whoever follows reads for ever: what bounds it is that one reading is under way at a time.
  const documentLimit = Number.MAX_SAFE_INTEGER;
  let step: RequestLifetime | undefined;
  const progressed = () => {
    step?.reportProgress();
    heard?.();
  };
  const query: LogQuery = {
    ...{
      sources,
      range,
      filter,
      order: "asc",
      expectedLines: wantedHint,
      documentLimit,
      tieLimit,
      progressed,
    },
  };
  const rows = store.lines(query, limited)[Symbol.asyncIterator]();
  try {
    for (;;) {
      step = startRequest(limited, deadline);
      const next = await step.wait(rows.next()).finally(step.end);
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    leaving.abort(new Error("no more lines wanted"));
    rows.return?.()?.catch(() => {});
  }
}

/** Listeners of one query. */
interface QueryAudience {
  readonly filter: Filter;
  readonly matches: (line: LogLine) => boolean;
  readonly listeners: Set<Listener>;
}

export function createPoller(reading: PollerOptions): Poller {
  const { now, pause, log } = reading;
  const lateness = fromMillis(reading.lateness);
  const audiences = new Map<string, QueryAudience>();
  let leaving: AbortController | undefined;
  let outcome = Promise.withResolvers<void>();
  /** Settles the outcome that is waited for, or takes the place of one that is known. */
  function settle(error?: unknown): void {
    const pending = outcome;
    outcome = Promise.withResolvers();
    outcome.promise.catch(() => {});
    for (const { resolve, reject } of [pending, outcome]) error === undefined ? resolve() : reject(error);
  }

  function listen(listener: Listener): () => void {
    const key = JSON.stringify(listener.filter, (name, value) => (name === "span" ? undefined : value));
    const { filter } = listener;
    const audience = audiences.get(key) ?? { filter, matches: compileMatcher(filter), listeners: new Set() };
    audiences.set(key, audience);
    audience.listeners.add(listener);
    if (leaving === undefined) {
      leaving = new AbortController();
      outcome = Promise.withResolvers();
      outcome.promise.catch(() => {});
      void run(leaving.signal);
    }
    return () => {
      if (!audience.listeners.delete(listener) || audience.listeners.size > 0) return;
      audiences.delete(key);
      if (audiences.size > 0) return;
      leaving?.abort(new Error("nobody follows any more"));
      leaving = undefined;
    };
  }

  async function run(signal: AbortSignal): Promise<void> {
    const seen = createRecentIds(reading.seenLimit);
    /** Lines that were about to be given are then among those remembered, and nobody can go on. */
    let full = false;
    const isNew = (line: LogLine): boolean => {
      try {
        return seen.add(line);
      } catch (error) {
        full = true;
        throw error;
      }
    };
    const read = async (filter: Filter, range: TimeRange): Promise<void> => {
      for await (const batch of readLines(reading, filter, range, signal)) give(batch.filter(isNew));
    };
    const readAll = async (range: TimeRange): Promise<void> => {
      try {
        await read(union(), range);
      } catch (error) {
        if (full || !(error instanceof Unprocessable) || audiences.size < 2) throw error;
        for (const [key, audience] of [...audiences]) {
          await read(audience.filter, range).catch((own: unknown) => {
            if (full || !(own instanceof Unprocessable)) throw own;
            refuse(key, audience, own);
          });
        }
        if (audiences.size === 0) throw error;
      }
    };
    /** When the last reading that went back all the way began, and the last of any kind. */
    let whole = now();
    let last = whole;
    let failures = 0;
    while (!signal.aborted) {
      // A clock that is put back must not take the floor with it.
      const begun = later(now(), last);
      const far = begun - whole >= lateness / 4n;
      const from = far
        ? whole - lateness
        : later((last - fromMillis(recentWindow)) as Instant, (whole - lateness) as Instant);
      try {
        const range = { from: from as Instant, to: begun };
        await readAll(range);
        last = begun;
        settle();
        if (far) {
          whole = begun;
          seen.forget((whole - lateness) as Instant);
        }
        for (const listener of listeners()) listener.onClosed((whole - lateness) as Instant);
        failures = 0;
        // Below 0 while the clock has been put back.
        const spent = Math.max(0, Number((now() - begun) / nanosPerMilli));
        await pause(Math.max(pollInterval - spent, pollInterval / 5), signal);
      } catch (error) {
        if (signal.aborted) return;
        settle(error);
        if (error instanceof Unprocessable) {
          // Whoever comes now begins anew.
          if (leaving?.signal === signal) leaving = undefined;
          for (const listener of listeners()) listener.onRefusal(error);
          return;
        }
        const rest = computeRetryDelay(failures);
        failures += 1;
        const level = error instanceof BackendError ? "warn" : "error";
        log({ level, message: "tail: reading failed", err: error, rest });
        for (const listener of listeners()) listener.onFailure(error, rest);
        await pause(rest, signal);
      }
    }
  }

  function refuse(key: string, audience: QueryAudience, error: Unprocessable): void {
    const told = [...audience.listeners];
    // Whoever comes now with the same query begins anew.
    audience.listeners.clear();
    if (audiences.get(key) === audience) audiences.delete(key);
    for (const listener of told) listener.onRefusal(error);
  }

  /** What any listener wants. */
  function union(): Filter {
    const filters = [...audiences.values()].map(({ filter }) => filter);
    const [first, second, ...rest] = filters;
    if (
      first === undefined ||
      filters.length > maxSeparateQueries ||
      filters.some(({ kind }) => kind === "all")
    ) {
      return { kind: "all" };
    }
    if (second === undefined) return first;
    return { kind: "or", operands: [first, second, ...rest], span: { start: 0, end: 0 } };
  }

  function give(lines: readonly LogLine[]): void {
    if (lines.length === 0) return;
    for (const { matches: holds, listeners } of audiences.values()) {
      const own = lines.filter(holds);
      if (own.length > 0) for (const listener of listeners) listener.onLines(own);
    }
  }

  function listeners(): readonly Listener[] {
    return [...audiences.values()].flatMap((audience) => [...audience.listeners]);
  }

  return { listen, awaitOutcome: () => outcome.promise, isIdle: () => audiences.size === 0 };
}
