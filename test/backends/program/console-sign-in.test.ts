// Signing in to the console at an identity provider of another hand, in a real browser: where the token lies, what is refused
// on the way, and what an outage and new keys do.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeEach, expect, test } from "vitest";
import { hashToken } from "#src/access/auth.ts";
import { findFreePort } from "../../support/free-port.ts";
import {
  audience,
  clientId,
  type IdentityProvider,
  openIdentityProvider,
} from "../../support/identity-provider.ts";
import { endAll } from "../../support/process.ts";
import {
  complaints,
  open,
  openContext,
  origin,
  page,
  prepareConsole,
  startProgram,
  state,
  token,
} from "./console-harness.ts";

const logsToken = "a-token-of-logs-alone";
let folder: string;
let provider: IdentityProvider;

prepareConsole(async () => {
  const port = await findFreePort();
  const publicUrl = `http://127.0.0.1:${port}`;
  provider = await openIdentityProvider({ redirectUris: [`${publicUrl}/console/signed-in`] });
  folder = await mkdtemp(join(tmpdir(), "readout-"));
  const file = join(folder, "readout.yaml");
  await writeFile(
    file,
    `
listen: 127.0.0.1:${port}
public_url: ${publicUrl}
tokens:
  - { user: tim, sha256: "${hashToken(token)}", sites: "*" }
  - { user: lea, sha256: "${hashToken(logsToken)}", sites: [demo-blog], scopes: [logs] }
auth:
  jwt:
    - issuer: ${provider.issuer}
      audience: ${audience}
      algorithms: [ES256]
      sites: readout_sites
      console: { client_id: ${clientId}, scope: openid logs, resource: ${audience}, origins: ["${localName(provider.issuer)}"] }
backends: { generated: { kind: memory } }
sites:
  demo-shop: { logs: { backend: generated, sources: { app: { index: demo-shop-app } } } }
  demo-blog: { logs: { backend: generated, sources: { app: { index: demo-blog-app } } } }
`,
  );
  return await startProgram(["serve", "--config", file]);
});
afterAll(async () => {
  endAll();
  await provider.stop();
  await rm(folder, { recursive: true });
});
beforeEach(() => {
  provider.forgery = {};
});

/** Another origin at which the provider answers. */
const localName = (issuer: string, name = "localhost") => issuer.replace("127.0.0.1", name);

/** The program has to know the port by which it is known before it listens. */
const signInButton = () => page.getByRole("button", { name: "Sign in with 127.0.0.1" });
const firstLine = () => page.locator(".lines .line").first();
const readAlert = async () => (await page.getByRole("alert").innerText()).replace(/127\.0\.0\.1:\d+/, "HOST");

async function signIn(address = "#/logs"): Promise<void> {
  await page.goto(`${origin}/${address}`);
  await signInButton().click();
}

test("keeps where the reader was, and the token in memory alone", async () => {
  const seen: string[] = [];
  page.on("request", (request) => seen.push(request.url()));
  const headers: (string | undefined)[] = [];
  page.on("request", (request) => {
    if (request.url() === `${origin}/console/viewer`) headers.push(request.headers().authorization);
  });
  await signIn("#/logs?site=demo-shop&query=severity%3Derror");
  await firstLine().waitFor();
  expect(state().get("query")).toBe("severity=error");
  expect(new URL(page.url()).search).toBe("");
  expect(await page.getByLabel("Site").innerText()).toBe("demo-shop");
  expect(headers[0]).toMatch(/^Bearer eyJ/);
  const secret = headers[0]?.slice("Bearer ".length) ?? "";
  const kept = await page.evaluate(() => ({
    session: { ...sessionStorage },
    local: JSON.stringify(localStorage),
    cookies: document.cookie,
  }));
  expect(kept).toEqual({
    session: { "readout.sign-in.issuer": provider.issuer },
    local: "{}",
    cookies: expect.not.stringContaining("eyJ"),
  });
  expect(seen.filter((address) => address.includes(secret))).toEqual([]);
  expect(complaints).toEqual([]);
});

test("takes the code out of the address before anything else is asked for", async () => {
  const seen: string[] = [];
  // A click waits for no page, so the provider may have answered when it is done.
  page.on("request", (request) => seen.push(request.url()));
  await signIn();
  await firstLine().waitFor();
  const at = seen.findIndex((address) => address.includes("code="));
  expect(seen[at]).toMatch(new RegExp(`^${origin}/console/signed-in\\?code=`));
  expect(seen.slice(at + 1, at + 3)).toEqual([`${origin}/console/sign-in/take-answer.js`, `${origin}/`]);
  await page.goBack();
  expect(page.url()).not.toContain("code=");
});

test("signs in again after a reload, without a question", async () => {
  await signIn("#/logs?query=severity%3Derror");
  await firstLine().waitFor();
  const before = provider.asked.length;
  await page.reload();
  await firstLine().waitFor();
  expect(provider.asked.slice(before)).toContain("POST /token");
  expect(state().get("query")).toBe("severity=error");
});

test("ends with the tab's session, and the form for a token stays", async () => {
  await signIn();
  await firstLine().waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await signInButton().waitFor();
  expect(await page.evaluate(() => sessionStorage.length)).toBe(0);
  await page.reload();
  await signInButton().waitFor();
  const before = provider.asked.length;
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await firstLine().waitFor();
  await page.reload();
  await firstLine().waitFor();
  expect(provider.asked.slice(before)).not.toContain("POST /token");
});

