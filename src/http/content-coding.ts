// Answers coded for the way to their client (RFC 9110, section 8.4.1), piece by piece: a coder is asked for what it holds
// back as soon as the next piece has to be waited for, so that a tail arrives as it does uncoded. Loaded with the first
// coded answer.
import { Readable } from "node:stream";
import { createGzip, createZstdCompress, constants as zlib } from "node:zlib";
import { waitForTurn } from "../core/async/turns.ts";
import type { CompleteBody, StreamedBody } from "./body.ts";
import type { BodyCoding } from "./request.ts";

/** What is coded at once. A text of megabytes would hold up the thread that codes it, and the other ones that wait. */
const bytesAtOnce = 65_536;

/**
 * Windows and tables that keep each coder below 256 KiB, the output that waits in it included: a client that reads slowly
 * holds one for as long as it likes. Larger ones make answers smaller by a tenth.
 */
const gzipWindow = { windowBits: 13, memLevel: 6 };
const zstdWindow = {
  [zlib.ZSTD_c_windowLog]: 14,
  [zlib.ZSTD_c_hashLog]: 12,
  [zlib.ZSTD_c_chainLog]: 12,
};
const chunkSize = 4_096;

interface Coder {
  /** What comes out for these bytes; often nothing yet. */
  readonly code: (bytes: Uint8Array) => Promise<Uint8Array>;
  /** All that was held back: a decoder then has every byte that went in. */
  readonly flush: () => Promise<Uint8Array>;
  /** The same, and the end, without which a decoder knows that the body was cut. */
  readonly finish: () => Promise<Uint8Array>;
  readonly close: () => void;
}

/** The body in this coding. Fails as the body does, without an end that a decoder would take. */
export function encodeBody(
  body: CompleteBody | StreamedBody,
  coding: BodyCoding,
  gone: AbortSignal,
): StreamedBody {
  const source = typeof body !== "string" && "next" in body ? body : toPieces(body, gone);
  const coder = createCoder(coding);
  const pieces = encodePieces(source, coder);
  return {
    // A tail's aborts also when it is complete, so it closes no coder: reading fails where there is no more point in it.
    signal: source.signal,
    next: async () => {
      try {
        return await pieces.next();
      } catch (error) {
        coder.close();
        throw error;
      }
    },
    cancel: async () => {
      coder.close();
      await source.cancel();
    },
  };
}

/** Complete bodies are cut up. */
function toPieces(body: CompleteBody, signal: AbortSignal): StreamedBody {
  const texts = typeof body === "string" || body instanceof Uint8Array ? [body] : body;
  const pieces = texts.values();
  return {
    signal,
    next: async () => {
      const { value } = pieces.next();
      return value === undefined ? { done: true, value } : { done: false, value };
    },
    cancel: async () => {},
  };
}

async function* encodePieces(source: StreamedBody, coder: Coder): AsyncGenerator<Uint8Array, void, void> {
  let isHeldBack = false;
  for (;;) {
    const pending = source.next();
    if (isHeldBack && !(await isSettledSoon(pending))) {
      isHeldBack = false;
      yield await coder.flush();
    }
    const piece = await pending;
    if (piece.done === true) break;
    const bytes = typeof piece.value === "string" ? Buffer.from(piece.value) : piece.value;
    for (let at = 0; at < bytes.length; at += bytesAtOnce) {
      const coded = await coder.code(bytes.subarray(at, at + bytesAtOnce));
      isHeldBack = true;
      if (coded.length > 0) yield coded;
    }
  }
  yield await coder.finish();
  coder.close();
}

/** Whether a piece is there within a turn of the event loop. */
async function isSettledSoon(pending: Promise<unknown>): Promise<boolean> {
  let isSettled = false;
  const settle = () => {
    isSettled = true;
  };
  pending.then(settle, settle);
  await waitForTurn();
  return isSettled;
}

function createCoder({ name, level }: BodyCoding): Coder {
  const stream =
    name === "gzip"
      ? createGzip({ level, chunkSize, ...gzipWindow })
      : createZstdCompress({
          chunkSize,
          params: { [zlib.ZSTD_c_compressionLevel]: level, ...zstdWindow },
        });
  let chunks: Buffer[] = [];
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  // A coder fails only where it was closed, and whoever waits for it hears of that.
  stream.on("error", () => {});
  let breakOff: (() => void) | undefined;
  stream.once("close", () => breakOff?.());
  /** What has come out when `step` calls back. */
  const collect = (step: (over: () => void) => void) =>
    new Promise<Uint8Array>((resolve, reject) => {
      breakOff = () => reject(new Error("The coder is closed"));
      if (stream.destroyed) breakOff();
      else step(() => resolve(takeAll()));
    });
  const takeAll = () => {
    const all = Buffer.concat(chunks);
    chunks = [];
    return all;
  };
  const flushMode = name === "gzip" ? zlib.Z_SYNC_FLUSH : zlib.ZSTD_e_flush;
  return {
    code: (bytes) => collect((over) => stream.write(bytes, over)),
    flush: () => collect((over) => stream.flush(flushMode, over)),
    finish: () => collect((over) => stream.once("end", over).end()),
    close: () => stream.destroy(),
  };
}

/** The same for the body of a response of the fetch API, as a stream of Node. */
export function encodeStreamOfBytes(
  body: AsyncIterable<Uint8Array> | null,
  coding: BodyCoding,
  gone: AbortSignal,
): Readable {
  const source = body?.[Symbol.asyncIterator]();
  const coded = encodeBody(
    {
      signal: gone,
      next: async () => (await source?.next()) ?? { done: true, value: undefined },
      cancel: async () => void (await source?.return?.()),
    },
    coding,
    gone,
  );
  return Readable.from(toIterable(coded), { objectMode: false });
}

async function* toIterable({ next, cancel }: StreamedBody): AsyncGenerator<string | Uint8Array> {
  let isComplete = false;
  try {
    for (let piece = await next(); piece.done !== true; piece = await next()) yield piece.value;
    isComplete = true;
  } finally {
    if (!isComplete) await cancel();
  }
}
