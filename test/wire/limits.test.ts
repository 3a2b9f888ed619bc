// Each limit of the server: its answer, the recovery after it, and its count in /metrics.
import { connect } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { defaults } from "#src/config/schema.ts";
import { failures } from "#src/core/errors.ts";
import { fromMillis } from "#src/core/time.ts";
import { anonymousPrincipal } from "#src/operations/runtime/executor.ts";
import type { LogStore } from "#src/store/logs.ts";
import { createFakeRateLimiter } from "../support/fake-rate-limiter.ts";
import { base, createSubject, linesBody, linesPath, openWaitingStore, otherToken, token } from "./harness.ts";

const origin = "http://readout";
const as = (user: string): RequestInit => ({ headers: { authorization: `Bearer ${user}` } });

const readQuota = ({ headers }: Response) =>
  ["Limit", "Remaining", "Reset", "Policy"].map((name) => headers.get(`ratelimit-${name}`));

/** Nothing is under way. The rate is measured by the program, which has the limiter. */
const unused = Object.fromEntries(
  [
    "requests",
    "token_requests",
    "backend_share",
    "streams",
    "token_streams",
    "tails",
    "token_tails",
    "tail_comparisons",
    "token_tail_comparisons",
    "bodies",
    "token_bodies",
    "held",
    "token_held",
    "connections",
    "address_connections",
  ].map((limit) => [limit, 0]),
);

describe("limits of one token", () => {
  test("refuse a further concurrent request with Retry-After and admit other tokens", async () => {
    const { store, seen, end } = openWaitingStore();
    const { post, limited } = createSubject({ store, limits: { tokenRequests: 2 } });
    const first = [post(linesBody()), post(linesBody())];
    await expect.poll(() => seen.begun).toBe(2);
    const refused = await post(linesBody());
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "1"]);
    expect(readQuota(refused)).toEqual(["2", "0", "1", '"token_requests";q=2;qu="concurrent-requests"']);
    expect(await refused.json()).toEqual({ error: "Too many requests" });
    const other = post(linesBody(), as(otherToken));
    await expect.poll(() => seen.begun).toBe(3);
    end();
    expect((await Promise.all([...first, other])).map(({ status }) => status)).toEqual([200, 200, 200]);
    expect((await post(linesBody())).status).toBe(200);
    expect(await limited()).toEqual({ token_requests: 1 });
  });

  test.each([linesPath, "/graphql"])("count from admission on: unfinished bodies of %s", async (path) => {
    const { server, post, limited } = createSubject({ limits: { requests: 4, tokenRequests: 2 } });
    const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
    const query = '{"query":"{ viewer { id } }"}';
    const ask = (user: string) =>
      fetch(`http://127.0.0.1:${port}${path}`, {
        method: "POST",
        headers: { authorization: `Bearer ${user}`, "content-type": "application/json" },
        body: path === linesPath ? JSON.stringify(linesBody()) : query,
      });
    // Loads GraphQL, so that the bodies below are read within it.
    if (path === "/graphql") expect((await ask(token)).status).toBe(200);
    const head = `POST ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{`;
    const stalled = Array.from({ length: 10 }, () => {
      const socket = connect(port, "127.0.0.1").on("error", () => {});
      const seen = { text: "" };
      socket.setEncoding("utf8").on("data", (chunk: string) => {
        seen.text += chunk;
      });
      socket.write(head);
      return { socket, seen };
    });
    // Two wait for their bodies, all others are told so within a second.
    const refused = () => stalled.filter(({ seen }) => seen.text.startsWith("HTTP/1.1 429 "));
    await expect.poll(() => refused().length).toBe(8);
    for (const { seen } of refused()) expect(seen.text).toMatch(/^Retry-After: 1\r$/m);
    expect((await ask(token)).status).toBe(429);
    for (let turn = 0; turn < 5; turn += 1) expect((await ask(otherToken)).status).toBe(200);
    for (const { socket } of stalled) socket.destroy();
    await expect.poll(async () => (await ask(token)).status).toBe(200);
    expect((await post(linesBody())).status).toBe(200);
    expect((await limited()).token_requests).toBeGreaterThanOrEqual(9);
    await server.close(0);
  });

  test("bound concurrent streamed answers", async () => {
    const { post, limited } = createSubject({ lines: 3_000, limits: { tokenStreams: 1 } });
    const big = linesBody({}, { per_page: 3_000 });
    const first = await post(big);
    const refused = await post(big);
    expect(refused.status).toBe(429);
    expect(readQuota(refused)).toEqual(["1", "0", "1", '"token_streams";q=1;qu="concurrent-requests"']);
    // A small answer is no stream.
    expect((await post(linesBody())).status).toBe(200);
    const other = await post(big, as(otherToken));
    expect(await other.json()).toHaveLength(3_000);
    expect(await first.json()).toHaveLength(3_000);
    expect(await (await post(big)).json()).toHaveLength(3_000);
    expect(await limited()).toEqual({ token_streams: 1 });
  });

  test("bound the request rate", async () => {
    const { post, limited } = createSubject({ rate: createFakeRateLimiter(() => false) });
    const refused = await post(linesBody());
    expect(refused.status).toBe(429);
    expect(readQuota(refused)).toEqual(["20", "0", "1", '"rate";q=20;w=10']);
    expect(await limited()).toEqual({ rate: 1 });
  });

  test("say no quota where a wrong token or another refusal is the reason", async () => {
    const { post } = createSubject({ limits: { requests: 0 } });
    expect(readQuota(await post(linesBody(), as("wrong")))).toEqual([null, null, null, null]);
    const overloaded = await post(linesBody());
    expect([overloaded.status, ...readQuota(overloaded)]).toEqual([500, null, null, null, null]);
  });

  test("say the same in an error of GraphQL", async () => {
    const { server } = createSubject({ limits: { tokenRequests: 0 } });
    const answer = await server.fetch(`${origin}/graphql`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: '{"query":"{ auth { message } }"}',
    });
    expect(await answer.json()).toMatchObject({
      errors: [
        {
          message: "Too many requests",
          extensions: {
            status: 429,
            retry_after: 1,
            rate_limit: '"token_requests";q=0;qu="concurrent-requests"',
          },
        },
      ],
    });
  });
});

