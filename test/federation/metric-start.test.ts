// A metric of several scrapers that begins in the range: when it began tells which series are new, and is read of all its series.
import { expect, test } from "vitest";
import { createMemoryMetrics } from "#resolvers/memory/stores/metric-store.ts";
import { createFederatedMetrics } from "#src/federation/federated-metrics.ts";
import type { ForcedLabels, MetricStore, SeriesQuery } from "#src/store/metrics.ts";
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

test("reads few samples of the series that are not asked for", async () => {
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
  const stores = [1, 4].map((offset) => countSamples(createPlace(offset, { ...others, new: 0.5 }, 5)));
  // The others began before it, so that it is new.
  expect(await grow(federate(stores, ["r", "r"]))).toEqual([100 + 59]);
  // Its own samples of ten minutes, and some seconds of the others.
  expect(samples).toBeLessThan(2 * 70 + 50 * 2 * 5);
});

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
