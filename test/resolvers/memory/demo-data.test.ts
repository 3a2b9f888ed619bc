import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { clusterMatch } from "#resolvers/memory/demo/cluster.ts";
import { generateLines, logIndices } from "#resolvers/memory/demo/logs.ts";
import { generateSpans, settleTime, traceIndices } from "#resolvers/memory/demo/traces.ts";
import { memory } from "#resolvers/memory/memory.ts";
import { createMemoryLogs, type StoredLine } from "#resolvers/memory/stores/log-store.ts";
import { buildSpanSource } from "#src/access/sites.ts";
import { severities } from "#src/core/rows.ts";
import { allTime, floorToMilli, fromMillis, type Instant } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogQuery, LogSource } from "#src/store/logs.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { countTurns } from "../../support/event-loop-turns.ts";
import { testIO } from "../../support/io.ts";
import { sampleRuns } from "../../support/law-runs.ts";

const base = Date.UTC(2026, 0, 15, 10);
const hour = { from: fromMillis(base), to: fromMillis(base + 3_600_000) };
const everything = logIndices.flatMap((index) => generateLines(1, index, hour));

describe("generated lines", () => {
  test("are the same for the same seed, and others for another", () => {
    expect(generateLines(1, "demo-shop-app", hour)).toEqual(generateLines(1, "demo-shop-app", hour));
    expect(generateLines(2, "demo-shop-app", hour)).not.toEqual(generateLines(1, "demo-shop-app", hour));
  });

  test("do not depend on how the time is cut", () => {
    const whole = generateLines(1, "demo-blog-nginx", {
      from: fromMillis(base),
      to: fromMillis(base + 600_000),
    });
    const law = fc.property(fc.array(fc.integer({ min: 0, max: 600_000 }), { maxLength: 5 }), (cuts) => {
      const bounds = [0, ...cuts.toSorted((a, b) => a - b), 600_000].map((millis) =>
        fromMillis(base + millis),
      );
      const parts = bounds.flatMap((to, n) =>
        n === 0 ? [] : generateLines(1, "demo-blog-nginx", { from: bounds[n - 1] ?? to, to }),
      );
      expect(parts).toEqual(whole);
    });
    fc.assert(law, { numRuns: sampleRuns(50) });
  });

  test("lie in their window, with bodies that are JSON and ids that no line of any source has", () => {
    const ids = new Set<string>();
    let count = 0;
    for (const index of logIndices) {
      const lines = generateLines(1, index, hour);
      expect(lines.length).toBeGreaterThan(300);
      for (const { id } of lines) ids.add(id);
      count += lines.length;
      expect(lines.filter(({ time }) => time < hour.from || time > hour.to)).toEqual([]);
      for (const { json } of lines) JSON.parse(json);
    }
    expect(ids.size).toBe(count);
  });

  test("hold every severity, awkward numbers, odd characters and several hundred lines in one millisecond", () => {
    expect(new Set(everything.map(({ severity }) => severity))).toEqual(new Set(severities));
    const bodies = everything.map(({ json }) => json).join("\n");
    for (const needle of [":200.0", ":1e3", ":9007199255", '"k8s.pod.name"', "[1,[2,3]]", 'D\\"4', "größe"]) {
      expect(bodies).toContain(needle);
    }
    const tied = Map.groupBy(everything, ({ time }) => floorToMilli(time));
    expect(Math.max(...[...tied.values()].map((lines) => lines.length))).toBeGreaterThan(200);
  });
});

