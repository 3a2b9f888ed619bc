// Groups the names of metrics into families. Prometheus keeps series and no types: a histogram or summary is recognised
// by the names and labels of its parts.
import { sortInSteps, takeSteps, visitInTurns } from "../../../src/core/async/turns.ts";
import type { ForcedLabels } from "../../../src/store/metrics.ts";
import { matchEqual, metricName, type Selector, select } from "../client/promql.ts";

/** A `plain` metric is a single name, whose type its targets or its samples show; `both` is as in `MetricShape`. */
type FamilyKind = "plain" | "histogram" | "both" | "summary";

/** Which parts some series of a family has. */
export interface Family {
  readonly kind: FamilyKind;
  readonly hasCount: boolean;
  readonly hasSum: boolean;
  /** Buckets with a range (`vmrange`) instead of a bound, as VictoriaMetrics writes them. */
  readonly hasRanges: boolean;
}

/** The metrics under some forced labels, sorted by name. */
export type FamilyListing = ReadonlyMap<string, Family>;

/** The names of all series, and of those with and without some labels. */
export interface NameSets {
  readonly all: ReadonlySet<string>;
  readonly withBounds: ReadonlySet<string>;
  readonly withRanges: ReadonlySet<string>;
  readonly withQuantiles: ReadonlySet<string>;
  readonly withoutQuantiles: ReadonlySet<string>;
}

/** All series of one name under the forced labels. */
export function selectPart(match: ForcedLabels, name: string): Selector {
  return select(match, [matchEqual(metricName, name)]);
}

/** All series of each name of a histogram or summary; empty for a metric that has one name. */
export function selectAllParts(match: ForcedLabels, name: string, family: Family): readonly Selector[] {
  if (family.kind === "plain") return [];
  return [name, ...listParts(name, family)].map((part) => selectPart(match, part));
}

/** Beside the quantiles or native samples, which have the name of the family. */
function listParts(name: string, { kind, hasCount, hasSum, hasRanges }: Family): readonly string[] {
  const hasBuckets = hasRanges || kind !== "summary";
  const suffixes = [hasCount && "_count", hasSum && "_sum", hasBuckets && "_bucket"];
  return suffixes.flatMap((suffix) => (suffix === false ? [] : name + suffix));
}

/** A cache key: the same for the same labels in any order. */
export function formatMatchKey(match: ForcedLabels): string {
  return JSON.stringify(Object.fromEntries(Object.entries(match).sort(([a], [b]) => (a < b ? -1 : 1))));
}

const plain: Family = { kind: "plain", hasCount: false, hasSum: false, hasRanges: false };

/**
 * The families behind the names. Buckets make a histogram, also without count or sum. A summary has a count, and a sum or
 * quantiles: `x_count` by itself is a metric of its own. A summary without quantiles has nothing else. A histogram or
 * summary may have native samples by its own name. The parts of `uncounted` are no counts of observations.
 */
export async function groupIntoFamilies(
  sets: NameSets,
  candidates: FamilyCandidates,
  uncounted: ReadonlySet<string>,
  signal: AbortSignal,
): Promise<FamilyListing> {
  const metrics: (readonly [string, Family])[] = [];
  const parts = new Set<string>();
  const addFamily = ([name, family]: readonly [string, Family]): void => {
    if (uncounted.has(name)) return;
    metrics.push([name, family]);
    parts.add(name);
    if (family.hasCount) parts.add(`${name}_count`);
    if (family.hasSum) parts.add(`${name}_sum`);
    if (hasBuckets(name, sets)) parts.add(`${name}_bucket`);
  };
  await visitInTurns(candidates, addFamily, signal);
  const addOther = (name: string): void => {
    if (!parts.has(name)) metrics.push([name, plain]);
  };
  await visitInTurns(sets.all, addOther, signal);
  const listing = new Map<string, Family>();
  const sorted = await takeSteps(
    sortInSteps(metrics, ([a], [b]) => (a < b ? -1 : 1)),
    signal,
  );
  await visitInTurns(sorted, ([name, family]) => listing.set(name, family), signal);
  return listing;
}

