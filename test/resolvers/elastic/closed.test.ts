// An index that is closed, and opened or removed again, over a search server in memory.
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

const held = (message: string) => ({
  mappings: { properties: { "@timestamp": { type: "date" }, message: { type: "text" } } },
  documents: [{ "@timestamp": "2026-01-15T10:00:00.000Z", message }],
});
const open = createSearch({ "logs-1": held("one"), "logs-2": held("two") }, "OpenSearch");
const half = createSearch({ "logs-1": held("one") }, "OpenSearch");

test("is refused as long as it is closed, and no longer", async () => {
  let state: "open" | "closed" | "gone" = "open";
  const fake = await openFake((response, request, text) => {
    if (state === "open") return open.reply(response, request, text);
    const { pathname } = new URL(request.url ?? "", "http://source");
    if (state === "gone" || pathname === "/" || pathname.endsWith("/_search"))
      return half.reply(response, request, text);
    const settings = { index: { number_of_shards: "1" } };
    const { mappings } = held("");
    sendJson(response, {
      "logs-1": { aliases: {}, mappings, settings },
      "logs-2": { aliases: {}, mappings, settings: { index: { verified_before_close: "true" } } },
    });
  });
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
  opened.push(fake, backend);
  const read = async () => {
    const messages: (string | undefined)[] = [];
    const query = {
      sources: [{ id: "app", index: "logs-*", profile: "ecs" }],
      range: { from: fromMillis(0), to: fromMillis(Date.UTC(2027, 0)) },
      filter: parse(""),
      order: "asc",
      ...{ wanted: 10, documentLimit: 1_000, tieLimit: 1_000 },
    } as const;
    for await (const batch of backend.stores.logs?.lines(query, AbortSignal.timeout(30_000)) ?? [])
      messages.push(...batch.map(({ message }) => message));
    return messages.sort();
  };
  const refused = { slug: "not_supported_by_backend" };
  expect(await read()).toEqual(["one", "two"]);
  state = "closed";
  await expect(read()).rejects.toMatchObject(refused);
  await expect(read()).rejects.toMatchObject(refused);
  state = "open";
  expect(await read()).toEqual(["one", "two"]);
  state = "closed";
  await expect(read()).rejects.toMatchObject(refused);
  state = "gone";
  expect(await read()).toEqual(["one"]);
});
