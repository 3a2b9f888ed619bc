// Behaviour that only a real connection shows: cut answers, clients that leave or read slowly, and the drain.
import { Agent, request as httpRequest, type IncomingMessage } from "node:http";
import { connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, describe, expect, test, vi } from "vitest";
import { defaults } from "#src/config/schema.ts";
import { BackendError, Refused, Unauthorized } from "#src/core/errors.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import type { Server } from "#src/server/server.ts";
import type { LogStore } from "#src/store/logs.ts";
import { readSettledCount, waitUntil } from "../support/waits.ts";
import { base, createSubject, linesBody, linesPath, token } from "./harness.ts";

const open: Server[] = [];
afterEach(async () => {
  vi.useRealTimers();
  await Promise.all(open.splice(0).map((server) => server.close(0)));
});

// Yoga is loaded with the first GraphQL request, so there are two request paths; both are tested.
const hosts = ["alone", "within Yoga"] as const;
async function start(over: Parameters<typeof createSubject>[0], host: (typeof hosts)[number] = "alone") {
  const subject = createSubject(over);
  const { port } = await subject.server.listen({ host: "127.0.0.1", port: 0 });
  open.push(subject.server);
  if (host === "within Yoga") {
    const body = '{"query":"{ viewer { id } }"}';
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const answer = await fetch(`http://127.0.0.1:${port}/graphql`, { method: "POST", body, headers });
    expect(await answer.json()).toEqual({ data: { viewer: { id: "ana" } } });
  }
  return { ...subject, port };
}

const headers = { authorization: `Bearer ${token}` };
function ask(port: number, body: unknown, more: object = {}): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const options = {
      port,
      host: "127.0.0.1",
      method: "POST",
      path: linesPath,
      headers,
      agent: false,
      ...more,
    };
    httpRequest(options, resolve).on("error", reject).end(JSON.stringify(body));
  });
}
async function read(message: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of message.setEncoding("utf8")) text += chunk;
  return text;
}

async function readMetrics(server: Server): Promise<string> {
  return (await server.fetch("http://x/metrics")).text();
}

/** A raw connection that has sent `text`, with all that came back so far. */
async function raw(
  port: number,
  text: string,
): Promise<{ socket: Socket; received: () => string; ended: Promise<string> }> {
  const socket = connect(port, "127.0.0.1");
  let received = "";
  socket.setEncoding("utf8").on("data", (chunk) => {
    received += chunk;
  });
  const ended = new Promise<string>((resolve) => {
    socket.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? "error"));
    socket.on("close", () => resolve("closed"));
  });
  await new Promise<void>((resolve) => socket.once("connect", resolve));
  socket.write(text);
  return { socket, received: () => received, ended };
}

