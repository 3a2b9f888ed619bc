// Decimals and the doubles nearest to them, both ways, as `Number` and `String` have them. Most values of a source have
// 16 or 17 digits; making a text of each to parse it, or to print it, costs several times what all the rest of an answer
// does. What the arithmetic here cannot decide is left to those two. Numbers come and go in arrays of doubles: one
// that is passed or returned by itself may be boxed on the heap.

/** Powers of ten that a double holds exactly. */
const powersOfTen = Float64Array.from({ length: 23 }, (_, exponent) => 10 ** exponent);

// ---- Reading -----------------------------------------------------------------------------------------------------

const minus = 0x2d;
const dot = 0x2e;
const zero = 0x30;

/** Digits are added to the head while it is less; then it has nine of them at most. */
const fullHead = 1e5;

/**
 * Reads a number at `start`, with a sign and a point if they are there, into `numbers[index]`. Returns the index after its last
 * digit. Returns -1 where there is no digit, where this arithmetic cannot tell the nearest double, and where the digits may go on
 * beyond `end`, up to which the view is filled.
 */
// biome-ignore lint/complexity/noExcessiveCognitiveComplexity: calls and temporary objects for each number would cost more than the arithmetic (ADR 15)
export function scanNumber(
  view: DataView,
  start: number,
  end: number,
  numbers: Float64Array,
  index: number,
): number {
  const last = end - 4;
  if (start > last) return -1;
  const first = view.getUint8(start) === minus ? start + 1 : start;
  let at = first;
  let point = -1;
  let head = 0;
  let tail = 0;
  let tailLength = 0;
  while (at <= last) {
    // Four at once: each has its value once 0x30 is taken off, and all else a bit in its upper half, or with 6 more.
    const word = view.getInt32(at) ^ 0x30303030;
    if (((word | (word + 0x06060606)) & 0xf0f0f0f0) === 0) {
      const pairs = (word >>> 8) * 10 + word;
      const four = ((pairs >>> 16) & 0xff) * 100 + (pairs & 0xff);
      if (head < fullHead) head = head * 10_000 + four;
      else {
        tail = tail * 10_000 + four;
        tailLength += 4;
      }
      at += 4;
      continue;
    }
    for (let digit = view.getUint8(at) - zero; ; digit = view.getUint8(at) - zero) {
      if (digit < 0 || digit > 9) break;
      if (head < fullHead) head = head * 10 + digit;
      else {
        tail = tail * 10 + digit;
        tailLength += 1;
      }
      at += 1;
    }
    if (point < 0 && view.getUint8(at) === dot) {
      point = at;
      at += 1;
      continue;
    }
    if (at - first === (point < 0 ? 0 : 1)) return -1;
    const size = roundToNearest(head, tail, tailLength, point < 0 ? 0 : at - point - 1);
    if (Number.isNaN(size)) return -1;
    numbers[index] = first > start ? -size : size;
    return at;
  }
  return -1;
}

/**
 * The double nearest to `(head × 10^tailLength + tail) / 10^decimals`, where head and tail are whole, the head is less
 * than 10^9 and the tail has that many digits; NaN where this arithmetic cannot tell which of two doubles it is.
 */
function roundToNearest(head: number, tail: number, tailLength: number, decimals: number): number {
  // Both terms are to be exact: nine digits times 5^9 take 51 bits, eight times 5^11 take 53.
  if (tailLength > 9 && (tailLength > 11 || head >= 1e8)) return Number.NaN;
  const scale = powersOfTen[decimals] ?? Number.NaN;
  const left = head * (powersOfTen[tailLength] ?? Number.NaN);
  const whole = left + tail;
  if (whole <= Number.MAX_SAFE_INTEGER) return whole / scale;
  // What rounding has taken off, exactly, since `left` is the greater term (Dekker's fast two-sum).
  const lost = tail - (whole - left);
  const quotient = whole / scale;
  // No remainder of a division needs more than one double.
  const product = quotient * scale;
  const rest = whole - product - computeProductError(product, quotient, scale);
  const correction = (rest + lost) / scale;
  // The true value is `quotient` and the correction, of which two roundings leave a doubt of 2^-52. Where both ends of
  // a wider doubt round to one double, so does the truth (Ziv).
  const least = quotient + correction * (1 - quotientDoubt);
  return least === quotient + correction * (1 + quotientDoubt) ? least : Number.NaN;
}

const quotientDoubt = 2 ** -50;

/** What rounding has taken off a product of two doubles, exactly (Veltkamp, Dekker). */
function computeProductError(product: number, a: number, b: number): number {
  const aHigh = splitUpperHalf(a);
  const aLow = a - aHigh;
  const bHigh = splitUpperHalf(b);
  const bLow = b - bHigh;
  return aLow * bLow - (product - aHigh * bHigh - aLow * bHigh - aHigh * bLow);
}

