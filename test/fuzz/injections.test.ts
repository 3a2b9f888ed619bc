// Texts that try to break out of a query, in every name and value of every route, for each kind of backend. Independent
// grammars parse the requests that reach the backend: each selector and search must keep its tenant filter, and must use
// only the constructs that plain words use.
import { isDeepStrictEqual } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { createAuthenticator, hashToken } from "#src/access/auth.ts";
import { buildSpanSource, type Site } from "#src/access/sites.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis } from "#src/core/time.ts";
import { operations } from "#src/operations/index.ts";
import { createServer } from "#src/server/server.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";
import { hostileTexts } from "../conformance/metrics/injection-texts.ts";
import { loadPlainSchema } from "../support/demo-server.ts";
import { testIO } from "../support/io.ts";
import { recordExchange } from "../support/prometheus/recording-proxy.ts";
import { type FakePrometheus, openFakePrometheus } from "../support/prometheus/scripted-server.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../support/scripted-http-source.ts";
import { base } from "../tracing/span-builder.ts";
import { Members, print } from "./hostile-values.ts";
import { drawTimeIn, drawValue, type Route, routes, type Vocabulary } from "./openapi-requests.ts";
import { type Draw, fuzz, long } from "./seeded-generator.ts";

const keyword = { type: "keyword" };
const mapping = (properties: object) => ({
  mappings: { properties: { "@timestamp": { type: "date" }, tenant: keyword, ...properties } },
  settings: { index: { number_expressionshards: "1", version: { created: "8190899" } } },
});
const mappings = {
  "logs-a": mapping({
    message: { type: "text" },
    k: keyword,
    w: { type: "wildcard" },
    n: { type: "long" },
    flat: { type: "flattened" },
    log: { properties: { level: keyword } },
    host: { properties: { name: keyword } },
  }),
  "spans-a": mapping({
    trace_id: keyword,
    span_id: keyword,
    parent_span_id: keyword,
    name: keyword,
    kind: keyword,
    duration: { type: "long" },
    attributes: {
      type: "passthrough",
      dynamic: true,
      priority: 20,
      properties: { "appsignal.namespace": keyword },
    },
    resource: {
      properties: {
        attributes: {
          type: "passthrough",
          dynamic: true,
          priority: 40,
          properties: { "service.name": keyword },
        },
      },
    },
    data_stream: { properties: { type: keyword, dataset: keyword, namespace: keyword } },
    status: { properties: { code: keyword } },
  }),
};
const nothing = {
  timed_out: false,
  _shards: { total: 1, failed: 0 },
  hits: { total: { value: 0, relation: "eq" }, hits: [] },
  aggregations: {},
};
const metrics: Record<string, string> = {
  g: "gauge",
  c_total: "counter",
  h_bucket: "x",
  h_sum: "x",
  h_count: "x",
};

let search: ScriptedSource;
let prometheus: FakePrometheus;
beforeAll(async () => {
  search = await openScriptedSource((response, { url = "" }) => {
    if (url === "/") sendJson(response, { version: { number: "8.19.8" } });
    else if (url.includes("/_search") || url.includes("/_count")) sendJson(response, nothing);
    else
      sendJson(
        response,
        Object.fromEntries(
          Object.entries(mappings).filter(([name]) => url.startsWith(`/${name.slice(0, 4)}`)),
        ),
      );
  });
  prometheus = await openFakePrometheus({ metrics });
});
afterAll(async () => {
  await search.close();
  await prometheus.close();
});

interface Asked {
  readonly route: Route;
  readonly text: string;
  readonly path: string;
  readonly body: string | undefined;
}

function drawInjection(draw: Draw): Asked {
  const route = draw.pick(routes) ?? routes[0];
  if (route === undefined) throw new Error("no routes");
  const text = draw.chance(0.1) ? longText(draw) : (draw.pick([...hostileTexts, ...elasticTexts]) ?? "");
  const drawn = route.body === undefined ? undefined : drawValue(route.body, "", everywhere(text), draw);
  const path = route.path
    .replace("{site_id}", "shop")
    .replace(/\{\w+\}/, () => encodeURIComponent(text.toWellFormed()) || "x");
  const times = { from: drawTimeIn(draw, 0), to: drawTimeIn(draw, 1) };
  return {
    route,
    text,
    path,
    body: drawn === undefined ? undefined : print(inject(drawn, text, times, draw)),
  };
}

const elasticTexts = [
  '"}},{"match_all":{}}]}',
  '"}}]}},"size":10000,"query":{"match_all":{}',
  "*:*",
  "_exists_:tenant",
  "tenant:other OR x",
  "x) OR (tenant:other",
  "/.*/",
  "\\*",
  "?",
  "_id",
  "_source",
  "_index",
  "_doc",
  "../other/_search",
  "logs-a,other",
  "*,-logs-a",
  "ctx._source",
  "doc['tenant'].value",
  "{{#toJson}}x{{/toJson}}",
  "<logs-{now/d}>",
  "~0~1",
  "@timestamp",
  "tenant",
  "a.b.c.",
  ".a",
];

