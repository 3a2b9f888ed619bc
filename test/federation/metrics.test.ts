// Metrics of several backends: names, tags and every measure are those of one store that holds all series; and what is
// refused, since two stores have a series that may or may not be one.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createMemoryMetrics, type MemoryMetrics } from "#resolvers/memory/stores/metric-store.ts";
import { requireFirst, zip } from "#src/core/collections.ts";
import { BackendError, Refused } from "#src/core/errors.ts";
import { createFederatedMetrics } from "#src/federation/federated-metrics.ts";
import type { MetricStore, SeriesQuery } from "#src/store/metrics.ts";
import { measures } from "../conformance/metrics.ts";
import { minute, randomSeries, runs, type SplitSeries, splitMetrics, start } from "./split-metrics.ts";

const { signal } = new AbortController();

const queries = fc.record({
  tags: fc.constantFrom<Readonly<Record<string, string>>>({}, { host: "*" }, { code: "*" }, { host: "a" }),
  buckets: fc.record({
    start: fc.constantFrom(start, start + 7 * minute + 1, start - 20 * minute),
    step: fc.constantFrom(minute, 5 * minute, 61_234),
    count: fc.integer({ min: 1, max: 30 }),
  }),
  lookBack: fc.constantFrom(0, minute, 12 * minute, 600 * minute),
});

type Asked = typeof queries extends fc.Arbitrary<infer T> ? T : never;

/** The answers to all that may be asked of the series. */
async function askAll(store: MetricStore, { tags, buckets, lookBack }: Asked) {
  const answers: unknown[] = [await store.names({}, signal)];
  for (const type of ["gauge", "counter", "measurement"] as const) {
    answers.push(await store.type({}, type, signal), await store.tagKeys({}, type, signal));
    for (const measure of measures[type]) {
      const query = { match: {}, metric: type, tags, measure, buckets, lookBack, pointLimit: 10_000 };
      answers.push({ measure, series: await store.series(query, signal) });
    }
  }
  return answers;
}

describe("series split over several stores", () => {
  test.each([2, 3])("over %i: every measure is that of one store", async (count) => {
    const law = fc.asyncProperty(
      randomSeries,
      queries,
      fc.array(fc.nat(count - 1), { minLength: 1, maxLength: 9 }),
      async (series, asked, owners) => {
        const { whole, split } = splitMetrics(series, count, (n) => [owners[n % owners.length] ?? 0]);
        expect(await askAll(split, asked)).toEqual(await askAll(whole, asked));
      },
    );
    await fc.assert(law, runs(25));
  });

  // Sums of one store's samples pass what a number holds, on either side, where those of all do not.
  test("sums and means of the greatest numbers are those of one store", async () => {
    const value = fc.constantFrom(1.6e308, -1.6e308, 1e308, -1e308, 1);
    const gauges = fc.array(fc.array(value, { minLength: 1, maxLength: 6 }), { minLength: 2, maxLength: 4 });
    const law = fc.asyncProperty(gauges, fc.constantFrom({}, { host: "*" }), async (values, tags) => {
      const series = values.map((own, n) => gauge({ host: "abcd"[n % 2] ?? "", code: String(n) }, own));
      const { whole, split } = splitMetrics(series, 2, (n) => [n >> 1]);
      for (const combine of ["sum", "mean"] as const) {
        const query = { ...buildQuery("gauge", { of: "samples", combine }), tags };
        const [found, expected] = [await split.series(query, signal), await whole.series(query, signal)];
        expect(found.map((one) => one.tags)).toEqual(expected.map((one) => one.tags));
        for (const [{ values: own }, { values }] of zip(found, expected))
          for (const [got, wanted] of zip([...own], [...values])) {
            const isClose = Object.is(got, wanted) || Math.abs(got - wanted) < 1e297;
            expect(isClose, `${combine}: ${got} is not ${wanted}`).toBe(true);
          }
      }
    });
    await fc.assert(law, runs(200));
  });

  test("a new series of a metric that another store had before has grown from 0", async () => {
    const series = [counter({ host: "a" }, -10, 40), counter({ host: "b" }, 4, 40)];
    const { whole, split } = splitMetrics(series, 2, (n) => [n]);
    const grown = await readGrowth(split);
    expect(grown).toEqual(await readGrowth(whole));
    expect(grown[1]?.values[1]).toBe(4);
  });
});

