// The conformance suite of metric stores: exact values for every measure on every grid, names and tags as data, and no
// data of another tenant. A subject fills a server once with `rawFamilies`. `metrics/oracle.ts` computes the expected
// values from the same raw samples.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Slug } from "#src/core/errors.ts";
import type { Buckets, Measure, MetricType, Series } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import {
  computeGrid,
  metricFields,
  planMeasure,
  type Resolution,
  resolutions,
  toSingleBucket,
} from "#src/metrics/measures.ts";
import type { ForcedLabels, MetricStore, SeriesQuery } from "#src/store/metrics.ts";
import { base, buildRawFamilies, day, hour, minute, type RawFamily, type Tenant } from "./metrics/fixture.ts";
import { hostileTexts } from "./metrics/injection-texts.ts";
import {
  computeExpectedSeries,
  type Expected,
  isRefusedQuantile,
  listExpectedNames,
  listExpectedTagKeys,
} from "./metrics/oracle.ts";

interface MetricSubject {
  readonly name: string;
  /** Fills the server with these families only. `printOpenMetrics` prints them to a file. */
  readonly start: (families: readonly RawFamily[]) => Promise<RunningMetrics>;
  /** What the server cannot do, with the reason. It is tried nevertheless, and has to be refused with this slug. */
  readonly excuses?: Partial<Record<MetricCapability, { readonly reason: string; readonly slug: Slug }>>;
  /** False for a store without `members`: its metrics cannot be merged with those of other stores. */
  readonly hasMembers?: false;
}
interface RunningMetrics {
  readonly store: MetricStore;
  readonly match: (tenant: Tenant) => ForcedLabels;
  readonly stop: () => Promise<void>;
}
type MetricCapability =
  /** Metric and label names beyond `[A-Za-z_][A-Za-z0-9_]*`. A server without it is filled with none of them. */
  "quoted names";

const types: Readonly<Record<RawFamily["kind"], (metric: string) => MetricType>> = {
  gauge: () => "gauge",
  counter: () => "counter",
  histogram: () => "measurement",
  summary: () => "measurement",
  // By the name (Prometheus' suffixes of counters).
  unknown: (metric) => (/_(total|count|sum|bucket)$/.test(metric) ? "counter" : "gauge"),
};

export const measures: Readonly<Record<MetricType, readonly Measure[]>> = {
  gauge: [
    ...(["first", "last", "mean", "sum", "min", "max", "count"] as const).map(
      (combine): Measure => ({ of: "samples", combine }),
    ),
    { of: "samples", combine: "quantile", quantile: 0.9 },
    { of: "samples", combine: "quantile", quantile: 0.95 },
  ],
  counter: [
    { of: "increment" },
    ...(["first", "last", "mean", "min", "max"] as const).map(
      (combine): Measure => ({ of: "cumulative", combine }),
    ),
  ],
  measurement: [
    ...(["count", "mean", "min", "max"] as const).map(
      (combine): Measure => ({ of: "observations", combine }),
    ),
    { of: "observations", combine: "quantile", quantile: 0.9 },
    { of: "observations", combine: "quantile", quantile: 0.95 },
  ],
};

/** All tags of a family, some of them, and none. */
const selections: Readonly<Record<string, readonly Readonly<Record<string, string>>[]>> = {
  temperature: [{}, { room: "*" }, { room: "*", floor: "*" }, { floor: "1" }, { room: "o*the grid" }],
  requests_total: [{}, { host: "*" }, { host: "*", code: "*" }, { host: "steady" }, { host: "*s" }],
  deploys_total: [{}, { region: "*" }],
  deliveries_total: [{}],
  disk_free: [{}],
  queue_depth: [{}, { queue: "*" }],
  jobs_count: [{ queue: "mail" }],
  work_total: [{}],
  keyed: [{}, { a: "*" }, { b: "1" }, { a: "1", c: "*" }, { a: "*", b: "*", c: "*" }],
  "http.server.größe": [{}, { "http.route": "*" }, { "http.route": "*", größe: "X*" }, { größe: "*" }],
  latency_seconds: [{}, { route: "*" }, { method: "GET" }, { route: "/rare", method: "*" }],
  balance: [{}, { account: "*" }],
  waits_seconds: [{}, { job: "*" }, { job: "no *" }],
  arrivals_countless_seconds: [{ job: "second" }],
  arrivals_bucketless_seconds: [{ job: "second" }],
  rpc_seconds: [{}, { method: "*" }, { method: "read" }],
};

const lookBack = day;
const pointLimit = 1_000_000;

/** Every measure of every selection of a metric. */
function listQueries(metric: string, type: keyof typeof measures) {
  return (selections[metric] ?? []).flatMap((tags) =>
    measures[type].map((measure) => ({ metric, tags, measure })),
  );
}

