// Tails and exports over real connections: content negotiation, errors before the first byte, cuts, slow clients,
// reloads and drains.
import { request as httpRequest, type IncomingMessage } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, describe, expect, test, vi } from "vitest";
import { createAuthenticator, hashToken } from "#src/access/auth.ts";
import { defaults } from "#src/config/schema.ts";
import { awaitShared } from "#src/core/async/concurrency.ts";
import { BackendError } from "#src/core/errors.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis, printMillis } from "#src/core/time.ts";
import type { Server } from "#src/server/server.ts";
import type { LogStore } from "#src/store/logs.ts";
import { readSettledCount, waitUntil } from "../support/waits.ts";
import { readEvents } from "../tail/harness.ts";
import { base, createSubject, expiredToken, expiringToken, linesBody, linesPath, token } from "./harness.ts";

const opened: Server[] = [];
afterEach(async () => {
  vi.useRealTimers();
  await Promise.all(opened.splice(0).map((server) => server.close(0)));
});

async function start(over: Parameters<typeof createSubject>[0] = {}) {
  const subject = createSubject(over);
  const { port } = await subject.server.listen({ host: "127.0.0.1", port: 0 });
  opened.push(subject.server);
  return { ...subject, port };
}

function ask(
  port: number,
  accept: string,
  body: unknown = linesBody(),
  headers: Record<string, string> = {},
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const sent = { authorization: `Bearer ${token}`, accept, ...headers };
    const request = httpRequest({ port, host: "127.0.0.1", path: linesPath, method: "POST", headers: sent });
    request.on("response", resolve).on("error", reject).end(JSON.stringify(body));
  });
}

/** Collects the body; `ended` is "complete" only if the framing says so. */
function gather(answer: IncomingMessage) {
  let text = "";
  answer.setEncoding("utf8").on("data", (chunk) => {
    text += chunk;
  });
  const ended = new Promise<string>((resolve) => {
    answer.on("end", () => resolve(answer.complete ? "complete" : "cut"));
    answer.on("error", () => resolve("cut"));
  });
  return { text: () => text, events: () => readEvents(text), ended };
}
async function whole(answer: IncomingMessage): Promise<string> {
  const { text, ended } = gather(answer);
  await ended;
  return text();
}

/** Batches of 500 lines of `length` characters, then `last`. */
function feed(batches: number, last: () => Promise<void> = async () => {}, length = 100) {
  const seen = { batches: 0 };
  const store: LogStore = {
    async *lines(_, signal) {
      for (let number = 0; number < batches; number += 1) {
        signal.throwIfAborted();
        seen.batches += 1;
        yield Array.from(
          { length: 500 },
          (_, n): LogLine => ({
            id: `l${number}-${n}`,
            time: fromMillis(base + number),
            source_id: "app",
            severity: "info",
            message: "x".repeat(length),
            json: "{}",
          }),
        );
      }
      await last();
    },
    isWithinLimits: async () => true,
  };
  return { store, seen };
}
const fail = async () => {
  throw new BackendError("elk", "unreachable", "gone");
};

describe("logs/lines: content negotiation", () => {
  const json = "application/json; charset=utf-8";
  test.each([
    ["*/*", json],
    ["", json],
    ["image/png", json],
    ["text/*", json],
    ["text/csv;q=0", json],
    ["text/csv;q=nonsense", json],
    ["application/json, text/csv", json],
    ["text/csv;q=0.5, application/json", json],
    ["text/csv;q=0.5, */*", json],
    ["text/csv, */*", "text/csv; charset=utf-8; header=present"],
    ["TEXT/CSV; charset=utf-8", "text/csv; charset=utf-8; header=present"],
    ["application/json;q=0.1, application/x-ndjson;q=0.2", "application/x-ndjson; charset=utf-8"],
  ])("answers Accept: %s", async (accept, type) => {
    const { port } = await start();
    const answer = await ask(port, accept);
    expect([answer.statusCode, answer.headers["content-type"]]).toEqual([200, type]);
    answer.resume();
  });
});

describe.each(["text/event-stream", "application/x-ndjson", "text/csv"])(
  "%s: errors before the first byte",
  (accept) => {
    test.each([
      ["a wrong token", linesBody(), { authorization: `Bearer ${expiredToken}` }, 401],
      ["a foreign site", linesBody({ site_id: "foreign" }), {}, 404],
      ["a wrong body", linesBody({ pagination: {} }), {}, 422],
      ["an unknown source", linesBody({ source_ids: ["x"] }), {}, 422],
      ["a wrong query", linesBody({ query: "a=" }), {}, 422],
      ["a site without logs", linesBody({ site_id: "bare" }), {}, 422],
    ])("answers %s with the usual error", async (_, body, headers, status) => {
      const { port } = await start();
      const answer = await ask(port, accept, body, headers);
      const plain = await ask(port, "application/json", body, headers);
      expect([answer.statusCode, answer.headers["content-type"]]).toEqual([
        status,
        "application/json; charset=utf-8",
      ]);
      expect(await whole(answer)).toBe(await whole(plain));
    });

    test("answers 500 when the backend is down", async () => {
      const { store } = feed(0, fail);
      const { port } = await start({ store });
      const answer = await ask(port, accept);
      expect([answer.statusCode, await whole(answer)]).toEqual([
        500,
        '{"error":"A data source cannot be reached"}',
      ]);
    });
  },
);

