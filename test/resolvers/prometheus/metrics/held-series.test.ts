// The series that a request reads are counted while they arrive, and what is too much is refused before it is held.
import { afterAll, beforeAll, expect, test } from "vitest";
import { countSeries } from "#resolvers/prometheus/client/client.ts";
import { collectSeries } from "#resolvers/prometheus/client/response-scanner.ts";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import { createHeldBytes, createHeldLedger, type HeldBytes } from "#src/core/async/held-bytes.ts";
import { TooMany } from "#src/core/errors.ts";
import { fromMillis } from "#src/core/time.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import { testIO } from "../../../support/io.ts";
import { createFakePrometheus } from "../../../support/prometheus/fake-server.ts";
import { openScriptedSource, type ScriptedSource } from "../../../support/scripted-http-source.ts";

const signal = new AbortController().signal;
const minute = 60_000;
const base = Date.UTC(2026, 0, 15, 10);
const seriesCount = 200;
const pointCount = 20;

const written = Array.from({ length: seriesCount }, (_, n) => ({
  labels: { __name__: "requests_total", tenant: "shop", host: `host-${n}` },
  samples: Array.from({ length: pointCount }, (_, at) => [base + at * minute + 200, at * n] as const),
}));

let source: ScriptedSource;
let backend: ReturnType<typeof prometheus.create>;
beforeAll(async () => {
  source = await openScriptedSource(createFakePrometheus(written, { requests_total: "counter" }));
  const io = { ...testIO, now: () => fromMillis(base + 40 * minute) };
  backend = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), io);
});
afterAll(async () => {
  await backend.close();
  await source.close();
});

async function readSums(held: HeldBytes | undefined, more: Partial<SeriesQuery> = {}) {
  const query: SeriesQuery = {
    match: { tenant: "shop" },
    metric: "requests_total",
    tags: { host: "*" },
    measure: { of: "increment" },
    buckets: { start: base, step: minute, count: pointCount },
    lookBack: 60 * minute,
    pointLimit: 100_000,
    held,
    ...more,
  };
  const found = (await backend.stores.metrics?.series(query, signal)) ?? [];
  return found
    .map(({ values }) => values.reduce((sum, value) => sum + (value || 0), 0))
    .sort((a, b) => a - b);
}

const expected = Array.from({ length: seriesCount }, (_, n) => n * (pointCount - 1));
/** Of the values of the answer alone. */
const valueBytes = seriesCount * pointCount * 8;

test("what is read counts until it is given back", async () => {
  const ledger = createHeldLedger();
  const held = createHeldBytes(100 * valueBytes, { ledger, account: "ana" });
  const samples: number[] = [];
  expect(await readSums(held, { reportRead: (read) => samples.push(read) })).toEqual(expected);
  expect(ledger.heldBytes).toBeGreaterThan(valueBytes);
  expect(samples.reduce((sum, read) => sum + read, 0)).toBeGreaterThanOrEqual(seriesCount * pointCount);
  held.release();
  expect(ledger.heldBytes).toBe(0);
});

test("more than one request may hold is refused", async () => {
  const refused = {
    slug: "result_too_large",
    message: expect.stringContaining("bytes of documents or series"),
  };
  await expect(readSums(createHeldBytes(valueBytes))).rejects.toMatchObject(refused);
});

test.each(["max", "sum"] as const)(
  "what was read in vain leaves room for what is read instead: %s",
  async (combine) => {
    // Each is the only one of its group, and read with all labels, but for the limit.
    const long = "x".repeat(6_000);
    const gauges = written.map(({ labels, samples }) => ({
      labels: { ...labels, __name__: "temperature", long },
      samples,
    }));
    const wide = await openScriptedSource(createFakePrometheus(gauges, { temperature: "gauge" }));
    const io = { ...testIO, now: () => fromMillis(base + 40 * minute) };
    const own = prometheus.create("prom", prometheus.parseConfig({ url: wide.url }), io);
    const held = createHeldBytes((seriesCount * long.length) / 2);
    const query: SeriesQuery = {
      match: { tenant: "shop" },
      metric: "temperature",
      tags: { host: "*" },
      measure: { of: "samples", combine },
      buckets: { start: base, step: minute, count: pointCount },
      lookBack: minute,
      pointLimit: 100_000,
      held,
    };
    const found = await own.stores.metrics?.series(query, signal);
    expect(found).toHaveLength(seriesCount);
    await own.close();
    await wide.close();
  },
);

test("no room for a token says nothing about the source", async () => {
  const ledger = createHeldLedger();
  const limitBytes = 100 * valueBytes;
  const other = createHeldBytes(limitBytes, { ledger, account: "ana" });
  other.hold(limitBytes);
  for (let n = 0; n < 30; n += 1)
    await expect(readSums(createHeldBytes(limitBytes, { ledger, account: "ana" }))).rejects.toThrow(TooMany);
  other.release();
  expect(await readSums(createHeldBytes(limitBytes, { ledger, account: "ana" }))).toEqual(expected);
});

test("what an attempt has read before it failed is given back by the next one", () => {
  const ledger = createHeldLedger();
  const held = createHeldBytes(1_000_000, { ledger, account: "ana" });
  const createFold = countSeries(collectSeries, { held });
  const values = new Float64Array(1_000);
  const one = { labels: {}, times: values, values, histograms: [] };
  createFold().series(one);
  const bytes = ledger.heldBytes;
  expect(bytes).toBeGreaterThan(values.byteLength);
  const again = createFold();
  expect(ledger.heldBytes).toBe(0);
  again.series(one);
  expect(again.result()).toEqual([one]);
  expect(ledger.heldBytes).toBe(bytes);
  held.release();
  expect(ledger.heldBytes).toBe(0);
});

test("labels, samples and the buckets of histograms count", () => {
  const count = (bucketCount: number, sampleCount: number, label: string): number => {
    let bytes = 0;
    const hold = (more: number): void => {
      bytes += more;
    };
    const held: HeldBytes = { hold, openPart: () => held, release: () => undefined };
    const { series, result } = countSeries(collectSeries, { held })();
    const buckets = Array.from({ length: bucketCount }, () => ({ lower: 0, upper: 1, count: 1 }));
    const values = new Float64Array(sampleCount);
    const one = {
      labels: { label },
      times: values,
      values,
      histograms: [{ time: 0, count: 0, sum: 0, buckets }],
    };
    series(one);
    expect(result()).toEqual([one]);
    return bytes;
  };
  const least = count(0, 0, "");
  expect(count(10, 0, "") - least).toBeGreaterThanOrEqual(10 * 3 * 8);
  expect(count(0, 10, "") - least).toBe(10 * 2 * 8);
  expect(count(0, 0, "x".repeat(1_000)) - least).toBe(1_000);
});
