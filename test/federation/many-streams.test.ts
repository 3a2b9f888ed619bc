// Very many series of several scrapers are put together without holding the event loop up.
import { expect, test } from "vitest";
import { readReplicated } from "#src/federation/replicated-members.ts";
import { identifyPlaces } from "#src/federation/series-identity.ts";
import type { MemberReader, SampledMember, SeriesQuery } from "#src/store/metrics.ts";
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
