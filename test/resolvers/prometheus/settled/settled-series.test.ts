// Answers from kept values equal those of a store that keeps nothing, in random histories of requests over random series
// whose newest samples come late.
import fc from "fast-check";
import { expect, test } from "vitest";
import type { PrometheusClient } from "#resolvers/prometheus/client/client.ts";
import { createSeriesReader } from "#resolvers/prometheus/counters/series-reader.ts";
import { readIncrements } from "#resolvers/prometheus/metrics/increments.ts";
import type { MetricFamilies } from "#resolvers/prometheus/metrics/metric-families.ts";
import { createMetricStore } from "#resolvers/prometheus/metrics/metric-store.ts";
import { createPlan, narrowToSpan } from "#resolvers/prometheus/metrics/series-groups.ts";
import { createBucketMemory } from "#resolvers/prometheus/settled/bucket-memory.ts";
import { answerFromSettled, type SettledValues } from "#resolvers/prometheus/settled/settled-series.ts";
import type { Measure, Series } from "#src/core/rows.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import { base } from "../../../conformance/metrics/fixture.ts";
import { sampleRuns } from "../../../support/law-runs.ts";
import { dropStale, fleet } from "../../../support/prometheus/counter-fleets.ts";
import {
  describeObservedDifference,
  histogramFleet,
  observationMeasures,
} from "../../../support/prometheus/histogram-fleets.ts";
import type { WrittenSeries } from "../../../support/prometheus/kubernetes-exporters.ts";
import { createRecordingClient } from "../../../support/prometheus/promql-evaluator.ts";

const signal = new AbortController().signal;
const metric = "calls_total";
/** Samples change until they are so old, in buckets. */
const age = 3;

interface Subject {
  readonly shape: "counter" | "gauge" | "histogram";
  readonly step: number;
  readonly series: readonly WrittenSeries[];
  readonly measures: readonly Measure[];
}

const name = (labels: object, suffix = "") => ({ __name__: `${metric}${suffix}`, ...labels });
/** To the evaluator NaN is a staleness marker. */
const dropNaN = (samples: readonly (readonly [number, number])[]) =>
  samples.filter(([, value]) => !Number.isNaN(value));

const counters = fleet.map(({ step, series }): Subject => {
  const written = series.map((one) => ({ labels: name(one.labels), samples: dropNaN(dropStale(one)) }));
  return { shape: "counter", step, series: written, measures: [{ of: "increment" }] };
});
const gauges = counters.map((subject): Subject => {
  const combines = ["first", "last", "mean", "sum", "min", "max", "count"] as const;
  const measures: readonly Measure[] = [
    ...combines.map((combine) => ({ of: "samples", combine }) as const),
    { of: "samples", combine: "quantile", quantile: 0.9 },
  ];
  return { ...subject, shape: "gauge", measures };
});
/** From some bucket on, some histograms have one part less, as after a change of what is scraped. */
const loss = fc.record({ suffix: fc.constantFrom("_count", "_sum", "_bucket"), bucket: fc.nat(20) });
const histograms = fc.tuple(histogramFleet, fc.option(loss)).map(([{ step, series }, lost]): Subject => {
  const isKept = (suffix: string, path: string | undefined, time: number) =>
    suffix !== lost?.suffix || path === "/p0" || time < base + lost.bucket * step;
  const written = series.map(({ labels, suffix, samples }) => ({
    labels: name(labels, suffix),
    samples: dropNaN(samples).filter(([time]) => isKept(suffix, labels.path, time)),
  }));
  return { shape: "histogram", step, series: written, measures: observationMeasures };
});

/** In buckets: when it is asked, and for which ones. Time goes on from one request to the next. */
const request = fc.record({
  pause: fc.oneof(fc.constant(0.5), fc.nat(4)),
  back: fc.integer({ min: 4, max: 18 }),
  count: fc.integer({ min: 4, max: 20 }),
  /** For another question than the one before. */
  tags: fc.oneof({ weight: 5, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: fc.constant({}) }),
});
const histories = fc.record({
  tags: fc.constantFrom({ path: "*" }, { path: "/p1" }),
  measure: fc.nat(7),
  requests: fc.array(request, { minLength: 4, maxLength: 8 }),
});

/** What the source holds at a time: each sample comes after a delay of its own, shorter than the age. */
function openClient({ step, series }: Subject, now: number, sent: string[]): PrometheusClient {
  const held = series.map(({ labels, samples }) => ({
    labels,
    samples: samples.filter(([time, value]) => time + ((time + value) % age) * step * 0.99 <= now),
  }));
  const own = held.filter(({ samples }) => samples.length > 0);
  return createRecordingClient(own, "open", sent);
}