/** The upper 26 bits of a double. */
function splitUpperHalf(value: number): number {
  const scaled = value * 134_217_729;
  return scaled - (scaled - value);
}

// ---- Printing ----------------------------------------------------------------------------------------------------

/** The longest text of a number: -0.0000012345678901234567. */
export const maxNumberBytes = 25;

/** The texts of the numbers of four digits, as a view takes them. To print them as texts would delay each start by 6 ms. */
const fourDigitTexts = Uint32Array.from({ length: 10_000 }, (_, number) => {
  const [hundreds, ones] = [Math.floor(number / 100), number % 100];
  return (encodePair(hundreds) << 16) | encodePair(ones);
});

/** The bytes of two digits. */
function encodePair(number: number): number {
  const tens = Math.floor(number / 10);
  return ((zero + tens) << 8) | (zero + number - tens * 10);
}

/**
 * Writes `numbers[index]`, which is finite, as JSON has it: of the shortest decimals that are read as this double, the
 * nearest. Tells where it ends; up to `maxNumberBytes` bytes behind `start` are written over.
 */
// biome-ignore lint/complexity/noExcessiveCognitiveComplexity: calls and temporary objects for each number would cost more than the arithmetic (ADR 15)
export function writeNumber(view: DataView, start: number, numbers: Float64Array, index: number): number {
  const value = numbers[index] ?? Number.NaN;
  const size = Math.abs(value);
  let at = start;
  if (value < 0) view.setUint8(at++, minus);
  if (size < 1e9 && (size | 0) === size) return writeWhole(view, at, size);
  // What is smaller or larger may have an exponent, or no power of ten that makes 16 digits of it.
  if (!(size >= 1e-6 && size < 1e15)) return writeText(view, at, size);
  let decimals = 15;
  while (size >= (powersOfTen[16 - decimals] ?? 0)) decimals--;
  while (size * (powersOfTen[decimals] ?? 0) < 1e15) decimals++;
  const scale = powersOfTen[decimals] ?? Number.NaN;
  const scaled = size * scale;

  // Of 15 digits no two are read as one double, so that this one, less the zeros at its end, is the shortest.
  const fifteen = Math.round(scaled * 0.1);
  const isFifteen =
    Math.abs(fifteen * 10 - scaled) < 3 && fifteen / (powersOfTen[decimals - 1] ?? Number.NaN) === size;
  const whole = isFifteen ? fifteen * 10 : Math.floor(scaled);
  let head = Math.floor(whole / 1e8);
  let tail = whole - head * 1e8;
  let last = 0;
  if (!isFifteen) {
    const rest = scaled - whole + computeProductError(scaled, size, scale);
    const more = Math.round(rest);
    // One below no tail, or above the greatest: the sum is as exact.
    const read = roundToNearest(head, tail + more, 8, decimals);
    if (read === size) {
      tail += more;
      if (Math.abs(rest - more) > tieMargin) return writeText(view, at, size);
    } else {
      const tenths = Math.round(rest * 10);
      if (Number.isNaN(read) || Math.abs(rest * 10 - tenths) > tieMargin) return writeText(view, at, size);
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
  for (let before = 1; before <= zeros; before++) view.setUint8(at + before, zero);
  writeDigits(view, at + 1 + zeros, head, tail, last);
  for (; at < point; at++) view.setUint8(at, view.getUint8(at + 1));
  view.setUint8(point, dot);
  let end = point + 2 + decimals;
  while (view.getUint8(end - 1) === zero) end--;
  return end - 1 === point ? point : end;
}

/** Away from the middle between two decimals by more than any rounding here. */
const tieMargin = 0.5 - 2 ** -20;

/** Eight digits, eight more and one. */
function writeDigits(view: DataView, at: number, head: number, tail: number, last: number): void {
  const first = (head / 10_000) | 0;
  const third = (tail / 10_000) | 0;
  view.setUint32(at, fourDigitTexts[first] ?? 0);
  view.setUint32(at + 4, fourDigitTexts[head - first * 10_000] ?? 0);
  view.setUint32(at + 8, fourDigitTexts[third] ?? 0);
  view.setUint32(at + 12, fourDigitTexts[tail - third * 10_000] ?? 0);
  view.setUint8(at + 16, zero + last);
}

/** A whole number below 10^9, in arithmetic on integers of 32 bits. */
function writeWhole(view: DataView, start: number, number: number): number {
  let end = start + 1;
  for (let least = 10; least <= number; least *= 10) end++;
  let left = number | 0;
  for (let at = end - 1; at >= start; at--) {
    const tenth = (left / 10) | 0;
    view.setUint8(at, zero + left - tenth * 10);
    left = tenth;
  }
  return end;
}

function writeText(view: DataView, start: number, value: number): number {
  const text = String(value);
  for (let at = 0; at < text.length; at++) view.setUint8(start + at, text.charCodeAt(at));
  return start + text.length;
}
