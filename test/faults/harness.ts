// The program with sources that can be made to fail: the real backend kinds over a small Elasticsearch and a small
// Prometheus, each behind a fault proxy; and every question that reads one of them.
import { request as httpRequest } from "node:http";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import { createAuthenticator, hashToken } from "#src/access/auth.ts";
import { connectSites } from "#src/access/sites.ts";
import { defaults } from "#src/config/schema.ts";
import type { Span } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { operations } from "#src/operations/index.ts";
import { checkVisual } from "#src/operations/metrics/visuals.ts";
import { createServer } from "#src/server/server.ts";
import type { Backend } from "#src/store/backend.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";
import { createVisualFinder, readVisual } from "#src/visuals/visual.ts";
import { base, model } from "../conformance/kubernetes-fixture.ts";
import { makeTraces, midnight, toSpan } from "../conformance/trace-fixture.ts";
import { createFakeSearch, type ProductName } from "../support/elastic/fake-cluster.ts";
import { otel } from "../support/elastic/span-shippers/otel.ts";
import { type FaultProxy, openProxy } from "../support/fault-proxy.ts";
import { createFakePrometheus } from "../support/prometheus/fake-server.ts";
import { collectSeries, expose, type WrittenSeries } from "../support/prometheus/kubernetes-exporters.ts";
import { openScriptedSource } from "../support/scripted-http-source.ts";
import { createSpan } from "../tracing/span-builder.ts";

// ---- The data of the sources ------------------------------------------------------------------------------------

/** One line per millisecond, and in the middle a millisecond with so many that only a scroll can read it. */
const burst = 1_300;
const logDocuments = Array.from({ length: 2_500 }, (_, n) => ({
  "@timestamp": new Date(base + Math.min(n, 600) + Math.max(0, n - 600 - burst)).toISOString(),
  message: `line ${n} öäü`,
  log: { level: n % 7 === 0 ? "error" : "info" },
  host: { name: `web-${n % 3}` },
  n,
}));
const keyword = { type: "keyword" };
const logMappings = {
  properties: {
    "@timestamp": { type: "date" },
    message: { type: "text" },
    log: { properties: { level: keyword } },
    host: { properties: { name: keyword } },
    n: { type: "long" },
  },
};

const spans = makeTraces(7, 40).map(toSpan);
const shipped = Map.groupBy(
  otel.write(
    "shop",
    spans.filter(({ site_id }) => site_id === "shop"),
  ),
  ({ index }) => index,
);
const spanIndices = Object.entries(otel.indices("shop")).map(([name, definition]) => {
  const documents = (shipped.get(name) ?? []).map(({ document }) => JSON.parse(document));
  return [name, { mappings: (definition as { mappings: object }).mappings, documents }] as const;
});

/** Many requests of a busy site with mapped attributes, so that the index can aggregate them. */
const mallSpans = Array.from({ length: 5_100 }, (_, n): readonly Span[] => {
  const trace_id = n.toString(16).padStart(32, "a");
  const resource_attributes = { "service.name": "mall-web", "service.version": n % 3 === 0 ? "r1" : "r2" };
  const request = createSpan({
    site_id: "mall",
    trace_id,
    span_id: n.toString(16).padStart(16, "b"),
    span_kind: "server",
    from: n * 100,
    to: n * 100 + (n % 90) + 1,
    resource_attributes,
    status_code: n % 10 === 0 ? "ERROR" : "OK",
    span_attributes: { "appsignal.namespace": "web", "appsignal.action_name": `Shelf#${n % 4}` },
  });
  // One action repeats a statement many times, in a few of its requests.
  const statements = Array.from({ length: n % 500 === 2 ? 20 : 0 }, (_, at) =>
    createSpan({
      site_id: "mall",
      trace_id,
      span_id: (n * 100 + at).toString(16).padStart(16, "c"),
      parent_span_id: request.span_id,
      span_kind: "client",
      from: n * 100,
      to: n * 100 + 1,
      span_name: "query",
      resource_attributes,
      span_attributes: { "db.system.name": "postgresql", "db.query.text": `select ${at}` },
    }),
  );
  return [request, ...statements];
}).flat();
const mapped = ["appsignal.namespace", "appsignal.action_name", "db.system.name", "db.query.text"];
const mallIndices = Object.entries(otel.indices("mall")).map(([name, definition]) => {
  const { mappings } = definition as { mappings: { properties: Record<string, object> } };
  const attributes = {
    ...mappings.properties.attributes,
    properties: Object.fromEntries(mapped.map((key) => [key, { type: "keyword" }])),
  };
  const resource = {
    properties: {
      attributes: {
        type: "passthrough",
        dynamic: true,
        priority: 40,
        properties: { "service.name": keyword, "service.version": keyword },
      },
    },
  };
  const documents = otel
    .write("mall", mallSpans)
    .flatMap(({ index, document }) => (index === name ? [JSON.parse(document)] : []));
  const properties = { ...mappings.properties, attributes, resource };
  return [name, { mappings: { ...mappings, properties }, documents }] as const;
});

