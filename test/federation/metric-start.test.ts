// A metric of several scrapers that begins in the range: when it began tells which series are new, and is read of all its series.
import fc from "fast-check";
import { expect, test } from "vitest";
import { createMemoryMetrics } from "#resolvers/memory/stores/metric-store.ts";
import { runSteps } from "#src/core/async/turns.ts";
import { requireAt } from "#src/core/collections.ts";
import { createFederatedMetrics } from "#src/federation/federated-metrics.ts";
import { chooseTimes } from "#src/federation/replicas.ts";
import type { ForcedLabels, MetricStore, SeriesQuery } from "#src/store/metrics.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { never } from "../support/signals.ts";

const second = 1_000;
const origin = Date.UTC(2026, 0, 15, 10);
const query: SeriesQuery = {
  match: {},
  metric: "m",
  tags: { host: "new" },
  measure: { of: "increment" },
  buckets: { start: origin, step: 300 * second, count: 1 },
  lookBack: 0,
  pointLimit: 10_000,
};

/** From `offset` seconds on, every `interval`; each counts one. */
function createPlace(
  offset: number,
  hosts: Readonly<Record<string, number>>,
  interval: number,
  match: ForcedLabels = {},
): MetricStore {
  const store = createMemoryMetrics("place");
  for (const [host, later] of Object.entries(hosts)) {
    const append = store.append("m", "counter", "value", { host, ...match });
    for (let n = 0; n * interval < 350; n += 1)
      append(origin + (offset + later + n * interval) * second, 100 + n);
  }
  return store;
}

function federate(stores: readonly MetricStore[], replicas: readonly (string | undefined)[]): MetricStore {
  return createFederatedMetrics(
    stores.map((store, at) => ({ backend: `b${at}`, store, match: {}, replica: replicas[at] })),
  );
}

async function grow(store: MetricStore): Promise<readonly number[]> {
  return (await store.series(query, never)).map(({ values }) => values[0] ?? 0);
}

test.each([
  [2, 5],
  [3, 5],
  [4, 5],
  [2, 15],
  [3, 15],
  [3, 60],
])(
  "%i scrapers read few samples of the series that are not asked for, every %i s",
  async (count, interval) => {
    const others = Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`other-${n}`, 0]));
    let samples = 0;
    const countSamples = (store: MetricStore): MetricStore => {
      const { members } = store;
      if (members === undefined) throw new Error("no members");
      const readRaw: typeof members.readRaw = async (asked, signal) => {
        const found = await members.readRaw(asked, signal);
        for (const member of found) if ("samples" in member) samples += member.samples.times.length;
        return found;
      };
      return { ...store, members: { ...members, readRaw } };
    };
    // Each sees the others later than the one after it does. What counts of them is before the new one nevertheless.
    const offsets = [1, 0.6, 0.3, 0].slice(0, count);
    const stores = offsets.map((offset) =>
      countSamples(createPlace(offset, { ...others, new: 1.5 }, interval)),
    );
    const store = federate(
      stores,
      stores.map(() => "r"),
    );
    const [only] = await store.series(query, never);
    // All of its value has grown: the others began before it.
    expect(only?.values[0]).toBeGreaterThan(100);
    const ofOwn = count * Math.ceil(350 / interval) * 4;
    expect(samples - ofOwn).toBeLessThan(50 * count * (count + 2) * 2);
  },
);

test.each([5, 15, 60, 240])(
  "a sample that does not count does not begin the metric, every %i s",
  async (interval) => {
    // The second scraper sees the other series first. That of the first one counts, which is later than the new series.
    const stores = [
      createPlace(4, { other: 0, new: -1 }, interval),
      createPlace(1, { other: 0, new: 100 }, interval),
    ];
    const [growth = 0] = await grow(federate(stores, ["r", "r"]));
    expect(growth).toBeLessThan(100);
  },
);

