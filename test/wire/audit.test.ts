// Each request has its line of the audit log before the last byte of its answer, whatever it asks for and whatever becomes of it.
import { describe, expect, test } from "vitest";
import { type AuditSink, createAuditLog } from "#src/audit/audit-log.ts";
import type { AuditConfig } from "#src/config/edge-settings.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import type { LogStore } from "#src/store/logs.ts";
import { createFakeRateLimiter } from "../support/fake-rate-limiter.ts";
import { createSubject, linesBody, token } from "./harness.ts";

type Line = Readonly<Record<string, unknown>>;

function openAudit(config: Partial<AuditConfig> = {}) {
  const lines: Line[] = [];
  const gate = { wait: async () => {}, isFull: false };
  const sink: AuditSink = {
    append: async (line) => {
      await gate.wait();
      if (gate.isFull) throw new Error("no space");
      lines.push(JSON.parse(line));
    },
    reopen: () => {},
    close: async () => [],
  };
  const audit = createAuditLog({
    config: { key: "k".repeat(16), queries: "text", onFull: "refuse", ...config },
    sink,
    now: () => fromMillis(0),
    onDropped: () => {},
    onState: () => {},
  });
  return { audit, lines, gate };
}

function serve(over: Parameters<typeof createSubject>[0] = {}, config: Partial<AuditConfig> = {}) {
  const { audit, lines, gate } = openAudit(config);
  return { ...createSubject({ ...over, audit }), lines, gate };
}

const as = (bearer: string, id: string, accept = "application/json") => ({
  headers: { authorization: `Bearer ${bearer}`, accept, "x-request-id": id },
});
const lineSelection = `site_id: "shop", source_ids: ["app"], query: "severity=error", pagination: { per_page: 3, order: ASC }`;

test("a page, with what was asked and how much was answered", async () => {
  const { post, lines } = serve();
  const from = "2026-01-15T09:00:00Z";
  const answer = await post(linesBody({ query: "severity=error", from }, { per_page: 3 }), as(token, "r1"));
  const text = await answer.text();
  expect(lines).toMatchObject([
    {
      event: "request",
      request: "r1",
      operation: "logs.lines",
      user: "ana",
      sites: ["shop"],
      from,
      query: "severity=error",
      status: 200,
      decision: "allowed",
      rows: 3,
      bytes: text.length,
    },
  ]);
  expect(lines[0]?.token).toMatch(/^sha256:[0-9a-f]{12}$/);
  expect(JSON.stringify(lines)).not.toContain("line 1");
});

test.each(["application/json", "application/x-ndjson"])(
  "how many documents were read for %s",
  async (accept) => {
    const store: LogStore = {
      // biome-ignore lint/correctness/useYield: an empty answer
      async *lines(query) {
        query.progressed?.(7);
      },
      isWithinLimits: async () => true,
    };
    const { post, lines } = serve({ store });
    await (await post(linesBody(), as(token, "r1", accept))).text();
    expect(lines).toMatchObject([{ status: 200, rows: 0, documents: 7 }]);
  },
);

test.each([
  ["no token", { headers: { "x-request-id": "r1" } }, {}, 401, "denied", undefined],
  ["a wrong token", as("wrong", "r1"), {}, 401, "denied", undefined],
  ["another's site", as(token, "r1"), { site_id: "foreign" }, 404, "denied", ["foreign"]],
  ["a wrong query", as(token, "r1"), { query: "(" }, 422, "refused", ["shop"]],
  ["a wrong body", as(token, "r1"), { query: 5 }, 422, "refused", undefined],
])("%s", async (_, init, body, status, decision, sites) => {
  const { post, lines } = serve();
  expect((await post(linesBody(body), init)).status).toBe(status);
  expect(lines).toMatchObject([
    { event: "request", request: "r1", operation: "logs.lines", status, decision },
  ]);
  expect(lines[0]?.sites).toEqual(sites);
});

test.each(["/api/v2/auth", "/graphql", "/api/mcp/tools"])(
  "whose token is over its rate at %s",
  async (path) => {
    const { server, lines } = serve({ rate: createFakeRateLimiter(() => false) });
    expect((await server.fetch(`http://readout${path}`, as(token, "r1"))).status).toBe(429);
    expect(lines).toMatchObject([{ request: "r1", user: "ana", status: 429, decision: "limited" }]);
    expect(lines[0]?.token).toMatch(/^sha256:[0-9a-f]{12}$/);
  },
);

test("a saved visual, which anybody may ask for, without a user", async () => {
  const { server, lines } = serve();
  await (await server.fetch("http://readout/api/v2/saved_visuals/none", as(token, "r1"))).text();
  expect(lines).toMatchObject([{ request: "r1", operation: "saved_visuals.get", status: 404 }]);
  expect(lines[0]).not.toHaveProperty("user");
  expect(lines[0]).not.toHaveProperty("token");
});

test("a path that is none, and no page for people, and no probe", async () => {
  const { server, lines } = serve();
  for (const path of ["/api/v2/none", "/", "/livez", "/metrics", "/openapi.json"]) {
    await (await server.fetch(`http://readout${path}`)).text();
  }
  expect(lines).toMatchObject([{ operation: "none", status: 404, decision: "denied" }]);
});

