// Counts of lines by the index, over a search server in memory and over answers that prove nothing. The law that they are
// those of the lines runs on real servers.
import { afterEach, describe, expect, test } from "vitest";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LineCountQuery } from "#src/store/logs.ts";
import { createFakeSearch, type FakeIndex } from "../../../support/elastic/fake-cluster.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const start = Date.UTC(2026, 0, 15, 10);
const minute = 60_000;
const keyword = { type: "keyword" };
const mappings = {
  properties: {
    "@timestamp": { type: "date" },
    message: { type: "text" },
    env: keyword,
    log: { properties: { level: keyword } },
    host: { properties: { name: keyword, hostname: keyword } },
  },
};
const documents = [
  { env: "prod", log: { level: "ERR" }, host: { name: "web-1" } },
  { env: "prod", log: { level: "error" }, host: { name: "web-1", hostname: "own" } },
  { env: "test", log: { level: "info" } },
].map((document, n) => ({ "@timestamp": new Date(start + n * 40_000).toISOString(), ...document }));

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

interface Options {
  readonly documents?: readonly { readonly [key: string]: unknown }[];
  /** Changes the answer of a search with aggregations. */
  readonly change?: (answer: Answer) => void;
  readonly others?: Readonly<Record<string, FakeIndex>>;
  /** Whether searches with aggregations are. */
  readonly rejects?: boolean;
  /** The status of the answer to such a search. */
  readonly failure?: number;
}
interface Answer {
  readonly [key: string]: Answer | number;
}

/** Adds to a number of an answer. */
const add =
  (amount: number, ...path: readonly string[]) =>
  (answer: Answer): void => {
    const holder = path.slice(0, -1).reduce((value, key) => value[key] as Answer, answer);
    const key = path.at(-1) ?? "";
    Object.assign(holder, { [key]: Number(holder[key]) + amount });
  };

async function openStore({
  documents: held = documents,
  change,
  others,
  rejects = false,
  failure,
}: Options = {}) {
  const indices = { "logs-1": { mappings, documents: held }, ...others };
  const search = createFakeSearch(indices, "Elasticsearch", { aggregates: !rejects });
  const sent: string[] = [];
  const fake = await openScriptedSource((response, request, body) => {
    if (body.includes('"aggs"')) sent.push(body);
    if (failure !== undefined && body.includes('"aggs"')) return sendJson(response, {}, failure);
    if (change === undefined || !body.includes('"aggs"')) return search.reply(response, request, body);
    const answer = search.answer(request, body) as Answer;
    change(answer);
    return sendJson(response, answer);
  });
  const cluster = openCluster(fake.url);
  opened.push(fake, cluster);
  const count = (over: Partial<LineCountQuery> = {}, query = "") =>
    cluster.store.count?.(
      {
        source: { id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined },
        range: { from: fromMillis(start), to: fromMillis(start + 10 * minute) },
        filter: parse(query),
        step: minute,
        ...over,
      },
      never,
    );
  return { count, sent };
}

const hostname = { kind: "line", name: "hostname" } as const;
const severity = { kind: "line", name: "severity" } as const;
const env = { kind: "json", path: ["env"] } as const;

