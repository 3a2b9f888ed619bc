// Every way in which a source fails, and the error that it becomes. An incomplete response with status 200 is the worst of
// them.
import type { ServerResponse } from "node:http";
import { gzipSync } from "node:zlib";
import { afterEach, describe, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import type { BackendError, Failure } from "#src/core/errors.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogQuery } from "#src/store/logs.ts";
import { testIO } from "../../../support/io.ts";
import {
  openScriptedSource,
  type Responder,
  type ScriptedSource,
  sendJson,
} from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const index = {
  "logs-1": {
    mappings: {
      properties: { "@timestamp": { type: "date" }, message: { type: "text" }, k: { type: "keyword" } },
    },
    settings: { index: { number_of_shards: "1", version: { created: "8190899" } } },
  },
};
const answer = (hits: readonly object[], over: object = {}) => ({
  took: 1,
  timed_out: false,
  _shards: { total: 1, successful: 1, skipped: 0, failed: 0 },
  hits: { total: { value: hits.length, relation: "eq" }, hits },
  ...over,
});
const hit = (id: string, ms: number, source: object = {}) => ({
  _index: "logs-1",
  _id: id,
  _source: source,
  sort: [ms],
});

/** Sends JSON with these bytes in the place of the tilde, coded where the header says so. */
function sendBytes(response: ServerResponse, value: object | string, ...bytes: number[]): void {
  const [before = "", behind = ""] = JSON.stringify(value).split("~");
  const body = Buffer.concat([Buffer.from(before), Buffer.from(bytes), Buffer.from(behind)]);
  response.end(response.hasHeader("content-encoding") ? gzipSync(body) : body);
}

let fake: ScriptedSource | undefined;
afterEach(async () => {
  await fake?.close();
  fake = undefined;
});

/** A server with one index; `search` answers `_search`. */
async function serve(
  search: Responder,
  mappings: Responder = (response) => sendJson(response, index),
  root: Responder = (response) => sendJson(response, { version: { number: "8.19.8" } }),
): Promise<ScriptedSource> {
  fake = await openScriptedSource((response, request, body) => {
    const path = request.url ?? "";
    if (path === "/") root(response, request, body);
    else if (path.includes("/_search")) search(response, request, body);
    else mappings(response, request, body);
  });
  return fake;
}

async function read(
  url: string,
  over: Partial<LogQuery> = {},
  signal = never,
  settings: object = {},
): Promise<LogLine[]> {
  const backend = elastic.create("elk", elastic.parseConfig({ url, timeout: "60s", ...settings }), testIO);
  const lines: LogLine[] = [];
  try {
    const query: LogQuery = {
      sources: [{ id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined }],
      range: { from: fromMillis(0), to: fromMillis(1_000_000) },
      filter: parse(""),
      order: "asc",
      expectedLines: 2,
      documentLimit: 1_000,
      tieLimit: 1_000,
      ...over,
    };
    for await (const batch of backend.stores.logs?.lines(query, signal) ?? []) lines.push(...batch);
    return lines;
  } finally {
    await backend.close();
  }
}

describe("log store, failing source", () => {
  const table: readonly (readonly [string, Failure, Responder])[] = [
    [
      "failed shards",
      "partial",
      (r) => sendJson(r, answer([hit("a", 1)], { _shards: { total: 2, failed: 1 } })),
    ],
    ["its own time-out", "partial", (r) => sendJson(r, answer([hit("a", 1)], { timed_out: true }))],
    ["early termination", "partial", (r) => sendJson(r, answer([hit("a", 1)], { terminated_early: true }))],
    [
      "an answer cut inside",
      "malformed",
      (r) => sendJson(r, JSON.stringify(answer([hit("a", 1)])).slice(0, -20)),
    ],
    ["an error with status 200", "malformed", (r) => sendJson(r, { error: "no" })],
    ["a page of HTML", "malformed", (r) => sendJson(r, "<html>")],
    [
      "a hit without a time",
      "malformed",
      (r) => sendJson(r, answer([{ _index: "logs-1", _id: "a", _source: {} }])),
    ],
    [
      "a document that is not JSON",
      "malformed",
      (r) =>
        sendJson(
          r,
          '{"timed_out":false,"_shards":{"total":1,"failed":0},"hits":{"hits":[{"_index":"logs-1","_id":"a","_source":{"message":tru},"sort":[1]}]}}',
        ),
    ],
    [
      "a text that is not UTF-8",
      "malformed",
      (r) => sendBytes(r, answer([hit("a", 1, { message: "caf~" })]), 0xe9),
    ],
    ["a name that is not UTF-8", "malformed", (r) => sendBytes(r, answer([hit("~", 1)]), 0xff)],
    [
      "a surrogate in UTF-8",
      "malformed",
      (r) => sendBytes(r, answer([hit("a", 1, { message: "~" })]), 0xed, 0xa0, 0x80),
    ],
    [
      "a coded text that is not UTF-8",
      "malformed",
      (r) => sendBytes(r.setHeader("content-encoding", "gzip"), answer([hit("~", 1)]), 0xff),
    ],
    ["400", "rejected", (r) => sendJson(r, { error: "secret" }, 400)],
    ["403 whose text is not UTF-8", "denied", (r) => sendBytes(r.writeHead(403), "~", 0xe9)],
    ["401", "denied", (r) => sendJson(r, {}, 401)],
    ["403", "denied", (r) => sendJson(r, {}, 403)],
    ["429", "overloaded", (r) => sendJson(r, {}, 429)],
    ["503", "overloaded", (r) => sendJson(r, {}, 503)],
    [
      "503 for too many buckets",
      "rejected",
      (r) => sendJson(r, { error: { type: "too_many_buckets_exception" } }, 503),
    ],
    ["502", "unreachable", (r) => sendJson(r, {}, 502)],
    ["504", "timeout", (r) => sendJson(r, {}, 504)],
    ["500", "rejected", (r) => sendJson(r, {}, 500)],
    ["silence", "timeout", () => undefined],
    ["a broken connection", "unreachable", (r) => r.destroy()],
  ];
  test.each(table)("reports %s as %s", async (name, failure, reply) => {
    const { url } = await serve(reply);
    const error = await read(url, {}, undefined, name === "silence" ? { timeout: "400ms" } : {}).then(
      (lines) => lines,
      (thrown: unknown) => thrown as BackendError,
    );
    expect(error).toMatchObject({ name: "BackendError", backend: "elk", failure });
  });

  test("reports a mapping and a version that are not UTF-8 as malformed", async () => {
    const hits: Responder = (response) => sendJson(response, answer([hit("a", 1)]));
    const named = { "logs-1": { ...index["logs-1"], aliases: { "~": {} } } };
    const broken = await serve(hits, (response) => sendBytes(response, named, 0xff));
    await expect(read(broken.url)).rejects.toMatchObject({ failure: "malformed" });
    await broken.close();
    const { url } = await serve(hits, undefined, (response) =>
      sendBytes(response, { version: { number: "8.19.8" }, name: "~" }, 0xff),
    );
    await expect(read(url)).rejects.toMatchObject({ failure: "malformed" });
  });

  test("reports a refused connection as unreachable", async () => {
    const { url } = await serve(() => undefined);
    await fake?.close();
    await expect(read(url)).rejects.toMatchObject({ failure: "unreachable" });
  });

  test.each([
    [1, 2],
    [2, 2],
  ])("sends a search once more after a 500, as it is (%d failures)", async (failures, searches) => {
    let left = failures;
    const { url, requests } = await serve((r) =>
      left-- > 0 ? sendJson(r, {}, 500) : sendJson(r, answer([hit("a", 1, { k: "x" })])),
    );
    const asked = read(url, { filter: parse("k=x") });
    if (failures < searches) expect(await asked).toHaveLength(1);
    else await expect(asked).rejects.toMatchObject({ failure: "rejected", status: 500 });
    const sent = requests.filter(({ path }) => path.includes("_search"));
    expect(sent).toHaveLength(searches);
    expect(sent.every(({ body }) => body.includes('"k"'))).toBe(true);
  });

  test("retries a read once after a broken connection", async () => {
    let tries = 0;
    const { url } = await serve((r) => (tries++ === 0 ? r.destroy() : sendJson(r, answer([hit("a", 1)]))));
    expect(await read(url)).toHaveLength(1);
    expect(tries).toBe(2);
  });
});

describe("log store", () => {
  test.each(["Elasticsearch", "OpenSearch"])(
    "aborts the request at the source when the client leaves, %s",
    async (name) => {
      const leaving = new AbortController();
      const uncaught: unknown[] = [];
      const catchIt = (error: unknown) => uncaught.push(error);
      process.on("uncaughtException", catchIt);
      const { url } = await serve(
        () => leaving.abort(new Error("left")),
        undefined,
        (response) => {
          const distribution = name === "OpenSearch" ? "opensearch" : undefined;
          sendJson(response, { version: { number: "3.8.0", distribution } });
        },
      );
      await expect(read(url, {}, leaving.signal)).rejects.toThrow("left");
      await expect.poll(() => fake?.left).toBe(1);
      await new Promise((resolve) => setTimeout(resolve, 20));
      process.off("uncaughtException", catchIt);
      expect(uncaught).toEqual([]);
    },
  );

  test("reads a response that is compressed unasked", async () => {
    const { url } = await serve((response) => {
      response.writeHead(200, {
        "content-type": "application/json",
        "content-encoding": "gzip",
        "x-elastic-product": "Elasticsearch",
      });
      response.end(gzipSync(JSON.stringify(answer([hit("a", 1, { message: "é" })]))));
    });
    expect(await read(url)).toMatchObject([{ id: "logs-1/a", message: "é", json: '{"message":"é"}' }]);
  });

  test("verifies every document when mappings may not be read", async () => {
    const hits = [hit("a", 1, { k: "x" }), hit("b", 2, { k: "y" })];
    const { url, requests: asked } = await serve(
      (response) =>
        sendJson(
          response,
          answer(hits.map((one) => ({ ...one, sort: [`${one.sort[0]}000000`].map(Number) }))),
        ),
      (response) => sendJson(response, {}, 403),
    );
    expect(await read(url, { filter: parse("k=x"), expectedLines: 5 })).toMatchObject([{ id: "logs-1/a" }]);
    const sent =
      asked.find(({ path, body }) => path.includes("_search") && body.includes('"range"'))?.body ?? "";
    expect(sent).not.toContain('"term"');
    expect(sent).toContain('"date_nanos"');
  });

  test("refuses times beyond nanoseconds when mappings may not be read", async () => {
    let outside: readonly object[] = [];
    const { url, requests: asked } = await serve(
      (response, _request, body) =>
        sendJson(response, answer(body.includes('"lt"') ? outside : [{ ...hit("a", 1), sort: [1_000_000] }])),
      (response) => sendJson(response, {}, 403),
    );
    const range = { from: fromMillis(-1), to: fromMillis(2) };
    expect(await read(url, { range, expectedLines: 5 })).toMatchObject([{ id: "logs-1/a" }]);
    outside = [hit("old", -1)];
    await expect(read(url, { range, expectedLines: 5 })).rejects.toMatchObject({
      slug: "not_supported_by_backend",
    });
    const looked = asked.filter(({ body }) => body.includes('"lt"')).length;
    expect(await read(url, { range: { ...range, from: fromMillis(0) }, expectedLines: 5 })).toHaveLength(1);
    expect(asked.filter(({ body }) => body.includes('"lt"'))).toHaveLength(looked);
  });

  test("recompiles the query for an index that the mapping did not know", async () => {
    let grown = false;
    const { url } = await serve(
      (response, _request, body) => {
        const known = body.includes("logs-2");
        const shards = { total: grown ? 2 : 1, failed: 0 };
        const foreign = { ...hit("b", 2, { k: "other" }), _index: "logs-2" };
        sendJson(
          response,
          answer([hit("a", 1, { k: "x" }), ...(grown && !known ? [foreign] : [])], { _shards: shards }),
        );
      },
      (response) => {
        sendJson(response, grown ? { ...index, "logs-2": index["logs-1"] } : index);
        grown = true;
      },
    );
    expect(await read(url, { filter: parse("k=x") })).toMatchObject([{ id: "logs-1/a" }]);
  });

  test("detects the product from the root, from the nodes, or from neither", async () => {
    const answers: Record<string, (response: Parameters<Responder>[0]) => void> = {};
    fake = await openScriptedSource((response, request) => {
      const reply = answers[(request.url ?? "").split("?")[0] ?? ""];
      if (reply === undefined) sendJson(response, {}, 403);
      else reply(response);
    });
    const probe = async () => {
      const backend = elastic.create("elk", elastic.parseConfig({ url: fake?.url }), testIO);
      try {
        return await backend.probe(never);
      } finally {
        await backend.close();
      }
    };
    expect(await probe()).toEqual({ product: "Elasticsearch", version: "unknown" });
    answers["/_nodes/_local"] = (response) => sendJson(response, { nodes: { n1: { version: "9.2.0" } } });
    expect(await probe()).toEqual({ product: "Elasticsearch", version: "9.2.0" });
    answers["/"] = (response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end('{"version":{"number":"3.8.0","distribution":"opensearch"}}');
    };
    expect(await probe()).toEqual({ product: "OpenSearch", version: "3.8.0" });
  });
});

describe.each(["elasticsearch", "opensearch"])("credentials sent to %s", (distribution) => {
  test.each([
    [{ username: "ana", password: "p:w" }, `Basic ${Buffer.from("ana:p:w").toString("base64")}`],
    [{ api_key: "a2V5OnNlY3JldA==" }, "ApiKey a2V5OnNlY3JldA=="],
    [{ bearer: "token" }, "Bearer token"],
  ])("sends %j in every request", async (auth, header) => {
    const seen = new Map<string, string | undefined>();
    fake = await openScriptedSource((response, request) => {
      const path = (request.url ?? "").split("?")[0] ?? "";
      seen.set(path, `${request.headers.authorization} ${request.headers["x-scope-orgid"]}`);
      if (request.headers.authorization !== header) sendJson(response, {}, 401);
      else if (path === "/") sendJson(response, { version: { number: "8.0.0", distribution } });
      else sendJson(response, path.endsWith("/_search") ? answer([hit("a", 1)]) : index);
    });
    const { url } = fake;
    expect(await read(url, {}, undefined, { auth, headers: { "X-Scope-OrgID": "acme" } })).toHaveLength(1);
    const sent = `${header} acme`;
    expect(Object.fromEntries(seen)).toEqual({ "/": sent, "/logs-*": sent, "/logs-*/_search": sent });
    await expect(read(url, {}, undefined, { auth: { bearer: "wrong" } })).rejects.toMatchObject({
      failure: "denied",
    });
  });
});
