// Metrics under the names that dashboards ask for: a store with names answers as one whose source had been filled with
// renamed and multiplied samples.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createMemoryMetrics } from "#resolvers/memory/stores/metric-store.ts";
import { createRenamedMetrics } from "#src/federation/renamed-metrics.ts";
import type { MetricStore, SeriesQuery } from "#src/store/metrics.ts";
import { sampleRuns } from "../support/law-runs.ts";

const { signal } = new AbortController();
const forced = { site: "shop" };
const labelKeys = ["instance", "hostname", "state", "9"] as const;
const buckets = { start: 0, step: 10, count: 3 };

interface StoredSeries {
  readonly metric: string;
  readonly site: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly samples: readonly (readonly [time: number, value: number])[];
}

const aliases = fc.record({
  metric: fc.constantFrom("node_load1", "node_load1", "node_cpu", "gone"),
  tags: fc.constantFrom<Readonly<Record<string, string>>>(
    {},
    { hostname: "instance" },
    { hostname: "instance", instance: "hostname" },
    { zone: "instance", a: "9" },
    { "9": "state" },
  ),
  match: fc.constantFrom<Readonly<Record<string, string>>>({}, { device: "eth0" }),
  // A power of two multiplies exactly, so that it does not matter whether samples or values are multiplied.
  factor: fc.constantFrom(1, 0.25, 8),
});

const labelValues = fc.constantFrom("eth0", "b", "c");

const corpora = fc
  .array(
    fc.record({
      metric: fc.constantFrom("node_load1", "node_load1", "node_load1", "node_cpu", "cpu", "other"),
      site: fc.constantFrom("shop", "shop", "shop", "blog"),
      labels: fc.oneof(
        fc.record({ hostname: labelValues, instance: labelValues }),
        fc.dictionary(fc.constantFrom(...labelKeys, "device"), labelValues, { noNullPrototype: true }),
      ),
      value: fc.integer({ min: -4, max: 9 }),
    }),
    { minLength: 4, maxLength: 16 },
  )
  .map((all) =>
    all.map(
      ({ value, labels, ...one }, n): StoredSeries => ({
        ...one,
        // Series stay distinct where a label of theirs is hidden.
        labels: { ...labels, id: String(n) },
        samples: [
          [n % 30, value],
          [(n % 30) + 9, value + n],
        ],
      }),
    ),
  );

const queries = fc.record({
  metric: fc.constantFrom("cpu", "cpu", "cpu", "cpu", "node_load1", "other", "gone"),
  tags: fc.oneof(
    fc.constantFrom<Record<string, string>>({ hostname: "*", instance: "*" }, { zone: "*", a: "*" }),
    fc.dictionary(
      fc.constantFrom(...labelKeys, "zone", "a", "device"),
      fc.constantFrom("*", "*", "*", "b", "eth*"),
      { maxKeys: 3, noNullPrototype: true },
    ),
  ),
  measure: fc.constantFrom<SeriesQuery["measure"]>(
    { of: "samples", combine: "last" },
    { of: "samples", combine: "max" },
    { of: "samples", combine: "count" },
    { of: "samples", combine: "quantile", quantile: 0.9 },
  ),
});

function fillStore(series: readonly StoredSeries[]): MetricStore {
  const store = createMemoryMetrics("memory");
  for (const { metric, site, labels, samples } of series) {
    const append = store.append(metric, "gauge", "value", { ...labels, site });
    for (const [time, value] of samples) append(time, value);
  }
  return store;
}

/** The source as if it had the name `cpu`: what the name stands for, with other keys and values. */
function renameSource(
  series: readonly StoredSeries[],
  { metric, tags, match, factor }: typeof aliases extends fc.Arbitrary<infer A> ? A : never,
): readonly StoredSeries[] {
  const newKeys = new Map(Object.entries(tags).map(([key, label]) => [label, key]));
  const named = series
    .filter((one) => one.metric === metric)
    .filter(({ labels }) => Object.entries(match).every(([key, value]) => labels[key] === value))
    .map((one) => ({
      ...one,
      metric: "cpu",
      labels: Object.fromEntries(
        Object.entries(one.labels)
          .filter(([key]) => !(key in match) && (newKeys.has(key) || !(key in tags)))
          .map(([key, value]) => [newKeys.get(key) ?? key, value]),
      ),
      samples: one.samples.map(([time, value]) => [time, value * factor] as const),
    }));
  return [...series.filter((one) => one.metric !== "cpu"), ...named];
}