test("no preflight of a page's request, but that of a page that may not ask", async () => {
  const [origin, foreign] = ["https://agents.example.com", "https://evil.example"];
  const { server, lines } = serve({ served: { origins: [origin] } });
  const ask = (from: string) =>
    server.fetch("http://readout/mcp", {
      method: "OPTIONS",
      headers: { origin: from, "access-control-request-method": "POST" },
    });
  expect([(await ask(origin)).status, lines]).toEqual([200, []]);
  expect((await ask(foreign)).status).toBe(403);
  expect(lines).toMatchObject([{ operation: "mcp", status: 403, decision: "denied" }]);
});

test("what a limit refuses", async () => {
  const { post, lines } = serve({ limits: { tokenRequests: 0 } });
  expect((await post(linesBody(), as(token, "r1"))).status).toBe(429);
  expect(lines).toMatchObject([{ request: "r1", status: 429, decision: "limited" }]);
});

test.each([
  ["an export", "application/x-ndjson", "logs.ndjson"],
  ["a large page", "application/json", "logs.lines"],
])("%s begins with a line and ends with one", async (_, accept, operation) => {
  const { post, lines, gate } = serve({ lines: 5_000 });
  const answer = await post(linesBody({}, { per_page: 5_000 }), as(token, "r1", accept));
  expect(lines.map(({ event }) => event)).toEqual(["begin"]);
  const ended = Promise.withResolvers<void>();
  gate.wait = () => ended.promise;
  let isRead = false;
  const read = answer.text().then((text) => {
    isRead = true;
    return text;
  });
  // All but the end of the body comes; the end waits for its line.
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect([isRead, lines.length]).toEqual([false, 1]);
  ended.resolve();
  const text = await read;
  expect(lines).toMatchObject([
    { event: "begin", request: "r1", operation, user: "ana", sites: ["shop"] },
    { event: "end", request: "r1", operation, status: 200, rows: 5_000, bytes: text.length },
  ]);
});

function createLine(n: number): LogLine {
  return {
    id: `i/${n}`,
    time: fromMillis(n),
    source_id: "app",
    severity: "info",
    message: "x".repeat(1_000),
    json: "{}",
  } as const;
}

test("a stream whose first line cannot be written is not read on", async () => {
  let isClosed = false;
  const store: LogStore = {
    async *lines() {
      try {
        for (let n = 0; ; n += 1) yield [createLine(n)];
      } finally {
        isClosed = true;
      }
    },
    isWithinLimits: async () => true,
  };
  const { post, gate } = serve({ store });
  gate.isFull = true;
  expect((await post(linesBody({}, { per_page: 10_000 }), as(token, "r1"))).status).toBe(500);
  await expect.poll(() => isClosed).toBe(true);
});

test("an export that is refused a place among the streams has no rows", async () => {
  const { post, lines } = serve({ lines: 5_000, limits: { tokenStreams: 0 } });
  const answer = await post(linesBody(), as(token, "r1", "application/x-ndjson"));
  expect(answer.status).toBe(429);
  const end = lines.find(({ status }) => status === 429);
  expect(end).toMatchObject({ request: "r1", decision: "limited" });
  expect(end).not.toHaveProperty("rows");
});

test("an answer that its client leaves is cut", async () => {
  const { post, lines } = serve({ lines: 5_000 });
  const answer = await post(linesBody({}, { per_page: 5_000 }), as(token, "r1"));
  await answer.body?.cancel();
  await expect.poll(() => lines).toMatchObject([{ event: "begin" }, { event: "end", cut: true }]);
});

test("a tail", async () => {
  const { post, lines } = serve();
  const tailed = await post(linesBody(), as(token, "r1", "text/event-stream"));
  expect(lines).toMatchObject([{ event: "begin", request: "r1", operation: "logs.tail", sites: ["shop"] }]);
  await tailed.body?.cancel();
  await expect.poll(() => lines[1]).toMatchObject({ event: "end", request: "r1", status: 200 });
  // What it reads, it may share with others.
  expect(lines[1]).not.toHaveProperty("documents");
});

test("a query of GraphQL, and each of its operations", async () => {
  const { server, lines } = serve();
  const query = `{ a: logs_lines(${lineSelection}) { id } b: logs_lines(${lineSelection.replace("shop", "foreign")}) { id } }`;
  const answer = await server.fetch("http://readout/graphql", {
    method: "POST",
    headers: { ...as(token, "r1").headers, "content-type": "application/json" },
    body: JSON.stringify({ query }),
  });
  await answer.text();
  const shared = { request: "r1", user: "ana" };
  expect(lines).toHaveLength(3);
  expect(lines).toEqual(
    expect.arrayContaining([
      expect.objectContaining({
        ...shared,
        event: "operation",
        operation: "logs.lines",
        sites: ["shop"],
        status: 200,
        rows: 3,
        query: "severity=error",
      }),
      expect.objectContaining({
        ...shared,
        event: "operation",
        sites: ["foreign"],
        status: 404,
        decision: "denied",
      }),
    ]),
  );
  expect(lines[2]).toMatchObject({ ...shared, event: "request", operation: "graphql", status: 200, query });
});

