// A source that refuses a right for a moment. What follows from it is worth a retry: never a final refusal, and never a short
// answer.
import type { IncomingMessage } from "node:http";
import { afterEach, describe, expect, test, vi } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { Backend } from "#src/store/backend.ts";
import type { LogQuery } from "#src/store/logs.ts";
import { createFakeSearch, type FakeIndex, type ProductName } from "../../../support/elastic/fake-cluster.ts";
import { testIO } from "../../../support/io.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const mappings = {
  dynamic: "true",
  properties: {
    "@timestamp": { type: "date" },
    message: { type: "text" },
    tenant: { type: "keyword" },
    user: { type: "keyword" },
  },
};
const documents = Array.from({ length: 40 }, (_, at) => ({
  "@timestamp": fromEpoch(at),
  message: `m${at}`,
  tenant: at % 2 === 0 ? "a" : "b",
  user: `u${at}`,
}));
function fromEpoch(millis: number): string {
  return new Date(millis).toISOString();
}

let fake: ScriptedSource | undefined;
let backend: Backend | undefined;
afterEach(async () => {
  vi.restoreAllMocks();
  await backend?.close();
  await fake?.close();
});

/** What refuses a request, with a status; undefined lets it pass. */
type Gate = (path: string, request: IncomingMessage, body: string) => number | undefined;

async function open(gate: Gate, product: ProductName = "Elasticsearch", settings: object = {}) {
  const indices: Record<string, FakeIndex> = { "logs-1": { mappings, documents } };
  const cluster = createFakeSearch(indices, product);
  fake = await openScriptedSource((response, request, body) => {
    const status = gate(request.url ?? "", request, body);
    if (status === undefined) cluster.reply(response, request, body);
    else sendJson(response, { error: { type: "security_exception" }, status }, status);
  });
  backend = elastic.create("elk", elastic.parseConfig({ url: fake.url, ...settings }), testIO);
  const source = { id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined };
  const ask = (text: string, where?: string, over: Partial<LogQuery> = {}): LogQuery => ({
    sources: [{ ...source, tenantFilter: where }],
    filter: parse(text),
    order: "asc",
    range: { from: fromMillis(0), to: fromMillis(1_000) },
    expectedLines: 1_000,
    documentLimit: 1_000,
    tieLimit: 1_000,
    ...over,
  });
  const { logs } = backend.stores;
  return {
    indices,
    async read(...given: Parameters<typeof ask>): Promise<string[]> {
      const lines: string[] = [];
      for await (const batch of logs?.lines(ask(...given), never) ?? [])
        lines.push(...batch.map(({ message = "" }) => message));
      return lines;
    },
    fits: (...given: Parameters<typeof ask>) => logs?.isWithinLimits?.(ask(...given), never),
  };
}

const isMappingRequest = (path: string, { method }: IncomingMessage) =>
  method === "GET" && path.startsWith("/logs-");
const denied = { name: "BackendError", failure: "denied" };

