// Of series that several scrapers keep of one target, the samples that count. At any time they are those of one scraper:
// samples of two, put together, would count twice, and a counter would seem to fall where one scrape took longer.
//
// One series may have millions of samples, so all of this is done in steps and visits each sample once.

import type { Steps } from "../core/async/turns.ts";
import { readNumber, requireAt } from "../core/collections.ts";
import { type Millis, minute, second } from "../core/time.ts";
import type { Samples } from "../metrics/samples.ts";

/** A scraper whose samples are further apart was away meanwhile. Prometheus takes a series to be gone after as long. */
export const longestGap: Millis = 5 * minute;

/** So long a scrape may take, by default: a value may be that much newer than its time. */
export const scrapeTimeout: Millis = 10 * second;

/** How far a choice may hang on samples before or after: of each scraper on those of the one before it in the order. */
export const edgeReach: Millis = 4 * scrapeTimeout;

/** What is read beyond a bound, so that samples at the bound are chosen as if all were read. */
export const edgeLength: Millis = longestGap + edgeReach;

/** Samples that one step visits, in a millisecond or two. */
const samplesPerStep = 20_000;

/** From the first to the last sample of a scraper without a gap. */
interface Run {
  readonly first: Millis;
  last: Millis;
}

/**
 * Chooses samples of series that are one, by their ascending times. The first scraper's count. Those of a later one count
 * where the earlier ones have a gap, and before and after all of theirs. While two watch the target, a change from one to
 * the other leaves the time of a scrape between them.
 * @returns the times that count, ascending, for each scraper
 */
export function* chooseTimes(times: readonly Float64Array[]): Steps<readonly Float64Array[]> {
  let covered: readonly Run[] = [];
  const chosen: Float64Array[] = [];
  for (const own of times) {
    const kept = yield* keepUncovered(own, covered);
    chosen.push(kept);
    covered = yield* addTimes(covered, kept);
  }
  return chosen;
}

/** The times at which no run of `covered` counts. Runs are ascending, and further apart than two scrapes take. */
function* keepUncovered(own: Float64Array, covered: readonly Run[]): Steps<Float64Array> {
  const runs = yield* addTimes([], own);
  const kept = new Float64Array(own.length);
  let [size, ofRun, ofCovered] = [0, 0, 0];
  for (let at = 0; at < own.length; at++) {
    const time = readNumber(own, at);
    while (requireAt(runs, ofRun).last < time) ofRun++;
    while ((covered[ofCovered]?.last ?? time) + scrapeTimeout <= time) ofCovered++;
    if (!isCovered(covered[ofCovered], requireAt(runs, ofRun), time)) kept[size++] = time;
    if (at % samplesPerStep === samplesPerStep - 1) yield;
  }
  return kept.subarray(0, size);
}

/** Whether a run of others counts at a time of this one. */
function isCovered(covered: Run | undefined, run: Run, time: Millis): boolean {
  if (covered === undefined) return false;
  const { first, last } = covered;
  const from = run.last >= first ? first - scrapeTimeout : first;
  const to = run.first <= last ? last + scrapeTimeout : last;
  return (first <= time && time <= last) || (from < time && time < to);
}

/** The runs of both, ascending. */
function* addTimes(runs: readonly Run[], times: Float64Array): Steps<readonly Run[]> {
  const joined: Run[] = [];
  const add = (first: Millis, last: Millis) => {
    const before = joined.at(-1);
    if (before === undefined || first - before.last > longestGap) joined.push({ first, last });
    else before.last = Math.max(before.last, last);
  };
  let next = 0;
  for (let at = 0; at < times.length; at++) {
    const time = readNumber(times, at);
    for (let run = runs[next]; run !== undefined && run.first <= time; run = runs[++next])
      add(run.first, run.last);
    add(time, time);
    if (at % samplesPerStep === samplesPerStep - 1) yield;
  }
  for (const { first, last } of runs.slice(next)) add(first, last);
  return joined;
}

/** The samples at these times, which are ascending. */
export function* selectSamples({ times, values }: Samples, chosen: Float64Array): Steps<Samples> {
  const kept = { times: new Float64Array(times.length), values: new Float64Array(times.length) };
  let [size, next] = [0, 0];
  for (let at = 0; at < times.length; at++) {
    const time = readNumber(times, at);
    while (next < chosen.length && readNumber(chosen, next) < time) next++;
    if (chosen[next] === time) {
      kept.times[size] = time;
      kept.values[size++] = readNumber(values, at);
    }
    if (at % samplesPerStep === samplesPerStep - 1) yield;
  }
  return { times: kept.times.subarray(0, size), values: kept.values.subarray(0, size) };
}

/** All samples of the pieces, ascending by time. Of no two pieces samples have one time. */
export function* joinSamples(pieces: readonly Samples[]): Steps<Samples> {
  let joined: Samples = { times: new Float64Array(), values: new Float64Array() };
  for (const piece of pieces) {
    if (piece.times.length > 0) joined = joined.times.length > 0 ? yield* joinTwo(joined, piece) : piece;
  }
  return joined;
}

function* joinTwo(one: Samples, other: Samples): Steps<Samples> {
  const size = one.times.length + other.times.length;
  const joined = { times: new Float64Array(size), values: new Float64Array(size) };
  let [ofOne, ofOther] = [0, 0];
  for (let at = 0; at < size; at++) {
    const isOne = (one.times[ofOne] ?? Infinity) < (other.times[ofOther] ?? Infinity);
    const [{ times, values }, from] = isOne ? [one, ofOne++] : [other, ofOther++];
    joined.times[at] = readNumber(times, from);
    joined.values[at] = readNumber(values, from);
    if (at % samplesPerStep === samplesPerStep - 1) yield;
  }
  return joined;
}
