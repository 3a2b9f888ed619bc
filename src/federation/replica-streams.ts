// The samples of series in the places that have them, and which of these are of one series.
import { mapAtOnce } from "../core/async/concurrency.ts";
import { mapInTurns, sortInSteps, takeSteps, visitInTurns } from "../core/async/turns.ts";
import { requireFirst, requireKey } from "../core/collections.ts";
import { createTooManySamplesError, createUnsupportedError, Refused } from "../core/errors.ts";
import { type Buckets, compare } from "../core/rows.ts";
import type { Millis } from "../core/time.ts";
import type { SampledMember, SeriesQuery, Tags } from "../store/metrics.ts";
import { listParts } from "./member-parts.ts";
import { createEqualSeriesError, dropReplica, formatTagsKey, joinBackends } from "./metric-places.ts";
import type { ReadablePlace } from "./series-identity.ts";

/** The samples of one series in one place. */
export interface Stream {
  readonly place: ReadablePlace;
  /** With the label of its scraper, which no other stream of the place has. */
  readonly ownKey: string;
  /** Without the label of its scraper. */
  readonly tags: Tags;
  /** Of these tags (`formatTagsKey`). */
  readonly tagsKey: string;
  readonly member: SampledMember;
}

/** One series. */
export interface StreamGroup {
  /** Those of its streams (`IdentifiedPlace`). */
  readonly keys: readonly string[];
  /** The first one's samples count before those of the others. */
  readonly streams: readonly Stream[];
}

export interface Budget {
  read: number;
  readonly limit: number;
}

/** Half-open. */
export interface Span {
  readonly from: Millis;
  readonly to: Millis;
}

/** What becomes of streams of which it is unclear whether they are one series: the query is refused, or each counts as a series. */
type Unclear = "refused" | "separate";

export async function readStreams(
  places: readonly ReadablePlace[],
  query: SeriesQuery,
  { from, to }: Span,
  budget: Budget,
  signal: AbortSignal,
  only?: readonly Tags[],
): Promise<readonly Stream[]> {
  const buckets: Buckets = { start: from, step: to - from, count: 1 };
  const read = async (place: ReadablePlace, own: AbortSignal): Promise<readonly Stream[]> => {
    const asked = { ...query, match: place.match, buckets, only, sampleLimit: budget.limit };
    const found = await place.members.readRaw(asked, own);
    for (const member of found) budget.read += countSamples(member);
    if (budget.read > budget.limit) throw createTooManySamplesError(budget.limit, budget.read);
    const toStream = (member: SampledMember): Stream => {
      const tags = dropReplica(place, member.tags);
      const ownKey = formatTagsKey(member.tags);
      return { place, ownKey, tags, tagsKey: tags === member.tags ? ownKey : formatTagsKey(tags), member };
    };
    return mapInTurns(found, toStream, own);
  };
  return (await mapAtOnce(places, read, signal)).flat();
}

function countSamples(member: SampledMember): number {
  return listParts(member).reduce((size, { times }) => size + times.length, 0);
}

/** What shows when a series was scraped: of a histogram its count. */
export function readTimes(member: SampledMember): Float64Array {
  return "samples" in member ? member.samples.times : member.observations.count.times;
}

/** Of the series of these groups alone, as the places of any of them may have them. */
export async function readKnownStreams(
  places: readonly ReadablePlace[],
  query: SeriesQuery,
  groups: readonly StreamGroup[],
  span: Span,
  budget: Budget,
  signal: AbortSignal,
  unclear: Unclear = "refused",
): Promise<readonly Stream[]> {
  if (groups.length === 0) return [];
  const keys = new Set(groups.flatMap((group) => group.keys));
  const only = await mapInTurns(groups, readSharedTags, signal);
  const known: Stream[] = [];
  const keepKnown = (stream: Stream): void => {
    if (listKeys(stream, unclear).some((key) => keys.has(key))) known.push(stream);
  };
  await visitInTurns(await readStreams(places, query, span, budget, signal, only), keepKnown, signal);
  return known;
}

/** Those of its series. A series that may be too many others has none where it counts as one of its own. */
function listKeys({ place, tags }: Stream, unclear: Unclear): readonly string[] {
  try {
    return place.listKeys(tags);
  } catch (error) {
    if (unclear === "separate" && error instanceof Refused) return [];
    throw error;
  }
}

/** What the series has as tags in every place. */
export function readSharedTags({ streams }: StreamGroup): Tags {
  const { place, tags } = requireFirst(streams);
  return place.dropForced(tags);
}

