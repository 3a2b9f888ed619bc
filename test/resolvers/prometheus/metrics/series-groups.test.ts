// Many series become those of an answer in turns of the event loop.
import { expect, test } from "vitest";
import { joinByKey, type SeriesReader } from "#resolvers/prometheus/counters/series-reader.ts";
import { combineByGroup, createPlan, toSortedSeries } from "#resolvers/prometheus/metrics/series-groups.ts";
import { countTurns } from "../../../support/event-loop-turns.ts";

const query = {
  match: {},
  metric: "g",
  tags: { host: "*" },
  measure: { of: "samples", combine: "last" },
  buckets: { start: 0, step: 1_000, count: 1 },
  lookBack: 0,
  pointLimit: 10_000,
} as const;
const family = { kind: "plain", hasCount: false, hasSum: false, hasRanges: false } as const;
const plan = createPlan("prom", query, family, {} as SeriesReader, async () => []);

/** Of each host, in no order. */
const found = Array.from({ length: 300 }, (_, at) => ({
  labels: { host: String((at * 7) % 300).padStart(3, "0") },
  values: Float64Array.of(at),
}));
const sortedHosts = found.map(({ labels }) => labels.host).sort();

test("the series of an answer", async () => {
  const work = async () => {
    const series = await toSortedSeries(plan, found);
    expect(series.map(({ tags }) => tags.host)).toEqual(sortedHosts);
  };
  expect(await countTurns(work)).toBeGreaterThanOrEqual(found.length);
});

test("series by their groups, and the groups", async () => {
  const work = async () => {
    const values = Float64Array.of(1);
    const series = await combineByGroup(plan, [...found, ...found], () => values);
    expect(series.map(({ tags }) => tags.host)).toEqual(sortedHosts);
  };
  expect(await countTurns(work)).toBeGreaterThanOrEqual(3 * found.length);
});

test("pieces of series", async () => {
  const pieces = [0, 1].flatMap((time) =>
    found.map(({ labels, values }) => ({ labels, times: Float64Array.of(time), values, histograms: [] })),
  );
  const work = async () => {
    const joined = await joinByKey(pieces);
    expect(joined.map(({ labels, times }) => [labels.host, ...times])).toEqual(
      found.map(({ labels }) => [labels.host, 0, 1]),
    );
  };
  expect(await countTurns(work)).toBeGreaterThanOrEqual(3 * found.length);
});
