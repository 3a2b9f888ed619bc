// The log store on real servers, with documents as Filebeat writes them: order and bursts, pages, several sources at once,
// and tenant filters.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { defaults } from "#src/config/schema.ts";
import { Refused } from "#src/core/errors.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis, now, printNanos } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { lines as linesOperation } from "#src/operations/logs/lines.ts";
import type { LogQuery, LogSource } from "#src/store/logs.ts";
import { filebeat, printDocument } from "../../support/elastic/filebeat.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { never } from "../../support/signals.ts";
import { onServers } from "../selected-servers.ts";

const day = Date.UTC(2024, 0, 15);
const range = { from: fromMillis(day), to: fromMillis(day + 86_400_000) };

onServers((server) => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = openCluster(server.url);
    await cluster.remove("filebeat-*");
  });
  afterAll(() => cluster.close());

  function source(index: string, over: Partial<LogSource> = {}): LogSource {
    return { id: "app", index, layout: "ecs", tenantFilter: undefined, ...over };
  }
  async function read(over: Partial<LogQuery> & Pick<LogQuery, "sources">): Promise<LogLine[]> {
    const lines: LogLine[] = [];
    const query: LogQuery = {
      range,
      filter: parse(""),
      order: "asc",
      expectedLines: 100,
      documentLimit: 100_000,
      tieLimit: 100_000,
      ...over,
    };
    for await (const batch of cluster.store.lines(query, never)) {
      expect(batch.length).toBeGreaterThan(0);
      lines.push(...batch);
    }
    return lines;
  }

  describe("log store, order and paging", () => {
    const burst = day + 43_200_000;
    const times = [
      ...Array.from({ length: 700 }, (_, at) => burst - 700 * 5 + at * 5),
      ...Array.from({ length: 2_300 }, () => burst),
      ...Array.from({ length: 40 }, () => burst + 1),
      ...Array.from({ length: 300 }, (_, at) => burst + 2 + Math.floor(at / 7)),
    ];
    beforeAll(async () => {
      await cluster.createIndex("filebeat-burst-1", filebeat);
      await cluster.createIndex("filebeat-burst-2", filebeat);
      // Another day, whose shards a server may skip.
      await cluster.createIndex("filebeat-burst-old", filebeat);
      const documents = times.map((time, at): [string, string] => [
        `n${at}`,
        printDocument({ time: new Date(time).toISOString(), message: `line ${at}`, json: `{"at":${at}}` }),
      ]);
      // Two indices of the pattern share ids.
      await cluster.write("filebeat-burst-1", documents.slice(0, 3_000));
      await cluster.write("filebeat-burst-2", documents.slice(2_900));
      const old = printDocument({ time: "2019-01-15T10:00:00.000Z", message: "old", json: "{}" });
      await cluster.write("filebeat-burst-old", [["old", old]]);
    });
    const sources: readonly [LogSource] = [
      { id: "app", index: "filebeat-burst-*", layout: "ecs", tenantFilter: undefined },
    ];

    test.each(["asc", "desc"] as const)("scans all lines in order, %s", async (order) => {
      const found = await read({ sources, order, expectedLines: 10_000 });
      expect(found).toHaveLength(times.length + 100);
      expect(new Set(found.map(({ id }) => id)).size).toBe(found.length);
      const sorted = found.toSorted((a, b) =>
        a.time !== b.time ? (a.time < b.time ? -1 : 1) : a.id < b.id ? -1 : a.id > b.id ? 1 : 0,
      );
      expect(found.map(({ id }) => id)).toEqual(
        (order === "asc" ? sorted : sorted.reverse()).map(({ id }) => id),
      );
    });

    test.each([
      ["ASC", 100],
      ["DESC", 100],
      ["ASC", 7],
      ["DESC", 1_999],
    ] as const)("pages equal the full scan, %s by %i", { timeout: 120_000 }, async (order, perPage) => {
      const scan = await read({ sources, order: order === "ASC" ? "asc" : "desc", expectedLines: 10_000 });
      const seen: string[] = [];
      let cursor: string | null = null;
      for (;;) {
        const page = await pageOf({ order, per_page: perPage, cursor: { time: cursor } }, sources);
        seen.push(...page.map(({ id }) => id));
        if (page.length < perPage) break;
        cursor = page.at(-1)?.timestamp ?? null;
      }
      expect(seen).toEqual(scan.map(({ id }) => id));
    });

    test("answers a millisecond over the cap in several pages", async () => {
      const seen: string[] = [];
      const stamps: string[] = [];
      let cursor: string | null = null;
      for (;;) {
        const page = await pageOf({ order: "ASC", per_page: 900, cursor: { time: cursor } }, sources, 1_000);
        seen.push(...page.map(({ id }) => id));
        const last = page.at(-1)?.timestamp ?? null;
        if (last !== null) stamps.push(last);
        if (page.length < 900) break;
        cursor = last;
      }
      expect(new Set(seen).size).toBe(times.length + 100);
      expect(seen).toHaveLength(times.length + 100);
      expect(stamps.filter((stamp) => stamp.length > 24)).not.toHaveLength(0);
    });

    test("includes both bounds to the nanosecond", async () => {
      const from = fromMillis(burst + 1);
      const found = await read({ sources, range: { from, to: fromMillis(burst + 2) } });
      expect(found).toHaveLength(47);
      const later = await read({
        sources,
        range: { from: (from + 1n) as typeof from, to: fromMillis(burst + 2) },
      });
      expect(later).toHaveLength(7);
    });

    test("answers a document of two sources once per source", async () => {
      const to = fromMillis(burst + 1);
      const both = await read({
        sources: [source("filebeat-burst-*"), source("filebeat-burst-1", { id: "b" })],
        range: { from: fromMillis(burst), to },
        order: "desc",
        expectedLines: 10,
      });
      const one = await read({ sources, range: { from: fromMillis(burst), to } });
      const other = await read({
        sources: [source("filebeat-burst-1")],
        range: { from: fromMillis(burst), to },
      });
      expect(both).toHaveLength(one.length + other.length);
      const keys = both.map(({ time, source_id, id }) => `${printNanos(time)} ${source_id} ${id}`);
      expect(keys).toEqual(keys.toSorted((a, b) => (a < b ? 1 : -1)));
    });

    test("refuses more documents than the budget or the millisecond limit", async () => {
      await expect(read({ sources, documentLimit: 1_000, expectedLines: 5_000 })).rejects.toThrow(Refused);
      await expect(read({ sources, tieLimit: 2_000, expectedLines: 5_000 })).rejects.toThrow(Refused);
    });

    test("rejects with the reason of the abort signal", async () => {
      const leaving = new AbortController();
      const reading = (async () => {
        const query: LogQuery = {
          sources,
          range,
          filter: parse(""),
          order: "asc",
          expectedLines: 5_000,
          documentLimit: 9_999,
          tieLimit: 9_999,
        };
        for await (const _ of cluster.store.lines(query, leaving.signal)) leaving.abort(new Error("left"));
      })();
      await expect(reading).rejects.toThrow("left");
    });

    async function pageOf(pagination: object, sources: readonly [LogSource], linesPerMillisecond = 10_000) {
      const input = linesOperation.request.parse({
        site_id: "shop",
        source_ids: ["app"],
        query: "",
        from: "2024-01-15T00:00:00Z",
        to: "2024-01-15T23:59:59Z",
        pagination,
      });
      const limits = { ...defaults.limits, linesPerMillisecond, documents: 100_000 };
      const rows = linesOperation.run(input, {
        user: "ana",
        sites: new Map([
          [
            "shop",
            {
              id: "shop",
              retention: 0,
              counterDefault: "cumulative",
              logs: { backend: "elk", store: cluster.store, sources: new Map([["app", sources[0]]]) },
            },
          ],
        ]),
        limits: limits as Parameters<typeof linesOperation.run>[1]["limits"],
        now: () => fromMillis(day),
        signal: never,
      });
      if (!(Symbol.asyncIterator in rows)) throw new Error("expected rows");
      let text = "";
      for await (const batch of rows) text += `${text === "" ? "" : ","}${batch.text}`;
      return JSON.parse(`[${text}]`) as { id: string; timestamp: string }[];
    }
  });

  describe("tenant filter", () => {
    beforeAll(async () => {
      await cluster.createIndex("filebeat-tenant-1", filebeat);
      await cluster.createIndex("filebeat-tenant-2", {
        settings: { number_of_shards: 1 },
        mappings: {
          dynamic: false,
          properties: { "@timestamp": { type: "date" }, message: { type: "text" } },
        },
      });
      const line = (id: string, service: string, message: string): [string, string] => [
        id,
        `{"@timestamp":"2024-01-15T10:00:00.000Z","service":{"name":${JSON.stringify(service)}},"message":${JSON.stringify(message)}}`,
      ];
      await cluster.write("filebeat-tenant-1", [
        line("a", "shop", "mine"),
        line("b", "blog", "theirs"),
        line("c", "Shop", "case"),
      ]);
      await cluster.write("filebeat-tenant-2", [line("d", "shop", "mine"), line("e", "blog", "theirs")]);
    });
    const report = (where: string, index = "filebeat-tenant-1") =>
      cluster.inspect(source(index, { tenantFilter: where }), never);

    test("finds only the lines of the tenant", async () => {
      const own = await read({
        sources: [source("filebeat-tenant-*", { tenantFilter: 'service.name="shop"' })],
      });
      expect(own.map(({ id }) => id)).toEqual(["filebeat-tenant-1/a"]);
      const others = await read({
        sources: [source("filebeat-tenant-1", { tenantFilter: 'service.name!="shop"' })],
      });
      expect(others.map(({ id }) => id)).toEqual(["filebeat-tenant-1/b", "filebeat-tenant-1/c"]);
      const filtered = await read({
        sources: [
          source("filebeat-tenant-*", { tenantFilter: 'service.name="shop" OR service.name="Shop"' }),
        ],
        filter: parse("message:a OR service.name=blog"),
      });
      expect(filtered.map(({ id }) => id)).toEqual(["filebeat-tenant-1/c"]);
    });

    test("refuses a tenant filter that the index cannot answer exactly", async () => {
      expect((await report('service.name="shop"')).problems).toEqual([]);
      expect((await report('message="mine"')).problems.join()).toMatch(/message is of type text/);
      expect((await report('service.name:"sh"')).problems.join()).toMatch(/only = and !=/);
      expect((await report('service.name!="shop"', "filebeat-tenant-*")).problems.join()).toMatch(
        /not mapped/,
      );
      await expect(
        read({ sources: [source("filebeat-tenant-1", { tenantFilter: 'message="mine"' })] }),
      ).rejects.toThrow(Refused);
    });

    test("applies the tenant filter to an index that appears under the pattern", async () => {
      const filteredSource = source("filebeat-tenant-*", { tenantFilter: 'service.name="shop"' });
      await read({ sources: [filteredSource] });
      await cluster.createIndex("filebeat-tenant-3", filebeat);
      await cluster.write("filebeat-tenant-3", [
        ["f", '{"@timestamp":"2024-01-15T11:00:00.000Z","service":{"name":"shop"}}'],
        ["g", '{"@timestamp":"2024-01-15T11:00:00.000Z","service":{"name":"blog"}}'],
      ]);
      const found = await read({ sources: [filteredSource] });
      expect(found.map(({ id }) => id)).toEqual(["filebeat-tenant-1/a", "filebeat-tenant-3/f"]);
    });
  });

  test("answers no lines for a pattern without indices, and check reports it", async () => {
    expect(await read({ sources: [source("nothing-here-*")] })).toEqual([]);
    const report = await cluster.inspect(source("nothing-here-*"), never);
    expect(report.problems.join()).toMatch(/no open index/);
  });

  test("probes product and version of the server", async () => {
    const { product, version } = await cluster.backend.probe(never);
    expect(product.toLowerCase()).toBe(server.product);
    expect(version).toBe(server.version);
  });

  test("tells its time", async () => {
    const before = now();
    const time = await cluster.backend.readClock?.(never);
    // One machine has one clock, of which a server may tell milliseconds.
    expect(time).toBeGreaterThanOrEqual(before - 1_000_000n);
    expect(time).toBeLessThanOrEqual(now());
  });

  test("reports layout, indices and newest line of a source", async () => {
    const found = await cluster.inspect(
      { id: "app", index: "filebeat-burst-*", layout: "auto", tenantFilter: undefined },
      never,
    );
    expect(found).toMatchObject({ layout: "ecs", indices: 3, problems: [] });
    expect(found.newest).toBe(fromMillis(day + 43_200_000 + 2 + 42));
    const newest = await cluster.backend.findNewest?.logs?.(
      { id: "app", index: "filebeat-burst-*", layout: "auto", tenantFilter: undefined },
      never,
    );
    expect(newest).toBe(found.newest);
  });
});
