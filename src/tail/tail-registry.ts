// The live tails of a configuration: how many there may be, which of them share a poller, and how all of them end.

import type { Principal } from "../access/auth.ts";
import type { Limits } from "../config/limits.ts";
import { TooMany } from "../core/errors.ts";
import type { Instant } from "../core/time.ts";
import type { StreamedBody } from "../http/response.ts";
import { computeTieLimit } from "../operations/logs/lines.ts";
import { createOverloadedError } from "../operations/runtime/executor.ts";
import type { TailAnswer } from "../operations/runtime/operation.ts";
import type { LogEvent } from "../store/backend.ts";
import type { LogStore } from "../store/logs.ts";
import { createPoller, type Listener, type Poller, type PollerOptions, pollInterval } from "./poller.ts";
import { decodeEventId } from "./sse.ts";
import { startTail, type Tail } from "./tail.ts";

export const eventStreamHeaders = {
  "Content-Type": "text/event-stream; charset=utf-8",
  "Cache-Control": "no-store",
  // Else nginx gathers events before it hands them on.
  "X-Accel-Buffering": "no",
  // A stream is the last answer of its connection, so that a drain does not wait for another request on it.
  Connection: "close",
};

/** Seconds after which a client over its limit may try again. */
const retryAfterSeconds = 10;

interface TailRegistryOptions {
  readonly limits: Limits;
  /** Shared by the tails of a server: the bound is on all of them. */
  readonly slots: { taken: number };
  readonly now: () => Instant;
  readonly pause: PollerOptions["pause"];
  readonly log: (event: LogEvent) => void;
}

interface TailClient {
  readonly principal: Principal;
  /** `Last-Event-ID`. */
  readonly lastEventId: string | undefined;
  /** Aborted when the client leaves. */
  readonly clientGone: AbortSignal;
  /** Called once, when the tail is over; `cut` when its last event was not taken. */
  readonly onClose: (cut: boolean) => void;
}

export interface TailRegistry {
  /**
   * Resolves once the sources have answered for the first time.
   * @throws {TooMany} the token has too many tails
   * @throws {BackendError} `createOverloadedError` when there are too many in all; and what the sources fail with
   * @throws {Unprocessable} as a page of the lines, and for a wrong `Last-Event-ID`
   */
  readonly open: (followed: TailAnswer["follow"], asked: TailClient) => Promise<StreamedBody>;
  /** Ends all, and every later one. Resolves when they are over. */
  readonly close: (reason: "draining" | "reloaded") => Promise<void>;
}

export function createTailRegistry({
  limits,
  slots: places,
  now,
  pause,
  log,
}: TailRegistryOptions): TailRegistry {
  const open = new Set<Tail>();
  const byPrincipal = new Map<Principal, number>();
  const pollers = new Map<LogStore, Map<string, Poller>>();
  let closing: "draining" | "reloaded" | undefined;
  let ticking = false;

  /**
   * The poller of a reading, while anybody listens to it. Sources are told apart by all that they are, not by their
   * ids: two sites of a store may use the same ones.
   */
  function listen(reading: PollerOptions, listener: Listener) {
    const key = JSON.stringify(reading.sources.toSorted((a, b) => (a.id < b.id ? -1 : 1)));
    const ofStore = pollers.get(reading.store) ?? new Map<string, Poller>();
    pollers.set(reading.store, ofStore);
    const poller = ofStore.get(key) ?? createPoller(reading);
    ofStore.set(key, poller);
    const leavePoller = poller.listen(listener);
    const leave = () => {
      leavePoller();
      if (poller.isIdle() && ofStore.get(key) === poller) ofStore.delete(key);
    };
    return { leave, outcome: poller.awaitOutcome() };
  }

  async function tickAll(): Promise<void> {
    if (ticking) return;
    ticking = true;
    while (open.size > 0) {
      await pause(pollInterval, new AbortController().signal);
      for (const tail of open) tail.tick();
    }
    ticking = false;
  }

  function takePlace(principal: Principal): () => void {
    const own = byPrincipal.get(principal) ?? 0;
    if (own >= limits.tail.perToken) throw new TooMany(retryAfterSeconds, "token_tails");
    if (places.taken >= limits.tail.maxOpen)
      throw createOverloadedError("tails", `${places.taken} tails are open`);
    places.taken += 1;
    byPrincipal.set(principal, own + 1);
    return () => {
      places.taken -= 1;
      const left = (byPrincipal.get(principal) ?? 1) - 1;
      if (left === 0) byPrincipal.delete(principal);
      else byPrincipal.set(principal, left);
    };
  }

  async function openTail(followed: TailAnswer["follow"], asked: TailClient): Promise<StreamedBody> {
    const { principal, lastEventId: resume, clientGone: gone } = asked;
    const { store, sources, ...range } = followed;
    const point = resume === undefined ? undefined : decodeEventId(resume);
    const givePlace = takePlace(principal);
    let opened = false;
    const over = (cut: boolean) => {
      open.delete(tail);
      givePlace();
      if (opened) asked.onClose(cut);
    };
    const reading: PollerOptions = {
      store,
      sources,
      deadline: limits.deadline,
      lateness: limits.tail.lateness,
      tieLimit: computeTieLimit(limits),
      seenLimit: limits.documents,
      now,
      pause,
      log,
    };
    const tail = startTail({
      ...{
        pollerOptions: reading,
        ...range,
        resume: point,
        expires: principal.expires,
        clientGone: gone,
        onClose: over,
      },
      listen: (listener) => listen(reading, listener),
    });
    open.add(tail);
    void tickAll();
    if (closing !== undefined) tail.end({ reason: closing });
    try {
      await tail.started;
    } catch (error) {
      await tail.chunks.cancel();
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
      await Promise.all(tails.map(({ closed: over }) => over));
    },
  };
}
