// Durations as figures that can be added up: count, errors, exact total, and a histogram with which percentiles are within 1 %.
import { requireLast } from "../../core/collections.ts";
import type { Span } from "../../core/rows.ts";
import type { Millis } from "../../core/time.ts";
import { calculateTotalTime } from "../spans/requests.ts";

export interface DurationFigures {
  count: number;
  errors: number;
  /** Nanoseconds. */
  total: bigint;
  /** Spans by the range that their duration lies in, see `findRange`. */
  readonly lengths: Map<number, number>;
}

/** The factor between the bounds of a range: its geometric middle is within 1 % of all durations in it. */
const growth = Math.log(1.02);
/** The range of the duration 0. */
const zeroRange = -1;

export function createDurationFigures(): DurationFigures {
  return { count: 0, errors: 0, total: 0n, lengths: new Map() };
}

/** Adds a span, or the spans that a compressed span stands for, each with an equal share of the duration. */
export function addSpan(figures: DurationFigures, span: Span): void {
  const total = calculateTotalTime(span);
  figures.count += span.count;
  if (span.status_code === "ERROR") figures.errors += span.count;
  figures.total += total;
  addLength(figures, findRange(Number(total) / span.count), span.count);
}

export function addFigures(sum: DurationFigures, { count, errors, total, lengths }: DurationFigures): void {
  sum.count += count;
  sum.errors += errors;
  sum.total += total;
  for (const [range, spans] of lengths) addLength(sum, range, spans);
}

function addLength({ lengths }: DurationFigures, range: number, spans: number): void {
  lengths.set(range, (lengths.get(range) ?? 0) + spans);
}

/** 0 without spans. */
export function calculateMean({ count, total }: Pick<DurationFigures, "count" | "total">): Millis {
  return count === 0 ? 0 : Number(total) / count / 1e6;
}

/** The nearest-rank percentile; 0 without spans. */
export function findPercentile({ count, lengths }: DurationFigures, percent: number): Millis {
  if (count === 0) return 0;
  // Multiplies integers first: in floating point, 0.95 * 60 is not 57 exactly.
  let rest = Math.max(1, Math.ceil((percent * count) / 100));
  const sorted = [...lengths].sort(([a], [b]) => a - b);
  for (const [range, spans] of sorted) {
    rest -= spans;
    if (rest <= 0) return calculateMiddle(range) / 1e6;
  }
  return calculateMiddle(requireLast(sorted)[0]) / 1e6;
}

/** The number of the range of a duration in nanoseconds. A share of a nanosecond counts as one. */
function findRange(nanos: number): number {
  return nanos === 0 ? zeroRange : Math.floor(Math.log(Math.max(nanos, 1)) / growth);
}

function calculateMiddle(range: number): number {
  return range === zeroRange ? 0 : Math.exp((range + 0.5) * growth);
}

/** About how many bytes of memory figures take: a map has at least room for four entries, and then for up to twice its own. */
export function measureFigures({ lengths }: DurationFigures): number {
  return 250 + 60 * lengths.size;
}

/** About how many bytes of memory a text takes. */
export function measureText(text: string): number {
  return 40 + 2 * text.length;
}
