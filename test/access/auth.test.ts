import { expect, test } from "vitest";
import { createAuthenticator, generateToken, hashToken, readToken } from "../../src/access/auth.ts";
import { run } from "../../src/cli/token.ts";
import { type BackendKinds, parseConfig, type TokenEntry } from "../../src/config/config.ts";
import { TooMany, Unauthorized } from "../../src/core/errors.ts";
import { type Instant, parseInstant } from "../../src/core/time.ts";
import { createFakeRateLimiter } from "../support/fake-rate-limiter.ts";
import { createShell, toInstant } from "../support/fake-shell.ts";

const now = toInstant("2026-06-01T00:00:00Z");
const entry = (token: string, rest: Partial<TokenEntry> = {}): TokenEntry => ({
  user: token,
  sha256: hashToken(token),
  sites: ["shop"],
  ...rest,
});

test("a token authenticates its user for its sites only", async () => {
  const authenticate = createAuthenticator([entry("a"), entry("b", { sites: "*" }), entry("c")], () => now);
  const { user, maySee } = await authenticate("a");
  expect([user, maySee("shop"), maySee("blog"), maySee("constructor")]).toEqual(["a", true, false, false]);
  expect((await authenticate("b")).maySee("whatever")).toBe(true);
  expect((await authenticate("c")).user).toBe("c");
});

test.each([undefined, "", "d", "A", "a ", hashToken("a")])(
  "the authenticator refuses the token %j",
  async (token) => {
    const authenticate = createAuthenticator([entry("a")], () => now);
    await expect(authenticate(token)).rejects.toThrow(Unauthorized);
  },
);

test("the authenticator refuses a token from its expiry on", async () => {
  let clock = (now - 1n) as Instant;
  const authenticate = createAuthenticator([entry("a", { expires: now })], () => clock);
  expect((await authenticate("a")).user).toBe("a");
  clock = now;
  await expect(authenticate("a")).rejects.toThrow(Unauthorized);
});

test("two hashes are one user's, and both count for one account", async () => {
  const asked: string[] = [];
  const rate = createFakeRateLimiter((name) => asked.push(name) > 0);
  const both = { ...entry("a"), sha256: [hashToken("old"), hashToken("new")] };
  const authenticate = createAuthenticator([both], () => now, { rate });
  expect((await authenticate("old")).user).toBe("a");
  expect((await authenticate("new")).user).toBe("a");
  expect(new Set(asked).size).toBe(1);
  await expect(authenticate("a")).rejects.toThrow(Unauthorized);
});

test("the authenticator refuses a token before its first moment", async () => {
  let clock = (now - 1n) as Instant;
  const authenticate = createAuthenticator([entry("a", { notBefore: now })], () => clock);
  await expect(authenticate("a")).rejects.toThrow(Unauthorized);
  clock = now;
  expect((await authenticate("a")).user).toBe("a");
});

test("a token that is looked at again for a request under way uses up no rate, and is no use of it", async () => {
  const asked: string[] = [];
  const used: string[] = [];
  const rate = createFakeRateLimiter((name) => asked.push(name) > 0);
  const recordUse = (user: string) => void used.push(user);
  const authenticate = createAuthenticator([entry("a")], () => now, { rate, recordUse });
  await authenticate("a");
  await authenticate("a", undefined, "checked again");
  expect([asked.length, used.length]).toEqual([1, 1]);
  await expect(authenticate("b", undefined, "checked again")).rejects.toThrow(Unauthorized);
});

test("each token has its own rate, and a wrong token uses up none", async () => {
  const asked: string[] = [];
  const rate = createFakeRateLimiter((name) => asked.push(name) <= 2);
  const authenticate = createAuthenticator([entry("a"), entry("b")], () => now, { rate });
  await authenticate("a");
  await expect(authenticate("c")).rejects.toThrow(Unauthorized);
  await authenticate("b");
  await expect(authenticate("a")).rejects.toThrow(TooMany);
  expect(asked).toEqual([hashToken("a"), hashToken("b"), hashToken("a")]);
});

