// Growth that is grouped at the source equals the definition, computed from raw samples by an oracle that shares no code
// with it.
import fc from "fast-check";
import { expect, test } from "vitest";
import type { PrometheusClient } from "#resolvers/prometheus/client/client.ts";
import { printExpression, type RangeEdge } from "#resolvers/prometheus/client/promql.ts";
import { findSteadyBuckets, growGroups } from "#resolvers/prometheus/counters/grouped-growth.ts";
import { createSeriesReader } from "#resolvers/prometheus/counters/series-reader.ts";
import { buildCounterQuery, createPlan } from "#resolvers/prometheus/metrics/series-groups.ts";
import { BackendError } from "#src/core/errors.ts";
import { type Choice, type Recorder, runWithRecorder } from "#src/telemetry/request-recorder.ts";
import { base, minute } from "../../../conformance/metrics/fixture.ts";
import { sampleRuns } from "../../../support/law-runs.ts";
import {
  buildFleetQuery,
  computeGrowth,
  describeGrowthDifference,
  dropStale,
  type FleetSeries,
  fleet,
  readGrouped,
} from "../../../support/prometheus/counter-fleets.ts";
import { createRecordingClient } from "../../../support/prometheus/promql-evaluator.ts";

const signal = new AbortController().signal;
const metric = "calls_total";

/** A client over these samples. `sent` takes each query. NaN is left out: to the evaluator it is a staleness marker. */
function createClient(series: readonly FleetSeries[], edge: RangeEdge, sent: string[]): PrometheusClient {
  const written = series.map((one) => ({
    labels: { __name__: metric, ...one.labels },
    samples: dropStale(one),
  }));
  return createRecordingClient(written, edge, sent);
}

function dropNaN(series: readonly FleetSeries[]): readonly FleetSeries[] {
  return series.map((one) => ({ ...one, samples: one.samples.filter(([, value]) => !Number.isNaN(value)) }));
}

test.each(["closed", "open"] as const)("equals the raw samples, left edge %s", async (edge) => {
  let [grouped, runs] = [0, 0];
  const property = fc.asyncProperty(
    fleet,
    fc.constantFrom({}, { path: "*" }),
    async ({ step, series }, tags) => {
      const numbers = dropNaN(series);
      const sent: string[] = [];
      const query = buildFleetQuery(metric, step, tags);
      const found = await readGrouped(createClient(numbers, edge, sent), query, signal);
      expect(describeGrowthDifference(numbers, found, computeGrowth(query, numbers))).toBeUndefined();
      runs += 1;
      if (sent.some((text) => text.startsWith("sum") && text.includes("last_over_time"))) grouped += 1;
    },
  );
  await fc.assert(property, { numRuns: sampleRuns(150) });
  // Otherwise nothing was compared.
  expect(grouped).toBeGreaterThan(runs / 2);
});

test.each(["closed", "open"] as const)(
  "equals the raw samples in one long bucket, left edge %s",
  async (edge) => {
    let [grouped, runs] = [0, 0];
    const long = fleet.filter(({ step }) => step === 10 * minute);
    const property = fc.asyncProperty(
      long,
      fc.constantFrom({}, { path: "*" }),
      fc.nat(minute),
      fc.integer({ min: 245, max: 300 }),
      async ({ step, series }, tags, later, minutes) => {
        const numbers = dropNaN(series);
        const sent: string[] = [];
        // From a time that is on no grid, and no whole number of parts long.
        const one = { start: base + later, step: minutes * minute + 1, count: 1 };
        const query = { ...buildFleetQuery(metric, step, tags), buckets: one };
        const found = await readGrouped(createClient(numbers, edge, sent), query, signal);
        expect(describeGrowthDifference(numbers, found, computeGrowth(query, numbers))).toBeUndefined();
        runs += 1;
        if (sent.some((text) => text.startsWith("sum") && text.includes("last_over_time"))) grouped += 1;
      },
    );
    await fc.assert(property, { numRuns: sampleRuns(150) });
    // Otherwise nothing was compared.
    expect(grouped).toBeGreaterThan(runs / 2);
  },
);

test("the groups of all parts of a long bucket are within the limit of points", async () => {
  const sample = (group: string, n: number, from: number, to: number): FleetSeries => ({
    labels: { tenant: "shop", path: group, pod: String(n) },
    samples: Array.from({ length: (to - from) * 2 }, (_, at) => [base + (from + at / 2) * minute, at + 1]),
  });
  // The last minutes are not grouped: one group has ended before, and another has begun.
  const series = [
    ...Array.from({ length: 8 }, (_, n) => sample("old", n, -20, 265)),
    ...Array.from({ length: 8 }, (_, n) => sample("ended", n, -20, 250)),
    sample("new", 9, 256, 258),
  ];
  const query = {
    ...buildFleetQuery(metric, 10 * minute, { path: "*" }),
    buckets: { start: base, step: 260 * minute, count: 1 },
  };
  const sent: string[] = [];
  const read = (pointLimit: number) =>
    readGrouped(createClient(series, "open", sent), { ...query, pointLimit }, signal);
  expect(await read(3)).toHaveLength(3);
  expect(sent.some((text) => text.startsWith("sum") && text.includes("last_over_time"))).toBe(true);
  await expect(read(2)).rejects.toMatchObject({ slug: "result_too_large" });
});

