// `readout mcp` between an official client on one side and a server over a real connection on the other.
import { PassThrough } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { run } from "#src/cli/mcp.ts";
import { createDemo, type Demo, token } from "../support/demo-server.ts";
import { createShell, toInstant } from "../support/fake-shell.ts";
import { openScriptedSource, sendJson } from "../support/scripted-http-source.ts";

let demo: Demo;
let address: string;
beforeAll(async () => {
  demo = await createDemo();
  const { port } = await demo.server.listen({ host: "127.0.0.1", port: 0 });
  address = `http://127.0.0.1:${port}`;
});
afterAll(async () => {
  await demo.server.close(0);
  await demo.close();
});

const now = toInstant("2026-01-15T12:00:00Z");

/** What is answered to these messages, by their ids. */
async function exchange(messages: readonly (object | string)[], given: { url?: string; as?: string } = {}) {
  const input = new PassThrough();
  const shell = createShell({ now, env: { READOUT_TOKEN: given.as ?? token }, input });
  const running = run(["--url", given.url ?? address], shell);
  for (const message of messages) {
    input.write(`${typeof message === "string" ? message : JSON.stringify(message)}\n`);
    await delay(10);
  }
  input.end();
  expect(await running).toBe(0);
  const lines = shell.printed().split("\n").filter(Boolean);
  return new Map(lines.map((line) => JSON.parse(line)).map((answer) => [answer.id, answer]));
}

const initialize = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "editor", version: "1" } },
};
const call = (id: number, name: string, args: object) => ({
  jsonrpc: "2.0",
  id,
  method: "tools/call",
  params: { name, arguments: args },
});

test("answers each message by its id, and notifications by nothing", async () => {
  const answers = await exchange([
    initialize,
    { jsonrpc: "2.0", method: "notifications/initialized" },
    call(2, "get_applications", {}),
    call(3, "get_log_lines", { app_name: "demo-shop", per_page: 2 }),
    "",
    call(4, "drop_tables", {}),
  ]);
  expect([...answers.keys()].sort()).toEqual([1, 2, 3, 4]);
  expect(answers.get(1).result.protocolVersion).toBe("2025-06-18");
  expect(answers.get(2).result.structuredContent.rows).toHaveLength(2);
  expect(answers.get(3).result.structuredContent.rows).toHaveLength(2);
  expect(answers.get(4).error.code).toBe(-32_602);
});

const _meta = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientInfo": { name: "editor", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};
const callModern = (id: number, name: string) => ({
  jsonrpc: "2.0",
  id,
  method: "tools/call",
  params: { name, arguments: {}, _meta },
});

test("speaks the revision that a message names", async () => {
  const answers = await exchange([
    { jsonrpc: "2.0", id: 4, method: "server/discover", params: { _meta } },
    callModern(5, "get_applications"),
  ]);
  expect(answers.get(4).result.capabilities.tools).toBeDefined();
  expect(answers.get(5).result.structuredContent.rows).toHaveLength(2);
});

test("hands over names that a header cannot hold as they are", async () => {
  const names = ["Ω名", "ü", " a ", "", "=?base64?YQ==?="];
  const answers = await exchange(names.map((name, at) => callModern(at + 10, name)));
  for (const [at, name] of names.entries()) {
    const { error } = answers.get(at + 10);
    expect(error, name).toMatchObject({ code: -32_602 });
  }
});

test("hands over what is no parameters, for the server to refuse", async () => {
  const answers = await exchange([
    { jsonrpc: "2.0", id: 20, method: "tools/list", params: null },
    { jsonrpc: "2.0", id: 21, method: "tools/call", params: { _meta: null } },
    { jsonrpc: "2.0", id: 23, method: "名", params: { _meta } },
  ]);
  const codes = Object.fromEntries([...answers].map(([id, { error }]) => [id, error.code]));
  // The last one is "header mismatch": no header names such a method.
  expect(codes).toEqual({ 20: -32_600, 21: -32_600, 23: -32_020 });
});

test("takes U+2028 and U+2029 within a message, a message in several pieces, and each end of a line", async () => {
  const input = new PassThrough();
  const shell = createShell({ now, env: { READOUT_TOKEN: token }, input });
  const running = run(["--url", address], shell);
  const query = 'message:"line\u2028sep\u2029é"';
  const bytes = Buffer.from(
    [initialize, call(2, "explain", { tool: "get_log_lines", arguments: { app_name: "demo-shop", query } })]
      .map((message) => JSON.stringify(message))
      .join("\r\n"),
  );
  for (const byte of bytes) input.write(Buffer.of(byte));
  input.end();
  expect(await running).toBe(0);
  const answers = shell.printed().trim().split("\n");
  expect(answers).toHaveLength(2);
  expect(JSON.parse(answers[1] ?? "").result.isError).toBeUndefined();
  expect(answers[1]).toContain("\u2028");
});

