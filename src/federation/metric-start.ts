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
  type Span,
  type StreamGroup,
} from "./replica-streams.ts";
import { chooseTimes, edgeLength, scrapeTimeout } from "./replicas.ts";
import type { ReadablePlace } from "./series-identity.ts";

/**
 * The time of the first sample of the metric that counts, whatever the query's tags. Whether it lies before one of `times`, which
 * are the first ones of new series, is exact; the time itself may be some seconds off, or infinite.
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
  return unclear.length === 0 ? first : findFirstCounted(places, query, first, unclear, budget, signal);
}

/**
 * As `findMetricStart`, of a metric whose first sample is at `first`, and may count or not. Of each series only as much is read as
 * tells which of its samples count before the last one of `times`.
 */
async function findFirstCounted(
  places: readonly ReadablePlace[],
  query: SeriesQuery,
  first: Millis,
  times: readonly Millis[],
  budget: Budget,
  signal: AbortSignal,
): Promise<Millis> {
  const all = { ...query, tags: {} };
  const [earliest, last] = [times.reduce((a, b) => Math.min(a, b)), times.reduce((a, b) => Math.max(a, b))];
  let begun = Number.POSITIVE_INFINITY;
  let length = Math.max(places.length, 2) * scrapeTimeout;
  let streams = await readStreams(places, all, { from: first, to: last + length }, budget, signal);
  for (;;) {
    const undecided: StreamGroup[] = [];
    // Series of which it is unclear which streams they have are no fault of who asks for others.
    for (const group of await groupStreams(places, streams, all, signal, "separate")) {
      await yieldToEventLoop();
      signal.throwIfAborted();
      if (length < edgeLength && !isDecided(group, last, length)) undecided.push(group);
      else begun = Math.min(begun, await takeSteps(findFirstChosen(group), signal));
    }
    const open = undecided.filter((group) => findFirst(group) < Math.min(begun, last));
    if (open.length === 0 || begun < earliest) return begun;
    length = Math.min(3 * length, edgeLength);
    const span: Span = { from: first, to: last + length };
    streams = await readKnownStreams(places, all, open, span, budget, signal, "separate");
  }
}

/**
 * Whether samples up to `length` after a time tell which ones count until then. That hangs, for each stream, on whether the one
 * before it in the order goes on for the time of a scrape, also where one begins after what was read.
 */
function isDecided({ streams }: StreamGroup, time: Millis, length: Millis): boolean {
  const reach = (streams.length - 1) * scrapeTimeout;
  return (
    length >= reach + scrapeTimeout &&
    (streams.length === 1 ||
      streams.every(({ member }) => (readTimes(member).at(-1) ?? Number.NEGATIVE_INFINITY) >= time + reach))
  );
}

function* findFirstChosen({ streams }: StreamGroup): Steps<Millis> {
  const chosen = yield* chooseTimes(streams.map(({ member }) => readTimes(member)));
  return Math.min(...chosen.map(([first = Number.POSITIVE_INFINITY]) => first));
}

/** Of all samples, whether they count or not. */
function findFirst({ streams }: StreamGroup): Millis {
  return Math.min(...streams.map(({ member }) => readTimes(member)[0] ?? Number.POSITIVE_INFINITY));
}
