import type { Counter } from "prom-client";

/** A series that begins with its first event has no growth that an alert could see. */
export function beginAtZero<Label extends string>(
  counter: Counter<Label>,
  label: Label,
  values: readonly string[],
): void {
  for (const value of values) counter.inc({ [label]: value } as Record<Label, string>, 0);
}