test("no series is found by a tag that it lacks, also where the tag is named like a property of every object", async () => {
  const { whole, split } = splitMetrics([counter({ host: "a" }, -10, 40), counter({}, 4, 40)], 2, (n) => [n]);
  for (const tag of ["constructor", "__proto__"]) {
    const tags = Object.fromEntries([[tag, "*"]]);
    for (const store of [split, whole]) expect(await readGrowth(store, tags)).toEqual([]);
  }
});

describe("replicas", () => {
  const periods = fc.array(fc.constantFrom([0], [1], [0, 1], [2], [1, 2]), { minLength: 8, maxLength: 8 });

  // Periods are longer than a gap, so that whoever takes over is heard.
  test("targets that move, and that several scrapers watch, are counted once", async () => {
    const law = fc.asyncProperty(randomSeries, queries, periods, async (series, asked, holders) => {
      const choose = (_: number, time: number) =>
        holders[Math.min(7, Math.max(0, Math.floor((time - start) / (11 * minute)) + 1))] ?? [];
      for (const isLabelled of [true, false]) {
        const { whole, split } = splitReplicas(series, choose, isLabelled);
        expect(await askAll(split, asked)).toEqual(await askAll(whole, asked));
      }
    });
    await fc.assert(law, runs(20));
  });

  // The samples that count, in one store: what of the others lies before them is no earlier growth, and no earlier series.
  test("that begin around a bound, at times of their own, are as one store with the samples that count", async () => {
    const second = fc.integer({ min: -40, max: 40 });
    const births = fc.array(
      fc.tuple(fc.constantFrom("a", "b", "c"), second, second, fc.integer({ min: 1, max: 30 })),
      {
        minLength: 1,
        maxLength: 3,
      },
    );
    const law = fc.asyncProperty(
      births,
      fc.tuple(fc.integer({ min: -14, max: 14 }), fc.integer({ min: -14, max: 14 })),
      fc.constantFrom(0, 5_000, minute, 20 * minute),
      fc.constantFrom(0, 1, 20),
      fc.boolean(),
      async (born, [one, other], lookBack, late, hasOther) => {
        const offsets = [one * 1_000, other * 1_000];
        const series = born.map(([host, , , length], n): SplitSeries => {
          const samples = Array.from({ length: length + 8 }, (_, at) => {
            return {
              time: start + (at - 4) * 15_000,
              parts: [{ part: "value" as const, value: 500 + 3 * at }],
            };
          });
          return { type: "counter", tags: { host, code: String(n) }, samples };
        });
        if (hasOther) series.push(counter({ host: "z" }, -200, 40));
        // Each scraper meets each series at a time of its own.
        const choose = (position: number, time: number) =>
          [0, 1].filter((at) => time >= start + (born[position]?.[at === 0 ? 1 : 2] ?? -1e6) * 1_000);
        const { whole, split } = splitMetrics(series, 2, choose, { replica: "replica", offsets });
        for (const tags of [{ code: "*" }, {}, { host: "a" }]) {
          const asked = { tags, buckets: { start: start + late * 15_000, step: minute, count: 5 }, lookBack };
          expect(await askAll(split, asked)).toEqual(await askAll(whole, asked));
        }
      },
    );
    await fc.assert(law, runs(60));
  });

  test.each([
    ["nobody had the metric before", false, 39],
    ["the metric had others before", true, 1_000_039],
  ])("an earlier sample that does not count is no other series: %s", async (_, hasOther, grown) => {
    const stores = [13_000, 5_000].map((offset) => {
      const store = createMemoryMetrics("m");
      const append = store.append("counter", "counter", "value", { host: "a" });
      for (let n = 0; n < 40; n++) append(start + n * 15_000 + offset, 1_000_000 + n);
      if (hasOther)
        store.append("counter", "counter", "value", { host: "z" })(start - 60 * minute + offset, 1);
      return store;
    });
    const store = createFederatedMetrics(
      stores.map((store, at) => ({ backend: `b${at}`, store, match: {}, replica: "r" })),
    );
    const [found] = await readGrowth(store, { host: "a" });
    expect([...(found?.values ?? [])].reduce((sum, value) => sum + (value || 0), 0)).toBe(grown);
  });

  test("a series that begins around a bound grows in adjacent ranges as in the whole", async () => {
    const stores = [3_000, -5_000].map((offset) => {
      const store = createMemoryMetrics("m");
      const append = store.append("counter", "counter", "value", { host: "a" });
      for (let n = 0; n < 40; n++) append(start + n * 15_000 + offset, 100 + n);
      store.append("counter", "counter", "value", { host: "z" })(start - 60 * minute + offset, 1);
      return store;
    });
    const store = createFederatedMetrics(
      stores.map((store, at) => ({ backend: `b${at}`, store, match: {}, replica: "r" })),
    );
    const read = async (from: number, count: number) => {
      const buckets = { start: from, step: 10 * minute, count };
      const query = { ...buildQuery("counter", { of: "increment" }), tags: { host: "a" }, buckets };
      const [found] = await store.series(query, signal);
      return [...(found?.values ?? [])].reduce((sum, value) => sum + (value || 0), 0);
    };
    expect(await read(start - 10 * minute, 2)).toBe(139);
    expect(await read(start - 10 * minute, 1)).toBe(0);
    expect(await read(start, 1)).toBe(139);
  });

  /** Without a label on the series, as with external labels of a scraper, they are equal as they are. */
  function splitReplicas(
    series: readonly SplitSeries[],
    choose: (series: number, time: number) => readonly number[],
    isLabelled: boolean,
  ) {
    return splitMetrics(series, 3, choose, { replica: "replica", isLabelled });
  }

  test("a counter that two scrape at different times grows as one of them says", async () => {
    const scrapers = [0, 7_000].map((offset) => {
      const store = createMemoryMetrics("m");
      // The second one's value is of an earlier moment than its time says.
      const append = store.append("counter", "counter", "value", { host: "a" });
      for (let n = -4; n < 40; n++)
        append(start + n * 15_000 + offset, 1_000 + 10 * n - (offset > 0 ? 8 : 0));
      return store;
    });
    const places = scrapers.map((store, at) => ({
      backend: `b${at}`,
      store,
      match: {},
      replica: "prometheus",
    }));
    const [found] = await readGrowth(createFederatedMetrics(places));
    expect([...(found?.values ?? [])]).toEqual([40, 40, 40, 40, 40, 40, 40, 40, 40, 40]);
  });

  test("the other scraper fills a gap, and neither is a restart", async () => {
    const isHeld = (n: number, at: number) => (at === 0 ? n < 8 || n >= 32 : true);
    const stores = [0, 1].map((at) => {
      const store = createMemoryMetrics("m");
      const append = store.append("counter", "counter", "value", { host: "a" });
      for (let n = -4; n < 40; n++) if (isHeld(n, at)) append(start + n * 15_000 + at, 1_000 + 10 * n - at);
      return store;
    });
    const places = stores.map((store, at) => ({ backend: `b${at}`, store, match: {}, replica: "r" }));
    const [found] = await readGrowth(createFederatedMetrics(places));
    const sum = [...(found?.values ?? [])].reduce((all, value) => all + value, 0);
    expect(sum).toBe(400);
    expect(Math.max(...(found?.values ?? []))).toBeLessThan(50);
  });

  test("digits that one of them rounds off are no restart", async () => {
    const kept = [2_097_152.123456789, 2_097_152.12345679];
    const stores = kept.map((value, at) => {
      const store = createMemoryMetrics("m");
      const append = store.append("counter", "counter", "value", { host: "a" });
      // The one that rounds up is heard first, and again after a gap of the other.
      for (let n = -4; n < 40; n++)
        if (at === 1 ? n < 8 || n > 30 : n > 4) append(start + n * 15_000 + at, value);
      return store;
    });
    const places = [1, 0].map((at) => ({
      backend: `b${at}`,
      store: stores[at] as MemoryMetrics,
      match: {},
      replica: "r",
    }));
    const store = createFederatedMetrics(places);
    const [grown] = await readGrowth(store);
    expect(Math.max(...(grown?.values ?? []))).toBeLessThan(1e-8);
    const last = { ...buildQuery("counter", { of: "cumulative", combine: "last" }), tags: { host: "*" } };
    const [running] = await store.series(last, signal);
    for (const value of running?.values ?? []) expect(value).toBeCloseTo(requireFirst(kept), 7);
    // A restart falls further.
    const append = requireFirst(stores).append("counter", "counter", "value", { host: "a" });
    append(start + 10 * minute - 1_000, 5);
    expect((await readGrowth(store))[0]?.values[9]).toBeCloseTo(5, 7);
  });

  test("a cumulative value begins as it is within the buckets, whatever another one rounded before them", async () => {
    const exact = 2_097_152.123456789;
    const [rounding, keeping] = [createMemoryMetrics("m"), createMemoryMetrics("m")];
    const [appendRounded, append] = [rounding, keeping].map((store) =>
      store.append("counter", "counter", "value", { host: "a" }),
    );
    for (let n = -4; n < 0; n++) appendRounded?.(start + n * 15_000, 2_097_152.12345679);
    for (let n = 1; n < 40; n++) append?.(start + n * 15_000, exact);
    const places = [rounding, keeping].map((store, at) => ({
      backend: `b${at}`,
      store,
      match: {},
      replica: "r",
    }));
    const asked = { ...buildQuery("counter", { of: "cumulative", combine: "last" }), tags: { host: "*" } };
    const [found] = await createFederatedMetrics(places).series(asked, signal);
    expect([...(found?.values ?? [])]).toEqual(Array(10).fill(exact));
  });

  test("a series that comes back has grown since its last sample of the look-back", async () => {
    const early = counter({ host: "a" }, -100, 10).samples;
    const late = counter({ host: "a" }, 0, 150)
      .samples.slice(100)
      .map(({ time, parts }) => {
        return { time: time - 99 * 15_000, parts };
      });
    const series = { ...counter({ host: "a" }, 0, 0), samples: [...early, ...late] };
    const { whole, split } = splitMetrics([series], 2, (_, time) => [time < start ? 0 : 1], {
      replica: "replica",
    });
    const grown = await readGrowth(split);
    expect(grown).toEqual(await readGrowth(whole));
    expect(grown[0]?.values[0]).toBe(101 - 10 + 2);
  });

  // Of one that is found nowhere shortly before the range, the look-back is read as well: here the second store's alone.
  test("the first one named counts, whichever other series are found", async () => {
    const [first, second] = [createMemoryMetrics("m"), createMemoryMetrics("m")];
    appendScrapes(first, { host: "a" }, 29_500);
    // Its samples are of the next bucket.
    appendScrapes(second, { host: "a" }, 30_500);
    const appendLone = second.append("counter", "counter", "value", { host: "b" });
    for (const [time, value] of [[-50, 5] as const, [4, 6] as const])
      appendLone(start + time * minute, value);
    const store = createFederatedMetrics(
      [first, second].map((store, at) => ({ backend: `b${at}`, store, match: {}, replica: "r" })),
    );
    const [alone] = await readGrowth(store, { host: "a" });
    expect([...(alone?.values ?? [])]).not.toEqual(await readFirst(second));
    expect([...(alone?.values ?? [])]).toEqual(await readFirst(first));
    expect((await readGrowth(store, { host: "*" }))[0]).toEqual(alone);
  });

  test("of two in one store the one whose label is first counts, whichever is found first", async () => {
    const answers = [];
    for (const order of [["r1", "r2"] as const, ["r2", "r1"] as const]) {
      const store = createMemoryMetrics("m");
      for (const replica of order)
        appendScrapes(store, { host: "a", replica }, replica === "r1" ? 29_500 : 30_500);
      const place = { backend: "b0", store, match: {}, replica: "replica" };
      answers.push(await readFirst(createFederatedMetrics([place])));
    }
    const only = createMemoryMetrics("m");
    appendScrapes(only, { host: "a" }, 29_500);
    expect(answers).toEqual([await readFirst(only), await readFirst(only)]);
  });

  /** Growth that differs from bucket to bucket, so that it tells which samples count. */
  function appendScrapes(store: MemoryMetrics, labels: Readonly<Record<string, string>>, offset: number) {
    const append = store.append("counter", "counter", "value", labels);
    for (let n = -20; n < 40; n++) append(start + n * 30_000 + offset, (n + 40) ** 2);
  }

  async function readFirst(store: MetricStore): Promise<readonly number[]> {
    const [found] = await readGrowth(store, { host: "a" });
    return [...(found?.values ?? [])];
  }

  describe("percentiles of a summary, which cannot be put together", () => {
    /** `labels` are those of scrapers, each of which has the summary in the first of two stores. */
    async function readPercentile(labels: readonly Readonly<Record<string, string>>[]) {
      const [holder, other] = [createMemoryMetrics("m"), createMemoryMetrics("m")];
      for (const own of labels)
        for (let n = -4; n < 40; n++) {
          const time = start + n * 15_000;
          holder.append("x", "summary", "value", { ...own, host: "a", quantile: "0.9" })(time, 7);
          holder.append("x", "summary", "count", { ...own, host: "a" })(time, n + 5);
        }
      const store = createFederatedMetrics(
        [holder, other].map((store, at) => ({ backend: `b${at}`, store, match: {}, replica: "replica" })),
      );
      const measure = { of: "observations", combine: "quantile", quantile: 0.9 } as const;
      return store.series({ ...buildQuery("x", measure), tags: { host: "*" } }, signal);
    }

    test("are answered by the one store that has it", async () => {
      expect(await readPercentile([{}])).toEqual([
        { tags: { host: "a" }, values: Float64Array.from(Array(10).fill(7)) },
      ]);
    });

    test.each([[[{ replica: "r1" }]], [[{ replica: "r1" }, { replica: "r2" }]], [[{}, { replica: "r2" }]]])(
      "are refused of series with the label of a scraper: %j",
      async (labels) => {
        await expect(readPercentile(labels)).rejects.toMatchObject({ slug: "not_supported_by_backend" });
      },
    );
  });

  test("their label is no tag", async () => {
    const { split } = splitMetrics([counter({ host: "a" }, 0, 9)], 2, () => [0, 1], {
      replica: "replica",
    });
    expect(await split.tagKeys({}, "counter", signal)).toEqual([["host"]]);
    expect(await readGrowth(split, { replica: "*" })).toEqual([]);
  });
});

