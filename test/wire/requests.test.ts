// Valid and invalid requests with their exact statuses, headers and bodies, through the plug-in that connections use.
import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { BackendError, type Failure, failures } from "#src/core/errors.ts";
import type { LogStore } from "#src/store/logs.ts";
import { startProcessorTime } from "../support/cpu-time.ts";
import { createFakeRateLimiter } from "../support/fake-rate-limiter.ts";
import { base, createSubject, expiredToken, linesBody, linesPath, token } from "./harness.ts";

const subject = createSubject();
const { server, post } = subject;
const origin = "http://readout";
const bearer = (value: string) => ({ authorization: `Bearer ${value}` });
const notFound = '{"error":"Not found"}';

async function refused(body: unknown): Promise<{ slug: string; details: Record<string, unknown> }> {
  const response = await post(body);
  const {
    error: slug,
    message,
    details,
  } = (await response.json()) as {
    error: string;
    message: unknown;
    details: Record<string, unknown>;
  };
  expect(response.status, JSON.stringify({ slug, details })).toBe(422);
  expect(typeof message).toBe("string");
  return { slug, details };
}
async function issues(body: unknown): Promise<string[]> {
  const { slug, details } = await refused(body);
  expect(slug).toBe("invalid_request");
  return (details.issues as { path: string }[]).map(({ path }) => path);
}

describe("logs/lines over HTTP", () => {
  test("answers rows with the keys of the specification", async () => {
    const response = await post(linesBody({ query: 'message="line 1"' }));
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("application/json; charset=utf-8");
    expect(await response.text()).toBe(
      '[{"id":"l1","timestamp":"2026-01-15T10:00:00.001Z","source_id":"app","severity":"error","message":"line 1","hostname":"","group":"","json":"{\\"n\\":1.0}","attributes":{}}]',
    );
  });

  test("answers an empty array when nothing matches", async () => {
    expect(await (await post(linesBody({ query: "message=nowhere" }))).text()).toBe("[]");
  });

  test("treats null as absent, ignores unknown keys and duplicate sources, and reads `order` in any case", async () => {
    const body = linesBody({
      use_expressions: null,
      from: null,
      to: null,
      nonsense: 1,
      source_ids: ["app", "app"],
    });
    for (const pagination of [
      { per_page: 100, order: "asc", cursor: null, more: true },
      { per_page: 100, order: "Asc" },
      { per_page: 100, order: "ASC", cursor: {} },
    ]) {
      const response = await post({ ...body, pagination });
      expect(response.status).toBe(200);
      expect(await response.json()).toHaveLength(5);
    }
  });

  test("accepts legacy syntax only without `use_expressions`", async () => {
    const query = "severity=[error,critical]";
    expect((await post(linesBody({ query, use_expressions: false }))).status).toBe(200);
    expect(await refused(linesBody({ query }))).toMatchObject({
      slug: "legacy_log_query_syntax",
      details: { field: "severity" },
    });
  });
});

