// Reads the digits of a decimal into the double nearest to them, as `Number` would of their text. Most values of a
// source have 16 or 17 digits, for which no single division is exact; making a text of each and parsing it would cost
// several times what reading all the rest of an answer does.

/** Powers of ten that a double holds exactly. */
const powers = Float64Array.from({ length: 23 }, (_, exponent) => 10 ** exponent);

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
  // whole - quotient × scale, exactly: the product as two doubles (Veltkamp, Dekker), and no remainder of a division
  // needs more than one.
  const product = quotient * scale;
  const quotientHigh = upperHalf(quotient);
  const quotientLow = quotient - quotientHigh;
  const scaleHigh = upperHalf(scale);
  const scaleLow = scale - scaleHigh;
  const rounded =
    quotientLow * scaleLow -
    (product - quotientHigh * scaleHigh - quotientLow * scaleHigh - quotientHigh * scaleLow);
  const rest = whole - product - rounded;
  const correction = (rest + lost) / scale;
  // The true value is `quotient` and the correction, of which two roundings leave a doubt of 2^-52. Where both ends of
  // a wider doubt round to one double, so does the truth (Ziv).
  const least = quotient + correction * (1 - doubt);
  return least === quotient + correction * (1 + doubt) ? least : Number.NaN;
}

const doubt = 2 ** -50;

/** The upper 26 bits of a double. */
function upperHalf(value: number): number {
  const scaled = value * 134_217_729;
  return scaled - (scaled - value);
}
