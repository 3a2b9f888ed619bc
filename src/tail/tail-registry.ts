// The live tails of a configuration: how many there may be, which of them share a poller, and how all of them end.

import { type AccountSlots, createAccountSlots, narrowLimits } from "../access/account-slots.ts";
import type { Principal } from "../access/auth.ts";
import { createOverloadedError } from "../access/request-slots.ts";
import type { Limits } from "../config/limits.ts";
import { createHeldBytes, type HeldLedger } from "../core/async/held-bytes.ts";
import { type LimitUse, TooMany } from "../core/errors.ts";
import type { Instant } from "../core/time.ts";
import type { StreamedBody } from "../http/body.ts";
import { type Filter, listComparisons, queryLimits } from "../log-query/ast.ts";
import { computeTieLimit } from "../operations/logs/lines.ts";
import type { TailAnswer } from "../operations/runtime/operation.ts";
import type { LogEvent } from "../store/backend.ts";
import type { LogStore } from "../store/logs.ts";
import { type AccountTurns, createAccountTurns } from "./account-turns.ts";
import type { Listener } from "./audience.ts";
import { pollInterval } from "./poll-timing.ts";
import { createPoller, type Listening, type Poller, type PollerOptions } from "./poller.ts";
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

/** How many queries of tails of one account a store reads alone at once: slow ones must not take all requests to a backend. */
const maxReadAlone = 4;

/** Seconds after which a client over its limit may try again. */
const retryAfterSeconds = 10;

/**
 * Each line is compared with the queries of all tails, which are held for as long as these are open. So the queries of all tails
 * together, and of those of a token, have so many comparisons at most for each tail that may be open.
 */
const comparisonsPerTail = 50;

/** The longest query alone is always followed. */
function limitComparisons(tails: number): number {
  return Math.max(queryLimits.leaves, comparisonsPerTail * tails);
}

/** What the open tails of a server take. */
export interface TailSlots {
  taken: number;
  /** In their queries. */
  comparisons: number;
}

export function createTailSlots(): TailSlots {
  return { taken: 0, comparisons: 0 };
}

interface TailRegistryOptions {
  readonly limits: Limits;
  /** Shared by the tails of a server: the bound is on all of them. */
  readonly slots: TailSlots;
  /** What all requests of a server hold, and its tails. */
  readonly held: HeldLedger;
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
  /** Takes a place among the exports, for as long as the tail reads what lies far behind. @throws {TooMany} {LimitReached} */
  readonly takePlace: () => () => void;
  /** Called once, when the tail is over; `isCut` when its last event was not taken. */
  readonly onClose: (isCut: boolean) => void;
}

export interface TailRegistry {
  /**
   * Resolves once the sources have answered for the first time.
   * @throws {TooMany} the token has too many tails or exports
   * @throws {BackendError} `createOverloadedError` when there are too many in all; and what the sources fail with
   * @throws {Unprocessable} as a page of the lines, and for a wrong `Last-Event-ID`
   */
  readonly open: (followed: TailAnswer["follow"], asked: TailClient) => Promise<StreamedBody>;
  readonly measureUse: () => LimitUse;
  /** Ends all, and every later one. Resolves when they are over. */
  readonly close: (reason: "draining" | "reloaded") => Promise<void>;
}

interface RegistryState {
  readonly options: TailRegistryOptions;
  readonly open: Set<Tail>;
  readonly byAccount: AccountSlots;
  readonly comparisonsByAccount: AccountSlots;
  readonly pollers: Map<LogStore, Map<string, Poller>>;
  /** By what is read: a source that hangs must not keep tails of others from beginning. */
  readonly turns: WeakMap<LogStore, AccountTurns>;
  closing: "draining" | "reloaded" | undefined;
  isTicking: boolean;
}

export function createTailRegistry(options: TailRegistryOptions): TailRegistry {
  const state: RegistryState = {
    options,
    open: new Set(),
    byAccount: createAccountSlots(),
    pollers: new Map(),
    comparisonsByAccount: createAccountSlots(),
    turns: new WeakMap(),
    closing: undefined,
    isTicking: false,
  };
  return {
    open: (followed, client) => openTail(state, followed, client),
    measureUse: () => ({
      tails: options.slots.taken / options.limits.tail.maxOpen,
      token_tails: state.byAccount.measureUse(),
      tail_comparisons: options.slots.comparisons / limitComparisons(options.limits.tail.maxOpen),
      token_tail_comparisons: state.comparisonsByAccount.measureUse(),
    }),
    async close(reason) {
      state.closing = reason;
      const tails = [...state.open];
      for (const tail of tails) tail.end({ reason });
      await Promise.all(tails.map(({ closed }) => closed));
    },
  };
}

