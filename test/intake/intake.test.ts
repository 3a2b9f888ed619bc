// The intake over real connections: statuses and bodies to the byte, what browsers need, and what is counted.
import { once } from "node:events";
import { IncomingMessage, type RequestOptions, request, type Server, ServerResponse } from "node:http";
import { type AddressInfo, connect, Socket } from "node:net";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { IntakeConfig } from "#src/config/config.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis } from "#src/core/time.ts";
import {
  bodyLimitBytes,
  createIntake,
  createIntakeServer,
  deriveConnectionLimits,
  formatIndexName,
  type IntakeOptions,
} from "#src/intake/intake.ts";
import type { SpoolClient } from "#src/intake/spool-client.ts";
import { createServer } from "#src/server/server.ts";
import {
  createMemorySpooler,
  createSites,
  createWatchedTelemetry,
  renderReport,
} from "../support/error-reports.ts";
import { countTurns } from "../support/event-loop-turns.ts";
import { readSettledCount, waitUntil } from "../support/waits.ts";

const store = { deliver: async () => new Map<string, string>() };
const sites = createSites({
  shop: { keys: ["key", "a b&c"], store, index: "reports-{date}" },
  blog: { keys: ["no-store"] },
});
const servers: Server[] = [];
afterEach(() => {
  vi.restoreAllMocks();
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});

async function open(
  over: Partial<IntakeOptions> = {},
  changed: Partial<IntakeConfig> = {},
  silenceLimit?: number,
) {
  const watched = createWatchedTelemetry();
  const spooler = over.spool ?? createMemorySpooler();
  const { spoolBytes, keyRate, proxies } = defaults;
  const config = { spool: ":memory:", spoolBytes, keyRate, addressRate: 10_000, proxies, ...changed };
  const intake = createIntake({
    config,
    sites,
    spool: spooler,
    onSpooled: () => {},
    telemetry: watched.telemetry,
    now: () => fromMillis(Date.UTC(2026, 10, 21, 12)),
    ...over,
  });
  const { proxies: own } = config;
  const { http: server } = createIntakeServer(intake, {
    proxies: own,
    onLimitReached: watched.telemetry.recordLimit,
    ...(silenceLimit !== undefined && { silenceLimit }),
  });
  server.listen(0, "127.0.0.1");
  servers.push(server);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  const post = (path: string, body?: string | Buffer, headers: Record<string, string> = {}) =>
    exchange({ port, path, method: "POST", headers }, body);
  const count = (result: string) => watched.metric(`readout_intake_reports_total{result="${result}"}`);
  return { ...watched, config, intake, server, spooler, port, url, post, count };
}

/** By node's client: `fetch` has a mind of its own about types, origins and early answers. */
async function exchange(options: RequestOptions, body?: string | Buffer) {
  const sent = request({ host: "127.0.0.1", ...options });
  sent.end(body);
  const [response] = await once(sent, "response");
  let text = "";
  for await (const chunk of response) text += chunk;
  return { status: response.statusCode as number, headers: response.headers, text };
}

const ok = { status: 200, text: "{}" };
/** So that no rate gives anything back. */
const stopClock = () => {
  const now = performance.now();
  vi.spyOn(performance, "now").mockImplementation(() => now);
};