describe("the memory store", () => {
  const entry = (id: string, time: number): StoredLine => ({
    id,
    time: BigInt(time) as Instant,
    severity: "info",
    json: "{}",
  });
  const query: LogQuery = {
    sources: [{ id: "app", index: "app", layout: "auto", tenantFilter: undefined }],
    range: { from: 0n as Instant, to: fromMillis(1_000) },
    filter: parse(""),
    order: "asc",
    expectedLines: 10,
    documentLimit: 1_000,
    tieLimit: 1_000,
  };

  test("keeps lines in order however they come", async () => {
    const batch = fc.array(fc.nat(50), { maxLength: 10 });
    const law = fc.asyncProperty(fc.array(batch, { maxLength: 6 }), async (batches) => {
      const logs = createMemoryLogs();
      let count = 0;
      const added = batches.map((times) => times.map((time) => entry(`l${count++}`, time)));
      for (const entries of added) logs.add("app", entries);
      const found = [];
      for await (const lines of logs.lines(query, new AbortController().signal)) found.push(...lines);
      const expected = added
        .flat()
        .sort((a, b) => (a.time === b.time ? (a.id < b.id ? -1 : 1) : a.time < b.time ? -1 : 1));
      expect(found.map(({ id }) => id)).toEqual(expected.map(({ id }) => id));
    });
    await fc.assert(law, { numRuns: sampleRuns(200) });
  });

  test("an answer under way does not see lines that come later", async () => {
    const logs = createMemoryLogs();
    logs.add(
      "app",
      Array.from({ length: 1_200 }, (_, n) => entry(`l${n}`, (n * 1_000_000) % 999_000_000)),
    );
    const reading = logs.lines({ ...query, documentLimit: 10_000 }, new AbortController().signal);
    let count = 0;
    for await (const batch of reading) {
      logs.add("app", [entry(`late${count}`, 1), entry(`new${count}`, 999_999_999)]);
      count += batch.length;
    }
    expect(count).toBe(1_200);
  });
});

test("the backend makes new lines while it runs, and forgets old ones", async () => {
  let now = fromMillis(base);
  const backend = memory.create("demo", memory.parseConfig({}), { ...testIO, now: () => now });
  const source = { id: "app", index: "demo-shop-app", layout: "auto", tenantFilter: undefined };
  const signal = new AbortController().signal;
  const read = async (): Promise<bigint[]> => {
    const times: bigint[] = [];
    const range = { from: fromMillis(0), to: fromMillis(base * 2) };
    const query = {
      sources: [source],
      range,
      filter: parse(""),
      order: "asc",
      expectedLines: 1,
      documentLimit: 1e6,
      tieLimit: 1e6,
    } as const;
    for await (const lines of backend.stores.logs?.lines(query, signal) ?? [])
      times.push(...lines.map(({ time }) => time));
    return times;
  };
  const before = await read();
  now = fromMillis(base + 10 * 3_600_000);
  const after = await read();
  expect(after.at(-1)).toBeGreaterThan(before.at(-1) ?? 0n);
  expect(after[0]).toBeGreaterThan(before[0] ?? 0n);
  const inspect = (source: LogSource) => backend.inspections.logs?.(source, signal);
  expect(await inspect(source)).toMatchObject({ problems: [], newest: after.at(-1) });
  expect((await inspect({ ...source, index: "x", tenantFilter: "a=b" }))?.problems).toHaveLength(2);
  expect(await backend.probe(signal)).toEqual({ product: "memory", version: "generated" });
  await backend.close();
});

test.each(["logs", "traces", "metrics", "kubernetes"] as const)(
  "inspections of %s, of which a reload makes thousands, let others have turns between them",
  async (part) => {
    const backend = memory.create("demo", memory.parseConfig({}), { ...testIO, now: () => fromMillis(base) });
    const { signal } = new AbortController();
    const source = { id: "app", layout: "auto", tenantFilter: undefined };
    const spans = buildSpanSource("shop", { index: "demo-shop-traces", layout: "auto" });
    const inspect: () => Promise<unknown> | undefined = {
      logs: () => backend.inspections.logs?.({ ...source, index: "demo-shop-app" }, signal),
      traces: () => backend.inspections.traces?.(spans, signal),
      metrics: () => backend.inspections.metrics?.({ site: "demo-shop" }, signal),
      kubernetes: () => backend.inspections.kubernetes?.(clusterMatch, signal),
    }[part];
    const turns = await countTurns(() => Promise.all(Array.from({ length: 20 }, () => inspect())));
    expect(turns).toBeGreaterThanOrEqual(20);
    await backend.close();
  },
);