describe("how near each limit is", () => {
  test("is in the metrics, of a token's limits by the token nearest to them", async () => {
    const { store, seen, end } = openWaitingStore();
    const { post, used } = createSubject({ store, limits: { requests: 10, tokenRequests: 4 } });
    expect(await used()).toEqual(unused);
    const asked = [
      post(linesBody()),
      post(linesBody()),
      post(linesBody()),
      post(linesBody(), as(otherToken)),
    ];
    await expect.poll(() => seen.begun).toBe(4);
    expect(await used()).toEqual({ ...unused, requests: 0.4, token_requests: 0.75, backend_share: 0.4 });
    end();
    await Promise.all(asked);
    expect(await used()).toEqual(unused);
  });

  test("is what it was when a query of GraphQL has been answered", async () => {
    const { server, used } = createSubject({ lines: 3, limits: { requests: 10, tokenRequests: 4 } });
    // Operations behind the first wait until there is a slot.
    const read = (name: string) =>
      `${name}: logs_lines(site_id: "shop", source_ids: ["app"], query: "", pagination: { per_page: 3, order: ASC }) { id }`;
    const answer = await server.fetch("http://readout/graphql", {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ query: `{ ${read("a")} ${read("b")} ${read("c")} }` }),
    });
    expect(await answer.json()).toMatchObject({ data: { a: [{}, {}, {}], c: [{}, {}, {}] } });
    expect(await used()).toEqual(unused);
  });

  test("counts streamed answers, tails, bodies and connections", async () => {
    const tail = { ...defaults.limits.tail, maxOpen: 8, perToken: 4 };
    const { server, post, used } = createSubject({
      lines: 3_000,
      limits: { streams: 10, tokenStreams: 4, connections: 20, addressConnections: 10, tail },
    });
    const streamed = await post(linesBody({}, { per_page: 3_000 }));
    expect(await used()).toMatchObject({ streams: 0.1, token_streams: 0.25 });
    await streamed.json();
    const headers = { authorization: `Bearer ${token}`, accept: "text/event-stream" };
    const tailed = await post(linesBody(), { headers });
    expect(await used()).toMatchObject({ tails: 0.125, token_tails: 0.25, streams: 0, token_streams: 0 });
    await tailed.body?.cancel();
    const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
    const head = `POST ${linesPath} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Length: 900\r\n\r\n{`;
    const socket = connect(port, "127.0.0.1").on("error", () => {});
    socket.write(head);
    await expect.poll(async () => (await used()).bodies).toBeGreaterThan(0);
    const { bodies = 0, token_bodies: own, ...others } = await used();
    expect(own).toBe(2 * bodies);
    expect(others).toMatchObject({ connections: 0.05, address_connections: 0.1 });
    socket.destroy();
    await expect.poll(used).toEqual(unused);
    await server.close(0);
  });

  test("counts no connection of a proxy for its address", async () => {
    const { server, used } = createSubject({ proxies: ["127.0.0.1"], limits: { connections: 20 } });
    const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
    const socket = connect(port, "127.0.0.1");
    await expect.poll(async () => (await used()).connections).toBe(0.05);
    expect((await used()).address_connections).toBe(0);
    socket.destroy();
    await server.close(0);
  });
});

