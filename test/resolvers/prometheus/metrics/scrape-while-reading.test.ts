// A target is scraped while its histogram is read. Whichever of the requests sees the new samples first, the mean is one of
// those observations that count and sum have in common.
import { expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Measure } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { testIO } from "../../../support/io.ts";
import { sampleCases } from "../../../support/law-runs.ts";
import { openFakeServer, openFakeThanos } from "../../../support/prometheus/fake-thanos.ts";
import { openScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";

const minute = 60_000;
const start = Date.UTC(2026, 0, 15, 10);
const interval = 15_000;

/** Every observation is 3, so that the mean is, whenever it is read. */
const observe = (value: number) => ({ count: value, sum: value * 3 });

/** The samples of the parts after some scrapes, with 10 observations between two. `restartsAt` is the number of a scrape. */
function write(scrapes: number, { parts, restartsAt }: Case) {
  return parts.map((part) => ({
    labels: part.labels,
    samples: Array.from({ length: Math.max(0, scrapes - (part.lag ?? 0)) }, (_, n): [number, number] => {
      const { count, sum } = observe(10 * (n < restartsAt ? n + 1 : n + 1 - restartsAt));
      return [start - minute + n * interval + 200, part.isSum ? sum : count];
    }),
  }));
}

interface Case {
  readonly parts: readonly {
    readonly labels: Record<string, string>;
    readonly isSum: boolean;
    readonly lag?: number;
  }[];
  readonly restartsAt: number;
  readonly isThanos?: boolean;
}
const part = (name: string, labels: Record<string, string> = {}) => ({
  labels: { __name__: name, ...labels },
  isSum: name.endsWith("_sum"),
});
const inf = part("h_bucket", { le: "+Inf" });
const histogram = [part("h_count"), part("h_sum"), part("h_bucket", { le: "5" }), inf];
const uncounted = [part("h_sum"), part("h_bucket", { le: "5" }), inf];
const summary = [part("h_count"), part("h_sum")];
/** One target's samples arrive more than two minutes late. */
const lagging = histogram.flatMap((one) => [
  one,
  { ...one, labels: { ...one.labels, instance: "b" }, lag: 9 },
]);
/** One target is scraped for the first time. */
const appearing = histogram.flatMap((one) => [
  one,
  { ...one, labels: { ...one.labels, instance: "b" }, lag: 26 },
]);
const never = Number.POSITIVE_INFINITY;

/** Requests from the number `seenFrom` on see one scrape more. */
async function readMean(one: Case, step: number, seenFrom: number) {
  const scrapes = 26;
  let asked = 0;
  const open = one.isThanos ? openFakeThanos : openFakeServer;
  const [before, after] = await Promise.all([open(write(scrapes, one)), open(write(scrapes + 1, one))]);
  const source = await openScriptedSource(async (response, { url, method, headers }, body) => {
    const { url: target } = asked++ < seenFrom ? before : after;
    const type = headers["content-type"] ?? "";
    const sent = method === "GET" ? {} : { body, headers: { "content-type": type } };
    const answer = await fetch(target + url, { method: method ?? "", ...sent });
    sendJson(response, await answer.text(), answer.status);
  });
  const now = () => fromMillis(start + 5 * minute + 31_000);
  const backend = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), { ...testIO, now });
  const measure: Measure = { of: "observations", combine: "mean" };
  const buckets = { start, step, count: (6 * minute) / step };
  try {
    const query = { match: {}, metric: "h", tags: {}, measure, buckets, lookBack: minute, pointLimit: 1_000 };
    const found = await backend.stores.metrics?.series(query, new AbortController().signal);
    return { asked, means: new Set((found ?? []).flatMap(({ values }) => [...values])) };
  } finally {
    await backend.close();
    await Promise.all([source, before, after].map((one) => one.close()));
  }
}

test.each([
  ["a histogram", { parts: histogram, restartsAt: never }, minute],
  ["buckets shorter than the time between two scrapes", { parts: histogram, restartsAt: never }, 5_000],
  ["a target that appears", { parts: appearing, restartsAt: never }, minute],
  ["a target that lags", { parts: lagging, restartsAt: never }, minute],
  ["a histogram without a count", { parts: uncounted, restartsAt: never }, minute],
  ["a summary", { parts: summary, restartsAt: never }, minute],
  ["Thanos, which hides restarts", { parts: histogram, restartsAt: never, isThanos: true }, minute],
  ["a restart in the newest bucket", { parts: histogram, restartsAt: 25 }, minute],
  ["a restart that comes while it is read", { parts: histogram, restartsAt: 26 }, minute],
] as readonly (readonly [string, Case, number])[])("%s", async (_, one, step) => {
  const { asked } = await readMean(one, step, never);
  expect(asked).toBeGreaterThan(3);
  for (const seenFrom of sampleCases([...Array(asked + 3).keys()], { share: 12 })) {
    const { means } = await readMean(one, step, seenFrom);
    means.delete(Number.NaN);
    expect([...means], `seen from request ${seenFrom} on`).toEqual([3]);
  }
});
