// Pages in a browser that ask as agents do: what the browser asks first, and what it lets the page read.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createDemo, type Demo, token } from "../support/demo-server.ts";

const allowed = "https://agents.example.com";
const foreign = "https://evil.example";
let demo: Demo;
beforeAll(async () => {
  demo = await createDemo({ origins: [allowed] });
});
afterAll(() => demo.close());

const ask = (path: string, method: string, headers: Record<string, string>, body?: string) =>
  demo.server.fetch(`http://readout${path}`, { method, headers, ...(body === undefined ? {} : { body }) });
const readers = (response: Response) =>
  ["access-control-allow-origin", "access-control-expose-headers", "vary"].map((name) =>
    response.headers.get(name),
  );
const readable = [allowed, "WWW-Authenticate, Retry-After, X-Request-Id", "Origin"];
const unreadable = [null, null, "Origin"];
const ping = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" });
const authorization = `Bearer ${token}`;

describe.each(["before GraphQL is loaded", "afterwards"])("%s", (moment) => {
  beforeAll(async () => {
    if (moment === "afterwards") await demo.graphql("{ __typename }");
  });

  test.each([
    ["/mcp", "POST"],
    ["/api/mcp", "POST"],
    ["/api/mcp/tool", "POST"],
    ["/api/mcp/tools", "GET"],
  ])("a browser may ask before a page of an allowed origin does: %s", async (path, method) => {
    const wanted = "authorization,content-type,mcp-protocol-version";
    const asked = {
      "access-control-request-method": method,
      "access-control-request-headers": wanted,
    };
    const answer = await ask(path, "OPTIONS", { ...asked, origin: allowed });
    expect([answer.status, await answer.text(), ...readers(answer)]).toEqual([200, "", ...readable]);
    expect(answer.headers.get("access-control-allow-methods")).toBe(method);
    expect(answer.headers.get("access-control-allow-headers")).toBe(wanted);
    expect(answer.headers.get("access-control-allow-credentials")).toBeNull();
    const refused = await ask(path, "OPTIONS", { ...asked, origin: foreign });
    expect([refused.status, ...readers(refused)]).toEqual([403, ...unreadable]);
    expect((await ask(path, "OPTIONS", {})).status).toBe(405);
  });

  test.each([
    ["/mcp", "POST", { authorization }, ping, 200],
    ["/api/mcp/tools", "GET", { authorization }, undefined, 200],
    ["/mcp", "POST", {}, ping, 401],
    ["/mcp", "POST", { authorization }, "{", 422],
    ["/mcp", "GET", { authorization }, undefined, 405],
    ["/api/mcp/nothing", "GET", { authorization }, undefined, 404],
  ])("such a page reads what it is answered: %s %s %j %s %d", async (path, method, headers, body, status) => {
    const own = await ask(path, method, { ...headers, origin: allowed }, body);
    expect([own.status, ...readers(own)]).toEqual([status, ...readable]);
    const other = await ask(path, method, { ...headers, origin: foreign }, body);
    expect([other.status, ...readers(other)]).toEqual([403, ...unreadable]);
    const program = await ask(path, method, headers, body);
    expect([program.status, ...readers(program)]).toEqual([status, ...unreadable]);
  });

  test("other answers name no origin", async () => {
    const answer = await ask("/api/v2/sites", "GET", { authorization, origin: allowed });
    expect(answer.headers.get("access-control-allow-origin")).toBeNull();
  });
});
