// Very many series of several scrapers or places are put together without holding the event loop up.
import { expect, test } from "vitest";
import type { Measure } from "#src/core/rows.ts";
import { createFederatedMetrics } from "#src/federation/federated-metrics.ts";
import { readReplicated } from "#src/federation/replicated-members.ts";
import { identifyPlaces } from "#src/federation/series-identity.ts";
import type { MemberReader, MetricStore, SampledMember, SeriesQuery } from "#src/store/metrics.ts";
import { countTurns } from "../support/event-loop-turns.ts";
import { never } from "../support/signals.ts";

const hostCount = 200;
const minute = 60_000;
const query: SeriesQuery = {
  match: {},
  metric: "c",
  tags: { host: "*" },
  measure: { of: "increment" },
  buckets: { start: 60 * minute, step: minute, count: 5 },
  lookBack: 10 * minute,
  pointLimit: 10_000,
};

function createMembers(replica: string): MemberReader {
  const times = Float64Array.from({ length: 12 }, (_, at) => (54 + at) * minute);
  const found = Array.from({ length: hostCount }, (_, n): SampledMember => {
    const samples = { times, values: times.map((time) => time * (n + 1)), baseline: "own" as const };
    return { tags: { host: String(n), replica }, samples };
  });
  return {
    read: async () => [],
    readRaw: async () => found,
    findHeldBefore: async () => [],
    findFirstTime: async () => Number.NEGATIVE_INFINITY,
  };
}

test("series of two scrapers", async () => {
  const places = ["a", "b"].map((backend) => ({
    backend,
    store: {} as never,
    match: { site: "m" },
    replica: "replica",
  }));
  const readable = identifyPlaces(places).map((place) => ({
    ...place,
    members: createMembers(place.backend),
  }));
  let merged: readonly SampledMember[] = [];
  const turns = await countTurns(async () => {
    merged = await readReplicated(readable, query, never);
  });
  expect(merged.map(({ tags }) => tags.host)).toEqual(Array.from({ length: hostCount }, (_, n) => String(n)));
  // Each stream is read, keyed and grouped; then each group is divided and merged, and its baseline set.
  expect(turns).toBeGreaterThanOrEqual(9 * hostCount);
});

/** Each place has hosts of its own. */
function createPlace(backend: string, hosts: number) {
  const times = Float64Array.from({ length: 12 }, (_, at) => (54 + at) * minute);
  const tags = Array.from({ length: hosts }, (_, n) => ({ host: `${backend}${n}` }));
  const samples = { times, values: times, baseline: "own" as const };
  const sampled = tags.map((own): SampledMember => ({ tags: own, samples }));
  const values = tags.map((own) => ({ tags: own, values: Float64Array.from([1, 2, 3, 4, 5]) }));
  const store: MetricStore = {
    names: async () => ["c"],
    type: async () => "counter",
    tagKeys: async () => [["host"]],
    series: async () => [],
    members: {
      read: async ({ measure }) => (measure.of === "samples" ? values : sampled),
      readRaw: async () => sampled,
      findHeldBefore: async () => [],
      findFirstTime: async () => Number.NEGATIVE_INFINITY,
    },
  };
  return { backend, store, match: {} };
}

test.each<[string, number, Measure]>([
  // Of each series its last sample before the buckets is keyed, and compared with those of the other place.
  ["the growth of series", 8, { of: "increment" }],
  // Of each series the mean is put together of its sum and its count, whose newest values are read again.
  ["the means of series", 24, { of: "samples", combine: "mean" }],
])("%s of two places", async (_, least, measure) => {
  const ask = (hosts: number) => {
    const store = createFederatedMetrics([createPlace("a", hosts), createPlace("b", hosts)]);
    return countTurns(() => store.series({ ...query, measure }, never));
  };
  const few = await ask(10);
  expect(await ask(110)).toBeGreaterThanOrEqual(few + least * 200);
});