describe("HTTP routes", () => {
  test.each([
    ["GET", "/api/v2/nope"],
    ["GET", linesPath],
    ["POST", "/api/v2/auth"],
    ["PUT", "/api/v2/auth"],
    ["DELETE", linesPath],
    ["HEAD", "/api/v2/auth"],
    ["OPTIONS", linesPath],
    ["POST", `${linesPath}/`],
    ["POST", "/api/v2/logs%2Flines"],
    ["POST", "/api/v2//logs/lines"],
    ["GET", "/api/v2/%zz"],
    ["PUT", "/graphql"],
    ["GET", "/api/v2/markers.json"],
    ["GET", "/api/v2/samples/x.json"],
    ["GET", "/health"],
  ])("answer 404 to %s %s, with and without a token", async (method, path) => {
    for (const headers of [{}, bearer(token)]) {
      const response = await server.fetch(`${origin}${path}`, { method, headers });
      expect(response.status).toBe(404);
      expect(await response.text()).toBe(notFound);
    }
  });

  test("GET /api/v2/auth returns the user", async () => {
    const response = await server.fetch(`${origin}/api/v2/auth`, { headers: bearer(token) });
    expect(await response.json()).toEqual({ message: "Authenticated as ana" });
  });

  test("GraphQL requires a token", async () => {
    const body = '{"query":"{ viewer { id } }"}';
    const ask = (headers: Record<string, string>) =>
      server.fetch(`${origin}/graphql`, {
        method: "POST",
        body,
        headers: { "content-type": "application/json", ...headers },
      });
    expect((await ask({})).status).toBe(401);
    const response = await ask({ ...bearer(token), "x-request-id": "abc-1" });
    expect(response.status).toBe(200);
    expect(response.headers.get("x-request-id")).toBe("abc-1");
    expect(await response.json()).toEqual({ data: { viewer: { id: "ana" } } });
  });

  test("serve health and metrics", async () => {
    expect((await server.fetch(`${origin}/livez`)).status).toBe(200);
    expect(await (await server.fetch(`${origin}/readyz`)).text()).toBe("ready\nmemory: ok\n");
    await post(linesBody());
    const metrics = await (await server.fetch(`${origin}/metrics`)).text();
    expect(metrics).toMatch(/readout_requests_total\{operation="logs.lines",status="200"\} \d+/);
    expect(metrics).toMatch(/readout_requests_total\{operation="none",status="404"\} \d+/);
    expect(metrics).toContain("readout_request_duration_seconds_bucket");
    expect(metrics).toContain("readout_open_streams 0");
  });
});

describe("authentication and sites", () => {
  const auth = (path: string, headers: Record<string, string> = {}) =>
    server.fetch(`${origin}${path}`, { headers });

  test("accept both token parameters and prefer the header", async () => {
    expect((await auth(`/api/v2/auth?token=${token}`)).status).toBe(200);
    expect((await auth("/api/v2/auth?token=wrong", bearer(token))).status).toBe(200);
    expect((await auth(`/api/v2/auth?token=${token}`, bearer("wrong"))).status).toBe(401);
    const url = `${origin}${linesPath}?token=${token}`;
    expect((await server.fetch(url, { method: "POST", body: JSON.stringify(linesBody()) })).status).toBe(200);
  });

  test.each([
    ["none", {}],
    ["a wrong one", bearer("wrong")],
    ["an expired one", bearer(expiredToken)],
    ["an empty one", { authorization: "Bearer " }],
  ])("answer 401 to %s before reading the body", async (_, headers) => {
    const response = await server.fetch(`${origin}${linesPath}`, {
      method: "POST",
      headers: { ...headers },
      body: "{",
    });
    expect(response.status).toBe(401);
    expect(await response.text()).toBe('{"error":"Unauthorized"}');
  });

  test("answer the same 404 to a foreign and a missing site, after validating the body", async () => {
    for (const site_id of ["foreign", "missing", "__proto__", ""]) {
      const response = await post(linesBody({ site_id, source_ids: ["nowhere"], query: "a=" }));
      expect(response.status).toBe(404);
      expect(await response.text()).toBe(notFound);
      expect(await issues(linesBody({ site_id, source_ids: [] }))).toEqual(["source_ids"]);
    }
  });

  test("report an unknown source before a query error", async () => {
    expect(await issues(linesBody({ source_ids: ["app", "x", "y"], query: "a=" }))).toEqual([
      "source_ids.1",
      "source_ids.2",
    ]);
  });

  test("refuse a site without logs", async () => {
    expect(await refused(linesBody({ site_id: "bare" }))).toEqual({
      slug: "not_supported_by_backend",
      details: { backend: null, feature: "logs" },
    });
  });
});

