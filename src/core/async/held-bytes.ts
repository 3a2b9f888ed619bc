// How many bytes requests hold at once, of documents and series, and of their own bodies: each, those of one token, and all. What
// is bounded by number alone may be of any size.
import { findLargest } from "../collections.ts";
import { LimitReached, type LimitUse, Refused, TooMany } from "../errors.ts";
import { itemsPerTurn, runSteps, type Steps, visitInTurns } from "./turns.ts";

export interface HeldBytes {
  /**
   * Counts bytes that are kept until the release.
   * @throws {Refused} `result_too_large` above what one request may hold
   * @throws {TooMany} The requests of the token hold as much as one may. @throws {LimitReached} All hold twice as much.
   */
  readonly hold: (bytes: number) => void;
  /** For what may be released before the rest, and is with the rest. */
  readonly openPart: () => HeldBytes;
  readonly release: () => void;
}

/** What all requests of a server hold of one kind. */
export interface HeldLedger {
  readonly kind: keyof typeof limitNames;
  heldBytes: number;
  /** By account. */
  readonly heldBy: Map<string, number>;
}

/** By what is held, the limits of all and of one token. */
const limitNames = {
  documents: ["held", "token_held"],
  bodies: ["bodies", "token_bodies"],
} as const;

export function createHeldLedger(kind: HeldLedger["kind"] = "documents"): HeldLedger {
  return { kind, heldBytes: 0, heldBy: new Map() };
}

/** All tokens together may hold what two may. */
const tokensForAll = 2;

/** `limitBytes` is that of one token. */
export function measureHeldUse({ kind, heldBytes, heldBy }: HeldLedger, limitBytes: number): LimitUse {
  const [all, ofToken] = limitNames[kind];
  return {
    [all]: heldBytes / (tokensForAll * limitBytes),
    [ofToken]: findLargest(heldBy) / limitBytes,
  };
}

/** Of one request, over all of its operations, which may hold as much as its token. Its release gives back what the ledger counts. */
export function createHeldBytes(
  limitBytes: number,
  shared?: { readonly ledger: HeldLedger; readonly account: string },
): HeldBytes {
  let heldBytes = 0;
  return openPart((bytes) => {
    if (heldBytes + bytes > limitBytes) throw createTooManyBytesError(limitBytes);
    if (shared !== undefined) addToLedger(shared.ledger, shared.account, bytes, limitBytes);
    heldBytes += bytes;
  });
}

/**
 * Counts bytes for an account, which holds at most `limitBytes`; what it gives back is negative.
 * @throws {TooMany} {LimitReached}
 */
export function addToLedger(ledger: HeldLedger, account: string, bytes: number, limitBytes: number): void {
  const { kind, heldBytes, heldBy } = ledger;
  const [all, ofToken] = limitNames[kind];
  const own = (heldBy.get(account) ?? 0) + bytes;
  // What is given back is never refused, whatever the limit is by now.
  if (bytes > 0 && own > limitBytes) throw new TooMany(1, ofToken);
  if (bytes > 0 && heldBytes + bytes > tokensForAll * limitBytes)
    throw new LimitReached(all, "overloaded", `${heldBytes} bytes of ${kind} are held`);
  ledger.heldBytes += bytes;
  if (own === 0) heldBy.delete(account);
  else heldBy.set(account, own);
}

/** `add` counts the bytes for the whole. */
function openPart(add: (bytes: number) => void): HeldBytes {
  let own = 0;
  let isReleased = false;
  const hold = (bytes: number): void => {
    // A source may still answer when its request is over.
    if (isReleased) return;
    add(bytes);
    own += bytes;
  };
  return {
    hold,
    openPart: () => openPart(hold),
    release: () => {
      if (!isReleased) add(-own);
      isReleased = true;
    },
  };
}

function createTooManyBytesError(limit: number): Refused {
  const message = `The request would hold more than ${limit.toLocaleString("en")} bytes of documents or series at once; narrow the range or the filters, or ask for fewer rows or series`;
  return new Refused("result_too_large", message, { limit });
}

/** What V8 takes for a value beside its text, roughly. */
const bytesPerValue = 24;

/** Roughly what a value takes in memory. */
export function measureHeld(value: unknown): number {
  return runSteps(measureInSteps(value));
}

function* measureInSteps(value: unknown): Steps<number> {
  let bytes = 0;
  let measured = 0;
  // Without recursion: documents may be nested deeply.
  const rest: unknown[] = [value];
  while (rest.length > 0) {
    const next = rest.pop();
    bytes += bytesPerValue;
    measured += 1;
    if (measured % itemsPerTurn === 0) yield;
    if (typeof next === "string") bytes += Buffer.byteLength(next);
    else if (typeof next === "object" && next !== null)
      for (const member of Object.values(next)) if (member !== undefined) rest.push(member);
  }
  return bytes;
}

/** Counts each value, in turns of the event loop. Errors as `hold`, and the signal's reason. */
export function holdEach(
  { hold }: HeldBytes,
  values: readonly unknown[],
  signal: AbortSignal,
): Promise<void> {
  return visitInTurns(holdInSteps(hold, values), () => {}, signal);
}

function* holdInSteps(hold: HeldBytes["hold"], values: readonly unknown[]): Steps<void> {
  for (const value of values) {
    hold(yield* measureInSteps(value));
    yield;
  }
}
