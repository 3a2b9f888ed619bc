// An index that lets a search return few hits (`index.max_result_window`), over a search server in memory that rejects a search
// for more: everything is read, in smaller parts.
import { afterEach, describe, expect, test } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogQuery } from "#src/store/logs.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createFakeSearch, type FakeIndex } from "../../../support/elastic/fake-cluster.ts";
import { buildMapping, createFakeIndex } from "../../../support/elastic/layout-harness.ts";
import { otel } from "../../../support/elastic/span-shippers/otel.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";
import { createSpan, range as spanRange } from "../../../tracing/span-builder.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

async function openNarrow(window: number, indices: Readonly<Record<string, FakeIndex>>) {
  const settings = { max_result_window: String(window) };
  const narrow = Object.entries(indices).map(([name, index]) => [name, { ...index, settings }] as const);
  const search = createFakeSearch(Object.fromEntries(narrow), "Elasticsearch");
  const fake = await openScriptedSource(search.reply);
  const cluster = openCluster(fake.url);
  opened.push(fake, cluster);
  return cluster;
}

const start = Date.UTC(2026, 0, 15, 10);
const range = { from: fromMillis(start), to: fromMillis(start + 60_000) };
const source = { id: "app", index: "logs-*", layout: "auto", tenantFilter: undefined };

/** Lines of two layouts and of several mappings, 300 of each index in one millisecond and 300 in others. */
const lines: Readonly<Record<string, FakeIndex>> = Object.fromEntries(
  [{ message: "a" }, { message: "a", log: { level: "info" } }, { log: "a", stream: "stdout" }].map(
    (own, at) => {
      const documents = Array.from({ length: 600 }, (_, n) => ({
        "@timestamp": new Date(start + Math.max(0, n - 300)).toISOString(),
        ...own,
      }));
      return [`logs-${at}`, createFakeIndex(documents, buildMapping([{ ...own, [`own${at}`]: "x" }]))];
    },
  ),
);

describe.each([50, 7])("with a result window of %d", (window) => {
  test.each([
    ["a page", 100],
    ["a long page", 1_800],
    ["an export", 1_000_000],
  ])("reads the lines of %s", async (_, expectedLines) => {
    const { store } = await openNarrow(window, lines);
    const limits = { expectedLines, documentLimit: 1_000_000, tieLimit: 1_000_000 };
    const query: LogQuery = { sources: [source], range, filter: parse(""), order: "asc", ...limits };
    const ids: string[] = [];
    for await (const batch of store.lines(query, never)) ids.push(...batch.map(({ id }) => id));
    expect(ids).toHaveLength(1_800);
    expect(new Set(ids).size).toBe(1_800);
    expect(await store.isWithinLimits?.({ ...query, documentLimit: 2_400 }, never)).toBe(true);
  });
});

test("reads spans in pages of the result window", async () => {
  const spans = Array.from({ length: 300 }, (_, n) =>
    createSpan({
      site_id: "shop",
      trace_id: "1".padStart(32, "0"),
      span_id: (n + 1).toString(16).padStart(16, "0"),
      from: 1,
      to: 2,
    }),
  );
  const shipped = otel.write("x", spans);
  const indices = Object.entries(otel.indices("x")).map(([name, definition]) => {
    const { mappings } = definition as { readonly mappings: object };
    const documents = shipped.flatMap((one) => (one.index === name ? [JSON.parse(one.document)] : []));
    return [name, { mappings, documents }] as const;
  });
  const { traces, inspectTraces } = await openNarrow(50, Object.fromEntries(indices));
  const spanSource = buildSpanSource("shop", { index: otel.pattern("x"), layout: "auto" });
  const scan = {
    sources: [spanSource],
    range: spanRange,
    select: "all",
    budget: createBudget(100_000),
  } as const;
  const found: string[] = [];
  for await (const batch of traces.scan(scan, never)) found.push(...batch.map(({ span_id }) => span_id));
  expect(new Set(found).size).toBe(300);
  const { limitations } = await inspectTraces(spanSource, never);
  expect(limitations.join()).toContain("index.max_result_window is 50");
});

test("check names the indices whose result window is below what reading needs", async () => {
  const { inspect } = await openNarrow(1_000, lines);
  const { limitations, problems } = await inspect(source, never);
  expect(problems).toEqual([]);
  expect(limitations).toContain(
    "3 indices (logs-0, logs-1 and 1 more): index.max_result_window is 1000, so all indices of the pattern are read 1000 at a time; 1024 is enough",
  );
  const wide = await openNarrow(1_024, lines);
  expect((await wide.inspect(source, never)).limitations.join()).not.toContain("max_result_window");
});