function buildGauges() {
  const { write, series } = collectSeries({ site: "shop" });
  for (let time = base; time <= base + 3_600_000; time += 60_000) {
    for (const host of ["a", "b", "c"])
      write(time, "g", { host }, (time / 60_000) % (host.charCodeAt(0) - 90));
  }
  return series();
}

// ---- The questions ----------------------------------------------------------------------------------------------

export interface Question {
  readonly name: string;
  readonly source: "documents" | "series";
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly body?: object;
  readonly accept?: string;
  /** The form of a response that is not equal each time. */
  readonly form?: "explanation" | "tail";
}

const iso = (millis: number): string => new Date(millis).toISOString();
const broken = spans.find(({ site_id, events }) => site_id === "shop" && events.length > 0);
const trace_id = broken?.trace_id ?? "";
const around = { from: iso(midnight - 60_000), to: iso(midnight + 60_000) };
const aroundLines = { from: iso(base), to: iso(base + 10_000) };
const hour = { from: iso(base), to: iso(base + 1_800_000) };
const site_id = "shop";
const site_ids = ["shop"];
const lines = (over: object, per_page: number) => ({
  site_id,
  source_ids: ["app"],
  query: "",
  use_expressions: true,
  ...over,
  pagination: { per_page, order: "ASC", cursor: { time: null } },
});
const select = [{ name: "g", field: "gauge", tags: { host: "*" } }];
const visual = {
  id: "AAAAAAAAAAAAAAAAAAAAAA",
  title: "g",
  type: "line",
  site: "shop",
  ...hour,
  resolution: "MINUTELY",
  select,
};
const listed = {
  ...hour,
  site_id,
  select: [{ id: "v", name: "g", field: "gauge", tags: { host: "*" } }],
  group_by: [{ Tag: "host" }],
};
const page = { per_page: 5, cursor: "Time" };
const counted = { ...hour, site_id: "mall" };

function createRestQuestions(
  source: Question["source"],
  questions: Readonly<Record<string, object>>,
): readonly Question[] {
  return Object.entries(questions).map(([name, body]) => {
    const path = `/api/v2/${name.split(",")[0]}`;
    return { name, source, method: "POST", path, body };
  });
}
function createLogsQuestion(
  name: string,
  form: Omit<Question, "name" | "source" | "method" | "path"> & { path?: string },
) {
  return { name, source: "documents", method: "POST", path: "/api/v2/logs/lines", ...form } as const;
}
function createGraphqlQuestion(source: Question["source"], name: string, query: string): Question {
  return { name: `GraphQL, ${name}`, source, method: "POST", path: "/graphql", body: { query } };
}

/** Questions that are answered by aggregations, or with a split point from the source. */
export const countedQuestions: Readonly<Record<string, object>> = {
  "tracing/actions, counted": counted,
  "tracing/slow_events, counted": { ...counted, to: iso(base + 60_000) },
  "deploys/stats, counted": { ...counted, revision: "r1" },
  "tracing/traces/performance, cut by length": {
    ...hour,
    site_ids: ["mall"],
    pagination: { per_page: 5, cursor: "Duration" },
  },
};