const rawLines = (version: string): string => {
  const body = JSON.stringify(linesBody({}, { per_page: 10_000 }));
  return `POST ${linesPath} HTTP/${version}\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
};

function batch(number: number, size = 600, length = 10): LogLine[] {
  return Array.from({ length: size }, (_, n) => ({
    id: `l${n}`,
    time: fromMillis(base + number * size + n),
    source_id: "app",
    severity: "info",
    message: "x".repeat(length),
    json: "{}",
  }));
}

/** A store that yields this many batches, then runs `last`. `seen` records the batches read and an early end. */
function feed(
  batches: number,
  last: (signal: AbortSignal) => Promise<void> = async () => {},
  length = 10,
  fits = async (): Promise<boolean> => true,
) {
  const seen = { batches: 0, returned: false, signal: undefined as AbortSignal | undefined };
  const store: LogStore = {
    async *lines(_, signal) {
      seen.signal = signal;
      let complete = false;
      try {
        for (let number = 0; number < batches; number += 1) {
          seen.batches += 1;
          yield batch(number, 600, length);
        }
        await last(signal);
        complete = true;
      } finally {
        seen.returned = !complete;
      }
    },
    isWithinLimits: fits,
  };
  return { store, seen };
}
const fail = async (): Promise<void> => {
  throw new BackendError("elk", "unreachable", "the source went away");
};
const refuse = async (): Promise<void> => {
  throw new Refused("result_too_large", "too many", { limit: 7 });
};
/** A grace that is longer than a test: whoever waits for its end fails. */
const never = 600_000;
const hang = (): Promise<void> => new Promise(() => {});

describe.each(hosts)("server %s", (host) => {
  test("sends a small answer with Content-Length", async () => {
    const { port } = await start({}, host);
    const answer = await ask(port, linesBody());
    expect(answer.statusCode).toBe(200);
    expect(answer.headers["content-length"]).toBeDefined();
    expect(answer.headers["x-request-id"]).toMatch(/^[0-9a-f-]{36}$/);
    expect(JSON.parse(await read(answer))).toHaveLength(5);
  });

  test("streams a large answer completely", async () => {
    const { port } = await start({ lines: 9_999 }, host);
    const answer = await ask(port, linesBody({}, { per_page: 10_000 }));
    expect(answer.headers["transfer-encoding"]).toBe("chunked");
    expect(answer.headers["content-type"]).toBe("application/json; charset=utf-8");
    expect(JSON.parse(await read(answer))).toHaveLength(9_999);
  });

  test("answers 500 to a failure within the first 1,000 rows", async () => {
    const { port } = await start({ store: feed(1, fail).store }, host);
    expect((await ask(port, linesBody({}, { per_page: 10_000 }))).statusCode).toBe(500);
  });

  test("breaks the connection on a failure after the first byte", async () => {
    const { port, logged, server } = await start({ store: feed(3, fail).store }, host);
    const answer = await ask(port, linesBody({}, { per_page: 10_000 }));
    expect(answer.statusCode).toBe(200);
    await expect(read(answer)).rejects.toMatchObject({ code: "ECONNRESET" });
    await expect.poll(() => logged().includes("the source went away")).toBe(true);
    expect(logged()).toContain('"cut":true,"ms"');
    expect(await readMetrics(server)).toContain('operation="logs.lines",status="cut"} 1');
  });

  test("breaks the connection on a failure over HTTP/1.0", async () => {
    const { port } = await start({ store: feed(3, fail).store }, host);
    const { ended, received } = await raw(port, rawLines("1.0"));
    expect(await ended).toBe("ECONNRESET");
    expect(received().endsWith("]")).toBe(false);
  });

  test("breaks the connection when the deadline passes after the first byte", async () => {
    const { port } = await start({ store: feed(3, hang).store, limits: { deadline: 500 } }, host);
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const answer = await ask(port, linesBody({}, { per_page: 10_000 }));
    vi.advanceTimersByTime(500);
    await expect(read(answer)).rejects.toThrow();
  });

  test("waits for a possible late refusal and answers 422", async () => {
    const unable = async (): Promise<boolean> => {
      throw new BackendError("elk", "overloaded", "not now");
    };
    for (const fits of [async () => false, unable]) {
      const { port } = await start({ store: feed(15, refuse, 10, fits).store }, host);
      const answer = await ask(port, linesBody({}, { per_page: 10_000 }));
      expect(answer.statusCode).toBe(422);
      expect(JSON.parse(await read(answer))).toMatchObject({
        error: "result_too_large",
        details: { limit: 7 },
      });
    }
  });

  test("sends an answer that could have been refused", async () => {
    const { port } = await start({ store: feed(15, undefined, 10, async () => false).store }, host);
    const answer = await ask(port, linesBody({}, { per_page: 10_000 }));
    expect(answer.headers["content-length"]).toBeDefined();
    expect(JSON.parse(await read(answer))).toHaveLength(9_000);
  });

  test("limits how much of an answer is held back", async () => {
    const { store, seen } = feed(10_000, undefined, 20_000, async () => false);
    const { port } = await start({ store }, host);
    const answer = await ask(port, linesBody({}, { per_page: 10_000 }));
    expect(answer.statusCode).toBe(422);
    expect(JSON.parse(await read(answer))).toMatchObject({ error: "result_too_large" });
    expect(seen.batches).toBeLessThan(5);
    await expect.poll(() => seen.returned).toBe(true);
  });

  test("checks for a late refusal of a large answer with few rows", async () => {
    let asked = 0;
    const fits = async () => {
      asked += 1;
      return true;
    };
    const { port } = await start({ store: feed(2, undefined, 10_000, fits).store }, host);
    const answer = await ask(port, linesBody({}, { per_page: 900 }));
    expect(answer.headers["transfer-encoding"]).toBe("chunked");
    expect(JSON.parse(await read(answer))).toHaveLength(900);
    expect(asked).toBe(1);
    const small = await start({ store: feed(1, undefined, 10, fits).store }, host);
    await read(await ask(small.port, linesBody({}, { per_page: 900 })));
    expect(asked).toBe(1);
  });

  test("aborts the work without an error when the client leaves before the answer", async () => {
    const { store, seen } = feed(0, hang);
    const { port, logged, server } = await start({ store }, host);
    const { socket } = await raw(port, rawLines("1.1"));
    await expect.poll(() => seen.signal !== undefined).toBe(true);
    socket.destroy();
    await expect.poll(() => seen.signal?.aborted === true).toBe(true);
    await expect.poll(() => logged().includes('"cut":true')).toBe(true);
    expect(logged()).not.toContain('"level":"error"');
    expect(await readMetrics(server)).toContain('operation="logs.lines",status="left"} 1');
  });

  test("aborts the work when the client leaves during the answer", async () => {
    const { store, seen } = feed(10_000, undefined, 1_000);
    const { port, logged, server } = await start({ store }, host);
    const answer = await ask(port, linesBody({}, { per_page: 10_000 }));
    answer.once("data", () => answer.destroy());
    await expect.poll(() => seen.signal?.aborted === true && seen.returned).toBe(true);
    await expect.poll(() => logged().includes('"cut":true,"left":true')).toBe(true);
    expect(await readMetrics(server)).toContain('operation="logs.lines",status="left"} 1');
  });

  test("pauses reading for a client that does not read, and ends at the deadline", async () => {
    const { store, seen } = feed(10_000, undefined, 10_000);
    const { port } = await start({ store, limits: { deadline: 400 } }, host);
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const answer = await ask(port, linesBody({}, { per_page: 10_000 }));
    answer.pause();
    expect(await readSettledCount(() => seen.batches)).toBeLessThan(16);
    expect(seen.signal?.aborted).toBe(false);
    vi.advanceTimersByTime(400);
    await waitUntil(() => seen.signal?.aborted === true && seen.returned);
    answer.destroy();
  });

  test.each([linesPath, "/graphql"])(
    "%s: refuses a body over 1 MiB with any framing and keeps the connection",
    async (path) => {
      const { port } = await start({}, host);
      const head = `POST ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n`;
      const after = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
      for (const length of [1_048_575, 3_000_000]) {
        const big = `"${"x".repeat(length)}"`;
        const chunked = `${head}Transfer-Encoding: chunked\r\n\r\n${big.length.toString(16)}\r\n${big}\r\n0\r\n\r\n${after}`;
        for (const text of [`${head}Content-Length: ${big.length}\r\n\r\n${big}${after}`, chunked]) {
          const { socket, received } = await raw(port, text);
          await expect
            .poll(() => received().includes("422 Unprocessable") && received().endsWith("ok\n"))
            .toBe(true);
          expect(received().match(/^X-Request-Id:/gim)).toHaveLength(2);
          socket.destroy();
        }
      }
    },
  );

  test("answers earlier pipelined requests before an unreadable one", async () => {
    const { port } = await start({ store: feed(1, () => delay(50)).store }, host);
    for (const rest of ["}", 'SC"}}', "GOT / HTTP/1.1\r\nHost: x\r\n\r\n"]) {
      const { received, ended } = await raw(port, rawLines("1.1").repeat(2) + rest);
      expect(await ended).toBe("closed");
      expect(received().match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 200", "HTTP/1.1 200"]);
      expect(received()).toMatch(/\r\n\r\n\[\{.*\}\]$/s);
    }
  });

  test("answers 400 to what is not HTTP, on a connection in use", async () => {
    const { port } = await start({}, host);
    const { socket, received } = await raw(port, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    await expect.poll(() => received().endsWith("ok\n")).toBe(true);
    socket.write("garbage\r\n\r\nPUTT / HTTP/1.1\r\n\r\n");
    await expect.poll(() => received().endsWith('{"error":"The request is not HTTP"}')).toBe(true);
    expect(received().match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 200", "HTTP/1.1 400"]);
    socket.destroy();
  });

  test.each([
    ["TRACE", "/api/v2/auth"],
    ["PUT", "/api/v2/auth"],
    ["PROPFIND", "/"],
    ["OPTIONS", "*"],
    ["GET", "http://other/nope"],
    ["GET", "//api/v2/auth"],
    ["GET", "/api/v2/%ff"],
  ])("answers 404 to %s %s", async (method, target) => {
    const { port } = await start({}, host);
    const { socket, received } = await raw(port, `${method} ${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
    await expect.poll(() => received().endsWith('{"error":"Not found"}')).toBe(true);
    expect(received()).toContain("404 Not Found");
    expect(received()).toContain("X-Request-Id:");
    socket.destroy();
  });

  test.each(["a b", ":::", "x:99999", "]"])("accepts the Host header %j", async (name) => {
    const { port } = await start({}, host);
    const target = "/api/v2/auth";
    const { socket, received } = await raw(port, `GET ${target} HTTP/1.1\r\nHost: ${name}\r\n\r\n`);
    await expect.poll(() => received().endsWith('{"error":"Unauthorized"}')).toBe(true);
    socket.destroy();
  });
});