/** The samples before a time. */
function cutSamples(series: readonly FleetSeries[], until: number): readonly FleetSeries[] {
  return series.map((one) => ({ ...one, samples: one.samples.filter(([time]) => time < until) }));
}

/** Buckets until the samples end. */
const untilEnd = 35;

test.each(["closed", "open"] as const)(
  "adds up the last bucket too while samples come, left edge %s",
  async (edge) => {
    let [grouped, runs] = [0, 0];
    const property = fc.asyncProperty(
      fleet,
      fc.constantFrom({}, { path: "*" }),
      fc.double({ min: 0, max: 1, noNaN: true }),
      fc.constantFrom(0, 0.1, 0.3),
      async ({ step, series }, tags, begin, pace) => {
        const numbers = dropNaN(series);
        const query = buildFleetQuery(metric, step, tags, undefined, untilEnd);
        const end = base + untilEnd * step;
        const sent: string[] = [];
        const until = () => Math.min(end, end - (begin - pace * sent.length) * step);
        const growing = createClient([], edge, sent);
        const client: PrometheusClient = {
          ...growing,
          query: (...asked) => createClient(cutSamples(numbers, until()), edge, sent).query(...asked),
        };
        const early = cutSamples(numbers, until());
        const found = await readGrouped(client, query, signal);
        const [least, most] = [early, cutSamples(numbers, until())].map((seen) => computeGrowth(query, seen));
        const whole = { ...query, buckets: { ...query.buckets, count: untilEnd - 1 } };
        const settled = found
          .map(({ tags, values }) => ({ tags, values: values.slice(0, -1) }))
          .filter(({ values }) => values.some((value) => !Number.isNaN(value)));
        expect(describeGrowthDifference(numbers, settled, computeGrowth(whole, early))).toBeUndefined();
        const readLast = (all: readonly { tags: object; values: ArrayLike<number> }[] = [], tags: object) => {
          const one = all.find((other) => JSON.stringify(other.tags) === JSON.stringify(tags));
          return one?.values[untilEnd - 1] ?? Number.NaN;
        };
        for (const { tags, values } of found) {
          const [low, own, high] = [readLast(least, tags), values.at(-1) ?? Number.NaN, readLast(most, tags)];
          if (Number.isNaN(own)) expect(low).toBeNaN();
          else {
            expect(own).toBeLessThanOrEqual(high + 1e-9 * Math.max(1, high));
            if (!Number.isNaN(low)) expect(own).toBeGreaterThanOrEqual(low - 1e-9 * Math.max(1, low));
          }
        }
        runs += 1;
        if (sent.some((text) => text.startsWith("sum") && text.includes("last_over_time"))) grouped += 1;
      },
    );
    await fc.assert(property, { numRuns: sampleRuns(150) });
    expect(grouped).toBeGreaterThan(runs / 2);
  },
);

/** Series in two groups that grow from some value on, until the samples end with the query. */
function buildSteadySeries(from: number, unit: number): readonly FleetSeries[] {
  return Array.from({ length: 600 }, (_, n) => ({
    labels: { path: `/p${n % 2}`, n: String(n), tenant: "shop" },
    samples: Array.from(
      { length: 45 },
      (_, at) => [base + (at - 10) * minute, from + at * (n + 1) * unit] as const,
    ),
  }));
}

const once = { counts: 0, sums: 1, series: 0 };
const apart = { counts: 1, sums: 1, series: 0 };
const both = { ...apart, sums: 2 };

test.each([
  { title: "whole numbers", from: 1_000, unit: 1, first: once, second: once },
  { title: "fractions", from: 1_000, unit: 0.3, first: both, second: apart },
  { title: "halves", from: 0.5, unit: 1, first: once, second: once },
  { title: "large ones", from: 9e11, unit: 1, first: both, second: apart },
])("asks for counts and sums at once, of $title", async ({ from, unit, first, second }) => {
  const series = buildSteadySeries(from, unit);
  const query = buildFleetQuery(metric, minute, { path: "*" }, undefined, untilEnd);
  const sizes = new Map<string, number>();
  const remembered = {
    get: (key: string) => sizes.get(key) ?? (key.startsWith("group") ? 1 : series.length),
    set: (key: string, size: number) => void sizes.set(key, size),
  };
  for (const expected of [first, second]) {
    const sent: string[] = [];
    const found = await readGrouped(createClient(series, "open", sent), query, signal, remembered);
    expect(describeGrowthDifference(series, found, computeGrowth(query, series))).toBeUndefined();
    const count = (start: string) => sent.filter((text) => text.startsWith(start)).length;
    const asked = {
      counts: count("count by"),
      sums: count("sum by"),
      // The last bucket is not read by series, though no sample has come after it.
      series: count("last_over_time"),
    };
    expect(asked).toEqual(expected);
  }
});

