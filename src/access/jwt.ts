// Access tokens of identity providers (RFC 9068): who asks, for which sites, and what for. A token is verified once and then
// remembered by its hash for a minute, so that a dashboard costs one signature a minute.

import { createHash } from "node:crypto";
import type { JWTPayload } from "jose";
import { LRUCache } from "lru-cache";
import type { JwtIssuer, SitesClaim } from "../config/jwt-issuers.ts";
import { readOwn } from "../core/collections.ts";
import { BackendError } from "../core/errors.ts";
import { type Scope, scopes } from "../core/scopes.ts";
import { fromMillis, hour, type Instant, type Millis, minute, toDate, toMillis } from "../core/time.ts";
import { createScopeCheck, type Principal } from "./auth.ts";
import { createSigningKeys, type SigningKeys } from "./signing-keys.ts";

/**
 * The principal of a token; undefined for whatever is no valid token of a configured issuer.
 * @throws {BackendError} It cannot be known, because the issuer's keys were never there.
 */
type JwtVerifier = (token: string) => Promise<Principal | undefined>;

/** How far clocks may differ. */
const clockSkewSeconds = 60;
/** So long a token is not verified again, though its key may have been withdrawn. */
const rememberedFor: Millis = minute;
const maxRemembered = 10_000;
/** Longer ones are refused unread. A header of this size is the most that the server takes as a whole. */
const maxTokenChars = 16_384;
/** An open stream ends by then, however long its token is valid. */
const maxStreamTime: Millis = 24 * hour;

/**
 * Returns what makes a verifier of a configuration. A reload keeps the keys of each issuer, so that it needs no answer of
 * the identity provider.
 */
export function createReloadableJwtVerifier(
  now: () => Instant,
  fetchText?: (url: string) => Promise<string>,
): (issuers: readonly JwtIssuer[]) => JwtVerifier | undefined {
  const known = new Map<string, SigningKeys>();
  return (issuers) => {
    if (issuers.length === 0) return undefined;
    const byIssuer = new Map<string, VerifiedIssuer>();
    for (const config of issuers) {
      const place = JSON.stringify([config.issuer, config.jwks, config.discovery]);
      const keys = known.get(place) ?? createSigningKeys(config, now, fetchText);
      known.set(place, keys);
      byIssuer.set(config.issuer, { config, keys });
    }
    return createJwtVerifier(byIssuer, now);
  };
}

interface VerifiedIssuer {
  readonly config: JwtIssuer;
  readonly keys: SigningKeys;
}

function createJwtVerifier(issuers: ReadonlyMap<string, VerifiedIssuer>, now: () => Instant): JwtVerifier {
  const remembered = new LRUCache<string, { readonly principal: Principal; readonly until: Millis }>({
    max: maxRemembered,
  });
  return async (token) => {
    if (token.length > maxTokenChars) return undefined;
    const hash = createHash("sha256").update(token).digest("base64");
    const at = toMillis(now());
    const known = remembered.get(hash);
    if (known !== undefined && at < known.until) return known.principal;
    const issuer = issuers.get(readIssuer(token) ?? "");
    if (issuer === undefined) return undefined;
    const payload = await verifyToken(token, issuer, at);
    const principal = payload && toPrincipal(payload, issuer.config, at);
    if (principal === undefined) return undefined;
    const until = Math.min(at + rememberedFor, toMillis(principal.expires));
    remembered.set(hash, { principal, until });
    return principal;
  };
}

/** Whether a text has the form of a signed token: a header and claims in base64url, and a signature. */
function isJwtForm(text: string): boolean {
  return /^eyJ[\w-]+\.eyJ[\w-]+\.[\w-]*$/.test(text);
}

/** The claim `iss`, before anything is verified; undefined where the token is not one signed object with plain claims. */
function readIssuer(token: string): string | undefined {
  if (!isJwtForm(token)) return undefined;
  const [header = "", claims = ""] = token.split(".");
  const read = [header, claims].map((part) => Buffer.from(part, "base64url").toString("utf8"));
  // Which of two equal names counts differs between programs, so a token with two has no meaning.
  if (read.some(hasRepeatedName)) return undefined;
  try {
    const issuer: unknown = JSON.parse(read[1] ?? "").iss;
    return typeof issuer === "string" ? issuer : undefined;
  } catch {
    return undefined;
  }
}

