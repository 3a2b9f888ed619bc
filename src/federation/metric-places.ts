// The places of a site's metrics, and what all ways of merging them agree on: which series are equal.
import { createUnsupportedError, type Refused } from "../core/errors.ts";
import type { Measure } from "../core/rows.ts";
import type { ForcedLabels, MetricStore, Tags } from "../store/metrics.ts";

/** One place of a site's metrics. */
export interface MetricPlace {
  readonly backend: string;
  readonly store: MetricStore;
  readonly match: ForcedLabels;
  /** The label that distinguishes the scrapers of one target. It is no tag. */
  readonly replica?: string | undefined;
}

/** How many samples may be read for one answer, if its own limit is not higher. */
const readLimit = 5_000_000;

export function chooseSampleLimit(pointLimit: number): number {
  return Math.max(pointLimit, readLimit);
}

/** Whether samples before the buckets are part of the measure. */
export function countsGrowth({ of }: Measure): boolean {
  return of === "increment" || of === "observations";
}

/** The tags of a series without the label of its scraper. */
export function dropReplica({ replica }: Pick<MetricPlace, "replica">, tags: Tags): Tags {
  if (replica === undefined || !Object.hasOwn(tags, replica)) return tags;
  return Object.fromEntries(Object.entries(tags).filter(([key]) => key !== replica));
}

/** Equal for series with equal tags. */
export function formatTagsKey(tags: Tags): string {
  return JSON.stringify(Object.entries(tags).sort(([a], [b]) => (a < b ? -1 : 1)));
}

export function joinBackends(places: readonly Pick<MetricPlace, "backend">[]): string {
  return [...new Set(places.map(({ backend }) => backend))].join(", ");
}

/** Nobody can say whether two equal series are of one target, or of two with the same labels. */
export function createEqualSeriesError(
  places: readonly MetricPlace[],
  metric: string,
  tags: Tags,
): Refused<"not_supported_by_backend"> {
  const printed = Object.entries(tags).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
  const series = `${metric}{${printed.join(", ")}}`;
  const backends = joinBackends(places);
  return createUnsupportedError(
    backends,
    `${series} is in ${backends}. If scrapers of one target keep it, name the label that distinguishes them in \`replica\``,
  );
}
