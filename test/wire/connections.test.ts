// The connections of a server: how many there are, when it closes them itself, in which order their requests are answered,
// and what still answers when clients hold all of them.
import { connect, type Socket } from "node:net";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { LogStore } from "#src/store/logs.ts";
import { waitUntil } from "../support/waits.ts";
import { createSubject, expiredToken, linesBody, linesPath, otherToken, token } from "./harness.ts";

const loopback = { host: "127.0.0.1", port: 0 };
const open: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  await Promise.all(open.splice(0).map((close) => close()));
});

async function start(over: Parameters<typeof createSubject>[0] = {}) {
  const subject = createSubject(over);
  const { port } = await subject.server.listen(loopback);
  open.push(() => subject.server.close(0));
  return { ...subject, port };
}

interface Client {
  readonly socket: Socket;
  readonly received: () => string;
  readonly closed: Promise<void>;
  readonly isClosed: () => boolean;
}

/** A connection that never closes its side by itself. */
function connectTo(port: number, text = "", localAddress = "127.0.0.1"): Client {
  const socket = connect({ port, host: "127.0.0.1", localAddress, allowHalfOpen: true });
  const seen = { text: "", closed: false };
  socket.setEncoding("utf8").on("data", (chunk: string) => {
    seen.text += chunk;
  });
  socket.on("error", () => {});
  const closed = new Promise<void>((resolve) =>
    socket.on("close", () => {
      seen.closed = true;
      resolve();
    }),
  );
  if (text !== "") socket.write(text);
  open.push(() => socket.destroy());
  return { socket, received: () => seen.text, closed, isClosed: () => seen.closed };
}

const live = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
/** What a connection of its own is answered, and whose place is free again: nothing where it is closed unanswered. */
async function askOnce(port: number): Promise<string> {
  const { socket, received } = connectTo(port, live);
  const over = Promise.withResolvers<void>();
  socket.on("data", () => received().endsWith("ok\n") && over.resolve());
  socket.on("end", over.resolve).on("close", over.resolve);
  await over.promise;
  socket.destroy();
  return received();
}
/** Of all answers on a connection, which follow each other without a line end. */
const listStatuses = (text: string) => [...text.matchAll(/HTTP\/1\.1 (\d+) /g)].map(([, status]) => status);

describe("a connection", () => {
  test("on which nothing comes is closed, one that has sent something is not", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const { port } = await start({ silence: 100 });
    const silent = Array.from({ length: 20 }, () => connectTo(port));
    // Half a head is given its time by node, and a 408.
    const slow = connectTo(port, "GET /livez HT");
    const busy = connectTo(port, live);
    await waitUntil(() => busy.received().endsWith("ok\n"));
    vi.advanceTimersByTime(100);
    await Promise.all(silent.map(({ socket }) => new Promise((resolve) => socket.on("end", resolve))));
    expect(silent.every(({ received }) => received() === "")).toBe(true);
    expect([busy.isClosed(), slow.isClosed()]).toEqual([false, false]);
  });

  test("that is told 408 is destroyed although its client does not close it", async () => {
    const readingTime = { headersTimeout: 50, requestTimeout: 100, connectionsCheckingInterval: 20 };
    const { port, limited } = await start({ readingTime, limits: { connections: 1 } });
    const slow = connectTo(port, "GET /livez HTTP/1.1\r\nHo");
    await expect.poll(slow.received).toContain("408");
    // Its place is free again, so that another is answered.
    await expect.poll(() => askOnce(port)).toContain("ok\n");
    expect((await limited()).reading_time).toBeGreaterThanOrEqual(1);
  });

  test("beyond the bound of its address is closed, those of other addresses are answered", async () => {
    const { port, limited } = await start({ limits: { connections: 10, addressConnections: 3 } });
    const own = [1, 2, 3].map(() => connectTo(port, live));
    for (const { received } of own) await expect.poll(received).toContain("ok\n");
    const refused = connectTo(port, live);
    await new Promise((resolve) => refused.socket.on("end", resolve).on("close", resolve));
    expect(refused.received()).toBe("");
    const others = [1, 2, 3].map(() => connectTo(port, live, "127.0.0.2"));
    for (const { received } of others) await expect.poll(received).toContain("ok\n");
    expect(await limited()).toEqual({ address_connections: 1 });
    // A closed one leaves its place to the next.
    own[0]?.socket.destroy();
    await expect.poll(() => askOnce(port)).toContain("ok\n");
  });

  test.each([[["127.0.0.1"]], [["10.0.0.0/8", "127.0.0.0/24"]]])(
    "of a proxy counts among all only: %j",
    async (proxies) => {
      const { port, limited } = await start({ proxies, limits: { connections: 4, addressConnections: 1 } });
      const own = [1, 2, 3, 4].map(() => connectTo(port, live));
      for (const { received } of own) await expect.poll(received).toContain("ok\n");
      const refused = connectTo(port, live);
      await new Promise((resolve) => refused.socket.on("end", resolve).on("close", resolve));
      expect(await limited()).toEqual({ connections: 1 });
    },
  );

  test.each([
    ["silent ones soon", 600_000],
    ["all at the end of the grace", 1_500],
  ])("is closed when the server drains: %s", async (_, grace) => {
    const subject = createSubject({
      store: { async *lines() {}, isWithinLimits: () => new Promise(() => {}) },
    });
    const { port } = await subject.server.listen(loopback);
    const silent = Array.from({ length: 200 }, () => connectTo(port));
    // An unfinished body, and a tunnel that node no longer knows.
    const body = `POST ${linesPath} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Length: 9\r\n\r\n{`;
    const unfinished = connectTo(port, body);
    const tunnel = connectTo(port, "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n");
    await expect.poll(tunnel.received).toContain("404");
    const started = performance.now();
    const ended = Promise.all(
      silent.map(({ socket }) => new Promise((resolve) => socket.on("end", resolve))),
    );
    const closed = subject.server.close(grace);
    await ended;
    if (grace > 1_500) for (const { socket } of [unfinished, tunnel]) socket.destroy();
    await closed;
    if (grace === 1_500) expect(performance.now() - started).toBeGreaterThan(1_400);
  });

  test("is answered when it was opened just before the server drains", async () => {
    const subject = createSubject();
    const { port } = await subject.server.listen(loopback);
    const opened = connectTo(port);
    await new Promise((resolve) => opened.socket.once("connect", resolve));
    // For the server it was opened just now, however long the following takes.
    const now = performance.now();
    vi.spyOn(performance, "now").mockImplementation(() => now);
    const closed = subject.server.close(600_000);
    // Longer than the server takes to look for idle connections.
    await new Promise((resolve) => setTimeout(resolve, 250));
    opened.socket.write(`GET /api/v2/auth HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n\r\n`);
    await expect.poll(opened.received).toMatch(/^HTTP\/1\.1 200 /);
    await closed;
  });
});

