// Of series that several scrapers keep of one target, the samples that count. At any time they are those of one scraper:
// samples of two, put together, would count twice, and a counter would seem to fall where one scrape took longer.
import { findFirstAtOrAfter } from "../core/collections.ts";
import { type Millis, minute, second } from "../core/time.ts";

/** A scraper whose samples are further apart was away meanwhile. Prometheus takes a series to be gone after as long. */
export const longestGap: Millis = 5 * minute;

/** So long a scrape may take, by default: a value may be that much newer than its time. */
const scrapeTimeout: Millis = 10 * second;

/** From the first to the last sample of a scraper without a gap. */
interface Run {
  readonly first: Millis;
  readonly last: Millis;
}

/** Whether a sample counts, by the scraper it is of and its time. */
export type SampleChoice = (scraper: number, time: Millis) => boolean;

/**
 * Chooses samples of series that are one, by their ascending times. The first scraper's count. Those of a later one count
 * where the earlier ones have a gap, and before and after all of theirs. While two watch the target, a change from one to
 * the other leaves the time of a scrape between them.
 */
export function chooseSamples(times: readonly Float64Array[]): SampleChoice {
  let covered: readonly Run[] = [];
  const chosen = times.map((own) => {
    const kept = new Set<Millis>();
    for (const run of splitRuns(own)) {
      const from = findFirstAtOrAfter(own, run.first);
      for (let at = from; at < own.length && (own[at] ?? 0) <= run.last; at++) {
        const time = own[at] ?? 0;
        if (!isCovered(covered, run, time)) kept.add(time);
      }
    }
    covered = addTimes(covered, kept);
    return kept;
  });
  return (scraper, time) => chosen[scraper]?.has(time) ?? false;
}

function splitRuns(times: Float64Array): readonly Run[] {
  const runs: Run[] = [];
  let first = times[0];
  if (first === undefined) return runs;
  for (let at = 1; at <= times.length; at++) {
    const [before, time] = [times[at - 1] ?? 0, times[at]];
    if (time !== undefined && time - before <= longestGap) continue;
    runs.push({ first, last: before });
    first = time ?? 0;
  }
  return runs;
}

/** Whether others' samples count at a time of a run. `covered` is ascending. */
function isCovered(covered: readonly Run[], run: Run, time: Millis): boolean {
  return covered.some(({ first, last }) => {
    const from = run.last >= first ? first - scrapeTimeout : first;
    const to = run.first <= last ? last + scrapeTimeout : last;
    return (first <= time && time <= last) || (from < time && time < to);
  });
}

function addTimes(covered: readonly Run[], times: ReadonlySet<Millis>): readonly Run[] {
  if (times.size === 0) return covered;
  const points = [...times].map((time) => ({ first: time, last: time }));
  const joined: Run[] = [];
  for (const run of [...covered, ...points].sort((a, b) => a.first - b.first)) {
    const before = joined.at(-1);
    if (before === undefined || run.first - before.last > longestGap) joined.push(run);
    else joined[joined.length - 1] = { first: before.first, last: Math.max(before.last, run.last) };
  }
  return joined;
}