describe("answers of the intake", () => {
  test.each([
    ["a report", "/errors?api_key=key", renderReport(1), "kept"],
    ["by the other name", "/collect?api_key=key&version=1.6.0", renderReport(1), "kept"],
    ["an address with its origin", "HTTP://errors.example/errors?api_key=key", renderReport(1), "kept"],
    ["an encoded key", "/errors?api_key=a%20b%26c", renderReport(1), "kept"],
    ["a key twice: the first", "/errors?api_key=key&api_key=no", renderReport(1), "kept"],
    ["a key added to an address with a query", "/errors?from=web?api_key=key", renderReport(1), "kept"],
    ["no key", "/errors", renderReport(1), "unknown_key"],
    ["an empty key", "/errors?api_key=", renderReport(1), "unknown_key"],
    ["a key that nobody has", "/errors?api_key=KEY", renderReport(1), "unknown_key"],
    ["no JSON", "/errors?api_key=key", "{", "invalid"],
    ["no body", "/errors?api_key=key", undefined, "invalid"],
    ["bytes that are no UTF-8", "/errors?api_key=key", Buffer.from([0x7b, 0xff, 0x7d]), "invalid"],
    ["JSON that is no report", "/errors?api_key=key", '{"a":1}', "invalid"],
    ["a site that cannot be written", "/errors?api_key=no-store", renderReport(1), "no_target"],
  ])("%s: 200 {} at once, counted", async (_, path, body, result) => {
    const { post, count, spooler } = await open();
    const answer = await post(path, body);
    expect(answer).toMatchObject(ok);
    expect(answer.headers["x-request-id"]).toMatch(/^[\w-]{36}$/);
    expect(await count(result)).toBe(1);
    expect((await spooler.readLevel()).reports).toBe(result === "kept" ? 1 : 0);
  });

  test.each(["text/plain;charset=UTF-8", "application/json", "application/x-www-form-urlencoded", ""])(
    "the type %j makes no difference",
    async (type) => {
      const { post, count } = await open();
      const headers = type === "" ? {} : { "content-type": type };
      expect(await post("/errors?api_key=key", renderReport(1), headers)).toMatchObject(ok);
      expect(await count("kept")).toBe(1);
    },
  );

  test("keeps the body as it was sent, with the index of its day", async () => {
    const { post, spooler } = await open();
    const body = renderReport(1, { tags: { größe: "🎉", "": "\u0000" } });
    await post("/errors?api_key=key", body);
    expect(await spooler.readOldest("shop", 10, 1e6)).toMatchObject([{ body, index: "reports-2026.11.21" }]);
    const at = fromMillis(Date.UTC(2026, 11, 31, 23, 59));
    expect(formatIndexName("r-{month}-{date}", at)).toBe("r-2026.12-2026.12.31");
  });

  test.each(["GET", "PUT", "DELETE", "HEAD"])("answers %s with 404 and the origin", async (method) => {
    const { port } = await open();
    const headers = { origin: "https://a.example" };
    const answer = await exchange({ port, path: "/errors", method, headers });
    expect(answer.status).toBe(404);
    expect(answer.headers["access-control-allow-origin"]).toBe("https://a.example");
  });

  test.each(["/", "/errors/", "/errorsx", "/livez", "/api/v2/auth", "/%65rrors"])(
    "%s is 404 here",
    async (path) => {
      const { post, count } = await open();
      expect(await post(path, renderReport(1))).toMatchObject({ status: 404, text: '{"error":"Not found"}' });
      expect(await count("kept")).toBe(0);
    },
  );
});

describe("the limit of a report's body", () => {
  const sized = (bytes: number) => {
    const body = renderReport(1, { action: "ä" });
    return body.replace("ä", `ä${"x".repeat(bytes - Buffer.byteLength(body))}`);
  };

  test.each([false, true])(
    "keeps 204,800 bytes and answers one more with 413; chunked: %s",
    async (chunked) => {
      const { post, count } = await open();
      const headers: Record<string, string> = chunked ? { "transfer-encoding": "chunked" } : {};
      expect(bodyLimitBytes).toBe(204_800);
      expect(await post("/errors?api_key=key", sized(bodyLimitBytes), headers)).toMatchObject(ok);
      expect(await post("/errors?api_key=key", sized(bodyLimitBytes + 1), headers)).toMatchObject({
        status: 413,
        text: '{"error":"Payload too large"}',
      });
      expect([await count("kept"), await count("too_large")]).toEqual([1, 1]);
    },
  );

  test("keeps reports, their order and the rates when the clock goes back", async () => {
    const days = [21, 19, 22].map((day) => fromMillis(Date.UTC(2026, 10, day, 12)));
    let asked = 0;
    const { post, spooler, count } = await open(
      { now: () => days[asked++] ?? fromMillis(0) },
      { keyRate: 1 },
    );
    for (const number of [1, 2, 3])
      expect(await post("/errors?api_key=key", renderReport(number))).toMatchObject(ok);
    expect(await count("kept")).toBe(3);
    expect(await spooler.readOldest("shop", 10, 1e6)).toMatchObject([
      { body: renderReport(1), index: "reports-2026.11.21" },
      { body: renderReport(2), index: "reports-2026.11.19" },
      { body: renderReport(3), index: "reports-2026.11.22" },
    ]);
  });

  test("reads large bodies to their end before the answer, and answers any size", async () => {
    const { post, count } = await open();
    expect((await post("/errors", Buffer.alloc(5_000_000))).status).toBe(413);
    expect((await post("/errors", Buffer.alloc(9_000_000)).catch(() => ({ status: 413 }))).status).toBe(413);
    expect(await count("too_large")).toBe(2);
  });
});

