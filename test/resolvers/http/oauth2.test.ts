// Access tokens of OAuth 2 with each of the three clients, and how often they are asked for.
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, describe, expect, test, vi } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { createAccessTokens } from "#resolvers/http/oauth2.ts";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import { BackendError } from "#src/core/errors.ts";
import type { Backend } from "#src/store/backend.ts";
import { testIO } from "../../support/io.ts";
import {
  openScriptedSource,
  type Responder,
  type ScriptedSource,
  sendJson,
} from "../../support/scripted-http-source.ts";

const opened: ScriptedSource[] = [];
const backends: Backend[] = [];
afterEach(async () => {
  for (const backend of backends.splice(0)) await backend.close();
  for (const source of opened.splice(0)) await source.close();
  vi.useRealTimers();
  vi.restoreAllMocks();
});
async function open(reply: Responder): Promise<ScriptedSource> {
  const source = await openScriptedSource(reply);
  opened.push(source);
  return source;
}

const never = new AbortController().signal;
const login = { client_id: "read:out", client_secret: "hush & 1", scopes: ["a", "b"] };

/** Hands out `token-1`, `token-2`, … and counts. */
async function openIssuer(lifetime: unknown = 3_600) {
  const issued = { count: 0, seen: [] as string[] };
  const source = await open((response, { headers }, body) => {
    issued.count += 1;
    issued.seen.push(`${headers.authorization} ${body}`);
    sendJson(response, {
      access_token: `token-${issued.count}`,
      token_type: "Bearer",
      expires_in: lifetime,
    });
  });
  return { issued, tokenUrl: `${source.url}/token` };
}
const settingsOf = (tokenUrl: string) => ({ tokenUrl, clientId: "c", clientSecret: "hush", scopes: [] });

describe.each(["Elasticsearch", "OpenSearch", "Prometheus"])("%s", (product) => {
  const answer = (response: Parameters<Responder>[0], body: string) => {
    if (product === "Elasticsearch") sendJson(response, { version: { number: "8.19.8" } });
    else if (product === "OpenSearch") {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ version: { number: "2.19.1", distribution: "opensearch" } }));
    } else {
      const edge = { resultType: "vector", result: [{ metric: {}, value: [1_700_000_040, "1"] }] };
      sendJson(response, { status: "success", data: body === "" ? { version: "3.1.0" } : edge });
    }
  };
  const connect = (url: string, tokenUrl: string, io = testIO): Backend => {
    const settings = { url, auth: { oauth2: { token_url: tokenUrl, ...login } } };
    const backend =
      product === "Prometheus"
        ? prometheus.create("source", prometheus.parseConfig(settings), io)
        : elastic.create("source", elastic.parseConfig(settings), io);
    backends.push(backend);
    return backend;
  };

  test("sends the token with every request, and asks for it once", async () => {
    const { issued, tokenUrl } = await openIssuer();
    const seen = new Set<string | undefined>();
    const source = await open((response, { headers }, body) => {
      seen.add(headers.authorization);
      answer(response, body);
    });
    const backend = connect(source.url, tokenUrl);
    await Promise.all([backend.probe(never), backend.probe(never), backend.probe(never)]);
    await backend.probe(never);
    expect([...seen]).toEqual(["Bearer token-1"]);
    // As RFC 6749 has it: form-encoded before it becomes Basic.
    const basic = Buffer.from("read%3Aout:hush+%26+1").toString("base64");
    expect(issued.seen).toEqual([`Basic ${basic} grant_type=client_credentials&scope=a+b`]);
  });

  test("asks once more for a token that the source refuses before its time", async () => {
    const { issued, tokenUrl } = await openIssuer();
    let good = "Bearer token-1";
    const source = await open((response, { headers }, body) => {
      if (headers.authorization === good) answer(response, body);
      else sendJson(response, { error: "expired" }, 401);
    });
    const backend = connect(source.url, tokenUrl);
    await backend.probe(never);
    good = "Bearer token-2";
    await backend.probe(never);
    expect(issued.count).toBe(2);
  });

  test("says that no token is to be had, and never what the secret is", async () => {
    const issuer = await open((response) => sendJson(response, { error: "invalid_client" }, 401));
    const source = await open((response, _, body) => answer(response, body));
    const failed = await connect(source.url, `${issuer.url}/token`)
      .probe(never)
      .catch((error: unknown) => error);
    if (!(failed instanceof BackendError)) throw failed;
    const { host } = new URL(issuer.url);
    expect(failed).toMatchObject({
      failure: "denied",
      message: `no access token from ${host}: it refuses the client (status 401, invalid_client)`,
    });
    expect(JSON.stringify(failed)).not.toContain("hush");
    expect(source.requests).toEqual([]);
  });

  test("does not blame the source for a server of tokens that hangs", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const issuer = await open(() => {});
    const source = await open((response, _, body) => answer(response, body));
    const outcomes: string[] = [];
    const recordRequest = (_: string, outcome: string) => void outcomes.push(outcome);
    const backend = connect(source.url, `${issuer.url}/token`, { ...testIO, recordRequest });
    const failed = backend.probe(never).catch((error: unknown) => error);
    const leaving = new AbortController();
    const left = backend.probe(leaving.signal).catch((error: unknown) => error);
    await expect.poll(() => issuer.requests.length).toBe(1);
    leaving.abort(new Error("left"));
    vi.advanceTimersByTime(30_000);
    expect(await failed).toMatchObject({
      failure: "unreachable",
      message: `no access token from ${new URL(issuer.url).host}: no answer`,
    });
    expect(await left).toEqual(new Error("left"));
    expect(source.requests).toEqual([]);
    // It has waited for its whole deadline, and is not repeated.
    expect(outcomes).toEqual(["unreachable"]);
  });

  test("does not repeat what could not be sent", async () => {
    const issuer = await open((response) => sendJson(response, {}, 503));
    const source = await open((response, _, body) => answer(response, body));
    const outcomes: string[] = [];
    const recordRequest = (_: string, outcome: string) => void outcomes.push(outcome);
    const backend = connect(source.url, `${issuer.url}/token`, { ...testIO, recordRequest });
    await expect(backend.probe(never)).rejects.toMatchObject({ failure: "unreachable" });
    expect(outcomes).toEqual(["unreachable"]);
  });
});

