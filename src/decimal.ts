// Decimals and the doubles nearest to them, both ways, as `Number` and `String` have them. Most values of a source have
// 16 or 17 digits; making a text of each to parse it, or to print it, costs several times what all the rest of an answer
// does. What the arithmetic here cannot decide is left to those two.

/** Powers of ten that a double holds exactly. */
const powers = Float64Array.from({ length: 23 }, (_, exponent) => 10 ** exponent);

// ---- Reading -----------------------------------------------------------------------------------------------------

/** Digits of a decimal's head, and of its tail at most: then head × 10^tail digits is exact. */
export const headDigits = 9;
export const tailDigits = 8;

/**
 * The double nearest to `(head × 10^tailLength + tail) / 10^decimals`, where head and tail are whole and have as many
 * digits as said above; NaN where this arithmetic cannot tell which of two doubles it is.
 */
export function nearest(head: number, tail: number, tailLength: number, decimals: number): number {
  const scale = powers[decimals] ?? Number.NaN;
  // Both terms are exact: 9 digits times 5^8 take 49 bits.
  const left = head * (powers[tailLength] ?? Number.NaN);
  const whole = left + tail;
  if (whole <= Number.MAX_SAFE_INTEGER) return whole / scale;
  // What rounding has taken off, exactly, since `left` is the greater term (Dekker's fast two-sum).
  const lost = tail - (whole - left);
  const quotient = whole / scale;
  // No remainder of a division needs more than one double.
  const product = quotient * scale;
  const rest = whole - product - lostOf(product, quotient, scale);
  const correction = (rest + lost) / scale;
  // The true value is `quotient` and the correction, of which two roundings leave a doubt of 2^-52. Where both ends of
  // a wider doubt round to one double, so does the truth (Ziv).
  const least = quotient + correction * (1 - doubt);
  return least === quotient + correction * (1 + doubt) ? least : Number.NaN;
}

const doubt = 2 ** -50;

/** What rounding has taken off a product of two doubles, exactly (Veltkamp, Dekker). */
function lostOf(product: number, a: number, b: number): number {
  const aHigh = upperHalf(a);
  const aLow = a - aHigh;
  const bHigh = upperHalf(b);
  const bLow = b - bHigh;
  return aLow * bLow - (product - aHigh * bHigh - aLow * bHigh - aHigh * bLow);
}

/** The upper 26 bits of a double. */
function upperHalf(value: number): number {
  const scaled = value * 134_217_729;
  return scaled - (scaled - value);
}

// ---- Printing ----------------------------------------------------------------------------------------------------

const minus = 0x2d;
const dot = 0x2e;
const zero = 0x30;

/** The longest text of a number: -0.0000012345678901234567. */
export const longestNumber = 25;

/** The texts of the numbers of four digits, as a view takes them. To print them as texts would delay each start by 6 ms. */
const fours = Uint32Array.from({ length: 10_000 }, (_, number) => {
  const [hundreds, ones] = [Math.floor(number / 100), number % 100];
  return (pair(hundreds) << 16) | pair(ones);
});

/** The bytes of two digits. */
function pair(number: number): number {
  const tens = Math.floor(number / 10);
  return ((zero + tens) << 8) | (zero + number - tens * 10);
}

/**
 * Writes a finite number as JSON has it: of the shortest decimals that are read as this double, the nearest. Tells where
 * it ends; up to `longestNumber` bytes behind `start` are written over.
 */
export function writeNumber(room: DataView, start: number, value: number): number {
  const size = Math.abs(value);
  let at = start;
  if (value < 0) room.setUint8(at++, minus);
  if (size < 1e9 && (size | 0) === size) return writeWhole(room, at, size);
  // What is smaller or larger may have an exponent, or no power of ten that makes 16 digits of it.
  if (!(size >= 1e-6 && size < 1e15)) return writeText(room, at, size);
  let decimals = 15;
  while (size >= (powers[16 - decimals] ?? 0)) decimals--;
  while (size * (powers[decimals] ?? 0) < 1e15) decimals++;
  const scale = powers[decimals] ?? Number.NaN;
  const scaled = size * scale;

  // Of 15 digits no two are read as one double, so that this one, less the zeros at its end, is the shortest.
  const fifteen = Math.round(scaled * 0.1);
  const isFifteen =
    Math.abs(fifteen * 10 - scaled) < 3 && fifteen / (powers[decimals - 1] ?? Number.NaN) === size;
  const whole = isFifteen ? fifteen * 10 : Math.floor(scaled);
  let head = Math.floor(whole / 1e8);
  let tail = whole - head * 1e8;
  let last = 0;
  if (!isFifteen) {
    const rest = scaled - whole + lostOf(scaled, size, scale);
    const more = Math.round(rest);
    // One below no tail, or above the greatest: the sum is as exact.
    const read = nearest(head, tail + more, 8, decimals);
    if (read === size) {
      tail += more;
      if (Math.abs(rest - more) > clear) return writeText(room, at, size);
    } else {
      const tenths = Math.round(rest * 10);
      if (Number.isNaN(read) || Math.abs(rest * 10 - tenths) > clear) return writeText(room, at, size);
      const units = Math.floor(tenths / 10);
      tail += units;
      last = tenths - units * 10;
    }
    const carry = Math.floor(tail / 1e8);
    head += carry;
    tail -= carry * 1e8;
  }

  const point = at + Math.max(1, 16 - decimals);
  const zeros = Math.max(0, decimals - 15);
  for (let before = 1; before <= zeros; before++) room.setUint8(at + before, zero);
  writeDigits(room, at + 1 + zeros, head, tail, last);
  for (; at < point; at++) room.setUint8(at, room.getUint8(at + 1));
  room.setUint8(point, dot);
  let end = point + 2 + decimals;
  while (room.getUint8(end - 1) === zero) end--;
  return end - 1 === point ? point : end;
}

/** Away from the middle between two decimals by more than any rounding here. */
const clear = 0.5 - 2 ** -20;

/** Eight digits, eight more and one. */
function writeDigits(room: DataView, at: number, head: number, tail: number, last: number): void {
  const first = (head / 10_000) | 0;
  const third = (tail / 10_000) | 0;
  room.setUint32(at, fours[first] ?? 0);
  room.setUint32(at + 4, fours[head - first * 10_000] ?? 0);
  room.setUint32(at + 8, fours[third] ?? 0);
  room.setUint32(at + 12, fours[tail - third * 10_000] ?? 0);
  room.setUint8(at + 16, zero + last);
}

/** A whole number below 10^9, in arithmetic on integers of 32 bits. */
function writeWhole(room: DataView, start: number, number: number): number {
  let end = start + 1;
  for (let least = 10; least <= number; least *= 10) end++;
  let left = number | 0;
  for (let at = end - 1; at >= start; at--) {
    const tenth = (left / 10) | 0;
    room.setUint8(at, zero + left - tenth * 10);
    left = tenth;
  }
  return end;
}

function writeText(room: DataView, start: number, value: number): number {
  const text = String(value);
  for (let at = 0; at < text.length; at++) room.setUint8(start + at, text.charCodeAt(at));
  return start + text.length;
}
