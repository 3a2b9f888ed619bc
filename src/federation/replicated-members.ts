// Series that several scrapers keep, each put together from the samples of all. `replicas.ts` says which samples count.
// Everything is read raw: what a source reduces cannot be told apart by scraper any more.
import { findFirstAtOrAfter } from "../core/collections.ts";
import { mapConcurrent } from "../core/concurrency.ts";
import type { Buckets } from "../core/rows.ts";
import type { Millis } from "../core/time.ts";
import { yieldToEventLoop } from "../core/turns.ts";
import type { CounterSamples, Observations, Samples } from "../metrics/samples.ts";
import type { MemberReader, SampledMember, SeriesQuery, Tags } from "../store/metrics.ts";
import {
  chooseSampleLimit,
  countsGrowth,
  createEqualSeriesError,
  createTooManySamplesError,
  dropReplica,
  formatTagsKey,
  type MetricPlace,
} from "./metric-places.ts";
import { chooseSamples, longestGap, type SampleChoice } from "./replicas.ts";

type ReadablePlace = MetricPlace & { readonly members: MemberReader };

/** The samples of one series in one place. */
interface Stream {
  readonly place: ReadablePlace;
  /** With the label of its scraper, which no other stream of the place has. */
  readonly ownKey: string;
  readonly member: SampledMember;
}

interface StreamGroup {
  /** Without the label of a scraper. */
  readonly tags: Tags;
  readonly streams: readonly Stream[];
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
  const near = await readStreams(
    places,
    query,
    { from: start - longestGap, to: end + longestGap },
    budget,
    signal,
  );
  const groups = groupStreams(near, query);
  const far = needsPast ? await readFarStreams(places, query, groups, budget, signal) : [];
  const whole = far.length === 0 ? groups : groupStreams(joinStreams([...far, ...near]), query);
  const merged: SampledMember[] = [];
  for (const group of whole) {
    await yieldToEventLoop();
    signal.throwIfAborted();
    const member = cutMember(mergeStreams(group), start - query.lookBack, end);
    if (hasSamplesFrom(member, start)) merged.push(member);
  }
  return needsPast ? setBaselines(places, query, merged, signal) : merged;
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
    return found.map((member) => ({ place, ownKey: formatTagsKey(member.tags), member }));
  };
  return (await mapConcurrent(places, places.length, read, signal)).flat();
}

function countSamples(member: SampledMember): number {
  return listParts(member).reduce((size, { times }) => size + times.length, 0);
}

function listParts(member: SampledMember): readonly CounterSamples[] {
  if ("samples" in member) return [member.samples];
  const { count, sum, buckets } = member.observations;
  return [count, sum, ...buckets.map(({ samples }) => samples)];
}

/** What shows when a series was scraped: of a histogram its count. */
function readTimes(member: SampledMember): Float64Array {
  return "samples" in member ? member.samples.times : member.observations.count.times;
}

/** Of series without a sample shortly before the buckets, the rest of the look-back. */
async function readFarStreams(
  places: readonly ReadablePlace[],
  query: SeriesQuery,
  groups: readonly StreamGroup[],
  budget: Budget,
  signal: AbortSignal,
): Promise<readonly Stream[]> {
  const { start } = query.buckets;
  const span = { from: start - query.lookBack, to: start - longestGap };
  const open = groups.filter(({ streams }) =>
    streams.every(({ member }) => (readTimes(member)[0] ?? start) >= start),
  );
  if (open.length === 0 || span.from >= span.to) return [];
  const keys = new Set(open.map(({ tags }) => formatTagsKey(tags)));
  const only = open.map(({ tags }) => tags);
  const found = await readStreams(places, query, span, budget, signal, only);
  return found.filter(({ place, member }) => keys.has(formatTagsKey(dropReplica(place, member.tags))));
}

/** @throws {Refused} where two places have one series, and not both say that it may be so */
function groupStreams(streams: readonly Stream[], { metric }: SeriesQuery): readonly StreamGroup[] {
  const groups = Map.groupBy(streams, ({ place, member }) => formatTagsKey(dropReplica(place, member.tags)));
  return [...groups.values()].flatMap((own): readonly StreamGroup[] => {
    const [first] = own;
    if (first === undefined) return [];
    const tags = dropReplica(first.place, first.member.tags);
    const places = [...new Set(own.map(({ place }) => place))];
    if (places.length > 1 && places.some(({ replica }) => replica === undefined))
      throw createEqualSeriesError(places, metric, tags);
    return [{ tags, streams: own }];
  });
}

/** Streams of one series in one place become one. They follow one another in time, in the order of the list. */
function joinStreams(streams: readonly Stream[]): readonly Stream[] {
  const byPlace = Map.groupBy(streams, ({ place }) => place);
  return [...byPlace.values()].flatMap((ofPlace) =>
    [...Map.groupBy(ofPlace, ({ ownKey }) => ownKey).values()].flatMap((pieces) => {
      const [first] = pieces;
      if (first === undefined || pieces.length === 1) return pieces;
      const { tags } = first.member;
      return [{ ...first, member: mergeMembers(tags, pieces, () => true) }];
    }),
  );
}

