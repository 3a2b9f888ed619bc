// Prints the points of series, of which an answer may have millions. Into bytes: a text for each opening and each value,
// all of them joined, costs four times as much.
import { longestNumber, writeNumber } from "../decimal.ts";
import type { Buckets } from "../model.ts";
import { printMillis } from "../time.ts";

export interface Points {
  readonly count: number;
  /** All but the brace that closes the last point. Begins with the one that closes the point before, if there is one. */
  readonly text: string;
}

/**
 * Prints the values of the buckets from `first` until before `end`, `pointsOfTurn` at most, each with the time at which
 * its bucket starts. For a value that is not finite stands `missing`, and where that is NaN there is no point. `begins`:
 * no point of the series is before them.
 */
export type PrintPoints = (
  values: Float64Array,
  range: { readonly first: number; readonly end: number },
  missing: number,
  begins: boolean,
) => Points;

/** A sum may pass what a number holds: infinity is no value either. */
export function valueAt(values: Float64Array, bucket: number, missing: number): number {
  const value = values[bucket] ?? Number.NaN;
  return Number.isFinite(value) ? value : missing;
}

/** Points are printed some at a time, so that a piece of the answer is not much longer than `pieceChars`. */
export const pointsOfTurn = 500;

const endOfPoint = "},";
const longestOpening = 64;
/** So many points of a series have their openings kept, which is more than most ranges have. */
const mostOpenings = 16_384;

export function createPrinter({ start, step, count }: Buckets): PrintPoints {
  const room = Buffer.allocUnsafe(Math.min(count, pointsOfTurn) * (longestOpening + longestNumber));
  const view = new DataView(room.buffer, room.byteOffset, room.length);
  const printOpening = (bucket: number) =>
    Buffer.from(`${endOfPoint}{"timestamp":"${printMillis(start + bucket * step)}","value":`, "latin1");
  const kept: Buffer[] = [];
  // Printed once for all series, because a time costs more to print than a value.
  const openingOf =
    count > mostOpenings ? printOpening : (bucket: number) => (kept[bucket] ??= printOpening(bucket));

  return (values, { first, end }, missing, begins) => {
    let points = 0;
    let at = 0;
    for (let bucket = first; bucket < end; bucket += 1) {
      const value = valueAt(values, bucket, missing);
      if (Number.isNaN(value)) continue;
      points += 1;
      const opening = openingOf(bucket);
      room.set(opening, at);
      at = writeNumber(view, at + opening.length, value);
    }
    if (points === 0) return { count: 0, text: "" };
    return { count: points, text: room.toString("latin1", begins ? endOfPoint.length : 0, at) };
  };
}
