// Parents with an N+1 among very many others, on a made-up server whose shards cut their lists as real ones do: the parents are
// listed in parts, and the result is exact. `test/backends/elastic/many-parents.test.ts` asks real servers.
import { afterEach, expect, test } from "vitest";
import { z } from "zod";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { buildSpanSource } from "#src/access/sites.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { otel } from "../../../support/elastic/span-shippers/otel.ts";
import { testIO } from "../../../support/io.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const termsSchema = z.object({
  size: z.number(),
  shard_size: z.number(),
  min_doc_count: z.number(),
  shard_min_doc_count: z.number().default(0),
  include: z.object({ partition: z.number(), num_partitions: z.number() }).optional(),
});
const indexSchema = z.object({
  mappings: z.looseObject({ properties: z.looseObject({ attributes: z.looseObject({}) }) }),
});
type Terms = z.output<typeof termsSchema>;
const bodySchema = z.object({
  aggs: z.object({ parents: z.object({ terms: termsSchema }).optional() }).optional(),
});
type Shard = ReadonlyMap<number, number>;

/** What the documentation of the terms aggregation says that shards send, and what becomes of it. */
function listTerms(shards: readonly Shard[], terms: Terms) {
  const { size, shard_size, min_doc_count, shard_min_doc_count, include } = terms;
  const sums = new Map<number, number>();
  let error = 0;
  for (const shard of shards) {
    const own = [...shard]
      .filter(([id]) => include === undefined || hash(id) % include.num_partitions === include.partition)
      .filter(([, count]) => count >= shard_min_doc_count)
      .sort(([, a], [, b]) => b - a);
    const sent = own.slice(0, shard_size);
    if (sent.length < own.length) error += sent.at(-1)?.[1] ?? 0;
    for (const [parent, count] of sent) sums.set(parent, (sums.get(parent) ?? 0) + count);
  }
  const buckets = [...sums]
    .filter(([, count]) => count >= min_doc_count)
    .sort(([, a], [, b]) => b - a)
    .slice(0, size)
    .map(([parent, count]) => ({ key: formatId(parent), doc_count: count }));
  return { doc_count_error_upper_bound: error, sum_other_doc_count: 1, buckets };
}
const hash = (parent: number): number => Math.imul(parent, 2_654_435_761) >>> 16;
const formatId = (parent: number): string => parent.toString(16).padStart(16, "0");

let fake: ScriptedSource | undefined;
afterEach(async () => {
  await fake?.close();
});

interface Asked {
  readonly limit?: number;
  readonly traceIds?: readonly string[];
}

async function findParents(
  shards: readonly Shard[],
  lists: Terms[],
  { limit = 1_000_000, traceIds }: Asked = {},
  bodies: string[] = [],
) {
  const settings = { index: { number_of_shards: String(shards.length), version: { created: "8190899" } } };
  const properties = { db: { properties: { query: { properties: { text: { type: "keyword" } } } } } };
  const mappings = Object.fromEntries(
    Object.entries(otel.indices("x"))
      .slice(0, 1)
      .map(([name, definition]) => {
        const { mappings } = indexSchema.parse(definition);
        const attributes = { ...mappings.properties.attributes, properties };
        return [
          name,
          { mappings: { ...mappings, properties: { ...mappings.properties, attributes } }, settings },
        ];
      }),
  );
  fake = await openScriptedSource((response, { url = "" }, body) => {
    if (url === "/") return sendJson(response, { version: { number: "8.19.8" } });
    if (!url.includes("/_search")) return sendJson(response, mappings);
    bodies.push(body);
    const terms = bodySchema.parse(JSON.parse(body)).aggs?.parents?.terms;
    if (terms !== undefined) lists.push(terms);
    // More statements than are told apart.
    const statements = { doc_count_error_upper_bound: 0, sum_other_doc_count: 1, buckets: [] };
    sendJson(response, {
      timed_out: false,
      _shards: { total: shards.length, failed: 0 },
      hits: { total: { value: 0, relation: "eq" }, hits: [] },
      aggregations: terms === undefined ? { statements0: statements } : { parents: listTerms(shards, terms) },
    });
  });
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
  try {
    const sources = [buildSpanSource("shop", { index: "x-*", layout: "auto" })] as const;
    const query = { sources, least: 5, traceIds, budget: createBudget(limit) };
    return await backend.stores.traces?.findNPlusOneParents?.(query, never);
  } finally {
    await backend.close();
  }
}

test("lists parents in parts where shards cut the list of all", async () => {
  const parents = Array.from({ length: 120_000 }, (_, n) => n);
  const shards = Array.from({ length: 20 }, () => new Map<number, number>());
  // A few have five children, one on each of five shards, and the others have three, all on the first shard.
  for (const parent of parents) {
    if (parent % 1_009 !== 0) shards[0]?.set(parent, 3);
    else for (let n = 0; n < 5; n += 1) shards[(parent + n) % 20]?.set(parent, 1);
  }
  const lists: Terms[] = [];
  const found = await findParents(shards, lists);
  const wanted = parents.filter((parent) => parent % 1_009 === 0).map(formatId);
  expect([...(found ?? [])].sort()).toEqual(wanted);
  expect(lists.map(({ include }) => include?.num_partitions ?? 1)).toEqual([1, 4, 4, 4, 4]);
});

test("lets a single shard send only the parents with enough children", async () => {
  const lists: Terms[] = [];
  const parents = new Map(Array.from({ length: 200_000 }, (_, n) => [n, n % 2_000 === 0 ? 5 : 4] as const));
  const found = await findParents([parents], lists);
  expect(found).toHaveLength(100);
  expect(lists).toMatchObject([{ min_doc_count: 5, shard_min_doc_count: 5 }]);
});

test("names the traces that it is asked for, and asks for their statements once where they are too many", async () => {
  const traceIds = Array.from({ length: 25_000 }, (_, n) => (n + 1).toString(16).padStart(32, "0"));
  const shards = [new Map([[7, 5]]), new Map([[8, 4]])];
  const [lists, bodies]: [Terms[], string[]] = [[], []];
  expect(await findParents(shards, lists, { traceIds }, bodies)).toEqual([formatId(7)]);
  expect(lists).toHaveLength(3);
  const counting = bodies.filter((body) => body.includes('"parents"') || body.includes('"statements0"'));
  expect(counting.filter((body) => body.includes('"statements0"'))).toHaveLength(1);
  for (let n = 0; n < traceIds.length; n += 2_499) {
    const naming = counting.filter((body) => body.includes(`"${traceIds[n]}"`));
    // Those of the first part also for their statements.
    expect(naming).toHaveLength(n < 10_000 ? 2 : 1);
  }
});

test("refuses more parents than the budget holds", async () => {
  const parents = new Map(Array.from({ length: 200_000 }, (_, n) => [n, 5] as const));
  await expect(findParents([parents], [], { limit: 1_000 })).rejects.toMatchObject({
    slug: "result_too_large",
  });
});
