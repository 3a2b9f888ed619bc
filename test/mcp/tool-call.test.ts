// Pages of tools over lines that a test writes, and a clock that it moves.
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createMemoryLogs, type MemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import { fromMillis, minute, printMillis, second } from "#src/core/time.ts";
import { callTool, type Row, readPages } from "../support/agent-calls.ts";
import { clock, createDemo, type Demo } from "../support/demo-server.ts";

const demos: Demo[] = [];
afterEach(async () => {
  for (const demo of demos.splice(0)) await demo.close();
});

/** A line a second before the clock, unless it has a time of its own. */
const createLine = (n: number, { time = clock - n * second, message = `line ${n}`, json = "{}" } = {}) => ({
  ...({ id: String(n).padStart(6, "0"), time: fromMillis(time), severity: "info", message, json } as const),
});

/** The demo over these lines of the source `app`, whose clock goes on by so much with each call of a tool. */
async function createLineDemo(logs: MemoryLogs, { retention = 60 * minute, step = 0 } = {}) {
  let now = clock;
  const demo = await createDemo({
    watch: (backend) => ({ ...backend, stores: { ...backend.stores, logs } }),
    site: (site) => ({ ...site, retention }),
    now: () => fromMillis(now),
  });
  demos.push(demo);
  const advance = () => {
    now += step;
  };
  return { demo, advance };
}

const site = { app_name: "demo-shop", source_ids: ["app"] };

/** All rows of a tool by its cursor, and what happens before each page but the first. */
async function walk(demo: Demo, name: string, args: object, before: (page: number) => void) {
  const rows: Row[] = [];
  let cursor: string | null = null;
  for (let page = 0; page === 0 || cursor !== null; page += 1) {
    if (page > 0) before(page);
    const { structuredContent }: Awaited<ReturnType<typeof callTool>> = await callTool(demo, name, {
      ...args,
      ...(cursor && { cursor }),
    });
    rows.push(...structuredContent.rows);
    cursor = structuredContent.cursor;
    expect(page).toBeLessThan(500);
  }
  return rows;
}

describe("pages without a begin", () => {
  test.each([
    ["get_log_lines", { ...site, order: "ASC", per_page: 7 }],
    ["get_log_lines", { ...site, order: "DESC", per_page: 7 }],
    ["count_log_lines", { ...site, per_page: 2, resolution: "MINUTELY" }],
    ["get_traces", { app_name: site.app_name, order: "ASC", per_page: 7 }],
    ["get_traces", { app_name: site.app_name, order: "ASC", longest_first: true, per_page: 7 }],
  ])("of %s (%o) have that of the first one", async (name, args) => {
    const logs = createMemoryLogs();
    logs.add(
      "demo-shop-app",
      Array.from({ length: 600 }, (_, n) => createLine(n)),
    );
    const retention = 5 * minute;
    const { demo, advance } = await createLineDemo(logs, { retention, step: minute });
    const start = printMillis(clock - retention);
    const expected = (await readPages(demo, name, { ...args, start, end: printMillis(clock) })).flatMap(
      ({ rows }) => rows,
    );
    expect(expected.length).toBeGreaterThan(5);
    expect(await walk(demo, name, args, advance)).toEqual(expected);
  });

  test("are empty where they end before the retention", async () => {
    const { demo } = await createLineDemo(createMemoryLogs(), { retention: minute });
    for (const name of ["get_log_lines", "get_traces", "count_log_lines"]) {
      const { structuredContent, isError } = await callTool(demo, name, {
        app_name: site.app_name,
        end: printMillis(clock - 2 * minute),
      });
      expect(isError).toBeUndefined();
      expect(structuredContent).toMatchObject({ rows: [], cursor: null });
    }
  });
});

test.each(["ASC", "DESC"])("a line that comes late moves no others to another page (%s)", async (order) => {
  const logs = createMemoryLogs();
  // Four of a millisecond, so that pages end within one.
  const lines = Array.from({ length: 100 }, (_, n) =>
    createLine(n, { time: clock - Math.floor(n / 4) * second }),
  );
  logs.add("demo-shop-app", lines);
  const { demo } = await createLineDemo(logs);
  const range = { start: printMillis(clock - minute), end: printMillis(clock) };
  const rows = await walk(demo, "get_log_lines", { ...site, ...range, order, per_page: 6 }, (page) => {
    if (page !== 1) return;
    const time = order === "ASC" ? clock - minute : clock;
    // Ids that are the first of their millisecond in this order.
    logs.add("demo-shop-app", [{ ...createLine(0, { time }), id: order === "ASC" ? "" : "late" }]);
  });
  const ids = rows.map(({ id }) => id);
  expect(ids).toHaveLength(100);
  expect(new Set(ids).size).toBe(100);
});

test("a page by its number says which of its rows only the cursor leads to", async () => {
  const logs = createMemoryLogs();
  logs.add(
    "demo-shop-app",
    Array.from({ length: 100 }, (_, n) => createLine(n, { message: "m".repeat(1_900) })),
  );
  const { demo } = await createLineDemo(logs);
  const args = { ...site, start: printMillis(clock - 60 * minute), per_page: 20 };
  const second = await callTool(demo, "get_log_lines", { ...args, page: 2 });
  const { rows, note, cursor } = second.structuredContent;
  expect(rows.length).toBeLessThan(20);
  expect(note).toMatch(new RegExp(`^This page has no room for its rows ${rows.length + 1} to 20: `));
  expect(second.content[0]?.text).toContain(note);
  expect(rows[0]?.id).toBe("000020");
  // The cursor leads to all of them, and its pages have no numbers.
  const next = await callTool(demo, "get_log_lines", { ...args, cursor });
  expect(next.structuredContent.rows[0]?.id).toBe(`0000${20 + rows.length}`);
  expect(next.structuredContent.note).toBeUndefined();
  const whole = await callTool(demo, "get_log_lines", { ...args, per_page: 10, page: 2 });
  expect(whole.structuredContent.note).toBeUndefined();
  expect(whole.structuredContent.rows).toHaveLength(10);
});

