// Turns of the event loop for work that would hold it up in one piece. All such work takes turns with all other, whatever
// request it is for: a few milliseconds of each of thirty requests would else follow each other without a break. Accounts
// share the time evenly, and requests of one take turns: one client's thirty exports leave half of it to another client.
import { AsyncLocalStorage } from "node:async_hooks";
import type { Millis } from "../time.ts";
import { type FairQueue, joinQueue, serveNext } from "./fair-queue.ts";

/** How long one turn takes. */
const turnTime: Millis = 5;

type Account = string | undefined;

/** Ambient, so that no function has to pass it on. The account is named once it is known. */
const owners = new AsyncLocalStorage<{ account: Account }>();

/** When the last turn of anyone began, on the clock of `performance.now`. */
let turnBegan: Millis = Number.NEGATIVE_INFINITY;
let isTurnDue = false;
const waiting: FairQueue<Account, () => void> = new Map();
/**
 * What the turns of each account have taken, counted from what the one that had the last turn had taken by then: who has not
 * worked for a while begins there, and is owed nothing. Only what is above that is kept.
 */
const used = new Map<Account, Millis>();
let leastUsed: Millis = 0;

/** Runs the work, and all asynchronous work that it begins, in the turns of nobody until `nameTurnOwner` is called in it. */
export function runInUnownedTurns<T>(work: () => T): T {
  return owners.run({ account: undefined }, work);
}

/** From now on the turns of this work are the account's, as in `Principal`. */
export function nameTurnOwner(account: string): void {
  const owner = owners.getStore();
  if (owner !== undefined) owner.account = account;
}

/** Runs the work, and all asynchronous work that it begins, in the turns of this account. */
export function runInTurnsOf<T>(account: string, work: () => T): T {
  return owners.run({ account }, work);
}

/** Resolves in a turn of the event loop of its own. */
export function waitForTurn(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  joinQueue(waiting, owners.getStore()?.account, resolve);
  scheduleTurn();
  return promise;
}

/** The turn lasts from one immediate to the next: what it is for is done in the microtasks between them. */
function scheduleTurn(): void {
  if (isTurnDue) return;
  isTurnDue = true;
  let account: Account;
  setImmediate(() => {
    isTurnDue = false;
    turnBegan = performance.now();
    account = beginNext();
  });
  setImmediate(() => {
    used.set(account, leastUsed + Math.max(0, performance.now() - turnBegan));
    if (waiting.size > 0) scheduleTurn();
  });
}

/** Gives the turn to the account that has used the least, of these to the one that waits for the longest time. */
function beginNext(): Account {
  for (const [account, millis] of used)
    if (millis <= leastUsed && !waiting.has(account)) used.delete(account);
  let next: Account;
  serveNext(waiting, countUsed, (own, account) => {
    const [first] = own;
    if (first === undefined) return false;
    next = account;
    leastUsed = countUsed(account);
    own.delete(first);
    first();
    return true;
  });
  return next;
}

function countUsed(account: Account): Millis {
  return Math.max(leastUsed, used.get(account) ?? 0);
}

let passing: Promise<void> | undefined;

/**
 * Waits for a turn where the present one has lasted some milliseconds, and else resolves at once: work in many short steps
 * would wait for all others before each of them, and work in few long steps only a few times. One caller goes on at a time:
 * those who ask at the same moment would all see that the turn is young.
 */
export async function yieldToEventLoop(): Promise<void> {
  while (passing !== undefined) await passing;
  if (isTurnOver()) return waitForTurn();
  passing = letPass();
}

/**
 * Microtasks until whoever works next has gone on: one for the caller of `yieldToEventLoop`, two for who awaits that caller,
 * three for a loop over a generator that is the caller, four where another one passes that on with `yield*`.
 */
const ticksToPass = 4;

async function letPass(): Promise<void> {
  for (let tick = 0; tick < ticksToPass; tick += 1) await undefined;
  passing = undefined;
}

/** Also where the last turn of anyone has long ended, and where a test has put the clock back. */
function isTurnOver(): boolean {
  return Math.abs(performance.now() - turnBegan) >= turnTime;
}

/** Items that are visited in one step: some milliseconds of work where each is a span. */
export const itemsPerTurn = 2_000;

/** Yields the items in chunks, and to the event loop between them. @throws the signal's reason */
export async function* takeTurns<T>(items: Iterable<T>, signal?: AbortSignal): AsyncGenerator<readonly T[]> {
  let chunk: T[] = [];
  for (const item of items) {
    chunk.push(item);
    if (chunk.length < itemsPerTurn) continue;
    yield chunk;
    chunk = [];
    await yieldToEventLoop();
    signal?.throwIfAborted();
  }
  if (chunk.length > 0) yield chunk;
}

