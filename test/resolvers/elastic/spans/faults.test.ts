// How reads of span documents fail. None of the failures may look like an answer with fewer spans.
import { afterEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { parseSpanLayout } from "#resolvers/elastic/layout/span-layout.ts";
import { buildSpanSource } from "#src/access/sites.ts";
import type { Span } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import type { SlowEventsQuery, SpanStore } from "#src/store/span-analytics.ts";
import type { SpanSource } from "#src/store/spans.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { jaeger } from "../../../support/elastic/span-shippers/jaeger.ts";
import { otel } from "../../../support/elastic/span-shippers/otel.ts";
import { testIO } from "../../../support/io.ts";
import {
  openScriptedSource,
  type Responder,
  type ScriptedSource,
  sendJson,
} from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const [[name = "", definition] = []] = Object.entries(jaeger.indices("x"));
const settings = { index: { number_of_shards: "1", version: { created: "8190899" } } };
const mappings = { [name]: { ...definition, settings } };
const mapped = z.object({ mappings: z.object({ properties: z.record(z.string(), z.unknown()) }) });

const hit = (n: number, index = name) => ({
  _index: index,
  _id: String(n),
  _source: { traceID: "1", spanID: n.toString(16), startTime: n * 1_000, duration: 5, operationName: "a" },
});
const answer = (hits: readonly object[], total = hits.length, over: object = {}) => ({
  timed_out: false,
  _shards: { total: 1, failed: 0 },
  hits: { total: { value: total, relation: "eq" }, hits },
  ...over,
});

let fake: ScriptedSource | undefined;
afterEach(async () => {
  await fake?.close();
  fake = undefined;
});

async function serve(
  search: Responder,
  mapping: Responder = (response) => sendJson(response, mappings),
): Promise<string> {
  fake = await openScriptedSource((response, request, body) => {
    const path = request.url ?? "";
    if (path === "/") sendJson(response, { version: { number: "8.19.8" } });
    else if (path.includes("/_search")) search(response, request, body);
    else mapping(response, request, body);
  });
  return fake.url;
}

type Own = Parameters<typeof elastic.create>[3];
type Inspections = ReturnType<typeof elastic.create>["inspections"];

async function using<T>(
  url: string,
  ask: (store: SpanStore, inspections: Inspections) => Promise<T>,
  own?: Own,
): Promise<T> {
  const backend = elastic.create("elk", elastic.parseConfig({ url, timeout: "60s" }), testIO, own);
  try {
    if (backend.stores.traces === undefined) throw new Error("no span store");
    return await ask(backend.stores.traces, backend.inspections);
  } finally {
    await backend.close();
  }
}
const source = (over: Partial<SpanSource> = {}): SpanSource => ({
  ...buildSpanSource("shop", { index: "x-*", layout: "auto" }),
  ...over,
});
function read(url: string, over: Partial<SpanSource> = {}, limit = 10_000): Promise<Span[]> {
  return using(url, async (store) => {
    const spans: Span[] = [];
    const range = { from: fromMillis(0), to: fromMillis(1_000_000) };
    const query = { sources: [source(over)], range, select: "all", budget: createBudget(limit) } as const;
    for await (const batch of store.scan(query, never)) spans.push(...batch);
    return spans;
  });
}

function readSlowEvents(url: string) {
  const query: SlowEventsQuery = {
    sources: [source()],
    range: { from: fromMillis(0), to: fromMillis(1_000_000) },
    budget: createBudget(10_000),
    requiredAttributes: [],
    excludedAttributes: [],
    limit: 10,
  };
  return using(url, (store) => store.slowEvents(query, never));
}

describe("span documents of a failing backend", () => {
  test.each([
    ["failed shards", "partial", answer([hit(1)], 1, { _shards: { total: 2, failed: 1 } })],
    ["a time-out of its own", "partial", answer([hit(1)], 1, { timed_out: true })],
    ["early termination", "partial", answer([hit(1)], 1, { terminated_early: true })],
    [
      "a total that is a guess",
      "malformed",
      { ...answer([hit(1)]), hits: { total: { value: 1, relation: "gte" }, hits: [hit(1)] } },
    ],
    ["an error with status 200", "malformed", { error: "no" }],
    ["documents of an index without a known mapping", "partial", answer([hit(1, "x-unknown")])],
  ])("refuses an answer with %s", async (_, failure, body) => {
    const url = await serve((response) => sendJson(response, body));
    await expect(read(url)).rejects.toMatchObject({ name: "BackendError", failure });
  });

  test("refuses aggregations without the total that they asked for", async () => {
    const url = await serve((response) =>
      sendJson(response, { timed_out: false, _shards: { total: 1, failed: 0 }, hits: { hits: [] } }),
    );
    await expect(readSlowEvents(url)).rejects.toMatchObject({
      failure: "malformed",
      message: expect.stringContaining("without its total"),
    });
  });

  test("does not read what the source failed to aggregate", async () => {
    const url = await serve((response, _, body) => {
      if (body.includes('"aggs"')) sendJson(response, {}, 500);
      else sendJson(response, answer([hit(1)]));
    });
    await expect(readSlowEvents(url)).rejects.toMatchObject({ failure: "rejected", status: 500 });
  });

  test("frees a scroll whose first page is incomplete", async () => {
    const freed: string[] = [];
    const url = await serve((response, request, body) => {
      if (request.method !== "DELETE")
        return sendJson(response, { _scroll_id: "s", ...answer([hit(1)], 3, { timed_out: true }) });
      freed.push(body);
      sendJson(response, {});
    });
    await expect(read(url)).rejects.toMatchObject({ failure: "partial" });
    await expect.poll(() => freed).toEqual(['{"scroll_id":["s"]}']);
  });

  test("refuses a scroll that returns fewer documents than it counted", async () => {
    let scrolls = 0;
    const url = await serve((response, request) => {
      const path = request.url ?? "";
      if (request.method === "DELETE") sendJson(response, {});
      else if (path.includes("/_search/scroll")) {
        scrolls += 1;
        sendJson(response, answer(scrolls > 1 ? [] : [hit(3)], 3, { _scroll_id: "s" }));
      } else sendJson(response, answer([hit(1)], 3, { _scroll_id: "s" }));
    });
    await expect(read(url)).rejects.toMatchObject({ name: "BackendError", failure: "partial" });
  });

  test("accepts terminated_early on full scroll pages, which Elasticsearch 7 sets", async () => {
    let scrolls = 0;
    const url = await serve((response, request) => {
      const path = request.url ?? "";
      if (request.method === "DELETE") sendJson(response, {});
      else if (path.includes("/_search/scroll")) {
        scrolls += 1;
        sendJson(response, answer([hit(scrolls + 1)], 3, { _scroll_id: "s", terminated_early: true }));
      } else sendJson(response, answer([hit(1)], 3, { _scroll_id: "s" }));
    });
    expect((await read(url)).map(({ span_id }) => Number(span_id))).toEqual([1, 2, 3]);
  });

  test("reports a mapping that may not be read as denied, which is worth a retry", async () => {
    const url = await serve(
      (response) => sendJson(response, answer([hit(1)])),
      (response) => sendJson(response, {}, 403),
    );
    await expect(read(url)).rejects.toMatchObject({ name: "BackendError", failure: "denied" });
  });

  /** A mapping of Jaeger with tags as fields below `tag`, spelt as given. */
  const tagged = (...tags: string[]) => {
    const { properties } = mapped.parse(definition).mappings;
    const below = (names: readonly string[]): object => ({
      properties: Object.fromEntries(
        [...Map.groupBy(names, (name) => name.split(".", 1)[0] ?? "")].map(([key, own]) => {
          const rest = own.map((name) => name.slice(key.length + 1)).filter((name) => name !== "");
          return [key, rest.length > 0 ? below(rest) : { type: "keyword" }];
        }),
      ),
    });
    const grown = { mappings: { dynamic: false, properties: { ...properties, tag: below(tags) } } };
    return { [name]: { ...grown, settings } };
  };

  test.each([
    [["span#kind"], "tag.span#kind"],
    [["internal#span#format", "http#method", "otel#scope#name"], "tag.otel#scope#name"],
    [["span__kind"], "tag.span__kind"],
  ])("refuses tags that replace their dots by another character than the layout: %j", async (tags, shown) => {
    const url = await serve(
      (response) => sendJson(response, answer([hit(1)])),
      (response) => sendJson(response, tagged(...tags)),
    );
    await expect(read(url)).rejects.toMatchObject({
      slug: "not_supported_by_backend",
      message: expect.stringContaining(`as ${shown} does`),
    });
    const report = await using(url, async (_, { traces }) => traces?.(source(), never));
    expect(report?.problems).toContainEqual(expect.stringContaining(`as ${shown} does`));
  });

  test.each([[["span@kind"]], [["http@method", "span_kind"]], [["colour", "span_kinds", "spankind"]]])(
    "accepts attributes that only resemble tags with replaced dots: %j",
    async (tags) => {
      const url = await serve(
        (response) => sendJson(response, answer([hit(1)])),
        (response) => sendJson(response, tagged(...tags)),
      );
      expect(await read(url)).toHaveLength(1);
    },
  );

  test.each([{ "span.kind": "server" }, { span: { kind: "server" } }, { "span@kind": "server" }])(
    "reads tags that keep their dots: %j",
    async (tag) => {
      const own = hit(1);
      const url = await serve(
        (response) => sendJson(response, answer([{ ...own, _source: { ...own._source, tag } }])),
        (response) =>
          sendJson(response, tagged(Object.keys(tag)[0] === "span@kind" ? "span@kind" : "span.kind")),
      );
      expect(await read(url)).toMatchObject([{ span_kind: "server", span_attributes: {} }]);
    },
  );

  describe("documents of no known layout", () => {
    // As OpenSearch shows the mapping to a user with a field-level rule that hides the times.
    const { startTime: _, ...shown } = mapped.parse(definition).mappings.properties;
    const hidden = { [name]: { mappings: { properties: shown }, settings } };

    test("refuses an index whose documents fit no layout, because they may be spans", async () => {
      let counts = 0;
      const url = await serve(
        (response) => {
          counts += 1;
          sendJson(response, answer([], 1));
        },
        (response) => sendJson(response, hidden),
      );
      await expect(read(url)).rejects.toMatchObject({
        slug: "not_supported_by_backend",
        details: { feature: "an index pattern without spans of a known layout" },
      });
      expect(counts).toBe(1);
    });

    test("returns nothing for an index of no known layout without documents", async () => {
      const url = await serve(
        (response) => sendJson(response, answer([])),
        (response) => sendJson(response, hidden),
      );
      expect(await read(url)).toEqual([]);
    });

    test("reads documents as soon as the mapping has their fields", async () => {
      let reads = 0;
      const url = await serve(
        (response) => sendJson(response, answer([hit(1)])),
        (response) => {
          reads += 1;
          sendJson(response, reads > 1 ? mappings : hidden);
        },
      );
      expect((await read(url)).map(({ span_id }) => Number(span_id))).toEqual([1]);
    });
  });

  test("refuses more documents than the budget allows after one search", async () => {
    const url = await serve((response) => sendJson(response, answer([hit(1)], 5_000)));
    await expect(read(url, {}, 4_999)).rejects.toMatchObject({ slug: "result_too_large" });
    expect(fake?.requests.filter(({ path }) => path.includes("_search"))).toHaveLength(1);
  });
});

test("reads documents in smaller pages when one page exceeds the answer limit", async () => {
  const spans = Array.from({ length: 120 }, (_, n) => ({
    ...hit(n + 1),
    _source: { ...hit(n + 1)._source, tags: [{ key: "stack", type: "string", value: "x".repeat(16_384) }] },
  }));
  let at = 0;
  let size = 0;
  const url = await serve((response, request, body) => {
    if (request.method === "DELETE") return sendJson(response, {});
    if (!request.url?.includes("/_search/scroll")) [at, size] = [0, JSON.parse(body).size];
    const hits = spans.slice(at, at + size);
    at += size;
    sendJson(response, answer(hits, spans.length, { _scroll_id: "s" }));
  });
  const config = elastic.parseConfig({ url, timeout: "60s", answer_bytes: 1_048_576 });
  const backend = elastic.create("elk", config, testIO);
  try {
    const range = { from: fromMillis(0), to: fromMillis(1_000_000) };
    const query = { sources: [source()], range, select: "all", budget: createBudget(120) } as const;
    const found = backend.stores.traces?.scan(query, never) ?? [];
    const ids: number[] = [];
    for await (const batch of found) ids.push(...batch.map(({ span_id }) => Number.parseInt(span_id, 16)));
    expect(ids).toEqual(spans.map((_, n) => n + 1));
  } finally {
    await backend.close();
  }
});

test("reads an index by its new mapping when documents have fields that the old one lacked", async () => {
  let grown = false;
  const url = await serve(
    (response, _, body) => {
      const probe = JSON.parse(body).size === 0;
      sendJson(response, answer(probe ? [] : [hit(1)], 1));
    },
    (response) => {
      const before = { [name]: { mappings: { properties: { message: { type: "text" } } }, settings } };
      sendJson(response, grown ? mappings : before);
      grown = true;
    },
  );
  expect(await read(url)).toHaveLength(1);
});

test("searches separate events only when the caller needs events", async () => {
  const [index = ""] = Object.keys(otel.indices("x"));
  const document = { "@timestamp": "1.0", trace_id: "1", span_id: "2", kind: "Server", duration: 5 };
  const spanHit = { _index: index, _id: "1", _source: document };
  const both = Object.fromEntries(
    Object.entries(otel.indices("x")).map(([own, definition]) => [own, { ...definition, settings }]),
  );
  const url = await serve(
    (response, _, body) => {
      const isEvents = body.includes("event_name") && !body.includes('"duration"');
      const probe = JSON.parse(body).size === 0;
      sendJson(
        response,
        answer(isEvents || probe ? [] : [spanHit], isEvents || probe ? 0 : 1, {
          _shards: { total: 2, failed: 0 },
        }),
      );
    },
    (response) => sendJson(response, both),
  );
  await using(url, async (store) => {
    const range = { from: fromMillis(0), to: fromMillis(1_000_000) };
    const sources = [source()] as const;
    for (const withoutEvents of [true, false]) {
      const before = fake?.requests.length ?? 0;
      const query = {
        sources,
        range,
        select: "entries",
        withoutEvents,
        budget: createBudget(100),
      } as const;
      for await (const _ of store.scan(query, never));
      const searches = (fake?.requests ?? []).slice(before).filter(({ body }) => body.includes("event_name"));
      expect(searches.length > 0).toBe(!withoutEvents);
    }
  });
});

describe("index hints", () => {
  const both = Object.fromEntries(
    Object.entries(otel.indices("x")).map(([own, definition]) => [own, { ...definition, settings }]),
  );
  const whole = { _shards: { total: 2, failed: 0 } };
  /** The hints of two sources, of which the second responds with `over`. */
  const ask = async (over: object) => {
    const url = await serve(
      // Searches before, for new forms, are complete.
      (response, { url = "" }, body) => {
        const isSecond = url.includes("y-") && /"composite"|"sort"/.test(body);
        const ids = { buckets: isSecond ? [] : [{ key: { c0: "a" }, doc_count: 1 }] };
        sendJson(response, answer([], 0, { ...whole, aggregations: { ids }, ...(isSecond ? over : {}) }));
      },
      (response) => sendJson(response, both),
    );
    return using(url, async (store) => {
      const shared = { sources: [source(), source({ index: "y-*" })] as const, budget: createBudget(100) };
      const range = { from: fromMillis(0), to: fromMillis(1_000_000) };
      const scan = { ...shared, range, select: "entries", by: "time", order: "asc", nth: 3 } as const;
      const signal = new AbortController().signal;
      const hints = [
        store.findTraceIdsWithExceptions?.({ ...shared, errors: undefined }, signal),
        store.findSplitPoint?.(scan, signal),
      ];
      return Promise.allSettled(hints);
    });
  };

  test.each([
    ["failed shards", { _shards: { total: 2, failed: 1 } }],
    ["a time-out of its own", { timed_out: true }],
    ["a total that is a guess", { hits: { total: { value: 0, relation: "gte" }, hits: [] } }],
  ])("rejects lists and split points with %s", async (_, over) => {
    const reason = expect.objectContaining({ name: "BackendError", failure: "partial" });
    expect(await ask(over)).toEqual([
      { status: "rejected", reason },
      { status: "rejected", reason },
    ]);
  });

  test("returns undefined when the shard count differs from that of the mapping", async () => {
    const of = (value: unknown) => ({ status: "fulfilled", value });
    expect(await ask({})).toEqual([of(["a".padStart(32, "0")]), of(undefined)]);
    for (const total of [1, 3])
      expect(await ask({ _shards: { total, failed: 0 } })).toEqual([of(undefined), of(undefined)]);
  });
});

test("a split point is unknown where one of the indices cannot sort by the time", async () => {
  const { mappings: own } = mapped.parse(definition);
  const [[time = "", field] = []] = Object.entries(own.properties).filter(([one]) => one === "startTime");
  const properties = { ...own.properties, [time]: Object.assign({}, field, { doc_values: false }) };
  const unsorted = { ...definition, mappings: { ...own, properties }, settings };
  const sorted = { ...hit(1), sort: [1_000] };
  const find = async (indices: object) => {
    const _shards = { total: Object.keys(indices).length, failed: 0 };
    const url = await serve(
      (response, _, body) =>
        sendJson(response, answer(body.includes('"sort"') ? [sorted] : [], 1, { _shards })),
      (response) => sendJson(response, indices),
    );
    return using(url, (store) => {
      const range = { from: fromMillis(0), to: fromMillis(1_000_000) };
      const shared = { sources: [source()] as const, budget: createBudget(100), range };
      const query = { ...shared, select: "entries", by: "time", order: "asc", nth: 1 } as const;
      return Promise.resolve(store.findSplitPoint?.(query, never));
    });
  };
  expect(await find(mappings)).toBe(1_000_000n);
  expect(await find({ ...mappings, [`${name}-2`]: unsorted })).toBeUndefined();
});

test("every search carries the tenant filter and refuses partial results", async () => {
  const url = await serve((response) => sendJson(response, answer([])));
  await using(url, async (store) => {
    const filtered = source({ tenantFilter: 'process.serviceName="shop"' });
    const budget = createBudget(100);
    const range = { from: fromMillis(0), to: fromMillis(1) };
    const ids = [{ trace_id: "1", span_id: "2" }];
    const { signal } = new AbortController();
    const sources = [filtered] as const;
    for (const select of ["all", "entries", "children", "calls", "exceptions", "statements"] as const) {
      for await (const _ of store.scan({ sources, range, select, budget }, signal));
      for await (const _ of store.find(
        { sources, of: { by: "trace", traceIds: ["1"], select }, budget },
        signal,
      ));
    }
    for await (const _ of store.find({ sources, of: { by: "span", spans: ids }, budget }, signal));
    for await (const _ of store.find({ sources, of: { by: "caller", spans: ids }, budget }, signal));
    await store.locate({ sources, traceId: "1", budget }, signal);
  });
  const searches = (fake?.requests ?? []).filter(({ path }) => path.includes("_search"));
  expect(searches.length).toBeGreaterThan(14);
  for (const { path, body } of searches) {
    expect(path).toContain("allow_partial_search_results=false");
    const { query } = JSON.parse(body) as { query: { bool: { should: readonly object[] } } };
    // Either the known index behind its tenant filter, or documents of unknown indices, which are never used.
    for (const part of query.bool.should ?? [query]) {
      const text = JSON.stringify(part);
      const strange = { bool: { must_not: [{ terms: { _index: [name] } }] } };
      if (text.startsWith('{"bool":{"must_not"')) expect(part).toEqual(strange);
      else expect(text).toContain('{"term":{"process.serviceName":"shop"}}');
    }
  }
});

async function readFirstBatch(store: SpanStore): Promise<void> {
  const range = { from: fromMillis(0), to: fromMillis(1_000_000) };
  const query = { sources: [source()], range, select: "all", budget: createBudget(10_000) } as const;
  for await (const batch of store.scan(query, never)) {
    expect(batch.length).toBeGreaterThan(0);
    break;
  }
}

test("clears the scroll when the caller stops reading early", async () => {
  let freed: () => void = () => undefined;
  const deleted = new Promise<void>((resolve) => {
    freed = resolve;
  });
  const url = await serve((response, request) => {
    if (request.method === "DELETE") freed();
    const hits = Array.from({ length: 1_000 }, (_, n) => hit(n + 1));
    sendJson(response, answer(hits, 5_000, { _scroll_id: "s" }));
  });
  await using(url, async (store) => {
    await readFirstBatch(store);
    await deleted;
  });
});

test("reports a failed scroll page when the caller asks for it, not while it is busy", async () => {
  const url = await serve((response, request) => {
    const path = request.url ?? "";
    const hits = Array.from({ length: 1_000 }, (_, n) => hit(n + 1));
    if (path.includes("/_search/scroll") && request.method === "POST") sendJson(response, {}, 400);
    else sendJson(response, answer(hits, 5_000, { _scroll_id: "s" }));
  });
  await using(url, async (store) => {
    const range = { from: fromMillis(0), to: fromMillis(1_000_000) };
    const query = { sources: [source()], range, select: "all", budget: createBudget(10_000) } as const;
    let spans = 0;
    const reading = async () => {
      for await (const batch of store.scan(query, never)) {
        spans += batch.length;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    };
    await expect(reading()).rejects.toMatchObject({ failure: "rejected" });
    expect(spans).toBe(1_000);
  });
});

test.each([
  [200, 5_000],
  [4_000, 1_000],
  [20_000, 416],
  [400_000, 20],
])("a scroll of documents of %d bytes has pages of %d", async (bytes, expected) => {
  const hits = Array.from({ length: 20 }, (_, n) => {
    const { _source, ...rest } = hit(n + 1);
    return { ...rest, _source: { ..._source, note: "x".repeat(bytes) } };
  });
  const sizes: number[] = [];
  const url = await serve((response, request, body) => {
    const { size } = JSON.parse(body) as { size?: number };
    if (request.method === "POST" && request.url?.includes("scroll=") && size !== undefined) sizes.push(size);
    sendJson(response, answer(hits, 40, { _scroll_id: "s" }));
  });
  await using(url, async (store) => {
    await readFirstBatch(store);
  });
  expect(sizes).toEqual([expected]);
});

describe("a custom span layout", () => {
  const layout = `
name: mine
traces:
  documents:
    - holds: span
      present: [traceID, spanID]
      trace_id: traceID
      span_id: spanID
      parent: parentSpanID
      start: { field: startTime, unit: us }
      duration: { field: duration, unit: ms }
      name: operationName
      kind: [{ value: server }]
      status: [{ field: failed, values: { "true": ERROR } }]
      service: operationName
      span_attributes: { from: [{ prefix: tag. }] }
      resource_attributes: { from: [{ prefix: process. }] }
`;
  const scanWith = async (text: string): Promise<Span[]> => {
    const url = await serve((response) => sendJson(response, answer([hit(1)])));
    const ask = async (store: SpanStore) => {
      const spans: Span[] = [];
      const range = { from: fromMillis(0), to: fromMillis(1_000) };
      const sources = [source({ layout: "mine.yaml" })] as const;
      const query = { sources, range, select: "all", budget: createBudget(10) } as const;
      for await (const batch of store.scan(query, never)) spans.push(...batch);
      return spans;
    };
    return using(url, ask, { logs: new Map(), traces: new Map([["mine.yaml", parseSpanLayout(text)]]) });
  };

  test("reads spans as the custom layout says", async () => {
    const [span] = await scanWith(layout);
    expect(span).toMatchObject({
      span_kind: "server",
      service_name: "a",
      start: fromMillis(1),
      end: fromMillis(6),
    });
  });

  test("refuses a custom layout with an unknown unit", () => {
    expect(() => parseSpanLayout(layout.replace("unit: ms", "unit: weeks"))).toThrow(/unit/);
  });
});