/** On a loaded machine a second may pass without a turn. */
const slotWait = 30_000;

describe("a request without a slot", () => {
  test("waits for a moment, and is answered when one is free", async () => {
    const { store, seen, end } = openWaitingStore();
    const { post, limited } = createSubject({ store, limits: { requests: 1, tokenRequests: 1 }, slotWait });
    const asked = [post(linesBody()), post(linesBody(), as(otherToken))];
    await expect.poll(() => seen.begun).toBe(1);
    end();
    expect((await Promise.all(asked)).map(({ status }) => status)).toEqual([200, 200]);
    expect(await limited()).toEqual({});
  });

  test("comes after those of tokens that hold fewer", async () => {
    const order: string[] = [];
    const held: (() => void)[] = [];
    const store: LogStore = {
      async *lines() {
        await new Promise<void>((resolve) => held.push(resolve));
      },
      isWithinLimits: async () => true,
    };
    const { post } = createSubject({ store, limits: { requests: 2, tokenRequests: 2 }, slotWait });
    const ask = async (name: string, init?: RequestInit) => {
      const { status } = await post(linesBody(), init);
      order.push(`${name} ${status}`);
    };
    const asked = [ask("first"), ask("second"), ask("third")];
    await expect.poll(() => held.length).toBe(2);
    asked.push(ask("other", as(otherToken)));
    await new Promise(setImmediate);
    held[0]?.();
    await expect.poll(() => held.length).toBe(3);
    held[2]?.();
    await expect.poll(() => held.length).toBe(4);
    for (const end of held) end();
    await Promise.all(asked);
    expect(order.slice(0, 2)).toEqual(["first 200", "other 200"]);
    expect(order.slice(2).sort()).toEqual(["second 200", "third 200"]);
  });

  test("is refused at once where as many wait as may be under way", async () => {
    const { store, seen, end } = openWaitingStore();
    const { post, limited } = createSubject({ store, limits: { requests: 8, tokenRequests: 2 }, slotWait });
    const statuses: number[] = [];
    const asked = Array.from({ length: 6 }, async () => {
      const { status } = await post(linesBody());
      statuses.push(status);
    });
    await expect.poll(() => statuses).toEqual([429, 429]);
    expect(seen.begun).toBe(2);
    end();
    await Promise.all(asked);
    expect(statuses).toEqual([429, 429, 200, 200, 200, 200]);
    expect(await limited()).toEqual({ token_requests: 2 });
  });

  test("leaves with its client, and takes none", async () => {
    const { store, seen, end } = openWaitingStore();
    const { post } = createSubject({ store, limits: { requests: 1 } });
    const first = post(linesBody());
    await expect.poll(() => seen.begun).toBe(1);
    const leaving = new AbortController();
    const left = post(linesBody(), { signal: leaving.signal });
    leaving.abort(new Error("the client left"));
    await Promise.allSettled([left]);
    end();
    expect((await first).status).toBe(200);
    expect((await post(linesBody())).status).toBe(200);
    expect(seen.begun).toBe(2);
  });
});