export const questions: readonly Question[] = [
  ...createRestQuestions("documents", {
    "logs/lines": lines({}, 40),
    "logs/lines, a filter": lines({ query: "severity=error n>=100" }, 60),
    "logs/lines, streamed over a burst": lines({}, 2_400),
    "logs/counts": { ...lines(aroundLines, 1), group_by: "severity" },
    "tracing/locator": { site_ids, trace_id },
    "tracing/trace": { site_ids, trace_id },
    "tracing/trace/performance": { site_ids, trace_id },
    "tracing/trace/error": { site_ids, trace_id },
    "tracing/traces/performance": { ...around, site_ids, pagination: page },
    "tracing/traces/errors": { ...around, site_ids, pagination: page },
    "tracing/actions": { ...around, site_id },
    "tracing/action_edges": { ...around, site_id, namespace: "shop-web/web", action: "Cart#show" },
    "tracing/site_edges": { ...around, site_id },
    "tracing/slow_events": { ...around, site_id },
    "tracing/slow_events/actions": {
      ...around,
      site_id,
      digest: "evt_WyJzaG9wLXdlYiIsImNsaWVudCIsInF1ZXJ5IiwibENOd0ktN282UUxTbWdveHlJdmlEaSJd",
    },
    "deploys/stats": { ...around, site_id, revision: "r1" },
    ...countedQuestions,
  }),
  createGraphqlQuestion(
    "documents",
    "lines",
    `{ logs_lines(site_id: "shop", source_ids: ["app"], query: "", use_expressions: true, pagination: { per_page: 40, order: ASC, cursor: { time: null } }) { id message } }`,
  ),
  createGraphqlQuestion(
    "documents",
    "a trace",
    `{ tracing_trace(site_ids: ["shop"], trace_id: "${trace_id}") { span_id span_name } }`,
  ),
  ...createRestQuestions("series", {
    "metrics/timeseries": { ...hour, site_id, resolution: "MINUTELY", select },
    "metrics/list": listed,
    "kubernetes/nodes": { ...hour, site_id },
    "kubernetes/pods": { ...hour, site_id },
    "kubernetes/pods/overview": { ...hour, site_id },
  }),
  ...[
    "metrics/names/shop",
    "metrics/type_and_tags/shop/g",
    `saved_visuals/${visual.id}`,
    `saved_visuals/${visual.id}/csv`,
  ].map((name): Question => ({ name, source: "series", method: "GET", path: `/api/v2/${name}` })),
  createGraphqlQuestion(
    "series",
    "a timeseries",
    `{ metrics_timeseries(site_id: "shop", from: "${hour.from}", to: "${hour.to}", resolution: MINUTELY, select: [{ name: "g", field: gauge, tags: { host: "*" } }]) { series { id data { timestamp value } } } }`,
  ),
  createLogsQuestion("logs/lines, as NDJSON", {
    body: lines(aroundLines, 1),
    accept: "application/x-ndjson",
  }),
  createLogsQuestion("logs/lines, as CSV", { body: lines(aroundLines, 1), accept: "text/csv" }),
  createLogsQuestion("logs/lines, followed", {
    body: lines({ ...aroundLines, query: "n>=100" }, 1),
    accept: "text/event-stream",
    form: "tail",
  }),
  createLogsQuestion("logs/lines, explained", {
    body: lines({ query: "severity=error n>=100" }, 60),
    path: "/api/v2/logs/lines?explain=true",
    form: "explanation",
  }),
  {
    name: "metrics/timeseries, explained",
    source: "series",
    method: "POST",
    form: "explanation",
    path: "/api/v2/metrics/timeseries?explain=true",
    body: { ...hour, site_id, resolution: "MINUTELY", select },
  },
];

// ---- The program ------------------------------------------------------------------------------------------------

const token = "secret-token-of-ana";
const now = () => fromMillis(midnight + 3_600_000);

export type SourceName = ProductName | "Prometheus";

export interface Sources {
  readonly proxies: Readonly<Record<SourceName, FaultProxy>>;
  /** The names of the aggregations that a source received. */
  readonly counts: (source: SourceName) => readonly string[];
  readonly close: () => Promise<void>;
}

let series: readonly WrittenSeries[] | undefined;

/** Without `aggregates`, the document sources reject aggregations and have to be read. */
export async function openSources(options: { readonly aggregates?: boolean } = {}): Promise<Sources> {
  const indices = {
    "logs-app": { mappings: logMappings, documents: logDocuments },
    ...Object.fromEntries([...spanIndices, ...mallIndices]),
  };
  series ??= [...buildGauges(), ...expose(model, { cluster: "c" })];
  const fakes = {
    Elasticsearch: await openScriptedSource(createFakeSearch(indices, "Elasticsearch", options).reply),
    OpenSearch: await openScriptedSource(createFakeSearch(indices, "OpenSearch", options).reply),
    Prometheus: await openScriptedSource(createFakePrometheus(series, { g: "gauge" })),
  };
  const proxies = {
    Elasticsearch: await openProxy(fakes.Elasticsearch.url),
    OpenSearch: await openProxy(fakes.OpenSearch.url),
    Prometheus: await openProxy(fakes.Prometheus.url),
  };
  return {
    proxies,
    counts: (source) =>
      fakes[source].requests.flatMap(({ path, body }) => {
        if (!path.includes("/_search") || body === "") return [];
        const { aggs = {}, _source } = JSON.parse(body);
        return _source === false ? ["milestone"] : Object.keys(aggs);
      }),
    close: async () => {
      await Promise.all(Object.values(proxies).map((proxy) => proxy.close()));
      await Promise.all(Object.values(fakes).map((fake) => fake.close()));
    },
  };
}