test("series that are equal in two places are no fault of a query for another one", async () => {
  const stores = [
    createPlace(1, { new: 0.5, other: 0 }, 15),
    createPlace(4, { new: 0.5, other: 0 }, 15),
    createPlace(6, { other: 0 }, 15),
  ];
  expect(await grow(federate(stores, ["r", "r", undefined]))).toEqual([100 + 19]);
});

/** Each with a series of its own, of which it is unclear whether it is that of another place. */
const unclearPlaces: Readonly<Record<string, { match: ForcedLabels; replica?: string }[]>> = {
  "is in a place without a replica": [{ match: { zone: "eu", stage: "live" } }],
  "may be one of two": [
    { match: { zone: "us", stage: "live" }, replica: "r" },
    { match: {}, replica: "r" },
  ],
  "may be one of very many": [
    { match: {}, replica: "r" },
    { match: {}, replica: "r" },
    ...Array.from({ length: 12 }, (_, n) => ({ match: { zone: `z${n}`, stage: `s${n}` }, replica: "r" })),
  ],
};

test.each(Object.entries(unclearPlaces))(
  "a series that %s does not change when others began",
  async (_, more) => {
    const match = { zone: "eu", stage: "live" };
    const growBeside = async (unclear: Readonly<Record<string, number>>) => {
      // The second scraper sees the other series before the new one. That of the first one counts, which is later.
      const places = [
        { match, replica: "r", store: createPlace(0, { other: 7, new: 5, ...unclear }, 15, match) },
        { match, replica: "r", store: createPlace(0, { other: 3, new: 6 }, 15, match) },
        ...more.map((place) => ({ ...place, store: createPlace(0, unclear, 15, place.match) })),
      ];
      return grow(createFederatedMetrics(places.map((place, at) => ({ ...place, backend: `b${at}` }))));
    };
    const [growth = Number.NaN] = await growBeside({});
    expect(growth).toBeLessThan(100);
    expect(await growBeside({ unclear: 8 })).toEqual([growth]);
  },
);

/** A series as scrapers see it: from when, and for how long they reach it at first and after some time away. */
const begun = fc.array(
  fc.record({
    offset: fc.integer({ min: 0, max: 24 }),
    interval: fc.constantFrom(5, 15, 15, 60, 240),
    reached: fc.constantFrom(1, 12, 25, 60, 400),
    away: fc.constantFrom(10, 100, 290, 310),
  }),
  { minLength: 4, maxLength: 4 },
);

test.each([2, 3, 4])(
  "%i scrapers tell whether a series is new as one that has what counts",
  async (count) => {
    const property = fc.asyncProperty(
      begun,
      fc.array(begun, { minLength: 1, maxLength: 3 }),
      async (own, others) => {
        const whole = createMemoryMetrics("whole");
        const stores = Array.from({ length: count }, (_, at) => createMemoryMetrics(`s${at}`));
        for (const [n, scrapers] of [own, ...others].entries()) {
          const host = n === 0 ? "new" : `other-${n}`;
          const times = scrapers.slice(0, count).map(({ offset, interval, reached, away }) => {
            const seen: number[] = [];
            for (let at = 0; at < 700; at += interval)
              if (at < reached || at >= reached + away) seen.push(origin + (offset + at) * second);
            return Float64Array.from(seen);
          });
          const add = (store: typeof whole, all: Iterable<number>) => {
            const append = store.append("m", "counter", "value", { host });
            for (const time of all) append(time, 1_000 + (time - origin) / second);
          };
          for (const [at, store] of stores.entries()) add(store, requireAt(times, at));
          const chosen = runSteps(chooseTimes(times));
          add(
            whole,
            chosen.flatMap((kept) => [...kept]).sort((a, b) => a - b),
          );
        }
        const store = federate(
          stores,
          stores.map(() => "r"),
        );
        expect(await grow(store)).toEqual(await grow(whole));
      },
    );
    await fc.assert(property, { numRuns: sampleRuns(8_000, { share: 40, least: 100 }) });
  },
);
