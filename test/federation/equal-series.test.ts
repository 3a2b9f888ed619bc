// Which series of several places are one, whatever labels the places force: they are counted once or refused, and all others
// are counted. Places that force no label are in `metrics.test.ts`.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createMemoryMetrics } from "#resolvers/memory/stores/metric-store.ts";
import { requireFirst } from "#src/core/collections.ts";
import { createFederatedMetrics } from "#src/federation/federated-metrics.ts";
import { identifyPlaces } from "#src/federation/series-identity.ts";
import type { ForcedLabels, MetricStore, SeriesQuery } from "#src/store/metrics.ts";
import { measures } from "../conformance/metrics.ts";
import { minute, randomSeries, runs, splitMetrics, start, type ZoneForm } from "./split-metrics.ts";

const { signal } = new AbortController();

const queries = fc.record({
  tags: fc.constantFrom<Readonly<Record<string, string>>>({}, { host: "*" }, { code: "*" }, { host: "a" }),
  buckets: fc.record({
    // Before some of them a series has been in several places.
    start: fc.constantFrom(start, start + 24 * minute + 1, start - 20 * minute),
    step: fc.constantFrom(minute, 5 * minute),
    count: fc.constantFrom<number>(1, 2, 5, 30),
  }),
  lookBack: fc.constantFrom(0, minute, 12 * minute, 600 * minute),
});

/** Of one period, with all that was before. */
const onePeriod = queries.map((query) => ({
  ...query,
  buckets: { start: start + 22 * minute, step: 5 * minute, count: 2 },
  lookBack: 600 * minute,
}));

/** Of each period of eleven minutes, which is longer than a gap, the stores that hold the series then. */
const periods = fc.array(fc.constantFrom([0], [1], [0, 1], [2], [1, 2]), { minLength: 8, maxLength: 8 });
/** Each series is in one store at a time. */
const moves = fc.array(fc.constantFrom([0], [1], [2]), { minLength: 8, maxLength: 8 });
const chooseByPeriod = (holders: readonly (readonly number[])[]) => (_: number, time: number) =>
  holders[Math.min(7, Math.max(0, Math.floor((time - start) / (11 * minute)) + 1))] ?? [];

const zones = fc.tuple(
  fc.constant<ZoneForm>("forced"),
  fc.constantFrom<ZoneForm>("forced", "tag", "absent"),
  fc.constantFrom<ZoneForm>("forced", "tag", "absent"),
);

type Asked = typeof queries extends fc.Arbitrary<infer T> ? T : never;

/** The answer of each measure, or that it is refused. */
async function askAll(store: MetricStore, { tags, buckets, lookBack }: Asked) {
  const answers: unknown[] = [];
  for (const metric of ["gauge", "counter", "measurement"] as const) {
    for (const measure of measures[metric]) {
      const query = { match: {}, metric, tags, measure, buckets, lookBack, pointLimit: 10_000 };
      answers.push({ measure, series: await store.series(query, signal).catch(toRefusal) });
    }
  }
  return answers;
}

function toRefusal(error: unknown): string {
  expect(error).toMatchObject({ slug: "not_supported_by_backend" });
  return "refused";
}

describe("series that move between places, and that several have", () => {
  test("are counted once by replicas, whichever of them force a label of the series", async () => {
    const law = fc.asyncProperty(
      randomSeries,
      queries,
      periods,
      zones,
      async (series, asked, holders, zones) => {
        const options = { replica: "replica", zones };
        const { whole, split } = splitMetrics(series, 3, chooseByPeriod(holders), options);
        expect(await askAll(split, asked)).toEqual(await askAll(whole, asked));
      },
    );
    await fc.assert(law, runs(40));
  });

  test("are counted once or refused by others", async () => {
    const law = fc.asyncProperty(
      randomSeries,
      fc.oneof(queries, onePeriod),
      fc.oneof(periods, moves),
      zones,
      async (series, asked, holders, zones) => {
        const { whole, split } = splitMetrics(series, 3, chooseByPeriod(holders), { zones });
        const expected = await askAll(whole, asked);
        const found = await askAll(split, asked);
        for (const [at, answer] of found.entries())
          if (!JSON.stringify(answer).includes('"refused"')) expect(answer).toEqual(expected[at]);
      },
    );
    await fc.assert(law, runs(100));
  });
});

interface Holding {
  readonly match: ForcedLabels;
  readonly series: readonly Readonly<Record<string, string>>[];
  /** In minutes from `start` on. */
  readonly from?: number;
  readonly to?: number;
  /** Without samples in the 20 minutes before `start`. */
  readonly isAway?: boolean;
}