/** As `yieldToEventLoop`, without a promise where it would resolve at once. It throws the signal's reason. */
export function createPause(signal?: AbortSignal): () => Promise<void> | undefined {
  const pause = async () => {
    await waitForTurn();
    signal?.throwIfAborted();
  };
  return () => (isTurnOver() ? pause() : undefined);
}

/** Visits each item, in turns of the event loop. @throws the signal's reason */
export async function visitInTurns<T>(
  items: Iterable<T>,
  visit: (item: T) => void,
  signal?: AbortSignal,
): Promise<void> {
  const pause = createPause(signal);
  for (const item of items) {
    visit(item);
    const paused = pause();
    if (paused !== undefined) await paused;
  }
}

/** As `Array.prototype.map`, in turns of the event loop. @throws the signal's reason */
export async function mapInTurns<T, R>(
  items: Iterable<T>,
  map: (item: T) => R,
  signal?: AbortSignal,
): Promise<R[]> {
  const mapped: R[] = [];
  await visitInTurns(items, (item) => mapped.push(map(item)), signal);
  return mapped;
}

/** As `Map.groupBy`, in turns of the event loop. @throws the signal's reason */
export async function groupInTurns<T>(
  items: Iterable<T>,
  keyOf: (item: T) => string,
  signal?: AbortSignal,
): Promise<ReadonlyMap<string, readonly T[]>> {
  const groups = new Map<string, T[]>();
  const add = (item: T) => {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  };
  await visitInTurns(items, add, signal);
  return groups;
}

/** Work that can pause after each of its steps, some milliseconds long. */
export type Steps<T> = Generator<undefined, T>;

/** Does all steps without a pause. */
export function runSteps<T>(steps: Steps<T>): T {
  let step = steps.next();
  while (step.done !== true) step = steps.next();
  return step.value;
}

/** Yields to the event loop between the steps. @throws the signal's reason */
export async function takeSteps<T>(steps: Steps<T>, signal?: AbortSignal): Promise<T> {
  let step = steps.next();
  while (step.done !== true) {
    await yieldToEventLoop();
    signal?.throwIfAborted();
    step = steps.next();
  }
  return step.value;
}

/** As `Array.prototype.toSorted`, in turns of the event loop. @throws the signal's reason */
export function sortInTurns<T>(
  items: readonly T[],
  compare: (a: T, b: T) => number,
  signal?: AbortSignal,
): Promise<readonly T[]> {
  return takeSteps(sortInSteps(items, compare), signal);
}

/** Sorts as `Array.prototype.sort` does, in a new array: parts of it first, which are then merged. */
export function* sortInSteps<T>(items: readonly T[], compare: (a: T, b: T) => number): Steps<T[]> {
  let runs: T[][] = [];
  for (let first = 0; first < items.length; first += itemsPerTurn) {
    if (first > 0) yield;
    runs.push(items.slice(first, first + itemsPerTurn).sort(compare));
  }
  while (runs.length > 1) {
    const merged: T[][] = [];
    for (let at = 0; at < runs.length; at += 2) {
      const [left = [], right] = runs.slice(at, at + 2);
      merged.push(right === undefined ? left : yield* mergeInSteps(left, right, compare));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

/** Of items that are equal, those of `left` come first. */
function* mergeInSteps<T>(left: T[], right: T[], compare: (a: T, b: T) => number): Steps<T[]> {
  const merged: T[] = [];
  const rest = left.values();
  let next = rest.next();
  for (const item of right) {
    while (next.done !== true && compare(item, next.value) >= 0) {
      merged.push(next.value);
      next = rest.next();
      if (merged.length % itemsPerTurn === 0) yield;
    }
    merged.push(item);
    if (merged.length % itemsPerTurn === 0) yield;
  }
  for (; next.done !== true; next = rest.next()) {
    merged.push(next.value);
    if (merged.length % itemsPerTurn === 0) yield;
  }
  return merged;
}

/** The first `limit` items in the order of `compare`, sorted; takes no more memory than twice as many. */
export function* selectFirstInSteps<T>(
  items: Iterable<T>,
  limit: number,
  compare: (a: T, b: T) => number,
): Steps<readonly T[]> {
  let kept: T[] = [];
  let last: T | undefined;
  let seen = 0;
  for (const item of items) {
    seen += 1;
    if (seen % itemsPerTurn === 0) yield;
    if (last !== undefined && compare(item, last) >= 0) continue;
    kept.push(item);
    if (kept.length < 2 * limit) continue;
    kept = kept.sort(compare).slice(0, limit);
    last = kept.at(-1);
  }
  return kept.sort(compare).slice(0, limit);
}

/** The result of work that takes turns where it is long, and is done at once where it is short. */
export type MaybePromise<Value> = Value | Promise<Value>;
