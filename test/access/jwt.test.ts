// Access tokens of identity providers, against an issuer whose keys and clock the test has.
import { createHmac } from "node:crypto";
import { exportJWK, generateKeyPair, type JWK, SignJWT } from "jose";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createAuthenticator, hashToken } from "#src/access/auth.ts";
import { createReloadableJwtVerifier } from "#src/access/jwt.ts";
import type { JwtIssuer } from "#src/config/jwt-issuers.ts";
import { BackendError, Unauthorized } from "#src/core/errors.ts";
import { fromMillis } from "#src/core/time.ts";
import { startProcessorTime } from "../support/cpu-time.ts";

const issuer = "https://id.example.com/realms/ops";
const start = Date.UTC(2026, 5, 1);

type KeyPair = Awaited<ReturnType<typeof generateKeyPair>>;
interface Key {
  readonly jwk: JWK;
  readonly pair: KeyPair;
  readonly alg: string;
}
async function makeKey(kid: string, alg: string): Promise<Key> {
  const pair = await generateKeyPair(alg, { extractable: true });
  return { pair, alg, jwk: { ...(await exportJWK(pair.publicKey)), kid, alg, use: "sig" } };
}

let [first, second, elliptic, foreign]: Key[] = [];
beforeAll(async () => {
  [first, second, elliptic, foreign] = await Promise.all([
    makeKey("one", "RS256"),
    makeKey("two", "RS256"),
    makeKey("ec", "ES256"),
    makeKey("one", "RS256"),
  ]);
});

/** The issuer, as it is told over HTTP. */
const provider = { keys: [] as JWK[], isDown: false, fetched: [] as string[] };
async function fetchText(url: string): Promise<string> {
  provider.fetched.push(url);
  if (provider.isDown) throw new Error("connection refused");
  if (url.endsWith("/.well-known/openid-configuration")) {
    return JSON.stringify({ issuer, jwks_uri: "https://id.example.com/keys" });
  }
  return JSON.stringify({ keys: provider.keys });
}

let clock = start;
const now = () => fromMillis(clock);
beforeEach(() => {
  clock = start;
  Object.assign(provider, { keys: [first?.jwk, elliptic?.jwk], isDown: false, fetched: [] });
});

const config: JwtIssuer = {
  issuer,
  audience: ["readout"],
  algorithms: ["RS256", "ES256"],
  typ: ["at+jwt"],
  user: "sub",
  sites: { claim: "sites" },
};

function createAuthenticate(over: Partial<JwtIssuer> = {}) {
  const verifyJwt = createReloadableJwtVerifier(now, fetchText)([{ ...config, ...over }]);
  return createAuthenticator([{ user: "ana", sha256: hashToken("opaque"), sites: ["shop"] }], now, {
    verifyJwt,
  });
}

const seconds = () => Math.floor(clock / 1_000);
const claims = () => ({
  iss: issuer,
  aud: "readout",
  sub: "ana",
  sites: ["shop", "*"],
  iat: seconds(),
  exp: seconds() + 3_600,
});

async function sign(over: object = {}, header: object = {}, key = first): Promise<string> {
  if (key === undefined) throw new Error("no key");
  const payload = Object.fromEntries(
    Object.entries({ ...claims(), ...over }).filter(([, value]) => value !== undefined),
  );
  return new SignJWT(payload)
    .setProtectedHeader({ alg: key.alg, kid: key.jwk.kid, typ: "at+jwt", ...header } as { alg: string })
    .sign(key.pair.privateKey);
}

const base64 = (value: unknown) =>
  Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

