// Prints the points of series, of which an answer may have millions. Into bytes: a text for each opening and each value,
// all of them joined, costs four times as much.
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

const comma = 0x2c;
const minus = 0x2d;
const dot = 0x2e;
const zero = 0x30;
const closeBracket = 0x5d;

const endOfPoint = "},";
/** An opening, and the longest value: -1.2345678901234567e-308. */
const charsOfPoint = 64 + 24;
/** So many points of a series have their openings kept, which is more than most ranges have. */
const mostOpenings = 16_384;
/** No two decimal numbers of up to 15 digits share a double. */
const mostThousandths = 1e15;

export function createPrinter({ start, step, count }: Buckets): PrintPoints {
  const turn = Math.min(count, pointsOfTurn);
  const room = Buffer.allocUnsafe(turn * charsOfPoint);
  const longRoom = Buffer.allocUnsafe(turn * charsOfPoint);
  // By bucket of the turn, as `thousandthsOf`; NaN where there is no point.
  const thousandths = new Float64Array(turn);
  const printOpening = (bucket: number) =>
    Buffer.from(`${endOfPoint}{"timestamp":"${printMillis(start + bucket * step)}","value":`, "latin1");
  const kept: Buffer[] = [];
  // Printed once for all series, because a time costs more to print than a value.
  const openingOf =
    count > mostOpenings ? printOpening : (bucket: number) => (kept[bucket] ??= printOpening(bucket));

  return (values, { first, end }, missing, begins) => {
    const long: number[] = [];
    let points = 0;
    for (let bucket = first; bucket < end; bucket += 1) {
      const value = valueAt(values, bucket, missing);
      const short = thousandthsOf(value);
      thousandths[bucket - first] = short;
      if (Number.isNaN(short)) continue;
      points += 1;
      if (short === tooLong) long.push(value);
    }
    if (points === 0) return { count: 0, text: "" };
    // All at once, because printing each by itself takes three times as long.
    if (long.length > 0) longRoom.write(JSON.stringify(long), "latin1");
    let nextLong = "[".length;
    let at = 0;
    for (let bucket = first; bucket < end; bucket += 1) {
      const short = thousandths[bucket - first] ?? Number.NaN;
      if (Number.isNaN(short)) continue;
      const opening = openingOf(bucket);
      room.set(opening, at);
      at += opening.length;
      if (short !== tooLong) {
        if (short < 0) room[at++] = minus;
        at = writeThousandths(room, at, Math.abs(short));
        continue;
      }
      for (;;) {
        const byte = longRoom[nextLong++] ?? closeBracket;
        if (byte === comma || byte === closeBracket) break;
        room[at++] = byte;
      }
    }
    return { count: points, text: room.toString("latin1", begins ? endOfPoint.length : 0, at) };
  };
}

const tooLong = Number.POSITIVE_INFINITY;

/**
 * How many thousandths the value is, where the decimal number of so many is its shortest text: where that is nearest to
 * the value, no number of as few digits is another name of it. NaN for NaN.
 */
function thousandthsOf(value: number): number {
  const rounded = Math.round(value * 1_000);
  if (rounded / 1_000 === value && Math.abs(rounded) < mostThousandths) return rounded;
  return Number.isNaN(value) ? value : tooLong;
}

/** Writes the number without zeros at its end, and tells where it ends. */
function writeThousandths(room: Buffer, start: number, thousandths: number): number {
  const whole = Math.floor(thousandths / 1_000);
  const high = Math.floor(whole / 1e9);
  let at = start;
  if (high > 0) at = writeDigits(room, at, high, digitsOf(high));
  const low = whole - high * 1e9;
  at = writeDigits(room, at, low, high > 0 ? 9 : digitsOf(low));
  let rest = thousandths - whole * 1_000;
  if (rest > 0) room[at++] = dot;
  for (let unit = 100; rest > 0; unit /= 10) {
    const digit = Math.floor(rest / unit);
    room[at++] = zero + digit;
    rest -= digit * unit;
  }
  return at;
}

function digitsOf(number: number): number {
  let digits = 1;
  for (let least = 10; least <= number; least *= 10) digits += 1;
  return digits;
}

/** Writes a whole number below 10^9, with zeros before it, and tells where it ends. */
function writeDigits(room: Buffer, start: number, number: number, digits: number): number {
  // Arithmetic on integers of 32 bits, which is several times faster.
  let left = number | 0;
  for (let at = start + digits - 1; at >= start; at -= 1) {
    const tenth = (left / 10) | 0;
    room[at] = zero + left - tenth * 10;
    left = tenth;
  }
  return start + digits;
}
