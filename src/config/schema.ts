// The schema of readout.yaml: its keys, their values and their defaults. Messages are our own words and never repeat a value.
import { isIPv4, isIPv6 } from "node:net";
import { z } from "zod";
import { scopes } from "../core/scopes.ts";
import { day, type Instant, type Millis, parseInstant } from "../core/time.ts";
import {
  auditSchema,
  certificateKeys,
  compressionSchema,
  defaultCompression,
  tlsListenSchema,
} from "./edge-settings.ts";
import { jwtIssuerSchema } from "./jwt-issuers.ts";
import { defaultLimits, limitsSchema, tailSchema, tokenLimitsSchema } from "./limits.ts";
import { checkMetricAliases, labelsSchema, metricAliasesSchema } from "./metric-aliases.ts";
import { deepFreeze, toMapping } from "./plain-values.ts";
import { defaultRollups, rollupsSchema } from "./rollup-settings.ts";
import {
  acrossKeys,
  chooseSchema,
  collectorUrl,
  count,
  createTextSchema,
  duration,
  grantedSites,
  headersSchema,
  httpUrl,
  namedRecord,
  oneOrSeveral,
  originSchema,
  parseNumeral,
  text,
} from "./validation.ts";

/** What an absent key means. The documented defaults are tested against it. */
export const defaults = deepFreeze({
  listen: { host: "127.0.0.1", port: 8080 },
  spool: "data/spool.db",
  spoolBytes: 1_073_741_824,
  keyRate: 2_000,
  addressRate: 100,
  proxies: 0,
  retention: 30 * day,
  counterDefault: "cumulative",
  layout: "auto",
  otlp: { ratio: 1, service: "readout" },
  compression: defaultCompression,
  rollups: defaultRollups,
  limits: defaultLimits,
} as const satisfies Record<string, unknown>);

/** The least interval at which a source is asked; a shorter one would load it. */
const minFreshness: Millis = 10_000;

/** The parts of a site, each of which names a backend. */
export const siteParts = ["logs", "traces", "metrics", "kubernetes", "frontend"] as const;

export type SitePart = (typeof siteParts)[number];

export interface Address {
  readonly host: string;
  readonly port: number;
}

const addressSchema = createTextSchema(
  readAddress,
  "expected host:port, such as 127.0.0.1:8080 or [::1]:8080",
);

export function readAddress(value: string): Address | undefined {
  const [, bracketed, plain, digits] = /^(?:\[([^\]]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})$/.exec(value) ?? [];
  const port = Number(digits);
  if (digits === undefined || port > 65_535) return undefined;
  if (bracketed !== undefined) return isIPv6(bracketed) ? { host: bracketed, port } : undefined;
  if (plain === undefined || (/^[\d.]+$/.test(plain) && !isIPv4(plain))) return undefined;
  return { host: plain, port };
}

/** An address, or a network as `10.0.0.0/8`. */
const networkSchema = createTextSchema((value) => {
  const [, address = "", prefix] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(value) ?? [];
  const bits = isIPv4(address) ? 32 : isIPv6(address) && !address.includes("%") ? 128 : -1;
  return bits === -1 || Number(prefix ?? 0) > bits ? undefined : value;
}, "expected an IP address or a network, such as 10.0.0.7 or 10.0.0.0/8");

const hashOfEmptyText = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

const hashSchema = createTextSchema((value) => {
  const hex = value.toLowerCase();
  return /^[0-9a-f]{64}$/.test(hex) ? hex : undefined;
}, "expected the token's SHA-256 as 64 hex digits in quotes; `readout token new` prints it").refine(
  (hex) => hex !== hashOfEmptyText,
  "is the SHA-256 of an empty text; `readout token new` prints that of a token",
);

const hashesSchema = z.array(hashSchema).min(1, "has no hash").max(2, "has more than two hashes");

const instantSchema = createTextSchema(
  parseInstant,
  "expected an ISO 8601 time with a zone, such as 2027-01-01T00:00:00Z",
);

const scope = z.enum(scopes, { error: `expected one of ${scopes.join(", ")}` });

/** What a user may do, however it is known. */
const grantKeys = {
  user: text,
  sites: grantedSites,
  scopes: z.array(scope).min(1, "names no scope; leave it out to allow all").optional(),
  limits: tokenLimitsSchema.optional(),
};

const tokenSchema = z
  .strictObject({
    ...grantKeys,
    name: text.optional(),
    sha256: chooseSchema((value): typeof hashSchema | typeof hashesSchema =>
      Array.isArray(value) ? hashesSchema : hashSchema,
    ),
    expires: instantSchema.optional(),
    not_before: instantSchema.optional(),
  })
  .refine(({ expires, not_before: begin }) => !isInstant(expires) || !isInstant(begin) || begin < expires, {
    error: "has to be after `not_before`: the token would never be taken",
    path: ["expires"],
    ...acrossKeys,
  });

function isInstant(value: unknown): value is Instant {
  return typeof value === "bigint";
}

const certificateSchema = z
  .strictObject({ ...grantKeys, ...certificateKeys })
  .refine(({ subject, san }) => (subject === undefined) !== (san === undefined), {
    error: "name one of `subject` and `san`",
    path: ["subject"],
    ...acrossKeys,
  });

const sourceKeys = { index: text, layout: text.default(defaults.layout), where: text.optional() };

const withinBackends = z.never({ error: "stands in each of `backends`" }).optional();
const besideBackends = z.never({ error: "stands beside `backends` only" }).optional();