describe("requests from other origins", () => {
  test.each([["https://shop.example"], ["null"], ["http://127.0.0.1:3000"]])(
    "%s may post and read",
    async (origin) => {
      const { post } = await open();
      const answers = await Promise.all([
        post("/errors?api_key=key", renderReport(1), { origin }),
        post("/errors?api_key=nobody", "", { origin }),
        post("/errors", Buffer.alloc(bodyLimitBytes + 1), { origin }),
      ]);
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 413]);
      for (const { headers } of answers) {
        expect(headers).toMatchObject({
          "access-control-allow-origin": origin,
          "access-control-allow-credentials": "true",
          vary: "Origin",
        });
      }
    },
  );

  test("grants a preflight with the headers that it asks for", async () => {
    const { port } = await open();
    const headers = {
      origin: "https://shop.example",
      "access-control-request-method": "POST",
      "access-control-request-headers": "content-type,x-trace",
    };
    const answer = await exchange({ port, path: "/collect", method: "OPTIONS", headers });
    expect(answer).toMatchObject({
      status: 204,
      text: "",
      headers: {
        "access-control-allow-origin": "https://shop.example",
        "access-control-allow-credentials": "true",
        "access-control-allow-methods": "POST, OPTIONS",
        "access-control-allow-headers": "content-type,x-trace",
        vary: "Origin",
      },
    });
  });

  test.each([["true"], [undefined]])(
    "a private network is granted where a preflight asks: %s",
    async (asks) => {
      const { port } = await open();
      const headers = {
        origin: "https://shop.example",
        "access-control-request-method": "POST",
        ...(asks === undefined ? {} : { "access-control-request-private-network": asks }),
      };
      const answer = await exchange({ port, path: "/errors", method: "OPTIONS", headers });
      expect(answer.headers["access-control-allow-private-network"]).toBe(asks);
    },
  );

  test("names no origin without one, and sends Vary", async () => {
    const { post } = await open();
    const { headers } = await post("/errors?api_key=key", renderReport(1));
    expect(headers.vary).toBe("Origin");
    expect(headers).not.toHaveProperty("access-control-allow-origin");
  });
});