describe("equal series in two stores", () => {
  const refusal = { slug: "not_supported_by_backend", details: { backend: "b0, b1" } };

  test.each<[string, SeriesQuery["measure"]]>([
    ["gauge", { of: "samples", combine: "last" }],
    ["gauge", { of: "samples", combine: "mean" }],
    ["gauge", { of: "samples", combine: "quantile", quantile: 0.9 }],
    ["counter", { of: "increment" }],
    ["counter", { of: "cumulative", combine: "last" }],
    ["measurement", { of: "observations", combine: "mean" }],
  ])("are refused where no replica is named: %s %o", async (type, measure) => {
    const series = { ...counter({ host: "a" }, 0, 9), type } as SplitSeries;
    const { split } = splitMetrics([toType(series)], 2, () => [0, 1]);
    await expect(split.series(buildQuery(type, measure), signal)).rejects.toMatchObject(refusal);
    await expect(split.series(buildQuery(type, measure), signal)).rejects.toThrow(/host="a".* b0, b1/);
  });

  test("are refused for a quantile of summaries with what helps, which `replica` does not", async () => {
    const places = ["a", "b"].map((host, at) => {
      const store = createMemoryMetrics("m");
      store.append("x", "summary", "value", { host, quantile: "0.9" })(start, 7);
      store.append("x", "summary", "count", { host })(start, 1);
      return { backend: `b${at}`, store, match: {} };
    });
    const query = buildQuery("x", { of: "observations", combine: "quantile", quantile: 0.9 });
    const store = createFederatedMetrics(places);
    const refused = store.series({ ...query, tags: {} }, signal);
    await expect(refused).rejects.toMatchObject(refusal);
    await expect(refused).rejects.toThrow(
      /several summaries. Ask for count or mean, or for one of them by its tags/,
    );
    const { tags, values } = requireFirst(await store.series({ ...query, tags: { host: "a" } }, signal));
    expect({ tags, value: values[0] }).toEqual({ tags: { host: "a" }, value: 7 });
    const counted = { ...query, measure: { of: "observations", combine: "count" } as const, tags: {} };
    expect(await store.series(counted, signal)).toHaveLength(1);
  });

  test("are refused where one was in the other store before the look-back", async () => {
    const moved = counter({ host: "a" }, -400, 420);
    const others = counter({ host: "b" }, -400, 420);
    const { split } = splitMetrics([moved, others], 2, (n, time) => [n === 0 && time >= start ? 1 : 0]);
    const query = { ...buildQuery("counter", { of: "increment" }), lookBack: minute };
    await expect(split.series({ ...query, tags: { host: "a" } }, signal)).rejects.toMatchObject(refusal);
  });

  test("are refused where one place alone names a replica", async () => {
    const stores = [0, 1].map(() => {
      const store = createMemoryMetrics("m");
      store.append("gauge", "gauge", "value", { host: "a" })(start, 1);
      return store;
    });
    const places = stores.map((store, at) => ({
      backend: `b${at}`,
      store,
      match: {},
      replica: at === 0 ? "replica" : undefined,
    }));
    const query = buildQuery("gauge", { of: "samples", combine: "last" });
    await expect(createFederatedMetrics(places).series(query, signal)).rejects.toMatchObject(refusal);
  });
});

