// Bounds and quantiles are numbers that a source may spell in several ways: an upgrade to version 3 rewrites `le="1"` as
// `1.0`, `2097152` as `2.097152e+06` and `2.5E-4` as `0.00025`. Series that differ in the spelling alone are one series.
import { groupInTurns, mapInTurns, visitInTurns } from "../../../src/core/async/turns.ts";
import { readNumber, requireFirst } from "../../../src/core/collections.ts";
import { parseBound, type Samples } from "../../../src/metrics/samples.ts";
import type { Labels } from "../client/response-scanner.ts";
import {
  createDuplicateSeriesError,
  formatSeriesKey,
  readLabel,
  type SeriesReader,
} from "./series-reader.ts";

const boundLabels = ["le", "quantile"] as const;

/** The spellings of the bound that all observations lie below. */
export const infinities: readonly string[] = ["Inf", "inf", "INF", "Infinity", "infinity"].flatMap((text) => [
  text,
  `+${text}`,
]);

export function hasBoundLabel(labels: Labels): boolean {
  return boundLabels.some((label) => Object.hasOwn(labels, label));
}

/** The same labels without bound and quantile, and so without their spelling. */
export function dropBoundLabels(labels: Labels): Labels {
  if (!hasBoundLabel(labels)) return labels;
  const { le: _, quantile: __, ...rest } = labels;
  return rest;
}

/** The key of a series with its bound and quantile as numbers: the same for all spellings. */
export function formatNumericKey(labels: Labels): string {
  if (!hasBoundLabel(labels)) return formatSeriesKey(labels);
  const spelt = { ...labels };
  for (const label of boundLabels) {
    const number = parseBound(labels[label] ?? "");
    if (!Number.isNaN(number)) spelt[label] = String(number);
  }
  return formatSeriesKey(spelt);
}

/** The series by `formatNumericKey`: the spellings of one series together. */
export function groupSpellings<T extends { readonly labels: Labels }>(
  series: readonly T[],
): Promise<ReadonlyMap<string, readonly T[]>> {
  return groupInTurns(series, ({ labels }) => formatNumericKey(labels));
}

/** As `groupSpellings`. @throws {Refused} if two series only differ in their metadata */
export async function groupDistinct<T extends { readonly labels: Labels }>(
  { backend }: SeriesReader,
  series: readonly T[],
): ReturnType<typeof groupSpellings<T>> {
  const groups = await groupSpellings(series);
  await visitInTurns(groups.values(), (spellings) => {
    if (spellings.length === 1) return;
    const keys = new Set(spellings.map(({ labels }) => formatSeriesKey(labels)));
    if (keys.size < spellings.length) throw createDuplicateSeriesError(backend);
  });
  return groups;
}

/**
 * Joins the samples of each series over its spellings, by time; of several of one time the greatest value counts, since
 * another would seem to be a restart. The labels are those of the spelling with the newest sample.
 */
export async function joinSpellings<T extends Samples & { readonly labels: Labels }>(
  series: readonly T[],
): Promise<readonly T[]> {
  if (!series.some(({ labels }) => hasBoundLabel(labels))) return series;
  const groups = await groupSpellings(series);
  return mapInTurns(groups.values(), (spellings) =>
    spellings.length === 1 ? requireFirst(spellings) : joinByTime(spellings),
  );
}

function joinByTime<T extends Samples>(spellings: readonly T[]): T {
  const byTime = new Map<number, number>();
  let newest = requireFirst(spellings);
  for (const one of spellings) {
    if ((one.times.at(-1) ?? 0) > (newest.times.at(-1) ?? 0)) newest = one;
    for (let index = 0; index < one.times.length; index++) {
      const [time, value] = [readNumber(one.times, index), readNumber(one.values, index)];
      const other = byTime.get(time);
      if (other === undefined || Number.isNaN(other) || value > other) byTime.set(time, value);
    }
  }
  const times = Float64Array.from(byTime.keys()).sort();
  return { ...newest, times, values: times.map((time) => byTime.get(time) ?? Number.NaN) };
}

/** The key of the histogram that a series of buckets belongs to. */
export function formatHistogramKey(labels: Labels): string {
  const { le: _, ...rest } = labels;
  return formatSeriesKey(rest);
}

/** The buckets of a classic histogram, each once, in ascending order of their bounds. */
export function sortByBound<T extends { readonly labels: Labels }>(
  series: readonly T[],
): readonly { readonly bound: number; readonly series: T }[] {
  return series
    .map((one) => ({ bound: parseBound(readLabel(one.labels, "le")), series: one }))
    .filter(({ bound }) => !Number.isNaN(bound))
    .sort((a, b) => a.bound - b.bound);
}