export interface Reply {
  readonly status: number;
  readonly headers: NodeJS.Dict<string | string[]>;
  readonly body: string;
  /** Whether a client can see that the response is complete. */
  readonly complete: boolean;
}

export interface Program {
  /** Leaves as soon as `enough` returns true for the text received so far. */
  readonly ask: (question: Question, enough?: (text: string) => boolean) => Promise<Reply>;
  readonly logged: () => string;
  readonly close: () => Promise<void>;
}

/** Starts a program with empty caches. */
export async function startProgram(
  { proxies }: Sources,
  product: ProductName,
  answer_bytes = 1_048_576,
): Promise<Program> {
  let log = "";
  const telemetry = createTelemetry({
    level: "debug",
    write: (line) => {
      log += line;
    },
  });
  const io = {
    now,
    log: telemetry.log,
    recordRequest: telemetry.recordRequest,
    recordCacheLookup: telemetry.recordCacheLookup,
    rollupBytes: 0,
    metricCacheBytes: 0,
    readText: () => "",
  };
  const settings = { answer_bytes };
  const backends = new Map<string, Backend>([
    ["elk", elastic.create("elk", elastic.parseConfig({ ...settings, url: proxies[product].url }), io)],
    [
      "prom",
      prometheus.create("prom", prometheus.parseConfig({ ...settings, url: proxies.Prometheus.url }), io),
    ],
  ]);
  const sites = connectSites(
    {
      listen: defaults.listen,
      tokens: [],
      backends: {},
      limits: defaults.limits,
      sites: {
        shop: {
          retention: 366 * 86_400_000,
          logs: { backend: "elk", sources: { app: { index: "logs-app", layout: "ecs" } } },
          traces: { backend: "elk", index: otel.pattern("shop"), layout: "otel" },
          metrics: { backend: "prom", match: { site: "shop" } },
          kubernetes: { backend: "prom", match: { cluster: "c" } },
        },
        mall: {
          retention: 366 * 86_400_000,
          traces: { backend: "elk", index: otel.pattern("mall"), layout: "otel" },
        },
      },
    },
    backends,
  );
  const published = [readVisual(JSON.stringify(visual), "visual.yaml", checkVisual)];
  const server = createServer({
    operations,
    authenticate: createAuthenticator(
      [{ user: "ana", sha256: hashToken(token), sites: ["shop", "mall"] }],
      now,
    ),
    sites,
    limits: defaults.limits,
    telemetry,
    now,
    visuals: {
      find: createVisualFinder(published),
      createAnswerCache: () => (_, compute) => compute(new AbortController().signal),
    },
    loadGraphql: async () => ({
      schema: (await import("#src/graphql/schema.ts")).schema,
      plugins: [],
      stitched: false,
    }),
  });
  const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
  return {
    ask: (question, enough) => ask(port, question, enough),
    logged: () => log,
    close: async () => {
      await server.close(0);
      await Promise.all([...backends.values()].map((backend) => backend.close()));
    },
  };
}

function ask(
  port: number,
  { method, path, body, accept = "*/*" }: Question,
  enough: (text: string) => boolean = () => false,
): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json", accept };
    const options = {
      host: "127.0.0.1",
      port,
      method,
      path,
      headers,
      agent: false,
    };
    let answered = false;
    const asked = httpRequest(options, async (response) => {
      answered = true;
      let text = "";
      const { statusCode = 0, headers } = response;
      try {
        for await (const chunk of response.setEncoding("utf8")) {
          text += chunk;
          if (enough(text)) break;
        }
      } catch {
        // A cut, which `complete` reports.
      }
      resolve({ status: statusCode, headers, body: text, complete: response.complete });
    });
    // A reset during a response may surface at the request as well.
    asked.on("error", (error) => (answered ? undefined : reject(error)));
    asked.end(body === undefined ? undefined : JSON.stringify(body));
  });
}
