// How many bytes of documents one request holds at once. What is bounded by number alone may be of any size.
import { Refused } from "./errors.ts";

export interface HeldBytes {
  /** Counts bytes that are kept until the release. @throws {Refused} `result_too_large` */
  readonly hold: (bytes: number) => void;
  /** For what may be released before the rest, and is with the rest. */
  readonly openPart: () => HeldBytes;
  readonly release: () => void;
}

/** Of one request, over all of its operations. */
export function createHeldBytes(limitBytes: number): HeldBytes {
  let heldBytes = 0;
  return openPart((bytes) => {
    if (heldBytes + bytes > limitBytes) throw createTooManyBytesError(limitBytes);
    heldBytes += bytes;
  });
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