describe("a token of a configured issuer", () => {
  test("names its user and its sites, and is no key to all", async () => {
    const principal = await createAuthenticate()(await sign());
    expect(principal.user).toBe("ana");
    expect(["shop", "blog", "*", "constructor"].map(principal.maySee)).toEqual([true, false, false, false]);
    expect(principal.hasScope("logs")).toBe(true);
  });

  test("is another account than a token of the file for a user of that name", async () => {
    const authenticate = createAuthenticate();
    const [file, jwt] = [await authenticate("opaque"), await authenticate(await sign())];
    expect(file.user).toBe(jwt.user);
    expect(file.account).not.toBe(jwt.account);
    expect((await authenticate(await sign({ jti: "another" }))).account).toBe(jwt.account);
    expect((await authenticate(await sign({ sub: "eve" }))).account).not.toBe(jwt.account);
  });

  test("may list sites in one text, as scopes are, and is taken in each algorithm of the list", async () => {
    const { maySee } = await createAuthenticate()(await sign({ sites: "shop blog" }, {}, elliptic));
    expect(["shop", "blog", "foreign"].map(maySee)).toEqual([true, true, false]);
  });

  test("has the sites of its groups; all of them only where the configuration says so", async () => {
    const map = { sre: "*", shop: ["shop", "cart"] } as const;
    const authenticate = createAuthenticate({ sites: { claim: "groups", map } });
    const see = async (groups: unknown) =>
      ["shop", "cart", "blog"].map((await authenticate(await sign({ groups }))).maySee);
    expect(await see(["shop", "unknown", "constructor"])).toEqual([true, true, false]);
    expect(await see(["sre"])).toEqual([true, true, true]);
    expect(await see("*")).toEqual([false, false, false]);
    expect(await see(undefined)).toEqual([false, false, false]);
  });

  test("is in one group where the claim is a text, whose spaces are those of the group's name", async () => {
    const map = { sre: "*", "shop team": ["shop"], scope: ["blog"] } as const;
    const see = async (claim: string, value: unknown) => {
      const { maySee } = await createAuthenticate({ sites: { claim, map } })(await sign({ [claim]: value }));
      return ["shop", "blog"].map(maySee);
    };
    expect(await see("groups", "sre contractors")).toEqual([false, false]);
    expect(await see("groups", "shop team")).toEqual([true, false]);
    expect(await see("groups", ["sre contractors", "shop team"])).toEqual([true, false]);
    expect(await see("groups", "sre")).toEqual([true, true]);
    // What the claim `scope` is, RFC 8693 says.
    expect(await see("scope", "openid scope")).toEqual([false, true]);
  });

  test("has the scopes that its claim names, and none where it has no such claim", async () => {
    const authenticate = createAuthenticate({ scopes: "scope" });
    const has = async (scope: unknown) => {
      const { hasScope } = await authenticate(await sign({ scope }));
      return (["logs", "metrics"] as const).map(hasScope);
    };
    expect(await has("openid logs")).toEqual([true, false]);
    expect(await has(["metrics"])).toEqual([false, true]);
    expect(await has(undefined)).toEqual([false, false]);
  });

  test("ends an open stream when it expires, and after a day at most", async () => {
    const authenticate = createAuthenticate();
    const expires = async (exp: number) => (await authenticate(await sign({ exp }))).expires;
    expect(await expires(seconds() + 10)).toBe(fromMillis(start + 70_000));
    expect(await expires(seconds() + 7 * 86_400)).toBe(fromMillis(start + 86_400_000));
  });

  test("is refused from its expiry on, a minute of skew later, though it is remembered", async () => {
    const authenticate = createAuthenticate();
    const token = await sign({ exp: seconds() + 10 });
    clock += 69_000;
    await authenticate(token);
    clock += 1_000;
    await expect(authenticate(token)).rejects.toThrow(Unauthorized);
  });
});

