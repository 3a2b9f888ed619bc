// A metric store over the metric stores of several backends. Measures are computed by their definitions over the series of
// all of them, never from the measures of groups.
//
// Two backends may have a series with equal labels: two scrapers watch one target, or it has moved from one to the other.
// Only `replica` tells that they are one series. Without it they are refused, since both answers could be meant.
import { mapAtOnce } from "../core/async/concurrency.ts";
import { createPause, mapInTurns, visitInTurns } from "../core/async/turns.ts";
import { compareLists } from "../core/collections.ts";
import { createUnsupportedError, Refused } from "../core/errors.ts";
import type { Buckets, MetricType, Series } from "../core/rows.ts";
import { findNewestBucket, selectGrowingBuckets } from "../metrics/newest-buckets.ts";
import type { CounterSamples } from "../metrics/samples.ts";
import type { MetricStore, SeriesMember, SeriesQuery } from "../store/metrics.ts";
import { combineMembers } from "./member-groups.ts";
import { listParts, mapParts } from "./member-parts.ts";
import {
  countsGrowth,
  createEqualSeriesError,
  formatTagsKey,
  joinBackends,
  type MetricPlace,
} from "./metric-places.ts";
import { isOpenPart, type PlaceMembers, refuseMovedSeries } from "./moved-series.ts";
import { readReplicated } from "./replicated-members.ts";
import { type IdentifiedPlace, identifyPlaces, type ReadablePlace } from "./series-identity.ts";

/** The forced labels are those of each place: those of a query are not used. */
export function createFederatedMetrics(list: readonly MetricPlace[]): MetricStore {
  const places = identifyPlaces(list);
  return {
    names: async (_, signal) => {
      const all = await mapAtOnce(places, ({ store, match }, own) => store.names(match, own), signal);
      return [...new Set(all.flat())].sort();
    },
    type: async (_, metric, signal) => (await findHolders(places, metric, signal)).map(({ type }) => type)[0],
    isTypeGuessed: async (_, metric, signal) => {
      const holders = await findHolders(places, metric, signal);
      return holders.length > 0 && holders.every(({ isGuessed }) => isGuessed);
    },
    tagKeys: async (_, metric, signal) => {
      const all = await mapAtOnce(
        places,
        ({ store, match }, own) => store.tagKeys(match, metric, own),
        signal,
      );
      if (all.every((found) => found === undefined)) return undefined;
      const combinations = all.flatMap((found, at) =>
        (found ?? []).map((keys) => keys.filter((key) => key !== places[at]?.replica)),
      );
      const distinct = new Map(combinations.map((keys) => [JSON.stringify(keys), keys]));
      return [...distinct.values()].filter((keys) => keys.length > 0).sort(compareLists);
    },
    series: (query, signal) => readSeries(places, query, signal),
  };
}

// ---- Types ------------------------------------------------------------------------------------------------------

interface Holder extends IdentifiedPlace {
  readonly type: MetricType;
  readonly isGuessed: boolean;
}

/**
 * The places that have the metric, all with the type that it has in all of them. What targets declare goes before what
 * samples seem to be; where samples alone tell, a metric that fell anywhere is a gauge.
 * @throws {Refused} where targets of two places declare different types
 */
async function findHolders(
  places: readonly IdentifiedPlace[],
  metric: string,
  signal: AbortSignal,
): Promise<readonly Holder[]> {
  const found = await mapAtOnce(
    places,
    async (place, own): Promise<readonly Holder[]> => {
      const { store, match } = place;
      const type = await store.type(match, metric, own);
      if (type === undefined) return [];
      return [{ ...place, type, isGuessed: (await store.isTypeGuessed?.(match, metric, own)) ?? false }];
    },
    signal,
  );
  const holders = found.flat();
  const declared = holders.filter(({ isGuessed }) => !isGuessed);
  const types = new Set((declared.length > 0 ? declared : holders).map(({ type }) => type));
  if (declared.length > 0 && types.size > 1) {
    const described = declared.map(({ backend, type }) => `a ${type} in ${backend}`).join(" and ");
    throw createUnsupportedError(joinBackends(declared), `${metric}, which is ${described}`);
  }
  const [only] = types;
  const type = types.size === 1 && only !== undefined ? only : "gauge";
  const others = places.filter(({ backend }) => !holders.some((holder) => holder.backend === backend));
  const isOwnGauge = type === "gauge" && declared.length > 0;
  if (holders.length > 0 && !isOwnGauge) await refuseDividedFamily(others, holders, metric, type, signal);
  return holders.map((holder) => ({ ...holder, type }));
}