const stranger = "The answer of HOST does not belong to this sign-in. Sign in again.";
test.each([
  ["another state", stranger, { answer: ({ searchParams }: URL) => searchParams.set("state", "x") }],
  ["no state", stranger, { answer: ({ searchParams }: URL) => searchParams.delete("state") }],
  [
    "another issuer",
    stranger,
    { answer: ({ searchParams }: URL) => searchParams.set("iss", "http://id.evil") },
  ],
  ["no issuer", stranger, { answer: ({ searchParams }: URL) => searchParams.delete("iss") }],
  ["another code", stranger, { answer: ({ searchParams }: URL) => searchParams.set("code", "x") }],
  ["another nonce", stranger, { asked: (asked: URLSearchParams) => asked.set("nonce", "x") }],
  [
    "another challenge",
    stranger,
    { asked: (asked: URLSearchParams) => asked.set("code_challenge", "A".repeat(43)) },
  ],
  [
    "a refusal",
    "HOST has refused to sign you in.",
    {
      answer: ({ searchParams }: URL) => {
        searchParams.delete("code");
        searchParams.set("error", "access_denied");
        searchParams.set("error_description", "Call 555-0100 to sign in");
      },
    },
  ],
])("with %s leads to no token", async (_, told, forgery) => {
  provider.forgery = forgery;
  await signIn("#/traces");
  await page.getByRole("alert").waitFor();
  expect(await readAlert()).toBe(told);
  expect(await page.evaluate(() => sessionStorage.length)).toBe(0);
  expect(new URL(page.url()).hash).toBe("#/traces");
  expect(new URL(page.url()).search).toBe("");
});

/** The token endpoint lies at another name of the provider. */
const moveTokens = (name: string) => {
  provider.forgery = {
    metadata: (document) => {
      document.token_endpoint = `${localName(provider.issuer, name)}/token`;
    },
  };
};

test("takes a token from another origin where the configuration names it", async () => {
  moveTokens("localhost");
  const seen: string[] = [];
  page.on("request", (request) => seen.push(request.url()));
  await signIn();
  await firstLine().waitFor();
  expect(seen).toContain(`${localName(provider.issuer)}/token`);
});

test("takes the code to no origin that the configuration does not name", async () => {
  moveTokens("elsewhere.localhost");
  const before = provider.asked.length;
  await signIn();
  await page.getByRole("alert").waitFor();
  expect(await readAlert()).toBe("HOST does not answer. Sign in again.");
  expect(provider.asked.slice(before)).not.toContain("POST /token");
});

test("does not begin at a provider whose document is another's", async () => {
  provider.forgery = {
    metadata: (document) => {
      document.issuer = "http://id.evil";
    },
  };
  await signIn();
  await page.getByRole("alert").waitFor();
  expect(await readAlert()).toBe("HOST does not answer as an identity provider. Try again later.");
});

test("takes no answer that nobody of the tab has asked for, and keeps the token that is there", async () => {
  await page.goto(`${origin}/console/signed-in?code=c&state=s&iss=${provider.issuer}`);
  await page.getByRole("alert").waitFor();
  expect(await readAlert()).toBe("The answer belongs to no sign-in of this tab. Sign in again.");
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await firstLine().waitFor();
  await page.goto(`${origin}/console/signed-in?code=c&state=s&iss=${provider.issuer}`);
  await firstLine().waitFor();
});

test("shows a token without the scope of GraphQL what it may read, and says what it may not", async () => {
  await open("#/logs", logsToken);
  await firstLine().waitFor();
  expect(await page.getByLabel("Site").innerText()).toBe("demo-blog");
  await page.getByRole("link", { name: "Traces" }).click();
  await page.getByRole("alert").waitFor();
  expect(await readAlert()).toContain("It is not there, or this token may not read it.");
});

test("begins at no other address than the public one", async () => {
  await page.goto(`${origin.replace("127.0.0.1", "localhost")}/#/traces`);
  const there = page.getByRole("link", { name: `Sign in at ${origin}` });
  expect(await there.getAttribute("href")).toBe(`${origin}/#/traces`);
});

test("does not go around when the server refuses the tokens", async () => {
  await openContext({});
  await page.route("**/console/viewer", (route) =>
    route.fulfill({ status: 401, body: '{"error":"Unauthorized"}' }),
  );
  await signIn();
  await page.getByRole("alert").waitFor();
  expect(await readAlert()).toBe("This token is not accepted: it is unknown or has expired.");
});

// Stays last: it stops the provider of all tests.
test("goes on with new keys, and says when the provider is away", async () => {
  await signIn();
  await firstLine().waitFor();
  await provider.rotateKeys();
  await page.reload();
  // The key is unknown to the server, which asks at most once in 30 seconds.
  await expect
    .poll(
      async () => {
        if (await signInButton().isVisible()) await signInButton().click();
        return await firstLine().isVisible();
      },
      { interval: 2_000 },
    )
    .toBe(true);
  await provider.stop();
  await page.reload();
  await page.getByRole("alert").waitFor();
  expect(await readAlert()).toBe("HOST does not answer as an identity provider. Try again later.");
});
