// Documents of any size are read: a search asks for as many as fit into some megabytes, and for fewer where they do not fit.
import { afterEach, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { buildSpanSource } from "#src/access/sites.ts";
import type { Span } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import type { SpanStore } from "#src/store/span-analytics.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { jaeger } from "../../../support/elastic/span-shippers/jaeger.ts";
import { testIO } from "../../../support/io.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";

const [[name = "", definition] = []] = Object.entries(jaeger.indices("x"));
const settings = { index: { number_of_shards: "1", version: { created: "8190899" } } };
const sources = [buildSpanSource("shop", { index: "x-*", layout: "auto" })] as const;
const signal = new AbortController().signal;

let fake: ScriptedSource | undefined;
afterEach(async () => {
  await fake?.close();
});

/** Reads from a source of `count` documents of `bytes` each, in responses of at most a megabyte; `sizes` are what it was asked for. */
async function readFrom<T>(
  { count, bytes }: { readonly count: number; readonly bytes: number },
  read: (store: SpanStore, sizes: number[]) => Promise<T>,
): Promise<T> {
  const hits = Array.from({ length: count }, (_, n) => ({
    _index: name,
    _id: String(n),
    _source: {
      traceID: "1",
      spanID: (n + 1).toString(16),
      startTime: n * 1_000,
      duration: 5,
      operationName: "a",
      tags: [{ key: "stack", type: "string", value: "x".repeat(bytes) }],
    },
  }));
  const sizes: number[] = [];
  let [at, size] = [0, 0];
  fake = await openScriptedSource((response, request, body) => {
    const path = request.url ?? "";
    if (path === "/") return sendJson(response, { version: { number: "8.19.8" } });
    if (!path.includes("/_search")) return sendJson(response, { [name]: { ...definition, settings } });
    if (request.method === "DELETE") return sendJson(response, {});
    if (!path.includes("/_search/scroll")) {
      [at, size] = [0, JSON.parse(body).size];
      if (size > 0) sizes.push(size);
    }
    const page = hits.slice(at, at + size);
    at += size;
    sendJson(response, {
      _scroll_id: "s",
      timed_out: false,
      _shards: { total: 1, failed: 0 },
      hits: { total: { value: count, relation: "eq" }, hits: page },
    });
  });
  const config = elastic.parseConfig({ url: fake.url, timeout: "60s", answer_bytes: 1_048_576 });
  const backend = elastic.create("elk", config, testIO);
  try {
    if (backend.stores.traces === undefined) throw new Error("no span store");
    return await read(backend.stores.traces, sizes);
  } finally {
    await backend.close();
  }
}

async function listIds(batches: AsyncIterable<readonly Span[]>): Promise<readonly number[]> {
  const ids: number[] = [];
  for await (const batch of batches) ids.push(...batch.map(({ span_id }) => Number.parseInt(span_id, 16)));
  return ids;
}

const readTrace = (store: SpanStore) => {
  const of = { by: "trace", traceIds: ["1".padStart(32, "0")], select: "all" } as const;
  return listIds(store.find({ sources, of, budget: createBudget(10_000) }, signal));
};
const readRange = (store: SpanStore) => {
  const range = { from: fromMillis(0), to: fromMillis(1_000_000) };
  return listIds(store.scan({ sources, range, select: "all", budget: createBudget(10_000) }, signal));
};

test.each([
  ["a trace", 120, 16_384, readTrace],
  ["a trace, which fit one by one only", 5, 600_000, readTrace],
  ["a range, which fit one by one only", 5, 600_000, readRange],
])("reads documents of %s that exceed a response", async (_, count, bytes, read) => {
  const ids = await readFrom({ count, bytes }, read);
  expect(ids).toEqual(Array.from({ length: count }, (__, n) => n + 1));
});

test("asks for a few documents of a pattern that it does not know, and then for as many as weigh some megabytes", async () => {
  await readFrom({ count: 40, bytes: 20_000 }, async (store, sizes) => {
    await readRange(store);
    expect(sizes.shift()).toBe(256);
    await readRange(store);
    expect(sizes.at(0)).toBeGreaterThan(1_000);
    expect(sizes.at(0)).toBeLessThan(5_000);
  });
});
