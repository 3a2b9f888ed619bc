// Mappings and documents that once broke the store, each reduced to the minimum.
import { afterAll, beforeAll, expect, test } from "vitest";
import { Refused } from "#src/core/errors.ts";
import { fromMillis, type Instant, parseInstant } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogSource } from "#src/store/logs.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { never } from "../../support/signals.ts";
import { onServers } from "../selected-servers.ts";

interface Trap {
  readonly name: string;
  readonly properties: object;
  /** The bodies of lines, by id. */
  readonly documents: Readonly<Record<string, string>>;
  /** A change of the mapping after the documents were written. */
  readonly changed?: object;
  /** The ids that each query finds. */
  readonly finds: Readonly<Record<string, readonly string[]>>;
}

const long = "z".repeat(9_000);
const traps: readonly Trap[] = [
  {
    name: "more terms than a server takes",
    properties: { k: { type: "keyword" } },
    documents: { a: '{"k":"a"}', b: '{"k":"v1"}' },
    finds: {
      [Array.from({ length: 1_000 }, (_, at) => `k=v${at}`).join(" OR ")]: ["b"],
      [Array.from({ length: 1_000 }, (_, at) => `k!=v${at}`).join(" ")]: ["a"],
      [Array.from({ length: 60 }, (_, at) => `message:"x a${at},b,c,d,e,f,g,h,i,j y"`).join(" OR ")]: [],
    },
  },
  {
    name: "a null that the index fills in, before a second name of the line field",
    properties: {
      host: { properties: { hostname: { type: "keyword", null_value: "none" }, name: { type: "keyword" } } },
    },
    documents: { a: '{"host":{"hostname":null,"name":"h1"}}' },
    finds: { "hostname=h1": ["a"], "hostname:h": ["a"], "hostname!=h1": [], "hostname=none": [] },
  },
  {
    name: "a field copied into the message",
    properties: {
      message: { type: "text" },
      o: { type: "text", copy_to: "message" },
      event: { properties: { original: { type: "keyword" } } },
    },
    documents: { a: '{"o":"abc","event":{"original":"orig text"}}' },
    finds: { 'message="orig text"': ["a"], "message:orig": ["a"], "message:abc": [] },
  },
  {
    name: "values that a nested object left out of the index",
    properties: {
      nest: {
        type: "nested",
        properties: { k: { type: "keyword", ignore_above: 5 }, n: { type: "long", ignore_malformed: true } },
      },
    },
    documents: { a: '{"nest":[{"k":"abcdefgh"}]}', b: '{"nest":[{"n":"12x"}]}' },
    finds: { "nest.k=abcdefgh": ["a"], "nest.k:cdefg": ["a"], "nest.n:x": ["b"], "nest.k!=abcdefgh": ["b"] },
  },
  {
    name: "a very long keyword",
    properties: { k: { type: "keyword" } },
    documents: { a: `{"k":"${long}"}` },
    finds: { [`k=${long}`]: ["a"], [`k!=${long}`]: [] },
  },
  {
    name: "text that a server replaces",
    properties: { k: { type: "keyword" } },
    documents: { a: '{"k":"a\\ud800b"}', b: '{"k":"a?b"}', c: '{"k":"a\\ufffdb"}' },
    finds: { "k=a?b": ["b"], "k=a\ufffdb": ["c"], "k!=a?b": ["a", "c"], "k!:\ufffd": ["a", "b"] },
  },
  {
    name: "a copy that the mapping no longer makes",
    properties: { k: { type: "keyword" }, o: { type: "keyword", copy_to: "k" } },
    documents: { a: '{"o":"x"}', b: '{"k":"x"}' },
    changed: { o: { type: "keyword" } },
    finds: { "k=x": ["b"] },
  },
];

