// Counters that have moved between places that name no replica. What a series has grown since its last sample in its place
// may have been counted in another place meanwhile, or the series seems new and is not.
import { mapAtOnce } from "../core/async/concurrency.ts";
import { groupInTurns, mapInTurns, visitInTurns } from "../core/async/turns.ts";
import { requireAt, requireFirst, zip } from "../core/collections.ts";
import type { Buckets, Measure } from "../core/rows.ts";
import type { Millis } from "../core/time.ts";
import type { CounterSamples } from "../metrics/samples.ts";
import type { SeriesMember, SeriesQuery, Tags } from "../store/metrics.ts";
import { listParts } from "./member-parts.ts";
import { chooseSampleLimit, createEqualSeriesError, formatTagsKey } from "./metric-places.ts";
import { longestGap } from "./replicas.ts";
import { dropForcedTags, type ReadablePlace } from "./series-identity.ts";

export interface PlaceMembers extends ReadablePlace {
  readonly found: readonly SeriesMember[];
}

/** @throws {Refused} where another place had a series after its last sample before the buckets */
export async function refuseMovedSeries(
  all: readonly PlaceMembers[],
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<void> {
  await refuseComeSeries(all, query, signal);
  await refuseReturnedSeries(all, query, signal);
}

/** A counter that seems new in one place may have been in another before: it would count twice. */
async function refuseComeSeries(
  all: readonly PlaceMembers[],
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<void> {
  const { start } = query.buckets;
  for (const place of all) {
    const open = place.found.filter((member) => isOpen(member, start)).map(({ tags }) => tags);
    const [moved] = await findInOthers(all, place, open, query, signal);
    if (moved !== undefined) throw createEqualSeriesError([moved.place, place], query.metric, moved.tags);
  }
}

interface PlacedSeries {
  readonly place: PlaceMembers;
  readonly tags: Tags;
}

/** Which of these series of a place another one had at any time before the buckets, as it has them there. */
async function findInOthers(
  all: readonly PlaceMembers[],
  place: PlaceMembers,
  series: readonly Tags[],
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly PlacedSeries[]> {
  if (series.length === 0) return [];
  const keys = await collectKeys(place, series, signal);
  const only = await mapInTurns(series, place.dropForced, signal);
  const others = all.filter((other) => other !== place);
  const find = (other: PlaceMembers, own: AbortSignal) =>
    other.members.findHeldBefore(dropForcedTags(other, query), query.buckets.start, only, own);
  const held = await mapAtOnce(others, find, signal);
  const shared: PlacedSeries[] = [];
  for (const [other, found] of zip(others, held)) {
    const addShared = (tags: Tags): void => {
      if (other.listKeys(tags).some((key) => keys.has(key))) shared.push({ place: other, tags });
    };
    await visitInTurns(found, addShared, signal);
  }
  return shared;
}

async function collectKeys(
  place: PlaceMembers,
  series: readonly Tags[],
  signal: AbortSignal,
): Promise<Set<string>> {
  return new Set((await mapInTurns(series, place.listKeys, signal)).flat());
}

/** Whether the place knows no sample of it shortly before the buckets. */
function isOpen(member: SeriesMember, start: Millis): boolean {
  return listParts(member).some((samples) => isOpenPart(samples, start));
}

export function isOpenPart({ times }: CounterSamples, start: Millis): boolean {
  const [first] = times;
  return first !== undefined && first >= start;
}

// ---- Series that come back -----------------------------------------------------------------------------------------

/** The last sample before the buckets of a series in one place. */
interface SeriesEnd extends PlacedSeries {
  readonly time: Millis;
}

/** A counter may have grown in another place between its last sample before the buckets in its own place and its first in them. */
async function refuseReturnedSeries(
  all: readonly PlaceMembers[],
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<void> {
  const { lookBack, metric, buckets } = query;
  const held = all.flatMap((place) => {
    const known = place.found.filter((member) => listParts(member).some(({ times }) => times.length > 0));
    return known.filter((member) => !isOpen(member, buckets.start)).map(({ tags }) => ({ place, tags }));
  });
  if (held.length === 0) return;
  const reach = Math.min(lookBack, longestGap);
  const near = await readEnds(all, query, { from: reach, to: 0 }, undefined, signal);
  const nearKeys = new Set(await mapInTurns(near, formatOwnKey, signal));
  const heldKeys = await mapInTurns(held, formatOwnKey, signal);
  const away = held.filter((_, at) => !nearKeys.has(requireAt(heldKeys, at)));
  const only = lookBack === reach ? [] : await listDoubtful(all, away, query, signal);
  const far =
    only.length === 0 ? [] : await readEnds(all, query, { from: lookBack, to: reach }, only, signal);
  const ends = far.concat(near);
  const endOf = new Map(await mapInTurns(ends, (end) => [formatOwnKey(end), end.time] as const, signal));
  const listKeyed = (end: SeriesEnd) => end.place.listKeys(end.tags).map((key) => ({ key, end }));
  const keyed = (await mapInTurns(ends, listKeyed, signal)).flat();
  const endsByKey = await groupInTurns(keyed, ({ key }) => key, signal);
  const refuseLaterEnd = (one: PlacedSeries): void => {
    const time = endOf.get(formatOwnKey(one)) ?? Number.NEGATIVE_INFINITY;
    for (const { end } of one.place.listKeys(one.tags).flatMap((key) => endsByKey.get(key) ?? []))
      if (end.place !== one.place && end.time > time)
        throw createEqualSeriesError([end.place, one.place], metric, one.tags);
  };
  await visitInTurns(held, refuseLaterEnd, signal);
}

/**
 * The series that another place had as well, as their tags in all places. The samples of the others would say nothing, and after
 * a server was down these are all of its series.
 */
async function listDoubtful(
  all: readonly PlaceMembers[],
  away: readonly PlacedSeries[],
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly Tags[]> {
  const doubtful: Tags[] = [];
  for (const place of all) {
    const own = away.filter((one) => one.place === place).map(({ tags }) => tags);
    const found = await findInOthers(all, place, own, query, signal);
    const listKeys = ({ place: other, tags }: PlacedSeries) => other.listKeys(tags);
    const keys = new Set((await mapInTurns(found, listKeys, signal)).flat());
    const addDoubtful = (tags: Tags): void => {
      if (place.listKeys(tags).some((key) => keys.has(key))) doubtful.push(tags);
    };
    await visitInTurns(own, addDoubtful, signal);
  }
  return mapInTurns(doubtful, requireFirst(all).dropForced, signal);
}

function formatOwnKey({ place, tags }: PlacedSeries): string {
  return `${place.backend} ${formatTagsKey(tags)}`;
}

/** Of all series, or of those with the tags of `only`. The times are before the buckets. */
async function readEnds(
  places: readonly PlaceMembers[],
  query: SeriesQuery,
  { from, to }: { readonly from: Millis; readonly to: Millis },
  only: readonly Tags[] | undefined,
  signal: AbortSignal,
): Promise<readonly SeriesEnd[]> {
  const buckets: Buckets = { start: query.buckets.start - from, step: from - to, count: 1 };
  // Of a histogram its count alone.
  const measure: Measure =
    query.measure.of === "observations" ? { of: "observations", combine: "count" } : query.measure;
  const read = async (place: PlaceMembers, own: AbortSignal): Promise<readonly SeriesEnd[]> => {
    const sampleLimit = chooseSampleLimit(query.pointLimit);
    const found = await place.members.readRaw(
      { ...dropForcedTags(place, query), buckets, measure, only, sampleLimit },
      own,
    );
    return found.map((member) => ({
      place,
      tags: member.tags,
      time: Math.max(...listParts(member).map(({ times }) => times.at(-1) ?? Number.NEGATIVE_INFINITY)),
    }));
  };
  return (await mapAtOnce(places, read, signal)).flat();
}