test("prints the data of each event, where a gateway makes a stream of an answer", async () => {
  const gateway = await openScriptedSource((response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(
      'event: message\r\ndata: {"jsonrpc":"2.0","id":2,\r\ndata: "result":"a\u2028b"}\r\n\r\n: end\n\n',
    );
  });
  const answers = await exchange([call(2, "get_applications", {})], { url: gateway.url });
  await gateway.close();
  expect([...answers.values()]).toEqual([{ jsonrpc: "2.0", id: 2, result: "a\u2028b" }]);
});

test("answers a message of the revision 2026-07-28 while one before it is open", async () => {
  const held: (() => void)[] = [];
  const source = await openScriptedSource((response, _, body) => {
    const { id } = JSON.parse(body);
    held.push(() => sendJson(response, { jsonrpc: "2.0", id, result: {} }));
    if (held.length === 2) for (const answer of held) answer();
  });
  const answers = await exchange([callModern(1, "slow"), callModern(2, "quick")], { url: source.url });
  await source.close();
  expect([...answers.keys()]).toEqual([1, 2]);
});

test.each([
  ["2025-06-18", call(7, "slow", {})],
  ["2026-07-28", callModern(7, "slow")],
])("ends a request that a client of %s cancels, without an answer", async (_, slow) => {
  const input = new PassThrough();
  const send = (message: object) => input.write(`${JSON.stringify(message)}\n`);
  const cancelled = { jsonrpc: "2.0", method: "notifications/cancelled" };
  const gone = Promise.withResolvers<void>();
  const source = await openScriptedSource((response) => {
    response.once("close", gone.resolve);
    send({ ...cancelled, params: { requestId: "7" } });
    send({ ...cancelled, params: { requestId: 7 } });
  });
  const shell = createShell({ now, env: { READOUT_TOKEN: token }, input });
  const running = run(["--url", source.url], shell);
  send(slow);
  await gone.promise;
  input.end();
  expect(await running).toBe(0);
  await source.close();
  expect(source.left).toBe(1);
  expect(source.requests).toHaveLength(1);
  expect(shell.printed() + shell.complained()).toBe("");
});

test("answers failures as failures of their message", async () => {
  const refused = await exchange([initialize], { as: "wrong" });
  expect(refused.get(1).error.message).toContain("401");
  expect(JSON.stringify(refused.get(1))).not.toContain("wrong");
  const absent = await exchange([initialize, "no json"], { url: "http://127.0.0.1:9" });
  expect(absent.get(1).error.code).toBe(-32_603);
  expect(absent.get(null).error.code).toBe(-32_700);
});

test("says why a server cannot be reached", async () => {
  const source = await openScriptedSource(() => {});
  await source.close();
  const answers = await exchange([initialize], { url: source.url });
  expect(answers.get(1).error.message).toBe("fetch failed (ECONNREFUSED)");
});

test.each([
  "http://user:rdt_secret@127.0.0.1:1",
  "http://rdt_secret@127.0.0.1:1",
  "ftp://user:rdt_secret@127.0.0.1",
])("takes no address with a password, and repeats none: %s", async (url) => {
  const shell = createShell({ now, env: { READOUT_TOKEN: token } });
  expect(await run(["--url", url], shell)).toBe(2);
  expect(shell.complained()).toMatch(/^mcp: --url (?:takes no user and password|is no address)/);
  expect(shell.complained() + shell.printed()).not.toContain("rdt_secret");
});

test.each([
  ["no json", -32_700],
  ['{ "jsonrpc"', -32_700],
  ["null", -32_600],
  ["5", -32_600],
  ["{}", -32_600],
])("answers %s, which is no message, with %d", async (line, code) => {
  const answers = await exchange([initialize, line]);
  expect(answers.get(null).error.code).toBe(code);
  expect(answers.get(null).error.message).not.toMatch(/undefined|properties|token/);
});

test.each(["rdt_secret\nx", "rdt_secret\r\nx", "rdt_secret…"])(
  "takes no token %j, and repeats none",
  async (token) => {
    const shell = createShell({ now, env: { READOUT_TOKEN: token } });
    expect(await run(["--url", address], shell)).toBe(2);
    expect(shell.complained()).toContain("READOUT_TOKEN is no token");
    expect(shell.complained() + shell.printed()).not.toContain("rdt_secret");
  },
);

test("a line break after the token is none of it", async () => {
  expect((await exchange([initialize], { as: `${token}\n` })).get(1).result).toBeDefined();
});

test.each([
  [["--url", "localhost"], { READOUT_TOKEN: "t" }, "is no address"],
  [[], {}, "READOUT_TOKEN is not set"],
  [["--nope"], { READOUT_TOKEN: "t" }, "expected --url ADDRESS and nothing else"],
  [["http://me:secret@host/"], { READOUT_TOKEN: "t" }, "expected --url ADDRESS and nothing else"],
])("is not started by %j", async (args, env, sentence) => {
  const shell = createShell({ now, env });
  expect(await run(args, shell)).toBe(2);
  expect(shell.complained()).toContain(sentence);
  expect(shell.complained()).not.toContain("secret");
});
