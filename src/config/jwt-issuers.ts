// `auth.jwt`: identity providers whose access tokens are taken beside those of the file.
import { z } from "zod";
import { createTextSchema, httpUrl, text } from "./validation.ts";

/** Algorithms with a public key. A shared secret is none, since whoever verifies with it could sign as well. */
const algorithms = [
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
  ...["ES256", "ES384", "ES512", "EdDSA"],
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
}

/** A claim that lists sites, or one that lists groups, and the sites of each group. */
export type SitesClaim =
  | { readonly claim: string }
  | { readonly claim: string; readonly map: Readonly<Record<string, readonly string[] | "*">> };

const listSchema = (list: z.ZodType<readonly string[]>) =>
  z.preprocess((value) => (typeof value === "string" ? [value] : value), list);

const siteList = z.array(text).min(1, "names no site");

const issuerUrl = createTextSchema((value) => {
  const url = URL.canParse(value) ? new URL(value) : undefined;
  const isHttp = url?.protocol === "https:" || url?.protocol === "http:";
  return isHttp && url?.search === "" && url.hash === "" ? value : undefined;
}, "expected the issuer as its tokens write it, such as https://id.example.com");

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
    sites: z.union([
      text.transform((claim): SitesClaim => ({ claim })),
      z.strictObject({
        claim: text,
        map: z.record(text, z.union([z.literal("*"), siteList])),
      }),
    ]),
    scopes: text.optional(),
  })
  .refine(({ jwks, discovery }) => jwks === undefined || discovery === undefined, {
    error: "name `jwks` or `discovery`, not both",
    path: ["discovery"],
  });