describe("limits of the server", () => {
  test("bound concurrent requests and streams", async () => {
    const { store, seen, end } = openWaitingStore();
    const one = createSubject({ store, limits: { requests: 1 } });
    const first = one.post(linesBody());
    await expect.poll(() => seen.begun).toBe(1);
    expect((await one.post(linesBody())).status).toBe(500);
    end();
    await first;
    expect(await one.limited()).toEqual({ requests: 1 });
    const { post, limited } = createSubject({ lines: 3_000, limits: { streams: 1 } });
    const big = linesBody({}, { per_page: 3_000 });
    const streamed = await post(big);
    expect((await post(big)).status).toBe(500);
    await streamed.json();
    expect(await limited()).toEqual({ streams: 1 });
  });

  test("bound the time of a request", async () => {
    const { post, limited } = createSubject({ store: openWaitingStore().store, limits: { deadline: 20 } });
    expect(await (await post(linesBody())).json()).toEqual({ error: failures.timeout });
    expect(await limited()).toEqual({ deadline: 1 });
  });

  test("bound the documents read and the query complexity", async () => {
    const { post, limited } = createSubject({ lines: 50, limits: { documents: 10 } });
    expect((await post(linesBody({}, { per_page: 40 }))).status).toBe(422);
    const query = Array.from({ length: 5_000 }, () => "a").join(" ");
    expect(await (await post(linesBody({ query }))).json()).toMatchObject({ error: "log_query_too_complex" });
    expect(await limited()).toEqual({ result: 1, query: 1 });
  });

  test("bound the request body", async () => {
    const { post, limited } = createSubject();
    expect((await post(" ".repeat(1_048_577))).status).toBe(422);
    expect(await limited()).toEqual({ body: 1 });
  });

  test.each(["path", "query"])("bound the %s of the URL", async (part) => {
    const { server, limited } = createSubject();
    const long = "x".repeat(8_192);
    const path = part === "path" ? `/api/v2/metrics/names/${long}` : `${linesPath}?token=${long}`;
    const answer = await server.fetch(`${origin}${path}`, as(token));
    expect(answer.status).toBe(422);
    expect(await answer.json()).toMatchObject({ error: "invalid_request" });
    expect(await limited()).toEqual({ url: 1 });
  });
});