test("metrics of two types are refused, by the names of both stores", async () => {
  const [one, two] = [createMemoryMetrics("m"), createMemoryMetrics("m")];
  one.append("x", "gauge", "value", {})(start, 1);
  two.append("x", "counter", "value", {})(start, 1);
  const places = [one, two].map((store, at) => ({ backend: `b${at}`, store, match: {} }));
  await expect(createFederatedMetrics(places).type({}, "x", signal)).rejects.toThrow(
    /a gauge in b0 and a counter in b1/,
  );
});

test("a store that fails fails the answer, and too many points are refused", async () => {
  const { split } = splitMetrics([counter({ host: "a" }, 0, 9), counter({ host: "b" }, 0, 9)], 2, (n) => [n]);
  const query = { ...buildQuery("counter", { of: "increment" }), tags: { host: "*" }, pointLimit: 19 };
  const refused: unknown = await split.series(query, signal).catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(Refused);
  expect(refused).toMatchObject({ slug: "result_too_large", details: { limit: 19, wanted: 20 } });
  const down = createMemoryMetrics("m");
  const failure = new BackendError("b1", "unreachable", "down");
  const places = [
    { backend: "b0", store: createMemoryMetrics("m"), match: {} },
    { backend: "b1", store: { ...down, type: () => Promise.reject(failure) }, match: {} },
  ];
  await expect(createFederatedMetrics(places).series(query, signal)).rejects.toBe(failure);
});

