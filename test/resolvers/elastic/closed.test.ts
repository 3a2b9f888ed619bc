// An index that is closed, and opened or removed again, over a search server in memory.
import { afterEach, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { parse } from "#src/logql/parse.ts";
import type { Backend } from "#src/store.ts";
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
const read = async (backend: Backend, index: string) => {
  const messages: (string | undefined)[] = [];
  const query = {
    sources: [{ id: "app", index, profile: "ecs" }],
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
  expect(await read(backend, "logs-*")).toEqual(["one", "two"]);
  state = "closed";
  await expect(read(backend, "logs-*")).rejects.toMatchObject(refused);
  await expect(read(backend, "logs-*")).rejects.toMatchObject(refused);
  state = "open";
  expect(await read(backend, "logs-*")).toEqual(["one", "two"]);
  state = "closed";
  await expect(read(backend, "logs-*")).rejects.toMatchObject(refused);
  state = "gone";
  expect(await read(backend, "logs-*")).toEqual(["one"]);
});

/** What both products answer of `logs-2` when it is closed, as they are asked. */
const closedOrMissing = (url: URL): object | undefined => {
  if (!url.pathname.endsWith("/_search") || url.searchParams.get("ignore_unavailable") === "true") return;
  const isMissing = url.pathname.includes("logs-9");
  const type = isMissing ? "index_not_found_exception" : "index_closed_exception";
  return { error: { root_cause: [{ type, reason: "" }], type }, status: isMissing ? 404 : 400 };
};

test("is refused also where another came as it was closed, so that shards are as many as before", async () => {
  const later = createSearch({ "logs-1": held("one"), "logs-3": held("late") }, "OpenSearch");
  let isClosed = false;
  const fake = await openFake((response, request, text) => {
    const url = new URL(request.url ?? "", "http://source");
    const answer = isClosed ? closedOrMissing(url) : undefined;
    if (answer !== undefined) return sendJson(response, answer, 400);
    // Nothing of what came has a line in the range: no hit tells of it.
    const body = text.replace(
      '"filter":[',
      '"filter":[{"bool":{"filter":[],"must_not":[{"terms":{"_index":["logs-3"]}}]}},',
    );
    return isClosed && url.pathname.endsWith("/_search")
      ? later.reply(response, request, body)
      : open.reply(response, request, text);
  });
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
  opened.push(fake, backend);
  expect(await read(backend, "logs-*")).toEqual(["one", "two"]);
  isClosed = true;
  await expect(read(backend, "logs-*")).rejects.toMatchObject(refused);
});

test("is refused where the mappings may not be read", async () => {
  const fake = await openFake((response, request, text) => {
    const url = new URL(request.url ?? "", "http://source");
    if (url.pathname === "/") return half.reply(response, request, text);
    const answer = closedOrMissing(url);
    if (answer !== undefined) return sendJson(response, answer, 400);
    return sendJson(response, { error: {}, status: 403 }, 403);
  });
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
  opened.push(fake, backend);
  await expect(read(backend, "logs-*")).rejects.toMatchObject(refused);
  await expect(read(backend, "logs-1,logs-2")).rejects.toMatchObject(refused);
});

test("a name that is not there is passed over, and asked for strictly once in a while", async () => {
  const fake = await openFake((response, request, text) => {
    const answer = closedOrMissing(new URL(request.url ?? "", "http://source"));
    return answer === undefined ? half.reply(response, request, text) : sendJson(response, answer, 404);
  });
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
  opened.push(fake, backend);
  expect(await read(backend, "logs-1,logs-9")).toEqual(["one"]);
  expect(await read(backend, "logs-1,logs-9")).toEqual(["one"]);
  const strict = fake.asked.filter(({ path }) =>
    /logs-1,logs-9\/_search.*ignore_unavailable=false/.test(path),
  );
  expect(strict).toHaveLength(1);
});