/** A log source in one backend, which is that of its part where it names none. */
const logSourceSchema = z.strictObject({
  backend: text.optional(),
  ...sourceKeys,
  backends: besideBackends,
  dedupe: besideBackends,
});

/** A log source in several backends. */
const spreadLogSourceSchema = z.strictObject({
  backends: z.array(z.strictObject({ backend: text, ...sourceKeys })).min(1, "names no backend"),
  dedupe: z.enum(["id"]).optional(),
  backend: withinBackends,
  index: withinBackends,
  layout: withinBackends,
  where: withinBackends,
});

export const tracesSchema = z.strictObject({
  backend: text,
  ...sourceKeys,
  tag_prefixes: z.array(text).optional(),
  namespace_attribute: text.optional(),
  action_attribute: text.optional(),
});

const matchedPartSchema = z.strictObject({ backend: text, match: labelsSchema.default({}) });

const metricsSchema = matchedPartSchema
  .extend({ names: metricAliasesSchema.optional() })
  .superRefine(
    (part, context) =>
      checkMetricAliases(part, (path, message) =>
        context.addIssue({ code: "custom", path: [...path], message }),
      ),
    acrossKeys,
  );

/** A list of parts. */
const matchedPlacesSchema = z
  .array(matchedPartSchema.extend({ replica: text.optional() }))
  .min(1, "names no backend");

const siteSchema = z.strictObject({
  name: text.optional(),
  environment: text.optional(),
  retention: duration(36_500 * day).default(defaults.retention),
  partial: z.boolean().optional(),
  counter_default: z.enum(["cumulative", "increment"]).default(defaults.counterDefault),
  logs: z
    .strictObject({
      backend: text.optional(),
      sources: namedRecord(
        chooseSchema((source) => ("backends" in toMapping(source) ? spreadLogSourceSchema : logSourceSchema)),
      ).refine((all) => Object.keys(all).length > 0, "names no source"),
    })
    .optional(),
  traces: oneOrSeveral(tracesSchema).optional(),
  metrics: chooseSchema((value) => (Array.isArray(value) ? matchedPlacesSchema : metricsSchema)).optional(),
  kubernetes: chooseSchema((value) =>
    Array.isArray(value) ? matchedPlacesSchema : matchedPartSchema,
  ).optional(),
  frontend: z
    .strictObject({
      keys: z.array(text).min(1, "names no key"),
      backend: text,
      index: text.regex(
        /^(?:[^{},*?\s]|\{date\}|\{month\})+$/,
        "expected the name of one index, with {date} or {month} or neither",
      ),
      layout: text.default(defaults.layout),
    })
    .optional(),
});

const expectedRatio = "expected a number from 0 to 1";

const otlpSchema = z.strictObject({
  url: collectorUrl,
  headers: headersSchema,
  ratio: z
    .preprocess(
      parseNumeral,
      z
        .number({ error: (issue) => (issue.input == null ? undefined : expectedRatio) })
        .min(0, expectedRatio)
        .max(1, expectedRatio),
    )
    .default(defaults.otlp.ratio),
  service: text.default(defaults.otlp.service),
});

const listenWithTls = tlsListenSchema(addressSchema);

/** It stands in a header. */
const publicLabel = text.regex(/^[\w.-]{1,64}$/, "expected up to 64 letters, digits and any of . _ -");

const graphqlSchema = z
  .strictObject({
    documents: text.optional(),
    only_documents: z.boolean().default(false),
    introspection: z.boolean().default(true),
  })
  .refine(({ documents, only_documents }) => documents !== undefined || !only_documents, {
    path: ["only_documents"],
    message: "needs `documents`, the folder of those that are answered",
    ...acrossKeys,
  });

export const fileSchema = z.strictObject({
  listen: chooseSchema((value): typeof addressSchema | typeof listenWithTls =>
    typeof value === "object" && value !== null ? listenWithTls : addressSchema,
  ).default(defaults.listen),
  public_url: httpUrl.optional(),
  admin: z.strictObject({ listen: addressSchema }).optional(),
  proxies: z.array(networkSchema).default([]),
  mcp: z.strictObject({ origins: z.array(originSchema).default([]) }).prefault({}),
  intake: z
    .strictObject({
      listen: addressSchema.optional(),
      spool: text.default(defaults.spool),
      spool_bytes: count(1_000_000).default(defaults.spoolBytes),
      key_rate: count(1).default(defaults.keyRate),
      address_rate: count(1).default(defaults.addressRate),
      proxies: count(0).default(defaults.proxies),
    })
    .optional(),
  tokens: z.array(tokenSchema).default([]),
  auth: z
    .strictObject({
      jwt: z.array(jwtIssuerSchema).default([]),
      certificates: z.array(certificateSchema).default([]),
    })
    .optional(),
  backends: namedRecord(z.looseObject({ kind: text, label: publicLabel.optional() })),
  sites: namedRecord(siteSchema),
  visuals: text.optional(),
  mesh: text.optional(),
  graphql: graphqlSchema.optional(),
  compression: compressionSchema.prefault({}),
  limits: limitsSchema.prefault({}),
  tail: tailSchema.prefault({}),
  rollups: rollupsSchema.optional(),
  freshness: duration(day)
    .refine((every) => every >= minFreshness, "expected 10s or more")
    .optional(),
  otlp: otlpSchema.optional(),
  audit: auditSchema.optional(),
});