describe("bounds of the intake", () => {
  test("answers 200 over the rate of a key, and counts the report", async () => {
    stopClock();
    const { post, count } = await open({}, { keyRate: 1 });
    for (let n = 0; n < 15; n += 1)
      expect(await post("/errors?api_key=key", renderReport(n))).toMatchObject(ok);
    expect([await count("kept"), await count("key_rate")]).toEqual([10, 5]);
    expect(await post("/errors?api_key=a%20b%26c", renderReport(1))).toMatchObject(ok);
    expect(await count("kept")).toBe(11);
  });

  test("keeps what is used of a rate over a reload that does not change the rate", async () => {
    const { config, intake, post, count } = await open({}, { keyRate: 1 });
    stopClock();
    const postMany = async () => {
      for (let n = 0; n < 15; n += 1) await post("/errors?api_key=key", renderReport(n));
    };
    await postMany();
    intake.reload({ ...config }, sites);
    await postMany();
    expect(await count("kept")).toBe(10);
    intake.reload({ ...config, keyRate: 2 }, sites);
    await postMany();
    expect(await count("kept")).toBe(10 + 15);
  });

  test("distinguishes senders behind a proxy only where proxies are configured", async () => {
    stopClock();
    const from = (address: string) => ({ "x-forwarded-for": `6.6.6.6, ${address}` });
    const direct = await open({}, { addressRate: 1 });
    for (let n = 0; n < 15; n += 1)
      await direct.post("/errors?api_key=key", renderReport(n), from(`10.0.0.${n}`));
    expect(await direct.count("address_rate")).toBe(5);
    const behind = await open({}, { addressRate: 1, proxies: 1 });
    for (let n = 0; n < 15; n += 1)
      await behind.post("/errors?api_key=key", renderReport(n), from(`10.0.0.${n}`));
    expect(await behind.count("kept")).toBe(15);
    // One host has a whole network of version 6.
    for (let n = 0; n < 15; n += 1)
      await behind.post("/errors?api_key=key", renderReport(n), from(`2001:db8::${n}`));
    expect(await behind.count("address_rate")).toBe(5);
  });

  test("counts a body that ends early, and ends a connection that is too slow", async () => {
    const { port, count } = await open({ bodyTimeout: 100 });
    const head = "POST /errors?api_key=key HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{";
    const leaver = connect(port, "127.0.0.1", () => leaver.end(head, () => leaver.destroy()));
    await expect.poll(() => count("incomplete")).toBe(1);
    const slow = connect(port, "127.0.0.1", () => slow.write(head));
    await once(slow.resume(), "close");
    expect(await count("incomplete")).toBe(2);
  });

  test("reads and drops bodies over the limit of memory, and frees the memory", async () => {
    const { post, port, count, server } = await open({ bufferLimitBytes: 5_000 });
    const big = renderReport(1, { action: "x".repeat(3_000) });
    // One that holds its place open while another one comes.
    const head = `POST /errors?api_key=key HTTP/1.1\r\nHost: x\r\nContent-Length: ${big.length}\r\n\r\n`;
    const begun = head + big.slice(0, -1);
    let held: Socket | undefined;
    server.once("connection", (socket) => {
      held = socket;
    });
    const holder = connect(port, "127.0.0.1", () => holder.write(begun));
    await waitUntil(() => held?.bytesRead === begun.length);
    await readSettledCount(() => held?.bytesRead ?? 0);
    expect(await post("/errors?api_key=key", big)).toMatchObject(ok);
    expect(await count("overloaded")).toBe(1);
    holder.write(big.slice(-1));
    await once(holder, "data");
    holder.destroy();
    expect(await post("/errors?api_key=key", big)).toMatchObject(ok);
    expect(await count("kept")).toBe(2);
  });

  test("answers 200 for a full and for a failing spool, and counts them apart", async () => {
    const full = await open({ spool: createMemorySpooler(1_000) });
    for (let n = 0; n < 5; n += 1)
      expect(await full.post("/errors?api_key=key", renderReport(n))).toMatchObject(ok);
    expect([await full.count("kept"), await full.count("spool_full")]).toEqual([3, 2]);
    const broken: SpoolClient = {
      ...createMemorySpooler(),
      append: () => Promise.reject(new Error("disk I/O error")),
    };
    const failing = await open({ spool: broken });
    expect(await failing.post("/errors?api_key=key", renderReport(1))).toMatchObject(ok);
    expect(await failing.count("spool_failed")).toBe(1);
    expect(failing.logged()).toContain("disk I/O error");
    expect(failing.logged()).not.toContain("api_key");
  });

  test("reads bodies that end at the same moment in turns of the event loop", async () => {
    const { intake, count } = await open();
    const take = (n: number) => {
      const sent = new IncomingMessage(new Socket());
      Object.assign(sent, { method: "POST", url: "/errors?api_key=key" });
      intake.tryAnswer(sent, new ServerResponse(sent));
      sent.push(renderReport(n));
      sent.push(null);
    };
    const turns = await countTurns(async () => {
      for (let n = 0; n < 50; n += 1) take(n);
      await intake.close();
    });
    expect(await count("kept")).toBe(50);
    expect(turns).toBeGreaterThanOrEqual(50);
  });

  test("sends 200 after the commit", async () => {
    const committed = Promise.withResolvers<boolean>();
    const append = vi.fn(() => committed.promise);
    const { post, intake } = await open({ spool: { ...createMemorySpooler(), append } });
    let answered = false;
    const answer = post("/errors?api_key=key", renderReport(1)).then((result) => {
      answered = true;
      return result;
    });
    await expect.poll(() => append).toHaveBeenCalled();
    expect(await readSettledCount(() => append.mock.calls.length + Number(answered))).toBe(1);
    expect(answered).toBe(false);
    const closed = intake.close();
    committed.resolve(true);
    const { status, headers } = await answer;
    expect(status).toBe(200);
    expect(headers.connection).toBe("keep-alive");
    await closed;
    // From now on answers close their connections.
    expect((await post("/errors?api_key=key", "")).headers.connection).toBe("close");
  });
});