test("the last page has no cursor, also where it is full", async () => {
  const logs = createMemoryLogs();
  logs.add(
    "demo-shop-app",
    Array.from({ length: 20 }, (_, n) => createLine(n)),
  );
  const { demo } = await createLineDemo(logs);
  for (const order of ["ASC", "DESC"])
    for (const per_page of [20, 10, 5, 1]) {
      const pages = await readPages(demo, "get_log_lines", { ...site, order, per_page });
      expect(pages.map(({ rows }) => rows.length)).toEqual(new Array(20 / per_page).fill(per_page));
      expect(pages.at(-1)?.left).toBe(0);
    }
  const range = { start: printMillis(clock - 2 * minute), end: printMillis(clock) };
  const all = await callTool(demo, "get_traces", { app_name: site.app_name, ...range, per_page: 1_000 });
  const { length } = all.structuredContent.rows;
  expect(all.structuredContent.left).toBe(0);
  expect(length).toBeGreaterThan(2);
  for (const longest_first of [false, true]) {
    const args = { app_name: site.app_name, ...range, longest_first, per_page: length };
    const { structuredContent, content } = await callTool(demo, "get_traces", args);
    expect(structuredContent).toMatchObject({ left: 0, cursor: null });
    expect(content[0]?.text).toContain(`That is all: ${length} rows on this page.`);
  }
});

describe("arguments without an effect are named", () => {
  let demo: Demo;
  const { app_name } = site;
  const range = { start: printMillis(clock - 10 * minute), end: printMillis(clock) };
  const note = async (name: string, args: object) =>
    (await callTool(demo, name, { app_name, ...args })).structuredContent.note;
  beforeAll(async () => {
    demo = await createDemo();
  });
  afterAll(() => demo.close());

  test.each([
    ["get_log_lines", { severity: "error", limit: 1, constructor: 1 }, "severity, limit, constructor"],
    ["get_log_lines", { pagination: { per_page: 1 }, use_expressions: false }, "pagination, use_expressions"],
    ["get_log_lines", { ...range, from: "2026-01-01T00:00:00Z" }, "from"],
    [
      "get_traces",
      { trace_id: "1", query: "a", namespaces: ["web"], ...range },
      "query, namespaces, start, end",
    ],
    ["get_slow_events", { namespaces: ["web"] }, "namespaces"],
    ["get_exception_incidents", { digest: "a", ...range, to: "2026-01-01T00:00:00Z" }, "digest, to"],
    ["get_incident", { trace_id: "1", number: 7 }, "number"],
    ["get_applications", { query: "shop" }, "app_name, query"],
    ["get_kubernetes_pods", { snapshots: true, query: "web", per_page: 1 }, "query"],
  ])("of %s: %o", async (name, args, named) => {
    expect(await note(name, args)).toBe(`These arguments have no effect on this call: ${named}.`);
  });

  test("of a call and of the one that it explains", async () => {
    const args = { tool: "get_log_lines", arguments: { app_name, severity: "error" } };
    expect(await note("explain", args)).toBe(
      "These arguments have no effect on this call: app_name. These arguments have no effect on the explained call: severity.",
    );
  });

  test("beside a cursor the number of a page", async () => {
    const { cursor } = (await callTool(demo, "get_log_lines", { app_name, per_page: 2 })).structuredContent;
    expect(await note("get_log_lines", { per_page: 2, page: 2, cursor })).toMatch(/: page\.$/);
  });

  test.each([
    ["get_log_lines", { ...range, query: "", order: "asc", source_ids: ["app"], per_page: 1 }],
    ["get_log_lines", { from: range.start, to: range.end, page: 1, max_characters: 100, offset: 0 }],
    [
      "count_log_lines",
      { ...range, group_by: "severity", limit: 3, group_buckets: true, resolution: "HOURLY" },
    ],
    [
      "get_traces",
      { ...range, query: "namespace=web", namespaces: ["web"], order: "ASC", longest_first: true },
    ],
    [
      "get_exception_incidents",
      { ...range, namespaces: ["web"], action_name: "a", revision: "r", query: "q" },
    ],
    ["get_incident", { digests: ["a"], ...range, pagination: { order: "ASC" }, namespace: "web" }],
    ["get_performance", { ...range, namespaces: ["web"], revision: "r" }],
    ["get_kubernetes_pods", { ...range, snapshots: true, namespaces: ["web"], pod_name: "p" }],
    ["discover_metrics", { query: "cpu" }],
    ["get_app_resources", {}],
  ])("and none of %s: %o", async (name, args) => {
    expect((await note(name, args)) ?? "").not.toContain("no effect");
  });

  test("errors are those of the range, by either of its names", async () => {
    const ask = async (args: object) =>
      (await callTool(demo, "get_exception_incidents", { app_name, ...args })).structuredContent.rows;
    const all = await ask({});
    expect(all.length).toBeGreaterThan(0);
    const later = { from: printMillis(clock + minute), to: printMillis(clock + 2 * minute) };
    expect(await ask(later)).toEqual([]);
    expect(await ask({ start: later.from, end: later.to })).toEqual([]);
  });
});