/** Whether an object within a JSON text names a member twice. A text that is no JSON may count as either. */
function hasRepeatedName(json: string): boolean {
  const open: Set<string>[] = [];
  // A text without an end goes to the end of all: were it no piece, each quote within would be tried anew.
  for (const [piece] of json.matchAll(/"(?:[^"\\]|\\.?)*(?:"\s*:?|$)|[{}]/gs)) {
    if (piece === "{") open.push(new Set());
    else if (piece === "}") open.pop();
    else if (piece.endsWith(":")) {
      const name = readName(piece);
      const names = open.at(-1);
      if (names === undefined || names.has(name)) return true;
      names.add(name);
    }
  }
  return false;
}

function readName(piece: string): string {
  try {
    return String(JSON.parse(piece.slice(0, -1)));
  } catch {
    return piece;
  }
}

/** At most one signature is checked. @throws {BackendError} */
async function verifyToken(
  token: string,
  { config, keys }: VerifiedIssuer,
  at: Millis,
): Promise<JWTPayload | undefined> {
  const { jwtVerify } = await import("jose");
  try {
    const { payload, protectedHeader } = await jwtVerify(token, keys.findKey, {
      issuer: config.issuer,
      audience: [...config.audience],
      algorithms: [...config.algorithms],
      clockTolerance: clockSkewSeconds,
      currentDate: toDate(fromMillis(at)),
      requiredClaims: ["exp", "sub"],
    });
    const { typ } = protectedHeader;
    const isTyped = typ !== undefined && config.typ.map(normaliseType).includes(normaliseType(typ));
    // Of tokens within tokens only the outer signature would be checked.
    if (!isTyped || protectedHeader.cty !== undefined) return undefined;
    const isFromFuture = payload.iat !== undefined && payload.iat > at / 1_000 + clockSkewSeconds;
    return isFromFuture ? undefined : payload;
  } catch (error) {
    if (error instanceof BackendError) throw error;
    return undefined;
  }
}

/** A media type may leave `application/` out (RFC 7515, section 4.1.9). */
function normaliseType(type: string): string {
  return type.toLowerCase().replace(/^application\//, "");
}

function toPrincipal(
  payload: JWTPayload,
  config: JwtIssuer,
  at: Millis,
): (Principal & { readonly expires: Instant }) | undefined {
  const { sub, exp } = payload;
  const user = payload[config.user];
  if (typeof sub !== "string" || sub === "" || exp === undefined) return undefined;
  if (typeof user !== "string" || user === "") return undefined;
  const sites = readSites(payload, config.sites);
  const expires = Math.min(exp * 1_000 + clockSkewSeconds * 1_000, at + maxStreamTime);
  return Object.freeze({
    user,
    token: `${config.issuer} ${sub}`,
    account: JSON.stringify([config.issuer, sub]),
    maySee: (site: string) => sites === "*" || sites.has(site),
    hasScope: createScopeCheck(config.scopes === undefined ? undefined : readScopes(payload[config.scopes])),
    expires: fromMillis(Math.floor(expires)),
  });
}

/** All sites only where the configuration says so of a group: a claim never does. */
function readSites(payload: JWTPayload, sites: SitesClaim): ReadonlySet<string> | "*" {
  const claim = payload[sites.claim];
  if (!("map" in sites)) return new Set(readNames(claim));
  // Names of groups may have spaces, and some providers send a single group as text. Only `scope` is separated by spaces.
  const groups = typeof claim === "string" && sites.claim !== "scope" ? [claim] : readNames(claim);
  const ofGroups = groups.map((group) => readOwn(sites.map, group));
  if (ofGroups.includes("*")) return "*";
  return new Set(ofGroups.flatMap((list) => list ?? []));
}

function readScopes(claim: unknown): readonly Scope[] {
  const named = new Set(readNames(claim));
  return scopes.filter((scope) => named.has(scope));
}

/** A list of names, or names separated by spaces, as OAuth writes scopes. */
function readNames(claim: unknown): readonly string[] {
  const list = typeof claim === "string" ? claim.split(" ") : claim;
  if (!Array.isArray(list)) return [];
  return list.filter((one): one is string => typeof one === "string" && one !== "" && one !== "*");
}
