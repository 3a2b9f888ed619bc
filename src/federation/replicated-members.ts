// Series that several scrapers keep, each put together from the samples of all. `replicas.ts` says which samples count.
// Everything is read raw: what a source reduces cannot be told apart by scraper any more.

import { mapAtOnce } from "../core/async/concurrency.ts";
import {
  mapInTurns,
  type Steps,
  sortInSteps,
  takeSteps,
  visitInTurns,
  yieldToEventLoop,
} from "../core/async/turns.ts";
import { findFirstAtOrAfter, requireAt, requireFirst, requireKey, zip } from "../core/collections.ts";
import { createTooManySamplesError, createUnsupportedError, type Refused } from "../core/errors.ts";
import { type Buckets, compare } from "../core/rows.ts";
import type { Millis } from "../core/time.ts";
import type { CounterSamples, Observations, Samples } from "../metrics/samples.ts";
import type { SampledMember, SeriesQuery, Tags } from "../store/metrics.ts";
import { listParts, mapParts } from "./member-parts.ts";
import {
  chooseSampleLimit,
  countsGrowth,
  createEqualSeriesError,
  dropReplica,
  formatTagsKey,
  joinBackends,
} from "./metric-places.ts";
import { chooseTimes, joinSamples, longestGap, scrapeTimeout, selectSamples } from "./replicas.ts";
import { dropForcedTags, type ReadablePlace } from "./series-identity.ts";