describe("request bodies over HTTP", () => {
  test.each([
    ["", 0],
    ["{", 1],
    ['{"a":1,}', 7],
    ['{"a" 1}', 5],
    ["[1,]", 3],
    ['{"a":nul}', 8],
    ["é", 0],
    // A position that a message of V8 would quote is none.
    ["at position 99", 0],
    ["nope at position 7", 1],
    ['[x "at position 3 (line 1 column 4)"]', 1],
  ])("refuse %j as invalid JSON, and tell where", async (body, position) => {
    expect(await refused(body)).toEqual({ slug: "invalid_json", details: { position } });
  });

  test("report the first hundred issues and count the rest", async () => {
    const many = <T>(value: T) => Array.from({ length: 10_000 }, () => value);
    const path = (field: string) => Array.from({ length: 100 }, (_, at) => `${field}.${at}`);
    const tags = Object.fromEntries(Array.from({ length: 100 }, (_, at) => [`t${at}`, 1]));
    const range = { from: "2026-01-15T10:00:00Z", to: "2026-01-15T11:00:00Z" };
    const selector = { name: "m", field: "count", tags };
    const series = { site_id: "shop", ...range, select: [selector, selector, selector] };
    const asked: readonly (readonly [string, string, unknown, number])[] = [
      ["logs/lines", "source_ids", linesBody({ source_ids: many(1) }), 10_000],
      ["logs/lines", "source_ids", linesBody({ source_ids: many("x") }), 10_000],
      ["tracing/locator", "site_ids", { site_ids: many(null), trace_id: "1" }, 10_000],
      ["metrics/timeseries", "select.0.tags", series, 300],
    ];
    for (const [route, field, body, count] of asked) {
      const time = startProcessorTime();
      const answer = await server.fetch(`${origin}/api/v2/${route}`, {
        method: "POST",
        headers: bearer(token),
        body: JSON.stringify(body),
      });
      const { message, details } = (await answer.json()) as {
        message: string;
        details: { issues: { path: string }[] };
      };
      const told = details.issues.map((issue) => issue.path);
      expect(told).toEqual(
        field === "select.0.tags"
          ? Object.keys(tags)
              .slice(0, 100)
              .map((key) => `${field}.${key}`)
          : path(field),
      );
      expect(message).toMatch(new RegExp(`; and ${count - 100} more$`));
      expect(time(), route).toBeLessThan(400);
    }
    expect(await issues(linesBody({ source_ids: ["app", 1, "app", null] }))).toEqual([
      "source_ids.1",
      "source_ids.3",
    ]);
  });

  test("report a reversed range together with all other issues", async () => {
    const range = { from: "2026-01-15T11:00:00Z", to: "2026-01-15T10:00:00Z" };
    const pagination = { per_page: 0, order: "up" };
    expect((await issues(linesBody({ ...range, source_ids: [1], pagination }))).sort()).toEqual([
      "from",
      "pagination.order",
      "pagination.per_page",
      "source_ids.0",
    ]);
    expect(await issues(linesBody({ ...range, to: "later" }))).toEqual(["to"]);
    expect(await issues(linesBody({ ...range, to: 5, from: null }))).toEqual(["to"]);
  });

  test("refuse a body that is not UTF-8", async () => {
    expect((await refused(new Uint8Array([0x22, 0xff, 0x22]))).slug).toBe("invalid_json");
  });

  test("refuse a compressed body and read one that only declares a coding", async () => {
    const send = (body: string | Uint8Array<ArrayBuffer>, coding: string) =>
      server.fetch(`${origin}${linesPath}`, {
        method: "POST",
        headers: { ...bearer(token), "content-encoding": coding },
        body,
      });
    const text = JSON.stringify(linesBody());
    const zipped = await send(Uint8Array.from(gzipSync(text)), "gzip");
    expect([zipped.status, await zipped.json()]).toEqual([
      422,
      { error: "invalid_json", message: "The body is compressed, which is not taken", details: {} },
    ]);
    expect((await send(text, "utf-8")).status).toBe(200);
  });

  test("refuse an empty body", async () => {
    const response = await server.fetch(`${origin}${linesPath}`, { method: "POST", headers: bearer(token) });
    expect(response.status).toBe(422);
    expect(await response.json()).toMatchObject({ error: "invalid_json" });
  });

  test.each(["[]", "1", '"x"', "null", "true"])("refuse %s, which is not an object", async (body) => {
    expect(await issues(body)).toEqual([""]);
  });

  test("report every issue at once", async () => {
    const body = {
      site_id: 1,
      source_ids: ["a", 2],
      use_expressions: "yes",
      from: "1",
      to: 5,
      pagination: { per_page: "100", order: "UP", cursor: { time: "x" } },
    };
    expect((await issues(body)).sort()).toEqual(
      [
        "site_id",
        "source_ids.1",
        "query",
        "use_expressions",
        "from",
        "to",
        "pagination.per_page",
        "pagination.order",
        "pagination.cursor.time",
      ].sort(),
    );
    expect(await issues({})).toEqual(["site_id", "source_ids", "query", "pagination"]);
    expect(await issues(linesBody({ source_ids: [] }))).toEqual(["source_ids"]);
  });

  test("accept up to 1 MiB and not a byte more", async () => {
    const filled = (bytes: number) => {
      const empty = JSON.stringify(linesBody({ padding: "" }));
      return empty.replace('"padding":""', `"padding":"${"x".repeat(bytes - empty.length)}"`);
    };
    expect((await post(filled(1_048_576))).status).toBe(200);
    expect(await issues(filled(1_048_577))).toEqual([""]);
  });

  test.each([
    "2026-02-30T00:00:00Z",
    "2026-01-15",
    "2026-01-15T10:00:00",
    "2026-01-15T25:00:00Z",
    "2026-13-01T00:00:00Z",
    "1",
    "",
    1768471200,
    "2026-01-15T10:00:00.1234567890Z",
  ])("refuse %j as a time", async (time) => {
    expect(await issues(linesBody({ from: time }))).toEqual(["from"]);
    expect(await issues(linesBody({ to: time }))).toEqual(["to"]);
    expect(await issues(linesBody({}, { cursor: { time } }))).toEqual(["pagination.cursor.time"]);
  });

  test("refuse `from` later than `to`", async () => {
    const times = (from: number, to: number) => ({
      from: new Date(base + from).toISOString(),
      to: new Date(base + to).toISOString(),
    });
    expect(await issues(linesBody(times(1, 0)))).toEqual(["from"]);
    expect((await post(linesBody(times(1, 1)))).status).toBe(200);
  });

  test.each([0, -1, 10_001, 1.5, "100", null, 1e308])("refuse per_page %j", async (per_page) => {
    expect(await issues(linesBody({}, { per_page }))).toEqual(["pagination.per_page"]);
  });
});

