// The slots of requests under way: who holds them, who waits for one, and who is next.

import type { Limits } from "../config/limits.ts";
import { type FairQueue, joinQueue, leaveQueue, serveNext } from "../core/async/fair-queue.ts";
import { createHeldLedger, type HeldLedger } from "../core/async/held-bytes.ts";
import { type LimitName, LimitReached, TooMany } from "../core/errors.ts";
import { type Millis, second } from "../core/time.ts";
import { type AccountSlots, createAccountSlots, narrowLimits } from "./account-slots.ts";
import type { Principal } from "./auth.ts";

/** The slots of a server, and who waits for one. */
export interface RequestSlots {
  taken: number;
  /** Of those, how many are held by what has waited until the end for them. */
  takenAfterWait: number;
  readonly waiting: FairQueue<string, WaitingRequest>;
  /** How many wait briefly, of all and of each account. */
  waitingBriefly: number;
  readonly waitingBrieflyOf: AccountSlots;
  /** The bytes of documents and series that requests hold. */
  readonly held: HeldLedger;
}

interface WaitingRequest {
  /** Slots that its account holds. */
  readonly countHeld: () => number;
  /** Takes a slot if it may have one by now, and tells whether it does. */
  readonly tryEnter: () => boolean;
}

/** The slots of a server as one configuration hands them out. */
export interface SlotPool {
  readonly slots: RequestSlots;
  readonly limits: Limits;
  /** Slots that each account holds. */
  readonly held: AccountSlots;
  /** Those of its slots that are held by what has waited until the end for them. */
  readonly heldAfterWait: AccountSlots;
  /** So long a request waits for a slot before it is refused. */
  readonly briefWait: Millis;
}

const defaultBriefWait: Millis = second;

export function createRequestSlots(): RequestSlots {
  return {
    taken: 0,
    takenAfterWait: 0,
    waiting: new Map(),
    waitingBriefly: 0,
    waitingBrieflyOf: createAccountSlots(),
    held: createHeldLedger(),
  };
}

export function createSlotPool(slots: RequestSlots, limits: Limits, briefWait = defaultBriefWait): SlotPool {
  return { slots, limits, held: createAccountSlots(), heldAfterWait: createAccountSlots(), briefWait };
}

/**
 * A slot, for which it waits a little. As many wait as may be under way, of all and of a token; others are refused at
 * once. Returns what gives it back.
 * @throws {TooMany} The token, or all without one, hold as many slots as they may.
 * @throws {LimitReached} All slots are taken.
 * @throws the reason why nobody waits for it any more
 */
export async function takeSlotBriefly(
  pool: SlotPool,
  principal: Principal,
  gone: AbortSignal,
): Promise<() => void> {
  const full = findFullLimit(pool, principal);
  if (full === undefined) return takeFreeSlot(pool, principal);
  const { slots, limits } = pool;
  const { tokenRequests } = narrowLimits(limits, principal.limits);
  const mayWait =
    slots.waitingBriefly < limits.requests &&
    slots.waitingBrieflyOf.hasFree(principal.account, tokenRequests);
  if (!mayWait) throw createFullError(pool, principal, full);
  const leave = slots.waitingBrieflyOf.take(principal.account, tokenRequests);
  slots.waitingBriefly += 1;
  const tryTake = () =>
    findFullLimit(pool, principal) === undefined ? takeFreeSlot(pool, principal) : undefined;
  try {
    const patience = AbortSignal.any([gone, AbortSignal.timeout(pool.briefWait)]);
    return await waitUntilTaken(pool, principal, tryTake, patience);
  } catch {
    if (gone.aborted) throw gone.reason;
    throw createFullError(pool, principal, findFullLimit(pool, principal) ?? full);
  } finally {
    slots.waitingBriefly -= 1;
    leave();
  }
}

/** A slot of what waits until the end; undefined while the token or the server has none for it. */
export function tryTakeAfterWait(pool: SlotPool, principal: Principal): (() => void) | undefined {
  const { slots, limits, heldAfterWait } = pool;
  const most = takeHalf(narrowLimits(limits, principal.limits).tokenRequests);
  const isFull =
    findFullLimit(pool, principal) !== undefined ||
    slots.takenAfterWait >= takeHalf(limits.requests) ||
    !heldAfterWait.hasFree(principal.account, most);
  if (isFull) return undefined;
  slots.takenAfterWait += 1;
  const release = heldAfterWait.take(principal.account, most);
  const returnSlot = takeFreeSlot(pool, principal);
  return () => {
    slots.takenAfterWait -= 1;
    release();
    returnSlot();
  };
}

function takeHalf(slots: number): number {
  return Math.max(1, Math.floor(slots / 2));
}

/** Resolves with what `tryTake` returns, when it returns something. @throws the reason of the signal */
export function waitUntilTaken<Taken>(
  { slots: { waiting }, held }: SlotPool,
  { account }: Principal,
  tryTake: () => Taken | undefined,
  signal: AbortSignal,
): Promise<Taken> {
  return new Promise((resolve, reject) => {
    const leave = () => {
      leaveQueue(waiting, account, request);
      reject(signal.reason);
    };
    const tryEnter = (): boolean => {
      const taken = tryTake();
      if (taken === undefined) return false;
      signal.removeEventListener("abort", leave);
      resolve(taken);
      return true;
    };
    const request: WaitingRequest = { countHeld: () => held.countTaken(account), tryEnter };
    if (signal.aborted) return leave();
    signal.addEventListener("abort", leave, { once: true });
    // Whoever waits already may not have a slot by now, and so takes none before this one.
    if (tryEnter()) return;
    joinQueue(waiting, account, request);
  });
}

function handSlotsOn({ waiting }: RequestSlots): void {
  const countHeld = (_: string, [first]: Set<WaitingRequest>): number => first?.countHeld() ?? 0;
  while (serveNext(waiting, countHeld, enterFirst));
}

function enterFirst(requests: Set<WaitingRequest>): boolean {
  for (const request of requests) {
    if (!request.tryEnter()) continue;
    requests.delete(request);
    return true;
  }
  return false;
}

/** Counts it for the token at once: bodies that never end would else take all slots. */
function takeFreeSlot({ slots, limits, held }: SlotPool, principal: Principal): () => void {
  slots.taken += 1;
  const release = held.take(principal.account, narrowLimits(limits, principal.limits).tokenRequests);
  return () => {
    slots.taken -= 1;
    release();
    handSlotsOn(slots);
  };
}

/** The limit for which the token has no slot now; undefined where it may take one. */
function findFullLimit(
  { slots, limits, held }: SlotPool,
  principal: Principal,
): "token_requests" | "requests" | undefined {
  const { tokenRequests } = narrowLimits(limits, principal.limits);
  if (!held.hasFree(principal.account, tokenRequests)) return "token_requests";
  return slots.taken < limits.requests ? undefined : "requests";
}

function createFullError(
  { slots, limits }: SlotPool,
  principal: Principal,
  full: "token_requests" | "requests",
): Error {
  if (full === "requests") return createOverloadedError(full, `${slots.taken} requests are under way`);
  return new TooMany(1, full, { requests: narrowLimits(limits, principal.limits).tokenRequests });
}

export function createOverloadedError(limit: LimitName, reason: string): LimitReached {
  return new LimitReached(limit, "overloaded", reason);
}
