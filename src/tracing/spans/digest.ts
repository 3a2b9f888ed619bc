// Digests identify a group of requests, errors or slow events. A derived digest is the encoded key of its group, so that a
// filter by digest needs no state.
import { createHash } from "node:crypto";
import * as z from "zod";
import { tryParseJson } from "../../core/json/parse-json.ts";
import { type SpanKind, spanKinds } from "../../core/rows.ts";
import type { ActionNames } from "./requests.ts";

/** What a derived digest stands for. */
export type Digest =
  | ({ readonly of: "action" } & ActionNames)
  | ({ readonly of: "error"; readonly exception: string } & ActionNames)
  | ({ readonly of: "event" } & EventKey);

export interface EventKey {
  readonly service: string;
  readonly kind: SpanKind;
  readonly name: string;
  /** `hashStatement` of the normalised statement, which itself may be too long for a digest. */
  readonly statement: string | undefined;
}

/** The digest of an action, for rows of `actions` and spans below a request. URL-safe, like all derived digests. */
export function encodeActionDigest({ namespace, action }: ActionNames): string {
  return encodeDigest("act_", [namespace, action]);
}

/** The digest of an exception that carries none. The names are those of the request that it happened in. */
export function encodeErrorDigest(exception: string, { namespace, action }: ActionNames): string {
  return encodeDigest("err_", [exception, namespace, action]);
}

export function encodeEventDigest({ service, kind, name, statement }: EventKey): string {
  return encodeDigest("evt_", [service, kind, name, statement ?? ""]);
}

export function hashStatement(normalised: string): string {
  return createHash("sha256").update(normalised).digest("base64url").slice(0, 22);
}

const textSchema = z.string();
const digestForms = [
  {
    prefix: "act_",
    key: z
      .tuple([textSchema, textSchema])
      .transform(([namespace, action]): Digest => ({ of: "action", namespace, action })),
  },
  {
    prefix: "err_",
    key: z
      .tuple([textSchema, textSchema, textSchema])
      .transform(([exception, namespace, action]): Digest => ({ of: "error", exception, namespace, action })),
  },
  {
    prefix: "evt_",
    key: z.tuple([textSchema, z.enum(spanKinds), textSchema, textSchema]).transform(
      ([service, kind, name, statement]): Digest => ({
        of: "event",
        service,
        kind,
        name,
        statement: statement === "" ? undefined : statement,
      }),
    ),
  },
] as const;

/** Undefined for any text that is not a derived digest. */
export function decodeDigest(digest: string): Digest | undefined {
  const form = digestForms.find(({ prefix }) => digest.startsWith(prefix));
  if (form === undefined) return undefined;
  const bytes = Buffer.from(digest.slice(form.prefix.length), "base64url");
  const key = tryParseJson(bytes.toString());
  const { data } = form.key.safeParse(key);
  return data !== undefined && encodeDigest(form.prefix, key) === digest ? data : undefined;
}

function encodeDigest(prefix: string, key: unknown): string {
  return prefix + Buffer.from(JSON.stringify(key)).toString("base64url");
}

export const maxIncidentNumber = 2 ** 31 - 1;

/**
 * The stable number of an error within a site, from 1 to `maxIncidentNumber`; equal on every instance. GraphQL clients read
 * it as a signed integer of 32 bits.
 */
export function deriveIncidentNumber(site: string, digest: string): number {
  const hash = createHash("sha256").update(`${site}\0${digest}`).digest();
  return hash.readUInt32BE() >>> 1 || 1;
}