function openStore(
  subject: Subject,
  now: number,
  settled?: SettledValues,
): ReturnType<typeof createMetricStore> {
  const { shape } = subject;
  const kind = shape === "histogram" ? shape : "plain";
  const family = { kind, hasCount: true, hasSum: true, hasRanges: false };
  const families = { describe: async () => ({ shape, family }), listUncountable: async () => [] };
  const client = openClient(subject, now, []);
  return createMetricStore("prom", client, families as unknown as MetricFamilies, settled);
}

function openSettled(
  { step }: Subject,
  now: () => number,
  lookUps: { hit: number; miss: number },
): SettledValues {
  return {
    backend: "prom",
    memory: createBucketMemory(1_000_000, () => undefined),
    age: age * step,
    now,
    recordLookup: (hit) => {
      lookUps[hit ? "hit" : "miss"] += 1;
    },
  };
}

test.each([
  ["counters", counters],
  ["gauges", gauges],
  ["histograms", histograms],
] as const)("%s are answered as without memory", { timeout: 120_000 }, async (_, subjects) => {
  const lookUps = { hit: 0, miss: 0 };
  const property = fc.asyncProperty(subjects, histories, async (subject, history) => {
    const { step, measures } = subject;
    let now = base + 12 * step;
    const settled = openSettled(subject, () => now, lookUps);
    const measure = measures[history.measure % measures.length] ?? { of: "increment" };
    for (const { pause, back, count, tags = history.tags } of history.requests) {
      now += pause * step;
      const start = Math.floor(now / step) * step - back * step;
      const query: SeriesQuery = {
        match: { tenant: "shop" },
        metric,
        tags,
        measure,
        buckets: { start, step, count },
        // Shorter than the gaps of some series.
        lookBack: 2 * step,
        pointLimit: 10_000,
      };
      const ask = (store: ReturnType<typeof createMetricStore>): Promise<readonly Series[] | string> =>
        store.series(query, signal).catch(String);
      const expected = await ask(openStore(subject, now));
      const found = await ask(openStore(subject, now, settled));
      expect(describeObservedDifference(found, expected, false)).toBeUndefined();
    }
  });
  await fc.assert(property, { numRuns: sampleRuns(200, { share: 40, least: 5 }) });
  // Otherwise nothing was compared.
  expect(lookUps.hit).toBeGreaterThan(lookUps.miss / 2);
});

test("growth that the source adds up is answered as without memory", { timeout: 120_000 }, async () => {
  const lookUps = { hit: 0, miss: 0 };
  let grouped = 0;
  // Whatever the number of series is, what is remembered of it says that they are many.
  const sizes = { get: (key: string) => (key.startsWith("group") ? 1 : 100_000), set: () => undefined };
  const family = { kind: "plain", hasCount: false, hasSum: false, hasRanges: false } as const;
  const property = fc.asyncProperty(counters, histories, async (subject, history) => {
    const { step } = subject;
    let now = base + 12 * step;
    const settled = openSettled(subject, () => now, lookUps);
    for (const { pause, back, count } of history.requests) {
      now += pause * step;
      const start = Math.floor(now / step) * step - (back + 6) * step;
      const buckets = { start, step, count: count + 6 };
      const query: SeriesQuery = {
        match: { tenant: "shop" },
        metric,
        tags: history.tags,
        measure: { of: "increment" },
        buckets,
        lookBack: 6 * step,
        pointLimit: 10_000,
      };
      const sent: string[] = [];
      const client = openClient(subject, now, sent);
      const reader = createSeriesReader("prom", client, await client.readTraits(signal), sizes, signal);
      const plan = createPlan("prom", query, family, reader, async () => []);
      const expected = await readIncrements(plan, metric);
      if (sent.some((text) => text.startsWith("sum by"))) grouped += 1;
      const { series, keep } = await answerFromSettled(settled, {
        metric,
        question: metric,
        buckets,
        lookBack: query.lookBack,
        pointLimit: query.pointLimit,
        openAttempt: () => ({
          ask: (span, unkept) =>
            readIncrements({ ...plan, unkept, query: narrowToSpan(query, span) }, metric),
          release: () => undefined,
        }),
      });
      await keep();
      const sorted = series.toSorted((a, b) => ((a.tags.path ?? "") < (b.tags.path ?? "") ? -1 : 1));
      const found = sorted.filter(({ values }) => !values.every(Number.isNaN));
      expect(describeObservedDifference(found, expected, false)).toBeUndefined();
    }
  });
  await fc.assert(property, { numRuns: sampleRuns(200, { share: 40, least: 5 }) });
  expect(lookUps.hit).toBeGreaterThan(lookUps.miss / 2);
  expect(grouped).toBeGreaterThan(5);
});