describe("the keys of an issuer", () => {
  test("are fetched with the first token, once for all that ask at once", async () => {
    const authenticate = createAuthenticate();
    expect(provider.fetched).toEqual([]);
    const tokens = await Promise.all(Array.from({ length: 20 }, (_, jti) => sign({ jti: `${jti}` })));
    await Promise.all(tokens.map((token) => authenticate(token)));
    expect(provider.fetched).toEqual([
      `${issuer}/.well-known/openid-configuration`,
      "https://id.example.com/keys",
    ]);
  });

  test("are good through an outage of an hour", async () => {
    const authenticate = createAuthenticate({ jwks: "https://id.example.com/keys" });
    await authenticate(await sign());
    provider.isDown = true;
    for (let minutes = 0; minutes < 60; minutes += 1) {
      clock += 60_000;
      expect((await authenticate(await sign())).user).toBe("ana");
    }
    // It is asked again and again meanwhile, and not by each request.
    expect(provider.fetched.length).toBeGreaterThan(10);
    expect(provider.fetched.length).toBeLessThan(70);
  });

  test("survive a reload of the configuration while the issuer is away", async () => {
    const createVerifier = createReloadableJwtVerifier(now, fetchText);
    const [before, after] = [createVerifier([config]), createVerifier([config])];
    expect(await before?.(await sign())).toBeDefined();
    provider.isDown = true;
    expect(await after?.(await sign({ jti: "2" }))).toBeDefined();
  });

  test("are rotated without a restart", async () => {
    const authenticate = createAuthenticate({ jwks: "https://id.example.com/keys" });
    await authenticate(await sign());
    provider.keys = [second?.jwk as JWK];
    clock += 31_000;
    expect((await authenticate(await sign({}, {}, second))).user).toBe("ana");
    // The old key is withdrawn.
    clock += 61_000;
    await expect(authenticate(await sign())).rejects.toThrow(Unauthorized);
  });

  test("are fetched anew also after the clock was set back", async () => {
    const authenticate = createAuthenticate();
    await authenticate(await sign());
    clock -= 3_600_000;
    provider.keys = [second?.jwk as JWK];
    expect((await authenticate(await sign({}, {}, second))).user).toBe("ana");
  });

  test("that are unknown ask the issuer at most once in 30 seconds", async () => {
    const authenticate = createAuthenticate({ jwks: "https://id.example.com/keys" });
    await authenticate(await sign());
    for (let at = 0; at < 100; at += 1) {
      clock += 1_000;
      await expect(authenticate(await sign({}, { kid: `unknown-${at}` }))).rejects.toThrow(Unauthorized);
    }
    expect(provider.fetched.length).toBeLessThanOrEqual(1 + 4);
  });

  test("that were never there are a failure of the source, not of the token", async () => {
    provider.isDown = true;
    const authenticate = createAuthenticate();
    await expect(authenticate(await sign())).rejects.toThrow(BackendError);
    await expect(authenticate(await sign())).rejects.toThrow(BackendError);
    expect(provider.fetched).toHaveLength(1);
    await expect(authenticate("opaque")).resolves.toBeDefined();
    provider.isDown = false;
    clock += 30_000;
    await expect(authenticate(await sign())).resolves.toBeDefined();
  });

  test("name their issuer when they are missed, since there may be several", async () => {
    provider.isDown = true;
    const authenticate = createAuthenticate();
    const told = async () => String(await authenticate(await sign()).catch((error: unknown) => error));
    expect(await told()).toBe(`BackendError: identity provider ${issuer}: its keys cannot be read`);
    expect(await told()).toBe(
      `BackendError: identity provider ${issuer}: it did not answer within the last 30 seconds`,
    );
  });

  const useless = [
    null,
    "key",
    {},
    { kid: "one" },
    { kty: "RSA", kid: "one" },
    { kty: 7, kid: "one" },
    { kty: "oct", k: "AAAA", kid: "one" },
    { kty: "future", kid: "one" },
    { kty: "EC", kid: "ec" },
  ];

  test("are found among others that cannot be used", async () => {
    provider.keys = [...useless, ...provider.keys, ...useless] as JWK[];
    const authenticate = createAuthenticate();
    expect((await authenticate(await sign())).user).toBe("ana");
    expect((await authenticate(await sign({}, {}, elliptic))).user).toBe("ana");
  });

  test("are missed where none can be used, and kept where none of the new ones can", async () => {
    const keys = provider.keys;
    provider.keys = useless as JWK[];
    const authenticate = createAuthenticate();
    await expect(authenticate(await sign())).rejects.toThrow(BackendError);
    clock += 31_000;
    provider.keys = keys;
    await authenticate(await sign());
    clock += 31_000;
    provider.keys = useless as JWK[];
    await expect(authenticate(await sign({}, { kid: "unknown" }))).rejects.toThrow(Unauthorized);
    expect((await authenticate(await sign())).user).toBe("ana");
  });

  test("are not taken from the discovery document of another issuer", async () => {
    const authenticate = createAuthenticate({ issuer: "https://other.example.com" });
    await expect(authenticate(await sign({ iss: "https://other.example.com" }))).rejects.toThrow(
      BackendError,
    );
  });
});

/** How many signatures are checked meanwhile. */
async function countSignatures(run: () => Promise<unknown>): Promise<number> {
  let count = 0;
  const { verify } = crypto.subtle;
  crypto.subtle.verify = (...given: Parameters<typeof verify>) => {
    count += 1;
    return verify.apply(crypto.subtle, given);
  };
  try {
    await run();
  } finally {
    crypto.subtle.verify = verify;
  }
  return count;
}