test("reads the restarts of a deployment together", async () => {
  const series = Array.from({ length: 120 }, (_, n): FleetSeries => {
    const restart = base + 10 * minute + n * 1_000;
    const times = Array.from({ length: 80 }, (_, at) => base + (at - 6) * 30_000 + n);
    const samples = times.map((time, at) => [time, time < restart ? 1_000 + n * at : at] as const);
    return { labels: { path: `/p${n % 2}`, n: String(n), tenant: "shop" }, samples };
  });
  const sent: string[] = [];
  const client = createClient(series, "open", sent);
  const query = buildFleetQuery(metric, minute, { path: "*" });
  // Nothing is remembered of the number of series, so that it is counted.
  const sizes = { get: () => undefined, set: () => undefined };
  const reader = createSeriesReader("prom", client, await client.readTraits(signal), sizes, signal);
  const family = { kind: "plain", hasCount: false, hasSum: false, hasRanges: false } as const;
  const plan = createPlan("prom", query, family, reader, async () => []);
  const part = { ...buildCounterQuery(plan, metric, {}), by: ["path"] };
  const steady = await findSteadyBuckets(reader, { parts: [part], keys: ["path"], pointLimit: 10_000 });
  const grown = steady && (await growGroups(reader, steady));
  const values = grown?.parts[0]?.map((group) => [...group.values]);
  expect(values).toEqual(computeGrowth(query, series).map((group) => [...group.values]));
  expect(sent.filter((text) => text.startsWith("{"))).toHaveLength(1);
});

test("asks in parts of the time where the source loads few samples", async () => {
  const runs = sampleRuns(40);
  let [refused, grouped] = [0, 0];
  const property = fc.asyncProperty(fleet, async ({ step, series }) => {
    const numbers = dropNaN(series);
    const sent: string[] = [];
    const client = createClient(numbers, "open", sent);
    const limited: Pick<PrometheusClient, "query"> = {
      query: (expression, time, ...more) => {
        const evaluations = "at" in time ? 1 : (time.end - time.start) / time.step + 1;
        const [, seconds = 0] = /\[(\d+)s/.exec(printExpression(expression)) ?? [];
        // An evaluation for each bucket, or windows of more than ten buckets, are too much. All of the past has hardly more.
        const isLong = Number(seconds) * 1_000 > step * 12 && Number(seconds) < 1e9;
        if (evaluations > 12 || isLong) {
          refused += 1;
          const message =
            "status 422: query processing would load too many samples into memory in query execution";
          throw new BackendError("prom", "rejected", message);
        }
        return client.query(expression, time, ...more);
      },
    };
    const query = buildFleetQuery(metric, step, {});
    const found = await readGrouped({ ...client, ...limited }, query, signal);
    expect(describeGrowthDifference(numbers, found, computeGrowth(query, numbers))).toBeUndefined();
    if (sent.some((text) => text.startsWith("sum") && text.includes("last_over_time"))) grouped += 1;
  });
  await fc.assert(property, { numRuns: runs });
  expect(refused).toBeGreaterThan(runs);
  expect(grouped).toBeGreaterThan((3 * runs) / 8);
});

test("takes no sum of large fractions for whole because it is rounded", async () => {
  const series = Array.from(
    { length: 30 },
    (_, n): FleetSeries => ({
      labels: { tenant: "shop", n: String(n) },
      samples: Array.from({ length: 45 }, (_, at) => [base + (at - 5) * minute, 1.6e14 + 0.25 * at]),
    }),
  );
  const query = buildFleetQuery(metric, minute, {});
  const found = await readGrouped(createClient(series, "closed", []), query, signal);
  const expected = computeGrowth(query, series);
  expect(JSON.stringify(expected)).toContain("7.5");
  expect(describeGrowthDifference(series, found, expected)).toBeUndefined();
});

test("tells which way was taken, and why", async () => {
  const series = [1, 2, 3].map(
    (n): FleetSeries => ({
      labels: { tenant: "shop", n: String(n) },
      samples: Array.from({ length: 180 }, (_, at) => [base - 5 * minute + at * 15_000, at * n]),
    }),
  );
  const choices: Choice[] = [];
  const recorder: Recorder = {
    recordRequest: () => undefined,
    recordDocuments: () => undefined,
    recordSamples: () => undefined,
    recordChoice: (choice) => void choices.push(choice),
  };
  const query = buildFleetQuery(metric, minute, {});
  const ask = (own: readonly FleetSeries[]) =>
    runWithRecorder(recorder, () => readGrouped(createClient(own, "open", []), query, signal));
  await ask(series);
  const everyOtherMinute = series.map(({ labels, samples }) => ({
    labels,
    samples: samples.filter(([time]) => (time / minute) % 2 < 1),
  }));
  await ask(everyOtherMinute);
  expect(choices).toEqual([
    {
      backend: "prom",
      of: metric,
      how: "grouped",
      why: "about 100000 series in 30 buckets, and 1 groups",
    },
    {
      backend: "prom",
      of: metric,
      how: "read",
      why: "about 100000 series in 30 buckets, and 1 groups, but too few buckets have the same series, or a limit is in the way",
    },
  ]);
});
