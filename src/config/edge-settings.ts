// How the server meets its clients: its certificate and theirs, which codings their answers may have, and where it writes down
// what they ask.
import { createPrivateKey } from "node:crypto";
import { createSecureContext } from "node:tls";
import { z } from "zod";
import { formatErrorCode } from "../core/errors.ts";
import { parseCertificates } from "../core/pem.ts";
import type { Scope } from "../core/scopes.ts";
import type { TokenLimits } from "./limits.ts";
import { toMapping } from "./plain-values.ts";
import { acrossKeys, collectorUrl, count, headersSchema, type IssueReporter, text } from "./validation.ts";

/** In the order in which they are preferred where a client likes both as much. */
const codingNames = ["zstd", "gzip"] as const;

export type CodingName = (typeof codingNames)[number];

/** How answers are compressed for clients that send `Accept-Encoding`. */
export interface CompressionConfig {
  readonly codings: readonly CodingName[];
  /** The same for each coding. */
  readonly level: number;
  /** Shorter complete answers are sent as they are. */
  readonly minBytes: number;
  /** Whether clients on this machine get them too. */
  readonly loopback: boolean;
}

export const defaultCompression = {
  codings: codingNames,
  level: 1,
  minBytes: 4_096,
  loopback: false,
} as const satisfies CompressionConfig;

const expectedLevel = "expected a whole number from 1 to 9";

export const compressionSchema = z.strictObject({
  codings: z.array(z.enum(codingNames)).default([...defaultCompression.codings]),
  level: count(1, expectedLevel)
    .refine((level) => level <= 9, expectedLevel)
    .default(defaultCompression.level),
  min_bytes: count(0).default(defaultCompression.minBytes),
  loopback: z.boolean().default(defaultCompression.loopback),
});

// ---- TLS ----------------------------------------------------------------------------------------------------

/** PEM texts. */
export interface TlsConfig {
  /** The certificate, and those that lead to its authority. */
  readonly cert: string;
  readonly key: string;
  /** The authorities of client certificates; absent: none is asked for. */
  readonly clientCa?: string | undefined;
}

/** A user who is known by a certificate. */
export interface CertificateEntry {
  readonly user: string;
  /** Either each attribute of the subject, or one name of its alternative names, such as `URI:spiffe://acme/agent`. */
  readonly subject?: CertificateSubject | undefined;
  readonly san?: string | undefined;
  readonly sites: readonly string[] | "*";
  readonly scopes?: readonly Scope[] | undefined;
  readonly limits?: TokenLimits | undefined;
}

/** The values of each attribute, such as `CN`, in the order of the certificate. */
type CertificateSubject = Readonly<Record<string, readonly string[]>>;

export const tlsListenSchema = <Address extends z.ZodType>(address: Address) =>
  z.strictObject({ address, cert: text, key: text, client_ca: text.optional() });

/** The keys of an entry that say whose certificate it is. */
export const certificateKeys = {
  subject: z
    .record(
      text,
      z.preprocess(
        (value) => (typeof value === "string" ? [value] : value),
        z.array(text).min(1, "has no value"),
      ),
    )
    .refine((subject) => Object.keys(subject).some((name) => name !== "CN"), {
      error:
        "name each attribute of the subject; a common name alone is no user, since others may have it too",
      ...acrossKeys,
    })
    .optional(),
  san: text
    .regex(/^(?:URI|DNS|email):\S+$/, "expected URI:…, DNS:… or email:…, as the certificate has it")
    .optional(),
};

/** Reads what `listen` names, and reports what is no certificate or no key to it. Undefined where it names none. */
export function readTlsFiles(
  value: unknown,
  readText: (path: string) => string,
  report: IssueReporter,
): TlsConfig | undefined {
  const listen = toMapping(toMapping(value).listen);
  const read = (name: string, check: (pem: string) => void): string | undefined => {
    const path = listen[name];
    if (typeof path !== "string" || path === "") return undefined;
    try {
      const pem = readText(path);
      check(pem);
      return pem;
    } catch (error) {
      report(["listen", name], `cannot be used${formatErrorCode(error)}`);
      return undefined;
    }
  };
  const cert = read("cert", parseCertificates);
  const clientCa = read("client_ca", parseCertificates);
  const key = read("key", (pem) => void createSecureContext({ key: pem }));
  if (cert === undefined || key === undefined) return undefined;
  try {
    createSecureContext({ cert, key });
  } catch (error) {
    const place = parseCertificates(cert).findIndex((one) => one.checkPrivateKey(createPrivateKey(key)));
    if (place === -1) report(["listen", "key"], "is not the key of the certificate");
    else if (place === 0) report(["listen", "cert"], `cannot be used${formatErrorCode(error)}`);
    else report(["listen", "cert"], `certificate ${place + 1} is that of the key: it has to be the first`);
  }
  return { cert, key, clientCa };
}

// ---- Audit log ----------------------------------------------------------------------------------------------

export interface AuditConfig {
  /** Exactly one of these two is there. */
  readonly file?: string | undefined;
  readonly otlp?: AuditCollector | undefined;
  /** The key of the queries' hashes: without it nobody can guess a query from its hash. */
  readonly key: string;
  readonly queries: "hash" | "text";
  /** `always`: no answer ends before its line is on the disk. */
  readonly sync: "always" | "1s";
  /** What happens to requests whose line cannot be written. */
  readonly onFull: "refuse" | "drop";
  /** Absent: the file grows until somebody else renames it. */
  readonly rotate?: AuditRotation | undefined;
}

interface AuditCollector {
  /** Of the receiver of OTLP over HTTP, without `/v1/logs`. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

interface AuditRotation {
  /** A file of this size is renamed, and a new one begun. */
  readonly bytes: number;
  /** How many renamed files are kept. */
  readonly keep: number;
}

export const auditSchema = z
  .strictObject({
    file: text.optional(),
    otlp: z.strictObject({ url: collectorUrl, headers: headersSchema }).optional(),
    key: text.min(16, "expected at least 16 characters that nobody can guess"),
    queries: z.enum(["hash", "text"]).default("hash"),
    sync: z.enum(["always", "1s"]).default("1s"),
    on_full: z.enum(["refuse", "drop"]).default("refuse"),
    rotate: z.strictObject({ bytes: count(4_096), keep: count(1).default(10) }).optional(),
  })
  .refine(({ file, otlp }) => (file === undefined) !== (otlp === undefined), {
    error: "name one of `file` and `otlp`",
    path: ["file"],
    ...acrossKeys,
  })
  .refine(({ file, rotate }) => rotate === undefined || file !== undefined, {
    error: "stands beside `file` only",
    path: ["rotate"],
    ...acrossKeys,
  });