describe("a token", () => {
  test("is asked for once by all who need it, also when it has to be renewed under load", async () => {
    const { issued, tokenUrl } = await openIssuer(100);
    let now = 0;
    const { readToken } = createAccessTokens("source", settingsOf(tokenUrl), () => now);
    const all = () => Promise.all(Array.from({ length: 200 }, () => readToken(never)));
    expect(new Set(await all())).toEqual(new Set(["token-1"]));
    // Before its end requests still go with it, while the next one is on its way.
    now = 81_000;
    expect(new Set(await all())).toEqual(new Set(["token-1"]));
    await expect.poll(() => readToken(never)).toBe("token-2");
    expect(issued.count).toBe(2);
    // After its end they wait.
    now = 300_000;
    expect(new Set(await all())).toEqual(new Set(["token-3"]));
    expect(issued.count).toBe(3);
  });

  test("is good through an outage of its server, until it expires", async () => {
    let isDown = false;
    let tries = 0;
    const issuer = await open((response) => {
      tries += 1;
      if (isDown) sendJson(response, {}, 503);
      else sendJson(response, { access_token: "t", token_type: "bearer", expires_in: "100" });
    });
    let now = 0;
    const { readToken } = createAccessTokens("source", settingsOf(issuer.url), () => now);
    await readToken(never);
    isDown = true;
    now = 90_000;
    for (let n = 0; n < 20; n += 1) {
      expect(await readToken(never)).toBe("t");
      await delay(2);
    }
    // Not one try for each request.
    expect(tries).toBe(2);
    now = 101_000;
    await expect(readToken(never)).rejects.toMatchObject({ failure: "unreachable" });
    await expect(readToken(never)).rejects.toMatchObject({ failure: "unreachable" });
    expect(tries).toBe(3);
    isDown = false;
    now = 103_000;
    expect(await readToken(never)).toBe("t");
  });

  test("is not waited for by a caller who leaves", async () => {
    const issuer = await open(() => {});
    const { readToken } = createAccessTokens("source", settingsOf(issuer.url));
    const leaving = new AbortController();
    const waiting = readToken(leaving.signal);
    leaving.abort(new Error("left"));
    await expect(waiting).rejects.toThrow("left");
  });

  test("is waited for a while only", async () => {
    const late = new AbortController();
    const limits = vi.spyOn(AbortSignal, "timeout").mockReturnValue(late.signal);
    const issuer = await open(() => late.abort(new DOMException("late", "TimeoutError")));
    const { readToken } = createAccessTokens("source", settingsOf(issuer.url));
    await expect(readToken(never)).rejects.toMatchObject({
      failure: "unreachable",
      message: `no access token from ${new URL(issuer.url).host}: no answer within 5000 ms`,
    });
    expect(limits.mock.calls).toEqual([[5_000]]);
  });

  test.each<[name: string, reply: Responder, failure: string, reason: RegExp]>([
    ["text", (response) => response.end("<html>"), "malformed", /no bearer token/],
    ["another type", (r) => sendJson(r, { access_token: "t", token_type: "mac" }), "malformed", /no bearer/],
    [
      "a token that is no header",
      (r) => sendJson(r, { access_token: "a\r\nb", token_type: "bearer" }),
      "malformed",
      /no bearer/,
    ],
    ["a long answer", (r) => r.end("x".repeat(200_000)), "unreachable", /too long/],
    ["a refusal in HTML", (r) => sendJson(r, "<b>hush</b>", 400), "denied", /\(status 400\)$/],
    [
      "a redirect",
      (r) => void r.writeHead(307, { location: "http://127.0.0.1:1/" }).end(),
      "unreachable",
      /no access token from/,
    ],
    ["a break", (r) => r.destroy(), "unreachable", /no access token from/],
  ])("is not taken from %s", async (_, reply, failure, reason) => {
    const issuer = await open(reply);
    const { readToken } = createAccessTokens("source", settingsOf(issuer.url));
    const failed = await readToken(never).catch((error: unknown) => error);
    expect(failed).toMatchObject({ failure, message: expect.stringMatching(reason) });
    expect(String(failed)).not.toContain("hush");
  });
});
