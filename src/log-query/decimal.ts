// Numbers as decimal text. Contract: "compared exactly, not as doubles". Nothing here is proportional to an exponent:
// 1e999999999 costs ten characters.
import { numberPattern } from "./ast.ts";

/** sign × 0.digits × 10^(exponent + shift); `digits` has no zero at either end, and is empty for zero alone. */
interface Decimal {
  readonly sign: -1 | 0 | 1;
  readonly digits: string;
  readonly exponent: Exponent;
  /** At most the length of the text. */
  readonly shift: number;
}
/** As text, since it may be longer than what it belongs to; without zeros in front. */
interface Exponent {
  readonly isNegative: boolean;
  readonly digits: string;
}

/** The number that a text spells by `numberPattern`, or undefined. */
export function parseDecimal(text: string): Decimal | undefined {
  if (!numberPattern.test(text)) return undefined;
  const start = text.startsWith("-") ? 1 : 0;
  const mark = text.search(/[eE]/);
  const end = mark === -1 ? text.length : mark;
  const dot = text.indexOf(".");
  const whole = text.slice(start, dot === -1 ? end : dot);
  const all = dot === -1 ? whole : whole + text.slice(dot + 1, end);
  // Loops, since /0+$/ is quadratic on a long run of zeros that something follows.
  let from = 0;
  while (all[from] === "0") from++;
  if (from === all.length) return { sign: 0, digits: "", exponent: noExponent, shift: 0 };
  let to = all.length;
  while (all[to - 1] === "0") to--;
  const shift = whole.length - from;
  const exponent = mark === -1 ? noExponent : parseExponent(text.slice(mark + 1));
  return { sign: start === 1 ? -1 : 1, digits: all.slice(from, to), exponent, shift };
}

const noExponent: Exponent = { isNegative: false, digits: "" };

function parseExponent(text: string): Exponent {
  let from = /^[+-]/.test(text) ? 1 : 0;
  while (text[from] === "0") from++;
  return { isNegative: text.startsWith("-"), digits: text.slice(from) };
}

/** Negative, zero or positive as `left` is less than, equal to or greater than `right`. */
export function orderDecimals(left: Decimal, right: Decimal): number {
  if (left.sign !== right.sign) return left.sign - right.sign;
  const order = orderMagnitudes(left, right);
  if (order !== 0) return order < 0 ? -left.sign : left.sign;
  // Fractions after "0.": the shorter of two that begin alike is the smaller, which is how strings compare.
  if (left.digits === right.digits) return 0;
  return left.digits < right.digits ? -left.sign : left.sign;
}

/** Doubles hold so many digits and a shift. */
const mostExactDigits = 15;

/**
 * Exponents of which one has two digits more than the other differ by more than any shift, so that a long one is turned into
 * a number only beside another long one.
 */
function orderMagnitudes(left: Decimal, right: Decimal): number {
  const [a, b] = [left.exponent, right.exponent];
  const longest = Math.max(a.digits.length, b.digits.length);
  if (longest <= mostExactDigits) return toNumber(a) + left.shift - (toNumber(b) + right.shift);
  if (a.digits.length > b.digits.length + 1) return a.isNegative ? -1 : 1;
  if (b.digits.length > a.digits.length + 1) return b.isNegative ? 1 : -1;
  if (a.isNegative !== b.isNegative) return a.isNegative ? -1 : 1;
  const difference = toBigInt(a) + BigInt(left.shift) - (toBigInt(b) + BigInt(right.shift));
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}

function toNumber({ isNegative, digits }: Exponent): number {
  return isNegative ? -Number(digits) : Number(digits);
}

function toBigInt({ isNegative, digits }: Exponent): bigint {
  return isNegative ? -BigInt(digits) : BigInt(digits);
}
