// Few groups of very many documents: one page of them is enough, however many documents there are.
import { afterEach, expect, test } from "vitest";
import { z } from "zod";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { buildSpanSource } from "#src/access/sites.ts";
import { fromMillis } from "#src/core/time.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { otel } from "../../../support/elastic/span-shippers/otel.ts";
import { testIO } from "../../../support/io.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const mappings = Object.fromEntries(
  Object.entries(otel.indices("x"))
    .slice(0, 1)
    .map(([name, definition]) => [
      name,
      { ...definition, settings: { index: { number_of_shards: "1", version: { created: "8190899" } } } },
    ]),
);
const spansPerBlock = 25_000_000;

const termsSchema = z.record(z.string(), z.object({ terms: z.object({ field: z.string() }) }));
const bodySchema = z.object({
  aggs: z
    .object({ groups: z.object({ composite: z.object({ sources: z.array(termsSchema) }) }).optional() })
    .catchall(z.unknown())
    .optional(),
});
const kinds = { request: "Server", event: "Client" } as const;

/** One group of all documents, or one distinct value. */
function aggregateOneGroup(body: string, kind: string): object | undefined {
  const { aggs } = bodySchema.parse(JSON.parse(body));
  if (aggs === undefined) return undefined;
  const values: Readonly<Record<string, string>> = { name: "work", kind };
  const named = Object.keys(aggs).map((name) => {
    if (name !== "groups")
      return [name, { value: 1, doc_count: spansPerBlock, values: { value: spansPerBlock } }] as const;
    const columns = (aggs.groups?.composite.sources ?? []).flatMap((source) => Object.entries(source));
    const key = Object.fromEntries(
      columns.map(([column, { terms }]) => [column, values[terms.field] ?? null]),
    );
    const length = { count: spansPerBlock, sum: spansPerBlock };
    return [name, { buckets: [{ key, doc_count: spansPerBlock, length }] }] as const;
  });
  return Object.fromEntries(named);
}

let fake: ScriptedSource | undefined;
afterEach(async () => {
  await fake?.close();
});

interface FakeAnswer {
  readonly total: number;
  readonly aggregations: object | undefined;
}

/** The spans of each tally over a source that answers its searches like this. */
async function tallyOver(
  by: "request" | "event",
  answer: (body: string) => FakeAnswer,
): Promise<readonly number[]> {
  fake = await openScriptedSource((response, { url = "" }, body) => {
    if (url === "/") return sendJson(response, { version: { number: "8.19.8" } });
    if (!url.includes("/_search")) return sendJson(response, mappings);
    const { total: value, aggregations } = answer(body);
    const whole = { timed_out: false, _shards: { total: 1, failed: 0 } };
    sendJson(response, { ...whole, hits: { total: { value, relation: "eq" }, hits: [] }, aggregations });
  });
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
  try {
    const sources = [buildSpanSource("shop", { index: "x-*", layout: "auto" })] as const;
    const range = { from: fromMillis(0), to: fromMillis(1_000_000) };
    const select = by === "request" ? "entries" : "children";
    const query = { sources, range, select, by, budget: createBudget(100_000) } as const;
    const counts: number[] = [];
    for await (const batch of backend.stores.traces?.tally?.(query, never) ?? [])
      counts.push(...batch.map(({ spans }) => spans));
    return counts;
  } finally {
    await backend.close();
  }
}

test.each(["request", "event"] as const)("counts few groups of very many spans: %s", async (by) => {
  const counts = await tallyOver(by, (body) => {
    const aggregations = aggregateOneGroup(body, kinds[by]);
    return { total: aggregations === undefined ? 0 : spansPerBlock, aggregations };
  });
  expect(counts).toContain(spansPerBlock);
});

test.each([{ groups: { buckets: [{ key: {} }] } }, { groups: { buckets: "many" } }])(
  "refuses groups of another form as an answer of the source",
  async (aggregations) => {
    await expect(tallyOver("request", () => ({ total: spansPerBlock, aggregations }))).rejects.toMatchObject({
      name: "BackendError",
      failure: "malformed",
      message: expect.stringContaining("the aggregation groups"),
    });
  },
);

test.each([
  { has: "a part of the range", ofPart: 60_000, looks: 1 },
  { has: "only all of the range", ofPart: 1_000, looks: 2 },
])("asks no page of groups where $has has too many", async ({ ofPart, looks }) => {
  let looked = 0;
  let pages = 0;
  const answerLook = (names: readonly string[]): object => {
    looked += 1;
    const value = looked === 1 ? ofPart : 60_000;
    return Object.fromEntries(names.map((name) => [name, { value }]));
  };
  const tally = tallyOver("event", (body) => {
    const names = Object.keys(bodySchema.parse(JSON.parse(body)).aggs ?? {});
    if (names.includes("groups")) pages += 1;
    return { total: spansPerBlock, aggregations: names.includes("c0") ? answerLook(names) : undefined };
  });
  await expect(tally).rejects.toMatchObject({ slug: "result_too_large" });
  expect({ looked, pages }).toEqual({ looked: looks, pages: 0 });
});