describe("server: reload", () => {
  test("applies to the next request while earlier ones finish with the old configuration", async () => {
    const go = Promise.withResolvers<void>();
    const { store } = feed(3, () => go.promise);
    const { port, server } = await start({ store });
    const answer = await ask(port, linesBody({}, { per_page: 10_000 }));
    let over = false;
    const refuse = () => {
      throw new Unauthorized();
    };
    const replaced = server
      .reload({ authenticate: refuse, sites: new Map(), limits: defaults.limits })
      .then(() => {
        over = true;
      });
    expect((await ask(port, linesBody())).statusCode).toBe(401);
    expect(over).toBe(false);
    go.resolve();
    expect(JSON.parse(await read(answer))).toHaveLength(1_800);
    await replaced;
    const everyone = { user: "eve", token: "eve", account: "eve", maySee: () => true, hasScope: () => true };
    await server.reload({ authenticate: async () => everyone, sites: new Map(), limits: defaults.limits });
    expect((await ask(port, linesBody())).statusCode).toBe(404);
  });
});

describe("server: drain", () => {
  test("finishes open requests and refuses new ones", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const { store, seen } = feed(1, () => promise);
    const { server, port } = await start({ store });
    const idle = await raw(port, "");
    const waiting = ask(port, linesBody({}, { per_page: 10_000 }));
    await expect.poll(() => seen.batches).toBe(1);
    const closed = server.close(never);
    expect((await server.fetch("http://x/readyz")).status).toBe(503);
    await expect(ask(port, linesBody())).rejects.toMatchObject({ code: "ECONNREFUSED" });
    resolve();
    const answer = await waiting;
    expect(answer.statusCode).toBe(200);
    expect(answer.headers.connection).toBe("close");
    expect(JSON.parse(await read(answer))).toHaveLength(600);
    idle.socket.destroy();
    await closed;
    open.length = 0;
  });

  test("cuts requests that exceed the grace time", async () => {
    const { store, seen } = feed(1, hang);
    const { server, port } = await start({ store });
    const waiting = ask(port, linesBody({}, { per_page: 10_000 }));
    await expect.poll(() => seen.batches).toBe(1);
    const [closed, answer] = await Promise.allSettled([server.close(100), waiting]);
    expect(closed.status).toBe("fulfilled");
    expect(answer.status).toBe("rejected");
    open.length = 0;
  });

  test.each(hosts)("%s: does not wait for idle keep-alive connections", async (host) => {
    for (const [path, size] of [
      ["/graphql", 1],
      [linesPath, 3],
    ] as const) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const { store, seen } = feed(size, () => promise);
      const { server, port } = await start({ store }, host);
      const lines = linesBody({}, { per_page: 10_000 });
      const query = `{ logs_lines(site_id: "shop", source_ids: ["app"], query: "", pagination: { per_page: 9, order: ASC }) { id } }`;
      const type = { ...headers, "content-type": "application/json" };
      const agent = new Agent({ keepAlive: true });
      const waiting = ask(port, path === linesPath ? lines : { query }, { path, agent, headers: type });
      // The head of the stream is out before the drain begins, that of the other comes after.
      if (path === linesPath) await waiting;
      else await expect.poll(() => seen.batches).toBe(size);
      const closed = server.close(never);
      resolve();
      expect(await read(await waiting)).toContain('"l8"');
      await closed;
      agent.destroy();
    }
  });

  test("does not cut a complete answer that its client has not read yet", async () => {
    // Buffered completely because it may be refused, and larger than the socket buffers.
    const { store } = feed(1, undefined, 50_000, async () => false);
    const { server, port } = await start({ store });
    const answer = await ask(port, linesBody({}, { per_page: 10_000 }));
    answer.pause();
    await delay(100);
    const closed = server.close(5_000);
    await delay(500);
    expect(JSON.parse(await read(answer))).toHaveLength(600);
    await closed;
  });

  test("listening on a used port rejects with its code", async () => {
    const { port } = await start({});
    await expect(createSubject().server.listen({ host: "127.0.0.1", port })).rejects.toMatchObject({
      code: "EADDRINUSE",
    });
  });
});
