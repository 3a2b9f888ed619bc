// Metrics of two Prometheus servers of different versions: the conformance suite over series that are divided between them, and
// the answers for targets that move from one to the other or that both watch, compared with raw samples in memory.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createMemoryMetrics, type SeriesPart } from "#resolvers/memory/stores/metric-store.ts";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { MetricType } from "#src/core/rows.ts";
import { createFederatedMetrics } from "#src/federation/federated-metrics.ts";
import type { MetricStore } from "#src/store/metrics.ts";
import {
  base,
  buildRawFamilies,
  hour,
  minute,
  printOpenMetrics,
  type RawFamily,
  type RawSeries,
} from "../../conformance/metrics/fixture.ts";
import { measures, metricStoreSuite } from "../../conformance/metrics.ts";
import { startPrometheus } from "../../servers/prometheus.ts";
import { testIO } from "../../support/io.ts";
import { namedPrometheus } from "../selected-servers.ts";

const servers = namedPrometheus();
const seed = Number(process.env.SEED ?? 1);
const plainName = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Which servers hold a sample. A histogram lies in one server at a time, with all its parts. */
type Choice = (identity: string, time: number) => readonly number[];

function formatIdentity(metric: string, { labels }: RawSeries): string {
  const { le, quantile, ...rest } = labels;
  return JSON.stringify([metric, Object.entries(rest).sort()]);
}

function hashText(text: string): number {
  let hash = seed;
  for (const character of text) hash = (Math.imul(hash, 31) + (character.codePointAt(0) ?? 0)) >>> 0;
  return (hash ^ (hash >>> 13)) >>> 0;
}

function selectSamples(families: readonly RawFamily[], server: number, choose: Choice): readonly RawFamily[] {
  return families
    .map((family) => ({
      ...family,
      series: family.series
        .map((one) => ({
          ...one,
          samples: one.samples.filter(([time]) =>
            choose(formatIdentity(family.metric, one), time).includes(server),
          ),
        }))
        .filter(({ samples }) => samples.length > 0),
    }))
    .filter(({ series }) => series.length > 0);
}

async function startBoth(families: readonly RawFamily[], choose: Choice, replica?: string) {
  const started = await Promise.all(
    servers.map(async ({ name }, at) => {
      const { url, stop } = await startPrometheus(
        name,
        printOpenMetrics(selectSamples(families, at, choose)),
      );
      const backend = prometheus.create(name, prometheus.parseConfig({ url }), testIO);
      return { backend, stop };
    }),
  );
  const connect = (match: Readonly<Record<string, string>>): MetricStore =>
    createFederatedMetrics(
      started.flatMap(({ backend: { name, stores } }) =>
        stores.metrics === undefined ? [] : [{ backend: name, store: stores.metrics, match, replica }],
      ),
    );
  return {
    connect,
    stop: async () => {
      for (const { backend, stop } of started) {
        await backend.close();
        await stop();
      }
    },
  };
}

/** Forced labels of a query choose the store, since those of places are fixed. */
function routeByTenant(connect: (match: Readonly<Record<string, string>>) => MetricStore): MetricStore {
  const stores = new Map<string, MetricStore>();
  const of = (match: Readonly<Record<string, string>>): MetricStore => {
    const key = JSON.stringify(match);
    const store = stores.get(key) ?? connect(match);
    stores.set(key, store);
    return store;
  };
  return {
    names: (match, signal) => of(match).names(match, signal),
    type: (match, metric, signal) => of(match).type(match, metric, signal),
    tagKeys: (match, metric, signal) => of(match).tagKeys(match, metric, signal),
    series: (query, signal) => of(query.match).series(query, signal),
  };
}