function mergeStreams({ tags, streams }: StreamGroup): SampledMember {
  const [only] = streams;
  if (only !== undefined && streams.length === 1) return { ...only.member, tags };
  return mergeMembers(tags, streams, chooseSamples(streams.map(({ member }) => readTimes(member))));
}

function mergeMembers(
  tags: Tags,
  streams: readonly Pick<Stream, "member">[],
  choose: SampleChoice,
): SampledMember {
  const merge = (part: (member: SampledMember) => Samples | undefined): CounterSamples => {
    const pieces = streams.map(({ member }, scraper) => chooseOwn(part(member), scraper, choose));
    return { ...joinByTime(pieces), baseline: "own" };
  };
  if (streams.every(({ member }) => "samples" in member))
    return { tags, samples: merge((member) => ("samples" in member ? member.samples : undefined)) };
  const observed = (member: SampledMember) => ("observations" in member ? member.observations : undefined);
  const bounds = new Set(
    streams.flatMap(({ member }) => observed(member)?.buckets.map(({ bound }) => bound) ?? []),
  );
  const observations: Observations = {
    count: merge((member) => observed(member)?.count),
    sum: merge((member) => observed(member)?.sum),
    buckets: [...bounds]
      .sort((a, b) => a - b)
      .map((bound) => ({
        bound,
        samples: merge((member) => observed(member)?.buckets.find((one) => one.bound === bound)?.samples),
      })),
  };
  return { tags, observations };
}

const noSamples: Samples = { times: new Float64Array(), values: new Float64Array() };

function chooseOwn(samples: Samples | undefined, scraper: number, choose: SampleChoice): Samples {
  if (samples === undefined) return noSamples;
  const { times, values } = samples;
  const isChosen = times.map((time) => (choose(scraper, time) ? 1 : 0));
  return {
    times: times.filter((_, at) => isChosen[at] === 1),
    values: values.filter((_, at) => isChosen[at] === 1),
  };
}

/** Of no two pieces samples have one time. */
function joinByTime(pieces: readonly Samples[]): Samples {
  const held = pieces.filter(({ times }) => times.length > 0);
  const [only] = held;
  if (only === undefined) return noSamples;
  if (held.length === 1) return only;
  const byTime = held.flatMap(({ times, values }) =>
    [...times].map((time, at) => [time, values[at] ?? 0] as const),
  );
  byTime.sort(([a], [b]) => a - b);
  return {
    times: Float64Array.from(byTime, ([time]) => time),
    values: Float64Array.from(byTime, ([, value]) => value),
  };
}

function cutMember(member: SampledMember, from: Millis, to: Millis): SampledMember {
  return mapParts(member, (part) => {
    const [first, end] = [findFirstAtOrAfter(part.times, from), findFirstAtOrAfter(part.times, to)];
    return { ...part, times: part.times.subarray(first, end), values: part.values.subarray(first, end) };
  });
}

function mapParts(member: SampledMember, change: (part: CounterSamples) => CounterSamples): SampledMember {
  if ("samples" in member) return { tags: member.tags, samples: change(member.samples) };
  const { count, sum, buckets } = member.observations;
  const parts = buckets.map(({ bound, samples }) => ({ bound, samples: change(samples) }));
  return { tags: member.tags, observations: { count: change(count), sum: change(sum), buckets: parts } };
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
  members: readonly SampledMember[],
  signal: AbortSignal,
): Promise<readonly SampledMember[]> {
  const { start } = query.buckets;
  const open = members.filter((member) => (readTimes(member)[0] ?? start) >= start).map(({ tags }) => tags);
  if (open.length === 0) return members.map((member) => setOwnBaselines(member, "own"));
  const [held, firsts] = await Promise.all([
    mapConcurrent(
      places,
      places.length,
      async (place, own) => {
        const asked = { ...query, match: place.match };
        const found = await place.members.findHeldBefore(asked, start, open, own);
        return found.map((tags) => formatTagsKey(dropReplica(place, tags)));
      },
      signal,
    ),
    mapConcurrent(
      places,
      places.length,
      (place, own) => place.members.findFirstTime({ ...query, match: place.match }, own),
      signal,
    ),
  ]);
  const heldKeys = new Set(held.flat());
  const begun = Math.min(...firsts);
  return members.map((member) => {
    const isNew = !heldKeys.has(formatTagsKey(member.tags)) && begun < (readTimes(member)[0] ?? begun);
    return setOwnBaselines(member, isNew ? "zero" : "own");
  });
}

function setOwnBaselines(member: SampledMember, baseline: CounterSamples["baseline"]): SampledMember {
  const first = readTimes(member)[0] ?? Number.POSITIVE_INFINITY;
  return mapParts(member, (part) => ({
    ...part,
    baseline: (part.times[0] ?? first) > first ? "zero" : baseline,
  }));
}