const toolCall = {
  name: "get_log_lines",
  arguments: { site_id: "shop", source_ids: ["app"], query: "line" },
};

test("a tool of an agent, and its operation", async () => {
  const { server, lines } = serve();
  const answer = await server.fetch("http://readout/api/mcp/tool", {
    method: "POST",
    ...as(token, "r1"),
    body: JSON.stringify(toolCall),
  });
  await answer.text();
  const shared = { request: "r1", user: "ana", status: 200 };
  expect(lines).toMatchObject([
    { ...shared, event: "operation", operation: "logs.lines", sites: ["shop"], query: "line" },
    { ...shared, event: "request", operation: "mcp.call" },
  ]);
});

test.each([
  ["/mcp", { jsonrpc: "2.0", id: 1, method: "tools/call", params: toolCall }, "mcp.call"],
  ["/mcp", { jsonrpc: "2.0", id: 1, method: "ping" }, "mcp"],
  ["/mcp", { jsonrpc: "2.0", id: 1, result: {} }, "mcp"],
  ["/mcp", [1], "mcp"],
  ["/mcp", null, "mcp"],
  ["/api/mcp/tool", { ...toolCall, method: "ping" }, "mcp.call"],
])("a message to %s has the name of what is done: %j", async (path, body, operation) => {
  const { server, lines } = serve();
  const init = { method: "POST", ...as(token, "r1"), body: JSON.stringify(body) };
  await (await server.fetch(`http://readout${path}`, init)).text();
  expect(lines.at(-1)).toMatchObject({ event: "request", operation });
});

test.each([
  ["/graphql", { query: `{ logs_lines(${lineSelection}) { id } }` }],
  ["/api/mcp/tool", toolCall],
])(
  "a request to %s has all its lines or none where a reload switches the log on or off",
  async (path, body) => {
    const ask = ({ server }: ReturnType<typeof createSubject>, id: string) =>
      server.fetch(`http://readout${path}`, {
        method: "POST",
        headers: { ...as(token, id).headers, "content-type": "application/json" },
        body: JSON.stringify(body),
      });
    const { audit, lines } = openAudit();
    const [plain, audited] = [createSubject(), createSubject({ audit })];
    const asked = [ask(plain, "plain"), ask(audited, "audited")];
    const reloads = [plain.server.reload({ ...plain.served, audit }), audited.server.reload(audited.served)];
    const answers = await Promise.all(asked);
    for (const answer of answers) await answer.text();
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    await Promise.all(reloads);
    expect(lines).toMatchObject([
      { event: "operation", request: "audited" },
      { event: "request", request: "audited" },
    ]);
  },
);

describe("where lines cannot be written", () => {
  test("nothing is answered", async () => {
    const { server, post, gate } = serve({ lines: 5_000 });
    gate.isFull = true;
    const sentence = "The audit log cannot be written, and nothing is answered without it";
    const page = await post(linesBody());
    expect([page.status, page.headers.get("retry-after"), await page.json()]).toEqual([
      500,
      "1",
      { error: sentence },
    ]);
    const large = await post(linesBody({}, { per_page: 5_000 }));
    expect([large.status, await large.json()]).toEqual([500, { error: sentence }]);
    const tailed = await post(linesBody(), as(token, "r1", "text/event-stream"));
    expect([tailed.status, await tailed.json()]).toEqual([500, { error: sentence }]);
    const graph = await server.fetch("http://readout/graphql", {
      method: "POST",
      headers: { ...as(token, "r1").headers, "content-type": "application/json" },
      body: JSON.stringify({ query: `{ logs_lines(${lineSelection}) { id } }` }),
    });
    expect([graph.status, JSON.parse(await graph.text()).errors[0].message]).toEqual([500, sentence]);
    expect((await post(linesBody(), as("wrong", "r2"))).status).toBe(401);
  });

  test("a stream that has begun is cut before its end", async () => {
    const { post, gate, lines } = serve({ lines: 5_000 });
    const answer = await post(linesBody({}, { per_page: 5_000 }));
    gate.isFull = true;
    await expect(answer.text()).rejects.toThrow();
    expect(lines).toHaveLength(1);
  });

  test("answers go on where the configuration says so", async () => {
    const { post, gate, lines } = serve({}, { onFull: "drop" });
    gate.isFull = true;
    expect((await post(linesBody())).status).toBe(200);
    gate.isFull = false;
    expect((await post(linesBody())).status).toBe(200);
    expect(lines).toMatchObject([{ event: "request" }, { event: "dropped", lines: 1 }]);
  });
});

test("a request has the same answer with an audit log and without one", async () => {
  const asks = [linesBody(), linesBody({ query: "(" }), linesBody({ site_id: "foreign" })];
  for (const body of asks) {
    const [plain, audited] = await Promise.all([createSubject().post(body), serve().post(body)]);
    expect([audited.status, await audited.text()]).toEqual([plain.status, await plain.text()]);
  }
});
