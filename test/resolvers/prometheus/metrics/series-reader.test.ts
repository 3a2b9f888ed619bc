// What reads series for one answer, over a source that is played by a function.
import { expect, test } from "vitest";
import type { Door } from "#resolvers/prometheus/client/client.ts";
import { equal, hasLabels, present, print, select } from "#resolvers/prometheus/client/promql.ts";
import type { SampleSeries } from "#resolvers/prometheus/client/response-scanner.ts";
import { createReader } from "#resolvers/prometheus/metrics/series-reader.ts";

const signal = new AbortController().signal;

test("a series of which a closed edge alone has let a sample in is none", async () => {
  const series = (host: string, ...times: readonly number[]): SampleSeries => ({
    labels: { host },
    times: Float64Array.from(times),
    values: Float64Array.from(times, () => 1),
    histograms: [],
  });
  const query: Door["query"] = async (expression, _, fold) => {
    const { series: take, result } = fold();
    const isCount = print(expression).startsWith("sum(");
    const samples = [series("before", 99), series("both", 99, 100), series("inside", 100)];
    const found = isCount ? [series("", 101)] : samples;
    for (const one of found) take(one);
    return result();
  };
  const unasked = () => Promise.reject(new Error("not asked here"));
  const door = { query, series: unasked, names: unasked, metadata: unasked, allMetadata: unasked };
  const more = { habits: unasked, probe: unasked, close: unasked };
  const reader = createReader(
    "prom",
    { ...door, ...more },
    { edge: "closed", hidesRestarts: false },
    new Map(),
    signal,
  );
  const found = await reader.raw(select({}, [equal("__name__", "g")]), 100, 101, 1_000);
  expect(found.map(({ labels, times }) => [labels.host, ...times])).toEqual([
    ["both", 100],
    ["inside", 100],
  ]);
});

test("what every object has is no label", () => {
  for (const label of ["constructor", "toString", "__proto__"]) {
    const selector = select({}, [present(label)]);
    expect(hasLabels(selector, { host: "a" })).toBe(false);
    expect(hasLabels(selector, { [label]: "" })).toBe(false);
    expect(hasLabels(selector, { [label]: "a" })).toBe(true);
  }
});
