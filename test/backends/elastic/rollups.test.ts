// Rollups on real servers: kept figures against reading, while documents come, change and go, indices too. Servers number their
// documents by shard, and one case needs two shards to give a number twice.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import { requireAt, requireFirst } from "#src/core/collections.ts";
import type { SlowEvent, Span } from "#src/core/rows.ts";
import { minute } from "#src/core/time.ts";
import type { EdgesQuery, SiteEdges, SlowEventsQuery } from "#src/store/span-analytics.ts";
import { createRollupAnalytics } from "#src/tracing/figures/rollup-analytics.ts";
import { createRollupCache } from "#src/tracing/rollups/rollup-cache.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createRandom } from "../../conformance/trace-fixture.ts";
import { settings } from "../../support/elastic/span-shippers/shipper.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { at, createSpan, signal } from "../../tracing/span-builder.ts";
import { onServers } from "../selected-servers.ts";
import { chooseShipper } from "./span-cluster.ts";

const prefix = "rollups";
/** Of the time in which spans end, milliseconds. */
const length = 10 * minute;
const services = { shop: "x", stock: "y" } as const;

onServers((server) => {
  describe("rollups", () => {
    const { shipper, service } = chooseShipper(server);
    const random = createRandom(29);
    const pick = <T>(list: readonly T[]): T => requireAt(list, Math.floor(random() * list.length));
    const callers = ["c1", "c2", "c3", "c4"].map((id) => id.padStart(16, "0"));
    let cluster: Cluster;
    /** The indices of spans, the newest last. */
    let indices: string[] = [];
    /** By id: the index of each document, and its span. */
    const documents = new Map<string, string>();
    const stored = new Map<string, Span>();
    let written = 0;

    beforeAll(async () => {
      cluster = openCluster(server.url);
    });
    afterAll(async () => {
      await cluster.remove(`${prefix}-*`);
      await cluster.close();
    });

    async function start(): Promise<void> {
      await cluster.remove(`${prefix}-*`);
      documents.clear();
      stored.clear();
      indices = [];
      for (const [index, definition] of Object.entries(shipper.indices(prefix))) {
        await cluster.createIndex(index, definition);
        indices.push(index);
      }
    }

    /** With segments of a minute. */
    const openAnalytics = (recordLookup: (hit: boolean) => void) =>
      createRollupAnalytics(
        cluster.traces,
        createRollupCache({ backend: "es", maxBytes: 1e7, minSpans: 0, segmentSpans: 1, recordLookup }),
      );

    const source = (site: keyof typeof services) =>
      buildSpanSource(site, {
        index: shipper.pattern(prefix),
        layout: "auto",
        where: `${service}="${services[site]}"`,
      });

    async function expectAnswersOfReading(
      analytics: ReturnType<typeof createRollupAnalytics>,
      to = length,
    ): Promise<readonly SlowEvent[]> {
      const range = { from: at(0), to: at(to) };
      const edges: EdgesQuery = {
        sources: [source("shop")],
        partners: [source("stock")],
        range,
        budget: createBudget(1_000_000),
      };
      const events: SlowEventsQuery = {
        sources: [source("shop")],
        range,
        budget: createBudget(1_000_000),
        requiredAttributes: [],
        excludedAttributes: [],
        limit: 100,
      };
      const found = await analytics.siteEdges(edges, signal);
      expect(withoutPercentiles(found)).toEqual(
        withoutPercentiles(await cluster.traces.siteEdges(edges, signal)),
      );
      const slow = await analytics.slowEvents(events, signal);
      expect(slow).toEqual(await cluster.traces.slowEvents(events, signal));
      return slow;
    }

    function makeSpan(): Span {
      const kind = pick(["client", "server", "producer", "consumer", "internal"] as const);
      const isCaller = kind === "client" || kind === "producer";
      const to = Math.floor(random() * length);
      written += 1;
      return createSpan({
        trace_id: pick(["1", "2", "3"]).padStart(32, "a"),
        span_id: isCaller || random() < 0.3 ? pick(callers) : `e${written}`.padStart(16, "0"),
        parent_span_id: random() < 0.2 ? undefined : pick(callers),
        span_kind: kind,
        ...nameService(pick(["x", "x", "y", "z"])),
        span_name: pick(["work", "rest"]),
        status_code: pick(["OK", "ERROR"]),
        span_attributes: isCaller ? { "peer.service": pick(["db", "queue"]) } : {},
        from: to - pick([0, 10, 5_000]),
        to,
      });
    }

    /** The newest index of the kind of a document, unless it is there already. */
    const findIndex = (id: string, index: string): string =>
      documents.get(id) ?? indices.findLast((name) => name.startsWith(index)) ?? index;

    async function write(spans: ReadonlyMap<string, Span>, routing?: string): Promise<void> {
      const lines = [...spans].flatMap(([id, span]) => {
        const shipped = requireFirst(shipper.write(prefix, [span]));
        const index = findIndex(id, shipped.index);
        documents.set(id, index);
        stored.set(id, span);
        const of = { _index: index, _id: id, ...(routing === undefined ? {} : { routing }) };
        return [JSON.stringify({ index: of }), shipped.document];
      });
      const answer = await cluster.request("POST", "/_bulk?refresh=true", `${lines.join("\n")}\n`);
      expect(answer).toMatchObject({ errors: false });
    }

    const steps = {
      add: async (count = 3) => {
        const spans = Array.from({ length: count }, () => [`d${written + 1}`, makeSpan()] as const);
        await write(new Map(spans));
      },
      remove: async () => deleteDocumentOf(pick([...documents.values()])),
      // Another document of a span that is there.
      addAgain: async () => {
        const span = pick([...stored.values()]);
        const { span_name, parent_span_id, status_code } = makeSpan();
        const end = random() < 0.5 ? span.end : at(Math.floor(random() * length));
        const again = { span_name, parent_span_id, status_code, end: end < span.start ? span.end : end };
        await write(new Map([[`d${written}`, { ...span, ...again }]]));
      },
      update: async () => write(new Map([[pick([...documents.keys()]), makeSpan()]])),
      rollOver: async () => {
        const [index, definition] = pick(Object.entries(shipper.indices(prefix)));
        const name = `${index}-${indices.length}`;
        await cluster.createIndex(name, definition);
        indices.push(name);
      },
      /** The oldest one that has documents, which begins anew where it is the only one. */
      deleteIndex: async () => {
        const index = indices.find((name) => [...documents.values()].includes(name));
        if (index !== undefined) await deleteIndex(index);
      },
      nothing: async () => undefined,
    };

    async function deleteDocumentOf(index: string): Promise<void> {
      const [id] = pick([...documents].filter(([, own]) => own === index));
      await cluster.request("DELETE", `/${index}/_doc/${id}?refresh=true`);
      documents.delete(id);
      stored.delete(id);
    }

    async function deleteIndex(index: string): Promise<void> {
      await cluster.remove(index);
      for (const [id, name] of documents) {
        if (name !== index) continue;
        documents.delete(id);
        stored.delete(id);
      }
      const definition = shipper.indices(prefix)[index];
      if (definition === undefined) indices = indices.filter((name) => name !== index);
      else await cluster.createIndex(index, definition);
    }

    test("answer as reading does, whatever comes, changes and goes", { timeout: 300_000 }, async () => {
      await start();
      const lookups: boolean[] = [];
      const analytics = openAnalytics((hit) => lookups.push(hit));
      await steps.add(40);
      const order = [
        "add",
        "addAgain",
        "nothing",
        "addAgain",
        "add",
        "update",
        "addAgain",
        "add",
        "remove",
        "add",
        "rollOver",
        "add",
        "add",
        "deleteIndex",
        "add",
        "nothing",
      ] as const;
      for (const step of order) {
        await steps[step]();
        await expectAnswersOfReading(analytics, pick([length, length, 7 * minute + 1]));
      }
      const kept = lookups.filter((hit) => hit).length;
      expect(kept / lookups.length).toBeGreaterThan(0.2);
    });

    test("keep their figures while applications bring new attributes", async () => {
      await start();
      const lookups: boolean[] = [];
      const analytics = openAnalytics((hit) => lookups.push(hit));
      await steps.add(40);
      await expectAnswersOfReading(analytics);
      for (const name of ["own.first", "own.second"]) {
        const attributes = { [name]: "a value" };
        const times = { from: 5 * minute, to: 5 * minute + 1 };
        const traceId = name.length.toString().padStart(32, "c");
        await write(
          new Map([
            [name, { ...makeSpan(), ...createSpan(times), trace_id: traceId, span_attributes: attributes }],
          ]),
        );
        // Mappings are read anew for each snapshot.
        lookups.length = 0;
        await expectAnswersOfReading(analytics);
        expect(lookups.filter((hit) => hit).length).toBeGreaterThan(lookups.length / 2);
      }
    });

    test.each(["is deleted", "loses a document"])(
      "keep what was made of other indices than one that %s",
      async (change) => {
        await start();
        const lookups: boolean[] = [];
        const analytics = openAnalytics((hit) => lookups.push(hit));
        const addFrom = async (from: number, trace: string): Promise<void> => {
          const ids = { trace_id: trace.padEnd(32, "0"), parent_span_id: "9".repeat(16) };
          const names = { span_name: "work", span_kind: "client", ...nameService("x") } as const;
          const spans = Array.from({ length: 10 }, (_, n): readonly [string, Span] => {
            const times = { from: from + n * 20_000, to: from + n * 20_000 + 1 };
            const span_id = `${trace}${n}`.padStart(16, "0");
            return [`${trace}${n}`, createSpan({ ...ids, ...names, ...times, span_id })];
          });
          await write(new Map(spans));
        };
        // Two requests, since what is read together is of all of its indices.
        await addFrom(0, "a");
        await expectAnswersOfReading(analytics, 5 * minute - 1e-6);
        const old = new Set(documents.values());
        for (const [index, definition] of Object.entries(shipper.indices(prefix))) {
          await cluster.createIndex(`${index}-next`, definition);
          indices.push(`${index}-next`);
        }
        await addFrom(5 * minute, "b");
        await expectAnswersOfReading(analytics, 10 * minute - 1e-6);
        lookups.length = 0;
        if (change === "is deleted") for (const index of old) await deleteIndex(index);
        else for (const index of old) await deleteDocumentOf(index);
        await expectAnswersOfReading(analytics, 10 * minute - 1e-6);
        const count = (hit: boolean): number => lookups.filter((one) => one === hit).length;
        expect(count(true)).toBeGreaterThanOrEqual(5);
        expect(count(false)).toBe(count(true));
      },
    );

    test("keep their figures when the next indices have more shards", async () => {
      await start();
      const lookups: boolean[] = [];
      const analytics = openAnalytics((hit) => lookups.push(hit));
      await steps.add(40);
      await expectAnswersOfReading(analytics);
      for (const [index, definition] of Object.entries(shipper.indices(prefix))) {
        const name = `${index}-next`;
        await cluster.createIndex(name, { ...definition, settings: { ...settings, number_of_shards: 5 } });
        indices.push(name);
      }
      const times = { from: 5 * minute, to: 5 * minute + 1 };
      await write(
        new Map(
          ["e", "f", "0", "1"].map((id) => [
            id,
            { ...makeSpan(), ...createSpan(times), trace_id: id.padStart(32, "c") },
          ]),
        ),
      );
      lookups.length = 0;
      await expectAnswersOfReading(analytics);
      expect(lookups.filter((hit) => hit).length).toBeGreaterThan(lookups.length / 2);
    });

    test("sees a document that takes the number of one that another shard has lost", async () => {
      await start();
      const make = (id: string, span_name: string): ReadonlyMap<string, Span> => {
        const ids = {
          trace_id: "b".repeat(32),
          span_id: id.padStart(16, "0"),
          parent_span_id: "9".repeat(16),
        };
        const names = { span_name, span_kind: "client", ...nameService("x") } as const;
        return new Map([[id, createSpan({ ...ids, ...names, from: 0, to: 1 })]]);
      };
      const [first, second] = await findRoutings();
      // One shard has the numbers 0 and 1, the other only 0.
      await write(make("a0", "work"), first);
      await write(make("a1", "work"), first);
      await write(make("b0", "work"), second);
      const lookups: boolean[] = [];
      const analytics = openAnalytics((hit) => lookups.push(hit));
      const before = await expectAnswersOfReading(analytics);
      expect(lookups.length).toBeGreaterThan(0);
      await cluster.request("DELETE", `/${documents.get("a1")}/_doc/a1?refresh=true&routing=${first}`);
      await write(make("b1", "rest"), second);
      const after = await expectAnswersOfReading(analytics);
      const count = (events: readonly SlowEvent[]) =>
        Object.fromEntries(events.map((event) => [event.name, event.count]));
      expect([count(before), count(after)]).toEqual([{ work: 3 }, { work: 2, rest: 1 }]);
    });

    /** Routing values of two shards of the index of callers. */
    async function findRoutings(): Promise<readonly [string, string]> {
      const index = requireFirst(indices);
      const ofShard = new Map<number, string>();
      for (let value = 0; ofShard.size < 2; value += 1) {
        const found = (await cluster.request("GET", `/${index}/_search_shards?routing=${value}`)) as {
          shards: readonly (readonly { readonly shard: number }[])[];
        };
        ofShard.set(requireFirst(requireFirst(found.shards)).shard, String(value));
      }
      const [first, second] = [...ofShard.values()];
      return [String(first), String(second)];
    }
  });
});

function nameService(name: string): Pick<Span, "service_name" | "resource_attributes"> {
  return { service_name: name, resource_attributes: { "service.name": name } };
}

function withoutPercentiles(edges: SiteEdges): unknown {
  return Object.fromEntries(
    Object.entries(edges).map(([side, rows]) => [
      side,
      (rows as SiteEdges["upstream"])
        .map(({ service, count, error_count, mean }) => ({ service, count, error_count, mean }))
        .toSorted((a, b) => (a.service < b.service ? -1 : 1)),
    ]),
  );
}