/**
 * Listens to the poller of these sources, which lives as long as anybody listens. Sources are told apart by all that they
 * are, not by their ids: two sites of a store may use the same ids.
 */
function listenToSources(
  { pollers }: RegistryState,
  options: PollerOptions,
  listener: Listener,
  account: string,
): Listening {
  const key = JSON.stringify(options.sources.toSorted((a, b) => (a.id < b.id ? -1 : 1)));
  const ofStore = pollers.get(options.store) ?? new Map<string, Poller>();
  pollers.set(options.store, ofStore);
  const poller = ofStore.get(key) ?? createPoller(options);
  ofStore.set(key, poller);
  const listening = poller.listen(listener, account);
  const leave = () => {
    listening.leave();
    if (poller.isIdle() && ofStore.get(key) === poller) ofStore.delete(key);
  };
  return { leave, outcome: listening.outcome };
}

/** Ticks all tails once a second, until none is open. */
async function tickTails(state: RegistryState): Promise<void> {
  if (state.isTicking) return;
  state.isTicking = true;
  while (state.open.size > 0) {
    await state.options.pause(pollInterval, new AbortController().signal);
    for (const tail of state.open) tail.tick();
  }
  state.isTicking = false;
}

function findTurns({ turns }: RegistryState, store: LogStore): AccountTurns {
  const own = turns.get(store) ?? createAccountTurns(maxReadAlone);
  turns.set(store, own);
  return own;
}

/** Returns what gives the slot back. @throws {TooMany} {LimitReached} */
function takeSlot(
  { options, byAccount, comparisonsByAccount }: RegistryState,
  principal: Principal,
  filter: Filter,
): () => void {
  const { limits, slots } = options;
  const { account } = principal;
  const { perToken } = narrowLimits(limits, principal.limits).tail;
  if (!byAccount.hasFree(account, perToken)) {
    throw new TooMany(retryAfterSeconds, "token_tails", { requests: perToken });
  }
  const comparisons = Math.max(1, listComparisons(filter).length);
  const ownLimit = limitComparisons(perToken);
  if (!comparisonsByAccount.hasFree(account, ownLimit, comparisons)) {
    throw new TooMany(retryAfterSeconds, "token_tail_comparisons", {
      requests: ownLimit,
      unit: "comparisons",
    });
  }
  if (slots.taken >= limits.tail.maxOpen) {
    throw createOverloadedError("tails", `${slots.taken} tails are open`);
  }
  if (slots.comparisons + comparisons > limitComparisons(limits.tail.maxOpen)) {
    throw createOverloadedError("tail_comparisons", `open tails have ${slots.comparisons} comparisons`);
  }
  slots.taken += 1;
  slots.comparisons += comparisons;
  const release = byAccount.take(account, perToken);
  const releaseComparisons = comparisonsByAccount.take(account, ownLimit, comparisons);
  return () => {
    slots.taken -= 1;
    slots.comparisons -= comparisons;
    release();
    releaseComparisons();
  };
}

async function openTail(
  state: RegistryState,
  { store, sources, ...range }: TailAnswer["follow"],
  { principal, lastEventId, clientGone, takePlace, onClose }: TailClient,
): Promise<StreamedBody> {
  const { limits, held: ledger, now, pause, log } = state.options;
  const resume = lastEventId === undefined ? undefined : decodeEventId(lastEventId);
  const freeSlot = takeSlot(state, principal, range.filter);
  let isOpened = false;
  const pollerOptions: PollerOptions = {
    store,
    sources,
    now,
    pause,
    log,
    turns: findTurns(state, store),
    deadline: limits.deadline,
    lateness: limits.tail.lateness,
    tieLimit: computeTieLimit(limits),
    seenLimit: limits.documents,
    openHeld: (account) => createHeldBytes(limits.heldBytes, { ledger, account }),
  };
  const tail = startTail({
    pollerOptions,
    ...range,
    resume,
    expires: principal.expires,
    clientGone,
    takePlace,
    exportLimit: narrowLimits(limits, principal.limits).export,
    account: principal.account,
    listen: (listener) => listenToSources(state, pollerOptions, listener, principal.account),
    onClose: (isCut) => {
      state.open.delete(tail);
      freeSlot();
      if (isOpened) onClose(isCut);
    },
  });
  state.open.add(tail);
  void tickTails(state);
  if (state.closing !== undefined) tail.end({ reason: state.closing });
  try {
    await tail.started;
  } catch (error) {
    await tail.chunks.cancel();
    throw clientGone.aborted ? clientGone.reason : error;
  }
  isOpened = true;
  return tail.chunks;
}
