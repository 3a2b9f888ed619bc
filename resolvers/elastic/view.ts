// What tells apart two ways of seeing the same documents: the user whom the cluster knows, and the layouts by which spans are
// decoded. Figures that are kept at a source are of one view. A password may change without making another view, and so may a
// certificate with the same names.
import { createHash, scryptSync } from "node:crypto";
import { requireAt } from "../../src/core/collections.ts";
import { parseCertificates } from "../../src/core/pem.ts";
import type { CustomLayouts } from "../../src/store/backend.ts";
import { type SpanLayout, spanLayouts } from "./layout/span-layout.ts";

type WrittenLogin =
  | { readonly username: string }
  | { readonly api_key: string }
  | { readonly bearer: string }
  | {
      readonly oauth2: {
        readonly token_url: string;
        readonly client_id: string;
        readonly scopes: readonly string[];
      };
    }
  | {
      readonly aws: { readonly region: string; readonly service: string; readonly role?: string | undefined };
    };

/** All that may tell the cluster who asks. */
interface Login {
  readonly auth?: WrittenLogin | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** The client's, as PEM text. */
  readonly certificate: string | undefined;
}

export function describeView(
  { auth, headers, certificate }: Login,
  own: Pick<CustomLayouts<unknown, SpanLayout>, "traces"> | undefined,
): string {
  const layouts = createHash("sha256");
  for (const layout of [...spanLayouts.values(), ...(own?.traces.values() ?? [])]) {
    layouts.update(JSON.stringify(layout));
  }
  const hasHeaders = Object.keys(headers).length > 0;
  return JSON.stringify({
    user: describeUser(auth),
    ...(certificate !== undefined && { certificate: describeCertificate(certificate) }),
    ...(hasHeaders && { headers: digestSecret(JSON.stringify(headers)) }),
    layouts: layouts.digest("base64url"),
  });
}

function describeUser(auth: WrittenLogin | undefined): string {
  if (auth === undefined) return "none";
  if ("username" in auth) return `user ${auth.username}`;
  if ("oauth2" in auth) {
    const { token_url, client_id, scopes } = auth.oauth2;
    return `client ${client_id} of ${token_url} for ${JSON.stringify(scopes)}`;
  }
  // Whose credentials are found is known at AWS alone.
  if ("aws" in auth) return `aws ${auth.aws.region} ${auth.aws.service} ${auth.aws.role ?? "own"}`;
  return `key ${digestSecret("api_key" in auth ? auth.api_key : auth.bearer)}`;
}

/** Whom it names. A renewed certificate of the same user has other bytes. */
function describeCertificate(pem: string): string {
  const { subject, issuer, subjectAltName } = requireAt(parseCertificates(pem), 0);
  return JSON.stringify([subject, issuer, subjectAltName]);
}

/** The text is written to an index, so that a secret must be dear to guess from it. */
function digestSecret(secret: string): string {
  return scryptSync(secret, "readout rollups", 12, { cost: 4_096 }).toString("base64url");
}
