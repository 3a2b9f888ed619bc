// Counts, means and percentiles of durations. Exact: a percentile is the value at its rank. A span that stands for
// several equal ones counts as that many, each as long as its share.
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
  readonly mean: () => Millis;
}

/** Keeps every length, which `DurationStats` do not: tallies have to tell them, unless they are of whole spans. */
export interface DurationDistribution extends DurationStats {
  /** The least value that at least so many percent of the values do not pass (nearest rank). */
  readonly percentile: (percent: number) => Millis;
}

export function createDurationStats(): DurationStats {
  let count = 0;
  let errors = 0;
  let total = 0n;

  function take({ status_code }: Span, spans: number, time: bigint): void {
    count += spans;
    if (status_code === "ERROR") errors += spans;
    total += time;
  }

  return {
    add: (span) => take(span, span.count, calculateTotalTime(span)),
    addTally: ({ span, isSingle: whole, spans, total: time }) => take(span, whole ? span.count : spans, time),
    count: () => count,
    errorCount: () => errors,
    total: () => total,
    mean: () => (count === 0 ? 0 : Number(total) / count / 1e6),
  };
}

export function createDurationDistribution(): DurationDistribution {
  const figures = createDurationStats();
  const values: { readonly value: number; readonly weight: number }[] = [];
  let sorted = true;

  function add(span: Span): void {
    values.push({ value: Number(calculateTotalTime(span)) / span.count, weight: span.count });
    sorted = false;
    figures.add(span);
  }

  return {
    ...figures,
    add,
    addTally: (tally) => {
      if (tally.isSingle) return add(tally.span);
      for (const { length, spans: weight } of tally.lengths ?? []) values.push({ value: length, weight });
      sorted = false;
      figures.addTally(tally);
    },
    percentile: (percent) => {
      if (!sorted) values.sort((a, b) => a.value - b.value);
      sorted = true;
      // A product of integers first: 0.95 * 60 would be a little less than 57.
      let rest = Math.ceil((percent * figures.count()) / 100);
      for (const { value, weight } of values) {
        rest -= weight;
        if (rest <= 0) return value / 1e6;
      }
      return 0;
    },
  };
}
