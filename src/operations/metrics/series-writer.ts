// Prints series, of which an answer may have millions of points. Into bytes, of which a text is made piece by piece: a text
// for each opening and each value, all of them joined, costs four times as much. Pieces do not stay bytes, because memory
// outside of V8's heap counts towards its large collections of garbage, and a text that is young does not.

import { createView } from "../../core/bytes.ts";
import type { Buckets } from "../../core/rows.ts";
import { printMillis } from "../../core/time.ts";
import { maxNumberBytes, writeNumber } from "../../metrics/float-text.ts";
import { charsPerChunk } from "../runtime/operation.ts";

/** A piece of an answer that is being printed. Its functions are the module's, as those of `resolvers/prometheus/client/response-scanner.ts`. */
export interface ChunkWriter {
  bytes: Buffer;
  view: DataView;
  /** Where it ends. */
  end: number;
  isAscii: boolean;
  readonly buckets: Buckets;
  /** What stands before the value of each bucket, as far as it was printed: a time costs more than a value. */
  readonly openings: Buffer[];
  readonly number: Float64Array;
}

/** Points are printed some at a time, so that a piece of the answer is not much longer than `charsPerChunk`. */
export const pointsPerTurn = 100;

const pointEnd = "},";
const maxPointBytes = 64 + maxNumberBytes;
const chunkBytes = charsPerChunk + pointsPerTurn * maxPointBytes;
/** So many points of a series have their openings kept, which is more than most ranges have. */
const maxCachedOpenings = 16_384;

export function createChunkWriter(buckets: Buckets): ChunkWriter {
  const room = Buffer.alloc(0);
  return {
    bytes: room,
    view: createView(room),
    end: 0,
    isAscii: true,
    buckets,
    openings: [],
    number: new Float64Array(1),
  };
}

export function printText(piece: ChunkWriter, text: string): void {
  ensureRoom(piece, 3 * text.length);
  const bytes = piece.bytes.write(text, piece.end);
  if (bytes !== text.length) piece.isAscii = false;
  piece.end += bytes;
}

/** What stands between other things: of ASCII, and short. */
export function printAscii(piece: ChunkWriter, text: string): void {
  ensureRoom(piece, text.length);
  const { bytes: room, end: at } = piece;
  for (let index = 0; index < text.length; index += 1) room[at + index] = text.charCodeAt(index);
  piece.end = at + text.length;
}

/** A number that is finite. */
export function printNumber(piece: ChunkWriter, number: number): void {
  ensureRoom(piece, maxNumberBytes);
  piece.number[0] = number;
  piece.end = writeNumber(piece.view, piece.end, piece.number, 0);
}

/**
 * Prints the finite values of the buckets from `first` until before `end`, each with the time at which its bucket starts,
 * and tells how many points that were. All is printed but the brace that closes the last point; unless it `begins` a
 * series, it begins with the one that closes the point before.
 */
export function printPoints(
  piece: ChunkWriter,
  values: Float64Array,
  { first, end }: { readonly first: number; readonly end: number },
  begins: boolean,
): number {
  ensureRoom(piece, (end - first) * maxPointBytes);
  const { bytes: room, view } = piece;
  let { end: at } = piece;
  let points = 0;
  for (let bucket = first; bucket < end; bucket += 1) {
    if (!Number.isFinite(values[bucket])) continue;
    const opening = findOpening(piece, bucket);
    const skipped = begins && points === 0 ? pointEnd.length : 0;
    room.set(skipped === 0 ? opening : opening.subarray(skipped), at);
    at = writeNumber(view, at + opening.length - skipped, values, bucket);
    points += 1;
  }
  piece.end = at;
  return points;
}

/** What is printed; the next piece begins. */
export function takeText(piece: ChunkWriter): string {
  const text = piece.bytes.toString(piece.isAscii ? "latin1" : "utf8", 0, piece.end);
  piece.end = 0;
  piece.isAscii = true;
  return text;
}

function findOpening(piece: ChunkWriter, bucket: number): Buffer {
  const known = piece.openings[bucket];
  if (known !== undefined) return known;
  const { start, step } = piece.buckets;
  const text = `${pointEnd}{"timestamp":"${printMillis(start + bucket * step)}","value":`;
  const opening = Buffer.from(text, "latin1");
  if (bucket < maxCachedOpenings) piece.openings[bucket] = opening;
  return opening;
}

function ensureRoom(piece: ChunkWriter, bytes: number): void {
  const { bytes: room, end: at } = piece;
  if (at + bytes <= room.length) return;
  piece.bytes = Buffer.allocUnsafeSlow(Math.max(chunkBytes, at + bytes));
  piece.bytes.set(room.subarray(0, at));
  piece.view = createView(piece.bytes);
}