test("answers a request correctly whose body is longer than its Content-Length", async () => {
  const { port, count } = await open();
  const text =
    "POST /errors?api_key=key HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789rest of it äöü";
  const socket = connect(port, "127.0.0.1", () => socket.write(text));
  let received = "";
  socket.on("data", (data) => {
    received += data;
  });
  await once(socket, "close");
  expect(received).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  expect(received).toMatch(/\r\n\r\n\{\}$/);
  expect(await count("invalid")).toBe(1);
  // Garbage from the start is no report.
  const other = connect(port, "127.0.0.1", () => other.write("garbage\r\n\r\n"));
  const [answer] = await once(other, "data");
  expect(String(answer)).toMatch(/^HTTP\/1\.1 400 /);
});

describe("connections of the intake's own address", () => {
  const head = "POST /errors?api_key=key HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n";
  /** Resolves when the server has closed it, with what it has sent. */
  const readAll = (port: number, text: string) =>
    new Promise<string>((resolve) => {
      let received = "";
      const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
      socket.setEncoding("utf8").on("data", (chunk) => {
        received += chunk;
      });
      socket.on("error", () => {}).on("end", () => resolve(received));
      if (text !== "") socket.write(text);
    });

  test("on which nothing comes are closed", async () => {
    const { port } = await open({}, {}, 100);
    const silent = await Promise.all(Array.from({ length: 20 }, () => readAll(port, "")));
    expect(new Set(silent)).toEqual(new Set([""]));
  });

  test("of one address are at most half of all, of proxies all", () => {
    expect(deriveConnectionLimits(0)).toMatchObject({ connections: 2_000, perAddress: 1_000 });
    expect(deriveConnectionLimits(2)).toMatchObject({ connections: 2_000, perAddress: 2_000 });
  });

  test("beyond their bound are closed unanswered and counted", async () => {
    const { port, server, post, metric } = await open();
    server.maxConnections = 3;
    for (let n = 0; n < 3; n += 1) void readAll(port, "POST /errors HTTP/1.1\r\n");
    const count = () => new Promise((resolve) => server.getConnections((_, open) => resolve(open)));
    await expect.poll(count).toBe(3);
    expect(await readAll(port, `${head}{}`)).toBe("");
    await expect.poll(() => metric('readout_limited_total{limit="connections"}')).toBeGreaterThan(0);
    server.maxConnections = 10;
    expect(await post("/errors?api_key=key", "{}")).toMatchObject(ok);
  });

  test("have their requests answered one after the other", async () => {
    const { port } = await open();
    const last = head.replace("Host: x", "Host: x\r\nConnection: close");
    const answers = await readAll(port, `${`${head}{}`.repeat(40)}${last}{}`);
    expect(answers.match(/HTTP\/1\.1 200 /g)).toHaveLength(41);
  });
});

describe("the intake on the main address", () => {
  const serve = async (withIntake: boolean) => {
    const { intake, telemetry, count } = await open();
    const server = createServer({
      operations: [],
      authenticate: async () => ({
        user: "ana",
        token: "ana",
        account: "ana",
        maySee: () => true,
        hasScope: () => true,
      }),
      sites,
      limits: defaults.limits,
      telemetry,
      now: () => fromMillis(0),
      loadGraphql: () => Promise.reject(new Error("not asked for")),
      intake: withIntake ? intake : undefined,
    });
    const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
    return { server, port, count };
  };

  test("takes reports beside the other routes", async () => {
    const { server, port, count } = await serve(true);
    const send = (path: string) => exchange({ port, path, method: "POST" }, renderReport(1));
    expect(await send("/errors?api_key=key")).toMatchObject(ok);
    expect(await count("kept")).toBe(1);
    expect((await exchange({ port, path: "/livez" })).status).toBe(200);
    await server.close(0);
  });

  test("answers 404 on its routes where no intake is configured", async () => {
    const { server, port } = await serve(false);
    for (const path of ["/errors", "/collect?api_key=key"]) {
      const answer = await exchange({ port, path, method: "POST" }, renderReport(1));
      expect(answer).toMatchObject({ status: 404, text: '{"error":"Not found"}' });
      expect(answer.headers).not.toHaveProperty("vary");
    }
    await server.close(0);
  });
});