describe.runIf(servers.length === 2)("prom2 and prom3", () => {
  metricStoreSuite({
    name: "series divided between prom2 and prom3",
    hasMembers: false,
    async start(families) {
      // The older version has no syntax for other names.
      const choose: Choice = (identity) =>
        families.some(({ metric }) => !plainName.test(metric) && identity.includes(JSON.stringify(metric)))
          ? [1]
          : [hashText(identity) % 2];
      const { connect, stop } = await startBoth(families, choose);
      return { store: routeByTenant(connect), match: (tenant) => ({ tenant }), stop };
    },
  });

  describe("scrapers of one target", () => {
    // Of summaries quantiles are refused, one family has no count, and one has no buckets.
    const refused = ["rpc_seconds", "lost_seconds", "arrivals_bucketless_seconds"];
    const families = buildRawFamilies(false).filter(({ metric }) => !refused.includes(metric));
    const { signal } = new AbortController();
    let running: Awaited<ReturnType<typeof startBoth>>;
    let whole: MetricStore;
    beforeAll(async () => {
      const holders = [[0], [0, 1], [1]];
      const choose: Choice = (identity, time) =>
        holders[(hashText(identity) + Math.floor(time / (17 * minute))) % holders.length] ?? [];
      running = await startBoth(families, choose, "prometheus_replica");
      whole = fillMemory(families);
    }, 300_000);
    afterAll(() => running?.stop());

    const types = { gauge: "gauge", counter: "counter", histogram: "measurement" } as const;
    const known = families.flatMap(({ metric, kind }) =>
      kind in types ? [{ metric, type: types[kind as keyof typeof types] satisfies MetricType }] : [],
    );

    test.each(known)("$metric is counted once", async ({ metric, type }) => {
      const store = running.connect({ tenant: "shop" });
      const match = { tenant: "shop" };
      expect(await store.tagKeys(match, metric, signal)).toEqual(await whole.tagKeys(match, metric, signal));
      const [keys = []] = (await whole.tagKeys(match, metric, signal)) ?? [];
      const every = Object.fromEntries(keys.map((key) => [key, "*"]));
      let compared = 0;
      for (const measure of measures[type]) {
        for (const tags of [{}, every]) {
          for (const buckets of [
            { start: base, step: minute, count: 180 },
            { start: base - 20 * minute, step: 5 * minute, count: 30 },
            { start: base, step: 3 * hour, count: 1 },
          ]) {
            const query = {
              match,
              metric,
              tags,
              measure,
              buckets,
              lookBack: 24 * hour,
              pointLimit: 1_000_000,
            };
            const [found, expected] = [await store.series(query, signal), await whole.series(query, signal)];
            const about = JSON.stringify({ metric, measure, tags, buckets });
            expect(
              found.map((one) => one.tags),
              about,
            ).toEqual(expected.map((one) => one.tags));
            for (const [at, { values }] of expected.entries()) {
              const own = found[at]?.values ?? [];
              const isEqual =
                own.length === values.length && values.every((value, bucket) => isClose(own[bucket], value));
              expect(isEqual, `${about}: ${own.join()} is not ${values.join()}`).toBe(true);
              compared += values.filter((value) => !Number.isNaN(value)).length;
            }
          }
        }
      }
      // One is of another tenant alone.
      const isHeld = (await whole.names(match, signal)).includes(metric);
      expect(compared > 0).toBe(isHeld);
    });
  });
});

function fillMemory(families: readonly RawFamily[]): MetricStore {
  const store = createMemoryMetrics("memory");
  for (const { metric, kind, series } of families) {
    const known = kind === "unknown" ? "gauge" : kind;
    for (const { suffix, labels, samples } of series) {
      const part = ({ "": "value", _bucket: "bucket", _sum: "sum", _count: "count" } as const)[
        suffix
      ] satisfies SeriesPart;
      const append = store.append(metric, known, part, labels);
      for (const [time, value] of samples) append(time, value);
    }
  }
  return store;
}

/** NaN, which stands for no value, is close to itself alone. */
function isClose(a = Number.NaN, b: number): boolean {
  return Object.is(a, b) || Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(a), Math.abs(b));
}
