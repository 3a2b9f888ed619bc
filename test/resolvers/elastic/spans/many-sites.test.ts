// Hundreds of sites on one backend: a request does not fill the queue of the backend with its own questions, and what it does
// for a site does not grow with the number of sites.
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { buildSpanSource } from "#src/access/sites.ts";
import { isNonEmpty } from "#src/core/collections.ts";
import { fromMillis } from "#src/core/time.ts";
import type { SpanStore } from "#src/store/span-analytics.ts";
import type { SpanScan, SpanSource } from "#src/store/spans.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { otel } from "../../../support/elastic/span-shippers/otel.ts";
import { countTurns } from "../../../support/event-loop-turns.ts";
import { testIO } from "../../../support/io.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const sites = 300;
const spansPerSite = 7;
/** Of four sites, for each the search and one that shows whether its plan is behind. */
const mostSearches = 8;
const settings = { index: { number_of_shards: "1", version: { created: "8190899" } } };
const mappings = Object.fromEntries(
  Object.entries(otel.indices("x")).map(([name, definition]) => [name, { ...definition, settings }]),
);

let fake: ScriptedSource;
/** Searches that wait for their answer now, and the most that did. */
let open: number;
let mostOpen: number;
beforeEach(async () => {
  [open, mostOpen] = [0, 0];
  fake = await openScriptedSource((response, { url = "" }, body) => {
    if (url === "/") return sendJson(response, { version: { number: "8.19.8" } });
    if (!url.includes("/_search")) return sendJson(response, mappings);
    open += 1;
    mostOpen = Math.max(mostOpen, open);
    // A question whether a plan is behind has no sort.
    const isCount = body.includes('"size":0') && body.includes('"sort"');
    setImmediate(() => {
      open -= 1;
      const hits = {
        total: { value: isCount ? spansPerSite : 0, relation: "eq" },
        hits: [],
      };
      const aggregations = { ids: { buckets: [] } };
      sendJson(response, { timed_out: false, _shards: { total: 2, failed: 0 }, hits, aggregations });
    });
  });
});
afterEach(() => fake.close());

async function askStore<Answer>(
  ask: (store: SpanStore, query: SpanScan, signal: AbortSignal) => Promise<Answer>,
  watch: (source: SpanSource) => SpanSource = (source) => source,
): Promise<Answer> {
  const sources = Array.from({ length: sites }, (_, n) =>
    watch(buildSpanSource(`site-${n}`, { index: "x-*", layout: "auto" })),
  );
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
  const store = backend.stores.traces;
  if (store === undefined || !isNonEmpty(sources)) throw new Error("no traces");
  const range = { from: fromMillis(0), to: fromMillis(1_000_000) };
  try {
    const query = { sources, range, select: "entries", budget: createBudget(100_000) } as const;
    return await ask(store, query, never);
  } finally {
    await backend.close();
  }
}

test("counts the spans of hundreds of sites, those of a few at a time", async () => {
  const count = await askStore((store, query, signal) => {
    expect(store.count).toBeDefined();
    return store.count?.(query, signal) ?? Promise.resolve(undefined);
  });
  expect(count).toBe(sites * spansPerSite);
  expect(mostOpen).toBeLessThanOrEqual(mostSearches);
});

test("looks for a split point in hundreds of sites, in a few at a time", async () => {
  const point = askStore((store, query, signal) => {
    expect(store.findSplitPoint).toBeDefined();
    const split = { ...query, by: "time", order: "asc", nth: 10 } as const;
    return store.findSplitPoint?.(split, signal) ?? Promise.resolve(undefined);
  });
  await expect(point).resolves.toBeUndefined();
  expect(mostOpen).toBeLessThanOrEqual(mostSearches);
});

test("does as much for a site of hundreds as for one of few", async () => {
  let reads = 0;
  const watch = (source: SpanSource): SpanSource =>
    Object.defineProperty({ ...source }, "site", {
      enumerable: true,
      get() {
        reads += 1;
        return source.site;
      },
    });
  await askStore(async (store, query, signal) => {
    const spans = store.scan(query, signal)[Symbol.asyncIterator]();
    await spans.next().catch(() => undefined);
    await spans.return?.();
  }, watch);
  expect(reads).toBeGreaterThan(0);
  expect(reads).toBeLessThan(sites * 30);
});

test("writes one search in a turn where many begin at once", async () => {
  const spans = Array.from({ length: 2_001 }, (_, n) => ({ trace_id: `t${n}`, span_id: `s${n}` }));
  const most = await askStore(async (store, { sources: [first, ...others], budget }, signal) => {
    const sources = [first, ...others.slice(0, 3)] as const;
    const find = async () => {
      const of = { by: "caller", spans } as const;
      for await (const found of store.find({ sources, of, withoutEvents: true, budget }, signal))
        expect(found).toEqual([]);
    };
    // Mappings and plans are read before.
    await find();
    return countMostPerTurn(find);
  });
  expect(most).toBe(1);
});

/** The most searches for documents that are written in one turn of the event loop. */
async function countMostPerTurn(work: () => Promise<void>): Promise<number> {
  let [inTurn, most, isOver] = [0, 0, false];
  const stringify = JSON.stringify;
  const spy = vi.spyOn(JSON, "stringify").mockImplementation((value: unknown, ...rest: unknown[]) => {
    if (isSearch(value)) inTurn += 1;
    most = Math.max(most, inTurn);
    return Reflect.apply(stringify, JSON, [value, ...rest]);
  });
  const countNext = () => {
    inTurn = 0;
    if (!isOver) setImmediate(countNext);
  };
  setImmediate(countNext);
  try {
    await countTurns(work);
  } finally {
    isOver = true;
    spy.mockRestore();
  }
  return most;
}

const isSearch = (value: unknown): boolean =>
  typeof value === "object" && value !== null && "query" in value && "size" in value && value.size !== 0;
