// What a backend keeps of settled buckets: only with `settled`, for the same question and the same forced labels alone, and
// within its bytes.
import { afterEach, expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import { createBucketMemory } from "#resolvers/prometheus/settled/bucket-memory.ts";
import type { Series } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import { type Choice, runWithRecorder } from "#src/telemetry/request-recorder.ts";
import { testIO } from "../../../support/io.ts";
import { createFakePrometheus } from "../../../support/prometheus/fake-server.ts";
import type { WrittenSeries } from "../../../support/prometheus/kubernetes-exporters.ts";
import { openScriptedSource, type ScriptedSource } from "../../../support/scripted-http-source.ts";

const signal = new AbortController().signal;
const minute = 60_000;
const base = Date.UTC(2026, 0, 15, 10);
const now = base + 40 * minute;

const depth = (tenant: string, value: number): WrittenSeries => ({
  labels: { __name__: "depth", tenant },
  samples: Array.from({ length: 40 }, (_, n) => [base + n * minute + 200, value] as const),
});

const opened: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0)) await close();
});

/** A backend whose source holds what `written` is set to, and hears nothing of changes. */
async function open(settings: object, metricCacheBytes = 1_000_000) {
  const held = { written: [depth("shop", 1), depth("other", 7)] };
  const lookUps: boolean[] = [];
  const bytes: number[] = [];
  const source: ScriptedSource = await openScriptedSource((response, request, body) =>
    createFakePrometheus(held.written, { depth: "gauge" })(response, request, body),
  );
  const io = {
    ...testIO,
    now: () => fromMillis(now),
    metricCacheBytes,
    recordCacheLookup: (cache: string, hit: boolean) => {
      if (cache === "metric_values") lookUps.push(hit);
    },
    recordMetricCacheBytes: (_: string, taken: number) => void bytes.push(taken),
  };
  const backend = prometheus.create("prom", prometheus.parseConfig({ url: source.url, ...settings }), io);
  opened.push(
    () => backend.close(),
    () => source.close(),
  );
  const read = async (more: Partial<SeriesQuery> = {}): Promise<readonly number[][]> => {
    const query: SeriesQuery = {
      match: { tenant: "shop" },
      metric: "depth",
      tags: {},
      measure: { of: "samples", combine: "last" },
      buckets: { start: base, step: 5 * minute, count: 8 },
      lookBack: 24 * 60 * minute,
      pointLimit: 1_000,
      ...more,
    };
    const found = (await backend.stores.metrics?.series(query, signal)) ?? [];
    return found.map(({ values }) => [...values]);
  };
  return { held, lookUps, bytes, read };
}

test("what is written later shows only where nothing is kept", async () => {
  const [kept, plain] = [await open({ settled: "15m" }), await open({})];
  const before = [[1, 1, 1, 1, 1, 1, 1, 1]];
  for (const { read } of [kept, plain]) expect(await read()).toEqual(before);
  for (const { held } of [kept, plain]) held.written = [depth("shop", 2)];
  // Five buckets ended more than a quarter of an hour ago.
  expect(await kept.read()).toEqual([[1, 1, 1, 1, 1, 2, 2, 2]]);
  expect(await plain.read()).toEqual([[2, 2, 2, 2, 2, 2, 2, 2]]);
  expect([kept.lookUps, plain.lookUps]).toEqual([[false, true], []]);
  expect(kept.bytes.at(-1)).toBeGreaterThan(64 * 8);
});

test("nothing is kept without memory for it", async () => {
  const { held, read, lookUps } = await open({ settled: "15m" }, 0);
  await read();
  held.written = [depth("shop", 2)];
  expect(await read()).toEqual([[2, 2, 2, 2, 2, 2, 2, 2]]);
  expect(lookUps).toEqual([]);
});

