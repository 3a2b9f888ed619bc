// The series reader, over a client that is a function.
import { expect, test } from "vitest";
import type { PrometheusClient } from "#resolvers/prometheus/client/client.ts";
import {
  hasLabels,
  matchEqual,
  matchPresent,
  printExpression,
  select,
} from "#resolvers/prometheus/client/promql.ts";
import type { SampleSeries } from "#resolvers/prometheus/client/response-scanner.ts";
import { createSeriesReader } from "#resolvers/prometheus/counters/series-reader.ts";
import { BackendError } from "#src/core/errors.ts";

const signal = new AbortController().signal;

function createReader(query: PrometheusClient["query"]) {
  const unexpected = () => Promise.reject(new Error("unexpected request"));
  const client = {
    query,
    listSeries: unexpected,
    listNames: unexpected,
    readMetadata: unexpected,
    readAllMetadata: unexpected,
  };
  const more = { readTraits: unexpected, probe: unexpected, readClock: unexpected, close: unexpected };
  return createSeriesReader(
    "prom",
    { ...client, ...more },
    { edge: "closed", hidesRestarts: false, losesNaN: false },
    new Map(),
    signal,
  );
}

test("drops a series whose only sample is at the closed left edge", async () => {
  const series = (host: string, ...times: readonly number[]): SampleSeries => ({
    labels: { host },
    times: Float64Array.from(times),
    values: Float64Array.from(times, () => 1),
    histograms: [],
  });
  const query: PrometheusClient["query"] = async (expression, _, fold) => {
    const { series: take, result } = fold();
    const isCount = printExpression(expression).startsWith("sum(");
    const samples = [series("before", 99), series("both", 99, 100), series("inside", 100)];
    const found = isCount ? [series("", 101)] : samples;
    for (const one of found) take(one);
    return result();
  };
  const reader = createReader(query);
  const found = await reader.readRaw(select({}, [matchEqual("__name__", "g")]), 100, 101, 1_000);
  expect(found.map(({ labels, times }) => [labels.host, ...times])).toEqual([
    ["both", 100],
    ["inside", 100],
  ]);
});

test("samples of both halves of a range count, where the server takes no question about all of it", async () => {
  const all = Array.from({ length: 8_000 }, (_, time) => time);
  const query: PrometheusClient["query"] = async (expression, at, fold) => {
    const { series: take, result } = fold();
    const [text, time] = [printExpression(expression), "at" in at ? Number(at.at) : Number.NaN];
    const [, digits, unit] = /\[(\d+)(ms|s)\]/.exec(text) ?? [];
    const length = Number(digits) * (unit === "s" ? 1_000 : 1);
    if (length > 1_000)
      throw new BackendError("prom", "rejected", "query processing would load too many samples");
    const times = all.filter((one) => one >= time - length && one < time);
    const values = text.startsWith("sum(") ? [times.length] : times;
    const labels = {};
    take({
      labels,
      times: Float64Array.from(text.startsWith("sum(") ? [time] : times),
      values: Float64Array.from(values),
      histograms: [],
    });
    return result();
  };
  const reader = createReader(query);
  const selector = select({}, [matchEqual("__name__", "g")]);
  const found = await reader.readRaw(selector, 0, 8_000, 8_000);
  expect(found.map(({ times }) => times.length)).toEqual([8_000]);
  await expect(reader.readRaw(selector, 0, 8_000, 7_999)).rejects.toMatchObject({ slug: "result_too_large" });
});

test("reads no label from Object.prototype", () => {
  for (const label of ["constructor", "toString", "__proto__"]) {
    const selector = select({}, [matchPresent(label)]);
    expect(hasLabels(selector, { host: "a" })).toBe(false);
    expect(hasLabels(selector, { [label]: "" })).toBe(false);
    expect(hasLabels(selector, { [label]: "a" })).toBe(true);
  }
});
