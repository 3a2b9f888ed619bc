// Counts, means and percentiles of durations. Exact: a percentile is the value at its rank. A span that stands for
// several equal ones counts as that many, each as long as its share.
import type { Span } from "../model.ts";
import type { SpanTally } from "../reader.ts";
import type { Millis } from "../time.ts";
import { timeOf } from "./request.ts";

export interface Figures {
  readonly add: (span: Span) => void;
  /** Percentiles need `lengths`, or whole spans. */
  readonly addTally: (tally: SpanTally) => void;
  readonly count: () => number;
  readonly errorCount: () => number;
  /** Nanoseconds. */
  readonly total: () => bigint;
  readonly mean: () => Millis;
  /** The least value that at least so many percent of the values do not pass (nearest rank). */
  readonly percentile: (percent: number) => Millis;
}

export function createFigures(): Figures {
  const values: { readonly value: number; readonly weight: number }[] = [];
  let sorted = true;
  let count = 0;
  let errors = 0;
  let total = 0n;

  function add(span: Span): void {
    const time = timeOf(span);
    values.push({ value: Number(time) / span.count, weight: span.count });
    sorted = false;
    count += span.count;
    if (span.status_code === "ERROR") errors += span.count;
    total += time;
  }

  return {
    add,
    addTally: (tally) => {
      const { span, whole, spans, lengths = [] } = tally;
      if (whole) return add(span);
      for (const { length, spans: weight } of lengths) values.push({ value: length, weight });
      sorted = false;
      count += spans;
      if (span.status_code === "ERROR") errors += spans;
      total += tally.total;
    },
    count: () => count,
    errorCount: () => errors,
    total: () => total,
    mean: () => (count === 0 ? 0 : Number(total) / count / 1e6),
    percentile: (percent) => {
      if (!sorted) values.sort((a, b) => a.value - b.value);
      sorted = true;
      // A product of integers first: 0.95 * 60 would be a little less than 57.
      let rest = Math.ceil((percent * count) / 100);
      for (const { value, weight } of values) {
        rest -= weight;
        if (rest <= 0) return value / 1e6;
      }
      return 0;
    },
  };
}