describe("probes at an address of their own", () => {
  test("are answered there alone, while clients hold all connections and while the server drains", async () => {
    const subject = createSubject({ probeAddress: true, limits: { connections: 5, addressConnections: 5 } });
    const { port } = await subject.server.listen(loopback);
    const admin = `http://127.0.0.1:${(await subject.server.listenForProbes(loopback)).port}`;
    // Keeps no connection, of which the server has few.
    const ask = (url: string, init: RequestInit = {}) =>
      fetch(url, { ...init, headers: { connection: "close" } });
    const statuses = async (origin: string) =>
      Promise.all(
        ["/livez", "/readyz", "/metrics", "/api/v2/auth", "/"].map(
          async (path) => (await ask(`${origin}${path}`)).status,
        ),
      );
    expect(await statuses(admin)).toEqual([200, 200, 200, 404, 404]);
    expect(await statuses(`http://127.0.0.1:${port}`)).toEqual([404, 404, 404, 401, 200]);
    expect((await ask(`${admin}/livez`, { method: "POST", body: "x" })).status).toBe(404);
    const body = `POST ${linesPath} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Length: 9\r\n\r\n{`;
    const held = Array.from({ length: 30 }, () => connectTo(port, body));
    await expect.poll(() => askOnce(port)).toBe("");
    expect(await (await ask(`${admin}/livez`)).text()).toBe("ok\n");
    expect(await (await ask(`${admin}/metrics`)).text()).toMatch(/limit="connections"\} \d+/);
    const closed = subject.server.close(600_000);
    const ready = await ask(`${admin}/readyz`);
    expect([ready.status, await ready.text()]).toEqual([503, "draining\nmemory: ok\n"]);
    for (const { socket } of held) socket.destroy();
    await closed;
    await expect(ask(`${admin}/livez`)).rejects.toThrow();
  });
});

