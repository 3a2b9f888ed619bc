// Searches ask for as many hits as fit into some megabytes, once it is known how large those of a pattern are.
import { expect, test } from "vitest";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { createFakeSearch } from "../../../support/elastic/fake-cluster.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const mappings = { properties: { "@timestamp": { type: "date" }, message: { type: "text" } } };
const lineBytes = 300_000;
const count = 60;
/** Of eight megabytes. */
const fitting = 27;

async function open(readTime: (n: number) => number) {
  const message = "m".repeat(lineBytes);
  const documents = Array.from({ length: count }, (_, n) => ({
    "@timestamp": new Date(readTime(n)).toISOString(),
    message,
  }));
  const search = createFakeSearch({ "logs-1": { mappings, documents } }, "Elasticsearch");
  const fake = await openScriptedSource(search.reply);
  const cluster = openCluster(fake.url);
  let asked = 0;
  return {
    close: () => Promise.all([cluster.close(), fake.close()]),
    /** How many lines there are, and the sizes that the searches for them asked for. */
    read: async (expectedLines: number) => {
      const query = {
        sources: [{ id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined }],
        range: { from: fromMillis(0), to: fromMillis(10_000) },
        filter: parse(""),
        order: "asc",
        expectedLines,
        documentLimit: 10_000,
        tieLimit: 10_000,
      } as const;
      const ids = new Set<string>();
      for await (const batch of cluster.store.lines(query, never)) for (const { id } of batch) ids.add(id);
      const own = fake.requests.slice(asked);
      asked = fake.requests.length;
      const searches = own.filter(({ method, path }) => method === "POST" && path.includes("_search"));
      const sizes = searches.flatMap(({ body }) => (JSON.parse(body) as { size?: number }).size ?? []);
      return { lines: ids.size, sizes: sizes.filter((size) => size > 0) };
    },
  };
}

test("the first page of a pattern tells how large its hits are", async () => {
  const { read, close } = await open((n) => 1_000 + n);
  expect(await read(count)).toEqual({ lines: count, sizes: [count + 1] });
  const next = await read(count);
  expect(next.lines).toBe(count);
  expect(next.sizes.length).toBeGreaterThan(2);
  expect(Math.max(...next.sizes)).toBe(fitting);
  // An export begins with what is known.
  const exported = await read(1_000_000);
  expect(exported.lines).toBe(count);
  expect(new Set(exported.sizes)).toEqual(new Set([4]));
  await close();
});

test("the pages of a large millisecond are limited too", async () => {
  const { read, close } = await open(() => 1_000);
  const exported = await read(1_000_000);
  expect(exported.lines).toBe(count);
  // Of an unknown size, for the export; for the millisecond; and what the export goes on with.
  expect(new Set(exported.sizes)).toEqual(new Set([32, fitting, 4]));
  const page = await read(10);
  expect(page.lines).toBe(count);
  expect(page.sizes.slice(0, 3)).toEqual([11, fitting, fitting]);
  await close();
});
