// A server over the memory store or a given store, with a stopped clock.
import { createMemoryLogs, type MemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import { createAuthenticator, createTokenCheck, hashToken } from "#src/access/auth.ts";
import { createCertificateUsers } from "#src/access/certificates.ts";
import type { RateLimiter } from "#src/access/rate-limit.ts";
import type { Site } from "#src/access/sites.ts";
import type { AuditLog } from "#src/audit/audit-log.ts";
import type { TokenEntry } from "#src/config/config.ts";
import type { CertificateEntry, CompressionConfig } from "#src/config/edge-settings.ts";
import type { Limits, TokenLimits } from "#src/config/limits.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis, type Instant, type Millis } from "#src/core/time.ts";
import { operations } from "#src/operations/index.ts";
import { createServer, type ServedConfig, type Server, type ServerOptions } from "#src/server/server.ts";
import type { LogStore } from "#src/store/logs.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";

export const base = Date.UTC(2026, 0, 15, 10);
export const token = "secret-token-of-ana";
/** Of another user, for the same site. */
export const otherToken = "secret-token-of-eve";
export const expiredToken = "secret-token-of-bob";

interface Subject {
  readonly server: Server;
  /** What it serves until it is reloaded. */
  readonly served: ServedConfig;
  readonly logs: MemoryLogs;
  /** The count of each limit that was reached, from `/metrics`. */
  readonly limited: () => Promise<Readonly<Record<string, number>>>;
  /** How much of each limit is used, from `/metrics`. */
  readonly used: () => Promise<Readonly<Record<string, number>>>;
  /** The counts of finished requests by operation and status, from `/metrics`. */
  readonly requests: () => Promise<Readonly<Record<string, number>>>;
  /** Everything that was logged. */
  readonly logged: () => string;
  /** POST /api/v2/logs/lines with ana's token. */
  readonly post: (body: unknown, init?: RequestInit) => Promise<Response>;
}

export function createSubject(
  over: {
    store?: LogStore;
    limits?: Partial<Limits>;
    /** Of ana's token. */
    ownLimits?: TokenLimits;
    compression?: CompressionConfig;
    lines?: number;
    rate?: RateLimiter;
    readingTime?: ServerOptions["readTimeouts"];
    graphql?: ServerOptions["loadGraphql"];
    proxies?: readonly string[];
    probeAddress?: boolean;
    silence?: number;
    unread?: number;
    /** How long a request waits for a slot. */
    readonly slotWait?: Millis;
    audit?: AuditLog;
    operations?: ServerOptions["operations"];
    served?: Partial<ServedConfig>;
    certificates?: readonly CertificateEntry[];
  } = {},
): Subject {
  const logs = createMemoryLogs();
  const lines = Array.from({ length: over.lines ?? 5 }, (_, n) => ({
    id: `l${n}`,
    time: (fromMillis(base + n) + 123n) as Instant,
    severity: "error" as const,
    message: `line ${n}`,
    json: '{"n":1.0}',
  }));
  logs.add("app", lines);
  const sources = new Map([["app", { id: "app", index: "app", layout: "auto", tenantFilter: undefined }]]);
  const site = (id: string, parts: Omit<Site, "id" | "retention" | "counterDefault">): [string, Site] => [
    id,
    { id, retention: 86_400_000, counterDefault: "cumulative", ...parts },
  ];
  const store = { backend: "memory", store: over.store ?? logs, sources };
  const tokens: readonly TokenEntry[] = [
    { user: "ana", sha256: hashToken(token), sites: ["shop", "bare"], limits: over.ownLimits },
    { user: "eve", sha256: hashToken(otherToken), sites: ["shop"] },
    { user: "bob", sha256: hashToken(expiredToken), sites: "*", expires: fromMillis(base) },
    { user: "dan", sha256: hashToken(expiringToken), sites: ["shop"], expires: fromMillis(base + 60_600) },
  ];
  let log = "";
  const now = () => fromMillis(base + 60_000);
  const telemetry = createTelemetry({
    write: (line) => {
      log += line;
    },
    level: "debug",
  });
  const served: ServedConfig = {
    authenticate: createAuthenticator(tokens, now, {
      recordUse: telemetry.recordUse,
      findCertificateUser: createCertificateUsers(over.certificates ?? [], now),
      ...(over.rate && { rate: over.rate }),
    }),
    sites: new Map([site("shop", { logs: store }), site("foreign", { logs: store }), site("bare", {})]),
    isToken: createTokenCheck(tokens),
    limits: { ...defaults.limits, ...over.limits },
    compression: over.compression,
    proxies: over.proxies,
    ...over.served,
  };
  const server = createServer({
    loadGraphql:
      over.graphql ??
      (async () => ({
        schema: (await import("#src/graphql/schema.ts")).schema,
        plugins: [],
        stitched: false,
      })),
    operations: over.operations ?? operations,
    ...served,
    hasProbeAddress: over.probeAddress,
    silenceLimit: over.silence,
    telemetry,
    audit: over.audit,
    now,
    ...(over.readingTime && { readTimeouts: over.readingTime }),
    unreadTimeout: over.unread,
    slotWait: over.slotWait,
    describeBackends: () => ["memory: ok"],
  });
  const post = (body: unknown, init: RequestInit = {}) =>
    server.fetch(`http://readout${linesPath}`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}` },
      body: typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body),
      ...init,
    } as RequestInit);
  const measured = async () => (await server.fetch("http://readout/metrics")).text();
  const limited = async () => {
    const counted = (await measured()).matchAll(/^readout_limited_total\{limit="(\w+)"\} (\d+)$/gm);
    return Object.fromEntries([...counted].map(([, limit = "", count]) => [limit, Number(count)]));
  };
  const used = async () => {
    const found = (await measured()).matchAll(/^readout_limit_used_ratio\{limit="(\w+)"\} (\S+)$/gm);
    return Object.fromEntries([...found].map(([, limit = "", ratio]) => [limit, Number(ratio)]));
  };
  const requests = async () => {
    const counted = (await measured()).matchAll(
      /^readout_requests_total\{operation="([\w.]+)",status="(\w+)"\} (\d+)$/gm,
    );
    return Object.fromEntries(
      [...counted].map(([, operation, status, count]) => [`${operation} ${status}`, Number(count)]),
    );
  };
  return { server, served, limited, used, requests, logs, logged: () => log, post };
}

export const linesPath = "/api/v2/logs/lines";
/** Valid for 600 milliseconds after the time at which the clock stands still. */
export const expiringToken = "secret-token-of-dan";
export function linesBody(over: Record<string, unknown> = {}, pagination: Record<string, unknown> = {}) {
  return {
    site_id: "shop",
    source_ids: ["app"],
    query: "",
    use_expressions: true,
    pagination: { per_page: 100, order: "ASC", cursor: { time: null }, ...pagination },
    ...over,
  };
}

/** A store that answers only after it is released, and how many have asked it. */
export function openWaitingStore() {
  const over = Promise.withResolvers<void>();
  const seen = { begun: 0 };
  const store: LogStore = {
    // biome-ignore lint/correctness/useYield: an empty answer
    async *lines() {
      seen.begun += 1;
      await over.promise;
    },
    isWithinLimits: async () => true,
  };
  return { store, seen, end: over.resolve };
}