describe("hostile log queries over HTTP", () => {
  test.each([
    ["64 kB of words", "a ".repeat(32_768)],
    ["64 kB of one word", "a".repeat(65_536)],
    ["64 kB of backslashes", "\\".repeat(65_536)],
    ["10,000 parentheses", "(".repeat(10_000)],
    ["10,000 closed parentheses", `${"(".repeat(10_000)}a${")".repeat(10_000)}`],
    ["a lone backslash", "\\"],
    ["unbalanced quotes", '"a'],
    ["a NUL", "a=\0"],
    ["lone surrogates", "a=\ud800"],
    ["an operator alone", "="],
  ])("%s: are answered or refused at once", async (_, query) => {
    for (const use_expressions of [true, false]) {
      const used = startProcessorTime();
      const response = await post(linesBody({ query, use_expressions }));
      expect(used()).toBeLessThan(1_000);
      expect([200, 422]).toContain(response.status);
      const answer = (await response.json()) as { error?: string };
      if (response.status === 422) {
        expect(["invalid_log_query", "log_query_too_complex", "legacy_log_query_syntax"]).toContain(
          answer.error,
        );
      }
    }
  });
});

describe("backend failures over HTTP", () => {
  const failing = (error: unknown): LogStore => ({
    // biome-ignore lint/correctness/useYield: it fails
    async *lines() {
      throw error;
    },
  });

  test.each(Object.keys(failures) as Failure[])(
    "answer %s with a 500 and one safe sentence",
    async (failure) => {
      const store = failing(new BackendError("elk", failure, "secret details of http://u:p@elk"));
      const { post, logged } = createSubject({ store });
      const response = await post(linesBody());
      expect(response.status).toBe(500);
      expect(await response.json()).toEqual({ error: failures[failure] });
      expect(response.headers.get("retry-after")).toBe(failure === "overloaded" ? "1" : null);
      expect(logged()).toContain("secret details");
    },
  );

  test("answer any other error with a 500 without details", async () => {
    const response = await createSubject({ store: failing(new TypeError("x is undefined")) }).post(
      linesBody(),
    );
    expect(response.status).toBe(500);
    expect(await response.json()).toEqual({ error: "Internal server error" });
  });

  test("answer a timeout for a hanging backend and abort its request", async () => {
    let signal: AbortSignal | undefined;
    const store: LogStore = {
      async *lines(_, given) {
        signal = given;
        await new Promise(() => {});
      },
    };
    const response = await createSubject({ store, limits: { deadline: 50 } }).post(linesBody());
    expect(response.status).toBe(500);
    expect(await response.json()).toEqual({ error: failures.timeout });
    expect(signal?.aborted).toBe(true);
  });

  test("refuse too many concurrent requests with Retry-After and recover", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    let begun = 0;
    const store: LogStore = {
      // biome-ignore lint/correctness/useYield: an empty answer
      async *lines() {
        begun += 1;
        await promise;
      },
    };
    const { post } = createSubject({ store, limits: { requests: 2 } });
    const waiting = [post(linesBody()), post(linesBody())];
    await expect.poll(() => begun).toBe(2);
    const refused = await post(linesBody());
    expect(refused.status).toBe(500);
    expect(refused.headers.get("retry-after")).toBe("1");
    resolve();
    expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual([200, 200]);
    expect((await post(linesBody())).status).toBe(200);
  });

  test("refuse a token over its rate with Retry-After", async () => {
    const { post } = createSubject({ rate: createFakeRateLimiter(() => false) });
    const response = await post(linesBody());
    expect([response.status, response.headers.get("retry-after")]).toEqual([429, "1"]);
    expect(await response.json()).toEqual({ error: "Too many requests" });
  });

  test("refuse too many concurrent streams", async () => {
    const { post } = createSubject({ lines: 3_000, limits: { streams: 1 } });
    const big = linesBody({}, { per_page: 3_000 });
    const first = await post(big);
    const second = await post(big);
    expect([first.status, second.status]).toEqual([200, 500]);
    expect(await first.json()).toHaveLength(3_000);
    expect(await (await post(big)).json()).toHaveLength(3_000);
  });
});

