// What an OAuth client is told of this server (RFC 9728): whose tokens it takes, and where it says so. The addresses are the
// configured ones, since a `Host` header is what its sender likes.
import { scopes } from "../core/scopes.ts";
import { type Answer, jsonType } from "../http/response.ts";

export interface ProtectedResource {
  /** The address of this server as its clients know it, without a slash at its end. */
  readonly publicUrl: string;
  /** The identity providers whose tokens are taken. */
  readonly issuers: readonly string[];
}

const wellKnown = "/.well-known/oauth-protected-resource";
/** Paths that clients know as resources of their own. */
const ownResources: readonly string[] = ["/mcp", "/api/mcp"];

/** The metadata at a path; undefined where there is none. */
export function findResourceMetadata(path: string, resource: ProtectedResource): Answer | undefined {
  if (!path.startsWith(wellKnown)) return undefined;
  const rest = path.slice(wellKnown.length);
  const base = readBasePath(resource);
  const own = base !== "" && rest.startsWith(base) ? rest.slice(base.length) : rest;
  if (own !== "" && !ownResources.includes(own)) return undefined;
  const metadata = {
    resource: `${resource.publicUrl}${own}`,
    authorization_servers: resource.issuers,
    // Agents send their token in the header only.
    bearer_methods_supported: own === "" ? ["header", "query"] : ["header"],
    scopes_supported: scopes,
  };
  // Clients that run in a browser read it before they have a token.
  const headers = { ...jsonType, "Access-Control-Allow-Origin": "*" };
  return { status: 200, headers, body: JSON.stringify(metadata) };
}

/** `WWW-Authenticate` of a 401: where the metadata of the path that was asked for is. */
export function printChallenge(path: string, resource: ProtectedResource): string {
  const own = ownResources.find((one) => path === one || path.startsWith(`${one}/`)) ?? "";
  const { origin } = new URL(resource.publicUrl);
  return `Bearer resource_metadata="${origin}${wellKnown}${readBasePath(resource)}${own}"`;
}

/** The path of a server behind a proxy that serves others as well; usually none. */
function readBasePath({ publicUrl }: ProtectedResource): string {
  return new URL(publicUrl).pathname.replace(/\/$/, "");
}