describe("limits of GraphQL", () => {
  const asking = (body: string): RequestInit => ({
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body,
  });
  const nested = (levels: number, leaves: string) =>
    `{ logs_lines(site_id: "shop", source_ids: ["app"], query: "", pagination: { per_page: 1, order: ASC }) { ${"trace { log_lines { ".repeat(levels)} ${leaves} ${"} } ".repeat(levels)} } }`;

  test.each([
    ["tokens", `{ viewer { ${"id ".repeat(3_000)} } }`, /Token limit/],
    [
      "aliases",
      `{ ${Array.from({ length: 101 }, (_, n) => `a${n}: __typename`).join(" ")} }`,
      /Aliases limit/,
    ],
    ["directives", `{ viewer { id ${"@include(if: true) ".repeat(10)} } }`, /Directives limit/],
    ["depth", nested(7, "id"), /depth limit/i],
    ["cost", nested(5, "id ".repeat(500)), /Cost limit/],
  ])("bound the %s of a query", async (_, query, message) => {
    const { server, limited } = createSubject();
    for (const asked of [1, 2]) {
      const answer = await server.fetch(`${origin}/graphql`, asking(JSON.stringify({ query })));
      expect(await answer.json()).toMatchObject({ errors: [{ message: expect.stringMatching(message) }] });
      expect(await limited()).toEqual({ graphql: asked });
    }
    const plain = await server.fetch(`${origin}/graphql`, asking('{"query":"{ __typename nope }"}'));
    expect(await plain.json()).toHaveProperty("errors");
    expect(await limited()).toEqual({ graphql: 2 });
  });

  test("bound the request body", async () => {
    const { server, limited, requests } = createSubject();
    const answer = await server.fetch(`${origin}/graphql`, asking(" ".repeat(1_048_577)));
    expect(answer.status).toBe(422);
    expect(await limited()).toEqual({ body: 1 });
    expect(await requests()).toEqual({ "graphql 422": 1 });
  });

  test.each(["fetch", "a connection"])(
    "count a request by %s that precedes the schema once in rate and metrics",
    async (way) => {
      let allowed = 0;
      const rate = createFakeRateLimiter(() => {
        allowed += 1;
        return true;
      });
      const { server, requests } = createSubject({ rate });
      const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
      const ask = () => {
        const query = asking('{"query":"{ __typename }"}');
        if (way === "fetch") return server.fetch(`${origin}/graphql`, query);
        return fetch(`http://127.0.0.1:${port}/graphql`, query);
      };
      for (const asked of [1, 2]) {
        expect(await (await ask()).json()).toEqual({ data: { __typename: "Query" } });
        expect(allowed).toBe(asked);
        expect(await requests()).toEqual({ "graphql 200": asked });
      }
      await server.close(0);
    },
  );

  test("answer a timeout when the schema loads too slowly and keep loading it", async () => {
    const loaded = Promise.withResolvers<void>();
    let loads = 0;
    const { server, served, limited, requests } = createSubject({
      limits: { deadline: 50 },
      graphql: async () => {
        loads += 1;
        await loaded.promise;
        return { schema: (await import("#src/graphql/schema.ts")).schema, plugins: [], stitched: false };
      },
    });
    const ask = () => server.fetch(`${origin}/graphql`, asking('{"query":"{ __typename }"}'));
    expect((await ask()).status).toBe(500);
    expect(await limited()).toEqual({ deadline: 1 });
    expect(await requests()).toEqual({ "graphql 500": 1 });
    loaded.resolve();
    await server.reload({ ...served, limits: defaults.limits });
    expect((await ask()).status).toBe(200);
    expect(loads).toBe(1);
  });

  test("keep the old configuration alive for a request that waits for the schema", async () => {
    const begun = Promise.withResolvers<void>();
    const loading = Promise.withResolvers<void>();
    const { server } = createSubject({
      graphql: async () => {
        begun.resolve();
        await loading.promise;
        return { schema: (await import("#src/graphql/schema.ts")).schema, plugins: [], stitched: false };
      },
    });
    const query =
      '{ logs_lines(site_id: "shop", source_ids: ["app"], query: "", pagination: { per_page: 9, order: ASC }) { id } }';
    const asked = server.fetch(`${origin}/graphql`, asking(JSON.stringify({ query })));
    await begun.promise;
    let over = false;
    const replaced = server
      .reload({ authenticate: async () => anonymousPrincipal, sites: new Map(), limits: defaults.limits })
      .then(() => {
        over = true;
      });
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(over).toBe(false);
    loading.resolve();
    expect((await (await asked).json()).data.logs_lines).toHaveLength(5);
    await replaced;
  });

  test("count and log requests whose schema fails to load", async () => {
    const { server, logged, requests } = createSubject({
      graphql: () => Promise.reject(new Error("no mesh")),
    });
    const answer = await server.fetch(`${origin}/graphql`, asking('{"query":"{ __typename }"}'));
    expect(answer.status).toBe(500);
    expect(await requests()).toEqual({ "graphql 500": 1 });
    expect(logged()).toMatch(/"operation":"graphql","status":500,"ms":[\d.]+,"user":"ana"/);
  });
});