/** A counter that grows by 1 in each minute. */
function federate(holdings: readonly Holding[], replica?: string): MetricStore {
  const places = holdings.map(({ match, series, from = -60, to = 60, isAway = false }, at) => {
    const store = createMemoryMetrics("m");
    for (const labels of series) {
      const append = store.append("x", "counter", "value", { ...labels, ...match });
      for (let n = from; n < to; n++) if (!isAway || n < -20 || n >= 0) append(start + n * minute, 1_000 + n);
    }
    return { backend: `b${at}`, store, match, replica };
  });
  return createFederatedMetrics(places);
}

async function readGrowth(store: MetricStore, tags: SeriesQuery["tags"] = {}) {
  const query: SeriesQuery = {
    match: {},
    metric: "x",
    tags,
    measure: { of: "increment" },
    buckets: { start, step: 10 * minute, count: 1 },
    lookBack: 60 * minute,
    pointLimit: 1_000,
  };
  const found = await store.series(query, signal);
  return found.map(({ tags, values }) => ({ tags, grown: values[0] }));
}

test("after a server was down, no more is read of series that no other had", async () => {
  const store = federate([
    { match: {}, series: [{ host: "a" }], to: -10 },
    { match: {}, series: [{ host: "b" }] },
  ]);
  expect(await readGrowth(store)).toEqual([{ tags: {}, grown: 10 }]);
  const steps: number[] = [];
  const back = ["a", "b"].map((host, at) => {
    const own = createMemoryMetrics("m");
    const append = own.append("x", "counter", "value", { host });
    for (let n = -60; n < 60; n++) if (at === 1 || n < -20 || n >= 1) append(start + n * minute, 1_000 + n);
    const { members } = own;
    if (members === undefined) throw new Error("no members");
    const readRaw: typeof members.readRaw = (query, signal) => {
      steps.push(query.buckets.step);
      return members.readRaw(query, signal);
    };
    return { backend: `b${at}`, store: { ...own, members: { ...members, readRaw } }, match: {} };
  });
  expect(await readGrowth(createFederatedMetrics(back))).toEqual([{ tags: {}, grown: 40 }]);
  expect(new Set(steps)).toEqual(new Set([5 * minute]));
});

const refusal = { slug: "not_supported_by_backend" };

