// Numbers as decimal text. Contract: "compared exactly, not as doubles". Nothing here is proportional to an exponent:
// 1e999999999 costs ten characters.
import { numberPattern } from "./ast.ts";

/** sign × 0.digits × 10^magnitude; `digits` has no zero at either end, and is empty for zero alone. */
interface Decimal {
  readonly sign: -1 | 0 | 1;
  readonly digits: string;
  /** A bigint only where the exponent has more digits than a double holds; the two compare exactly. */
  readonly magnitude: number | bigint;
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
  if (from === all.length) return { sign: 0, digits: "", magnitude: 0 };
  let to = all.length;
  while (all[to - 1] === "0") to--;
  const shift = whole.length - from;
  const exponent = mark === -1 ? "0" : text.slice(mark + 1);
  const magnitude =
    exponent.length <= 15 ? Number(exponent) + shift : BigInt(exponent.replace("+", "")) + BigInt(shift);
  return { sign: start === 1 ? -1 : 1, digits: all.slice(from, to), magnitude };
}

/** Negative, zero or positive as `left` is less than, equal to or greater than `right`. */
export function orderDecimals(left: Decimal, right: Decimal): number {
  if (left.sign !== right.sign) return left.sign - right.sign;
  if (left.magnitude < right.magnitude) return -left.sign;
  if (left.magnitude > right.magnitude) return left.sign;
  // Fractions after "0.": the shorter of two that begin alike is the smaller, which is how strings compare.
  if (left.digits === right.digits) return 0;
  return left.digits < right.digits ? -left.sign : left.sign;
}
