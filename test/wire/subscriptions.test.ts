// Subscriptions: the lines of a live tail in events of GraphQL, with the checks, bounds and ends of the tail of REST.
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type IncomingMessage, request as sendRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createGunzip } from "node:zlib";
import fc from "fast-check";
import type { FetchAPI } from "graphql-yoga";
import { afterEach, describe, expect, test, vi } from "vitest";
import { createAuditLog } from "#src/audit/audit-log.ts";
import { defaults } from "#src/config/schema.ts";
import { BackendError, Refused } from "#src/core/errors.ts";
import { fromMillis, printMillis } from "#src/core/time.ts";
import { respondWithEvents } from "#src/graphql/event-stream.ts";
import { loadMesh } from "#src/graphql/mesh.ts";
import type { LogStore } from "#src/store/logs.ts";
import { createDemo, loadPlainSchema } from "../support/demo-server.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { readSettledCount } from "../support/waits.ts";
import { readEvents } from "../tail/harness.ts";
import { base, createSubject, linesBody, linesPath, token } from "./harness.ts";

interface Result {
  readonly event: string;
  readonly id: string | undefined;
  readonly data?: { readonly log_lines: readonly { readonly id: string }[] | null };
  readonly errors?: readonly {
    readonly message: string;
    readonly extensions?: Readonly<Record<string, unknown>>;
  }[];
}

function readResults(text: string): readonly Result[] {
  return text.split("\n\n").flatMap((block) => {
    const find = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1];
    const event = find("event");
    return event === undefined ? [] : [{ event, id: find("id"), ...JSON.parse(find("data") ?? "{}") }];
  });
}
const listLines = (results: readonly Result[]) => results.flatMap(({ data }) => data?.log_lines ?? []);

const toArguments = (given: object) =>
  Object.entries(given)
    .map(([name, value]) => `${name}: ${JSON.stringify(value)}`)
    .join(", ");
const subscribe = (given: object, fields = "id") =>
  `subscription { log_lines(${toArguments(given)}) { ${fields} } }`;
const accept = "text/event-stream";

