// Tokens of an identity provider of another hand (`oidc-provider`): its own tokens, its own discovery, new keys, and an hour
// without it.
import { afterAll, beforeAll, expect, test } from "vitest";
import { createAuthenticator } from "#src/access/auth.ts";
import { createReloadableJwtVerifier } from "#src/access/jwt.ts";
import type { JwtIssuer } from "#src/config/jwt-issuers.ts";
import { fromMillis } from "#src/core/time.ts";
import { audience, type IdentityProvider, openIdentityProvider } from "../support/identity-provider.ts";
import { createSubject, linesBody } from "./harness.ts";

const minute = 60_000;
let provider: IdentityProvider;
/** How far the clock of the server is ahead, in milliseconds. */
let ahead = 0;
const now = () => fromMillis(Date.now() + ahead);
const createVerifier = createReloadableJwtVerifier(now);

let subject: ReturnType<typeof createSubject>;

beforeAll(async () => {
  provider = await openIdentityProvider({ tokenSeconds: 4 * 3_600 });
  subject = createSubject({ served: { authenticate: authenticate() } });
});
afterAll(() => provider.stop());

function authenticate() {
  const config: JwtIssuer = {
    issuer: provider.issuer,
    audience: [audience],
    algorithms: ["ES256"],
    typ: ["at+jwt"],
    user: "sub",
    sites: { claim: "readout_sites", map: { "demo-shop": ["shop"] } },
    scopes: "scope",
  };
  return createAuthenticator([], now, { verifyJwt: createVerifier([config]) });
}
const askWith = async (token: string) =>
  (await subject.post(linesBody(), { headers: { authorization: `Bearer ${token}` } })).status;

test("its tokens are taken, also those of a new key; those of the old key no longer", async () => {
  const old = await provider.issueToken();
  expect(await askWith(old)).toBe(200);
  expect(await askWith(`${old.slice(0, -4)}AAAA`)).toBe(401);
  await provider.rotateKeys();
  ahead += minute;
  expect(await askWith(await provider.issueToken())).toBe(200);
  expect(await askWith(old)).toBe(401);
});

test("an hour without it fails no valid request, over reloads and tokens that were never seen", async () => {
  const [used = "", ...later] = await Promise.all(Array.from({ length: 14 }, () => provider.issueToken()));
  expect(await askWith(used)).toBe(200);
  await provider.stop();
  for (const token of later) {
    ahead += 5 * minute;
    expect([await askWith(used), await askWith(token)]).toEqual([200, 200]);
    await subject.server.reload({ ...subject.served, authenticate: authenticate() });
  }
  ahead += 4 * 60 * minute;
  expect(await askWith(used)).toBe(401);
});