test("a mean is of the samples that were counted, whenever new ones come", async () => {
  const read = async (seenFrom: number) => {
    let asked = 0;
    const places = ["a", "b"].map((host) => {
      const store = createMemoryMetrics("m");
      const append = store.append("x", "gauge", "value", { host });
      for (let n = 0; n < 38; n++) append(start + n * 15_000, 100);
      const { members } = store;
      if (members === undefined) throw new Error("no members");
      const read: typeof members.read = (query, signal) => {
        if (asked++ === seenFrom) append(start + 38 * 15_000, 100);
        return members.read(query, signal);
      };
      return { backend: host, store: { ...store, members: { ...members, read } }, match: {} };
    });
    const query = buildQuery("x", { of: "samples", combine: "mean" });
    return { found: await createFederatedMetrics(places).series(query, signal), places, asked: () => asked };
  };
  const whole = (await read(-1)).asked();
  expect(whole).toBeGreaterThanOrEqual(4);
  for (let seenFrom = 0; seenFrom <= whole; seenFrom++) {
    const { found } = await read(seenFrom);
    const [one] = found;
    expect(found).toHaveLength(1);
    expect([...(one?.values ?? [])], `seen from read ${seenFrom} on`).toEqual(Array(10).fill(100));
  }
});

function counter(tags: SplitSeries["tags"], from: number, length: number): SplitSeries {
  const samples = Array.from({ length }, (_, n) => ({
    time: start + (from + n) * 15_000,
    parts: [{ part: "value" as const, value: n + 1 }],
  }));
  return { type: "counter", tags, samples };
}

function gauge(tags: SplitSeries["tags"], values: readonly number[]): SplitSeries {
  const samples = values.map((value, n) => ({
    time: start + n * 30_000,
    parts: [{ part: "value" as const, value }],
  }));
  return { type: "gauge", tags, samples };
}

/** As a histogram, where it has to be one. */
function toType(series: SplitSeries): SplitSeries {
  if (series.type !== "measurement") return series;
  const parts = (value: number) => [
    { part: "count" as const, value },
    { part: "sum" as const, value },
  ];
  const samples = series.samples.map(({ time, parts: [one] }) => ({ time, parts: parts(one?.value ?? 0) }));
  return { ...series, samples };
}

function buildQuery(metric: string, measure: SeriesQuery["measure"]): SeriesQuery {
  return {
    match: {},
    metric,
    tags: {},
    measure,
    buckets: { start, step: minute, count: 10 },
    lookBack: 60 * minute,
    pointLimit: 1_000,
  };
}

function readGrowth(store: MetricStore, tags: SeriesQuery["tags"] = { host: "*" }) {
  return store.series({ ...buildQuery("counter", { of: "increment" }), tags }, signal);
}
