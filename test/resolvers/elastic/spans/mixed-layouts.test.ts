// A site whose pattern has spans of two layouts, as at a cut-over in the middle of a request, or of one layout with two mappings.
import { afterEach, expect, test } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import type { Span } from "#src/core/rows.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createFakeSearch, type FakeIndex } from "../../../support/elastic/fake-cluster.ts";
import { apm } from "../../../support/elastic/span-shippers/apm.ts";
import { dataPrepper } from "../../../support/elastic/span-shippers/data-prepper.ts";
import { otel } from "../../../support/elastic/span-shippers/otel.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";
import { at, base, createException, createSpan, signal } from "../../../tracing/span-builder.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

type Shipper = Pick<typeof otel, "indices" | "write">;
const listMappings = (shipper: Pick<Shipper, "indices">) =>
  Object.entries(shipper.indices("x")) as [string, Pick<FakeIndex, "mappings">][];

function write(shipper: Shipper, spans: readonly Span[]): Record<string, FakeIndex> {
  const documents = shipper.write("x", spans as Parameters<Shipper["write"]>[1]);
  return Object.fromEntries(
    listMappings(shipper).map(([name, { mappings }]) => {
      const own = documents.filter(({ index }) => index === name);
      return [name, { mappings, documents: own.map(({ document }) => JSON.parse(document)) }];
    }),
  );
}

async function open(indices: Record<string, FakeIndex>) {
  const search = createFakeSearch(indices, "Elasticsearch");
  const fake = await openScriptedSource((...request) => search.reply(...request));
  const cluster = openCluster(fake.url);
  opened.push(fake, cluster);
  const source = buildSpanSource("shop", { index: Object.keys(indices).join(","), layout: "auto" });
  return { traces: cluster.traces, sources: [source] as const };
}

const idOf = (n: number, digits = 16) => n.toString(16).padStart(digits, "0");
const trace_id = idOf(1, 32);

/** Equal queries of one parent. */
const createCalls = (length: number) =>
  Array.from({ length }, (_, n) =>
    createSpan({
      trace_id,
      span_id: idOf(16 + n),
      parent_span_id: idOf(9),
      span_kind: "client",
      from: 10,
      to: 12,
      span_attributes: { "db.system": "postgresql", "db.statement": "SELECT * FROM item WHERE id = ?" },
    }),
  );

test.each([0, 1, 2, 3, 4, 5])("an N+1 of which %d calls are in another layout", async (inOther) => {
  const root = createSpan({
    trace_id,
    span_id: idOf(9),
    span_kind: "server",
    span_name: "GET /cart",
    from: 0,
    to: 100,
  });
  const calls = createCalls(5);
  const { traces, sources } = await open({
    ...write(otel, [root, ...calls.slice(inOther)]),
    ...write(dataPrepper, calls.slice(0, inOther)),
  });
  const query = { sources, least: 5, budget: createBudget(10_000) };
  expect(await traces.findNPlusOneParents?.(query, signal)).toEqual([idOf(9)]);
  const asked = {
    sources,
    budget: createBudget(10_000),
    range: { from: at(0), to: at(1_000) },
    namespaces: [],
  };
  const byReading = createSpanAnalytics({ scan: traces.scan, find: traces.find });
  expect(await byReading.actions(asked, signal)).toMatchObject([{ action: "GET /cart", has_npo: true }]);
});

test("a span with an exception of its own, and an error document that names it", async () => {
  const span_id = idOf(9);
  const span = createSpan({
    trace_id,
    span_id,
    span_kind: "server",
    span_name: "GET /cart",
    from: 0,
    to: 100,
    events: [createException(50, "CardError")],
  });
  const error = {
    "@timestamp": new Date(base + 60).toISOString(),
    timestamp: { us: (base + 60) * 1_000 },
    agent: { name: "nodejs" },
    service: { name: "shop" },
    trace: { id: trace_id },
    parent: { id: span_id },
    processor: { event: "error", name: "error" },
    error: {
      id: idOf(0xe1, 32),
      grouping_key: "7ec6bd5ec4a6b9b9",
      exception: [{ type: "CardError", message: "declined" }],
    },
  };
  const errors = listMappings(apm).filter(([name]) => name.includes("error"));
  const { traces, sources } = await open({
    ...write(dataPrepper, [span]),
    ...Object.fromEntries(
      errors.map(([name, { mappings }]) => [name, { mappings, documents: [error] }] as const),
    ),
  });
  const find = async (select: "all" | "exceptions") => {
    const of = { by: "trace", traceIds: [trace_id], select } as const;
    const found: Span[] = [];
    for await (const batch of traces.find({ sources, of, budget: createBudget(100) }, signal))
      found.push(...batch);
    return found.map(({ span_id, events }) => [span_id, events.length]);
  };
  expect(await find("all")).toEqual([[span_id, 2]]);
  expect(await find("exceptions")).toEqual([[span_id, 2]]);
});