describe("pipelined requests", () => {
  const ask = (body: unknown, user = token) => {
    const text = JSON.stringify(body);
    return `POST ${linesPath} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${user}\r\nContent-Length: ${text.length}\r\n\r\n${text}`;
  };

  test.each(["alone", "within Yoga"])("are answered one after the other, in order: %s", async (host) => {
    const seen = { most: 0, running: 0 };
    const store: LogStore = {
      async *lines() {
        seen.running += 1;
        seen.most = Math.max(seen.most, seen.running);
        await new Promise((resolve) => setTimeout(resolve, 1));
        seen.running -= 1;
      },
      isWithinLimits: async () => true,
    };
    const { port, limited } = await start({ store, limits: { tokenRequests: 2 } });
    if (host === "within Yoga") {
      const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
      const init = { method: "POST", headers, body: '{"query":"{ viewer { id } }"}' };
      expect((await fetch(`http://127.0.0.1:${port}/graphql`, init)).status).toBe(200);
    }
    // Alternately right and wrong, so that the order shows.
    const one = ask(linesBody()) + ask(linesBody({ query: "(" }));
    const client = connectTo(port, one.repeat(150));
    await expect.poll(() => listStatuses(client.received()).length).toBe(300);
    const expected = Array.from({ length: 300 }, (_, n) => (n % 2 === 0 ? "200" : "422"));
    expect(listStatuses(client.received())).toEqual(expected);
    expect(seen.most).toBe(1);
    expect(await limited()).toEqual({});
    // The connection goes on.
    client.socket.write(live);
    await expect.poll(client.received).toMatch(/ok\n$/);
  });

  test("are given up when their client leaves", async () => {
    const seen = { begun: 0, aborted: 0 };
    const store: LogStore = {
      async *lines(_, signal) {
        seen.begun += 1;
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        seen.aborted += 1;
      },
      isWithinLimits: async () => true,
    };
    const { port, post } = await start({ store });
    const client = connectTo(port, ask(linesBody()).repeat(5));
    await expect.poll(() => seen.begun).toBe(1);
    client.socket.destroy();
    await expect.poll(() => seen.aborted).toBe(1);
    expect((await post("{")).status).toBe(422);
    expect(seen).toEqual({ begun: 1, aborted: 1 });
  });
});

describe("every answer of the API", () => {
  test.each([
    ["an answer", ask(linesPath, linesBody())],
    ["a refusal", ask(linesPath, "{")],
    ["a missing route", "GET /api/v2/nope HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["no token", "GET /api/v2/auth HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["GraphQL", ask("/graphql", { query: "{ viewer { id } }" })],
    ["a refusal of GraphQL", ask("/graphql", " ".repeat(1_048_577))],
    ["what is no HTTP", "nope\r\n\r\n"],
    ["a stream", ask(linesPath, linesBody({}, { per_page: 3_000 }))],
    ["probes", live],
  ])("is kept by no cache and taken for nothing else: %s", async (_, text) => {
    const { port } = await start({ lines: 3_000 });
    const { received } = connectTo(port, text);
    await expect.poll(received).toContain("\r\n\r\n");
    const head = received().slice(0, received().indexOf("\r\n\r\n"));
    expect(head.match(/^cache-control: .*$/gim)).toEqual([expect.stringMatching(/: no-store$/)]);
    expect(head.match(/^x-content-type-options: .*$/gim)).toEqual([expect.stringMatching(/: nosniff$/)]);
  });

  function ask(path: string, body: unknown): string {
    const text = typeof body === "string" ? body : JSON.stringify(body);
    return `POST ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n${text}`;
  }
});

describe("a token as the id of a request", () => {
  const signed = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbmEifQ.c2lnbmF0dXJl";
  const generated = `rdt_${"Ab-_9".repeat(9).slice(0, 43)}`;
  test.each([
    // Its own, another's, one that has expired, one of another server.
    ["its own", token],
    ["another's", otherToken],
    ["an expired one", expiredToken],
    ["one that was generated", generated],
    ["in front", `${otherToken}-1`],
    ["behind", `trace:${otherToken}`],
    ["in the middle", `a.b-${otherToken}_c.7`],
    ["its own inside a word", `x${token}y`],
    ["a generated one inside a word", `x${generated}y`],
    ["a signed one", signed],
    ["a signed one behind a word", `trace:${signed}`],
    ["behind many words", `${"a-".repeat(30)}${otherToken}`],
  ])("is replaced, also within it: %s", async (_, id) => {
    const { post, server, logged } = createSubject();
    const withToken = await post(linesBody(), {
      headers: { authorization: `Bearer ${token}`, "x-request-id": id },
    });
    const without = await server.fetch(`http://readout/api/v2/auth?token=${token}`, {
      headers: { "x-request-id": id, "user-agent": id },
    });
    for (const answer of [withToken, without])
      expect(answer.headers.get("x-request-id")).toMatch(/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
    for (const secret of [token, otherToken, expiredToken, generated, signed])
      expect(logged()).not.toContain(secret);
  });

  test.each(["abc-1", "7f3a1c9e-0a1b-4c2d-9e8f-0123456789ab", "a.b:c_d-e", "secret-token-of"])(
    "is none: %s",
    async (id) => {
      const { post } = createSubject();
      const headers = { authorization: `Bearer ${token}`, "x-request-id": id };
      expect((await post(linesBody(), { headers })).headers.get("x-request-id")).toBe(id);
    },
  );
});
