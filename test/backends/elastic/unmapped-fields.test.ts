// Fields that only some indices of a pattern map. An index with `dynamic: true` holds no document with a name that it does not
// map, so none of its documents is read. Each exception is an index whose documents have the name all the same. The expected
// ids say which documents have the value.
import { describe, expect, test } from "vitest";
import { onServers } from "../selected-servers.ts";
import { at, createSource, listIds, useLogCluster } from "./log-cluster.ts";

const time = { "@timestamp": { type: "date" } };
const one = { number_of_shards: 1, number_of_replicas: 0 };
const deep = (depth: number, leaf: object): object =>
  depth === 0 ? leaf : { [`o${depth}`]: deep(depth - 1, leaf) };

/** An index, what its documents have beside the time, and which of them each query finds. */
interface Trap {
  readonly mappings?: object;
  readonly settings?: object;
  readonly documents: Readonly<Record<string, object>>;
  readonly finds: readonly (readonly [query: string, ids: readonly string[]])[];
  /** Only these servers have the setting. */
  readonly since?: "elasticsearch 8";
}
const traps: Readonly<Record<string, Trap>> = {
  "dynamic false": {
    mappings: { dynamic: false },
    documents: { a: { extra: "x" }, b: { other: "x" } },
    finds: [["extra=x", ["a"]]],
  },
  "an object with dynamic false": {
    mappings: { properties: { box: { type: "object", dynamic: false } } },
    documents: { a: { box: { k: "x" } }, b: { k: "x" } },
    finds: [
      ["box.k=x", ["a"]],
      ["k=x", ["b"]],
    ],
  },
  "an object with dynamic true in an index with dynamic false": {
    mappings: { dynamic: false, properties: { box: { type: "object", dynamic: true } } },
    documents: { a: { box: { k: "x" } }, b: { box: { other: { k: "x" } }, k: "x" } },
    finds: [
      ["box.k=x", ["a"]],
      ["k=x", ["b"]],
      ["box.other.k=x", ["b"]],
    ],
  },
  // Elasticsearch from 9.2 on maps it as a vector, and leaves vectors out of the documents of an answer.
  "numbers that may be a vector": {
    documents: { a: { lat: [1.5, ...Array.from({ length: 129 }, () => 0.25)] }, b: { other: "x" } },
    finds: [["lat=1.5", ["a"]]],
  },
  "dynamic strict": {
    mappings: { dynamic: "strict", properties: { k: { type: "keyword" } } },
    documents: { a: { k: "x" }, b: { k: null } },
    finds: [
      ["extra=x", []],
      ["k=x", ["a"]],
    ],
  },
  "an object that is not enabled": {
    mappings: { properties: { off: { type: "object", enabled: false } } },
    documents: { a: { off: { k: { deep: "x" } } } },
    finds: [
      ["off.k.deep=x", ["a"]],
      ["off.none=x", []],
    ],
  },
  "nested objects": {
    mappings: { properties: { list: { type: "nested" } } },
    documents: { a: { list: [{ k: "x" }, { k: "y" }] }, b: { list: [{ other: "x" }] } },
    finds: [
      ["list.k=y", ["a"]],
      ["list.1.k=y", ["a"]],
      ["list.none=y", []],
    ],
  },
  "keys with dots, null, empty arrays and empty objects": {
    documents: {
      a: { "p.q": "x" },
      b: { p: { q: "x" } },
      c: { p: { q: null } },
      d: { p: { q: [] } },
      e: { p: {} },
      f: { r: [null] },
      g: { s: "" },
    },
    finds: [
      ["p\\.q=x", ["a"]],
      ["p.q=x", ["b"]],
      ["r=x", []],
      ['s=""', ["g"]],
      ["s!=x", ["a", "b", "c", "d", "e", "f", "g"]],
      ["none!=x", ["a", "b", "c", "d", "e", "f", "g"]],
      ['none=""', []],
    ],
  },
  "templates that do not index": {
    mappings: {
      dynamic_templates: [
        { blind: { match: "blind", mapping: { type: "keyword", index: false, doc_values: false } } },
        { columnless: { match: "columnless", mapping: { type: "keyword", doc_values: false } } },
        { off: { match: "off", mapping: { type: "object", enabled: false } } },
        { still: { match: "still", mapping: { type: "object", dynamic: false } } },
        { list: { match: "list", mapping: { type: "nested" } } },
        { place: { match: "place", mapping: { type: "geo_point" } } },
        { short: { match: "short", mapping: { type: "keyword", ignore_above: 3 } } },
      ],
    },
    documents: {
      a: { blind: "x" },
      b: { columnless: "x" },
      c: { off: { k: "x" } },
      d: { still: { k: "x" } },
      e: { list: [{ k: "x" }] },
      f: { place: { lat: 1, lon: 2 } },
      g: { short: "longer" },
    },
    finds: [
      ["blind=x", ["a"]],
      ["columnless=x", ["b"]],
      ["off.k=x", ["c"]],
      ["still.k=x", ["d"]],
      ["list.k=x", ["e"]],
      ["place.lat=1", ["f"]],
      ["short=longer", ["g"]],
    ],
  },
  // One question each, because it has the mapping read again.
  ...Object.fromEntries(
    ["message:boom", "severity=error", "hostname=web-1", "group=nginx"].map((query) => [
      `a template that hides what ${query} compares`,
      {
        mappings: {
          dynamic_templates: [
            { texts: { match_mapping_type: "string", mapping: { type: "keyword", ignore_above: 3 } } },
          ],
        },
        documents: {
          a: {
            message: "boom",
            log: { level: "error" },
            host: { name: "web-1" },
            event: { dataset: "nginx" },
          },
        },
        finds: [[query, ["a"]]],
      } satisfies Trap,
    ]),
  ),
  "ignored malformed values": {
    settings: { "index.mapping.ignore_malformed": true },
    documents: { a: { n: 5 }, b: { n: "text" }, c: { n: [6, "seven"] } },
    finds: [
      ["n=5", ["a"]],
      ["n=text", ["b"]],
      ["n=seven", ["c"]],
      ["none=text", []],
    ],
  },
  "more fields than the limit": {
    settings: {
      "index.mapping.total_fields.limit": 3,
      "index.mapping.total_fields.ignore_dynamic_beyond_limit": true,
    },
    documents: { a: { k1: "x" }, b: { k2: "x", k3: "x" }, c: { o: { k: "x" } } },
    finds: [
      ["k1=x", ["a"]],
      ["k3=x", ["b"]],
      ["o.k=x", ["c"]],
      ["none=x", []],
    ],
    since: "elasticsearch 8",
  },
  "no subobjects": {
    mappings: { subobjects: false },
    documents: { a: { "p.q": "x", p: "y" } },
    finds: [
      ["p\\.q=x", ["a"]],
      ["p.q=x", []],
      ["p=y", ["a"]],
    ],
    since: "elasticsearch 8",
  },
  "dynamic runtime": {
    mappings: { dynamic: "runtime" },
    documents: { a: { k: "x" }, b: { other: { k: "x" } } },
    finds: [
      ["k=x", ["a"]],
      ["other.k=x", ["b"]],
    ],
    since: "elasticsearch 8",
  },
  "deep objects": {
    documents: { a: deep(18, { k: "x" }) },
    finds: [[`${Array.from({ length: 18 }, (_, n) => `o${18 - n}`).join(".")}.k=x`, ["a"]]],
  },
};