describe("generated traces", () => {
  const spans = traceIndices.flatMap((index) =>
    generateSpans(1, index, hour).map((span) => ({ ...span, index })),
  );
  const byId = new Map(spans.map((span) => [`${span.trace_id} ${span.span_id}`, span]));

  test("are the same for the same seed, and do not depend on how the time is cut", () => {
    const make = (from: Instant, to: Instant) => generateSpans(1, "demo-blog-traces", { from, to });
    const whole = make(fromMillis(base), fromMillis(base + 600_000));
    const law = fc.property(fc.array(fc.integer({ min: 0, max: 600_000 }), { maxLength: 4 }), (cuts) => {
      const bounds = [0, ...cuts.toSorted((a, b) => a - b), 600_000].map((millis) =>
        fromMillis(base + millis),
      );
      const parts = bounds.flatMap((to, n) => (n === 0 ? [] : make(bounds[n - 1] ?? to, to)));
      expect(parts).toEqual(whole);
    });
    fc.assert(law, { numRuns: sampleRuns(10, { share: 3, least: 3 }) });
  });

  test("hang together: every parent and link is there, nothing ends in the future, ids are one's own", () => {
    expect(byId.size).toBe(spans.length);
    for (const { trace_id, parent_span_id, links, start, end } of spans) {
      const named = [
        ...(parent_span_id === undefined ? [] : [`${trace_id} ${parent_span_id}`]),
        ...links.map((link) => `${link.trace_id} ${link.span_id}`),
      ];
      if (!(end >= start && end <= hour.to) || !named.every((id) => byId.has(id))) {
        expect.fail(`${trace_id} ${parent_span_id} ${start} ${end} ${named}`);
      }
    }
  });

  test("have errors, queues, several services and revisions, and requests from site to site", () => {
    const kinds = new Set(spans.map(({ span_kind }) => span_kind));
    expect(kinds).toEqual(new Set(["server", "internal", "client", "producer", "consumer"]));
    const shop = spans.filter(({ index }) => index === "demo-shop-traces");
    expect(new Set(shop.map(({ service_name }) => service_name)).size).toBeGreaterThan(2);
    expect(new Set(shop.map(({ revision }) => revision)).size).toBeGreaterThan(1);
    expect(shop.some(({ events }) => events.some(({ name }) => name === "exception"))).toBe(true);
    expect(shop.some(({ links }) => links.length > 0)).toBe(true);
    const blog = new Set(
      spans.filter(({ index }) => index === "demo-blog-traces").map(({ trace_id }) => trace_id),
    );
    expect(shop.some(({ trace_id }) => blog.has(trace_id))).toBe(true);
  });

  test("are those that log lines name, and every request from outside leaves a line", () => {
    const later = { from: hour.from, to: fromMillis(base + 3_600_000 - settleTime) };
    const lines = generateLines(1, "demo-shop-app", later).map(({ json }) => JSON.parse(json));
    const named = new Set(lines.flatMap(({ trace_id }) => trace_id ?? []));
    const roots = generateSpans(1, "demo-shop-traces", { from: later.from, to: hour.to }).filter(
      ({ parent_span_id, links, start }) =>
        parent_span_id === undefined && links.length === 0 && start >= later.from,
    );
    expect(roots.length).toBeGreaterThan(300);
    expect(roots.filter(({ trace_id }) => !named.has(trace_id))).toEqual([]);
    const known = new Set(spans.map(({ trace_id }) => trace_id));
    expect([...named].filter((id) => !known.has(id))).toEqual([]);
  });
});

test("the backend serves traces that are made up to now, and reports on their index", async () => {
  let now = fromMillis(base);
  const backend = memory.create("demo", memory.parseConfig({}), { ...testIO, now: () => now });
  const source = buildSpanSource("shop", { index: "demo-shop-traces", layout: "auto" });
  const signal = new AbortController().signal;
  const actions = async () => {
    const query = { sources: [source], range: allTime, namespaces: [], budget: createBudget(1e6) } as const;
    const rows = await backend.stores.traces?.actions(query, signal);
    return rows?.reduce((sum, { count }) => sum + count, 0) ?? 0;
  };
  const before = await actions();
  now = fromMillis(base + 600_000);
  expect(await actions()).toBeGreaterThan(before);
  const inspect = (index: string, where?: string) =>
    backend.inspections.traces?.({ ...source, index, tenantFilter: where }, signal);
  expect(await inspect("demo-shop-traces")).toMatchObject({ indices: 1, problems: [] });
  expect((await inspect("demo-shop-traces,nothing", "a=b"))?.problems).toHaveLength(2);
  await backend.close();
});

test("nothing is made before somebody asks, and then a minute at a time", () => {
  vi.useFakeTimers({ now: base });
  const readClock = vi.fn(() => fromMillis(Date.now()));
  const backend = memory.create("memory", memory.parseConfig({}), { ...testIO, now: readClock });
  readClock.mockClear();
  vi.advanceTimersByTime(300_000);
  // What makes data reads the clock first.
  expect(readClock).not.toHaveBeenCalled();
  expect(backend.stores.logs?.lines).toBeDefined();
  readClock.mockClear();
  vi.advanceTimersByTime(300_000);
  expect(readClock).toHaveBeenCalledTimes(5);
  vi.useRealTimers();
});
