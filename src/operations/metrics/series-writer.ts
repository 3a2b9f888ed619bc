// Prints series, of which an answer may have millions of points. Into bytes, of which a text is made piece by piece: a text
// for each opening and each value, all of them joined, costs four times as much. Pieces do not stay bytes, because memory
// outside of V8's heap counts towards its large collections of garbage, and a text that is young does not.

import type { Buckets } from "../../core/rows.ts";
import { printMillis } from "../../core/time.ts";
import { longestNumber, writeNumber } from "../../metrics/float-text.ts";
import { pieceChars } from "../runtime/operation.ts";

/** A piece of an answer that is being printed. Its functions are the module's, as those of `resolvers/prometheus/client/response-scanner.ts`. */
export interface Piece {
  room: Buffer;
  view: DataView;
  /** Where it ends. */
  at: number;
  isAscii: boolean;
  readonly buckets: Buckets;
  /** What stands before the value of each bucket, as far as it was printed: a time costs more than a value. */
  readonly openings: Buffer[];
  readonly number: Float64Array;
}

/** Points are printed some at a time, so that a piece of the answer is not much longer than `pieceChars`. */
export const pointsOfTurn = 100;

const endOfPoint = "},";
const longestPoint = 64 + longestNumber;
const roomOfPiece = pieceChars + pointsOfTurn * longestPoint;
/** So many points of a series have their openings kept, which is more than most ranges have. */
const mostOpenings = 16_384;

export function createPiece(buckets: Buckets): Piece {
  const room = Buffer.alloc(0);
  return {
    room,
    view: viewOf(room),
    at: 0,
    isAscii: true,
    buckets,
    openings: [],
    number: new Float64Array(1),
  };
}

export function printText(piece: Piece, text: string): void {
  reserve(piece, 3 * text.length);
  const bytes = piece.room.write(text, piece.at);
  if (bytes !== text.length) piece.isAscii = false;
  piece.at += bytes;
}

/** What stands between other things: of ASCII, and short. */
export function printMark(piece: Piece, text: string): void {
  reserve(piece, text.length);
  const { room, at } = piece;
  for (let index = 0; index < text.length; index += 1) room[at + index] = text.charCodeAt(index);
  piece.at = at + text.length;
}

/** A number that is finite. */
export function printNumber(piece: Piece, number: number): void {
  reserve(piece, longestNumber);
  piece.number[0] = number;
  piece.at = writeNumber(piece.view, piece.at, piece.number, 0);
}

/**
 * Prints the finite values of the buckets from `first` until before `end`, each with the time at which its bucket starts,
 * and tells how many points that were. All is printed but the brace that closes the last point; unless it `begins` a
 * series, it begins with the one that closes the point before.
 */
export function printPoints(
  piece: Piece,
  values: Float64Array,
  { first, end }: { readonly first: number; readonly end: number },
  begins: boolean,
): number {
  reserve(piece, (end - first) * longestPoint);
  const { room, view } = piece;
  let { at } = piece;
  let points = 0;
  for (let bucket = first; bucket < end; bucket += 1) {
    if (!Number.isFinite(values[bucket])) continue;
    const opening = openingOf(piece, bucket);
    const skipped = begins && points === 0 ? endOfPoint.length : 0;
    room.set(skipped === 0 ? opening : opening.subarray(skipped), at);
    at = writeNumber(view, at + opening.length - skipped, values, bucket);
    points += 1;
  }
  piece.at = at;
  return points;
}

/** What is printed; the next piece begins. */
export function take(piece: Piece): string {
  const text = piece.room.toString(piece.isAscii ? "latin1" : "utf8", 0, piece.at);
  piece.at = 0;
  piece.isAscii = true;
  return text;
}

function openingOf(piece: Piece, bucket: number): Buffer {
  const known = piece.openings[bucket];
  if (known !== undefined) return known;
  const { start, step } = piece.buckets;
  const text = `${endOfPoint}{"timestamp":"${printMillis(start + bucket * step)}","value":`;
  const opening = Buffer.from(text, "latin1");
  if (bucket < mostOpenings) piece.openings[bucket] = opening;
  return opening;
}

function reserve(piece: Piece, bytes: number): void {
  const { room, at } = piece;
  if (at + bytes <= room.length) return;
  piece.room = Buffer.allocUnsafeSlow(Math.max(roomOfPiece, at + bytes));
  piece.room.set(room.subarray(0, at));
  piece.view = viewOf(piece.room);
}

function viewOf(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}
