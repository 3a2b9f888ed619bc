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

const signal = new AbortController().signal;

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
  const unexpected = () => Promise.reject(new Error("unexpected request"));
  const client = {
    query,
    listSeries: unexpected,
    listNames: unexpected,
    readMetadata: unexpected,
    readAllMetadata: unexpected,
  };
  const more = { readTraits: unexpected, probe: unexpected, readClock: unexpected, close: unexpected };
  const reader = createSeriesReader(
    "prom",
    { ...client, ...more },
    { edge: "closed", hidesRestarts: false, losesNaN: false },
    new Map(),
    signal,
  );
  const found = await reader.readRaw(select({}, [matchEqual("__name__", "g")]), 100, 101, 1_000);
  expect(found.map(({ labels, times }) => [labels.host, ...times])).toEqual([
    ["both", 100],
    ["inside", 100],
  ]);
});

test("reads no label from Object.prototype", () => {
  for (const label of ["constructor", "toString", "__proto__"]) {
    const selector = select({}, [matchPresent(label)]);
    expect(hasLabels(selector, { host: "a" })).toBe(false);
    expect(hasLabels(selector, { [label]: "" })).toBe(false);
    expect(hasLabels(selector, { [label]: "a" })).toBe(true);
  }
});