/** The samples of one series in one place. */
interface Stream {
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
interface StreamGroup {
  /** Those of its streams (`IdentifiedPlace`). */
  readonly keys: readonly string[];
  /** The first one's samples count before those of the others. */
  readonly streams: readonly Stream[];
}

interface MergedGroup extends StreamGroup {
  /** Within the look-back and the buckets. */
  readonly member: SampledMember;
  /** Whether a sample that counts was found before the buckets, also before a short look-back. */
  readonly isHeldBefore: boolean;
}

/** How far a choice may hang on samples before or after: of each scraper on those of the one before it in the order. */
const edgeReach: Millis = 4 * scrapeTimeout;
/** What is read beyond a bound, so that samples at the bound are chosen as if all were read. */
const edgeLength: Millis = longestGap + edgeReach;

/** @throws {Refused | BackendError} */
export async function readReplicated(
  places: readonly ReadablePlace[],
  query: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly SampledMember[]> {
  const { start, step, count } = query.buckets;
  const end = start + step * count;
  const budget: Budget = { read: 0, limit: chooseSampleLimit(query.pointLimit) };
  const needsPast = countsGrowth(query.measure);
  const span: Span = { from: start - edgeLength, to: end + edgeLength };
  const near = await readStreams(places, query, span, budget, signal);
  const groups = await groupStreams(places, near, query, signal);
  const far = needsPast ? await readFarStreams(places, query, groups, span.from, budget, signal) : [];
  const whole =
    far.length === 0
      ? groups
      : await groupStreams(places, await takeSteps(joinStreams([...far, ...near]), signal), query, signal);
  const merged: MergedGroup[] = [];
  for (const group of whole) {
    await yieldToEventLoop();
    signal.throwIfAborted();
    const all = await takeSteps(mergeStreams(group, query), signal);
    const isHeldBefore = (readTimes(all)[0] ?? start) < start;
    const member = cutMember(all, start - query.lookBack, end);
    if (hasSamplesFrom(member, start)) merged.push({ ...group, member, isHeldBefore });
  }
  return needsPast ? setBaselines(places, query, merged, budget, signal) : merged.map(({ member }) => member);
}

interface Budget {
  read: number;
  readonly limit: number;
}

/** Half-open. */
interface Span {
  readonly from: Millis;
  readonly to: Millis;
}

async function readStreams(
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
function readTimes(member: SampledMember): Float64Array {
  return "samples" in member ? member.samples.times : member.observations.count.times;
}

/**
 * What was read before `to` of series whose growth hangs on it: of those without a sample that counts before the buckets, the rest
 * of the look-back; of those whose last one is near the edge of what was read, some time more.
 */
async function readFarStreams(
  places: readonly ReadablePlace[],
  query: SeriesQuery,
  groups: readonly StreamGroup[],
  to: Millis,
  budget: Budget,
  signal: AbortSignal,
): Promise<readonly Stream[]> {
  const lookBackStart = query.buckets.start - query.lookBack;
  const [open, unclear]: [StreamGroup[], StreamGroup[]] = [[], []];
  for (const group of groups) {
    await yieldToEventLoop();
    signal.throwIfAborted();
    const base = await takeSteps(findBase(group, query.buckets), signal);
    if (base === undefined) open.push(group);
    else if (base <= findEdgeEnd(group, query.buckets, to)) unclear.push(group);
  }
  const read = (of: readonly StreamGroup[], from: Millis) =>
    readKnownStreams(places, query, of, { from, to }, budget, signal);
  return [
    ...(lookBackStart < to ? await read(open, lookBackStart - edgeLength) : []),
    ...(await read(unclear, to - 2 * edgeLength)),
  ];
}

async function readKnownStreams(
  places: readonly ReadablePlace[],
  query: SeriesQuery,
  groups: readonly StreamGroup[],
  span: Span,
  budget: Budget,
  signal: AbortSignal,
): Promise<readonly Stream[]> {
  if (groups.length === 0) return [];
  const keys = new Set(groups.flatMap((group) => group.keys));
  const only = await mapInTurns(groups, readSharedTags, signal);
  const known: Stream[] = [];
  const keepKnown = (stream: Stream): void => {
    if (stream.place.listKeys(stream.tags).some((key) => keys.has(key))) known.push(stream);
  };
  await visitInTurns(await readStreams(places, query, span, budget, signal, only), keepKnown, signal);
  return known;
}

/** The time of the last sample before the buckets that counts, as far as the samples that were read tell. */
function* findBase({ streams }: StreamGroup, { start }: Buckets): Steps<Millis | undefined> {
  const times = streams.map(({ member }) => {
    const own = readTimes(member);
    return own.subarray(0, findFirstAtOrAfter(own, start + edgeLength));
  });
  const chosen = yield* chooseTimes(times);
  const bases = chosen.flatMap((own) => own[findFirstAtOrAfter(own, start) - 1] ?? []);
  return bases.length === 0 ? undefined : Math.max(...bases);
}

/** Up to when samples may count only since those before `from` were not read: the first ones of each stream, and what is beside them. */
function findEdgeEnd({ streams }: StreamGroup, { start }: Buckets, from: Millis): Millis {
  const firsts = streams.flatMap(({ member }) => readTimes(member)[0] ?? []);
  const cut = streams.length === 1 ? [] : firsts.filter((first) => first < start);
  return Math.max(from, ...cut) + edgeReach;
}

/** What the series has as tags in every place. */
function readSharedTags({ streams }: StreamGroup): Tags {
  const { place, tags } = requireFirst(streams);
  return place.dropForced(tags);
}

/**
 * Streams of one series are in the order of the places, and in one place in that of their labels: the order in which they
 * were found depends on what else was read.
 * @throws {Refused} where two places have one series, and not both say that it may be so, or where it is unclear which one
 */
async function groupStreams(
  places: readonly ReadablePlace[],
  streams: readonly Stream[],
  { metric }: SeriesQuery,
  signal: AbortSignal,
): Promise<readonly StreamGroup[]> {
  const order = new Map(places.map((place, at) => [place, at]));
  const compareStreams = (a: Stream, b: Stream): number =>
    requireKey(order, a.place) - requireKey(order, b.place) || compare(a.ownKey, b.ownKey);
  const divide = (group: StreamGroup): readonly StreamGroup[] => {
    const own = [...group.streams].sort(compareStreams);
    const holders = [...new Set(own.map(({ place }) => place))];
    const ofOnePlace = Map.groupBy(own, ({ place, tagsKey }) => `${order.get(place)} ${tagsKey}`);
    if (holders.length === 1) return [...ofOnePlace.values()].map(createGroupOfPlace);
    const { tags } = requireFirst(own);
    if (holders.some(({ replica }) => replica === undefined))
      throw createEqualSeriesError(holders, metric, tags);
    if (ofOnePlace.size > holders.length) throw createUnclearSeriesError(own, metric);
    return [{ ...group, streams: own }];
  };
  const keyed = await mapInTurns(
    streams,
    (stream): KeyedStream => ({ stream, keys: stream.place.listKeys(stream.tags) }),
    signal,
  );
  return (await mapInTurns(await collectByKeys(keyed, metric, signal), divide, signal)).flat();
}

/** Of streams of one place with equal tags, which may share keys with others of the place. */
function createGroupOfPlace(streams: readonly Stream[]): StreamGroup {
  const { place, tags } = requireFirst(streams);
  return { keys: place.listKeys(tags), streams };
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
  signal: AbortSignal,
): Promise<Iterable<StreamGroup>> {
  const groups = new Set<OpenGroup>();
  const groupOfKey = new Map<string, OpenGroup>();
  /** In one place, series with other tags are others. */
  const groupOfSeries = new Map<string, OpenGroup>();
  const collect = ({ stream, keys }: KeyedStream): void => {
    const found = new Set(keys.flatMap((key) => groupOfKey.get(key) ?? []));
    const all = [...found].flatMap(({ streams }) => streams);
    if (found.size > 1 && all.some(({ place }) => place !== stream.place))
      throw createUnclearSeriesError([stream, ...all], metric);
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

/** Streams of one series in one place become one. They follow one another in time, in the order of the list. */
function* joinStreams(streams: readonly Stream[]): Steps<readonly Stream[]> {
  const joined: Stream[] = [];
  for (const ofPlace of Map.groupBy(streams, ({ place }) => place).values()) {
    for (const pieces of Map.groupBy(ofPlace, ({ ownKey }) => ownKey).values()) {
      const first = requireFirst(pieces);
      const { tags } = first.member;
      const member = pieces.length === 1 ? first.member : yield* mergeMembers(tags, pieces);
      joined.push({ ...first, member });
      yield;
    }
  }
  return joined;
}

function* mergeStreams({ streams }: StreamGroup, { measure }: SeriesQuery): Steps<SampledMember> {
  const { tags, member } = requireFirst(streams);
  if (streams.length === 1) return { ...member, tags };
  const chosen = yield* chooseTimes(streams.map(({ member }) => readTimes(member)));
  const merged = yield* mergeMembers(tags, streams, chosen);
  return measure.of === "samples" ? merged : mapParts(merged, raiseRoundedFalls);
}

/** VictoriaMetrics keeps some 15 digits, and other servers all. */
const leastFall = 1e-12;

/** A fall of a counter by less than what a server may round off is no restart: the value stays, until a sample is above it. */
function raiseRoundedFalls(part: CounterSamples): CounterSamples {
  let before = Number.NaN;
  const values = part.values.map((value) => {
    const fall = before - value;
    if (!(fall > 0 && fall <= leastFall * before)) before = value;
    return before;
  });
  return { ...part, values };
}

/** Puts the samples of all together, of each stream those at its `chosen` times, which are all where none are given. */
function* mergeMembers(
  tags: Tags,
  streams: readonly Pick<Stream, "member">[],
  chosen?: readonly Float64Array[],
): Steps<SampledMember> {
  const merge = function* (part: (member: SampledMember) => Samples | undefined): Steps<CounterSamples> {
    const pieces: Samples[] = [];
    for (const [at, { member }] of streams.entries()) {
      const samples = part(member);
      if (samples === undefined) continue;
      pieces.push(chosen === undefined ? samples : yield* selectSamples(samples, requireAt(chosen, at)));
    }
    return { ...(yield* joinSamples(pieces)), baseline: "own" };
  };
  if (streams.every(({ member }) => "samples" in member))
    return {
      tags,
      samples: yield* merge((member) => ("samples" in member ? member.samples : undefined)),
    };
  const observed = (member: SampledMember) => ("observations" in member ? member.observations : undefined);
  const bounds = new Set(
    streams.flatMap(({ member }) => observed(member)?.buckets.map(({ bound }) => bound) ?? []),
  );
  const count = yield* merge((member) => observed(member)?.count);
  const sum = yield* merge((member) => observed(member)?.sum);
  const buckets: Observations["buckets"][number][] = [];
  for (const bound of [...bounds].sort((a, b) => a - b)) {
    const samples = yield* merge(
      (member) => observed(member)?.buckets.find((one) => one.bound === bound)?.samples,
    );
    buckets.push({ bound, samples });
  }
  return { tags, observations: { count, sum, buckets } };
}

function cutMember(member: SampledMember, from: Millis, to: Millis): SampledMember {
  return mapParts(member, (part) => {
    const [first, end] = [findFirstAtOrAfter(part.times, from), findFirstAtOrAfter(part.times, to)];
    return { ...part, times: part.times.subarray(first, end), values: part.values.subarray(first, end) };
  });
}

function hasSamplesFrom(member: SampledMember, start: Millis): boolean {
  return listParts(member).some(({ times }) => (times.at(-1) ?? Number.NEGATIVE_INFINITY) >= start);
}

/**
 * Sets what the first sample of each series has grown from. A series without a sample in the look-back is new if no place
 * ever had it. A part of a histogram that appears later than its count is new.
 */
async function setBaselines(
  places: readonly ReadablePlace[],
  query: SeriesQuery,
  groups: readonly MergedGroup[],
  budget: Budget,
  signal: AbortSignal,
): Promise<readonly SampledMember[]> {
  const { start } = query.buckets;
  const open = groups.filter(({ member }) => (readTimes(member)[0] ?? start) >= start);
  if (open.length === 0) return mapInTurns(groups, ({ member }) => setOwnBaselines(member, "own"), signal);
  const wasHeld = await findHeldGroups(places, query, open, signal);
  const isHeld = (group: MergedGroup): boolean => group.isHeldBefore || wasHeld(group);
  const firsts = open.filter((group) => !isHeld(group)).map(({ member }) => readTimes(member)[0] ?? start);
  const begun = await findMetricStart(places, query, firsts, budget, signal);
  const set = (group: MergedGroup): SampledMember => {
    const isNew = !isHeld(group) && begun < (readTimes(group.member)[0] ?? begun);
    return setOwnBaselines(group.member, isNew ? "zero" : "own");
  };
  return mapInTurns(groups, set, signal);
}

/**
 * The time of the first sample of the metric that counts, whatever the query's tags. It is exact where it may lie before one of
 * the times, which are the first ones of new series; else it may be some seconds earlier, or -Infinity.
 */
async function findMetricStart(
  places: readonly ReadablePlace[],
  query: SeriesQuery,
  times: readonly Millis[],
  budget: Budget,
  signal: AbortSignal,
): Promise<Millis> {
  const { start, step, count } = query.buckets;
  const from = start - scrapeTimeout;
  const buckets: Buckets = { start: from, step: start + step * count - from, count: 1 };
  const found = await mapAtOnce(
    places,
    (place, own) => place.members.findFirstTime({ ...query, match: place.match, buckets }, own),
    signal,
  );
  const first = Math.min(...found);
  // What does not count lies less than a scrape before what does. Whether it counts, all of its run tells.
  const isUnclear = times.some((time) => first < time && time < first + scrapeTimeout);
  if (!isUnclear) return first;
  const span = { from: first, to: first + 2 * scrapeTimeout + longestGap };
  const all = { ...query, tags: {} };
  const groups = await groupStreams(
    places,
    await readStreams(places, all, span, budget, signal),
    all,
    signal,
  );
  let begun = Number.POSITIVE_INFINITY;
  for (const group of groups) {
    await yieldToEventLoop();
    signal.throwIfAborted();
    begun = Math.min(begun, ...readTimes(await takeSteps(mergeStreams(group, query), signal)).subarray(0, 1));
  }
  return begun;
}

/** Which series had a sample in any place, before those shortly before the buckets, which may not count. */
async function findHeldGroups(
  places: readonly ReadablePlace[],
  query: SeriesQuery,
  open: readonly StreamGroup[],
  signal: AbortSignal,
): Promise<(group: StreamGroup) => boolean> {
  const only = await mapInTurns(open, readSharedTags, signal);
  const find = async (place: ReadablePlace, own: AbortSignal) => {
    const before = query.buckets.start - scrapeTimeout;
    const found = await place.members.findHeldBefore(dropForcedTags(place, query), before, only, own);
    const [tagsKeys, keys] = [new Set<string>(), new Set<string>()];
    const add = (one: Tags): void => {
      const tags = dropReplica(place, one);
      tagsKeys.add(formatTagsKey(tags));
      for (const key of place.listKeys(tags)) keys.add(key);
    };
    await visitInTurns(found, add, own);
    return { tagsKeys, keys };
  };
  const held = await mapAtOnce(places, find, signal);
  return ({ keys, streams }) =>
    zip(places, held).some(([place, past]) => {
      const own = streams.find((stream) => stream.place === place);
      // In one place, one series may have the label that another one lacks.
      return own === undefined ? keys.some((key) => past.keys.has(key)) : past.tagsKeys.has(own.tagsKey);
    });
}

function setOwnBaselines(member: SampledMember, baseline: CounterSamples["baseline"]): SampledMember {
  const first = readTimes(member)[0] ?? Number.POSITIVE_INFINITY;
  return mapParts(member, (part) => ({
    ...part,
    baseline: (part.times[0] ?? first) > first ? "zero" : baseline,
  }));
}