describe("counts by the index", () => {
  test("by time and by value, each with one search", async () => {
    const { count, sent } = await openStore();
    expect(await count()).toEqual({
      total: 3,
      lacking: 0,
      groups: new Map(),
      buckets: new Map([
        [start, 2],
        [start + minute, 1],
      ]),
    });
    expect((await count({ grouping: severity }))?.groups).toEqual(
      new Map([
        ["error", 2],
        ["info", 1],
      ]),
    );
    const byHost = await count({ grouping: hostname });
    expect(byHost).toMatchObject({ lacking: 1 });
    expect(byHost?.groups).toEqual(
      new Map([
        ["web-1", 1],
        ["own", 1],
      ]),
    );
    expect((await count({ grouping: env }, "env=prod"))?.groups).toEqual(new Map([["prod", 2]]));
    expect(sent).toHaveLength(4);
  });

  test.each(["constructor", "toString", "__proto__"])(
    "by the key %s, which is a property of every object, too",
    async (key) => {
      // A literal with `__proto__` sets the prototype.
      const own = Object.fromEntries([
        ["@timestamp", new Date(start).toISOString()],
        [key, "own"],
      ]);
      const mapped = { properties: { ...mappings.properties, other: keyword } };
      Object.defineProperty(mapped.properties, key, { value: keyword, enumerable: true });
      const others = { "logs-2": { mappings: mapped, documents: [own] } };
      for (const hasGroupBuckets of [false, true]) {
        const { count, sent } = await openStore({ others });
        const counted = await count({ grouping: { kind: "json", path: [key] }, hasGroupBuckets });
        expect(counted).toMatchObject({ total: 4, lacking: 3 });
        expect(counted?.groups).toEqual(new Map([["own", 1]]));
        expect(sent).toHaveLength(1);
      }
    },
  );

  test("by time and by value together", async () => {
    const { count, sent } = await openStore();
    const counted = await count({ grouping: severity, hasGroupBuckets: true });
    expect(counted?.groups).toEqual(
      new Map([
        ["error", 2],
        ["info", 1],
      ]),
    );
    expect(counted?.groupBuckets).toEqual(
      new Map([
        ["error", new Map([[start, 2]])],
        ["info", new Map([[start + minute, 1]])],
      ]),
    );
    expect(sent).toHaveLength(1);
    const bare = await openStore({ documents: documents.map(({ log, ...document }) => document) });
    const unknown = await bare.count({ grouping: severity, hasGroupBuckets: true });
    expect(unknown?.groupBuckets?.get("unknown")).toEqual(
      new Map([
        [start, 2],
        [start + minute, 1],
      ]),
    );
  });

  test.each<[string, Partial<LineCountQuery>, string]>([
    [
      "a bound within a millisecond",
      { range: { from: (fromMillis(start) + 1n) as never, to: fromMillis(start + minute) } },
      "",
    ],
    ["a path that may be a key with a dot", { grouping: { kind: "json", path: ["host", "name"] } }, ""],
    ["a filter that the index only narrows", {}, "message:x"],
    ["a severity, which is a word", {}, "severity=error"],
  ])("leaves %s to reading", async (_, over, query) => {
    const { count } = await openStore({ documents: documents.map((one) => ({ ...one, message: "x" })) });
    expect(await count(over, query)).toBeUndefined();
  });

  test.each<[string, object, Partial<LineCountQuery>]>([
    ["several values", { env: ["a", "b"] }, { grouping: env }],
    ["a number, of which only the document has the spelling", { env: "1.0" }, { grouping: env }],
    ["an empty text", { env: "" }, { grouping: env }],
    ["two times", { "@timestamp": [start, start + 2 * minute].map((at) => new Date(at).toISOString()) }, {}],
  ])("leaves a document with %s to reading", async (_, document, over) => {
    const time = { "@timestamp": new Date(start).toISOString() };
    const { count } = await openStore({ documents: [...documents, { ...time, ...document }] });
    expect(await count(over)).toBeUndefined();
  });

  test("a document with another time before the range is a line of that time", async () => {
    const times = [start + 10_000, start + 30_000].map((at) => new Date(at).toISOString());
    const { count } = await openStore({ documents: [...documents, { "@timestamp": times }] });
    const range = { from: fromMillis(start + 20_000), to: fromMillis(start + 10 * minute) };
    expect(await count({ range })).toMatchObject({ total: 2 });
  });

  test("a range of more buckets than a search may have is counted in parts", async () => {
    const { count, sent } = await openStore();
    const range = { from: fromMillis(start - 30 * 86_400_000), to: fromMillis(start + 10 * minute) };
    expect(await count({ range })).toMatchObject({ total: 3 });
    expect(sent).toHaveLength(5);
  });

  test.each<[string, (answer: Answer) => void]>([
    ["fewer documents certainly match", add(-1, "aggregations", "certain", "doc_count")],
    ["values are left out", add(1, "aggregations", "values", "sum_other_doc_count")],
    ["values are estimates", add(1, "aggregations", "values", "doc_count_error_upper_bound")],
    ["documents are missing in the groups", add(1, "aggregations", "none", "doc_count")],
    ["documents are missing in the buckets", add(1, "hits", "total", "value")],
  ])("an answer proves nothing where %s", async (_, change) => {
    const { count } = await openStore({ change });
    expect(await count({ grouping: env })).toBeUndefined();
  });

  test("leaves a field to reading that another index maps as text", async () => {
    const text = { properties: { ...mappings.properties, env: { type: "text" } } };
    const { count, sent } = await openStore({ others: { "logs-2": { mappings: text, documents: [] } } });
    expect(await count({ grouping: env })).toBeUndefined();
    expect(sent).toEqual([]);
    expect(await count()).toMatchObject({ total: 3 });
  });

  test("leaves to reading what the server rejects", async () => {
    const { count } = await openStore({ rejects: true });
    expect(await count({ grouping: env })).toBeUndefined();
  });

  test("fails where the server fails over the count, which says nothing of it", async () => {
    const { count } = await openStore({ failure: 500 });
    await expect(count({ grouping: env })).rejects.toMatchObject({ status: 500 });
  });

  test.each<[Partial<LineCountQuery>, string]>([
    [{}, ""],
    [{}, "env=prod"],
    [{ grouping: env }, ""],
    [{ grouping: severity, hasGroupBuckets: true }, ""],
  ])("counts nothing where no index matches the pattern: %j %s", async (over, query) => {
    const { count } = await openStore();
    const source = { id: "app", index: "other-*", layout: "ecs", tenantFilter: undefined };
    const counted = await count({ source, ...over }, query);
    expect(counted).toMatchObject({ total: 0, lacking: 0, buckets: new Map() });
    expect([...(counted?.groups.values() ?? [])].filter((lines) => lines > 0)).toEqual([]);
  });

  test("fails where no shard was searched of indices that the mappings still name", async () => {
    const change = (answer: Answer) =>
      Object.assign(answer, { _shards: { total: 0, failed: 0 }, aggregations: undefined });
    const { count, sent } = await openStore({ change });
    await expect(count()).rejects.toMatchObject({ failure: "partial" });
    expect(sent).toHaveLength(3);
  });

  test("fails where shards were searched and nothing aggregated", async () => {
    const { count } = await openStore({
      change: (answer) => Object.assign(answer, { aggregations: undefined }),
    });
    await expect(count()).rejects.toMatchObject({ failure: "malformed" });
  });

  test("fails where shards failed", async () => {
    const { count } = await openStore({ change: add(1, "_shards", "failed") });
    await expect(count()).rejects.toMatchObject({ failure: "partial" });
  });
});
