// What tells apart two ways of seeing the same documents: the user whom the cluster knows, and the layouts by which spans are
// decoded. Figures that are kept at a source are of one view. A password may change without making another view.
import { createHash, scryptSync } from "node:crypto";
import type { CustomLayouts } from "../../src/store/backend.ts";
import { type SpanLayout, spanLayouts } from "./layout/span-layout.ts";

type Login =
  | { readonly username: string }
  | { readonly api_key: string }
  | { readonly bearer: string }
  | { readonly oauth2: { readonly client_id: string } }
  | {
      readonly aws: { readonly region: string; readonly service: string; readonly role?: string | undefined };
    };

export function describeView(
  {
    auth,
    headers,
  }: { readonly auth?: Login | undefined; readonly headers: Readonly<Record<string, string>> },
  own: Pick<CustomLayouts<unknown, SpanLayout>, "traces"> | undefined,
): string {
  const layouts = createHash("sha256");
  for (const layout of [...spanLayouts.values(), ...(own?.traces.values() ?? [])]) {
    layouts.update(JSON.stringify(layout));
  }
  const hasHeaders = Object.keys(headers).length > 0;
  return JSON.stringify({
    user: describeUser(auth),
    ...(hasHeaders && { headers: digestSecret(JSON.stringify(headers)) }),
    layouts: layouts.digest("base64url"),
  });
}

function describeUser(auth: Login | undefined): string {
  if (auth === undefined) return "none";
  if ("username" in auth) return `user ${auth.username}`;
  if ("oauth2" in auth) return `client ${auth.oauth2.client_id}`;
  // Whose credentials are found is known at AWS alone.
  if ("aws" in auth) return `aws ${auth.aws.region} ${auth.aws.service} ${auth.aws.role ?? "own"}`;
  return `key ${digestSecret("api_key" in auth ? auth.api_key : auth.bearer)}`;
}

/** The text is written to an index, so that a secret must be dear to guess from it. */
function digestSecret(secret: string): string {
  return scryptSync(secret, "readout rollups", 12, { cost: 4_096 }).toString("base64url");
}
