// Narrows selectors towards some of the series that they select.
import { matchAnyOf, metadataLabels, narrowSelector, type Selector } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { readLabel } from "./series-reader.ts";

/** A label with more values than this is not narrowed. */
export const maxValuesPerLabel = 100;

/** Chunks small enough to be narrowed by every label. */
export function chunkSeries<T>(items: readonly T[]): readonly (readonly T[])[] {
  return Array.from({ length: Math.ceil(items.length / maxValuesPerLabel) }, (_, part) =>
    items.slice(part * maxValuesPerLabel, (part + 1) * maxValuesPerLabel),
  );
}

/** Narrows the selector towards these series. It never finds fewer, but may find others, which the caller filters out. */
export function narrowToSeries(selector: Selector, series: readonly Labels[]): Selector {
  const keys = new Set(series.flatMap((labels) => Object.keys(labels)));
  for (const label of metadataLabels) keys.delete(label);
  const matchers = [...keys].flatMap((key) => {
    const values = new Set(series.map((labels) => readLabel(labels, key)));
    return values.size > maxValuesPerLabel ? [] : [matchAnyOf(key, [...values])];
  });
  return narrowSelector(selector, matchers);
}
