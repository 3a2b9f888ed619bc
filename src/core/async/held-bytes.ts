// How many bytes of documents requests hold at once: each, those of one token, and all. What is bounded by number alone may be
// of any size.
import { findLargest } from "../collections.ts";
import { LimitReached, type LimitUse, Refused, TooMany } from "../errors.ts";
import { visitInTurns } from "./turns.ts";

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

/** What all requests of a server hold. */
export interface HeldLedger {
  heldBytes: number;
  /** By account. */
  readonly heldBy: Map<string, number>;
}

export function createHeldLedger(): HeldLedger {
  return { heldBytes: 0, heldBy: new Map() };
}

/** One token holds as much as one request may at most, so that two hold all. */
const tokensForAll = 2;

export function measureHeldUse({ heldBytes, heldBy }: HeldLedger, limitBytes: number): LimitUse {
  return {
    held: heldBytes / (tokensForAll * limitBytes),
    token_held: findLargest(heldBy) / limitBytes,
  };
}

/** Of one request, over all of its operations. Its release gives back what the ledger counts for it. */
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

/** @throws {TooMany} {LimitReached} */
function addToLedger(ledger: HeldLedger, account: string, bytes: number, limitBytes: number): void {
  const { heldBytes, heldBy } = ledger;
  const own = (heldBy.get(account) ?? 0) + bytes;
  // What is given back is never refused, whatever the limit is by now.
  if (bytes > 0 && own > limitBytes) throw new TooMany(1, "token_held");
  if (bytes > 0 && heldBytes + bytes > tokensForAll * limitBytes)
    throw new LimitReached("held", "overloaded", `${heldBytes} bytes of documents are held`);
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
  const message = `The request would hold more than ${limit.toLocaleString("en")} bytes of documents at once; narrow the range or the filters, or ask for fewer rows`;
  return new Refused("result_too_large", message, { limit });
}

/** What V8 takes for a value beside its text, roughly. */
const bytesPerValue = 24;

/** Roughly what a value takes in memory. */
export function measureHeld(value: unknown): number {
  let bytes = 0;
  // Without recursion: documents may be nested deeply.
  const rest: unknown[] = [value];
  while (rest.length > 0) {
    const next = rest.pop();
    bytes += bytesPerValue;
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
  return visitInTurns(values, (value) => hold(measureHeld(value)), signal);
}
