// An identity provider of another hand (`oidc-provider`) on loopback. Who comes is signed in at once, as ana; what it says on
// the way can be forged, and its keys rotated.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { exportJWK, generateKeyPair } from "jose";
import Provider from "oidc-provider";
import { createMemoryAdapter } from "oidc-provider/lib/adapters/memory_adapter.js";

export const audience = "https://readout.example.com";
export const clientId = "readout-console";

/** Changes what the provider is asked and what it says, as somebody between it and the browser would. */
export interface Forgery {
  /** The parameters with which a browser comes. */
  readonly asked?: (parameters: URLSearchParams) => void;
  /** The address to which it is sent back. */
  readonly answer?: (address: URL) => void;
  /** The discovery document. */
  readonly metadata?: (document: Record<string, unknown>) => void;
}

export interface IdentityProvider {
  readonly issuer: string;
  /** Method and path of all that was asked. */
  readonly asked: string[];
  forgery: Forgery;
  /** An access token for a machine. */
  readonly issueToken: () => Promise<string>;
  /** Signs with a new key from now on; the old one is gone. */
  readonly rotateKeys: () => Promise<void>;
  /** Answers nobody any more. */
  readonly stop: () => Promise<void>;
}

interface ProviderOptions {
  /** Where browsers may be sent back to. */
  readonly redirectUris?: readonly string[];
  /** How long access tokens are valid, in seconds. */
  readonly tokenSeconds?: number;
}

const secret = "secret-of-the-machine-that-asks";

export async function openIdentityProvider(options: ProviderOptions = {}): Promise<IdentityProvider> {
  let handle = (_: IncomingMessage, response: ServerResponse): void => void response.end();
  const asked: string[] = [];
  const http = createServer((request, response) => {
    asked.push(`${request.method} ${request.url?.split("?")[0]}`);
    handle(request, response);
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const issuer = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const opened: IdentityProvider = {
    issuer,
    asked,
    forgery: {},
    issueToken: async () => {
      const response = await fetch(`${issuer}/token`, {
        method: "POST",
        headers: { authorization: `Basic ${btoa(`machine:${secret}`)}` },
        body: new URLSearchParams({ grant_type: "client_credentials", resource: audience, scope: "logs" }),
      });
      return ((await response.json()) as { readonly access_token: string }).access_token;
    },
    rotateKeys: async () => {
      handle = await createHandler(issuer, options, () => opened.forgery);
    },
    stop: () =>
      new Promise((resolve) => {
        http.close(() => resolve());
        http.closeAllConnections();
      }),
  };
  await opened.rotateKeys();
  return opened;
}

let drawnKeys = 0;

async function createHandler(
  issuer: string,
  { redirectUris = [], tokenSeconds = 600 }: ProviderOptions,
  readForgery: () => Forgery,
): Promise<(request: IncomingMessage, response: ServerResponse) => void> {
  const { privateKey } = await generateKeyPair("ES256", { extractable: true });
  drawnKeys += 1;
  const key = { ...(await exportJWK(privateKey)), kid: `key-${drawnKeys}`, alg: "ES256", use: "sig" };
  const provider = new Provider(issuer, {
    jwks: { keys: [key] },
    clients: [
      {
        client_id: clientId,
        token_endpoint_auth_method: "none",
        redirect_uris: redirectUris,
        // What a client on plain HTTP has to call itself.
        application_type: "native",
        grant_types: ["authorization_code"],
        response_types: ["code"],
        id_token_signed_response_alg: "ES256",
      },
      {
        client_id: "machine",
        client_secret: secret,
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
        id_token_signed_response_alg: "ES256",
      },
    ],
    adapter: createMemoryAdapter(0),
    // All that it would complain of where it is left out.
    ttl: Object.fromEntries(
      [
        "AccessToken",
        "AuthorizationCode",
        "ClientCredentials",
        "Grant",
        "IdToken",
        "Interaction",
        "Session",
      ].map((name) => [name, tokenSeconds]),
    ),
    cookies: { keys: ["a key of the cookies"] },
    scopes: ["openid"],
    clientBasedCORS: (_: unknown, origin: string) =>
      redirectUris.some((uri) => new URL(uri).origin === origin),
    findAccount: (_: unknown, accountId: string) => ({ accountId, claims: () => ({ sub: accountId }) }),
    extraTokenClaims: () => ({ readout_sites: ["demo-shop"] }),
    loadExistingGrant: async () => {
      const grant = new provider.Grant({ accountId: "ana", clientId });
      grant.addOIDCScope("openid");
      grant.addResourceScope(audience, "logs");
      await grant.save();
      return grant;
    },
    interactions: { url: (_: unknown, { uid }: { readonly uid: string }) => `/interaction/${uid}` },
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({
          scope: "logs",
          audience,
          accessTokenTTL: tokenSeconds,
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: "ES256" } },
        }),
      },
    },
  });
  forge(provider, readForgery);
  const handle = provider.callback();
  return (request, response) => {
    if (request.url?.startsWith("/interaction/") !== true) return handle(request, response);
    provider
      .interactionFinished(request, response, { login: { accountId: "ana" }, consent: {} })
      .catch((error: unknown) => response.writeHead(500).end(String(error)));
  };
}

function forge(provider: Provider, readForgery: () => Forgery): void {
  provider.use(async (context, next) => {
    const { asked, answer, metadata } = readForgery();
    if (context.path === "/auth" && asked !== undefined) {
      const parameters = new URLSearchParams(context.querystring);
      asked(parameters);
      context.querystring = String(parameters);
    }
    await next();
    const location = context.response.get("location") ?? "";
    if (answer !== undefined && location.includes("/console/signed-in?")) {
      const address = new URL(location);
      answer(address);
      context.set("location", address.href);
    }
    if (metadata !== undefined && context.path === "/.well-known/openid-configuration") {
      metadata(context.body as Record<string, unknown>);
    }
  });
}
