// Tokens of an identity provider over the wire: both kinds of tokens, random sites and routes, a provider on a port of its
// own; and what a client is told of whom to ask for a token.
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { memory } from "#resolvers/memory/memory.ts";
import { createAuthenticator, createTokenCheck, hashToken } from "#src/access/auth.ts";
import { createReloadableJwtVerifier } from "#src/access/jwt.ts";
import { connectSites } from "#src/access/sites.ts";
import { buildDemoConfig } from "#src/cli/demo.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis } from "#src/core/time.ts";
import { operations } from "#src/operations/index.ts";
import { createServer, type Server } from "#src/server/server.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";
import { loadPlainSchema } from "../support/demo-server.ts";
import { testIO } from "../support/io.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../support/scripted-http-source.ts";

const clock = Date.UTC(2026, 0, 15, 12);
const now = () => fromMillis(clock);
const publicUrl = "https://readout.example.com";

let provider: ScriptedSource;
let server: Server;
let sign: (claims: object) => Promise<string>;
let log = "";

beforeAll(async () => {
  const { publicKey, privateKey } = await generateKeyPair("ES256", { extractable: true });
  const jwk = { ...(await exportJWK(publicKey)), kid: "k", alg: "ES256", use: "sig" };
  provider = await openScriptedSource((response, request) => {
    if (request.url === "/keys") return sendJson(response, { keys: [jwk] });
    return sendJson(response, { issuer: provider.url, jwks_uri: `${provider.url}/keys` });
  });
  sign = (claims) =>
    new SignJWT({ iss: provider.url, aud: "readout", exp: clock / 1_000 + 600, ...claims })
      .setProtectedHeader({ alg: "ES256", kid: "k", typ: "at+jwt" })
      .sign(privateKey);
  const config = buildDemoConfig(0, "demo-token");
  const verifyJwt = createReloadableJwtVerifier(now)([
    {
      issuer: provider.url,
      audience: ["readout"],
      algorithms: ["ES256"],
      typ: ["at+jwt"],
      user: "sub",
      sites: { claim: "sites" },
      scopes: "scope",
    },
  ]);
  const tokens = ["demo-shop", "demo-blog"].map((site) => ({
    user: site,
    sha256: hashToken(`token-${site}`),
    sites: [site],
  }));
  const io = { ...testIO, now };
  server = createServer({
    operations,
    loadGraphql: loadPlainSchema,
    authenticate: createAuthenticator(tokens, now, { verifyJwt }),
    isToken: createTokenCheck(tokens),
    sites: connectSites(config, new Map([["memory", memory.create("memory", memory.parseConfig({}), io)]])),
    limits: defaults.limits,
    telemetry: createTelemetry({
      level: "debug",
      write: (line) => {
        log += line;
      },
    }),
    now,
    resource: { publicUrl, issuers: [provider.url] },
  });
});
afterAll(async () => {
  await server.close(0);
  await provider.close();
});

const ask = (path: string, token?: string, init: RequestInit = {}) =>
  server.fetch(`http://readout${path}`, {
    ...init,
    headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
  });

describe("tokens of both kinds", () => {
  const triples = sampleRuns(10_000, { share: 20 });
  test(`see their own sites alone, over ${triples} triples of token, site and route`, {
    timeout: 120_000,
  }, async () => {
    const scope = "logs tracing metrics kubernetes deploys graphql";
    const sites = ["demo-shop", "demo-blog", "missing"] as const;
    const holders = [
      { token: "token-demo-shop", sees: ["demo-shop"] },
      { token: "token-demo-blog", sees: ["demo-blog"] },
      { token: await sign({ sub: "a", scope, sites: ["demo-shop"] }), sees: ["demo-shop"] },
      { token: await sign({ sub: "b", scope, sites: "demo-blog" }), sees: ["demo-blog"] },
      { token: await sign({ sub: "c", scope, sites: ["demo-shop", "demo-blog"] }), sees: sites.slice(0, 2) },
      { token: await sign({ sub: "d", scope, sites: ["*"] }), sees: [] },
      { token: await sign({ sub: "e", scope }), sees: [] },
      { token: await sign({ sub: "f", sites: ["demo-shop"] }), sees: [] },
    ] as const;
    const range = { from: new Date(clock - 60_000).toISOString(), to: new Date(clock).toISOString() };
    const routes = [
      (site: string) => ask.bind(undefined, `/api/v2/metrics/names/${site}`),
      (site: string) => (token: string) =>
        ask("/api/v2/tracing/actions", token, {
          method: "POST",
          body: JSON.stringify({ site_id: site, ...range }),
        }),
      (site: string) => (token: string) =>
        ask("/api/v2/logs/lines", token, {
          method: "POST",
          body: JSON.stringify({
            site_id: site,
            source_ids: ["app"],
            query: "",
            ...range,
            pagination: { per_page: 1, order: "DESC" },
          }),
        }),
    ];
    const missing = await (await ask("/api/v2/metrics/names/missing", "token-demo-shop")).text();
    let tried = 0;
    const pick = <Item>(list: readonly Item[], seed: number) => list[seed % list.length] as Item;
    for (let seed = 0; tried < triples; seed += 1) {
      const asked = Array.from({ length: 20 }, (_, at) => seed * 20 + at);
      await Promise.all(
        asked.map(async (n) => {
          const holder = pick(holders, n);
          const site = pick(sites, Math.floor(n / holders.length));
          const route = pick(routes, Math.floor(n / (holders.length * sites.length)));
          const answer = await route(site)(holder.token);
          const text = await answer.text();
          const allowed = (holder.sees as readonly string[]).includes(site);
          expect([answer.status, n], text).toEqual([allowed ? 200 : 404, n]);
          if (!allowed) expect(text).toBe(missing);
        }),
      );
      tried += asked.length;
    }
    expect(provider.requests.length).toBe(2);
  });

  test("stand in no log", async () => {
    const token = await sign({ sub: "ana", sites: ["demo-shop"] });
    await server.fetch(`http://readout/api/v2/auth?token=${token}`, { headers: { "x-request-id": token } });
    expect(log).toContain('"user":"ana"');
    for (const part of token.split(".")) expect(log).not.toContain(part);
  });
});

describe("a client without a token", () => {
  test.each([
    ["/api/v2/auth", ""],
    ["/graphql?query={__typename}", ""],
  ])("is told by %s where the metadata is", async (path, own) => {
    const answer = await ask(path);
    expect(answer.status).toBe(401);
    expect(answer.headers.get("www-authenticate")).toBe(
      `Bearer resource_metadata="${publicUrl}/.well-known/oauth-protected-resource${own}"`,
    );
  });

  test.each(["", "/mcp", "/api/mcp"])("reads the metadata of %j, whatever its Host header", async (own) => {
    const path = `/.well-known/oauth-protected-resource${own}`;
    const answer = await server.fetch(`http://evil.example.com${path}`, { headers: { host: "evil" } });
    expect(answer.status).toBe(200);
    expect(answer.headers.get("access-control-allow-origin")).toBe("*");
    expect(await answer.json()).toMatchObject({
      resource: `${publicUrl}${own}`,
      authorization_servers: [provider.url],
      bearer_methods_supported: own === "" ? ["header", "query"] : ["header"],
    });
  });

  test.each(["/other", "/mcp/", "x"])("finds no metadata of %j", async (own) => {
    expect((await ask(`/.well-known/oauth-protected-resource${own}`)).status).toBe(404);
  });
});
