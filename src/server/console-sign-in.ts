// How people sign in to the console at an identity provider. The console reads it as a page, and what it may reach follows from it.
import { locateDiscovery } from "../access/signing-keys.ts";
import type { Config } from "../config/config.ts";

/** All of it is public: the client has no secret. */
export interface ConsoleSignIn {
  /** Where providers send people back to, and nowhere else: below `public_url`, never where a `Host` header says. */
  readonly redirectUri: string;
  /** At least one. */
  readonly providers: readonly ConsoleProvider[];
  /** All that the console may ask beside this server. */
  readonly origins: readonly string[];
}

interface ConsoleProvider {
  /** As its tokens write it. */
  readonly issuer: string;
  readonly discovery: string;
  readonly clientId: string;
  readonly scope: string;
  /** What the access token is for, where the provider has to be told. */
  readonly resource?: string | undefined;
}

/** The page that takes the code out of its address. */
export const signedInPath = "/console/signed-in";

/** Undefined where people sign in with tokens alone. */
export function describeSignIn({
  publicUrl,
  jwtIssuers = [],
}: Pick<Config, "publicUrl" | "jwtIssuers">): ConsoleSignIn | undefined {
  const providers: ConsoleProvider[] = [];
  // Those of the configuration, not what a discovery document names: whoever could change it would else widen the policy.
  const origins = new Set<string>();
  for (const { console: client, ...location } of jwtIssuers) {
    if (client === undefined) continue;
    const { client_id: clientId, scope, resource } = client;
    const { issuer } = location;
    providers.push({ issuer, discovery: locateDiscovery(location), clientId, scope, resource });
    for (const address of [issuer, ...client.origins]) origins.add(new URL(address).origin);
  }
  if (publicUrl === undefined || providers.length === 0) return undefined;
  return { redirectUri: `${publicUrl}${signedInPath}`, providers, origins: [...origins] };
}

/** What the console is told. */
export function printSignIn(signIn: ConsoleSignIn | undefined): string {
  if (signIn === undefined) return JSON.stringify({ providers: [] });
  const { redirectUri, providers } = signIn;
  return JSON.stringify({ redirectUri, providers });
}