/**
 * Streams of one series are in the order of the places, and in one place in that of their labels: the order in which they
 * were found depends on what else was read.
 * @throws {Refused} where two places have one series, and not both say that it may be so, or where it is unclear which one
 */
export async function groupStreams(
  places: readonly ReadablePlace[],
  streams: readonly Stream[],
  { metric }: SeriesQuery,
  signal: AbortSignal,
  unclear: Unclear = "refused",
): Promise<readonly StreamGroup[]> {
  const order = new Map(places.map((place, at) => [place, at]));
  const compareStreams = (a: Stream, b: Stream): number =>
    requireKey(order, a.place) - requireKey(order, b.place) || compare(a.ownKey, b.ownKey);
  const divide = (group: StreamGroup): readonly StreamGroup[] => {
    const own = [...group.streams].sort(compareStreams);
    const holders = [...new Set(own.map(({ place }) => place))];
    const ofOnePlace = Map.groupBy(own, ({ place, tagsKey }) => `${order.get(place)} ${tagsKey}`);
    if (holders.length === 1) {
      // They may share keys with others of the place.
      return [...ofOnePlace.values()].map((streams) => ({
        keys: listKeys(requireFirst(streams), unclear),
        streams,
      }));
    }
    const { tags } = requireFirst(own);
    const isNamed = holders.every(({ replica }) => replica !== undefined);
    if (isNamed && ofOnePlace.size === holders.length) return [{ ...group, streams: own }];
    if (unclear === "separate") return own.map((stream) => ({ keys: [], streams: [stream] }));
    throw isNamed ? createUnclearSeriesError(own, metric) : createEqualSeriesError(holders, metric, tags);
  };
  const keyed = await mapInTurns(
    streams,
    (stream): KeyedStream => ({ stream, keys: listKeys(stream, unclear) }),
    signal,
  );
  return (await mapInTurns(await collectByKeys(keyed, metric, unclear, signal), divide, signal)).flat();
}

interface KeyedStream {
  readonly stream: Stream;
  readonly keys: readonly string[];
}

interface OpenGroup {
  /** Those that all of its streams have. */
  keys: readonly string[];
  readonly streams: Stream[];
}

/** Groups streams that have a key in common. @throws {Refused} where one has keys of two groups, and not all are of one place */
async function collectByKeys(
  streams: readonly KeyedStream[],
  metric: string,
  unclear: Unclear,
  signal: AbortSignal,
): Promise<Iterable<StreamGroup>> {
  const groups = new Set<OpenGroup>();
  const groupOfKey = new Map<string, OpenGroup>();
  /** In one place, series with other tags are others. */
  const groupOfSeries = new Map<string, OpenGroup>();
  const collect = ({ stream, keys }: KeyedStream): void => {
    const found = new Set(keys.flatMap((key) => groupOfKey.get(key) ?? []));
    const all = [...found].flatMap(({ streams }) => streams);
    if (found.size > 1 && all.some(({ place }) => place !== stream.place)) {
      if (unclear === "refused") throw createUnclearSeriesError([stream, ...all], metric);
      groups.add({ keys: [], streams: [stream] });
      return;
    }
    const series = `${stream.place.backend} ${stream.tagsKey}`;
    const known = found.size === 1 ? requireFirst([...found]) : groupOfSeries.get(series);
    const group = known ?? { keys: keys.filter((key) => !groupOfKey.has(key)), streams: [] };
    const own = new Set(keys);
    for (const key of group.keys.filter((key) => !own.has(key))) groupOfKey.delete(key);
    group.keys = group.keys.filter((key) => own.has(key));
    group.streams.push(stream);
    groups.add(group);
    for (const key of group.keys) groupOfKey.set(key, group);
    groupOfSeries.set(series, group);
  };
  const sorted = await takeSteps(
    sortInSteps(streams, (a, b) => a.keys.length - b.keys.length),
    signal,
  );
  await visitInTurns(sorted, collect, signal);
  return groups;
}

function createUnclearSeriesError(
  streams: readonly Stream[],
  metric: string,
): Refused<"not_supported_by_backend"> {
  const backends = joinBackends(streams.map(({ place }) => place));
  const printed = [...new Set(streams.map(({ tags }) => JSON.stringify(tags)))].join(" and ");
  const feature = `${metric} of ${printed} in ${backends}. Series that lack a label of \`match\` may be either of two`;
  return createUnsupportedError(backends, feature);
}