/** What the names of a histogram's or summary's counts, sums and buckets end with, where a source keeps them by names. */
const partSuffixes = ["_count", "_sum", "_bucket"];

/**
 * A source makes one metric of the parts of a histogram or summary, if it has enough of them; the parts that are alone are metrics
 * of their own. A declared gauge is none of them, whatever its name; one that is guessed may be a count that restarted.
 * @throws {Refused} where one place has the metric, and another one of `others` has parts of it alone
 */
async function refuseDividedFamily(
  others: readonly MetricPlace[],
  holders: readonly MetricPlace[],
  metric: string,
  type: MetricType,
  signal: AbortSignal,
): Promise<void> {
  const suffix = partSuffixes.find((one) => metric.endsWith(one));
  const family = suffix === undefined ? metric : metric.slice(0, -suffix.length);
  if (type !== "measurement" && suffix === undefined) return;
  await mapAtOnce(
    others,
    async (place, own) => {
      const names = new Set(await place.store.names(place.match, own));
      const findType = (name: string) => place.store.type(place.match, name, own);
      const parts = type === "measurement" ? partSuffixes.map((one) => metric + one) : [];
      for (const part of parts.filter((name) => names.has(name))) {
        const mayBePart =
          (await findType(part)) !== "gauge" || (await place.store.isTypeGuessed?.(place.match, part, own));
        if (mayBePart === true) throw createDividedFamilyError(metric, holders, part, [place]);
      }
      if (suffix === undefined || !names.has(family)) return;
      if ((await findType(family)) === "measurement")
        throw createDividedFamilyError(family, [place], metric, holders);
    },
    signal,
  );
}

function createDividedFamilyError(
  metric: string,
  holders: readonly MetricPlace[],
  part: string,
  partHolders: readonly MetricPlace[],
): Refused<"not_supported_by_backend"> {
  const feature = `${metric} is in ${joinBackends(holders)}, and ${part} without the rest of it in ${joinBackends(partHolders)}`;
  return createUnsupportedError(joinBackends([...holders, ...partHolders]), feature);
}

// ---- Series -----------------------------------------------------------------------------------------------------

