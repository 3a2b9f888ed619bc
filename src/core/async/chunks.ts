// The chunks of a body that arrives, checked and joined a piece at a time: to join tens of megabytes at once takes as long as
// many requests.
import { isUtf8 } from "node:buffer";
import { type Steps, takeSteps } from "./turns.ts";

/** What is joined in one turn: about a millisecond. */
const bytesPerTurn = 1_048_576;

/** The bytes of all chunks, joined with turns of the event loop between. @throws the signal's reason */
export function joinChunks(chunks: readonly Buffer[], signal: AbortSignal): Promise<Buffer> {
  return takeSteps(copyChunks(chunks), signal);
}

function* copyChunks(chunks: readonly Buffer[]): Steps<Buffer> {
  const joined = Buffer.allocUnsafe(chunks.reduce((sum, { length }) => sum + length, 0));
  let [at, turnEnd] = [0, bytesPerTurn];
  for (const chunk of chunks) {
    if (at >= turnEnd) {
      yield;
      turnEnd = at + bytesPerTurn;
    }
    at += chunk.copy(joined, at);
  }
  return joined;
}

/**
 * Checks an answer while it arrives. Decoding replaces what is not UTF-8: a name would be answered as another one. A chunk may
 * end inside a character.
 */
interface Utf8Check {
  /** Returns false once the bytes so far cannot begin a text. */
  readonly push: (chunk: Buffer) => boolean;
  /** Whether all that was pushed is a whole text. */
  readonly end: () => boolean;
}

const noBytes: Buffer = Buffer.alloc(0);

export function createUtf8Check(): Utf8Check {
  /** The bytes of a character that the last chunk cut. */
  let cut = noBytes;
  return {
    push(chunk) {
      // A copy only where a character was cut, which hardly ever happens.
      const bytes = cut.length === 0 ? chunk : Buffer.concat([cut, chunk]);
      const end = findCutCharacter(bytes);
      cut = end === bytes.length ? noBytes : Buffer.from(bytes.subarray(end));
      return isUtf8(bytes.subarray(0, end));
    },
    end: () => cut.length === 0,
  };
}

/** Where an incomplete character at the end begins; the length where there is none. */
function findCutCharacter(bytes: Buffer): number {
  const { length } = bytes;
  for (let at = length - 1; at >= 0 && at >= length - 3; at -= 1) {
    const byte = bytes.readUInt8(at);
    if (byte < 0x80) return length;
    if (byte < 0xc0) continue;
    const size = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    return length - at < size ? at : length;
  }
  return length;
}
