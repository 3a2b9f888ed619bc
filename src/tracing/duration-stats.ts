// Counts, means and exact percentiles of durations. A compressed span counts as the spans that it stands for, each with an
// equal share of the duration.
import { findFirstAtOrAfter } from "../core/collections.ts";
import type { Span } from "../core/rows.ts";
import type { Millis } from "../core/time.ts";
import type { SpanTally } from "../store/spans.ts";
import { calculateTotalTime } from "./spans/requests.ts";

export interface DurationStats {
  readonly add: (span: Span) => void;
  readonly addTally: (tally: SpanTally) => void;
  readonly count: () => number;
  readonly errorCount: () => number;
  /** Nanoseconds. */
  readonly total: () => bigint;
  /** 0 without spans. */
  readonly mean: () => Millis;
}

/** Keeps all durations. A tally of several spans must have its `lengths`. */
export interface DurationDistribution extends DurationStats {
  /** The nearest-rank percentile; 0 without spans. */
  readonly percentile: (percent: number) => Millis;
}

export function createDurationStats(): DurationStats {
  let count = 0;
  let errors = 0;
  let total = 0n;

  function addSpans({ status_code }: Span, spans: number, time: bigint): void {
    count += spans;
    if (status_code === "ERROR") errors += spans;
    total += time;
  }

  return {
    add: (span) => addSpans(span, span.count, calculateTotalTime(span)),
    addTally: ({ span, isSingle, spans, total: time }) => addSpans(span, isSingle ? span.count : spans, time),
    count: () => count,
    errorCount: () => errors,
    total: () => total,
    mean: () => (count === 0 ? 0 : Number(total) / count / 1e6),
  };
}

export function createDurationDistribution(): DurationDistribution {
  const stats = createDurationStats();
  /** Of spans that stand for themselves, which are nearly all. */
  let singles: number[] | Float64Array = [];
  const weighted: WeightedValue[] = [];

  function add(span: Span): void {
    const value = Number(calculateTotalTime(span)) / span.count;
    if (span.count === 1) {
      if (!Array.isArray(singles)) singles = Array.from(singles);
      singles.push(value);
    } else weighted.push({ value, weight: span.count });
    stats.add(span);
  }

  return {
    ...stats,
    add,
    addTally: (tally) => {
      if (tally.isSingle) return add(tally.span);
      if (tally.lengths === undefined) throw new Error("a tally of several spans without their durations");
      for (const { length, spans: weight } of tally.lengths) weighted.push({ value: length, weight });
      stats.addTally(tally);
    },
    percentile: (percent) => {
      // A typed array sorts hundred thousands of numbers in milliseconds.
      if (Array.isArray(singles)) singles = Float64Array.from(singles).sort();
      weighted.sort((a, b) => a.value - b.value);
      // Multiplies integers first: in floating point, 0.95 * 60 is not 57 exactly.
      const rank = Math.max(1, Math.ceil((percent * stats.count()) / 100));
      return findAtRank(singles, weighted, rank) / 1e6;
    },
  };
}

interface WeightedValue {
  readonly value: number;
  /** How often the value counts. */
  readonly weight: number;
}

/** The value at a rank, from 1, of both lists, which are sorted; 0 beyond their end. */
function findAtRank(singles: Float64Array, weighted: readonly WeightedValue[], rank: number): number {
  let passed = 0;
  let rest = rank;
  for (const { value, weight } of weighted) {
    const before = findFirstAtOrAfter(singles, value) - passed;
    if (rest <= before) break;
    rest -= before;
    passed += before;
    if (rest <= weight) return value;
    rest -= weight;
  }
  return singles[passed + rest - 1] ?? 0;
}
