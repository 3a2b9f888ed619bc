// Access tokens for a source by the client credentials of OAuth 2 (RFC 6749, section 4.4).
import { z } from "zod";
import { BackendError, type Failure, toErrorMessage } from "../../src/core/errors.ts";
import { tryParseJson } from "../../src/core/json/parse-json.ts";
import type { Millis } from "../../src/core/time.ts";
import { createRenewedValue, type LimitedValue, longestRenewal } from "./renewed-value.ts";

interface OAuth2Settings {
  readonly tokenUrl: string;
  readonly clientId: string;
  readonly clientSecret: string;
  readonly scopes: readonly string[];
}

export interface AccessTokens {
  /** A token that is good now. @throws {BackendError} or the signal's reason */
  readonly readToken: (signal: AbortSignal) => Promise<string>;
  /** Forgets a token that the source has refused. */
  readonly discard: (token: string) => void;
}

/** Of a token whose server does not say how long it is good. */
const unknownLifetime: Millis = 60_000;
const maxResponseChars = 65_536;

const tokenSchema = z.object({
  access_token: z.string().regex(/^[\x21-\x7e]+$/),
  token_type: z.string().regex(/^bearer$/i),
  // Some servers send a text.
  expires_in: z.coerce.number().positive().optional(),
});
const errorSchema = z.object({ error: z.string().regex(/^[a-z_]{1,40}$/) });

export function createAccessTokens(
  backend: string,
  settings: OAuth2Settings,
  clock: () => Millis = () => performance.now(),
): AccessTokens {
  const tokens = createRenewedValue({
    renew: () => requestToken(backend, settings, clock),
    createLateError: () => createTokenError(backend, settings, "unreachable", "no answer"),
    clock,
  });
  return { readToken: tokens.read, discard: tokens.discard };
}

/** Says that it was not the source which failed. */
function createTokenError(
  backend: string,
  { tokenUrl }: OAuth2Settings,
  failure: Failure,
  reason: string,
  status?: number,
): BackendError {
  const message = `no access token from ${new URL(tokenUrl).host}: ${reason}`;
  return new BackendError(backend, failure, message, { status });
}

/** @throws {BackendError} as `createTokenError` */
async function requestToken(
  backend: string,
  settings: OAuth2Settings,
  clock: () => Millis,
): Promise<LimitedValue<string>> {
  const { tokenUrl, clientId, clientSecret, scopes } = settings;
  const fail = (failure: Failure, reason: string, status?: number) =>
    createTokenError(backend, settings, failure, reason, status);
  const started = clock();
  let status: number;
  let text: string;
  try {
    const response = await fetch(tokenUrl, {
      method: "POST",
      headers: {
        accept: "application/json",
        "content-type": "application/x-www-form-urlencoded",
        authorization: `Basic ${Buffer.from(`${encodeForm(clientId)}:${encodeForm(clientSecret)}`).toString("base64")}`,
      },
      body: new URLSearchParams({
        grant_type: "client_credentials",
        ...(scopes.length > 0 && { scope: scopes.join(" ") }),
      }),
      // The secret goes to no other address.
      redirect: "error",
      signal: AbortSignal.timeout(longestRenewal),
    });
    status = response.status;
    text = await readBoundedText(response);
  } catch (error) {
    const isLate = error instanceof Error && error.name === "TimeoutError";
    // Never `timeout`: clients are told of that as a source's.
    throw fail("unreachable", isLate ? `no answer within ${longestRenewal} ms` : describeNetworkError(error));
  }
  const answer = tryParseJson(text);
  if (status >= 500 || status === 429) throw fail("unreachable", `status ${status}`);
  if (status !== 200) {
    const code = errorSchema.safeParse(answer).data?.error;
    // 401 for the guard, which then asks less and less often: a wrong secret must not lock its account.
    throw fail(
      "denied",
      `it refuses the client (status ${status}${code === undefined ? "" : `, ${code}`})`,
      401,
    );
  }
  const token = tokenSchema.safeParse(answer).data;
  if (token === undefined) throw fail("malformed", "its answer is no bearer token");
  const lifetime = token.expires_in === undefined ? unknownLifetime : token.expires_in * 1_000;
  return {
    value: token.access_token,
    // A fifth before its end, and at most five minutes.
    renewAt: started + lifetime - Math.min(lifetime / 5, 300_000),
    expiresAt: started + lifetime,
  };
}

/** As RFC 6749, section 2.3.1, wants it: a colon in either would else move the place where they are parted. */
function encodeForm(text: string): string {
  return new URLSearchParams({ "": text }).toString().slice(1);
}

async function readBoundedText(response: Response): Promise<string> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > maxResponseChars) throw new RangeError("a response that is too long");
  }
  return text;
}

function describeNetworkError(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return toErrorMessage(cause).slice(0, 200);
}

/**
 * Sends with a token. A source may refuse one before its time, when it was revoked or its key was rotated: then once more
 * with another.
 */
export async function sendWithToken<Response>(
  { readToken, discard }: AccessTokens,
  signal: AbortSignal,
  send: (authorization: Readonly<Record<string, string>>) => Promise<Response>,
  isRefused: (response: Response) => boolean,
  drop: (response: Response) => void,
): Promise<Response> {
  const token = await readToken(signal);
  const response = await send({ authorization: `Bearer ${token}` });
  if (!isRefused(response)) return response;
  discard(token);
  drop(response);
  const next = await readToken(signal);
  const second = await send({ authorization: `Bearer ${next}` });
  if (isRefused(second)) discard(next);
  return second;
}