async function readSeries(
  places: readonly IdentifiedPlace[],
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly Series[]> {
  const holders = await findHolders(places, query.metric, signal);
  // The label of the scraper is no tag, and so matches nothing.
  const asked = holders.filter(({ replica }) => replica === undefined || !Object.hasOwn(query.tags, replica));
  const [only] = asked;
  if (only === undefined) return [];
  const isReplicated = asked.some(({ replica }) => replica !== undefined);
  if (asked.length === 1 && !isReplicated) return only.store.series({ ...query, match: only.match }, signal);
  if (isReplicated && asked.length === 1) return readOnlyHolder(only, query, signal);
  if (isReplicated) return combineReplicated(asked, query, signal);
  if (query.measure.of === "samples" && query.measure.combine === "mean")
    return readMeans(asked, query, signal);
  if (query.measure.of === "samples" && query.measure.combine === "sum")
    return (await readSums(asked, query, signal)) ?? combineReplicated(asked, query, signal);
  const members = await readDistinct(asked, query, signal);
  return combineMembers(joinBackends(asked), query, members, signal);
}

/** What cannot be put together of several scrapers, the place answers by itself where no two of them have it. */
async function readOnlyHolder(
  holder: Holder,
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly Series[]> {
  try {
    return await combineReplicated([holder], query, signal);
  } catch (error) {
    const isRefused = error instanceof Refused && error.slug === "not_supported_by_backend";
    if (!isRefused || query.measure.of !== "observations") throw error;
    if (await hasReplicaLabel(holder, query, signal)) throw error;
    return holder.store.series({ ...query, match: holder.match }, signal);
  }
}

/** Whether histograms or summaries have the label of a scraper: the place may then have each of them more than once. */
async function hasReplicaLabel(
  { store, match, replica }: Holder,
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<boolean> {
  if (replica === undefined) return false;
  const {
    tags,
    lookBack,
    buckets: { start, step, count },
  } = query;
  const buckets: Buckets = { start: start - lookBack, step: lookBack + step * count, count: 1 };
  const measure = { of: "observations", combine: "count" } as const;
  const labelled = { ...query, match, tags: { ...tags, [replica]: "*" }, measure, buckets };
  return (await store.series(labelled, signal)).length > 0;
}

async function combineReplicated(
  holders: readonly Holder[],
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly Series[]> {
  const members = await readReplicated(holders.map(toReadable), query, signal);
  return combineMembers(joinBackends(holders), query, members, signal);
}

/** A mean is a sum over a count; where the sum passes what a number holds, it is computed from all samples. */
async function readMeans(
  holders: readonly Holder[],
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly Series[]> {
  const [sums, counts] = await Promise.all([
    readSums(holders, query, signal),
    readCounts(holders, query, signal),
  ]);
  if (sums === undefined) return combineReplicated(holders, query, signal);
  const newest = findNewestBucket([...sums, ...counts].map(({ values }) => values));
  if (newest < 0) return divideSums(sums, counts, signal);
  const { first, buckets } = selectGrowingBuckets(query.buckets, newest);
  const fresh = await readNewestMeans(holders, { ...query, buckets }, signal);
  return replaceValues(await divideSums(sums, counts, signal), fresh, first, signal);
}

/** The means of buckets that may still grow: from a sum and a count of the same samples, or from these samples themselves. */
async function readNewestMeans(
  holders: readonly Holder[],
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly Series[]> {
  const before = await readCounts(holders, query, signal);
  const sums = await readSums(holders, query, signal);
  const after = await readCounts(holders, query, signal);
  if (sums === undefined || !(await haveEqualValues(before, after, signal)))
    return combineReplicated(holders, query, signal);
  return divideSums(sums, after, signal);
}

/** Undefined where a sum passes what a number holds: that of all samples may not, nor their mean. */
async function readSums(
  holders: readonly Holder[],
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly Series[] | undefined> {
  const own = { ...query, measure: { of: "samples", combine: "sum" } as const };
  const members = await readDistinct(holders, own, signal);
  const sums = await combineMembers(joinBackends(holders), own, members, signal);
  // Those of series are looked at too: of two that pass it on opposite sides the sum is no number.
  const all = [
    ...members.flatMap((member) => ("values" in member ? [member.values] : [])),
    ...sums.map(({ values }) => values),
  ];
  return all.some(hasOverflow) ? undefined : sums;
}

async function readCounts(
  holders: readonly Holder[],
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly Series[]> {
  const own = { ...query, measure: { of: "samples", combine: "count" } as const };
  return combineMembers(joinBackends(holders), own, await readDistinct(holders, own, signal), signal);
}

const hasOverflow = (values: Float64Array): boolean =>
  values.some((value) => Math.abs(value) === Number.POSITIVE_INFINITY);

async function divideSums(
  sums: readonly Series[],
  counts: readonly Series[],
  signal: AbortSignal,
): Promise<readonly Series[]> {
  const countOf = await indexByTags(counts, signal);
  const divide = ({ tags, values }: Series): Series => {
    const counted = countOf.get(formatTagsKey(tags));
    return { tags, values: values.map((sum, bucket) => sum / (counted?.[bucket] ?? Number.NaN)) };
  };
  return mapInTurns(sums, divide, signal);
}

async function haveEqualValues(
  some: readonly Series[],
  others: readonly Series[],
  signal: AbortSignal,
): Promise<boolean> {
  if (some.length !== others.length) return false;
  const valuesOf = await indexByTags(others, signal);
  const isEqual = ({ tags, values }: Series): boolean => {
    const other = valuesOf.get(formatTagsKey(tags));
    return values.every((value, bucket) => Object.is(value, other?.[bucket]));
  };
  return (await mapInTurns(some, isEqual, signal)).every(Boolean);
}

/** Replaces the values from the bucket `first` on. Series that have appeared since are left out. */
async function replaceValues(
  series: readonly Series[],
  fresh: readonly Series[],
  first: number,
  signal: AbortSignal,
): Promise<readonly Series[]> {
  const freshOf = await indexByTags(fresh, signal);
  const replace = ({ tags, values }: Series): Series => {
    const replaced = values.slice();
    replaced.set(freshOf.get(formatTagsKey(tags)) ?? [], first);
    return { tags, values: replaced };
  };
  return mapInTurns(series, replace, signal);
}

async function indexByTags(
  series: readonly Series[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, Float64Array>> {
  const valuesOf = new Map<string, Float64Array>();
  await visitInTurns(series, ({ tags, values }) => valuesOf.set(formatTagsKey(tags), values), signal);
  return valuesOf;
}

/** @throws {Refused} where the backend's metrics cannot be merged with those of others */
function toReadable(place: IdentifiedPlace): ReadablePlace {
  const { members } = place.store;
  if (members === undefined)
    throw createUnsupportedError(place.backend, "metrics that other backends have as well");
  return { ...place, members };
}

/** Series of places of which no two have the same one. @throws {Refused} where two have, now or before */
async function readDistinct(
  holders: readonly Holder[],
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly SeriesMember[]> {
  const all = await mapAtOnce(
    holders.map(toReadable),
    async (place, own): Promise<PlaceMembers> => {
      return { ...place, found: await place.members.read({ ...query, match: place.match }, own) };
    },
    signal,
  );
  await refuseEqualSeries(all, query, signal);
  if (!countsGrowth(query.measure)) return all.flatMap(({ found }) => found);
  await refuseMovedSeries(all, query, signal);
  return correctBaselines(all, query, signal);
}

async function refuseEqualSeries(
  all: readonly PlaceMembers[],
  { metric, measure }: SeriesQuery,
  signal: AbortSignal,
): Promise<void> {
  const pause = createPause(signal);
  const owners = new Map<string, MetricPlace>();
  for (const place of all) {
    for (const member of place.found) {
      // A summary's quantile has the tags of the query, which are no series.
      if (measure.of === "observations" && "values" in member) continue;
      const { tags } = member;
      for (const key of place.listKeys(tags)) {
        const owner = owners.get(key);
        if (owner !== undefined && owner !== place)
          throw createEqualSeriesError([owner, place], metric, tags);
        owners.set(key, place);
      }
      await pause();
    }
  }
}

/** A series that begins the metric in its own place is only a new one if another place had the metric before. */
async function correctBaselines(
  all: readonly PlaceMembers[],
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly SeriesMember[]> {
  const { start } = query.buckets;
  const begins = (part: CounterSamples): boolean => part.baseline === "own" && isOpenPart(part, start);
  if (!all.some(({ found }) => found.some((member) => listParts(member).some(begins))))
    return all.flatMap(({ found }) => found);
  const firsts = await mapAtOnce(
    all,
    (place, own) => place.members.findFirstTime({ ...query, match: place.match }, own),
    signal,
  );
  return all.flatMap(({ found }, at) => {
    const own = firsts[at] ?? Number.NEGATIVE_INFINITY;
    // A series that comes back has no samples of others before that would count.
    const isLater = own >= start && firsts.some((first) => first < own);
    if (!isLater) return found;
    const correct = (part: CounterSamples): CounterSamples =>
      begins(part) ? { ...part, baseline: "zero" } : part;
    return found.map((member) => mapParts(member, correct));
  });
}
