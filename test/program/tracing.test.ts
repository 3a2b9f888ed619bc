// The program's own traces, as a collector and the sources see them.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { hashToken } from "#src/access/auth.ts";
import { createFakeSearch, type ProductName } from "../support/elastic/fake-cluster.ts";
import { listSpans } from "../support/otlp-spans.ts";
import { endAll, startReadout } from "../support/process.ts";
import { openFakePrometheus } from "../support/prometheus/scripted-server.ts";
import { openScriptedSource, sendJson } from "../support/scripted-http-source.ts";

const traceId = "0af7651916cd43dd8448eb211c80319c";
const clientSpan = "b7ad6b7169203331";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "readout-traced-"));
});
afterAll(async () => {
  endAll();
  await rm(folder, { recursive: true });
});

test("continues the trace of a client in Elasticsearch, OpenSearch and Prometheus", async () => {
  const collector = await openScriptedSource((response) => sendJson(response, {}));
  const heard: { by: string; path: string; traceparent: unknown; tracestate: unknown }[] = [];
  const hear = (by: string, { url: path = "", headers }: Pick<IncomingMessage, "url" | "headers">) =>
    void heard.push({ by, path, traceparent: headers.traceparent, tracestate: headers.tracestate });
  const openSearch = (product: ProductName) => {
    const { reply } = createFakeSearch(
      { app: { mappings: { properties: { "@timestamp": { type: "date" } } }, documents: [] } },
      product,
    );
    return openScriptedSource((response, request, body) => {
      hear(product, request);
      reply(response, request, body);
    });
  };
  const elasticsearch = await openSearch("Elasticsearch");
  const opensearch = await openSearch("OpenSearch");
  const prometheus = await openFakePrometheus({
    intercept: (_, request) => {
      hear("Prometheus", request);
      return false;
    },
  });
  const file = join(folder, "readout.yaml");
  await writeFile(join(folder, "secret"), "secret-of-the-collector");
  await writeFile(
    file,
    `listen: 127.0.0.1:0
otlp: { url: "${collector.url}/", headers: { Authorization: "\${file:secret}" }, ratio: 0, service: readout-test }
tokens: [{ user: ana, sha256: "${hashToken("secret-of-ana")}", sites: "*" }]
backends:
  logs: { kind: elastic, url: "${elasticsearch.url}", auth: { username: u, password: secret-of-logs } }
  others: { kind: elastic, url: "${opensearch.url}", auth: { username: u, password: secret-of-logs } }
  metrics: { kind: prometheus, url: "${prometheus.url}" }
sites:
  shop:
    logs: { backend: logs, sources: { app: { index: app, layout: ecs } } }
    metrics: { backend: metrics }
  blog:
    logs: { backend: others, sources: { app: { index: app, layout: ecs } } }
`,
  );
  const { child, ended, listening, told } = startReadout("serve", "--config", file);
  const address = await listening;
  const headers = {
    traceparent: `00-${traceId}-${clientSpan}-01`,
    tracestate: "vendor=1",
    "content-type": "application/json",
  };
  const lines = (site_id: string) => ({
    site_id,
    source_ids: ["app"],
    query: "secret-of-a-query",
    use_expressions: true,
    pagination: { per_page: 5, order: "ASC", cursor: { time: null } },
  });
  const ask = (path: string, init: RequestInit = {}) =>
    fetch(`${address}${path}`, { ...init, headers: { ...headers, ...init.headers } });
  const posted = (site: string) => ({ method: "POST", body: JSON.stringify(lines(site)) });
  for (const site of ["shop", "blog"]) {
    expect((await ask("/api/v2/logs/lines?token=secret-of-ana", posted(site))).status).toBe(200);
  }
  const series = {
    site_id: "shop",
    from: "2026-01-15T10:00:00Z",
    to: "2026-01-15T10:30:00Z",
    resolution: "MINUTELY",
    select: [{ name: "g", field: "gauge", tags: { host: "*" } }],
  };
  const measured = await ask("/api/v2/metrics/timeseries?token=secret-of-ana", {
    method: "POST",
    body: JSON.stringify(series),
  });
  expect(measured.status, await measured.text()).toBe(200);
  const query = `{ metrics_names(site_id: "shop") }`;
  const graphql = { method: "POST", body: JSON.stringify({ query }) };
  expect((await ask("/graphql?token=secret-of-ana", graphql)).status).toBe(200);
  // Not traced: `ratio` is 0 and nobody asked for it.
  for (const site of ["shop", "blog"]) {
    const untraced = await fetch(`${address}/api/v2/logs/lines?token=secret-of-ana`, posted(site));
    expect(untraced.status).toBe(200);
  }
  child.kill("SIGTERM");
  expect(await ended, told.err).toBe(0);

  const spans = listSpans(collector);
  const servers = spans.filter(({ kind }) => kind === 2);
  expect(servers.map(({ name }) => name).sort()).toEqual([
    "POST /api/v2/logs/lines",
    "POST /api/v2/logs/lines",
    "POST /api/v2/metrics/timeseries",
    "POST /graphql",
  ]);
  for (const { parentSpanId, attributes } of servers) {
    expect(parentSpanId).toBe(clientSpan);
    expect(attributes["http.response.status_code"]).toBe("200");
  }
  const clients = spans.filter(({ kind }) => kind === 3);
  for (const { parentSpanId, attributes, startTimeUnixNano, endTimeUnixNano } of clients) {
    const within = servers.find(({ spanId }) => spanId === parentSpanId);
    expect(within).toBeDefined();
    expect(["logs", "others", "metrics"]).toContain(attributes["readout.backend"]);
    expect(BigInt(startTimeUnixNano)).toBeLessThanOrEqual(BigInt(endTimeUnixNano));
  }
  expect(new Set(spans.map((span) => span.traceId))).toEqual(new Set([traceId]));
  // What the sources were told is a step that the collector has: one for each request of the trace.
  const continued = heard.filter(({ tracestate }) => tracestate === "vendor=1");
  expect(continued.map(({ traceparent }) => traceparent).sort()).toEqual(
    clients.map(({ spanId }) => `00-${traceId}-${spanId}-01`).sort(),
  );
  for (const product of ["Elasticsearch", "OpenSearch"]) {
    const asked = heard.filter(({ by }) => by === product);
    expect(asked.some((one) => continued.includes(one) && one.path.includes("_search"))).toBe(true);
    // The request that nobody asked to trace tells the source so.
    expect(
      asked.some(({ traceparent }) => /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/.test(String(traceparent))),
    ).toBe(true);
  }
  expect(continued.some(({ path }) => path.includes("/api/v1/"))).toBe(true);
  expect(JSON.stringify(collector.requests)).not.toMatch(/secret-of/);
  for (const { close } of [collector, elasticsearch, opensearch, prometheus]) await close();
});