describe("the lines of a subscription are those of a live tail over REST", () => {
  const alone = "sources:\n  - name: telemetry\n    handler: { graphql: { source: ./schema.ts#schema } }\n";
  const beside = `${alone}  - name: other\n    handler: { graphql: { source: ./other.graphql } }\n`;
  /** Mesh with this file, in a folder with a schema of somebody else. */
  const load = async (text: string) => {
    const folder = mkdtempSync(join(tmpdir(), "readout-mesh-"));
    writeFileSync(join(folder, "other.graphql"), "type Query { other: String }");
    const unified = await loadMesh({ file: join(folder, ".meshrc.yaml"), text, log: () => {} });
    rmSync(folder, { recursive: true });
    return unified;
  };
  const row = "id timestamp source_id severity message hostname group json attributes";

  test.each([
    ["the plain schema", loadPlainSchema],
    ["Mesh with our source alone", () => load(alone)],
    ["Mesh with a source beside ours", () => load(beside)],
  ])("with %s", { timeout: 240_000 }, async (_, graphql) => {
    const demo = await createDemo({ graphql });
    const ask = async (path: string, body: object): Promise<string> => {
      const headers = { authorization: "Bearer demo-token", "content-type": "application/json", accept };
      const init = { method: "POST", headers, body: JSON.stringify(body) };
      return (await demo.server.fetch(`http://readout${path}`, init)).text();
    };
    const start = Date.UTC(2026, 0, 15, 11);
    let largest = 0;
    const asked = fc.record({
      source_ids: fc.subarray(["app", "nginx"], { minLength: 1 }),
      query: fc.constantFrom("", "severity=error", "severity!=info AND message:a", "trace_id:a", "nothing=1"),
      from: fc.integer({ min: 0, max: 1_800_000 }).map((at) => printMillis(start + at)),
      to: fc.integer({ min: 1_800_000, max: 2_400_000 }).map((at) => printMillis(start + at)),
    });
    await fc.assert(
      fc.asyncProperty(asked, async (given) => {
        const selection = { site_id: "demo-shop", use_expressions: true, ...given };
        const [tailed, subscribed] = await Promise.all([
          ask(linesPath, { ...selection, pagination: { per_page: 1, order: "ASC" } }),
          ask("/graphql", { query: subscribe(selection, row) }),
        ]);
        const events = readEvents(tailed);
        const results = readResults(subscribed);
        expect(events.at(-1)?.data).toEqual({ reason: "complete" });
        expect(results.at(-1)).toEqual({ event: "complete" });
        expect(results.some(({ errors }) => errors)).toBe(false);
        const lines = events.flatMap(({ event, data }) => (event === "line" ? [data] : []));
        expect(listLines(results)).toEqual(lines);
        largest = Math.max(largest, lines.length);
        for (const { data } of results) expect(data?.log_lines?.length ?? 0).toBeLessThanOrEqual(100);
      }),
      { numRuns: sampleRuns(200, { share: 40, least: 5 }) },
    );
    expect(largest).toBeGreaterThan(100);
    // Each event has a bound of rows of its own: the links of all lines together would exceed it.
    const spans = "id trace { spans { span_id } }";
    const minutes = { from: printMillis(start), to: printMillis(start + 600_000) };
    const given = { site_id: "demo-shop", source_ids: ["app"], query: "trace_id:a", ...minutes };
    const page = `${toArguments({ ...given, use_expressions: true })}, pagination: { per_page: 1000, order: ASC }`;
    const { data } = await demo.graphql(`{ logs_lines(${page}) { ${spans} } }`);
    const followed = await ask("/graphql", { query: subscribe({ ...given, use_expressions: true }, spans) });
    expect(listLines(readResults(followed))).toEqual(data?.logs_lines);
    expect(data?.logs_lines).not.toEqual([]);
    await demo.close();
  });
});

const opened: (() => Promise<void>)[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((close) => close()));
});

async function start(over: Parameters<typeof createSubject>[0] = {}) {
  const subject = createSubject(over);
  const { port } = await subject.server.listen({ host: "127.0.0.1", port: 0 });
  opened.push(() => subject.server.close(0));
  const ask = (body: object | string, headers: Readonly<Record<string, string>> = {}) =>
    follow(port, typeof body === "string" ? { query: body } : body, headers);
  return { ...subject, ask };
}

/** A client of a subscription, as it stands. */
interface Client {
  readonly answer: IncomingMessage;
  readonly text: () => string;
  readonly results: () => readonly Result[];
  readonly state: () => "open" | "complete" | "cut";
}

function follow(port: number, body: object, headers: Readonly<Record<string, string>>): Promise<Client> {
  const sent = { authorization: `Bearer ${token}`, "content-type": "application/json", accept, ...headers };
  return new Promise((resolve, reject) => {
    const options = { port, host: "127.0.0.1", path: "/graphql", method: "POST", headers: sent };
    const request = sendRequest(options, (answer) => {
      let text = "";
      let state: ReturnType<Client["state"]> = "open";
      if (headers["x-stalled"] === undefined) {
        answer.setEncoding("utf8").on("data", (chunk) => (text += chunk));
      }
      answer
        .on("end", () => (state = answer.complete ? "complete" : "cut"))
        .on("error", () => (state = "cut"));
      resolve({ answer, text: () => text, results: () => readResults(text), state: () => state });
    });
    request.on("error", reject).end(JSON.stringify(body));
  });
}

const shop = { site_id: "shop", source_ids: ["app"], query: "" };
const live = subscribe(shop, "id message");

/** A store that never ends its answer, and whether it has been told to. */
function openEndless() {
  const seen = { aborted: false };
  const store: LogStore = {
    async *lines(query, signal) {
      query.progressed?.(1);
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      seen.aborted = true;
    },
  };
  return { store, seen };
}

