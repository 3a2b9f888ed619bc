// The queries of real dashboards against the metrics of the demo sites.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { memory } from "#resolvers/memory/memory.ts";
import { fromMillis, hour, minute } from "#src/core/time.ts";
import { testIO } from "../support/io.ts";
import { base, iso, serve } from "./metrics-harness.ts";

// The first query generates hours of samples.
describe("dashboard queries on the demo sites", () => {
  const backend = memory.create("memory", memory.parseConfig({}), {
    ...testIO,
    now: () => fromMillis(base + hour),
  });
  afterAll(() => backend.close());
  let ask: (over: object) => Promise<{ group: Record<string, string>; data: Record<string, number> }[]>;
  beforeAll(() => {
    const { metrics } = backend.stores;
    if (metrics === undefined) throw new Error("no metrics");
    const { post } = serve(metrics, { site: "demo-shop" });
    ask = async (over) => {
      const { status, body } = await post("list", {
        site_id: "shop",
        from: iso(base),
        to: iso(base + hour),
        resolution: "MINUTELY",
        ...over,
      });
      expect(status, JSON.stringify(body)).toBe(200);
      return body.rows;
    };
  });
  const between = (value: number | undefined, least: number, most: number) => {
    expect(value).toBeGreaterThanOrEqual(least);
    expect(value).toBeLessThanOrEqual(most);
  };

  test("answer a health dashboard", async () => {
    const found = await ask({
      select: [
        { id: "throughput", name: "site_throughput", tags: {}, field: "COUNTER", aggregation: "SUM" },
        {
          id: "errorRate",
          name: "error_rate",
          tags: { namespace: "web" },
          field: "GAUGE",
          aggregation: "AVERAGE",
        },
        {
          id: "meanMs",
          name: "transaction_duration",
          tags: { namespace: "web" },
          field: "MEAN",
          aggregation: "AVERAGE",
        },
      ],
      group_by: ["Name"],
      limit: 10,
    });
    expect(found).toHaveLength(3);
    const { throughput, errorRate, meanMs }: Record<string, number> = Object.assign(
      {},
      ...found.map(({ data }) => data),
    );
    between(throughput, 600, 1_200);
    between(errorRate, 1, 15);
    between(meanMs, 20, 500);
  });

  test("answer a dashboard of slow actions", async () => {
    const tags = { namespace: "*", action: "*" };
    const found = await ask({
      from: iso(base - 23 * hour),
      resolution: "HOURLY",
      select: [
        { id: "meanMs", name: "transaction_duration", tags, field: "MEAN", aggregation: "AVERAGE" },
        { id: "count", name: "transaction_duration", tags, field: "COUNT", aggregation: "SUM" },
      ],
      group_by: [{ Tag: "action" }, { Tag: "namespace" }],
      limit: 100,
    });
    expect(found.length).toBeGreaterThanOrEqual(8);
    expect(found.map(({ group }) => `${group.namespace} ${group.action}`)).toContain(
      "web CartController#show",
    );
    for (const { data } of found) {
      between(data.meanMs, 5, 5_000);
      between(data.count, 50, 100_000);
    }
    const means = found.map(({ data }) => data.meanMs ?? 0);
    expect(means).toEqual(means.toSorted((a, b) => b - a));
  });

  test("answer a dashboard of hosts", async () => {
    const gauge = (id: string, name: string, tags: object) => ({
      id,
      name,
      tags,
      field: "GAUGE",
      aggregation: "AVERAGE",
    });
    const found = await ask({
      select: [
        gauge("cpu", "cpu", { state: "*", hostname: "*" }),
        gauge("used", "memory", { state: "used", hostname: "*" }),
        gauge("total", "memory", { state: "total", hostname: "*" }),
        gauge("swap", "swap", { state: "*", hostname: "*" }),
        gauge("load", "load_avg", { hostname: "*" }),
      ],
      group_by: [{ Tag: "hostname" }, { Tag: "state" }],
      limit: 200,
    });
    const of = (state: string | undefined) => found.filter(({ group }) => group.state === state);
    expect([of("user"), of("used"), of("total"), of(undefined)].map((some) => some.length)).toEqual([
      3, 3, 3, 3,
    ]);
    for (const { data } of of("user")) between(data.cpu, 1, 100);
    // Megabytes, as the host agents send them.
    for (const { data } of of("used")) between(data.used, 1e3, 8e3);
    for (const { data } of of(undefined)) between(data.load, 0.01, 8);
  });

  test("answer a dashboard of disks", async () => {
    const tags = { mountpoint: "*", hostname: "*" };
    const found = await ask({
      select: [{ id: "disk", name: "disk_usage", tags, field: "GAUGE", aggregation: "AVERAGE" }],
      group_by: [{ Tag: "hostname" }, { Tag: "mountpoint" }],
      limit: 100,
    });
    expect(found).toHaveLength(6);
    for (const { data } of found) between(data.disk, 10, 100);
  });

  test("answer a dashboard of jobs", async () => {
    const jobs = "active_job_queue_job_count";
    const found = await ask({
      select: [
        {
          id: "ok",
          name: jobs,
          tags: { queue: "*", status: "processed" },
          field: "COUNTER",
          aggregation: "SUM",
        },
        {
          id: "bad",
          name: jobs,
          tags: { queue: "*", status: "failed" },
          field: "COUNTER",
          aggregation: "SUM",
        },
        {
          id: "least",
          name: "active_job_queue_time",
          tags: { queue: "*" },
          field: "MEAN",
          aggregation: "MIN",
        },
        {
          id: "p95",
          name: "active_job_queue_time",
          tags: { queue: "*" },
          field: "P95",
          aggregation: "AVERAGE",
        },
      ],
      group_by: [{ Tag: "queue" }],
      limit: 100,
    });
    expect(found.map(({ group }) => group.queue).sort()).toEqual(["default", "low", "mail"]);
    for (const { data } of found) {
      between(data.ok, 20, 400);
      between(data.bad, 0, 40);
      between(data.p95, data.least ?? 0, 5_000);
    }
  });

  test("answer other figures for the other site", async () => {
    const { metrics } = backend.stores;
    const signal = new AbortController().signal;
    expect(await metrics?.tagKeys({ site: "demo-blog" }, "cpu", signal)).toEqual([["hostname", "state"]]);
    expect(await metrics?.names({ site: "nowhere" }, signal)).toEqual([]);
    expect((await backend.inspections.metrics?.({ site: "demo-shop" }, signal))?.problems).toEqual([]);
    expect((await backend.inspections.metrics?.({}, signal))?.problems).toEqual([]);
    expect((await backend.inspections.metrics?.({ site: "nowhere" }, signal))?.problems).toHaveLength(1);
  });
});

test("demo metrics are deterministic for a seed and time", {
  timeout: 60_000,
}, async () => {
  const read = async (times: readonly number[]) => {
    let now = base;
    const backend = memory.create("memory", memory.parseConfig({}), {
      ...testIO,
      now: () => fromMillis(now),
    });
    const { metrics } = backend.stores;
    const signal = new AbortController().signal;
    for (const time of times) {
      now = time;
      await metrics?.names({ site: "demo-shop" }, signal);
    }
    const found = await metrics?.series(
      {
        match: { site: "demo-shop" },
        metric: "site_throughput",
        tags: {},
        measure: { of: "cumulative", combine: "last" },
        buckets: { start: base + 20 * minute, step: minute, count: 100 },
        lookBack: hour,
        pointLimit: 1_000,
      },
      signal,
    );
    await backend.close();
    return found?.map(({ values }) => [...values]);
  };
  const last = base + 2 * hour;
  const once = await read([last]);
  expect(once?.[0]?.filter((value) => value > 0).length).toBeGreaterThan(90);
  expect(await read([base, base + 7_000, base + hour + 1, last])).toEqual(once);
});
