// De-duplication in scans and look-ups: the sources of one site may hold the same documents, and an exporter may send a span twice.
import { afterEach, expect, test } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import type { Span } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { toSpan } from "../../../conformance/trace-fixture.ts";
import { createFakeSearch, type FakeIndex } from "../../../support/elastic/fake-cluster.ts";
import { otel } from "../../../support/elastic/span-shippers/otel.ts";
import { type Cluster, openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

const start = Date.UTC(2026, 0, 15, 10);
const range = { from: fromMillis(start), to: fromMillis(start + 60_000) };

const createCall = (id: string): Span =>
  toSpan({
    site: "shop",
    trace: "1".padStart(32, "0"),
    id,
    service: "web",
    name: "call",
    kind: "server",
    status: "OK",
    attributes: {},
    resource: {},
    events: [],
    links: [],
    count: 1,
    start: fromMillis(start + 1),
    end: fromMillis(start + 2),
  });

test("scan counts each document once across overlapping sources, and a span sent twice as two", async () => {
  const spans = Array.from({ length: 2_500 }, (_, n) => {
    // The last two are one span.
    const id = Math.min(n, 2_498).toString(16).padStart(16, "0");
    return createCall(id);
  });
  const cluster = await openClusterWith(spans);
  const one = buildSpanSource("shop", { index: otel.pattern("x"), layout: "auto" });
  const other = buildSpanSource("shop", { index: otel.pattern("x"), layout: "auto", where: "kind=Server" });
  for (const sources of [[one], [one, other]] as const) {
    let counted = 0;
    const scan = {
      sources,
      range,
      select: "all",
      withoutEvents: true,
      budget: createBudget(100_000),
    } as const;
    for await (const batch of cluster.traces.scan(scan, new AbortController().signal))
      counted += batch.length;
    expect(counted).toBe(spans.length);
  }
});

test("find returns each document of a span that differs, and of equal ones one", async () => {
  const span = createCall("1".padStart(16, "0"));
  const longer = { ...span, end: fromMillis(start + 3) };
  const other = { ...span, span_name: "other" };
  const cluster = await openClusterWith([span, longer, span, other, longer]);
  const find = {
    sources: [buildSpanSource("shop", { index: otel.pattern("x"), layout: "auto" })],
    of: { by: "trace", traceIds: [span.trace_id], select: "all" },
    budget: createBudget(100),
  } as const;
  const found: string[] = [];
  for await (const batch of cluster.traces.find(find, new AbortController().signal)) {
    for (const { span_name, end } of batch) found.push(`${span_name} ${end - span.start}`);
  }
  expect(found.sort()).toEqual(["call 1000000", "call 2000000", "other 1000000"]);
});

async function openClusterWith(spans: readonly Span[]): Promise<Cluster> {
  const indices: Record<string, FakeIndex> = {};
  for (const [name, definition] of Object.entries(otel.indices("x"))) {
    const own = otel.write("x", spans).filter(({ index }) => index === name);
    const documents = own.map(({ document }) => JSON.parse(document));
    indices[name] = { mappings: (definition as { readonly mappings: object }).mappings, documents };
  }
  const search = createFakeSearch(indices, "Elasticsearch");
  const fake = await openScriptedSource((...exchange) => search.reply(...exchange));
  const cluster = openCluster(fake.url);
  opened.push(fake, cluster);
  return cluster;
}
