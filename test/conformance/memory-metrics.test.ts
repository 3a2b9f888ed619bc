import {
  createMemoryMetrics,
  type FamilyKind,
  type SeriesPart,
} from "#resolvers/memory/stores/metric-store.ts";
import { metricStoreSuite } from "./metrics.ts";

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