export function metricStoreSuite(subject: MetricSubject): void {
  const excuse = subject.excuses?.["quoted names"];
  const families = buildRawFamilies(excuse === undefined);
  const signal = new AbortController().signal;

  describe(`${subject.name}: metric store`, () => {
    let running: RunningMetrics;
    beforeAll(async () => {
      running = await subject.start(families);
    }, 300_000);
    afterAll(() => running?.stop());

    const queryOf = (
      over: Partial<SeriesQuery> & Pick<SeriesQuery, "metric">,
      tenant: Tenant = "shop",
    ): SeriesQuery => ({
      match: running.match(tenant),
      tags: {},
      measure: { of: "samples", combine: "last" },
      buckets: buildGrid(base, base + hour - 1, "MINUTELY"),
      lookBack,
      pointLimit,
      ...over,
    });
    /** Runs the query and compares the answer with the oracle. */
    async function verify(over: Partial<SeriesQuery> & Pick<SeriesQuery, "metric">, tenant: Tenant = "shop") {
      return verifySeries(running.store, families, queryOf(over, tenant), signal, tenant);
    }
    const held = families.filter(({ metric }) => selections[metric] !== undefined);

    describe.each(held.map(({ metric, kind }) => ({ metric, type: types[kind](metric) })))(
      "$metric",
      ({ metric, type }) => {
        test("has the expected type and tag combinations", async () => {
          const match = running.match("shop");
          expect(await running.store.type(match, metric, signal)).toBe(type);
          expect(await running.store.tagKeys(match, metric, signal)).toEqual(
            listExpectedTagKeys(families, "shop", metric),
          );
        });

        // Three hours of the day in the middle, or four days around it: enough buckets that series starts, gaps and
        // restarts lie within and between them.
        test.each(resolutionNames)(
          "%s: every measure of every selection",
          { timeout: 120_000 },
          async (resolution) => {
            const span = resolution === "DAILY" || resolution === "HOURLY" ? 2 * day : 0;
            const buckets = buildGrid(base + 17 - span, base + 3 * hour + 61_005 + span, resolution);
            for (const query of listQueries(metric, type)) await verify({ ...query, buckets });
          },
        );

        test("is exact over windows of any length, to the millisecond", { timeout: 120_000 }, async () => {
          const windows = [
            [base, base],
            [base - 1, base],
            [base + 1, base + minute],
            [base + minute - 1, base + 15 * minute + 1],
            [base + 3_210, base + 62_345],
            [base - 20 * minute, base + 2 * hour],
          ] as const;
          for (const [from, to] of windows) {
            const buckets = { start: from, step: to - from + 1, count: 1 };
            for (const query of listQueries(metric, type)) await verify({ ...query, buckets });
          }
        });
      },
    );

    describe("look-back", () => {
      const metric = "requests_total";
      test.each([0, 10 * second(1), 5 * minute, hour, 48 * hour])(
        "is exact with a look-back of %d ms",
        async (length) => {
          for (const start of [base, base + 30 * minute, base + hour]) {
            const buckets = buildGrid(start, start + hour - 1, "FIVE_MINUTELY");
            await verify({
              metric,
              tags: { host: "*" },
              measure: { of: "increment" },
              buckets,
              lookBack: length,
            });
          }
        },
      );
    });

    describe("names and tags", () => {
      test("lists the tenant's own names, sorted", async () => {
        for (const tenant of ["shop", "other"] as const) {
          expect(await running.store.names(running.match(tenant), signal)).toEqual(
            listExpectedNames(families, tenant),
          );
        }
      });

      test("returns no type, tags or series for an unknown metric of any name", {
        timeout: 120_000,
      }, async () => {
        const match = running.match("shop");
        const unknown = hostileTexts.filter((_, n) => n % 10 === 0);
        for (const metric of [
          "only_other",
          "zoo_bucket",
          "latency_seconds_bucket",
          "rpc_seconds_count",
          ...unknown,
        ]) {
          expect(await running.store.type(match, metric, signal), JSON.stringify(metric)).toBeUndefined();
          expect(await running.store.tagKeys(match, metric, signal), JSON.stringify(metric)).toBeUndefined();
          expect(await running.store.series(queryOf({ metric }), signal), JSON.stringify(metric)).toEqual([]);
        }
      });

      // 500 tag values of both tenants. A value of the other tenant would show by its sign.
      test.each(["shop", "other"] as const)(
        "500 hostile values find what has them, as %s",
        { timeout: 300_000 },
        async (tenant) => {
          const buckets = buildGrid(base - minute, base + minute, "MINUTELY");
          for (const v of hostileTexts) {
            const found = await verify({ metric: "zoo", tags: { v }, buckets }, tenant);
            for (const { values } of found) {
              for (const value of values)
                expect(Number.isNaN(value) || value > 0).toBe(tenant === "shop" || Number.isNaN(value));
            }
          }
        },
      );

      test("finds nothing for 500 hostile tag names, or refuses them", { timeout: 300_000 }, async () => {
        for (const key of hostileTexts) {
          for (const tags of [{ [key]: "*" }, { v: "*", [key]: "other" }]) {
            if (Object.keys(tags).every((one) => one === "v")) continue;
            const answer = running.store.series(queryOf({ metric: "zoo", tags: copyTags(tags) }), signal);
            const found = await answer.catch((error: unknown) => {
              expect(error).toMatchObject({ slug: "not_supported_by_backend" });
              return [];
            });
            expect(found, JSON.stringify(key)).toEqual([]);
          }
        }
      });

      test("lists no forced or reserved labels as tags", async () => {
        const forced = Object.keys(running.match("shop"));
        for (const key of [...forced, "le", "__name__"]) {
          for (const value of ["*", "shop", "other", "+Inf", "latency_seconds_bucket"]) {
            const measure: Measure = { of: "observations", combine: "count" };
            const found = await running.store.series(
              queryOf({ metric: "latency_seconds", tags: { [key]: value }, measure }),
              signal,
            );
            expect(found).toEqual([]);
          }
        }
        const quantile = queryOf({
          metric: "rpc_seconds",
          tags: { quantile: "*" },
          measure: { of: "observations", combine: "count" },
        });
        expect(await running.store.series(quantile, signal)).toEqual([]);
      });

      if (excuse !== undefined) {
        test(`names that need quotes are refused: ${excuse.reason}`, async () => {
          const answer = running.store.series(
            queryOf({ metric: "zoo", tags: { "http.route": "*" } }),
            signal,
          );
          await expect(answer).rejects.toMatchObject({ slug: excuse.slug });
        });
      }
    });

    describe("a summary's quantile", () => {
      const summary = { metric: "rpc_seconds", buckets: buildGrid(base, base + hour, "FIVE_MINUTELY") };
      const quantile = (quantile: number): Measure => ({ of: "observations", combine: "quantile", quantile });
      test.each([
        ["that it does not export", { method: "read" }, quantile(0.95)],
        ["of several series", {}, quantile(0.9)],
        ["of several series of which one exports it", {}, { of: "observations", combine: "min" }],
        ["least, where it does not export 0", { method: "write" }, { of: "observations", combine: "min" }],
      ] as const)("refuses %s", async (_, tags, measure) => {
        const answer = running.store.series(queryOf({ ...summary, tags, measure }), signal);
        await expect(answer).rejects.toMatchObject({ slug: "not_supported_by_backend" });
      });

      test("is in no samples of single series, and its count and mean are", async () => {
        const { members } = running.store;
        expect(members !== undefined).toBe(subject.hasMembers !== false);
        if (members === undefined) return;
        const readRaw = (measure: Measure) =>
          members.readRaw({ ...queryOf({ ...summary, measure }), sampleLimit: 1_000_000 }, signal);
        for (const measure of measures.measurement) {
          if (measure.of !== "observations") continue;
          if (measure.combine === "count" || measure.combine === "mean")
            expect(await readRaw(measure)).not.toEqual([]);
          else await expect(readRaw(measure)).rejects.toMatchObject({ slug: "not_supported_by_backend" });
        }
      });
    });

    describe("a histogram with neither a count nor a bucket +Inf", () => {
      test.each(measures.measurement)("is refused, and others are not: %j", async (measure) => {
        const over = { metric: "lost_seconds", measure };
        for (const tags of [{}, { job: "*" }, { job: "lost" }]) {
          const answer = running.store.series(queryOf({ ...over, tags }), signal);
          await expect(answer).rejects.toMatchObject({ slug: "not_supported_by_backend" });
        }
        await verify({ ...over, tags: { job: "all parts" } });
      });
    });

    describe("limits", () => {
      test("answers as many points as the limit, and refuses one more", async () => {
        const over = { metric: "keyed", tags: { a: "*", b: "*" } };
        const [series] = await verify({ ...over, pointLimit: 60 });
        expect(series?.values).toHaveLength(60);
        const more = queryOf({ metric: "keyed", tags: { b: "*" }, pointLimit: 59 });
        await expect(running.store.series(more, signal)).rejects.toMatchObject({ slug: "result_too_large" });
      });

      test("returns nothing for times without data", async () => {
        for (const start of [base - 3_000 * day, base + 30 * day]) {
          await verify({ metric: "temperature", buckets: buildGrid(start, start + hour, "MINUTELY") });
        }
      });

      test("is exact over ranges of centuries", { timeout: 120_000 }, async () => {
        const everything = toSingleBucket({
          from: fromMillis(Date.UTC(1, 0)),
          to: fromMillis(Date.UTC(9_999, 0)),
        });
        const days = [Date.UTC(1_700, 0), Date.UTC(1_960, 0)].map((from) =>
          buildGrid(from, base + day, "DAILY"),
        );
        for (const buckets of [everything, ...days]) {
          if (buckets === undefined) throw new Error("no window");
          for (const [metric, measure] of [
            ["temperature", { of: "samples", combine: "first" }],
            ["requests_total", { of: "increment" }],
            ["requests_total", { of: "cumulative", combine: "mean" }],
            ["latency_seconds", { of: "observations", combine: "max" }],
          ] as const) {
            await verify({ metric, measure, buckets, pointLimit: 50_000_000 });
          }
        }
      });

      test("rejects with the reason of an aborted signal", async () => {
        const reason = new Error("gone");
        const gone = AbortSignal.abort(reason);
        const match = running.match("shop");
        await expect(running.store.series(queryOf({ metric: "temperature" }), gone)).rejects.toBe(reason);
        await expect(running.store.names(match, gone)).rejects.toBe(reason);
        await expect(running.store.type(match, "temperature", gone)).rejects.toBe(reason);
        await expect(running.store.tagKeys(match, "temperature", gone)).rejects.toBe(reason);
      });
    });

    test("covers every measure that a request can lead to", () => {
      for (const type of ["gauge", "counter", "measurement"] as const) {
        const aggregations = ["sum", "avg", "min", "max", "first", "last", undefined] as const;
        const reached = metricFields.flatMap((field) =>
          aggregations.flatMap((one) =>
            (["cumulative", "increment"] as const).map(
              (site) => planMeasure(type, field, one, site)?.measure,
            ),
          ),
        );
        const texts = new Set(reached.flatMap((one) => (one === undefined ? [] : [JSON.stringify(one)])));
        expect(new Set(measures[type].map((one) => JSON.stringify(one)))).toEqual(texts);
      }
    });
  });
}