/** The spans in an index of Data Prepper, where these fields are mapped otherwise and have other values. */
function writeChanged(
  index: string,
  spans: readonly Span[],
  changed: Readonly<Record<string, object>>,
  change: (document: object) => object,
): Record<string, FakeIndex> {
  const [written] = Object.values(write(dataPrepper, spans));
  const { mappings, documents = [] } = written ?? {};
  const { properties } = (mappings ?? {}) as { properties?: object };
  return {
    [index]: {
      mappings: { ...mappings, properties: { ...properties, ...changed } },
      documents: documents.map((document) => ({ ...document, ...change(document) })),
    },
  };
}

test.each([
  [
    "status.code",
    { status: { properties: { code: { type: "keyword" } } } },
    () => ({ status: { code: "2" } }),
  ],
  ["kind", { kind: { type: "integer" } }, () => ({ kind: 2 })],
])(
  "spans whose %s is an integer in one index and a keyword in another are counted",
  async (_, changed, change) => {
    const spans = Array.from({ length: 50 }, (_, n) =>
      createSpan({
        trace_id: idOf(n + 1, 32),
        span_id: idOf(n + 1),
        span_kind: "server",
        span_name: "GET /cart",
        from: 100,
        to: 200,
        status_code: "ERROR",
      }),
    );
    const { traces, sources } = await open({
      ...write(dataPrepper, spans.slice(0, 20)),
      ...writeChanged("x-changed", spans.slice(20), changed, change),
    });
    // Too little to read the spans.
    const asked = { sources, range: { from: at(0), to: at(1_000) }, budget: createBudget(10) };
    const found: unknown[] = [];
    for (const by of ["request", "deploy"] as const) {
      const tallies = traces.tally?.({ ...asked, select: "entries", by }, signal) ?? [];
      for await (const batch of tallies)
        found.push(...batch.map(({ span, spans }) => [span.span_kind, span.status_code, spans]));
    }
    const counted = [20, 30].map((spans) => ["server", "ERROR", spans]);
    expect(found).toEqual([...counted, ...counted]);
  },
);

test("an N+1 whose parents are integers in one index and keywords in another", async () => {
  const calls = createCalls(6);
  const integer = { parentSpanId: { type: "long" } };
  const { traces, sources } = await open({
    ...write(dataPrepper, calls.slice(0, 3)),
    ...writeChanged("x-changed", calls.slice(3), integer, () => ({ parentSpanId: 9 })),
  });
  // No list, so that the spans are read.
  const query = { sources, least: 5, budget: createBudget(10_000) };
  expect(await traces.findNPlusOneParents?.(query, signal)).toBeUndefined();
});

test("traces whose ids are integers in one index and keywords in another", async () => {
  const create = (n: number) =>
    createSpan({
      trace_id: idOf(n, 32),
      span_id: idOf(n),
      span_kind: "server",
      span_name: "GET /",
      from: 10,
      to: 12,
    });
  const integer = { traceId: { type: "long" } };
  const { traces, sources } = await open({
    ...write(dataPrepper, [create(1)]),
    ...writeChanged("x-changed", [create(2)], integer, () => ({ traceId: 2 })),
  });
  const range = { from: at(0), to: at(1_000) };
  const query = { sources, range, select: "entries", budget: createBudget(10_000) } as const;
  expect(await traces.findTraceIds?.(query, signal)).toEqual([idOf(1, 32), idOf(2, 32)]);
});
