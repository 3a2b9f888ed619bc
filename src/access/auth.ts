// Authentication by tokens, and the sites that each may access. Tokens are 256 random bits, so one SHA-256 is enough:
// slow hashes protect passwords that can be guessed, and would cost 40 ms a request. Only the hashes are kept.
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { TokenEntry } from "../config/config.ts";
import type { TokenLimits } from "../config/limits.ts";
import { type Quota, TooMany, Unauthorized } from "../core/errors.ts";
import type { Scope } from "../core/scopes.ts";
import type { Instant, Millis } from "../core/time.ts";
import type { RateLimiter } from "./rate-limit.ts";

export interface Principal {
  readonly user: string;
  /** What the audit log calls the token: its name, or the beginning of its hash, or its issuer and subject. */
  readonly token: string;
  /** Whose share a request counts for: a token of the file, or the subject of an issuer. No two users have one. */
  readonly account: string;
  /** Also true of sites that do not exist where the token is for all: the caller checks whether they do. */
  maySee(site: string): boolean;
  /** Whether it may be used for that. What it may not be used for looks to it like a site that does not exist. */
  hasScope(scope: Scope): boolean;
  /** From then on the token is invalid, and its open streams must be closed. */
  readonly expires?: bigint | undefined;
  /** Beside those of the server; the smaller one of each holds. */
  readonly limits?: TokenLimits | undefined;
}

/** What a verified certificate says of its owner. */
export interface PeerCertificate {
  /** The values of each attribute of the subject. */
  readonly subject: Readonly<Record<string, readonly string[]>>;
  /** The alternative names, each with its type: `URI:spiffe://acme/agent`. */
  readonly names: readonly string[];
  /** When it ends. */
  readonly notAfter: Millis;
}

/** The principal of a certificate; undefined where none of the configuration's users, or more than one, is meant. */
export type FindCertificateUser = (certificate: PeerCertificate) => Principal | undefined;

/** Whether a token is used by a request of its own, or is looked at again for one that has begun. */
export type TokenUse = "counted" | "checked again";

/**
 * The certificate counts where there is no token at all. Only a use that is counted takes from the token's rate, which is the default.
 * @throws {Unauthorized} the token is missing, unknown, expired or not valid yet; all of these fail alike
 * @throws {OverRate} the token is valid and over its rate
 * @throws {BackendError} The keys of the token's issuer are not there yet.
 */
export type Authenticate = (
  token: string | undefined,
  certificate?: PeerCertificate | undefined,
  use?: TokenUse,
) => Promise<Principal>;

/** A valid token is over its rate. Whose it is belongs into the logs of the refusal. */
export class OverRate extends TooMany {
  readonly principal: Principal;
  constructor(principal: Principal, quota: Quota) {
    super(1, "rate", quota);
    this.principal = principal;
  }
}

/** What `createAuthenticator` needs beside the tokens of the file. */
interface AuthenticatorOptions {
  /** Called once for each request with a valid token, with its account. */
  readonly rate?: RateLimiter;
  /** Called once for each request with a valid token, also where it is over its rate. */
  readonly recordUse?: (user: string, at: Instant) => void;
  /** The principal of a token that is none of the file's. */
  readonly verifyJwt?: ((token: string) => Promise<Principal | undefined>) | undefined;
  readonly findCertificateUser?: FindCertificateUser;
}

/** Creates an authenticator for the configured tokens, all of which differ. */
export function createAuthenticator(
  tokens: readonly TokenEntry[],
  now: () => Instant,
  { rate, recordUse, verifyJwt, findCertificateUser }: AuthenticatorOptions = {},
): Authenticate {
  const entries = tokens.flatMap(toEntries);
  const find = async (token: string | undefined, certificate: PeerCertificate | undefined, at: Instant) => {
    if (token === undefined) return certificate && findCertificateUser?.(certificate);
    return token === "" ? undefined : (findPrincipal(entries, token, at) ?? (await verifyJwt?.(token)));
  };
  return async (token, certificate, use = "counted") => {
    const at = now();
    const principal = await find(token, certificate, at);
    if (principal === undefined) throw new Unauthorized("Unauthorized");
    if (use === "checked again") return principal;
    recordUse?.(principal.user, at);
    const own = principal.limits?.rate;
    if (rate?.take(principal.account, own) === false) throw new OverRate(principal, rate.describeQuota(own));
    return principal;
  };
}

