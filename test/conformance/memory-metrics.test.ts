import { expect, test } from "vitest";
import {
  createMemoryMetrics,
  type FamilyKind,
  type SeriesPart,
} from "#resolvers/memory/stores/metric-store.ts";
import { metricStoreSuite } from "./metrics.ts";

test("le and quantile are tags of a gauge", async () => {
  const store = createMemoryMetrics("memory");
  for (const quantile of ["0.5", "0.9"])
    store.append("job:q", "gauge", "value", { quantile })(1_000, Number(quantile));
  const { signal } = new AbortController();
  expect(await store.tagKeys({}, "job:q", signal)).toEqual([["quantile"]]);
  const found = await store.series(
    {
      match: {},
      metric: "job:q",
      tags: { quantile: "*" },
      measure: { of: "samples", combine: "last" },
      buckets: { start: 0, step: 60_000, count: 1 },
      lookBack: 0,
      pointLimit: 10,
    },
    signal,
  );
  expect(found.map(({ tags, values }) => [tags.quantile, ...values])).toEqual([
    ["0.5", 0.5],
    ["0.9", 0.9],
  ]);
});

metricStoreSuite({
  name: "memory",
  start: async (families) => {
    const store = createMemoryMetrics("memory");
    for (const { metric, kind, series } of families) {
      const known: FamilyKind =
        kind === "unknown" ? (/_(total|count)$/.test(metric) ? "counter" : "gauge") : kind;
      for (const { suffix, labels, samples } of series) {
        const part = ({ "": "value", _bucket: "bucket", _sum: "sum", _count: "count" } as const)[
          suffix
        ] satisfies SeriesPart;
        const append = store.append(metric, known, part, labels);
        for (const [time, value] of samples) append(time, value);
      }
    }
    return { store, match: (tenant) => ({ tenant }), stop: async () => {} };
  },
});
