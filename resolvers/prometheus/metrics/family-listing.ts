// Groups the names of metrics into families. Prometheus keeps series and no types: a histogram or summary is recognised
// by the names and labels of its parts.
import type { ForcedLabels } from "../../../src/store/metrics.ts";
import { matchEqual, metricName, type Selector, select } from "../client/promql.ts";

/** A `plain` metric is a single name, whose type its targets or its samples show; `both` is as in `MetricShape`. */
export type FamilyKind = "plain" | "histogram" | "both" | "summary";

/** The metrics under some forced labels, sorted by name. */
export type FamilyListing = ReadonlyMap<string, FamilyKind>;

/** All series of one name under the forced labels. */
export function selectPart(match: ForcedLabels, name: string): Selector {
  return select(match, [matchEqual(metricName, name)]);
}

/** A cache key: the same for the same labels in any order. */
export function formatMatchKey(match: ForcedLabels): string {
  return JSON.stringify(Object.fromEntries(Object.entries(match).sort(([a], [b]) => (a < b ? -1 : 1))));
}

/**
 * The families behind the names. A family needs both its count and its sum: `x_count` without `x_sum` is a metric of its
 * own. A summary without quantiles has nothing else. A histogram or summary may have native samples by its own name.
 */
export function groupIntoFamilies(
  names: ReadonlySet<string>,
  withBounds: ReadonlySet<string>,
  withQuantiles: ReadonlySet<string>,
  withoutQuantiles: ReadonlySet<string>,
): FamilyListing {
  const parts = new Set<string>();
  const families = new Map<string, FamilyKind>();
  for (const name of names) {
    const family = name.endsWith("_count") ? name.slice(0, -"_count".length) : "";
    const [bucket, sum] = [`${family}_bucket`, `${family}_sum`];
    if (family === "" || !names.has(sum)) continue;
    const isSummary = withQuantiles.has(family);
    const hasNative = isSummary ? withoutQuantiles.has(family) : names.has(family);
    const kind = classifyFamily(withBounds.has(bucket), isSummary, hasNative);
    if (kind === undefined) continue;
    families.set(family, kind);
    for (const part of [family, name, sum]) parts.add(part);
    if (withBounds.has(bucket)) parts.add(bucket);
  }
  const plain = [...names].filter((name) => !parts.has(name)).map((name) => [name, "plain"] as const);
  return new Map([...families, ...plain].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** `undefined` if the name of the family is that of another metric. */
function classifyFamily(hasBounds: boolean, isSummary: boolean, hasNative: boolean): FamilyKind | undefined {
  if (hasBounds) return hasNative ? "both" : "histogram";
  if (isSummary) return hasNative ? "both" : "summary";
  return hasNative ? undefined : "summary";
}
