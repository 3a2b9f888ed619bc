// Coded answers over real connections: byte for byte those without a coding, cuts that show, and who gets them.
import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { gunzipSync, zstdDecompressSync } from "node:zlib";
import { afterEach, describe, expect, test, vi } from "vitest";
import { type CompressionConfig, defaultCompression } from "#src/config/edge-settings.ts";
import { defaults } from "#src/config/schema.ts";
import { BackendError } from "#src/core/errors.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import type { Server } from "#src/server/server.ts";
import type { LogStore } from "#src/store/logs.ts";
import { askEveryRoute } from "../support/demo-questions.ts";
import { clock, createDemo, token as demoToken } from "../support/demo-server.ts";
import { base, createSubject, linesBody, linesPath, token } from "./harness.ts";

const open: (() => Promise<void>)[] = [];
afterEach(async () => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  for (const close of open.splice(0)) await close();
});

const everywhere: CompressionConfig = { ...defaultCompression, loopback: true };
const all: CompressionConfig = { ...everywhere, minBytes: 0 };

async function listen(server: Server): Promise<number> {
  const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
  open.push(() => server.close(0));
  return port;
}

interface Asked {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Buffer;
  /** False where the framing shows a cut. */
  readonly isWhole: boolean;
}

function ask(
  port: number,
  path: string,
  {
    method = "GET",
    headers = {},
    body,
    onHead,
  }: { method?: string; headers?: Record<string, string>; body?: unknown; onHead?: () => void } = {},
): Promise<Asked> {
  return new Promise((resolve, reject) => {
    const sent = { authorization: `Bearer ${token}`, ...headers };
    const request = httpRequest({ port, host: "127.0.0.1", path, method, headers: sent, agent: false });
    request.on("error", reject);
    request.on("response", (answer) => {
      // From here on an error is a cut, which the framing shows.
      request.off("error", reject).on("error", () => {});
      onHead?.();
      const chunks: Buffer[] = [];
      answer.on("data", (chunk: Buffer) => chunks.push(chunk));
      answer.on("error", () => {});
      answer.on("close", () => {
        const { statusCode = 0, headers, complete } = answer;
        resolve({ status: statusCode, headers, bytes: Buffer.concat(chunks), isWhole: complete });
      });
    });
    request.end(typeof body === "string" ? body : body && JSON.stringify(body));
  });
}

function decode({ headers, bytes }: Asked): Buffer {
  const coding = headers["content-encoding"];
  if (coding === undefined) return bytes;
  return coding === "gzip" ? gunzipSync(bytes) : zstdDecompressSync(bytes);
}

const lines = (accept: string, over: Record<string, unknown> = {}) => ({
  method: "POST",
  headers: { "accept-encoding": accept },
  body: linesBody(over),
});

describe("each route", () => {
  // Generating hours of samples takes some seconds, on a slow machine more than a test has else.
  test("answers the same with every coding", { timeout: 240_000 }, async () => {
    const demo = await createDemo({ compression: all });
    open.push(demo.close);
    const port = await listen(demo.server);
    vi.useFakeTimers({ toFake: ["Date"], now: clock });
    const coded = new Map<string, number>();
    vi.spyOn(globalThis, "fetch").mockImplementation(async (input, init) => {
      const { pathname, search } = new URL(String(input));
      const asked = async (coding: string) =>
        ask(port, pathname + search, {
          method: init?.method ?? "GET",
          headers: { ...(init?.headers as Record<string, string>), "accept-encoding": coding },
          body: init?.body ?? undefined,
        });
      const plain = await asked("identity");
      for (const coding of ["gzip", "zstd"]) {
        const other = await asked(coding);
        const { "content-encoding": used } = other.headers;
        if (used !== undefined) coded.set(coding, (coded.get(coding) ?? 0) + 1);
        expect(other.status, pathname).toBe(plain.status);
        // What the program counts of itself goes on.
        if (pathname === "/metrics") continue;
        expect(other.isWhole, pathname).toBe(true);
        expect(decode(other).equals(plain.bytes), `${pathname} ${coding}`).toBe(true);
      }
      return new Response(new Uint8Array(plain.bytes), { status: plain.status });
    });
    await askEveryRoute(`http://127.0.0.1:${port}`, demoToken);
    expect(coded.get("zstd")).toBeGreaterThan(20);
    expect(coded.get("gzip")).toBeGreaterThan(20);
  });
});

