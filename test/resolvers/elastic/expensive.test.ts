// A cluster on which `search.allow_expensive_queries` is off, over a small search server in memory: it refuses wildcards.
import { afterEach, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { parse } from "#src/logql/parse.ts";
import { fromMillis } from "#src/time.ts";
import { testIO } from "../../support/cluster.ts";
import { openFake, sendJson } from "../../support/fake.ts";
import { createSearch } from "../../support/search.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

const at = "2026-01-15T10:00:00.000Z";
const properties = {
  "@timestamp": { type: "date" },
  message: { type: "text" },
  log: { properties: { level: { type: "keyword" } } },
  tenant: { type: "keyword" },
};
const documents = [
  { "@timestamp": at, tenant: "a", message: "a boot", log: { level: "error" } },
  { "@timestamp": at, tenant: "a", message: "no match", log: { level: "error" } },
  { "@timestamp": at, tenant: "b", message: "a boot", log: { level: "error" } },
];

test("what it refuses is read and verified, within the wall", async () => {
  const search = createSearch({ "logs-1": { documents, mappings: { properties } } }, "OpenSearch");
  const fake = await openFake((response, request, text) => {
    if (text.includes('"wildcard"'))
      sendJson(response, { error: "wildcard queries cannot be executed" }, 400);
    else search.reply(response, request, text);
  });
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
  opened.push(fake, backend);
  const source = { id: "app", index: "logs-*", profile: "ecs", where: "tenant=a" };
  const range = { from: fromMillis(0), to: fromMillis(Date.UTC(2027, 0)) };
  const limits = { wanted: 100_000, documentLimit: 10_000, tieLimit: 10_000 };
  const filter = parse("message:boo");
  const query = { sources: [source], range, filter, order: "asc", ...limits } as const;
  const messages: (string | undefined)[] = [];
  for await (const batch of backend.stores.logs?.lines(query, AbortSignal.timeout(10_000)) ?? [])
    messages.push(...batch.map(({ message }) => message));
  expect(messages).toEqual(["a boot"]);
  expect(await backend.stores.logs?.fits?.(query, AbortSignal.timeout(10_000))).toBe(true);
  // A line of the other tenant is not even counted.
  const asked = fake.asked.filter(({ path }) => path.includes("_search")).map(({ body }) => body);
  expect(asked.every((body) => body.includes('{"term":{"tenant":"a"}}'))).toBe(true);
});