describe("a subscription", () => {
  test("sends new lines with the id by which its client goes on", async () => {
    const { ask, logs, used } = await start();
    const client = await ask(live);
    expect(client.answer.headers).toMatchObject({
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
      connection: "close",
    });
    const add = (id: string, message: string) =>
      logs.add("app", [{ id, time: fromMillis(base + 60_001), severity: "info", message, json: "{}" }]);
    // The subject's clock stands still: what is new is in the future for a live tail, and not for one from then on.
    const from = printMillis(base + 60_000);
    const other = await ask(subscribe({ ...shop, from }, "id message"));
    logs.add("app", [{ id: "now", time: fromMillis(base + 60_000), severity: "info", json: "{}" }]);
    add("later", "not yet");
    await expect.poll(() => listLines(other.results())).toEqual([{ id: "now", message: "" }]);
    const [event] = other.results();
    expect(Buffer.from(event?.id ?? "", "base64url").toString()).toMatch(/^\d{13}$/);
    expect(client.results()).toEqual([]);
    expect((await used()).tails).toBeGreaterThan(0);
    const again = await ask(live, { "last-event-id": event?.id ?? "" });
    await expect.poll(() => listLines(again.results()).map(({ id }) => id)).toContain("now");
  });

  test("counts what the links of an event hold beside what requests hold, until it is sent", async () => {
    const held: (number | undefined)[] = [];
    const { ask, logs, used } = await start({ store: { lines: (...asked) => readLines(...asked) } });
    async function* readLines(...[query, signal]: Parameters<LogStore["lines"]>) {
      if (JSON.stringify(query.filter).includes("trace_id")) held.push((await used()).held);
      yield* logs.lines(query, signal);
    }
    const line = { id: "linked", severity: "info", json: `{"trace_id":"${"ab".repeat(16)}"}` } as const;
    logs.add("app", [{ ...line, time: fromMillis(base + 60_000) }]);
    const links = "id trace { log_lines { trace { log_lines { id } } } }";
    const client = await ask(subscribe({ ...shop, from: printMillis(base + 60_000) }, links));
    await expect.poll(() => listLines(client.results()).map(({ id }) => id)).toEqual(["linked"]);
    expect(held).toEqual([0, expect.any(Number)]);
    expect(held[1]).toBeGreaterThan(0);
    await expect.poll(async () => (await used()).held).toBe(0);
    client.answer.destroy();
  });

  test("comes line by line in a coding, too", async () => {
    const compression = { codings: ["gzip" as const], level: 1, minBytes: 1, loopback: true };
    const { ask } = await start({ compression });
    const query = subscribe({ ...shop, from: printMillis(base) }, "id message");
    const { answer } = await ask(query, { "accept-encoding": "gzip", "x-stalled": "1" });
    expect(answer.headers).toMatchObject({ "content-encoding": "gzip", vary: "Accept-Encoding" });
    let text = "";
    answer.pipe(createGunzip()).on("data", (chunk) => (text += chunk));
    await expect.poll(() => listLines(readResults(text)).length).toBe(5);
    answer.destroy();
  });

  test.each([
    ["that leaves its connection", true],
    ["that cancels the body", false],
  ])("of a client %s ends the work of the source", async (_, isConnected) => {
    const { store, seen } = openEndless();
    const { ask, server, used, logged } = await start({ store });
    const query = subscribe({ ...shop, from: printMillis(base) });
    if (isConnected) {
      const client = await ask(query);
      expect((await used()).tails).toBeGreaterThan(0);
      client.answer.destroy();
    } else {
      const headers = { authorization: `Bearer ${token}`, "content-type": "application/json", accept };
      const init = { method: "POST", headers, body: JSON.stringify({ query }) };
      const answer = await server.fetch("http://readout/graphql", init);
      expect((await used()).tails).toBeGreaterThan(0);
      await answer.body?.cancel();
    }
    await expect.poll(() => seen.aborted).toBe(true);
    await expect.poll(async () => (await used()).tails).toBe(0);
    await expect.poll(logged).toContain('"operation":"graphql","status":200');
    expect(logged()).not.toMatch(/field failed|"level":"(?:warn|error)"/);
  });

  const deep = "trace { log_lines { ".repeat(6);
  test.each([
    ["a wrong token", live, { authorization: "Bearer wrong" }, 401, { status: 401 }],
    ["a foreign site", subscribe({ ...shop, site_id: "foreign" }), {}, 200, { status: 404 }],
    [
      "a site without logs",
      subscribe({ ...shop, site_id: "bare" }),
      {},
      200,
      { status: 422, slug: "not_supported_by_backend" },
    ],
    [
      "an unknown source",
      subscribe({ ...shop, source_ids: ["x"] }),
      {},
      200,
      { status: 422, slug: "invalid_request" },
    ],
    [
      "a wrong query",
      subscribe({ ...shop, query: "(" }),
      {},
      200,
      { status: 422, slug: "invalid_log_query" },
    ],
    ["a wrong id to go on by", live, { "last-event-id": "x" }, 200, { status: 422, slug: "invalid_request" }],
    ["a query that is too deep", subscribe(shop, `${deep} id ${"} } ".repeat(6)}`), {}, 200, undefined],
    [
      "a query that costs too much",
      subscribe(
        shop,
        Array.from(
          { length: 60 },
          (_, n) => `a${n}: ${deep.slice(0, 57)} id message group ${"} } ".repeat(3)}`,
        ).join(" "),
      ),
      {},
      200,
      undefined,
    ],
    ["two fields", "subscription { log_lines(site_id: 1) { id } b: log_lines { id } }", {}, 200, undefined],
  ])("refuses %s, and reads nothing", async (_, query, headers, status, extensions) => {
    let readings = 0;
    const store: LogStore = {
      // biome-ignore lint/correctness/useYield: an empty answer
      async *lines() {
        readings += 1;
      },
    };
    const { ask, used } = await start({ store });
    const client = await ask(query, headers);
    await expect.poll(client.state).toBe("complete");
    expect(client.answer.statusCode).toBe(status);
    const text = client.text();
    const errors = status === 200 ? client.results()[0]?.errors : JSON.parse(text).errors;
    expect(errors[0].extensions ?? {}).toMatchObject(extensions ?? {});
    if (extensions === undefined) expect(errors[0].message).toMatch(/limit of|expected|must|cannot/i);
    expect(text).not.toMatch(/node_modules|\.ts:/);
    expect([readings, (await used()).tails]).toEqual([0, 0]);
  });

  test("is refused to a client that takes no events, before anything is read", async () => {
    const { store, seen } = openEndless();
    const { ask, used } = await start({ store });
    for (const other of [
      "application/json",
      "application/graphql-response+json",
      "multipart/mixed",
      "text/event-stream;q=0, application/json",
      "text/*;q=0, */*",
    ]) {
      const { answer, state } = await ask(live, { accept: other });
      await expect.poll(state).toBe("complete");
      expect(answer.statusCode).toBe(406);
    }
    expect([seen.aborted, (await used()).tails]).toEqual([false, 0]);
    expect(
      (await ask(subscribe({ ...shop, from: printMillis(base) }), { accept: "*/*" })).answer.headers[
        "content-type"
      ],
    ).toMatch(/^text\/event-stream/);
  });

  test("takes a place among the tails of its token, and no request slot", async () => {
    const limits = { requests: 1, tail: { ...defaults.limits.tail, perToken: 2 } };
    const { ask, post, limited, used } = await start({ limits });
    await ask(live);
    const first = await post(linesBody(), { headers: { authorization: `Bearer ${token}`, accept } });
    expect(first.status).toBe(200);
    expect((await post(linesBody())).status).toBe(200);
    expect(await used()).toMatchObject({ requests: 0, token_requests: 0 });
    const refused = await ask(live);
    await expect.poll(refused.state).toBe("complete");
    expect(refused.results()[0]?.errors?.[0]).toMatchObject({
      message: "Too many requests",
      extensions: { status: 429, retry_after: 10, rate_limit: '"token_tails";q=2;qu="concurrent-requests"' },
    });
    expect((await limited()).token_tails).toBe(1);
    await first.body?.cancel();
  });

  test("tells of a source that fails, in a safe sentence, and goes on", async () => {
    let failure: Error | undefined;
    const { server: _, ...inner } = createSubject();
    const store: LogStore = {
      async *lines(query, signal) {
        if (failure !== undefined) throw failure;
        yield* inner.logs.lines(query, signal);
      },
    };
    const { ask } = await start({ store });
    failure = new BackendError("elk", "unreachable", "secret");
    const refused = await ask(live);
    await expect.poll(refused.state).toBe("complete");
    const unreachable = { message: "A data source cannot be reached", extensions: { status: 500 } };
    expect(refused.results()[0]?.errors).toMatchObject([unreachable]);
    failure = undefined;
    const client = await ask(live);
    failure = new BackendError("elk", "unreachable", "secret");
    await expect.poll(() => client.results().length).toBe(1);
    const extensions = { status: 500, retry_in_ms: 1_000 };
    expect(client.results()[0]).toMatchObject({
      data: { log_lines: null },
      errors: [{ ...unreachable, extensions }],
    });
    failure = undefined;
    await expect.poll(() => client.results().length).toBe(2);
    expect(client.results()[1]).toMatchObject({ data: { log_lines: [] } });
    failure = new Refused("not_supported_by_backend", "no", { backend: "elk", feature: "x" });
    await expect.poll(client.state).toBe("complete");
    expect(client.results().slice(2)).toMatchObject([
      {
        errors: [
          { message: "no", extensions: { status: 422, slug: "not_supported_by_backend", end: "refused" } },
        ],
      },
      { event: "complete" },
    ]);
    expect(client.text()).not.toMatch(/secret|elk.*stack/);
  });

  test("ends on a reload and on a drain, which wait for it", async () => {
    const { ask, server, served } = await start();
    const first = await ask(live);
    await server.reload(served);
    await expect.poll(first.state).toBe("complete");
    expect(first.results()).toMatchObject([
      { errors: [{ message: "The configuration has changed", extensions: { end: "reloaded" } }] },
      { event: "complete" },
    ]);
    const second = await ask(live);
    await server.close(20_000);
    opened.length = 0;
    await expect.poll(second.state).toBe("complete");
    expect(second.results()[0]?.errors?.[0]?.extensions).toEqual({ end: "draining" });
  });

  test("is read no faster than its client takes it", async () => {
    let batches = 0;
    const store: LogStore = {
      async *lines(_, signal) {
        for (; batches < 400; batches += 1) {
          signal.throwIfAborted();
          yield Array.from({ length: 500 }, (_, n) => ({
            id: `l${batches}-${n}`,
            time: fromMillis(base + batches),
            source_id: "app",
            severity: "info" as const,
            message: "x".repeat(200),
            json: "{}",
          }));
        }
      },
    };
    const { ask } = await start({ store });
    const client = await ask(subscribe({ ...shop, from: printMillis(base) }, "id message"), {
      "x-stalled": "1",
    });
    await expect.poll(() => batches).toBeGreaterThan(0);
    expect(await readSettledCount(() => batches)).toBeLessThan(200);
    client.answer.destroy();
  });

  test("may be a document that is named by its hash, also where no other is taken", async () => {
    const hash = createHash("sha256").update(live).digest("hex");
    const findDocument = (asked: string) => (asked === hash ? live : undefined);
    const queryRules = { findDocument, onlyDocuments: true, introspection: true };
    const { ask } = await start({ served: { queryRules } });
    const named = await ask({ extensions: { persistedQuery: { version: 1, sha256Hash: hash } } });
    await expect.poll(named.text).toMatch(/^id: /m);
    expect([named.state(), named.results()]).toEqual(["open", []]);
    const refused = await ask(subscribe(shop, "message"));
    await expect.poll(refused.state).toBe("complete");
    expect(refused.text()).toContain("Only documents of this server are answered");
  });

  test("has lines in the audit log: its begin, the tail and its end", async () => {
    const lines: Readonly<Record<string, unknown>>[] = [];
    let isFull = false;
    const append = async (line: string) => {
      if (isFull) throw new Error("no space");
      lines.push(JSON.parse(line));
    };
    const audit = createAuditLog({
      config: { key: "k".repeat(16), queries: "text", onFull: "refuse" },
      sink: { append, reopen: () => {}, close: async () => [] },
      now: () => fromMillis(0),
      onDropped: () => {},
      onState: () => {},
    });
    const { ask, server, served } = await start({ audit });
    const client = await ask(subscribe({ ...shop, query: "severity=error" }), { "x-request-id": "r1" });
    const request = { request: "r1", user: "ana" };
    const tail = { event: "operation", operation: "logs.tail", sites: ["shop"], query: "severity=error" };
    expect(lines).toMatchObject([
      { ...request, event: "begin", operation: "graphql" },
      { ...request, ...tail, status: 200 },
    ]);
    client.answer.destroy();
    await expect
      .poll(() => lines[2])
      .toMatchObject({ ...request, event: "end", operation: "graphql", status: 200 });
    await ask(subscribe({ ...shop, site_id: "foreign" }), { "x-request-id": "r2" });
    await expect
      .poll(() => lines.slice(3))
      .toMatchObject([
        { request: "r2", event: "operation", operation: "logs.tail", status: 404, decision: "denied" },
        { request: "r2", event: "request", operation: "graphql", status: 200 },
      ]);
    // One whose end cannot be written has none.
    const unwritten = await ask(live);
    isFull = true;
    await server.reload(served);
    await expect.poll(unwritten.state).toBe("cut");
    expect(unwritten.text()).not.toContain("event: complete");
  });
});