describe("limits of a connection", () => {
  const open: { close: (grace: number) => Promise<void> }[] = [];
  afterEach(async () => {
    await Promise.all(open.splice(0).map((server) => server.close(0)));
  });

  async function say(subject: ReturnType<typeof createSubject>, text: string): Promise<string> {
    const { port } = await subject.server.listen({ host: "127.0.0.1", port: 0 });
    open.push(subject.server);
    const socket = connect(port, "127.0.0.1");
    let received = "";
    const closed = new Promise((resolve) => socket.on("close", resolve));
    socket.on("error", () => {});
    socket.setEncoding("utf8").on("data", (chunk) => {
      received += chunk;
    });
    socket.write(text);
    await closed;
    return received;
  }

  test("bound the request headers", async () => {
    const subject = createSubject();
    const head = `GET /livez HTTP/1.1\r\nHost: x\r\nX-Long: ${"x".repeat(20_000)}\r\n\r\n`;
    expect(await say(subject, head)).toMatch(/^HTTP\/1\.1 431 /);
    expect(await subject.limited()).toEqual({ head: 1 });
  });

  test("bound the number of connections and free closed ones", async () => {
    const subject = createSubject({ limits: { connections: 1 } });
    const { port } = await subject.server.listen({ host: "127.0.0.1", port: 0 });
    open.push(subject.server);
    const ask = () => {
      const socket = connect(port, "127.0.0.1").on("error", () => {});
      let received = "";
      socket.setEncoding("utf8").on("data", (chunk) => {
        received += chunk;
      });
      socket.write("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
      const closed = new Promise((resolve) => socket.on("close", resolve));
      return { socket, closed, received: () => received };
    };
    const first = ask();
    await expect.poll(first.received).toContain("ok\n");
    const second = ask();
    await second.closed;
    expect(second.received()).toBe("");
    expect(await subject.limited()).toEqual({ connections: 1 });
    first.socket.destroy();
    await first.closed;
    await expect
      .poll(async () => {
        const { socket, closed, received } = ask();
        await Promise.race([closed, new Promise((resolve) => socket.once("data", resolve))]);
        socket.destroy();
        return received();
      })
      .toContain("ok\n");
  });

  test.each([
    ["CONNECT /api/v2/auth HTTP/1.1\r\nHost: x", 404, "Not found"],
    ["FOO /api/v2/auth HTTP/1.1\r\nHost: x", 404, "Not found"],
    ["TRACK / HTTP/1.0", 404, "Not found"],
    ["GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: foo", 404, "Not found"],
    ["GET /api/v2/auth HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: foo", 401, "Unauthorized"],
    ["GET /api/v2/auth HTTP/1.1", 400, "One Host header is required"],
    ["GET /api/v2/auth HTTP/1.1\r\nHost: a\r\nHost: a", 400, "One Host header is required"],
    ["GET /api/v2/auth HTTP/1.0", 401, "Unauthorized"],
    [
      "POST /api/v2/logs/lines HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked",
      501,
      "No transfer coding but chunked is taken",
    ],
    [
      "GET /api/v2/auth HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: Chunked\r\n\r\n0",
      401,
      "Unauthorized",
    ],
    ["\u0016\u0003\u0001 no HTTP", 400, "The request is not HTTP"],
    ["GET  HTTP/1.1", 400, "The request is not HTTP"],
  ])("answer errors of the HTTP parser with a JSON body: %j", async (head, status, error) => {
    const received = await say(createSubject(), `${head}\r\n\r\n`);
    const [headers = "", body] = received.split("\r\n\r\n");
    expect([Number(/^HTTP\/1\.1 (\d+) /.exec(headers)?.[1]), JSON.parse(body ?? "")]).toEqual([
      status,
      { error },
    ]);
    expect(headers).toMatch(/\r\nContent-Type: application\/json; charset=utf-8(?:\r\n|$)/i);
    expect(headers).toMatch(/\r\nX-Request-Id: \S+/i);
  });

  test("survive a client that requests a tunnel and leaves", async () => {
    const { server } = createSubject();
    const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
    open.push(server);
    for (let turn = 0; turn < 20; turn += 1) {
      const socket = connect(port, "127.0.0.1", () => {
        socket.write("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n");
        socket.resetAndDestroy();
      });
      await new Promise((resolve) => socket.on("close", resolve));
    }
    expect((await fetch(`http://127.0.0.1:${port}/livez`)).status).toBe(200);
  });

  test.each([
    ["headers", "GET /livez HTTP/1.1\r\nHo"],
    [
      "body",
      `POST ${linesPath} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Length: 9\r\n\r\n{`,
    ],
  ])("bound the time for the %s", async (_, text) => {
    const readingTime = { headersTimeout: 50, requestTimeout: 100, connectionsCheckingInterval: 20 };
    const subject = createSubject({ readingTime });
    expect(await say(subject, text)).toMatch(/^HTTP\/1\.1 408 /);
    expect((await subject.limited()).reading_time).toBe(1);
  });

  test.each([linesPath, "/graphql"])("answer a timeout when the body of %s does not arrive", async (path) => {
    const subject = createSubject({ limits: { deadline: 100 } });
    const head = `POST ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n`;
    const message = "The body did not arrive in time";
    const answer = await say(subject, `${head}Content-Length: 9\r\nConnection: close\r\n\r\n{`);
    expect(answer).toMatch(/^HTTP\/1\.1 422 /);
    const details = { issues: [{ path: "", message }] };
    expect(JSON.parse(answer.slice(answer.indexOf("\r\n\r\n")))).toEqual(
      path === linesPath
        ? { error: "invalid_request", message, details }
        : { errors: [{ message, extensions: { status: 422, slug: "invalid_request", details } }] },
    );
    expect(await subject.limited()).toEqual({ reading_time: 1 });
  });

  describe("limits of a client that does not read", () => {
    // Larger than the socket buffers of the system, and not streamed: each chunk of a stream has its own deadline.
    const size = 16 * 1_048_576;
    const line = {
      id: "l",
      time: fromMillis(base),
      source_id: "app",
      severity: "info" as const,
      message: undefined,
      hostname: undefined,
      group: undefined,
      json: "x".repeat(size),
    };
    const store: LogStore = {
      async *lines() {
        yield [line];
      },
    };
    const query = `{ logs_lines(site_id: "shop", source_ids: ["app"], query: "", pagination: { per_page: 1, order: ASC }) { json } }`;
    const body = JSON.stringify({ query });
    const asked = `POST /graphql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;

    async function ask(unread: number) {
      const subject = createSubject({ store, unread });
      const { port } = await subject.server.listen({ host: "127.0.0.1", port: 0 });
      open.push(subject.server);
      const socket = connect(port, "127.0.0.1").on("error", () => {});
      socket.write(asked);
      return { subject, socket };
    }

    test("cut a client that reads nothing", async () => {
      const { subject, socket } = await ask(500);
      await expect.poll(async () => (await subject.limited()).unread).toBe(1);
      socket.destroy();
    });

    test("keep a client that reads slowly", async () => {
      const { subject, socket } = await ask(1_000);
      let received = 0;
      const started = performance.now();
      socket.on("data", (chunk) => {
        received += chunk.length;
        // For longer than a client that reads nothing has; then the test may end.
        if (performance.now() - started > 1_500) return;
        socket.pause();
        setTimeout(() => socket.resume(), 5);
      });
      await expect.poll(() => received).toBeGreaterThan(size);
      expect(await subject.limited()).toEqual({});
      socket.destroy();
    });
  });
});
