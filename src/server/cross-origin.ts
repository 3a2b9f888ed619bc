// Pages of other origins that ask as agents do (CORS). No cookie proves who asks, so that credentials are not allowed.
import type { Exchange } from "../http/request.ts";
import type { Answer } from "../http/response.ts";

/** Programs send none. A page of another origin could use what a browser knows of this server. */
export function isOriginAllowed({ headers }: Exchange, allowed: readonly string[]): boolean {
  const origin = headers.get("origin");
  return origin === null || allowed.includes(origin.toLowerCase());
}

/** A page reads an answer, also an error, only where it names the page's origin; and these headers only where it lists them. */
export function addOriginHeaders(answer: Answer, exchange: Exchange, allowed: readonly string[]): Answer {
  const origin = exchange.headers.get("origin");
  const readable =
    origin === null || !isOriginAllowed(exchange, allowed)
      ? {}
      : {
          "Access-Control-Allow-Origin": origin,
          "Access-Control-Expose-Headers": "WWW-Authenticate, Retry-After, X-Request-Id",
        };
  return { ...answer, headers: { ...answer.headers, ...readable, Vary: "Origin" } };
}

/** What a browser asks before a page's request with a token is sent. Any header may be: the origin is trusted with tokens. */
export function answerPreflight({ headers }: Exchange, method: string): Answer {
  return {
    status: 200,
    headers: {
      "Access-Control-Allow-Methods": method,
      "Access-Control-Allow-Headers": headers.get("access-control-request-headers") ?? "authorization",
      "Access-Control-Max-Age": "86400",
    },
    body: "",
  };
}
