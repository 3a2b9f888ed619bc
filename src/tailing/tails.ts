// Live tails. Each reads by itself what lies behind, with back-pressure, until it is close to now; then it joins the
// poller of its sources. A line is sent once in each connection: the poller gives it once, and what the tail's own
// reading has sent is remembered until the poller cannot meet it again.
//
// What is sent is bounded, in characters that wait for the client: a tail that passes the bound is ended, and its
// client may come back with the last id, at its own pace.
import type { Chunks } from "../answer.ts";
import type { Principal } from "../auth.ts";
import type { Limits } from "../config.ts";
import { TooMany, Unprocessable } from "../errors.ts";
import type { LogLine } from "../model.ts";
import { overloaded } from "../operations/conduct.ts";
import { describeFailure } from "../operations/failure.ts";
import { tieLimit } from "../operations/logs.ts";
import type { Followed } from "../operations/operation.ts";
import type { LogEvent, LogStore } from "../store.ts";
import { floorToMilli, fromMillis, type Instant, type Millis, nanosPerMilli } from "../time.ts";
import {
  type End,
  printEnd,
  printHeartbeat,
  printId,
  printLines,
  printOpening,
  printRetry,
  readId,
  resumed,
} from "./events.ts";
import { createOutbox } from "./outbox.ts";
import { createPoller, type Poller, pollEvery, type Reading, readLines, restAfter } from "./poller.ts";
import { createSeen } from "./seen.ts";

export const eventsHeaders = {
  "Content-Type": "text/event-stream; charset=utf-8",
  "Cache-Control": "no-store",
  // Else nginx gathers events before it hands them on.
  "X-Accel-Buffering": "no",
  // A stream is the last answer of its connection, so that a drain does not wait for another request on it.
  Connection: "close",
};

/** Characters that may wait for a client. */
const mostWaiting = 1_048_576;
const heartbeatEvery: Millis = 15_000;
/** How long the last event may take, and how long a client may leave what waits untouched. */
const lastPatience: Millis = 10_000;
const patience: Millis = 60_000;
/** Seconds after which a client over its limit may try again. */
const retryAfter = 10;

export interface TailsOptions {
  readonly limits: Limits;
  /** Shared by the tails of a server: the bound is on all of them. */
  readonly places: { taken: number };
  readonly now: () => Instant;
  readonly pause: Reading["pause"];
  readonly log: (event: LogEvent) => void;
}

export interface Asked {
  readonly principal: Principal;
  /** `Last-Event-ID`. */
  readonly resume: string | undefined;
  /** Aborted when the client leaves. */
  readonly gone: AbortSignal;
  /** Called once, when the tail is over; `cut` when its last event was not taken. */
  readonly over: (cut: boolean) => void;
}

export interface Tails {
  /**
   * Resolves once the sources have answered for the first time.
   * @throws {TooMany} the token has too many tails
   * @throws {BackendError} `overloaded` when there are too many in all; and what the sources fail with
   * @throws {Unprocessable} as a page of the lines, and for a wrong `Last-Event-ID`
   */
  readonly open: (followed: Followed["follow"], asked: Asked) => Promise<Chunks>;
  /** Ends all, and every later one. Resolves when they are over. */
  readonly close: (reason: "draining" | "reloaded") => Promise<void>;
}

interface Tail {
  readonly chunks: Chunks;
  readonly begun: Promise<void>;
  readonly over: Promise<void>;
  readonly end: (end: End) => void;
  readonly tick: () => void;
}

