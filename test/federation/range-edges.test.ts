// Series of several scrapers, of which a request reads a part: which samples count near the bounds of what it reads is what it would
// be if all were read.
import fc from "fast-check";
import { expect, test } from "vitest";
import { createMemoryMetrics } from "#resolvers/memory/stores/metric-store.ts";
import { runSteps } from "#src/core/async/turns.ts";
import { createFederatedMetrics } from "#src/federation/federated-metrics.ts";
import { chooseTimes } from "#src/federation/replicas.ts";
import type { MetricStore, SeriesQuery } from "#src/store/metrics.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { never } from "../support/signals.ts";

const second = 1_000;
const origin = Date.UTC(2026, 0, 15, 10);

function createQuery(from: number, step: number, over: Partial<SeriesQuery> = {}): SeriesQuery {
  return {
    match: {},
    metric: "m",
    tags: {},
    measure: { of: "increment" },
    buckets: { start: origin + from * second, step: step * second, count: 1 },
    lookBack: 3_600 * second,
    pointLimit: 10_000,
    ...over,
  };
}

function federate(stores: readonly MetricStore[]): MetricStore {
  return createFederatedMetrics(
    stores.map((store, at) => ({ backend: `b${at}`, store, match: {}, replica: "r" })),
  );
}

test("ranges that meet grow as the whole, wherever they meet", async () => {
  const stores = [0, 9].map((offset) => {
    const store = createMemoryMetrics(`s${offset}`);
    const append = store.append("m", "counter", "value", { host: "a" });
    for (let at = offset; at < 1_800; at += 15)
      // Neither reaches the target for six minutes, while it goes on counting.
      if (at < 610 || at >= 960) append(origin + at * second, 1_000 * at);
    return store;
  });
  const grow = async (from: number, to: number): Promise<number> => {
    const [only] = await federate(stores).series(createQuery(from, to - from), never);
    return only?.values[0] ?? 0;
  };
  const whole = await grow(60, 1_500);
  for (let at = 61; at < 1_500; at += 7)
    expect((await grow(60, at)) + (await grow(at, 1_500)), `${at}`).toBe(whole);
});

/** Seconds in which a scraper reaches the target: from when, and how long. */
const reached = fc.tuple(fc.integer({ min: 0, max: 1_500 }), fc.constantFrom(1, 5, 15, 40, 120, 400));
const scraper = fc.record({
  offset: fc.integer({ min: 0, max: 14 }),
  interval: fc.constantFrom(15, 15, 60, 240),
  reached: fc.array(reached, { maxLength: 3 }),
});
const series = fc.record({
  host: fc.constantFrom("a", "b"),
  code: fc.constantFrom("1", "2"),
  scrapers: fc.array(scraper, { minLength: 3, maxLength: 3 }),
  restart: fc.option(fc.integer({ min: 0, max: 1_500 })),
});
const range = fc.record({
  step: fc.constantFrom(15, 60, 300),
  count: fc.integer({ min: 1, max: 5 }),
  /** Its start is near a sample, or as far behind it as a gap or a look-back is long. */
  sample: fc.nat(1_000),
  shift: fc.integer({ min: -12, max: 12 }),
  behind: fc.constantFrom("none", "gap", "lookBack"),
  lookBack: fc.constantFrom(0, 5, 60, 300, 600, 3_600),
});

test.each([2, 3])("%i scrapers answer as one that has the samples that count", async (scraperCount) => {
  const distinct = fc.uniqueArray(series, {
    minLength: 1,
    maxLength: 3,
    selector: ({ host, code }) => host + code,
  });
  const property = fc.asyncProperty(distinct, range, async (all, asked) => {
    const whole = createMemoryMetrics("whole");
    const stores = Array.from({ length: scraperCount }, (_, at) => createMemoryMetrics(`s${at}`));
    const seen: number[] = [];
    for (const { host, code, scrapers, restart } of all) {
      const valueAt = (at: number) => (restart !== null && at >= restart ? 7 + at - restart : 1_000 + at);
      const times = scrapers.slice(0, scraperCount).map(({ offset, interval, reached }) => {
        const own: number[] = [];
        for (let at = offset; at < 2_500; at += interval)
          if (reached.some(([from, length]) => at >= from && at < from + length)) own.push(at);
        return own;
      });
      for (const [at, own] of times.entries()) {
        const append = stores[at]?.append("m", "counter", "value", { host, code, r: String(at) });
        for (const time of own) append?.(origin + time * second, valueAt(time));
        seen.push(...own);
      }
      const chosen = runSteps(
        chooseTimes(times.map((own) => Float64Array.from(own, (at) => origin + at * second))),
      );
      const append = whole.append("m", "counter", "value", { host, code });
      const counted = chosen.flatMap((own) => [...own]).sort((a, b) => a - b);
      for (const time of counted) append(time, valueAt((time - origin) / second));
    }
    const { step, count, lookBack, behind } = asked;
    const near = seen.length === 0 ? 0 : (seen[asked.sample % seen.length] ?? 0);
    const start = near + asked.shift + { none: 0, gap: 300, lookBack }[behind];
    const buckets = { start: origin + start * second, step: step * second, count };
    for (const tags of [{ host: "*", code: "*" }, {}, { host: "a" }]) {
      for (const measure of [{ of: "increment" }, { of: "cumulative", combine: "last" }] as const) {
        const query = createQuery(start, step, { tags, measure, buckets, lookBack: lookBack * second });
        const found = await federate(stores).series(query, never);
        expect({ tags, measure, found }).toEqual({ tags, measure, found: await whole.series(query, never) });
      }
    }
  });
  await fc.assert(property, { numRuns: sampleRuns(4_000, { share: 40, least: 100 }) });
});
