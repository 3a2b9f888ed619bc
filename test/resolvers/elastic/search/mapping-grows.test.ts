// A mapping that gains events after it was read, over a search server in memory: the next read finds them.
import { describe, expect, test } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import type { Span } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createFakeSearch } from "../../../support/elastic/fake-cluster.ts";
import { otelOlder } from "../../../support/elastic/span-shippers/otel.ts";
import { type Cluster, openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";

const ids = (n: number) => ({ trace_id: "1".padStart(32, "0"), span_id: n.toString(16).padStart(16, "0") });
const event = {
  "@timestamp": "1.0",
  ...ids(1),
  attributes: { "event.name": "exception", "exception.type": "IOError" },
};

/** Three spans of a trace, of which one has an event as soon as events are mapped. */
function createServer(hasEvent: boolean): ReturnType<typeof createFakeSearch> {
  const documents = Array.from({ length: 3 }, (_, n) => ({
    "@timestamp": `${n + 1}.0`,
    ...ids(n + 1),
    name: "a",
    duration: 5_000_000,
    kind: n === 0 ? "Server" : "Internal",
  }));
  const held = Object.entries(otelOlder.indices("x")).map(([index, definition]) => {
    const { mappings } = definition as { readonly mappings: { readonly properties: object } };
    if (index.includes("traces")) return [index, { mappings, documents }];
    const properties = { ...mappings.properties, "attributes.event.name": { type: "keyword" } };
    return [
      index,
      hasEvent ? { mappings: { ...mappings, properties }, documents: [event] } : { mappings, documents: [] },
    ];
  });
  return createFakeSearch(Object.fromEntries(held), "Elasticsearch");
}

async function read({ traces }: Cluster, by: "trace" | "range"): Promise<readonly Span[]> {
  const sources = [buildSpanSource("shop", { index: otelOlder.pattern("x"), layout: "otel" })] as const;
  const shared = { sources, budget: createBudget(20_000) };
  const signal = new AbortController().signal;
  const range = { from: fromMillis(0), to: fromMillis(10_000_000) };
  const of = { by: "trace", traceIds: [event.trace_id], select: "all" } as const;
  const found =
    by === "trace"
      ? traces.find({ ...shared, of }, signal)
      : traces.scan({ ...shared, range, select: "all" }, signal);
  return (await Array.fromAsync(found)).flat();
}

const listEvents = (found: readonly Span[]) =>
  found.flatMap(({ span_id, events }) => events.map(({ attributes }) => ({ span_id, attributes })));
const expectedEvents = [{ span_id: event.span_id, attributes: { "exception.type": "IOError" } }];

describe("span store", () => {
  test.each(["trace", "range"] as const)(
    "reads the first event by %s after events became mapped",
    async (by) => {
      let search = createServer(false);
      const fake = await openScriptedSource((...request) => search.reply(...request));
      const cluster = openCluster(fake.url);
      try {
        expect(listEvents(await read(cluster, by))).toEqual([]);
        search = createServer(true);
        const after = await read(cluster, by);
        expect([after.length, listEvents(after)]).toEqual([3, expectedEvents]);
      } finally {
        await cluster.close();
        await fake.close();
      }
    },
  );
});