onServers((server) => {
  const servers = useLogCluster(server.url, "unmapped-*");
  const { read } = servers;
  const isNew = server.product === "elasticsearch" && !server.version.startsWith("7.");
  const create = (index: string, mappings: object = {}, settings: object = {}) =>
    servers.cluster.createIndex(index, {
      settings: { ...one, ...settings },
      mappings: { ...mappings, properties: { ...time, ...Object(mappings).properties } },
    });
  const write = (index: string, documents: Readonly<Record<string, object>>) =>
    servers.cluster.write(
      index,
      Object.entries(documents).map(([id, document]) => [
        id,
        JSON.stringify({ "@timestamp": at(1), ...document }),
      ]),
    );
  const find = async (index: string, query: string, limit = 100_000) =>
    listIds(await read(createSource(index, { layout: "ecs" }), query, { documentLimit: limit })).toSorted();

  // Newer ones cannot switch it off.
  if (!isNew)
    test("are refused where no query finds the documents that have them", async () => {
      await create("unmapped-unlisted", {
        _field_names: { enabled: false },
        properties: { level: { type: "text", norms: false } },
      });
      await write("unmapped-unlisted", { a: { level: "error" }, b: { late: "x" } });
      for (const query of ["", "level=error", "late!=x"])
        await expect(find("unmapped-unlisted", query)).rejects.toMatchObject({
          slug: "not_supported_by_backend",
        });
    });

  describe("are found", () => {
    for (const [n, [title, trap]] of Object.entries(traps).entries()) {
      if (trap.since !== undefined && !isNew) continue;
      test(`with ${title}, whether the mapping was read before or after`, async () => {
        for (const turn of ["after", "before"]) {
          const index = `unmapped-trap${n}-${turn}`;
          await create(index, trap.mappings, trap.settings);
          if (turn === "before") for (const [query] of trap.finds) await find(index, query);
          await write(index, trap.documents);
          for (const [query, ids] of trap.finds)
            expect({ turn, query, ids: await find(index, query) }).toEqual({ turn, query, ids });
        }
      });
    }

    test("in an index that was created after the mapping was read", async () => {
      await create("unmapped-new-1");
      await write("unmapped-new-1", { a: { other: "x" } });
      expect(await find("unmapped-new-*", "extra=x")).toEqual([]);
      await create("unmapped-new-2", { dynamic: false });
      await write("unmapped-new-2", { b: { extra: "x" } });
      expect(await find("unmapped-new-*", "extra=x")).toEqual(["b"]);
    });
  });

  test("read no document of indices that cannot have them", async () => {
    const noise = Object.fromEntries(Array.from({ length: 300 }, (_, n) => [`n${n}`, { noise: `v${n}` }]));
    for (const n of [1, 2]) {
      await create(`unmapped-many-${n}`);
      await write(`unmapped-many-${n}`, noise);
    }
    await create("unmapped-many-3", { properties: { extra: { type: "keyword" } } });
    await write("unmapped-many-3", { a: { extra: "x" }, b: { extra: "y" } });
    for (const [query, ids] of [
      ["extra=x", ["a"]],
      ["mispelt.name=x", []],
      ["mispelt.0.name=x OR mispelt>5", []],
    ] as const) {
      expect({ query, ids: await find("unmapped-many-*", query, 1) }).toEqual({ query, ids });
    }
  });

  test("are refused where the documents decide, with what is in the way", async () => {
    const noise = Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`n${n}`, { noise: `v${n}` }]));
    await create("unmapped-closed", { dynamic: false });
    await write("unmapped-closed", noise);
    await expect(find("unmapped-closed", "extra=x", 5)).rejects.toThrow(/extra is not mapped, and .*dynamic/);
  });

  test("of numbers beyond a long are found in the documents that the server has kept", async () => {
    await create("unmapped-numbers");
    await write("unmapped-numbers", { a: { fits: 9_007_199_254_740_991 } });
    const text = `{"@timestamp":"${at(1)}","big":123456789012345678901234567890}`;
    const isKept = await servers.cluster.write("unmapped-numbers", [["b", text]]).then(
      () => true,
      () => false,
    );
    const found = await find("unmapped-numbers", "big=123456789012345678901234567890");
    expect(found).toEqual(isKept ? ["b"] : []);
    expect(await find("unmapped-numbers", "fits=9007199254740991")).toEqual(["a"]);
  });
});