test.each([
  ["Bearer abc", "/x", "abc"],
  ["bearer abc", "/x", "abc"],
  ["BEARER \t abc ", "/x", "abc"],
  ["Bearer abc", "/x?token=def", "abc"],
  // The header wins also when it is empty: whoever sends one means it.
  ["Bearer", "/x?token=def", ""],
  ["Bearer ", "/x?token=def", ""],
  // Another scheme belongs to a proxy in front.
  ["Basic YTpi", "/x?token=def", "def"],
  ["Basic YTpi", "/x", undefined],
  ["Bearerabc", "/x?token=def", "def"],
  [undefined, "/x?token=a%2Bb&token=c", "a+b"],
  [undefined, "http://h/x?y=1&token=def#token=z", "def"],
  [undefined, "?token=", ""],
  [undefined, "/x?tokens=1", undefined],
  [undefined, "/x", undefined],
])("readToken of the header %j and the URL %j returns %j", (authorization, url, token) => {
  expect(readToken(new Headers(authorization === undefined ? {} : { authorization }), url)).toBe(token);
});

test("a new token is 256 random bits, safe in a URL", () => {
  expect(generateToken()).toMatch(/^rdt_[A-Za-z0-9_-]{43}$/);
  expect(generateToken()).not.toBe(generateToken());
});

test.each([
  [
    ["--user", "ana", "--site", "shop", "--site", "blog", "--site", "shop"],
    "ana",
    ["shop", "blog"],
    undefined,
  ],
  [["--user", "null", "--site", "*"], "null", "*", undefined],
  // biome-ignore lint/suspicious/noTemplateCurlyInString: what a configuration would put a variable in for
  [["--user", 'a "b" ${c}: #', "--site", "shop"], 'a "b" ${c}: #', ["shop"], undefined],
  [
    ["--user", "ana", "--site", "shop", "--expires", "2027-01-01T02:00:00+02:00"],
    "ana",
    ["shop"],
    parseInstant("2027-01-01T00:00:00Z"),
  ],
])("readout token new %j prints an entry that admits its token", async (args, user, sites, expires) => {
  const shell = createShell({ now });
  expect(await run(["new", ...args], shell)).toBe(0);
  const token = /^ {2}(rdt_\S+)$/m.exec(shell.printed())?.[1] ?? "";
  const line = /^ {2}- \{.*$/m.exec(shell.printed())?.[0] ?? "";
  const none: BackendKinds = new Map([["none", { parseConfig: () => ({}) }]]);
  const file = `tokens:\n${line}\nbackends: {}\nsites: { shop: {}, blog: {} }`;
  const { tokens } = parseConfig(file, "f", { kinds: none, env: {}, readText: () => "" });
  expect(tokens).toEqual([{ user, sha256: hashToken(token), sites, ...(expires && { expires }) }]);
  expect((await createAuthenticator(tokens, () => now)(token)).user).toBe(user);
  expect(shell.printed().split(token)).toHaveLength(2);
});

test.each([
  [[], "missing subcommand (expected `new`)"],
  [["old"], 'unknown command "old"'],
  [["new", "--site", "shop"], "--user is missing"],
  [["new", "--user", "ana"], "--site is missing"],
  [["new", "--user", "ana", "--site", "a", "--site", "s p"], '--site "s p" can be the name of no site'],
  [["new", "--user", "ana", "--site", "*", "--site", "shop"], "give no other site"],
  [["new", "--user", "ana", "--site", "shop", "--expires", "2027-02-30T00:00:00Z"], "not an ISO 8601 time"],
  [["new", "--user", "ana", "--site", "shop", "--expires", "2026-06-01T00:00:00Z"], "in the past"],
  [["new", "--user", "ana", "--site", "shop", "--colour", "red"], "--colour"],
  [["new", "--user", "ana", "--site", "shop", "more"], "more"],
])("readout token %j is a usage error", async (args, message) => {
  const shell = createShell({ now });
  expect(await run(args, shell)).toBe(2);
  expect(shell.complained()).toContain(message);
  expect(shell.complained()).toContain("Usage: readout token new");
  expect(shell.printed()).toBe("");
});