export interface DoubtfulFamily {
  readonly name: string;
  /** The names of its parts. */
  readonly parts: readonly string[];
}

/**
 * The histograms whose buckets may be something else, such as recorded rates: they lack a part, or have the name of a
 * recording rule.
 */
export function listDoubtfulHistograms(
  sets: NameSets,
  candidates: FamilyCandidates,
  signal: AbortSignal,
): Promise<readonly DoubtfulFamily[]> {
  const isDoubtful = (name: string, { hasCount, hasSum }: Family): boolean =>
    sets.withBounds.has(`${name}_bucket`) && (!hasCount || !hasSum || name.includes(":"));
  return listDoubtful(candidates, isDoubtful, signal);
}

/** The summaries of a count and a sum alone, which may be two gauges. */
export function listDoubtfulSummaries(
  sets: NameSets,
  candidates: FamilyCandidates,
  signal: AbortSignal,
): Promise<readonly DoubtfulFamily[]> {
  const isDoubtful = (name: string): boolean => !hasBuckets(name, sets) && !sets.withQuantiles.has(name);
  return listDoubtful(candidates, isDoubtful, signal);
}

async function listDoubtful(
  candidates: FamilyCandidates,
  isDoubtful: (name: string, family: Family) => boolean,
  signal: AbortSignal,
): Promise<readonly DoubtfulFamily[]> {
  const doubtful: DoubtfulFamily[] = [];
  const add = ([name, family]: readonly [string, Family]): void => {
    if (isDoubtful(name, family)) doubtful.push({ name, parts: listParts(name, family) });
  };
  await visitInTurns(candidates, add, signal);
  return doubtful;
}

/** The families by the names of their parts, before any is known to be no family, as `uncounted`. */
type FamilyCandidates = ReadonlyMap<string, Family>;

export async function findFamilyCandidates(sets: NameSets, signal: AbortSignal): Promise<FamilyCandidates> {
  const candidates = new Map<string, Family>();
  const addFamilies = (names: ReadonlySet<string>, suffix: string): Promise<void> =>
    visitInTurns(
      names,
      (part) => {
        const name = part.endsWith(suffix) ? part.slice(0, -suffix.length) : "";
        const family = name === "" || candidates.has(name) ? undefined : classifyFamily(name, sets);
        if (family !== undefined) candidates.set(name, family);
      },
      signal,
    );
  await addFamilies(sets.all, "_count");
  await addFamilies(sets.withBounds, "_bucket");
  await addFamilies(sets.withRanges, "_bucket");
  return candidates;
}

function hasBuckets(name: string, { withBounds, withRanges }: NameSets): boolean {
  return withBounds.has(`${name}_bucket`) || withRanges.has(`${name}_bucket`);
}

/** `undefined` if the name is that of another metric, or of none. */
function classifyFamily(name: string, sets: NameSets): Family | undefined {
  const { all, withBounds, withRanges, withQuantiles, withoutQuantiles } = sets;
  const hasCount = all.has(`${name}_count`);
  const hasSum = all.has(`${name}_sum`);
  const hasRanges = withRanges.has(`${name}_bucket`);
  const hasQuantiles = withQuantiles.has(name);
  const hasNative = hasQuantiles ? withoutQuantiles.has(name) : all.has(name);
  const of = (kind: FamilyKind): Family => ({ kind, hasCount, hasSum, hasRanges });
  if (withBounds.has(`${name}_bucket`)) {
    if (!hasNative) return isGaugeHistogramPart(name, all) ? undefined : of("histogram");
    return hasCount ? of("both") : undefined;
  }
  if (hasRanges) return hasNative ? undefined : of("summary");
  if (!hasCount || !(hasSum || hasQuantiles)) return undefined;
  if (!hasNative) return of("summary");
  return hasQuantiles && hasSum ? of("both") : undefined;
}

/** The count and the sum of a gauge histogram have other names, by which OpenMetrics tells it. */
function isGaugeHistogramPart(name: string, all: ReadonlySet<string>): boolean {
  return !all.has(`${name}_count`) && (all.has(`${name}_gcount`) || all.has(`${name}_gsum`));
}