test("a quiet stream has a heartbeat with its id, and a result that breaks off ends it without a complete event", async () => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  const failing = Promise.withResolvers<never>();
  const results = { [Symbol.asyncIterator]: () => ({ next: () => failing.promise }) };
  const options = { print: () => [], readPosition: () => "a" };
  const { body } = respondWithEvents(results, options, globalThis as unknown as FetchAPI);
  const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
  expect((await reader?.read())?.value).toBe(":\nid: a\n\n");
  vi.advanceTimersByTime(14_999);
  expect(vi.getTimerCount()).toBe(1);
  vi.advanceTimersByTime(1);
  expect((await reader?.read())?.value).toBe(":\nid: a\n\n");
  failing.reject(new Error("cut"));
  await expect(reader?.read()).rejects.toThrow();
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

test("a result is printed no further once its client has left", async () => {
  let printed = 0;
  function* print(): Generator<string> {
    for (; printed < 1_000_000; printed += 1) yield "piece";
  }
  async function* giveOne() {
    yield {};
  }
  const options = { print, readPosition: () => undefined };
  const { body } = respondWithEvents(giveOne(), options, globalThis as unknown as FetchAPI);
  const reader = body?.getReader();
  await reader?.read();
  await reader?.read();
  await reader?.cancel();
  const atLeave = printed;
  for (let turn = 0; turn < 100; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  expect(printed).toBeLessThanOrEqual(atLeave + 1);
  expect(printed).toBeGreaterThan(0);
});