/** Texts on which a backtracking regular expression would take minutes. */
function longText(draw: Draw): string {
  const piece = () => draw.pick(["a", "0", "é", " ", "a ", "*", "a*", ".", "\\", '"', "é ", "-1"]);
  const middle = piece().repeat(50_000);
  return draw.pick([
    middle,
    `${middle}é`,
    `${middle}é b`,
    `b ${middle}é`,
    `"${middle}`,
    `${middle}${piece()}!`,
  ]);
}

/** Mostly the text, wherever a text may stand. */
function everywhere(text: string): Vocabulary {
  const often = Array.from({ length: 12 }, () => text);
  const quoted = `"${text.replace(/["\\]/g, "\\$&")}"`;
  const escaped = text.replace(/[\\.=:!<>()" \t\n\r]/g, "\\$&") || "x";
  const queries = [
    ...["k", "w", "n", "flat.x", "message", "severity", "hostname", "unknown", "attributes.k_string"].flatMap(
      (field) => ["=", "!=", ":", "!:"].map((operator) => `${field}${operator}${quoted}`),
    ),
    `${escaped}=x`,
    `k.${escaped}:x`,
    `flat.${escaped}!=x`,
    quoted,
    text,
    `k=[${quoted}]`,
    `tag.${escaped}=${quoted}`,
    `revision=${quoted}`,
  ];
  const known: Record<string, readonly string[]> = {
    site_id: ["shop"],
    site_ids: ["shop"],
    source_ids: ["app", "app", "app", text],
    query: queries,
    name: [text, "g", "c_total", "h"],
    field: ["GAUGE", "COUNT", "MEAN", "COUNTER", "P90"],
  };
  return new Proxy(known, {
    get: (target, key) => (Object.hasOwn(target, key) ? target[String(key)] : often),
    getOwnPropertyDescriptor: () => ({ configurable: true, enumerable: true }),
  });
}

/** The keys and patterns of tags are texts too. */
function inject(value: unknown, text: string, times: Readonly<Record<string, string>>, draw: Draw): unknown {
  if (Array.isArray(value)) return value.map((one) => inject(one, text, times, draw));
  if (!(value instanceof Members)) return value;
  return new Members(
    value.entries.map(([key, child]) => {
      if (key === "from" || key === "to") return [key, times[key]];
      if (key === "tags")
        return [key, new Members([[draw.pick([text, "host"]), draw.pick([text, `*${text}`, "*"])]])];
      if (key === "group_by") return [key, [new Members([["Tag", text]])]];
      return [key, inject(child, text, times, draw)];
    }),
  );
}

const tenantFilter = "acme";
const seen = { selectors: 0, searches: 0, texts: 0 };

async function check({ route, text, path, body }: Asked): Promise<void> {
  search.requests.length = 0;
  prometheus.requests.length = 0;
  // A source that has a metric of that very name.
  const added = !Object.hasOwn(metrics, text);
  if (added) metrics[text] = "gauge";
  const io = { ...testIO, now: () => fromMillis(base + 3_600_000) };
  const elk = elastic.create("elk", elastic.parseConfig({ url: search.url }), io);
  const prom = prometheus.open({}, io);
  try {
    const { logs, traces } = elk.stores;
    if (logs === undefined || traces === undefined || prom.stores.metrics === undefined)
      throw new Error("no store");
    const where = `tenant=${tenantFilter}`;
    const site: Site = {
      id: "shop",
      retention: 86_400_000,
      counterDefault: "cumulative",
      logs: {
        backend: "elk",
        store: logs,
        sources: new Map([["app", { id: "app", index: "logs-*", layout: "ecs", tenantFilter: where }]]),
      },
      traces: {
        backend: "elk",
        store: traces,
        source: buildSpanSource("shop", { index: "spans-*", layout: "otel", where }),
      },
      metrics: { backend: "prom", store: prom.stores.metrics, match: { tenant: tenantFilter } },
      ...(prom.stores.kubernetes && {
        kubernetes: { backend: "prom", store: prom.stores.kubernetes, match: { tenant: tenantFilter } },
      }),
    };
    let log = "";
    const server = createServer({
      operations,
      loadGraphql: loadPlainSchema,
      authenticate: createAuthenticator([{ user: "a", sha256: hashToken("t"), sites: "*" }], io.now),
      sites: new Map([["shop", site]]),
      limits: defaults.limits,
      telemetry: createTelemetry({
        write: (line) => {
          log += line;
        },
      }),
      now: io.now,
    });
    const response = await server.fetch(`http://readout${path}`, {
      method: route.method,
      headers: { authorization: "Bearer t" },
      ...(body === undefined ? {} : { body }),
    });
    const answered = await response.text();
    expect([200, 404, 422], `${answered} ${log}`).toContain(response.status);
  } finally {
    if (added) delete metrics[text];
    await Promise.all([elk.close(), prom.close()]);
  }
  checkSelectors(text);
  checkSearches(text);
}

function checkSelectors(text: string): void {
  const sent = { selectors: [], metadata: new Set<string>(), strange: [] } as Parameters<
    typeof recordExchange
  >[0];
  for (const { path, body } of prometheus.requests) recordExchange(sent, path, body);
  expect(sent.strange).toEqual([]);
  for (const matchers of sent.selectors) {
    seen.selectors += 1;
    expect(matchers).toContainEqual({ label: "tenant", operator: "=", value: tenantFilter });
    if (matchers.some(({ label, value }) => label === text || value === text.toWellFormed())) seen.texts += 1;
  }
}

function checkSearches(text: string): void {
  for (const { method, path, body } of search.requests) {
    const [pathname = "", parameters = ""] = path.split("?");
    if (pathname === "/" || /^\/(logs|spans)-(\*|%2A)(\/_mapping|\/_settings)?$/.test(pathname)) continue;
    expect(`${method} ${pathname}`).toMatch(/^POST \/(logs|spans)-(\*|%2A)\/_(search|count)$/);
    expect([...new URLSearchParams(parameters).keys()].filter((key) => !harmless.includes(key))).toEqual([]);
    const asked = JSON.parse(body) as Readonly<Record<string, unknown>>;
    expect(Object.keys(asked).filter((key) => !parts.includes(key))).toEqual([]);
    seen.searches += 1;
    // What indices hold at all is counted over the whole pattern, by nothing that a client can say.
    const leaves = leavesOf(asked.query);
    const said = text !== "" && leaves.some(({ value }) => [value].flat().includes(text));
    if (!isWalled(asked.query) && (asked.size !== 0 || said)) throw new Error(`no wall: ${body}`);
    for (const { value } of leaves) if (value === text) seen.texts += 1;
  }
}

const harmless = [
  "ignore_unavailable",
  "allow_no_indices",
  "expand_wildcards",
  "allow_partial_search_results",
  "scroll",
  "pre_filter_shard_size",
  "request_cache",
  "preference",
  "batched_reduce_size",
  "max_concurrent_shard_requests",
  "rest_total_hits_as_int",
];
const parts = [
  "query",
  "size",
  "sort",
  "track_total_hits",
  "search_after",
  "timeout",
  "_source",
  "aggs",
  "from",
  "version",
  "seq_no_primary_term",
  "terminate_after",
];

/** Whether the query finds only documents within the tenant filter, or in an unknown index whose hits are unused. */
function isWalled(query: unknown): boolean {
  if (isDeepStrictEqual(query, { term: { tenant: tenantFilter } })) return true;
  const {
    filter = [],
    should = [],
    must_not: not = [],
  } = (query as { bool?: Record<string, unknown> }).bool ?? {};
  const unknown = [not]
    .flat()
    .some((one) => Object.keys((one as { terms?: object }).terms ?? {}).join() === "_index");
  const [parts, branches] = [[filter].flat(), [should].flat()];
  return unknown || parts.some(isWalled) || (branches.length > 0 && branches.every(isWalled));
}

interface Leaf {
  readonly clause: string;
  readonly field: string;
  readonly value: unknown;
}
/** Every comparison of a query. @throws {Error} a clause that is none of those that plain words are looked for by */
function leavesOf(query: unknown): readonly Leaf[] {
  const entries = Object.entries(query as object);
  const [[clause, of] = ["", {}]] = entries;
  if (entries.length !== 1) throw new Error(`a query of ${entries.length} clauses: ${JSON.stringify(query)}`);
  switch (clause) {
    case "bool":
      return Object.entries(of as object).flatMap(([key, value]) => {
        if (key === "minimum_should_match") return [];
        if (!["filter", "should", "must_not"].includes(key)) throw new Error(`bool.${key}`);
        return [value].flat().flatMap(leavesOf);
      });
    case "nested":
      return leavesOf((of as { query: unknown }).query);
    case "match_all":
    case "match_none":
      return [];
    case "exists":
      return [{ clause, field: (of as { field: string }).field, value: undefined }];
    case "term":
    case "terms":
    case "prefix":
    case "wildcard":
    case "range":
    case "match":
    case "match_phrase":
    case "ids": {
      const fields = Object.entries(of as object).filter(([key]) => key !== "boost");
      const [[field, value] = ["", undefined]] = fields;
      if (fields.length !== 1) throw new Error(JSON.stringify(query));
      return [{ clause, field, value }];
    }
    case "regexp": {
      const [[field, expression] = ["", ""]] = Object.entries(of as object);
      const pattern: unknown =
        typeof expression === "string" ? expression : (expression as { value: unknown }).value;
      // Its two patterns are our own: severity words, and numbers in text. Nothing that a client says is in them.
      if (!/^[a-z0-9 ]+(\|[a-z0-9 ]+)*$/.test(String(pattern)) && pattern !== "-?[0-9]+[.eE].*|-0")
        throw new Error(`the pattern ${pattern}`);
      return [{ clause, field, value: pattern }];
    }
    default:
      throw new Error(`the clause ${clause}`);
  }
}

test("hostile texts leave every backend request inside its tenant filter", {
  timeout: 600_000,
}, async () => {
  await fuzz(4_000, drawInjection, check);
  for (const [what, count] of Object.entries(seen)) expect(count, what).toBeGreaterThan(long ? 100 : 0);
});