describe("log export over HTTP", () => {
  test("sends small exports with Content-Length and streams large ones", async () => {
    const { port } = await start({ lines: 5 });
    expect((await ask(port, "application/x-ndjson")).headers["content-length"]).toBeDefined();
    const large = await start({ store: feed(20).store });
    const answer = await ask(large.port, "application/x-ndjson");
    const { text, ended } = gather(answer);
    expect(await ended).toBe("complete");
    expect(answer.headers["transfer-encoding"]).toBe("chunked");
    expect(text().trimEnd().split("\n")).toHaveLength(10_000);
  });

  test.each(["application/x-ndjson", "text/csv"])(
    "cuts an export as %s that fails midway",
    async (accept) => {
      const { port, logged } = await start({ store: feed(20, fail).store });
      const { ended } = gather(await ask(port, accept));
      expect(await ended).toBe("cut");
      await expect.poll(() => logged().includes('"status":200,"cut":true')).toBe(true);
    },
  );

  test("cuts an export when the token of its client expires", async () => {
    const rest = Promise.withResolvers<void>();
    const store: LogStore = {
      async *lines(query, signal) {
        yield* feed(20).store.lines(query, signal);
        await awaitShared(rest.promise, signal);
        yield* feed(1).store.lines(query, signal);
      },
      isWithinLimits: async () => true,
    };
    const { port, logged } = await start({ store });
    const headers = { authorization: `Bearer ${expiringToken}` };
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const { text, ended } = gather(await ask(port, "application/x-ndjson", linesBody(), headers));
    await waitUntil(() => text().length > 1_000);
    vi.advanceTimersByTime(600);
    expect(await ended).toBe("cut");
    await waitUntil(() => logged().includes('"status":200,"cut":true'));
    const all = gather(await ask(port, "application/x-ndjson"));
    await waitUntil(() => all.text().length > 1_000);
    vi.advanceTimersByTime(600);
    rest.resolve();
    expect(await all.ended).toBe("complete");
  });

  test("cuts an export whose token or site a reload withdraws, and no other", async () => {
    const store: LogStore = {
      async *lines(query, signal) {
        for (;;) {
          await delay(20, undefined, { signal });
          yield* feed(1).store.lines(query, signal);
        }
      },
      isWithinLimits: async () => true,
    };
    const { port, server, served } = await start({ store });
    const { sites } = served;
    const reload = (users: Parameters<typeof createAuthenticator>[0], left: typeof sites) => {
      const authenticate = createAuthenticator(users, () => fromMillis(base));
      return server.reload({ authenticate, sites: left, limits: defaults.limits });
    };
    const ana = { user: "ana", sha256: hashToken(token), sites: ["shop"] };
    const begin = async () => {
      const gathered = gather(await ask(port, "application/x-ndjson"));
      await expect.poll(() => gathered.text().length > 1_000).toBe(true);
      return gathered;
    };
    const first = await begin();
    const staying = reload([ana], sites);
    await delay(100);
    const before = first.text().length;
    await expect.poll(() => first.text().length > before).toBe(true);
    // Without the token, and then without the site.
    await Promise.all([staying, reload([], sites)]);
    expect(await first.ended).toBe("cut");
    await reload([ana], sites);
    const second = await begin();
    await reload([{ ...ana, sites: "*" }], new Map());
    expect(await second.ended).toBe("cut");
  });

  test("applies the deadline to each step of an export and to a page as a whole", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    let steps = 0;
    const store: LogStore = {
      async *lines({ progressed }, signal) {
        for (let n = 0; n < 8; n += 1) {
          steps += 1;
          await new Promise((resolve) => setTimeout(resolve, 300));
          signal.throwIfAborted();
          progressed?.(1);
        }
        yield* feed(1).store.lines({} as never, signal);
      },
    };
    const { port } = await start({ store, limits: { deadline: 1_500 } });
    const advance = async (count: number) => {
      for (let step = 1; step <= count; step += 1) {
        await waitUntil(() => steps === step);
        await vi.advanceTimersByTimeAsync(300);
      }
      steps = 0;
    };
    const [answer] = await Promise.all([ask(port, "text/csv"), advance(8)]);
    expect((await whole(answer)).trimEnd().split("\r\n")).toHaveLength(501);
    const [page] = await Promise.all([ask(port, "application/json"), advance(5)]);
    expect(page.statusCode).toBe(500);
    page.resume();
  });

  test("pauses reading for a client that does not read", async () => {
    const { store, seen } = feed(10_000, undefined, 1_000);
    const { port } = await start({ store });
    const answer = await ask(port, "application/x-ndjson");
    answer.pause();
    await expect.poll(() => seen.batches).toBeGreaterThan(0);
    expect(await readSettledCount(() => seen.batches)).toBeLessThan(200);
    answer.destroy();
  });
});

