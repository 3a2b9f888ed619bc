// `auth.jwt`: identity providers whose access tokens are taken beside those of the file.
import { z } from "zod";
import { acrossKeys, createTextSchema, grantedSites, httpUrl, originSchema, text } from "./validation.ts";

/** Algorithms with a public key. A shared secret is none, since whoever verifies with it could sign as well. */
const algorithms = [
  "RS256",
  "RS384",
  "RS512",
  "PS256",
  "PS384",
  "PS512",
  "ES256",
  "ES384",
  "ES512",
  "EdDSA",
] as const;

export interface JwtIssuer {
  /** Compared with the claim `iss` as it is written. */
  readonly issuer: string;
  /** Where its keys are; absent: where the discovery document says. */
  readonly jwks?: string | undefined;
  /** The discovery document; absent: below the issuer, at `/.well-known/openid-configuration`. */
  readonly discovery?: string | undefined;
  /** One of these has to be in the claim `aud`. */
  readonly audience: readonly string[];
  readonly algorithms: readonly string[];
  /** What the header's `typ` may be, so that an ID token is no key. */
  readonly typ: readonly string[];
  /** The claim that names the user in logs. */
  readonly user: string;
  readonly sites: SitesClaim;
  /** The claim that lists scopes; absent: all are allowed. */
  readonly scopes?: string | undefined;
  /** The client by which people sign in to the console; absent: they cannot. */
  readonly console?: ConsoleClient | undefined;
}

/** A public client: it has no secret, since a browser could keep none. */
interface ConsoleClient {
  readonly client_id: string;
  /** What it asks for, separated by spaces; `openid` is among it. */
  readonly scope: string;
  /** What the access token is for (RFC 8707), where the provider has to be told. */
  readonly resource?: string | undefined;
  /** Where the provider answers browsers beside the issuer's own origin, such as that of its token endpoint. */
  readonly origins: readonly string[];
}

/** A claim that lists sites, or one that lists groups, and the sites of each group. */
export type SitesClaim =
  | { readonly claim: string }
  | { readonly claim: string; readonly map: Readonly<Record<string, readonly string[] | "*">> };

const listSchema = (list: z.ZodType<readonly string[]>) =>
  z.preprocess((value) => (typeof value === "string" ? [value] : value), list);

const issuerUrl = createTextSchema((value) => {
  const url = URL.canParse(value) ? new URL(value) : undefined;
  const isHttp = url?.protocol === "https:" || url?.protocol === "http:";
  // Its origin stands in a header of the console.
  const hasPlainHost = originSchema.safeParse(url?.origin).success;
  return isHttp && hasPlainHost && url?.search === "" && url.hash === "" ? value : undefined;
}, "expected the issuer as its tokens write it, such as https://id.example.com");

const consoleSchema = z.strictObject({
  client_id: text,
  scope: text.refine((scope) => scope.split(" ").includes("openid"), "has to name openid").default("openid"),
  resource: createTextSchema(
    (value) => (URL.canParse(value) && !value.includes("#") ? value : undefined),
    "expected an address without a fragment, as the provider knows it",
  ).optional(),
  origins: z.array(originSchema).default([]),
});

export const jwtIssuerSchema = z
  .strictObject({
    issuer: issuerUrl,
    jwks: httpUrl.optional(),
    discovery: httpUrl.optional(),
    audience: listSchema(z.array(text).min(1, "names no audience")),
    algorithms: z
      .array(z.enum(algorithms, { error: `expected one of ${algorithms.join(", ")}` }))
      .min(1, "names no algorithm")
      .default(["RS256", "PS256", "ES256", "EdDSA"]),
    typ: listSchema(z.array(text).min(1, "names no type")).default(["at+jwt"]),
    user: text.default("sub"),
    sites: z.union(
      [
        text.transform((claim): SitesClaim => ({ claim })),
        z.strictObject({ claim: text, map: z.record(text, grantedSites) }),
      ],
      {
        error: ({ input }) => (input == null ? undefined : "expected the name of a claim, or { claim, map }"),
      },
    ),
    scopes: text.optional(),
    console: consoleSchema.optional(),
  })
  .refine(({ jwks, discovery }) => jwks === undefined || discovery === undefined, {
    error: "name `jwks` or `discovery`, not both",
    path: ["discovery"],
    ...acrossKeys,
  });