export function createTails({ limits, places, now, pause, log }: TailsOptions): Tails {
  const open = new Set<Tail>();
  const byPrincipal = new Map<Principal, number>();
  const pollers = new Map<LogStore, Map<string, Poller>>();
  const lateness = fromMillis(limits.tail.lateness);
  let closing: "draining" | "reloaded" | undefined;
  let ticking = false;

  /** Sources are told apart by all that they are, not by their ids: two sites of a store may use the same ones. */
  const keyOf = ({ sources }: Reading) => JSON.stringify([...sources].sort((a, b) => (a.id < b.id ? -1 : 1)));
  const forgetPoller = (reading: Reading) => pollers.get(reading.store)?.delete(keyOf(reading));
  function pollerOf(reading: Reading): Poller {
    const key = keyOf(reading);
    const ofStore = pollers.get(reading.store) ?? new Map<string, Poller>();
    pollers.set(reading.store, ofStore);
    const poller = ofStore.get(key) ?? createPoller(reading);
    ofStore.set(key, poller);
    return poller;
  }

  async function tickAll(): Promise<void> {
    if (ticking) return;
    ticking = true;
    while (open.size > 0) {
      await pause(pollEvery, new AbortController().signal);
      for (const tail of open) tail.tick();
    }
    ticking = false;
  }

  function take(principal: Principal): () => void {
    const own = byPrincipal.get(principal) ?? 0;
    if (own >= limits.tail.perToken) throw new TooMany(retryAfter);
    if (places.taken >= limits.tail.open) throw overloaded(`${places.taken} tails are open`);
    places.taken += 1;
    byPrincipal.set(principal, own + 1);
    return () => {
      places.taken -= 1;
      const left = (byPrincipal.get(principal) ?? 1) - 1;
      if (left === 0) byPrincipal.delete(principal);
      else byPrincipal.set(principal, left);
    };
  }

  async function openTail(followed: Followed["follow"], asked: Asked): Promise<Chunks> {
    const { principal, resume, gone } = asked;
    const point = resume === undefined ? undefined : readId(resume);
    const give = take(principal);
    let opened = false;
    const over = (cut: boolean) => {
      open.delete(tail);
      give();
      if (opened) asked.over(cut);
    };
    const tail = follow(followed, point, { ...asked, over });
    open.add(tail);
    void tickAll();
    if (closing !== undefined) tail.end({ reason: closing });
    try {
      await tail.begun;
    } catch (error) {
      await tail.chunks.leave();
      throw gone.aborted ? gone.reason : error;
    }
    opened = true;
    return tail.chunks;
  }

  function follow(
    { store, sources, filter, from, to }: Followed["follow"],
    resume: Instant | undefined,
    { principal, gone, over }: Asked,
  ): Tail {
    const reading: Reading = {
      store,
      sources,
      deadline: limits.deadline,
      lateness: limits.tail.lateness,
      tieLimit: tieLimit(limits),
      seenLimit: limits.documents,
      now,
      pause,
      log,
    };
    const control = new AbortController();
    const { signal } = control;
    const opened = now();
    /** Of what it wants nothing lies behind: it need not read by itself. */
    const fresh = from === undefined && resume === undefined;
    const start = fresh
      ? ((floorToMilli(opened) + nanosPerMilli) as Instant)
      : later(from ?? resume ?? opened, resume ?? from ?? opened);
    const outbox = createOutbox(start, signal);
    /** The first instant that is still open. */
    let point = start;
    const advance = (to: Instant) => {
      point = later(point, to);
    };
    /** Older lines than this have come too late when the tail's own reading did not find them. */
    let floor = start;
    /** What was sent of the time that the poller can still meet; absent once it has passed all that was read here. */
    let sent: ReturnType<typeof createSeen> | undefined = createSeen(limits.documents);
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
    const begin = () => {
      hasBegun = true;
      begun.resolve();
    };

    const say = (text: string) => {
      said = now();
      if (outbox.waiting() === 0) taken = said;
      outbox.push(text, point);
    };

    function end(end: End): void {
      if (ended) return;
      ended = true;
      leavePoller?.();
      outbox.end(printEnd(end, printId(outbox.point())));
      begin();
      void pause(lastPatience, signal).then(() => control.abort(new Error("the last event was not taken")));
    }

    let isOver = false;
    function finish(cut: boolean): void {
      if (isOver) return;
      isOver = true;
      ended = true;
      leavePoller?.();
      gone.removeEventListener("abort", leave);
      control.abort(new Error("the tail is over"));
      over(cut);
      finished.resolve();
    }
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
      say(resumed);
    }

    /** Reads `[from, now]` by itself, by time and as fast as the client takes it. */
    async function readBehind(): Promise<void> {
      const at = now();
      floor = (at - lateness) as Instant;
      const range = { from: earlier(point, at), to: to === undefined ? at : earlier(to, at) };
      if (range.from <= range.to) {
        for await (const batch of readLines(reading, filter, range, signal)) {
          if (ended) return;
          works();
          const fresh = batch.filter((line) => inRange(line) && isNew(line));
          if (fresh.length > 0) say(printLines(fresh, printId(point)));
          const last = batch.at(-1);
          if (last !== undefined) {
            advance(earlier((floorToMilli(last.time) + nanosPerMilli) as Instant, floor));
          }
          await outbox.emptied();
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
          const rest = restAfter(failures);
          log({ level: "warn", message: "tail: reading failed", err: error, rest });
          failed(error, rest);
          await pause(rest, signal);
        }
      }
    }
    function isNew(line: LogLine): boolean {
      if (sent === undefined) return true;
      return line.time < floor || joined !== undefined ? !sent.has(line) : sent.add(line);
    }

    function take(lines: readonly LogLine[]): void {
      const wanted = lines.filter((line) => inRange(line) && line.time >= floor && isNew(line));
      if (wanted.length === 0) return;
      // The same array again, where nothing was left out: its text is shared.
      const text = printLines(wanted.length === lines.length ? lines : wanted, printId(point));
      if (outbox.waiting() > 0 && outbox.waiting() + text.length > mostWaiting) end({ reason: "slow" });
      else say(text);
    }

    function join(): Poller {
      const poller = pollerOf(reading);
      const leave = poller.listen({
        filter,
        lines(lines) {
          try {
            take(lines);
          } catch (error) {
            if (!(error instanceof Unprocessable)) throw error;
            refused(error);
          }
        },
        closed(closed) {
          if (failing) works();
          if (joined === undefined) return;
          advance(closed);
          if (closed > joined) sent = undefined;
          if (to !== undefined && closed > to) end({ reason: "complete" });
        },
        // Before the first answer the tail's own reading tells.
        failed: (error, rest) => hasBegun && failed(error, rest),
        refused,
      });
      leavePoller = () => {
        leave();
        if (poller.idle()) forgetPoller(reading);
      };
      return poller;
    }

    async function run(): Promise<void> {
      if (fresh) {
        await join().outcome();
        return works();
      }
      // Far behind it reads alone, so that nothing waits for it meanwhile; near to now it joins the others.
      while (!ended && now() - point > 2n * lateness) {
        await catchUp();
        joined = undefined;
        if (to !== undefined && point > to) end({ reason: "complete" });
      }
      if (ended) return;
      join();
      await catchUp();
      if (to !== undefined && point > to) end({ reason: "complete" });
    }

    say(printOpening(printId(start)));
    run().catch((error: unknown) => {
      if (error instanceof Unprocessable) refused(error);
      else if (hasBegun) finish(true);
      else begun.reject(error);
    });

    const chunks: Chunks = {
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
      leave: async () => finish(false),
      signal,
    };
    const tick = () => {
      const at = now();
      if (principal.expires !== undefined && principal.expires <= at) return end({ reason: "expired" });
      if (outbox.waiting() > 0) {
        if (at - taken > fromMillis(patience)) end({ reason: "slow" });
      } else if (at - said >= fromMillis(heartbeatEvery)) say(printHeartbeat(printId(point)));
    };
    return { chunks, begun: begun.promise, over: finished.promise, end, tick };
  }

  return {
    open: openTail,
    async close(reason) {
      closing = reason;
      const tails = [...open];
      for (const tail of tails) tail.end({ reason });
      await Promise.all(tails.map(({ over }) => over));
    },
  };
}

const later = (a: Instant, b: Instant): Instant => (a > b ? a : b);
const earlier = (a: Instant, b: Instant): Instant => (a < b ? a : b);
