// Narrows selectors towards some of the series that they select.
import {
  type Matcher,
  matchAnyOf,
  measureAlternative,
  metadataLabels,
  narrowSelector,
  type Selector,
} from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { readLabel } from "./series-reader.ts";

/** A label with more values than this is not narrowed. */
const maxValuesPerLabel = 100;
/** Of all values of a selector. An expression may have two selectors, and VictoriaMetrics takes 16 KiB unless told otherwise. */
const maxValueBytes = 6_000;

/** Chunks small enough to be narrowed by every label alone. */
export function chunkSeries<T extends Labels>(series: readonly T[]): readonly (readonly T[])[] {
  const chunks: T[][] = [];
  let bytes = 0;
  for (const labels of series) {
    const size = Math.max(0, ...Object.values(labels).map(measureAlternative));
    const chunk = chunks.at(-1);
    if (chunk !== undefined && chunk.length < maxValuesPerLabel && bytes + size <= maxValueBytes) {
      chunk.push(labels);
      bytes += size;
    } else {
      chunks.push([labels]);
      bytes = size;
    }
  }
  return chunks;
}

/** Narrows the selector towards these series. It never finds fewer, but may find others, which the caller filters out. */
export function narrowToSeries(selector: Selector, series: readonly Labels[]): Selector {
  const keys = new Set(series.flatMap((labels) => Object.keys(labels)));
  for (const label of metadataLabels) keys.delete(label);
  return narrowSelector(selector, matchSeries(series, [...keys]));
}

/** Matches these series by the labels that have room for their values; those with the most values come first. */
export function matchSeries(series: readonly Labels[], keys: readonly string[]): readonly Matcher[] {
  const matchers: Matcher[] = [];
  let room = maxValueBytes;
  const labels = keys.map((key) => ({ key, values: new Set(series.map((one) => readLabel(one, key))) }));
  for (const { key, values } of labels.sort((a, b) => b.values.size - a.values.size)) {
    if (values.size > maxValuesPerLabel) continue;
    const bytes = [...values].reduce((sum, value) => sum + measureAlternative(value), 0);
    if (bytes > room) continue;
    room -= bytes;
    matchers.push(matchAnyOf(key, [...values]));
  }
  return matchers;
}
