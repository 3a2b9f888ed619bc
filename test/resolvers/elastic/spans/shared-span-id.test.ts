// The two sides of a call may share an id, and a layout may store exceptions separately. The called side owns them then,
// however many spans are read together.
import { afterEach, expect, test } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import type { Span, SpanEvent } from "#src/core/rows.ts";
import { fromMillis, type Instant } from "#src/core/time.ts";
import type { SpanLookup } from "#src/store/spans.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { type ModelSpan, toSpan } from "../../../conformance/trace-fixture.ts";
import { createFakeSearch, type FakeIndex } from "../../../support/elastic/fake-cluster.ts";
import { otel } from "../../../support/elastic/span-shippers/otel.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

const start = Date.UTC(2026, 0, 15, 10);
const at = (millis: number): Instant => fromMillis(start + millis);
const trace = "1".padStart(32, "0");
const idOf = (n: number) => n.toString(16).padStart(16, "0");
const failure: SpanEvent = { name: "exception", time: at(2), attributes: { "exception.type": "E" } };

function side(n: number, kind: "client" | "server", events: readonly SpanEvent[]): ModelSpan {
  const [from, to] = kind === "client" ? [0, 10] : [1, 9];
  return {
    site: "shop",
    trace,
    id: idOf(n),
    parent: idOf(1),
    service: "shop-web",
    name: "call",
    kind,
    events,
    start: at(from),
    end: at(to),
    status: "OK",
    attributes: {},
    resource: {},
    links: [],
    count: 1,
  };
}

async function open(spans: readonly ModelSpan[]) {
  const shipped = otel.write("x", spans.map(toSpan));
  const indices: Record<string, FakeIndex> = {};
  for (const [name, definition] of Object.entries(otel.indices("x"))) {
    const documents = shipped
      .filter(({ index }) => index === name)
      .map(({ document }) => JSON.parse(document));
    indices[name] = { mappings: (definition as { readonly mappings: object }).mappings, documents };
  }
  const search = createFakeSearch(indices, "Elasticsearch");
  const fake = await openScriptedSource((...exchange) => search.reply(...exchange));
  const cluster = openCluster(fake.url);
  opened.push(fake, cluster);
  const sources = [buildSpanSource("shop", { index: otel.pattern("x"), layout: "auto" })] as const;
  return async (select: "all" | "exceptions") => {
    const of: SpanLookup["of"] = { by: "trace", traceIds: [trace], select };
    const found: Span[] = [];
    const lookup = { sources, of, budget: createBudget(100_000) };
    for await (const batch of cluster.traces.find(lookup, new AbortController().signal)) found.push(...batch);
    return found;
  };
}

test("shared span id: separate exceptions belong to the server span among thousands of spans", async () => {
  const calls = Array.from({ length: 2_300 }, (_, n) => n + 2);
  const failed = calls.slice(0, 600);
  const find = await open([
    ...calls.map((n) => side(n, "client", [])),
    ...calls.map((n) => side(n, "server", failed.includes(n) ? [failure] : [])),
  ]);
  for (const select of ["all", "exceptions"] as const) {
    const spans = await find(select);
    if (select === "all") expect(spans).toHaveLength(2 * calls.length);
    const withEvents = spans.filter(({ events }) => events.length > 0);
    expect(new Set(withEvents.map(({ span_kind }) => span_kind))).toEqual(new Set(["server"]));
    expect(withEvents.map(({ span_id }) => span_id).sort()).toEqual(failed.map(idOf));
  }
});