describe("log lines", () => {
  const forms = ["application/json", "application/x-ndjson", "text/csv", "text/event-stream"];
  // A tail is over as soon as no line can come any more.
  const limits = { tail: { ...defaults.limits.tail, lateness: 1_000 } };
  test.each(forms)("as %s are the same with every coding", async (accept) => {
    const { server } = createSubject({ lines: 5_000, compression: everywhere, limits });
    const port = await listen(server);
    const asked = (coding: string) => {
      const range = { from: new Date(base).toISOString(), to: new Date(base + 4_000).toISOString() };
      const { headers, ...rest } = lines(coding, { ...range, pagination: { per_page: 4_000, order: "ASC" } });
      return ask(port, linesPath, { ...rest, headers: { ...headers, accept } });
    };
    const plain = await asked("identity");
    expect(plain.headers["content-type"]).toContain(accept);
    expect(plain.headers.vary).toBe("Accept-Encoding");
    expect(plain.bytes.length).toBeGreaterThan(250_000);
    for (const coding of ["gzip", "zstd"]) {
      const coded = await asked(coding);
      expect(coded.headers["content-encoding"]).toBe(coding);
      expect(coded.headers.vary).toBe("Accept-Encoding");
      expect(coded.headers["content-length"]).toBeUndefined();
      expect(coded.bytes.length).toBeLessThan(plain.bytes.length / 5);
      expect(decode(coded).equals(plain.bytes)).toBe(true);
    }
  });

  test("short answers are sent as they are, also errors", async () => {
    const { server } = createSubject({ compression: everywhere });
    const port = await listen(server);
    const short = await ask(port, linesPath, lines("gzip"));
    expect(short.headers).toMatchObject({
      vary: "Accept-Encoding",
      "content-length": `${short.bytes.length}`,
    });
    expect(short.headers["content-encoding"]).toBeUndefined();
    const wrong = await ask(port, linesPath, { ...lines("gzip"), body: "{" });
    expect([wrong.status, wrong.headers["content-encoding"]]).toEqual([422, undefined]);
  });

  test("clients on this machine get them only where the configuration says so", async () => {
    const { server } = createSubject({ lines: 200, compression: defaultCompression });
    const port = await listen(server);
    const { headers, bytes } = await ask(port, linesPath, lines("gzip, zstd"));
    expect([headers["content-encoding"], headers.vary]).toEqual([undefined, undefined]);
    // Who takes nothing but a coding gets it.
    for (const none of ["0", ".0"]) {
      const only = await ask(port, linesPath, lines(`gzip, identity;q=${none}`));
      expect(only.headers["content-encoding"]).toBe("gzip");
      expect(decode(only).equals(bytes)).toBe(true);
    }
  });

  test("nothing is coded where no coding is configured", async () => {
    const { server } = createSubject({ lines: 200, compression: { ...everywhere, codings: [] } });
    const port = await listen(server);
    const { headers } = await ask(port, linesPath, lines("gzip, zstd"));
    expect([headers["content-encoding"], headers.vary]).toEqual([undefined, undefined]);
  });

  test("a client that takes nothing of what there is gets 406, before its token is looked at", async () => {
    const { server, requests } = createSubject({ compression: everywhere });
    const port = await listen(server);
    for (const accept of ["br, identity;q=0", "*;q=0"]) {
      const refused = await ask(port, linesPath, lines(accept));
      expect([refused.status, String(refused.bytes)]).toEqual([406, '{"error":"Not acceptable"}']);
      const stranger = {
        ...lines(accept),
        headers: { "accept-encoding": accept, authorization: "Bearer x" },
      };
      expect((await ask(port, linesPath, stranger)).status).toBe(406);
      const asked = { ...stranger, body: { query: "{ sites { id } }" } };
      const graphql = await ask(port, "/graphql", asked);
      expect([graphql.status, JSON.parse(String(graphql.bytes))]).toMatchObject([
        406,
        { errors: [{ message: "Not acceptable", extensions: { status: 406 } }] },
      ]);
      expect((await ask(port, "/api/v2/nothing", { headers: { "accept-encoding": accept } })).status).toBe(
        404,
      );
    }
    expect(await requests()).toMatchObject({ "none 404": 2, "logs.lines 406": 4, "graphql 406": 2 });
  });

  test.each(["gzip", "zstd"])("a cut answer shows it with %s", async (coding) => {
    let hasHead = Promise.withResolvers<void>();
    const store: LogStore = {
      async *lines() {
        for (let number = 0; number < 15; number += 1) {
          yield Array.from(
            { length: 500 },
            (_, n): LogLine => ({
              id: `l${number}-${n}`,
              time: fromMillis(base + number),
              source_id: "app",
              severity: "info",
              message: `${n * 7_919}`.repeat(50),
              json: "{}",
            }),
          );
        }
        // A reset takes with it what its client has not read yet.
        await hasHead.promise;
        throw new BackendError("elk", "unreachable", "gone");
      },
      // Certain that no limit is passed, so that the answer streams.
      fits: async () => true,
    } as unknown as LogStore;
    const { server } = createSubject({ store, compression: everywhere });
    const port = await listen(server);
    for (const accept of ["text/csv", "application/x-ndjson"]) {
      const headers = { accept, "accept-encoding": coding };
      hasHead = Promise.withResolvers();
      const answer = await ask(port, linesPath, { ...lines(coding), headers, onHead: hasHead.resolve });
      expect(answer.status).toBe(200);
      expect(answer.isWhole).toBe(false);
      expect(answer.headers["content-encoding"]).toBe(coding);
      expect(() => decode(answer)).toThrow();
    }
  });
});

describe("GraphQL", () => {
  test.each([1, 500, 5_000])("answers of %i rows are the same with every coding", async (rows) => {
    const { server } = createSubject({ lines: rows, compression: everywhere });
    const port = await listen(server);
    const query = `{ logs_lines(site_id: "shop", source_ids: ["app"], query: "", use_expressions: true,
      pagination: { per_page: ${rows}, order: ASC }) { id timestamp message json } }`;
    const asked = (coding: string) =>
      ask(port, "/graphql", {
        method: "POST",
        headers: { "accept-encoding": coding, "content-type": "application/json" },
        body: { query },
      });
    const plain = await asked("identity");
    expect(plain.status, String(plain.bytes)).toBe(200);
    expect(JSON.parse(String(plain.bytes)).errors).toBeUndefined();
    expect(plain.headers.vary).toContain("Accept-Encoding");
    for (const coding of ["gzip", "zstd"]) {
      const coded = await asked(coding);
      expect(coded.headers["content-encoding"]).toBe(rows === 1 ? undefined : coding);
      expect(decode(coded).equals(plain.bytes)).toBe(true);
    }
  });
});