describe.each([401, 403])("a mapping refused with %d", (status) => {
  test("for one request changes nothing", async () => {
    let refusals = 1;
    const { read } = await open((path, request) =>
      isMappingRequest(path, request) && refusals-- > 0 ? status : undefined,
    );
    expect(await read("user=u4", "tenant=a")).toEqual(["m4"]);
  });

  test("for long is an error with a tenant filter, and no final refusal", async () => {
    let isRefused = true;
    const { read } = await open((path, request) =>
      isRefused && isMappingRequest(path, request) ? status : undefined,
    );
    await expect(read("", "tenant=a")).rejects.toMatchObject(denied);
    await expect(read("", "tenant=a")).rejects.toMatchObject(denied);
    isRefused = false;
    expect(await read("user=u4 OR user=u5", "tenant=a")).toEqual(["m4"]);
  });

  test("after it was read is an error, also without a tenant filter", async () => {
    let isRefused = false;
    const { read, indices } = await open((path, request) =>
      isRefused && isMappingRequest(path, request) ? status : undefined,
    );
    expect(await read("user=u4")).toEqual(["m4"]);
    isRefused = true;
    // A search that reaches a new index needs its mapping.
    indices["logs-2"] = { mappings, documents: documents.slice(0, 10) };
    await expect(read("user=u5")).rejects.toMatchObject(denied);
    isRefused = false;
    await expect.poll(() => read("user=u6")).toEqual(["m6", "m6"]);
  });

  test("is no reason to refuse what reads too much without it", async () => {
    let isRefused = true;
    const { read, fits } = await open((path, request, body) => {
      if (body.includes('"range"')) isRefused = false;
      return isRefused && isMappingRequest(path, request) ? status : undefined;
    });
    await expect(read("user=u4", undefined, { documentLimit: 20 })).rejects.toMatchObject(denied);
    expect(await read("user=u4", undefined, { documentLimit: 20 })).toEqual(["m4"]);
    expect(await fits("user=u4", undefined, { documentLimit: 20, expectedLines: 30 })).toBe(true);
  });

  test("is no reason to foresee a refusal", async () => {
    let isRefused = true;
    const { fits } = await open((path, request, body) => {
      if (body.includes('"range"')) isRefused = false;
      return isRefused && isMappingRequest(path, request) ? status : undefined;
    });
    const narrow = { documentLimit: 20, expectedLines: 30 };
    await expect(fits("user=u4", undefined, narrow)).rejects.toMatchObject(denied);
    expect(await fits("user=u4", undefined, narrow)).toBe(true);
  });

  test("for ever refuses what reads too much without it, for good", async () => {
    const { read, fits } = await open((path, request) =>
      isMappingRequest(path, request) ? status : undefined,
    );
    await expect(read("user=u4", undefined, { documentLimit: 20 })).rejects.toMatchObject({
      slug: "result_too_large",
    });
    expect(await fits("user=u4", undefined, { documentLimit: 20, expectedLines: 30 })).toBe(false);
    expect(await read("user=u4")).toEqual(["m4"]);
  });
});

test("a refused version is asked for again, and then known for good", async () => {
  let isRefused = true;
  const roots: string[] = [];
  const { read } = await open((path) => {
    if (path !== "/" && !path.startsWith("/_nodes")) return undefined;
    roots.push(path);
    return isRefused ? 403 : undefined;
  });
  expect(await read("user=u4")).toEqual(["m4"]);
  expect(await read("user=u4")).toEqual(["m4"]);
  expect(roots).toHaveLength(2);
  isRefused = false;
  const start = performance.now();
  vi.spyOn(performance, "now").mockReturnValue(start + 6_000);
  expect(await read("user=u4")).toEqual(["m4"]);
  expect(roots).toHaveLength(3);
  vi.mocked(performance.now).mockReturnValue(start + 600_000);
  expect(await read("user=u4")).toEqual(["m4"]);
  expect(roots).toHaveLength(3);
});

test("a time with doc values only is no final refusal while the version is refused", async () => {
  const { read, indices } = await open((path) =>
    path === "/" || path.startsWith("/_nodes") ? 403 : undefined,
  );
  const properties = { ...mappings.properties, "@timestamp": { type: "date", index: false } };
  indices["logs-1"] = { mappings: { ...mappings, properties }, documents };
  await expect(read("")).rejects.toMatchObject(denied);
});

test("a probe for masked fields that is refused does not pass for an answer", async () => {
  let isRefused = true;
  const auth = { username: "u", password: "p" };
  const { read } = await open(
    (path, _request, body) =>
      isRefused && path.includes("_search") && body.includes('"aggs"') ? 403 : undefined,
    "OpenSearch",
    { auth },
  );
  await expect(read("user=u4")).rejects.toMatchObject(denied);
  isRefused = false;
  expect(await read("user=u4")).toEqual(["m4"]);
});