describe("a label that places force", () => {
  const tagged = { match: {}, series: [{ host: "a", zone: "eu" }] };
  const forced = { match: { zone: "eu" }, series: [{ host: "a" }] };
  const absent = { match: {}, series: [{ host: "a" }] };

  test.each([
    ["a tag of the other", [tagged, forced]],
    ["missing in the other", [absent, forced]],
    ["forced by both", [forced, forced]],
  ])("and that is %s: the series is one", async (_, holdings) => {
    for (const list of [holdings, holdings.toReversed()]) {
      await expect(readGrowth(federate(list))).rejects.toMatchObject(refusal);
      expect(await readGrowth(federate(list, "replica"))).toEqual([{ tags: {}, grown: 10 }]);
      const [before, after] = list.map((one, at) => ({ ...one, ...(at === 0 ? { to: -90 } : { from: 2 }) }));
      if (before === undefined || after === undefined) throw new Error("no places");
      const moved = [{ ...before, from: -120 }, after];
      await expect(readGrowth(federate(moved))).rejects.toMatchObject(refusal);
      expect(await readGrowth(federate(moved, "replica"))).toEqual([{ tags: {}, grown: 7 }]);
    }
  });

  test("with different values makes series different", async () => {
    const others = [forced, { ...forced, match: { zone: "us" } }];
    expect(await readGrowth(federate(others))).toEqual([{ tags: {}, grown: 20 }]);
    expect(await readGrowth(federate(others, "replica"))).toEqual([{ tags: {}, grown: 20 }]);
    const us = { match: {}, series: [{ host: "a", zone: "us" }] };
    expect(await readGrowth(federate([us, forced]), { host: "*" })).toEqual([
      { tags: { host: "a" }, grown: 20 },
    ]);
  });

  test("is refused where a series without it may be either of two", async () => {
    const us = { match: { zone: "us" }, series: [{ host: "a" }] };
    const both = { match: {}, series: [{ host: "a" }, { host: "a", zone: "eu" }] };
    for (const list of [
      [absent, forced, us],
      [forced, us, absent],
      [both, forced],
    ])
      for (const replica of ["replica", undefined])
        await expect(readGrowth(federate(list, replica))).rejects.toMatchObject(refusal);
    const lone = [both, { ...forced, series: [{ host: "b" }] }];
    expect(await readGrowth(federate(lone, "replica"))).toEqual([{ tags: {}, grown: 30 }]);
  });

  test("may be missing in a place whose other series have it, with several values", async () => {
    const scraped = ["r1", "r2"].map((replica) => ({ host: "a", replica }));
    const own = [...scraped, { host: "a", zone: "eu" }, { host: "a", zone: "us" }];
    const others = ["eu", "us"].map((zone) => ({ match: { zone }, series: [{ host: "b" }] }));
    const store = federate([{ match: {}, series: own }, ...others], "replica");
    expect(await readGrowth(store)).toEqual([{ tags: {}, grown: 50 }]);
    const away = { match: {}, series: own, isAway: true };
    expect(await readGrowth(federate([away, ...others], "replica"))).toEqual([{ tags: {}, grown: 110 }]);
  });

  test("may be missing beside a label of a third place", async () => {
    const places = [
      { match: {}, series: [{ host: "a" }] },
      { match: { zone: "eu" }, series: [{ host: "a", team: "x" }] },
      { match: { team: "x" }, series: [{ host: "b" }] },
    ];
    await expect(readGrowth(federate(places))).rejects.toMatchObject(refusal);
    expect(await readGrowth(federate(places, "replica"))).toEqual([{ tags: {}, grown: 20 }]);
  });

  test("may be missing among many, unless two servers lack all of them", () => {
    const places = Array.from({ length: 10 }, (_, n) => ({
      backend: `b${n}`,
      store: createMemoryMetrics("m"),
      match: { zone: `z${n}`, stage: `s${n}`, team: `t${n}`, cell: `c${n}` },
    }));
    const plain = { ...requireFirst(places), match: {} };
    const [alone] = identifyPlaces([plain, ...places]);
    // As it is in each of them, or without the labels.
    expect(alone?.listKeys({ host: "a" })).toHaveLength(11);
    const [one] = identifyPlaces([plain, { ...plain, backend: "b" }, ...places]);
    expect(() => one?.listKeys({ host: "a" })).toThrow("zone, stage, team, cell");
  });

  test("and by which the other place is asked still tells what has moved from where it is none", async () => {
    const moved = [
      { ...forced, from: -120, to: -90 },
      { ...tagged, from: 2 },
      { ...tagged, series: [{ host: "b", zone: "eu" }] },
    ];
    await expect(readGrowth(federate(moved), { zone: "*" })).rejects.toMatchObject(refusal);
    expect(await readGrowth(federate(moved, "replica"), { zone: "eu" })).toEqual([
      { tags: { zone: "eu" }, grown: 17 },
    ]);
  });

  test("that names the scraper makes none different", async () => {
    const scrapers = ["r1", "r2"].map((replica) => ({ match: { replica }, series: [{ host: "a" }] }));
    expect(await readGrowth(federate(scrapers, "replica"))).toEqual([{ tags: {}, grown: 10 }]);
  });
});

describe("a counter that comes back to its place", () => {
  /** Grows by 1 a minute. The times at which each place scrapes it are in minutes from `start` on. */
  function scrape(...times: readonly (readonly number[])[]): MetricStore {
    const places = times.map((own, at) => {
      const store = createMemoryMetrics("m");
      store.append("x", "counter", "value", { host: "other" })(start - 300 * minute, at);
      const append = store.append("x", "counter", "value", { host: "a" });
      for (const n of own) append(start + n * minute, 1_000 + n);
      return { backend: `b${at}`, store, match: {} };
    });
    return createFederatedMetrics(places);
  }
  const every = (step: number, from: number, to: number) =>
    Array.from({ length: Math.ceil((to - from) / step) }, (_, n) => from + n * step);

  test.each([
    ["long ago", [...every(1, -120, -50), ...every(1, 2, 20)], every(1, -50, -3)],
    ["within a gap around the start", [...every(1, -120, -4), ...every(1, 3, 20)], every(1, -4, 0)],
  ])("is refused where the other had it meanwhile: %s", async (_, first, second) => {
    for (const list of [
      [first, second],
      [second, first],
    ])
      await expect(readGrowth(scrape(...list), { host: "a" })).rejects.toMatchObject(refusal);
  });

  test.each([
    ["it was in the other before", [...every(1, -45, -20), ...every(1, 2, 20)], every(1, -59, -45), 30],
    ["it is seldom scraped", every(10, -40, 20), every(10, -59, -45), 10],
    ["it was nowhere meanwhile", [...every(1, -45, -20), ...every(1, 2, 20)], [], 30],
  ])("is answered where %s", async (_, first, second, grown) => {
    const found = await readGrowth(scrape(first, second), { host: "a" });
    expect(found).toEqual([{ tags: { host: "a" }, grown }]);
  });
});