describe("request ids and the request log", () => {
  test("keep a well-formed request id and replace any other", async () => {
    const id = async (sent: string) =>
      (await post(linesBody(), { headers: { ...bearer(token), "x-request-id": sent } })).headers.get(
        "x-request-id",
      );
    expect(await id("trace-1.2:3_4")).toBe("trace-1.2:3_4");
    expect(await id('a"b')).toMatch(/^[0-9a-f-]{36}$/);
    expect(await id("x".repeat(129))).toMatch(/^[0-9a-f-]{36}$/);
  });

  test("never contain tokens", async () => {
    const store: LogStore = {
      // biome-ignore lint/correctness/useYield: it fails
      async *lines() {
        throw new Error(`upstream said GET /x?token=${token} Authorization: Bearer ${token}`);
      },
    };
    const subject = createSubject({ store });
    await subject.server.fetch(`${origin}${linesPath}?token=${token}`, {
      method: "POST",
      body: JSON.stringify(linesBody()),
    });
    await subject.server.fetch(`${origin}/nope?token=${token}`);
    expect(subject.logged()).toContain('"operation":"logs.lines"');
    expect(subject.logged()).toContain('"user":"ana"');
    expect(subject.logged()).toContain("[redacted]");
    expect(subject.logged()).not.toContain(token);
  });
});

test("each server describes tools by its own operations", async () => {
  const describesSources = async ({ server }: ReturnType<typeof createSubject>) =>
    (await (await server.fetch(`${origin}/api/mcp/tools`, { headers: bearer(token) })).text()).includes(
      "source_ids",
    );
  expect(await describesSources(createSubject())).toBe(true);
  expect(await describesSources(createSubject({ operations: [] }))).toBe(false);
});