/** A hash of a token, and who has it. */
interface Entry {
  readonly hash: Buffer;
  readonly notBefore: bigint | undefined;
  readonly principal: Principal;
}

/** One for each hash: both are one user's while a token is replaced by another. */
function toEntries(entry: TokenEntry): readonly Entry[] {
  const { user, name, sha256, sites, scopes, limits, expires, notBefore } = entry;
  const allowed = sites === "*" ? undefined : new Set(sites);
  const maySee = (site: string): boolean => allowed === undefined || allowed.has(site);
  const hashes = typeof sha256 === "string" ? [sha256] : sha256;
  const shared = {
    user,
    account: hashes.join(),
    maySee,
    hasScope: createScopeCheck(scopes),
    expires,
    limits,
  };
  return hashes.map((hash) => {
    const token = name ?? `sha256:${hash.slice(0, 12)}`;
    return { hash: Buffer.from(hash, "hex"), notBefore, principal: Object.freeze({ ...shared, token }) };
  });
}

function findPrincipal(entries: readonly Entry[], token: string, at: Instant): Principal | undefined {
  const presented = createHash("sha256").update(token).digest();
  // Every entry is compared in full, so that the time reveals neither a near match nor its position.
  let found: Entry | undefined;
  for (const entry of entries) if (timingSafeEqual(entry.hash, presented)) found = entry;
  if (found === undefined) return undefined;
  const { notBefore, principal } = found;
  if (notBefore !== undefined && at < notBefore) return undefined;
  if (principal.expires !== undefined && principal.expires <= at) return undefined;
  return principal;
}

/** Without a list all scopes are allowed. */
export function createScopeCheck(scopes: readonly Scope[] | undefined): (scope: Scope) => boolean {
  const allowed = scopes === undefined ? undefined : new Set(scopes);
  return (scope) => allowed === undefined || allowed.has(scope);
}

/**
 * Returns the token of a request: from its Bearer header, else from `?token=`. The header wins also where it is wrong or
 * empty. An `Authorization` header of another scheme belongs to a proxy and is ignored.
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

/** Generates a token: 256 random bits, URL-safe, with a prefix by which secret scanners recognise it. */
export function generateToken(): string {
  return `rdt_${randomBytes(32).toString("base64url")}`;
}

/** The SHA-256 of a token in lower-case hex, which the configuration has in place of the token. */
export function hashToken(token: string): string {
  return createHash("sha256").update(token).digest("hex");
}

/** Whether a text is one of the configured tokens, also one that has expired. */
export function createTokenCheck(tokens: readonly TokenEntry[]): (text: string) => boolean {
  const hashes = new Set(tokens.flatMap(({ sha256 }) => sha256));
  return (text) => hashes.has(hashToken(text));
}

/** What `generateToken` makes, whoever it is for, and signed tokens of whatever issuer, by their second part. */
const generatedToken = /rdt_[\w-]{43}|\.eyJ[\w-]{8,}\./;
/** More parts than an id has that a program makes. */
const maxParts = 8;

/**
 * Whether a text is a token, or holds one between characters that separate words. Only hashes are known, so each run of
 * its parts is hashed: of a text of many parts the first and last runs.
 */
export function holdsToken(text: string, isToken: (text: string) => boolean): boolean {
  if (generatedToken.test(text) || isToken(text)) return true;
  const words = [...text.matchAll(/[^\W_]+/g)].map(({ 0: word, index }) => ({
    start: index,
    end: index + word.length,
  }));
  if (words.length < 2) return false;
  const near = words.length <= maxParts ? words.length : maxParts / 2;
  const starts = words.filter((_, at) => at < near || at >= words.length - near).map(({ start }) => start);
  const ends = words.filter((_, at) => at < near || at >= words.length - near).map(({ end }) => end);
  // Longer ones first would find no more: any run may be the token.
  return starts.some((start) => ends.some((end) => end > start && isToken(text.slice(start, end))));
}
