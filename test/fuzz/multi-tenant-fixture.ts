// Three sites on one backend that differ only in a mark in all their texts, so that a foreign row is recognised. They
// share traces (each has a span of every trace), metric names, line times and pods.
import { clusterMatch, observeCluster } from "#resolvers/memory/demo/cluster.ts";
import { createMemoryKubernetes, type Observation } from "#resolvers/memory/stores/kubernetes-store.ts";
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import { createMemoryMetrics } from "#resolvers/memory/stores/metric-store.ts";
import { createMemorySpans } from "#resolvers/memory/stores/span-store.ts";
import { createAuthenticator, hashToken } from "#src/access/auth.ts";
import { buildSpanSource, type Site } from "#src/access/sites.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis } from "#src/core/time.ts";
import { operations } from "#src/operations/index.ts";
import { createServer, type Server } from "#src/server/server.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";
import { loadPlainSchema } from "../support/demo-server.ts";
import { base, createException, createSpan } from "../tracing/span-builder.ts";

export const sites = ["north", "south", "east"] as const;
export type SiteId = (typeof sites)[number];
export const mark = (site: SiteId): string => `mark-of-${site}`;

/** Which sites each token may see. */
export const tokens: Readonly<Record<string, readonly SiteId[] | "*">> = {
  "token-of-north": ["north"],
  "token-of-south": ["south"],
  "token-of-both": ["north", "south"],
  "token-of-all": "*",
  "token-of-none": [],
};
export const seenBy = (token: string): readonly SiteId[] =>
  tokens[token] === "*" ? sites : (sites.filter((site) => tokens[token]?.includes(site)) ?? []);

interface World {
  readonly server: Server;
  /** Every call to a store so far. */
  readonly calls: () => number;
  readonly logged: () => string;
}

const minute = 60_000;

export function createWorld(): World {
  let calls = 0;
  const counted = <Store extends object>(store: Store): Store =>
    new Proxy(store, {
      get: (target, key) => {
        calls += 1;
        return Reflect.get(target, key);
      },
    });
  const [logs, spans, metrics] = [createMemoryLogs(), createMemorySpans(), createMemoryMetrics("memory")];
  for (const [at, site] of sites.entries()) {
    addLines(logs, site);
    addSpans(spans, site, at);
    addSamples(metrics, site);
  }
  const kubernetes = createMemoryKubernetes((match, time) => {
    const observed = observeCluster(1, clusterMatch, time);
    return observed && marked(observed, match.cluster ?? "");
  });
  const stores = {
    logs: counted(logs),
    spans: counted(spans),
    metrics: counted(metrics),
    kubernetes: counted(kubernetes),
  };
  const siteOf = (id: SiteId): Site => ({
    id,
    retention: 86_400_000,
    counterDefault: "cumulative",
    logs: {
      backend: "memory",
      store: stores.logs,
      sources: new Map([["app", { id: "app", index: id, layout: "auto", tenantFilter: undefined }]]),
    },
    traces: {
      backend: "memory",
      store: stores.spans,
      source: buildSpanSource(id, { index: id, layout: "auto" }),
    },
    reports: {
      backend: "memory",
      store: stores.spans,
      source: buildSpanSource(id, { index: `${id}-reports`, layout: "auto" }),
    },
    metrics: { backend: "memory", store: stores.metrics, match: { site: id } },
    kubernetes: { backend: "memory", store: stores.kubernetes, match: { cluster: id } },
  });
  const all = new Map<string, Site>(sites.map((id) => [id, siteOf(id)]));
  let log = "";
  const now = () => fromMillis(base + 60 * minute);
  const entries = Object.entries(tokens).map(([token, seen]) => ({
    user: "user",
    sha256: hashToken(token),
    sites: seen,
  }));
  const server = createServer({
    operations,
    loadGraphql: loadPlainSchema,
    authenticate: createAuthenticator(entries, now),
    sites: all,
    limits: defaults.limits,
    telemetry: createTelemetry({
      level: "debug",
      write: (line) => {
        log += line;
      },
    }),
    now,
  });
  return { server, calls: () => calls, logged: () => log };
}

function addLines(logs: ReturnType<typeof createMemoryLogs>, site: SiteId): void {
  logs.add(
    site,
    Array.from({ length: 40 }, (_, n) => ({
      id: `${mark(site)}-${n}`,
      time: fromMillis(base + n * minute),
      severity: n % 2 === 0 ? ("error" as const) : ("info" as const),
      message: `timeout ${n} ${mark(site)}`,
      hostname: mark(site),
      json: JSON.stringify({ trace_id: traceId(n), of: mark(site) }),
    })),
  );
}

const traceId = (n: number): string => String(n).padStart(32, "0");
const spanId = (n: number, at: number): string => `${n}${at}`.padStart(16, "0");

/** In each trace a chain through the three sites, so that each has callers and callees in the others. */
function addSpans(spans: ReturnType<typeof createMemorySpans>, site: SiteId, at: number): void {
  const of = (n: number) => ({
    trace_id: traceId(n),
    service_name: mark(site),
    from: n * minute,
    to: n * minute + 50 + at,
    resource_attributes: { "service.version": "v1", of: mark(site) },
  });
  const all = Array.from({ length: 20 }, (_, n) => [
    createSpan({
      ...of(n),
      span_id: spanId(n, at * 2),
      ...(at === 0 ? {} : { parent_span_id: spanId(n, at * 2 - 1) }),
      span_kind: "server",
      span_name: `GET ${mark(site)}`,
      span_attributes: { "appsignal.tag.plan": mark(site) },
      events: n % 2 === 0 ? [createException(n * minute + 1, mark(site))] : [],
    }),
    createSpan({
      ...of(n),
      span_id: spanId(n, at * 2 + 1),
      parent_span_id: spanId(n, at * 2),
      span_kind: "client",
      span_name: mark(site),
    }),
  ]).flat();
  spans.add(site, all);
}

function addSamples(metrics: ReturnType<typeof createMemoryMetrics>, site: SiteId): void {
  for (const name of ["load", `load_${mark(site)}`]) {
    const append = metrics.append(name, "gauge", "value", { site, hostname: mark(site) });
    for (let n = 0; n < 60; n++) append(base + n * minute, n);
  }
}

/** The same cluster with every name of its own. */
function marked(observed: Observation, cluster: string): Observation {
  const rename = (key: string, value: unknown): unknown =>
    typeof value === "string" && /name|uuid|^host/.test(key) ? `${mark(cluster as SiteId)}-${value}` : value;
  return JSON.parse(JSON.stringify(observed, rename)) as Observation;
}

/** What a client may know of the world, its own marks and others'. */
export const vocabulary = {
  source_ids: ["app"],
  query: ["", "", "timeout", ...sites.map(mark)],
  name: ["load", "load", ...sites.map((site) => `load_${mark(site)}`)],
  metric_name: ["load", ...sites.map((site) => `load_${mark(site)}`)],
  trace_id: Array.from({ length: 20 }, (_, n) => traceId(n)),
  span_id: Array.from({ length: 20 }, (_, n) => spanId(n, n % 6)),
  namespace: ["web"],
  action_name: sites.map((site) => `GET ${mark(site)}`),
  revision: ["v1"],
  service_name: sites.map(mark),
  field: ["GAUGE", "MEAN", "COUNT"],
} as const;