onServers((server) => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = openCluster(server.url);
    await cluster.remove("trap-*");
  });
  afterAll(async () => {
    await cluster.remove("trap-*");
    await cluster.close();
  });

  async function find(
    query: string,
    over: Partial<LogSource> = {},
    from: Instant = fromMillis(0),
  ): Promise<string[]> {
    const source: LogSource = { id: "app", index: "trap-*", layout: "ecs", tenantFilter: undefined, ...over };
    const ids: string[] = [];
    const range = { from, to: fromMillis(Date.UTC(2030, 0)) };
    const lines = cluster.store.lines(
      {
        sources: [source],
        range,
        filter: parse(query),
        order: "asc",
        expectedLines: 100,
        documentLimit: 9_999,
        tieLimit: 9_999,
      },
      never,
    );
    for await (const batch of lines) ids.push(...batch.map(({ id }) => id.slice(id.indexOf("/") + 1)));
    return ids;
  }
  async function write(
    index: string,
    documents: Readonly<Record<string, string>>,
    time = "2024-01-15T10:00:00.000Z",
  ) {
    await cluster.write(
      index,
      Object.entries(documents).map(([id, body]): [string, string] => [
        id,
        `{"@timestamp":"${time}",${body.slice(1)}`,
      ]),
    );
  }

  test.each(traps)("$name", async ({ name, properties, documents, changed, finds }) => {
    const index = `trap-${name.replace(/[^a-z]+/g, "-")}`;
    const mappings = {
      properties: { "@timestamp": { type: "date" }, message: { type: "text" }, ...properties },
    };
    await cluster.createIndex(index, { mappings });
    await write(index, documents);
    if (changed !== undefined)
      await cluster.request("PUT", `/${index}/_mapping`, JSON.stringify({ properties: changed }));
    for (const [query, ids] of Object.entries(finds)) {
      expect({ query: query.slice(0, 80), ids: await find(query, { index }) }).toEqual({
        query: query.slice(0, 80),
        ids,
      });
    }
  });

  test("lets no line through a tenant filter on a name that becomes a text field", async () => {
    const index = "trap-tenant";
    await cluster.createIndex(index, { mappings: { properties: { "@timestamp": { type: "date" } } } });
    const where = 'tenant="acme"';
    expect(await find("", { index, tenantFilter: where })).toEqual([]);
    await write(index, { evil: '{"tenant":"Evil ACME rival"}' });
    const found = await find("", { index, tenantFilter: where }).catch((error: unknown) => error);
    if (Array.isArray(found)) expect(found).toEqual([]);
    else expect(found).toBeInstanceOf(Refused);
  });

  test("compares numbers where another index has dates at the name", async () => {
    const mapped = (type: string) => ({
      mappings: { properties: { "@timestamp": { type: "date" }, n: { type } } },
    });
    for (const type of ["long", "double", "date_nanos", "date"])
      await cluster.createIndex(`trap-dated-${type}`, mapped(type));
    await write("trap-dated-long", { a: '{"n":-3}', b: '{"n":9100000000000000}' });
    await write("trap-dated-double", { c: '{"n":2e22}' });
    await write("trap-dated-date", { d: '{"n":"2026-01-15"}' });
    for (const [query, ids] of [
      ["n<0", ["a"]],
      ["n>-1", ["b", "c"]],
      ["n>9000000000000000", ["b", "c"]],
      ["n=2e22", ["c"]],
      ["n>=5 n<10000000000000000000", ["b"]],
    ] as const) {
      const found = await find(query, { index: "trap-dated-*" });
      expect({ query, ids: found.toSorted() }).toEqual({ query, ids });
    }
  });

  test("finds values that a template does not index under names mapped after the read", async () => {
    const blind = { type: "keyword", index: false, doc_values: false };
    const templates = {
      note: { type: "keyword", ignore_above: 5 },
      raw: blind,
      off: { type: "object", enabled: false },
      list: { type: "nested" },
    };
    await cluster.createIndex("trap-comes", {
      mappings: {
        properties: { "@timestamp": { type: "date" } },
        dynamic_templates: Object.entries(templates).map(([name, mapping]) => ({
          [name]: { path_match: `attributes.${name}`, mapping },
        })),
      },
    });
    const source = { index: "trap-comes", layout: "otel" };
    expect(await find("", source)).toEqual([]);
    await write("trap-comes", {
      a: '{"attributes":{"note":"longer than five"}}',
      b: '{"attributes":{"raw":"x"}}',
      c: '{"attributes":{"off":{"k":"x"}}}',
      d: '{"attributes":{"list":[{"k":"x"}]}}',
    });
    for (const [query, ids] of [
      ["note:longer", ["a"]],
      ["raw=x", ["b"]],
      ["off.k=x", ["c"]],
      ["list.k=x", ["d"]],
    ] as const) {
      expect({ query, ids: await find(query, source) }).toEqual({ query, ids });
    }
  });

  test("refuses times that one of two indices cannot hold", async () => {
    await cluster.createIndex("trap-era-a", { mappings: { properties: { "@timestamp": { type: "date" } } } });
    await write("trap-era-a", { old: '{"k":"old"}' }, "1965-01-01T00:00:00.000Z");
    const from = parseInstant("1960-01-01T00:00:00Z") ?? fromMillis(0);
    expect(await find("", { index: "trap-era-*" }, from)).toEqual(["old"]);
    await cluster.createIndex("trap-era-b", {
      mappings: { properties: { "@timestamp": { type: "date_nanos" } } },
    });
    await write("trap-era-b", { now: '{"k":"now"}' });
    await expect(find("", { index: "trap-era-*" }, from)).rejects.toThrow(Refused);
    expect(await find("", { index: "trap-era-*" })).toEqual(["now"]);
  });

  test("refuses an index that is closed while another appears", async () => {
    const definition = { mappings: { properties: { "@timestamp": { type: "date" } } } };
    for (const n of [1, 2]) {
      await cluster.createIndex(`trap-turn-${n}`, definition);
      await write(`trap-turn-${n}`, { [`d${n}`]: `{"n":${n}}` });
    }
    const source = { index: "trap-turn-*" };
    const partly = { index: "trap-turn-*,trap-none" };
    for (const over of [source, partly]) expect(await find("", over)).toHaveLength(2);
    await cluster.createIndex("trap-turn-3", definition);
    await cluster.request("POST", "/trap-turn-1/_close");
    for (const over of [source, partly]) await expect(find("", over)).rejects.toThrow(Refused);
    await cluster.request("POST", "/trap-turn-1/_open");
  });
});
