// The live tails of a configuration: how many there may be, which of them share a poller, and how all of them end.

import type { Principal } from "../access/auth.ts";
import type { Limits } from "../config/config.ts";
import { TooMany } from "../core/errors.ts";
import type { Instant } from "../core/time.ts";
import type { Chunks } from "../http/response.ts";
import { tieLimit } from "../operations/logs/lines.ts";
import { overloaded } from "../operations/runtime/executor.ts";
import type { Followed } from "../operations/runtime/operation.ts";
import type { LogEvent, LogStore } from "../store/store.ts";
import { createPoller, type Listener, type Poller, pollEvery, type Reading } from "./poller.ts";
import { readId } from "./sse.ts";
import { follow, type Tail } from "./tail.ts";

export const eventsHeaders = {
  "Content-Type": "text/event-stream; charset=utf-8",
  "Cache-Control": "no-store",
  // Else nginx gathers events before it hands them on.
  "X-Accel-Buffering": "no",
  // A stream is the last answer of its connection, so that a drain does not wait for another request on it.
  Connection: "close",
};

/** Seconds after which a client over its limit may try again. */
const retryAfter = 10;

interface TailsOptions {
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

export function createTails({ limits, places, now, pause, log }: TailsOptions): Tails {
  const open = new Set<Tail>();
  const byPrincipal = new Map<Principal, number>();
  const pollers = new Map<LogStore, Map<string, Poller>>();
  let closing: "draining" | "reloaded" | undefined;
  let ticking = false;

  /**
   * The poller of a reading, while anybody listens to it. Sources are told apart by all that they are, not by their
   * ids: two sites of a store may use the same ones.
   */
  function listen(reading: Reading, listener: Listener) {
    const key = JSON.stringify(reading.sources.toSorted((a, b) => (a.id < b.id ? -1 : 1)));
    const ofStore = pollers.get(reading.store) ?? new Map<string, Poller>();
    pollers.set(reading.store, ofStore);
    const poller = ofStore.get(key) ?? createPoller(reading);
    ofStore.set(key, poller);
    const leavePoller = poller.listen(listener);
    const leave = () => {
      leavePoller();
      if (poller.idle() && ofStore.get(key) === poller) ofStore.delete(key);
    };
    return { leave, outcome: poller.outcome() };
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

  function takePlace(principal: Principal): () => void {
    const own = byPrincipal.get(principal) ?? 0;
    if (own >= limits.tail.perToken) throw new TooMany(retryAfter, "token_tails");
    if (places.taken >= limits.tail.open) throw overloaded("tails", `${places.taken} tails are open`);
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
    const { store, sources, ...range } = followed;
    const point = resume === undefined ? undefined : readId(resume);
    const givePlace = takePlace(principal);
    let opened = false;
    const over = (cut: boolean) => {
      open.delete(tail);
      givePlace();
      if (opened) asked.over(cut);
    };
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
    const tail = follow({
      ...{ reading, ...range, resume: point, expires: principal.expires, gone, over },
      listen: (listener) => listen(reading, listener),
    });
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