describe("a store with names", () => {
  test("answers as a source that had the names itself", async () => {
    const law = fc.asyncProperty(corpora, aliases, queries, async (series, alias, query) => {
      const store = createRenamedMetrics(fillStore(series), { cpu: alias });
      const renamed = fillStore(renameSource(series, alias));
      expect(await store.names(forced, signal)).toEqual(await renamed.names(forced, signal));
      const { metric } = query;
      expect(await store.type(forced, metric, signal)).toBe(await renamed.type(forced, metric, signal));
      expect(await store.tagKeys(forced, metric, signal)).toEqual(
        await renamed.tagKeys(forced, metric, signal),
      );
      const full = { ...query, match: forced, buckets, lookBack: 0, pointLimit: 1_000 };
      const [found, expected] = await Promise.all([store.series(full, signal), renamed.series(full, signal)]);
      expect(found).toEqual(expected);
    });
    await fc.assert(law, { numRuns: sampleRuns(400) });
  });

  test("series are in the order of the new keys, and a label without one is no tag", async () => {
    const sample = [[0, 1]] as const;
    const series = [
      { metric: "node_load1", site: "shop", labels: { hostname: "a", instance: "z" }, samples: sample },
      { metric: "node_load1", site: "shop", labels: { hostname: "b", instance: "c" }, samples: sample },
      { metric: "free", site: "shop", labels: { hostname: "a" }, samples: sample },
    ];
    const base = { match: {}, factor: 1 };
    const store = createRenamedMetrics(fillStore(series), {
      load: { ...base, metric: "node_load1", tags: { hostname: "instance", instance: "hostname" } },
      space: { ...base, metric: "free", tags: { hostname: "instance" } },
    });
    const tags = { hostname: "*", instance: "*" };
    const query = { match: forced, metric: "load", tags, buckets, lookBack: 0, pointLimit: 10 };
    const found = await store.series({ ...query, measure: { of: "samples", combine: "last" } }, signal);
    expect(found.map(({ tags }) => tags)).toEqual([
      { hostname: "c", instance: "b" },
      { hostname: "z", instance: "a" },
    ]);
    expect(await store.tagKeys(forced, "space", signal)).toEqual([]);
  });

  test("counts stay, and other values are multiplied", async () => {
    const store = createRenamedMetrics(
      fillStore([{ metric: "ratio", site: "shop", labels: {}, samples: [[0, 0.5]] }]),
      { percent: { metric: "ratio", tags: {}, match: {}, factor: 100 } },
    );
    const read = async (combine: "last" | "count") => {
      const query = { match: forced, metric: "percent", tags: {}, buckets, lookBack: 0, pointLimit: 10 };
      const found = await store.series({ ...query, measure: { of: "samples", combine } }, signal);
      return found[0]?.values[0];
    };
    expect([await read("last"), await read("count")]).toEqual([50, 1]);
  });

  test("rejects with the reason of an aborted signal, also where no tag can be found", async () => {
    const reason = new Error("gone");
    const store = createRenamedMetrics(fillStore([]), {
      load: { metric: "node_load1", tags: { hostname: "instance" }, match: {}, factor: 1 },
    });
    const query = {
      match: forced,
      metric: "load",
      tags: { instance: "*" },
      buckets,
      lookBack: 0,
      pointLimit: 1,
    };
    const measure = { of: "samples", combine: "last" } as const;
    await expect(store.series({ ...query, measure }, AbortSignal.abort(reason))).rejects.toBe(reason);
  });
});
