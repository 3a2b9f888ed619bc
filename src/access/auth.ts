// Who asks, and which sites they may see. Tokens are 256 random bits, so one SHA-256 is enough: a slow hash guards
// passwords that can be guessed, and would cost 40 ms a request here. Only the hashes are kept.
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { TokenEntry } from "../config/config.ts";
import { TooMany, Unauthorized } from "../core/errors.ts";
import type { Instant } from "../core/time.ts";
import type { RateLimiter } from "./rate-limit.ts";

export interface Principal {
  readonly user: string;
  /** Also true of sites that do not exist when the token is for all: existence is not this file's business. */
  maySee(site: string): boolean;
  /** From then on the token is worth nothing; what it has opened is to be closed. */
  readonly expires?: bigint | undefined;
}

/**
 * @throws {Unauthorized} the token is missing, unknown or expired; the three are not told apart
 * @throws {TooMany} the token is good and over its rate
 */
export type Authenticate = (token: string | undefined) => Principal;

/**
 * An authenticator over the configured tokens, no two of which are the same. `rate` is asked once for each request of
 * a token, by its hash.
 */
export function createAuthenticator(
  tokens: readonly TokenEntry[],
  now: () => Instant,
  rate: RateLimiter = () => true,
): Authenticate {
  const entries = tokens.map(({ user, sha256, sites, expires }) => {
    const allowed = sites === "*" ? undefined : new Set(sites);
    const maySee = (site: string): boolean => allowed === undefined || allowed.has(site);
    return {
      sha256,
      hash: Buffer.from(sha256, "hex"),
      expires,
      principal: Object.freeze({ user, maySee, expires }),
    };
  });
  return (token) => {
    if (token === undefined || token === "") throw new Unauthorized("Unauthorized");
    const presented = createHash("sha256").update(token).digest();
    // Every entry is compared in full, so that the time tells nothing of which one was close or where it stands.
    let found: (typeof entries)[number] | undefined;
    for (const entry of entries) if (timingSafeEqual(entry.hash, presented)) found = entry;
    if (found === undefined) throw new Unauthorized("Unauthorized");
    if (found.expires !== undefined && found.expires <= now()) throw new Unauthorized("Unauthorized");
    if (!rate(found.sha256)) throw new TooMany(1);
    return found.principal;
  };
}

/**
 * The token that a request presents: of its Bearer header, else of `?token=`, else undefined. The header wins also
 * when it is wrong or empty. An `Authorization` of another scheme is a proxy's business and does not count.
 */
export function readToken(headers: Pick<Headers, "get">, url: string): string | undefined {
  const header = headers.get("authorization");
  const bearer = header === null ? null : /^bearer(?:[ \t]+(.*))?$/i.exec(header.trim());
  if (bearer !== null) return (bearer[1] ?? "").trim();
  const query = url.indexOf("?");
  if (query === -1) return undefined;
  const fragment = url.indexOf("#", query);
  const parameters = new URLSearchParams(url.slice(query + 1, fragment === -1 ? undefined : fragment));
  return parameters.get("token") ?? undefined;
}

/** A new token: 256 random bits, URL-safe, with a prefix by which secret scanners know it. */
export function generateToken(): string {
  return `rdt_${randomBytes(32).toString("base64url")}`;
}

/** What the configuration keeps of a token: its SHA-256 in lower-case hex. */
export function hashToken(token: string): string {
  return createHash("sha256").update(token).digest("hex");
}