describe("a token that is refused like an unknown one, at the cost of no more than one signature", () => {
  const attacks: Readonly<Record<string, () => string | Promise<string>>> = {
    "no token at all": () => "a.b.c",
    "an empty part": async () => `${(await sign()).split(".").slice(0, 2).join(".")}.`,
    "a cut signature": async () => (await sign()).slice(0, -2),
    "two parts": async () => (await sign()).split(".").slice(0, 2).join("."),
    "four parts": async () => `${await sign()}.x`,
    "five parts, as of an encrypted one": () => `${base64({ alg: "dir", enc: "A256GCM" })}....`,
    "blanks around": async () => `${await sign()} x`,
    "no algorithm": () => `${base64({ alg: "none", typ: "at+jwt" })}.${base64(claims())}.`,
    "no algorithm, in capitals": () => `${base64({ alg: "NONE", typ: "at+jwt" })}.${base64(claims())}.`,
    "no algorithm, with a signature": async () => {
      const [, , signature] = (await sign()).split(".");
      return `${base64({ alg: "none", typ: "at+jwt" })}.${base64(claims())}.${signature}`;
    },
    ...Object.fromEntries(
      ["HS256", "HS384", "HS512"].map((alg) => [
        `${alg} with the public key as its secret`,
        () => {
          const signed = `${base64({ alg, kid: "one", typ: "at+jwt" })}.${base64(claims())}`;
          const hash = alg.replace("HS", "sha");
          const secret = JSON.stringify(first?.jwk);
          return `${signed}.${createHmac(hash, secret).update(signed).digest("base64url")}`;
        },
      ]),
    ),
    "an algorithm that is not listed": () => sign({}, { alg: "PS256" }).catch(() => "x.y.z"),
    ...Object.fromEntries(
      ["../../etc/passwd", "one' OR '1'='1", "https://evil.example.com/keys", "", "ONE", "one\u0000"].map(
        (kid) => [`the key id ${JSON.stringify(kid)}`, () => sign({}, { kid }, foreign)],
      ),
    ),
    "a key of its own in the header": () => sign({}, { jwk: foreign?.jwk }, foreign),
    "an address of keys in the header": () => sign({}, { jku: "https://evil.example.com/keys" }, foreign),
    "an address of a certificate in the header": () => sign({}, { x5u: "https://evil.example.com" }, foreign),
    "a certificate in the header": () => sign({}, { x5c: ["MIIB"] }, foreign),
    "another key of the same id": () => sign({}, {}, foreign),
    "an extension that must be understood": async () => {
      const signed = `${base64({ alg: "RS256", kid: "one", typ: "at+jwt", crit: ["exp"], exp: 1 })}.${base64(claims())}`;
      return `${signed}.${(await sign()).split(".")[2]}`;
    },
    "an ID token": () => sign({}, { typ: "JWT" }),
    "no type": () => sign({}, { typ: undefined }),
    "a type of another kind": () => sign({}, { typ: "dpop+jwt" }),
    "a type that begins alike": () => sign({}, { typ: "at+jwtx" }),
    "a type that is no text": () => sign({}, { typ: ["at+jwt"] }),
    "a token within": () => sign({}, { cty: "JWT" }),
    "another issuer": () => sign({ iss: "https://evil.example.com" }),
    "an issuer with a slash more": () => sign({ iss: `${issuer}/` }),
    "an issuer in capitals": () => sign({ iss: issuer.toUpperCase() }),
    "an issuer in a list": () => sign({ iss: [issuer] }),
    "no issuer": () => sign({ iss: undefined }),
    "another audience": () => sign({ aud: "other" }),
    "an audience that begins alike": () => sign({ aud: "readout2" }),
    "audiences without ours": () => sign({ aud: ["a", "b"] }),
    "no audience": () => sign({ aud: undefined }),
    "an audience that is no text": () => sign({ aud: { readout: true } }),
    expired: () => sign({ exp: seconds() - 61 }),
    "expired in 1970": () => sign({ exp: 0 }),
    "no expiry": () => sign({ exp: undefined }),
    "an expiry that is a text": () => sign({ exp: "9999999999" }),
    "an expiry in a list": () => sign({ exp: [seconds() + 60] }),
    "not valid before tomorrow": () => sign({ nbf: seconds() + 86_400 }),
    "issued tomorrow": () => sign({ iat: seconds() + 86_400, exp: seconds() + 90_000 }),
    "no subject": () => sign({ sub: undefined }),
    "an empty subject": () => sign({ sub: "" }),
    "a subject that is no text": () => sign({ sub: { name: "ana" } }),
    "more than 16 KiB": () => sign({ padding: "x".repeat(20_000) }),
    "claims that are a list": () => signText("[]"),
    "claims that are a text": () => signText('"x"'),
    "claims that are no JSON": () => signText("{"),
    "claims nested a thousand times": () => signText(`${"[".repeat(1_000)}${"]".repeat(1_000)}`),
    "the issuer twice": () =>
      signText(JSON.stringify(claims()).replace("{", '{"iss":"https://evil.example.com",')),
    "the sites twice": () => signText(JSON.stringify(claims()).replace("{", '{"sites":["foreign"],')),
    "the sites twice, once escaped": () =>
      signText(JSON.stringify(claims()).replace("{", '{"s\\u0069tes":["foreign"],')),
    "the audience twice": () => signText(JSON.stringify(claims()).replace("{", '{"aud":"x",')),
    "a header with its algorithm twice": () =>
      signText(JSON.stringify(claims()), '{"alg":"none","alg":"RS256","kid":"one","typ":"at+jwt"}'),
    "changed claims": async () => {
      const [header, , signature] = (await sign()).split(".");
      return `${header}.${base64({ ...claims(), sites: ["foreign"] })}.${signature}`;
    },
    "an ordinary base64 alphabet": async () =>
      (await sign()).replaceAll("_", "/").replaceAll("-", "+").concat("="),
  };

  /** Signed by the issuer's key, whatever the text is. */
  async function signText(
    text: string,
    header = JSON.stringify({ alg: "RS256", kid: "one", typ: "at+jwt" }),
  ): Promise<string> {
    const signed = `${base64(header)}.${base64(text)}`;
    const key = first?.pair.privateKey;
    if (key === undefined) throw new Error("no key");
    const signature = await crypto.subtle.sign("RSASSA-PKCS1-v1_5", key as CryptoKey, Buffer.from(signed));
    return `${signed}.${Buffer.from(signature).toString("base64url")}`;
  }

  test("signs what it is given, so that the attacks below fail by their claims", async () => {
    const token = await signText(JSON.stringify(claims()));
    expect((await createAuthenticate()(token)).user).toBe("ana");
    expect(await countSignatures(() => createAuthenticate()(token))).toBe(1);
  });

  test(`are ${Object.keys(attacks).length} kinds`, () => {
    expect(Object.keys(attacks).length).toBeGreaterThanOrEqual(60);
  });

  test.each([
    ["of quotes and no end", `{"${'\\"'.repeat(6_000)}`],
    ["of quotes and a last backslash", `{"${'\\"'.repeat(6_000)}\\`],
    ["of texts", `{${'"a" '.repeat(3_000)}`],
    ["of names", `{${'"a":'.repeat(3_000)}`],
    ["of braces", "{".repeat(12_000)],
  ])("claims %s hold nobody up", async (_, text) => {
    const token = `${base64('{"alg":"none"}')}.${base64(text).replace(/^.../, "eyJ")}.`;
    const authenticate = createAuthenticate();
    const took: number[] = [];
    for (let tries = 0; tries < 3; tries += 1) {
      const time = startProcessorTime();
      await expect(authenticate(token)).rejects.toThrow(Unauthorized);
      took.push(time());
    }
    expect(Math.min(...took)).toBeLessThan(50);
  });

  test.each(Object.entries(attacks))("%s", async (_, make) => {
    const authenticate = createAuthenticate({ jwks: "https://id.example.com/keys" });
    // The keys are there, and have just been fetched.
    await authenticate(await sign());
    const token = await make();
    const signatures = await countSignatures(async () => {
      const answer = await authenticate(token).catch((error: unknown) => error);
      expect(answer).toBeInstanceOf(Unauthorized);
      expect(answer).toEqual(new Unauthorized("Unauthorized"));
    });
    expect(signatures).toBeLessThanOrEqual(1);
    expect(provider.fetched).toHaveLength(1);
  });
});
