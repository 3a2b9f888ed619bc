import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { runSteps } from "#src/core/async/turns.ts";
import { minute, second } from "#src/core/time.ts";
import { chooseTimes, joinSamples, selectSamples } from "#src/federation/replicas.ts";
import { sampleRuns } from "../support/law-runs.ts";

const ascending = (times: readonly number[]) => Float64Array.from([...new Set(times)].sort((a, b) => a - b));

/** Scrapes every quarter of a minute with gaps, shifted against others' by some seconds. */
const scrapes = fc
  .array(fc.record({ pause: fc.integer({ min: 0, max: 12 }), count: fc.integer({ min: 1, max: 6 }) }), {
    minLength: 0,
    maxLength: 5,
  })
  .chain((runs) => fc.integer({ min: 0, max: 14 }).map((shift) => ({ runs, shift })))
  .map(({ runs, shift }) => {
    const times: number[] = [];
    let time = shift * second;
    for (const { pause, count } of runs) {
      time += pause * minute;
      for (let n = 0; n < count; n++) {
        time += 15 * second;
        times.push(time);
      }
    }
    return ascending(times);
  });

interface Run {
  first: number;
  last: number;
}

/** Times no more than five minutes apart from the next one. */
function listRuns(times: readonly number[]): Run[] {
  const runs: Run[] = [];
  for (const time of times) {
    const before = runs.at(-1);
    if (before !== undefined && time - before.last <= 5 * minute) before.last = time;
    else runs.push({ first: time, last: time });
  }
  return runs;
}

/** By the words of the rule, each time beside each run. */
function chooseByDefinition(times: readonly Float64Array[]): number[][] {
  const counted: number[] = [];
  return times.map((own) => {
    const others = listRuns([...counted].sort((a, b) => a - b));
    const kept = listRuns([...own]).flatMap((run) =>
      [...own].filter((time) => {
        if (time < run.first || time > run.last) return false;
        return !others.some(({ first, last }) => {
          const isWithin = first <= time && time <= last;
          // Two that watch at once change over within the time of a scrape.
          const isJustBefore = time < first && run.last >= first && first - time < 10 * second;
          const isJustAfter = time > last && run.first <= last && time - last < 10 * second;
          return isWithin || isJustBefore || isJustAfter;
        });
      }),
    );
    counted.push(...kept);
    return kept;
  });
}

describe("samples that several scrapers keep", () => {
  test("count by the times of one scraper, and of the others in its gaps", () => {
    fc.assert(
      fc.property(fc.array(scrapes, { maxLength: 4 }), (times) => {
        const chosen = runSteps(chooseTimes(times)).map((own) => [...own]);
        expect(chosen).toEqual(chooseByDefinition(times));
      }),
      { numRuns: sampleRuns(500) },
    );
  });

  test("are selected by their time and put together in its order", () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.tuple(fc.nat(30), fc.double({ noNaN: true })), { selector: ([time]) => time }),
        fc.integer({ min: 1, max: 4 }),
        fc.array(fc.nat(30)),
        (samples, streams, chosen) => {
          const sorted = samples.sort(([a], [b]) => a - b);
          const pieces = Array.from({ length: streams }, (_, own) => {
            const held = sorted.filter(([time]) => time % streams === own);
            return {
              times: Float64Array.from(held, ([time]) => time),
              values: Float64Array.from(held, ([, value]) => value),
            };
          });
          const joined = runSteps(joinSamples(pieces));
          expect([...joined.times].map((time, at) => [time, joined.values[at]])).toEqual(sorted);
          const selected = runSteps(selectSamples(joined, ascending(chosen)));
          expect([...selected.times].map((time, at) => [time, selected.values[at]])).toEqual(
            sorted.filter(([time]) => chosen.includes(time)),
          );
        },
      ),
    );
  });

  // As of a rule that runs every ten minutes: each is a run of its own. With each of them beside each other one it takes minutes.
  test("are chosen in many short steps where no two are near", () => {
    const own = Float64Array.from({ length: 300_000 }, (_, at) => at * 10 * minute);
    const times = [own, own.map((time) => time + 20 * second)];
    const steps = chooseTimes(times);
    let taken = 0;
    let step = steps.next();
    for (; step.done !== true; step = steps.next()) taken += 1;
    expect(taken).toBeGreaterThan(50);
    // `toEqual` takes seconds for so many.
    expect(isDeepStrictEqual(step.value, times)).toBe(true);
  });
});