test.each<[string, Partial<SeriesQuery>, number]>([
  ["forced labels", { match: { tenant: "other" } }, 7],
  ["measure", { measure: { of: "samples", combine: "count" } }, 5],
  ["tags", { tags: { tenant: "*" }, match: {} }, 1],
])("another question is not answered from what is kept: %s", async (_, more, value) => {
  const { read, lookUps } = await open({ settled: "15m" });
  await read();
  const [found] = (await read(more)).slice(-1);
  expect(found).toEqual(Array.from({ length: 8 }, () => value));
  expect(lookUps).toEqual([false, false]);
});

test("an explanation says what was kept", async () => {
  const { read } = await open({ settled: "15m" });
  await read();
  const choices: Choice[] = [];
  const ignored = () => undefined;
  const recordChoice = (choice: Choice) => void choices.push(choice);
  await runWithRecorder(
    { recordRequest: ignored, recordDocuments: ignored, recordSamples: ignored, recordChoice },
    () => read(),
  );
  expect(choices).toMatchObject([
    {
      of: "depth",
      how: "kept",
      why: "5 of 8 buckets are kept in memory",
      ranges: [
        { from: "2026-01-15T10:00:00.000Z", to: "2026-01-15T10:25:00.000Z", how: "kept" },
        { from: "2026-01-15T10:25:00.000Z", to: "2026-01-15T10:40:00.000Z", how: "asked" },
      ],
    },
  ]);
});

const buckets = { start: 0, step: minute, count: 64 };
const createSeries = (value: number): Series[] => [{ tags: {}, values: new Float64Array(64).fill(value) }];
const all = () => true;

test("what was used longest ago makes room", async () => {
  let taken = 0;
  const memory = createBucketMemory(8_000, (bytes) => {
    taken = bytes;
  });
  const isKept = async (question: string) => (await memory.read(question, buckets, 1_000)).known.includes(1);
  for (const question of ["a", "b", "c", "d", "e"])
    await memory.keep(question, buckets, createSeries(1), all);
  expect(await isKept("a")).toBe(true);
  await memory.keep("f", buckets, createSeries(1), all);
  expect(await Promise.all(["a", "b", "f"].map(isKept))).toEqual([true, false, true]);
  expect(taken).toBeGreaterThan(6_000);
  expect(taken).toBeLessThanOrEqual(8_000);
});

test("more series than fit are not kept", async () => {
  const memory = createBucketMemory(8_000, () => undefined);
  const many = Array.from({ length: 4 }, (_, n) => ({
    tags: { n: String(n) },
    values: new Float64Array(64),
  }));
  await memory.keep("a", buckets, many, all);
  expect((await memory.read("a", buckets, 1_000)).known.includes(1)).toBe(false);
});

test("a block that grows is measured anew", async () => {
  let taken = 0;
  const memory = createBucketMemory(10_000, (bytes) => {
    taken = bytes;
  });
  const sizes: number[] = [];
  for (let bucket = 0; bucket < 3; bucket++) {
    // With a series of its own in each bucket, as pods come and go.
    const series = [{ tags: { pod: String(bucket) }, values: Float64Array.of(1) }];
    await memory.keep("a", { start: bucket * minute, step: minute, count: 1 }, series, all);
    sizes.push(taken);
  }
  const [one = 0, two = 0, three] = sizes;
  expect(two - one).toBeGreaterThan(64 * 8);
  // More than a quarter of the memory.
  expect(three).toBe(0);
  expect((await memory.read("a", buckets, 1_000)).known.includes(1)).toBe(false);
});

test("kept series × buckets over the limit are refused", async () => {
  const memory = createBucketMemory(100_000, () => undefined);
  const two = ["x", "y"].map((n) => ({ tags: { n }, values: new Float64Array(64) }));
  await memory.keep("a", buckets, two, all);
  await expect(memory.read("a", buckets, 127)).rejects.toMatchObject({ slug: "result_too_large" });
  expect((await memory.read("a", buckets, 128)).series).toHaveLength(2);
});
