// Series that several scrapers keep, each put together from the samples of all. `replicas.ts` says which samples count.
// Everything is read raw: what a source reduces cannot be told apart by scraper any more.

import { mapAtOnce } from "../core/async/concurrency.ts";
import { mapInTurns, type Steps, takeSteps, visitInTurns, yieldToEventLoop } from "../core/async/turns.ts";
import { findFirstAtOrAfter, readNumber, requireAt, requireFirst, zip } from "../core/collections.ts";
import type { Buckets } from "../core/rows.ts";
import type { Millis } from "../core/time.ts";
import type { CounterSamples, Observations, Samples } from "../metrics/samples.ts";
import type { SampledMember, SeriesQuery, Tags } from "../store/metrics.ts";
import { listParts, mapParts } from "./member-parts.ts";
import { chooseSampleLimit, countsGrowth, dropReplica, formatTagsKey } from "./metric-places.ts";
import { findMetricStart } from "./metric-start.ts";
import {
  type Budget,
  groupStreams,
  readKnownStreams,
  readSharedTags,
  readStreams,
  readTimes,
  type Span,
  type Stream,
  type StreamGroup,
} from "./replica-streams.ts";
import { chooseTimes, edgeLength, edgeReach, joinSamples, scrapeTimeout, selectSamples } from "./replicas.ts";
import { dropForcedTags, type ReadablePlace } from "./series-identity.ts";

interface MergedGroup extends StreamGroup {
  /** Within the look-back and the buckets. */
  readonly member: SampledMember;
  /** Whether a sample that counts was read from before the buckets, also from before a short look-back. */
  readonly hasEarlierSample: boolean;
}

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
    const hasEarlierSample = (readTimes(all)[0] ?? start) < start;
    const member = cutMember(all, start - query.lookBack, end);
    if (hasSamplesFrom(member, start)) merged.push({ ...group, member, hasEarlierSample });
  }
  return needsPast ? setBaselines(places, query, merged, budget, signal) : merged.map(({ member }) => member);
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

function* mergeStreams({ streams }: StreamGroup, { measure, buckets }: SeriesQuery): Steps<SampledMember> {
  const { tags, member } = requireFirst(streams);
  if (streams.length === 1) return { ...member, tags };
  const chosen = yield* chooseTimes(streams.map(({ member }) => readTimes(member)));
  const merged = yield* mergeMembers(tags, streams, chosen);
  if (measure.of === "samples") return merged;
  // Cumulative values begin with the first one within the buckets, as it is.
  const from = measure.of === "cumulative" ? buckets.start : Number.NEGATIVE_INFINITY;
  return mapParts(merged, (part) => raiseRoundedFalls(part, from));
}

/** VictoriaMetrics keeps some 15 digits, and other servers all. */
const leastFall = 1e-12;

/**
 * A fall of a counter by less than what a server may round off is no restart: the value stays, until a sample is above it. Samples
 * before `from` are left as they are.
 */
function raiseRoundedFalls(part: CounterSamples, from: Millis): CounterSamples {
  let before = Number.NaN;
  const values = part.values.map((value, at) => {
    if (readNumber(part.times, at) < from) return value;
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
  const isKnownToPlaces = await findEarlierGroups(places, query, open, signal);
  const existedBefore = (group: MergedGroup): boolean => group.hasEarlierSample || isKnownToPlaces(group);
  const firsts = open
    .filter((group) => !existedBefore(group))
    .map(({ member }) => readTimes(member)[0] ?? start);
  const begun = await findMetricStart(places, query, firsts, budget, signal);
  const set = (group: MergedGroup): SampledMember => {
    const isNew = !existedBefore(group) && begun < (readTimes(group.member)[0] ?? begun);
    return setOwnBaselines(group.member, isNew ? "zero" : "own");
  };
  return mapInTurns(groups, set, signal);
}

/** Which series had a sample in any place, before those shortly before the buckets, which may not count. */
async function findEarlierGroups(
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
  const earlier = await mapAtOnce(places, find, signal);
  return ({ keys, streams }) =>
    zip(places, earlier).some(([place, past]) => {
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
