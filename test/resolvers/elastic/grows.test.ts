// A mapping that comes to hold events after it was read, over a search server in memory: whatever is read next has them.
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import type { Span } from "#src/model.ts";
import { spanSourceOf } from "#src/sites.ts";
import { fromMillis } from "#src/time.ts";
import { createBudget } from "#src/tracing/budget.ts";
import { type Cluster, openCluster } from "../../support/cluster.ts";
import { openFake, type Reply, sendJson } from "../../support/fake.ts";
import { createSearch } from "../../support/search.ts";
import { otelOlder } from "../../support/shippers.ts";

const ids = (n: number) => ({ trace_id: "1".padStart(32, "0"), span_id: n.toString(16).padStart(16, "0") });
const event = {
  ...{ "@timestamp": "1.0", ...ids(1) },
  attributes: { "event.name": "exception", "exception.type": "IOError" },
};

/** So many spans of a trace, of which one has an event as soon as events are mapped. */
function createServer(spans: number, hasEvent: boolean): ReturnType<typeof createSearch> {
  const documents = Array.from({ length: spans }, (_, n) => ({
    ...{ "@timestamp": `${n + 1}.0`, ...ids(n + 1), name: "a", duration: 5_000_000 },
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
  return createSearch(Object.fromEntries(held), "Elasticsearch");
}

async function read({ traces }: Cluster, by: "trace" | "range" | "bare"): Promise<readonly Span[]> {
  const sources = [spanSourceOf("shop", { index: otelOlder.pattern("x"), profile: "otel" })] as const;
  const shared = { sources, budget: createBudget(20_000) };
  const signal = AbortSignal.timeout(30_000);
  const range = { from: fromMillis(0), to: fromMillis(10_000_000) };
  const of = { by: "trace", traceIds: [event.trace_id], select: "all" } as const;
  const found =
    by === "trace"
      ? traces.find({ ...shared, of }, signal)
      : traces.scan({ ...shared, range, select: "all", bare: by === "bare" }, signal);
  const spans: Span[] = [];
  for await (const batch of found) spans.push(...batch);
  return spans;
}

async function using<T>(
  reply: Reply,
  use: (cluster: Cluster, fake: Awaited<ReturnType<typeof openFake>>) => Promise<T>,
): Promise<T> {
  const fake = await openFake(reply);
  const cluster = openCluster(fake.url);
  try {
    return await use(cluster, fake);
  } finally {
    await cluster.close();
    await fake.close();
  }
}

const eventsOf = (found: readonly Span[]) =>
  found.flatMap(({ span_id, events }) => events.map(({ attributes }) => ({ span_id, attributes })));
const told = [{ span_id: event.span_id, attributes: { "exception.type": "IOError" } }];

test.each(["trace", "range"] as const)("the next %s has its first event", async (by) => {
  let search = createServer(3, false);
  await using(
    (...request) => search.reply(...request),
    async (cluster) => {
      expect(eventsOf(await read(cluster, by))).toEqual([]);
      search = createServer(3, true);
      const after = await read(cluster, by);
      expect([after.length, eventsOf(after)]).toEqual([3, told]);
    },
  );
});

test("a scroll that was begun in vain does not stay open", async () => {
  let search = createServer(5_200, false);
  const reply: Reply = async (response, request, body) => {
    // After a second what an answer told is no longer believed: the scroll behind it is asked again.
    if (body.includes('"size":5000')) await sleep(1_100);
    search.reply(response, request, body);
    if (body.includes('"size":5000')) search = createServer(5_200, true);
  };
  await using(reply, async (cluster, { asked }) => {
    expect(await read(cluster, "bare")).toHaveLength(5_200);
    expect(asked.filter(({ path }) => path.includes("scroll="))).toHaveLength(2);
    await expect.poll(() => asked.filter(({ method }) => method === "DELETE").length).toBe(2);
  });
});

test("an answer that does not say whether there are such documents is none", async () => {
  const search = createServer(1, false);
  const hits = { total: { value: 0, relation: "eq" }, hits: [] };
  const reply: Reply = (response, request, body) => {
    if (!body.includes("aggs")) search.reply(response, request, body);
    else sendJson(response, { timed_out: false, _shards: { total: 2, failed: 0 }, hits });
  };
  const found = using(reply, (cluster) => read(cluster, "trace"));
  await expect(found).rejects.toMatchObject({ failure: "malformed" });
});
