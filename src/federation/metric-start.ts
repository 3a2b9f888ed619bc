// When a metric began, of which several scrapers keep samples: what comes later is new, and has grown from zero.
import { mapAtOnce } from "../core/async/concurrency.ts";
import { type Steps, takeSteps, yieldToEventLoop } from "../core/async/turns.ts";
import type { Buckets } from "../core/rows.ts";
import type { Millis } from "../core/time.ts";
import type { SeriesQuery } from "../store/metrics.ts";
import {
  type Budget,
  groupStreams,
  readKnownStreams,
  readStreams,
  readTimes,
  type StreamGroup,
} from "./replica-streams.ts";
import { chooseTimes, edgeLength, scrapeTimeout } from "./replicas.ts";
import type { ReadablePlace } from "./series-identity.ts";

/**
 * The time of the first sample of the metric that counts, whatever the query's tags. It is exact where it may lie before one of
 * the times, which are the first ones of new series; else it may be some seconds earlier, or -Infinity.
 * @throws {Refused | BackendError}
 */
export async function findMetricStart(
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
  // What does not count lies less than a scrape before what does.
  const unclear = times.filter((time) => first < time && time < first + scrapeTimeout);
  const last = unclear.reduce((latest, time) => Math.max(latest, time), first);
  return last === first ? first : findFirstCounted(places, query, { first, last }, budget, signal);
}

/** As `findMetricStart`, of a metric whose first sample is at `first`, and may count or not; no new series begins after `last`. */
async function findFirstCounted(
  places: readonly ReadablePlace[],
  query: SeriesQuery,
  { first, last }: { readonly first: Millis; readonly last: Millis },
  budget: Budget,
  signal: AbortSignal,
): Promise<Millis> {
  const all = { ...query, tags: {} };
  const window = { from: first, to: last + scrapeTimeout };
  // Series of which it is unclear which streams they have are no fault of who asks for others.
  const streams = await readStreams(places, all, window, budget, signal);
  let begun = Number.POSITIVE_INFINITY;
  const undecided: StreamGroup[] = [];
  for (const group of await groupStreams(places, streams, all, signal, "separate")) {
    await yieldToEventLoop();
    signal.throwIfAborted();
    const counted = await takeSteps(decideFirst(group, window.to), signal);
    if (counted === undefined) undecided.push(group);
    else begun = Math.min(begun, counted);
  }
  const earlier = undecided.filter((group) => findFirst(group) < begun);
  const whole = { from: first, to: last + scrapeTimeout + edgeLength };
  const known = await readKnownStreams(places, all, earlier, whole, budget, signal, "separate");
  for (const group of await groupStreams(places, known, all, signal, "separate")) {
    await yieldToEventLoop();
    signal.throwIfAborted();
    begun = Math.min(
      begun,
      await takeSteps(chooseFirst(group.streams.map(({ member }) => readTimes(member))), signal),
    );
  }
  return begun;
}

/** The first time that counts; undefined where that depends on how long which scraper goes on after `end`. */
function* decideFirst({ streams }: StreamGroup, end: Millis): Steps<Millis | undefined> {
  const times = streams.map(({ member }) => readTimes(member));
  const ending = yield* chooseFirst(times);
  if (streams.length === 1) return ending;
  const goingOn = yield* chooseFirst(times.map((own) => Float64Array.of(...own, end)));
  return streams.length === 2 && ending === goingOn ? ending : undefined;
}

function* chooseFirst(times: readonly Float64Array[]): Steps<Millis> {
  const chosen = yield* chooseTimes(times);
  return Math.min(...chosen.map(([first = Number.POSITIVE_INFINITY]) => first));
}

/** Of all samples, whether they count or not. */
function findFirst({ streams }: StreamGroup): Millis {
  return Math.min(...streams.map(({ member }) => readTimes(member)[0] ?? Number.POSITIVE_INFINITY));
}
