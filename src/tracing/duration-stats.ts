// Counts, means and exact percentiles of durations. A compressed span counts as the spans that it stands for, each with an
// equal share of the duration.
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
  const values: { readonly value: number; readonly weight: number }[] = [];
  let isSorted = true;

  function add(span: Span): void {
    values.push({ value: Number(calculateTotalTime(span)) / span.count, weight: span.count });
    isSorted = false;
    stats.add(span);
  }

  return {
    ...stats,
    add,
    addTally: (tally) => {
      if (tally.isSingle) return add(tally.span);
      if (tally.lengths === undefined) throw new Error("a tally of several spans without their durations");
      for (const { length, spans: weight } of tally.lengths) values.push({ value: length, weight });
      isSorted = false;
      stats.addTally(tally);
    },
    percentile: (percent) => {
      if (!isSorted) values.sort((a, b) => a.value - b.value);
      isSorted = true;
      // Multiplies integers first: in floating point, 0.95 * 60 is not 57 exactly.
      let rest = Math.ceil((percent * stats.count()) / 100);
      for (const { value, weight } of values) {
        rest -= weight;
        if (rest <= 0) return value / 1e6;
      }
      return 0;
    },
  };
}
