// An index that is closed, then opened again or deleted, over a search server in memory.
import { afterEach, describe, expect, test, vi } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { Backend } from "#src/store/backend.ts";
import { createFakeSearch } from "../../../support/elastic/fake-cluster.ts";
import { testIO } from "../../../support/io.ts";
import { openScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  for (const one of opened.splice(0).reverse()) await one.close();
});

const held = (message: string) => ({
  mappings: { properties: { "@timestamp": { type: "date" }, message: { type: "text" } } },
  documents: [{ "@timestamp": "2026-01-15T10:00:00.000Z", message }],
});
const read = async (backend: Backend, index: string) => {
  const messages: (string | undefined)[] = [];
  const query = {
    sources: [{ id: "app", index, layout: "ecs", tenantFilter: undefined }],
    range: { from: fromMillis(0), to: fromMillis(Date.UTC(2027, 0)) },
    filter: parse(""),
    order: "asc",
    expectedLines: 10,
    documentLimit: 1_000,
    tieLimit: 1_000,
  } as const;
  for await (const batch of backend.stores.logs?.lines(query, never) ?? [])
    messages.push(...batch.map(({ message }) => message));
  return messages.sort();
};
const refused = { slug: "not_supported_by_backend" };

const open = createFakeSearch({ "logs-1": held("one"), "logs-2": held("two") }, "OpenSearch");
const half = createFakeSearch({ "logs-1": held("one") }, "OpenSearch");
const halfOfElastic = createFakeSearch({ "logs-1": held("one") }, "Elasticsearch");

describe("log store, closed index", () => {
  test("refuses a closed index until it is opened or deleted", async () => {
    let state: "open" | "closed" | "gone" = "open";
    const fake = await openScriptedSource((response, request, text) => {
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

  /** What both products answer when `logs-2` is closed and `logs-9` does not exist. */
  const refusal = ({ pathname, searchParams }: URL): { readonly status: number } | undefined => {
    if (!pathname.endsWith("/_search") || searchParams.get("ignore_unavailable") === "true") return undefined;
    const refused = (type: string, reason: string, status: number) => ({
      error: { root_cause: [{ type, reason }], type, reason },
      status,
    });
    if (pathname.includes("logs-9"))
      return refused("index_not_found_exception", "no such index [logs-9]", 404);
    return /logs-(?:2|\*)/.test(pathname) ? refused("index_closed_exception", "closed", 400) : undefined;
  };

  test("refuses a closed index when a new one keeps the shard count equal", async () => {
    const later = createFakeSearch({ "logs-1": held("one"), "logs-3": held("late") }, "OpenSearch");
    let isClosed = false;
    const fake = await openScriptedSource((response, request, text) => {
      const url = new URL(request.url ?? "", "http://source");
      const answer = isClosed ? refusal(url) : undefined;
      if (answer !== undefined) return sendJson(response, answer, answer.status);
      // The new index has no line in the range, so that no hit reveals it.
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

  test("refuses a closed index when mappings may not be read", async () => {
    const fake = await openScriptedSource((response, request, text) => {
      const url = new URL(request.url ?? "", "http://source");
      if (url.pathname === "/") return halfOfElastic.reply(response, request, text);
      const answer = refusal(url);
      if (answer !== undefined) return sendJson(response, answer, answer.status);
      if (url.pathname.endsWith("/_search")) return halfOfElastic.reply(response, request, text);
      return sendJson(response, { error: {}, status: 403 }, 403);
    });
    const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
    opened.push(fake, backend);
    await expect(read(backend, "logs-*")).rejects.toMatchObject(refused);
    await expect(read(backend, "logs-1,logs-2")).rejects.toMatchObject(refused);
    expect(await read(backend, "logs-1")).toEqual(["one"]);
    // A missing index also makes the server reject the whole pattern, so the rest is searched by itself.
    await expect(read(backend, "logs-2,logs-9")).rejects.toMatchObject(refused);
    await expect(read(backend, "logs-2,logs-9")).rejects.toMatchObject(refused);
    const source = { id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined };
    const report = await backend.inspections.logs?.(source, never);
    expect(report?.problems.join()).toMatch(/^an index of logs-\* is closed/);
  });

  test("refuses a closed index beside date math whose index does not exist", async () => {
    const fake = await openScriptedSource((response, request, text) => {
      const url = new URL(request.url ?? "", "http://source");
      const pattern = decodeURIComponent(url.pathname);
      const isStrict = pattern.endsWith("/_search") && url.searchParams.get("ignore_unavailable") === "false";
      const refuse = (type: string, reason: string, status: number) =>
        sendJson(response, { error: { root_cause: [{ type, reason }], type, reason }, status }, status);
      if (isStrict && pattern.includes("{now/d}"))
        return refuse("index_not_found_exception", "no such index [logs-9]", 404);
      if (isStrict && /logs-2|now\/d-1d/.test(pattern))
        return refuse("index_closed_exception", "closed", 400);
      return halfOfElastic.reply(response, request, text);
    });
    const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
    opened.push(fake, backend);
    expect(await read(backend, "logs-1,<logs-{now/d}>")).toEqual(["one"]);
    for (const pattern of ["<logs-{now/d}>,logs-2", "<logs-{now/d}>,<logs-{now/d-1d{yyyy.MM.dd}}>"])
      await expect(read(backend, pattern)).rejects.toMatchObject(refused);
  });

  test("skips a missing index and repeats the strict search only now and then", async () => {
    const fake = await openScriptedSource((response, request, text) => {
      const answer = refusal(new URL(request.url ?? "", "http://source"));
      return answer === undefined
        ? halfOfElastic.reply(response, request, text)
        : sendJson(response, answer, answer.status);
    });
    const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
    opened.push(fake, backend);
    expect(await read(backend, "logs-1,logs-9")).toEqual(["one"]);
    expect(await read(backend, "logs-1,logs-9")).toEqual(["one"]);
    const countStrict = () =>
      fake.requests.filter(({ path }) => /logs-1,logs-9\/_search.*ignore_unavailable=false/.test(path))
        .length;
    expect(countStrict()).toBe(1);
    const later = performance.now() + 30_001;
    vi.spyOn(performance, "now").mockImplementation(() => later);
    expect(await read(backend, "logs-1,logs-9")).toEqual(["one"]);
    expect(await read(backend, "logs-1,logs-9")).toEqual(["one"]);
    expect(countStrict()).toBe(2);
  });
});
