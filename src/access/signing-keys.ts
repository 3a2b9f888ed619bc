// The keys with which an identity provider signs. They are kept through an outage of the provider, fetched anew as they age,
// and when a token names one that is not known: then at most once in 30 seconds for all who ask.
import type { FlattenedJWSInput, JSONWebKeySet, JWSHeaderParameters, JWTVerifyGetKey } from "jose";
import { z } from "zod";
import { BackendError } from "../core/errors.ts";
import { parseJson } from "../core/json/parse-json.ts";
import { type Instant, isRecent, type Millis, minute, second, toMillis } from "../core/time.ts";

/** Where the keys of an issuer are told. */
interface KeyLocation {
  readonly issuer: string;
  readonly jwks?: string | undefined;
  readonly discovery?: string | undefined;
}

export interface SigningKeys {
  /** As `createLocalJWKSet` of jose. @throws {BackendError} There are no keys yet, and the provider does not answer. */
  readonly findKey: JWTVerifyGetKey;
}

type FetchText = (url: string) => Promise<string>;

/** Older keys are fetched anew, while those that are there go on being used. */
const freshFor: Millis = 10 * minute;
const retryAfter: Millis = 30 * second;

type FindKey = (header: JWSHeaderParameters, token: FlattenedJWSInput) => ReturnType<JWTVerifyGetKey>;

interface KeysState {
  readonly issuer: string;
  find: FindKey | undefined;
  fetchedAt: Millis;
  attemptedAt: Millis;
  fetching: Promise<void> | undefined;
}

/** Nothing is fetched before a token asks for a key. */
export function createSigningKeys(
  location: KeyLocation,
  now: () => Instant,
  fetchText: FetchText = fetchKeyDocument,
): SigningKeys {
  const state: KeysState = {
    issuer: location.issuer,
    find: undefined,
    fetching: undefined,
    fetchedAt: Number.NEGATIVE_INFINITY,
    attemptedAt: Number.NEGATIVE_INFINITY,
  };
  const clock = () => toMillis(now());
  const refresh = (): Promise<void> => {
    state.attemptedAt = clock();
    state.fetching ??= loadKeys(location, fetchText)
      .then((find) => {
        state.find = find;
        state.fetchedAt = clock();
      })
      .finally(() => {
        state.fetching = undefined;
      });
    return state.fetching;
  };
  const mayAttempt = () => !isRecent(state.attemptedAt, clock(), retryAfter);
  return {
    findKey: async (header, token) => {
      if (state.find === undefined) await loadFirst(state, mayAttempt, refresh);
      else if (!isRecent(state.fetchedAt, clock(), freshFor) && mayAttempt()) refresh().catch(() => {});
      const { errors } = await import("jose");
      try {
        return await findKnown(state, header, token);
      } catch (error) {
        if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
        if (state.fetching === undefined && !mayAttempt()) throw error;
        // A key that is not known may be new. Without an answer the token stays one of an unknown key.
        await (state.fetching ?? refresh()).catch(() => {});
        return await findKnown(state, header, token);
      }
    },
  };
}

function findKnown(state: KeysState, ...asked: Parameters<FindKey>): ReturnType<FindKey> {
  if (state.find === undefined) throw createUnreachableError(state.issuer, "it has told no keys yet");
  return state.find(...asked);
}

/** @throws {BackendError} */
async function loadFirst(
  state: KeysState,
  mayAttempt: () => boolean,
  refresh: () => Promise<void>,
): Promise<void> {
  if (state.fetching === undefined && !mayAttempt()) {
    throw createUnreachableError(state.issuer, "it did not answer within the last 30 seconds");
  }
  await (state.fetching ?? refresh());
}

const discoverySchema = z.looseObject({ issuer: z.string(), jwks_uri: z.url() });
const keySetSchema = z.looseObject({ keys: z.array(z.unknown()) });
const encoded = z.string().min(1);
/** A key that one of the algorithms of `auth.jwt` can verify with. */
const keySchema = z.discriminatedUnion("kty", [
  z.looseObject({ kty: z.literal("RSA"), n: encoded, e: encoded }),
  z.looseObject({ kty: z.literal("EC"), crv: encoded, x: encoded, y: encoded }),
  z.looseObject({ kty: z.literal("OKP"), crv: encoded, x: encoded }),
]);

/** @throws {BackendError} */
async function loadKeys(location: KeyLocation, fetchText: FetchText): Promise<FindKey> {
  try {
    const { createLocalJWKSet } = await import("jose");
    const url = location.jwks ?? (await discoverKeys(location, fetchText));
    return createLocalJWKSet(readKeySet(await fetchText(url)));
  } catch (error) {
    throw createUnreachableError(location.issuer, "its keys cannot be read", error);
  }
}

/** Ignores keys of other kinds, and those that lack a part (RFC 7517, section 5). @throws {Error} There are no others. */
function readKeySet(text: string): JSONWebKeySet {
  const { keys } = keySetSchema.parse(parseJson(text));
  const usable = keys.flatMap((key) => keySchema.safeParse(key).data ?? []);
  if (usable.length === 0) throw new Error("it tells no key that can be used");
  return { keys: usable };
}

/** The address of an issuer's discovery document. */
export function locateDiscovery({ issuer, discovery }: KeyLocation): string {
  return discovery ?? `${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
}

async function discoverKeys(location: KeyLocation, fetchText: FetchText): Promise<string> {
  const { issuer } = location;
  const found = discoverySchema.parse(parseJson(await fetchText(locateDiscovery(location))));
  // Another issuer's document would be another issuer's keys (OpenID Connect Discovery 1.0, section 4.3).
  if (found.issuer !== issuer) throw new Error("the discovery document is of another issuer");
  return found.jwks_uri;
}

function createUnreachableError(issuer: string, reason: string, cause?: unknown): BackendError {
  const message = `identity provider ${issuer}: ${reason}`;
  return new BackendError("identity provider", "unreachable", message, { cause });
}

const fetchTimeout: Millis = 5 * second;
const maxKeyBytes = 1_048_576;

/** @throws {Error} any other answer than a text of status 200 within the time and the bound */
async function fetchKeyDocument(url: string): Promise<string> {
  const response = await fetch(url, {
    headers: { accept: "application/json" },
    redirect: "error",
    signal: AbortSignal.timeout(fetchTimeout),
  });
  if (!response.ok || response.body === null) throw new Error(`status ${response.status}`);
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body) {
    size += chunk.byteLength;
    if (size > maxKeyBytes) throw new Error(`more than ${maxKeyBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}