const resolutionNames = Object.keys(resolutions).filter((name): name is Resolution =>
  Object.hasOwn(resolutions, name),
);
const second = (n: number) => n * 1_000;
const buildGrid = (from: number, to: number, resolution: Resolution): Buckets =>
  computeGrid({ from: fromMillis(from), to: fromMillis(to) }, resolution);
/** A computed key `__proto__` sets the prototype; as an entry it is a normal key. */
const copyTags = (tags: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(tags));

/** Runs the query and compares the answer with that computed from the raw samples. */
export async function verifySeries(
  store: MetricStore | undefined,
  families: readonly RawFamily[],
  query: SeriesQuery,
  signal: AbortSignal,
  tenant: Tenant = "shop",
): Promise<readonly Series[]> {
  if (isRefusedQuantile(families, tenant, query)) {
    const answer = store?.series(query, signal);
    await expect(answer).rejects.toMatchObject({ slug: "not_supported_by_backend" });
    return [];
  }
  const found = (await store?.series(query, signal)) ?? [];
  const expected = computeExpectedSeries(families, tenant, query);
  expect(describeDifference(found, expected, query)).toBeUndefined();
  return found;
}

/** Describes the first difference, with its query. */
function describeDifference(
  found: readonly Series[],
  expected: readonly Expected[],
  query: SeriesQuery,
): string | undefined {
  const { metric, tags, measure, buckets } = query;
  const described = `${metric} ${JSON.stringify(tags).slice(0, 200)} ${JSON.stringify(measure)} ${JSON.stringify(buckets)}`;
  const tagsOf = (all: readonly { readonly tags: Readonly<Record<string, string>> }[]) =>
    JSON.stringify(all.map((one) => Object.entries(one.tags).sort()));
  if (tagsOf(found) !== tagsOf(expected))
    return `${described}: series ${tagsOf(found)} instead of ${tagsOf(expected)}`;
  for (const [n, series] of expected.entries()) {
    const values = found[n]?.values ?? [];
    if (values.length !== buckets.count)
      return `${described}: ${values.length} values for ${buckets.count} buckets`;
    const bucket = series.values.findIndex((value, at) => !isNearlyEqual(value, values[at] ?? Number.NaN));
    if (bucket !== -1) {
      const where = `${JSON.stringify(series.tags).slice(0, 200)}, bucket ${bucket} of ${buckets.count}`;
      return `${described}: ${where} is ${values[bucket]} instead of ${series.values[bucket]}`;
    }
  }
  return undefined;
}

/** Ignores the last digits, which depend on the order of additions. */
function isNearlyEqual(a: number, b: number): boolean {
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) && Number.isNaN(b);
  return Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(a), Math.abs(b));
}