describe("live tail over HTTP", () => {
  const tail = "text/event-stream";

  test("sends new lines and ends when the client leaves", async () => {
    const { port, logs, server, logged } = await start();
    // The subject's clock stands still at this millisecond.
    const time = fromMillis(base + 60_000);
    const from = printMillis(base + 60_000);
    const answer = await ask(port, tail, linesBody({ query: "severity=error", from }));
    expect(answer.headers).toMatchObject({
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-store",
    });
    const { events } = gather(answer);
    logs.add("app", [{ id: "new", time, severity: "error", json: "{}" }]);
    await expect.poll(() => events().length > 0).toBe(true);
    expect(events().map(({ event, data }) => [event, data.id])).toEqual([["line", "new"]]);
    const read = async () => (await server.fetch("http://readout/metrics")).text();
    const metric = async () => (await read()).match(/readout_open_tails (\d)/)?.[1];
    expect(await metric()).toBe("1");
    answer.destroy();
    await expect.poll(() => logged().includes('"operation":"logs.tail","status":200,"ms"')).toBe(true);
    expect(await metric()).toBe("0");
    const text = await read();
    expect(text).toContain('readout_requests_total{operation="logs.tail",status="200"} 1\n');
    // It was as long as its client wanted, which is no length of a request.
    expect(text).not.toContain('readout_request_duration_seconds_count{operation="logs.tail"}');
  });

  test("ends on a reload; a removed token is a 401 on reconnect", async () => {
    const { port, server } = await start();
    const { events, ended, text } = gather(await ask(port, tail));
    await expect.poll(() => text() !== "").toBe(true);
    const authenticate = createAuthenticator([], () => fromMillis(base));
    await server.reload({ authenticate, sites: new Map(), limits: defaults.limits });
    expect([await ended, events().at(-1)?.data]).toEqual(["complete", { reason: "reloaded" }]);
    expect(
      (await ask(port, tail, linesBody(), { "last-event-id": events().at(-1)?.id ?? "" })).statusCode,
    ).toBe(401);
  });

  test("ends on a drain", async () => {
    const { port, server } = await start();
    const { events, ended, text } = gather(await ask(port, tail));
    await expect.poll(() => text() !== "").toBe(true);
    await server.close(20_000);
    opened.length = 0;
    expect([await ended, events().at(-1)?.data]).toEqual(["complete", { reason: "draining" }]);
  });

  test("takes no request slot and has its own limits", async () => {
    const limits = { requests: 1, streams: 1, tail: { ...defaults.limits.tail, maxOpen: 3, perToken: 2 } };
    const { port, post } = await start({ limits });
    await ask(port, tail);
    await ask(port, tail);
    expect((await post(linesBody())).status).toBe(200);
    const third = await ask(port, tail);
    expect([
      third.statusCode,
      third.headers["retry-after"],
      third.headers["ratelimit-limit"],
      third.headers["ratelimit-policy"],
      await whole(third),
    ]).toEqual([
      429,
      "10",
      "2",
      '"token_tails";q=2;qu="concurrent-requests"',
      '{"error":"Too many requests"}',
    ]);
  });

  test("says which limit the comparisons in the queries of a token have reached", async () => {
    const { port } = await start({ limits: { tail: { ...defaults.limits.tail, perToken: 2 } } });
    const query = Array.from({ length: 1_000 }, (_, n) => `message:m${n}`).join(" OR ");
    expect((await ask(port, tail, linesBody({ query }))).statusCode).toBe(200);
    const { statusCode, headers } = await ask(port, tail, linesBody({ query }));
    expect([statusCode, headers["retry-after"], headers["ratelimit-policy"]]).toEqual([
      429,
      "10",
      '"token_tail_comparisons";q=1000;qu="comparisons"',
    ]);
  });

  test("refuses a wrong Last-Event-ID and ignores an empty one", async () => {
    const { port } = await start();
    expect((await ask(port, tail, linesBody(), { "last-event-id": "" })).statusCode).toBe(200);
    const answer = await ask(port, tail, linesBody(), { "last-event-id": "nonsense" });
    expect([answer.statusCode, JSON.parse(await whole(answer)).details.issues[0].path]).toEqual([
      422,
      "Last-Event-ID",
    ]);
  });

  test("can be read and closed without a connection", async () => {
    const { post } = createSubject();
    const answer = await post(linesBody(), {
      headers: { authorization: `Bearer ${token}`, accept: tail },
    });
    const reader = answer.body?.getReader();
    const first = await reader?.read();
    expect(new TextDecoder().decode(first?.value)).toMatch(/^retry: 1000\nid: \S+\n\n$/);
    await reader?.cancel();
  });
});
