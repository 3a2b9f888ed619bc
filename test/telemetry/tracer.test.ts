// The program's own traces, as a collector and the sources see them.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { hashToken } from "#src/access/auth.ts";
import { fromMillis } from "#src/core/time.ts";
import { createOtlpExporter } from "#src/telemetry/otlp-exporter.ts";
import { createFakeSearch, type ProductName } from "../support/elastic/fake-cluster.ts";
import { endAll, startReadout } from "../support/process.ts";
import { openFakePrometheus } from "../support/prometheus/scripted-server.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../support/scripted-http-source.ts";

const traceId = "0af7651916cd43dd8448eb211c80319c";
const clientSpan = "b7ad6b7169203331";
const base = Date.UTC(2026, 0, 15, 10);

// OTLP's JSON mapping, exactly: what is not in it fails the test.
const attribute = z.strictObject({
  key: z.string(),
  value: z.union([
    z.strictObject({ stringValue: z.string() }),
    z.strictObject({ intValue: z.string().regex(/^\d+$/) }),
  ]),
});
const hex = (digits: number) => z.string().regex(new RegExp(`^[0-9a-f]{${digits}}$`));
const nanos = z.string().regex(/^\d{19}$/);
const exported = z.strictObject({
  resourceSpans: z.tuple([
    z.strictObject({
      resource: z.strictObject({ attributes: z.array(attribute) }),
      scopeSpans: z.tuple([
        z.strictObject({
          scope: z.strictObject({ name: z.literal("readout") }),
          spans: z.array(
            z.strictObject({
              traceId: hex(32),
              spanId: hex(16),
              parentSpanId: hex(16).optional(),
              name: z.string(),
              kind: z.union([z.literal(2), z.literal(3)]),
              startTimeUnixNano: nanos,
              endTimeUnixNano: nanos,
              attributes: z.array(attribute),
              status: z.strictObject({ code: z.literal(2).optional() }),
            }),
          ),
        }),
      ]),
    }),
  ]),
});

function listSpans(collector: ScriptedSource) {
  return collector.requests.flatMap(({ path, body }) => {
    expect(path).toBe("/v1/traces");
    const [{ scopeSpans, resource }] = exported.parse(JSON.parse(body)).resourceSpans;
    expect(plain(resource.attributes)["service.name"]).toBe("readout-test");
    return scopeSpans[0].spans.map((span) => ({ ...span, attributes: plain(span.attributes) }));
  });
}
const plain = (attributes: readonly z.output<typeof attribute>[]) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0] ?? ""]));

describe.concurrent("tracing of the program", () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "readout-traced-"));
  });
  afterAll(async () => {
    endAll();
    await rm(folder, { recursive: true });
  });

  test("continues the trace of a client in Elasticsearch, OpenSearch and Prometheus", async ({ expect }) => {
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
      ...{ site_id, source_ids: ["app"], query: "secret-of-a-query", use_expressions: true },
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
      ...{ from: "2026-01-15T10:00:00Z", to: "2026-01-15T10:30:00Z", resolution: "MINUTELY" },
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
});

describe.concurrent("an exporter", () => {
  function open(url: string) {
    const counts = { sent: 0, dropped: 0 };
    const logged: string[] = [];
    const exporter = createOtlpExporter({
      config: { url, headers: {}, ratio: 1, service: "readout-test" },
      now: () => fromMillis(base),
      log: ({ message }) => logged.push(message),
      exported: (result, steps) => {
        counts[result] += steps;
      },
    });
    const end = (traceparent: string | null = null, tracestate: string | null = null) => {
      const step = exporter.startRequestSpan(traceparent, tracestate);
      step?.end("GET", {});
      step?.end("again", {});
      return step;
    };
    return { exporter, counts, logged, end };
  }

  test("without a collector keeps a bounded number of spans, counts dropped ones and logs it once", async ({
    expect,
  }) => {
    const silent: ServerResponse[] = [];
    const collector = await openScriptedSource((response) => void silent.push(response));
    const { exporter, counts, end, logged } = open(collector.url);
    for (let n = 0; n < 10_000; n += 1) end();
    expect(counts).toEqual({ sent: 0, dropped: 10_000 - 4_096 - 512 });
    await expect.poll(() => collector.requests.length).toBe(1);
    await exporter.close(50);
    expect(counts).toEqual({ sent: 0, dropped: 10_000 });
    expect(logged).toEqual(["traces cannot be sent"]);
    await collector.close();
  });

  test("resumes when its collector is back", async ({ expect }) => {
    let up = false;
    const collector = await openScriptedSource((response) => sendJson(response, {}, up ? 200 : 503));
    const { exporter, counts, end, logged } = open(collector.url);
    end();
    await expect.poll(() => counts.dropped, { timeout: 50_000 }).toBe(1);
    up = true;
    end();
    await expect.poll(() => counts.sent, { timeout: 50_000 }).toBe(1);
    expect(logged).toEqual(["traces cannot be sent", "traces are sent again"]);
    await exporter.close(1_000);
    await collector.close();
  });

  test("sends spans at its end that were added while a batch was under way and failed", async ({
    expect,
  }) => {
    const waiting: ServerResponse[] = [];
    const collector = await openScriptedSource((response) => void waiting.push(response));
    const { exporter, counts, end } = open(collector.url);
    for (let n = 0; n < 512; n += 1) end();
    await expect.poll(() => waiting.length, { timeout: 50_000 }).toBe(1);
    for (let n = 0; n < 3; n += 1) end();
    const closed = exporter.close(50_000);
    sendJson(waiting[0] as ServerResponse, {}, 503);
    await expect.poll(() => waiting.length, { timeout: 50_000 }).toBe(2);
    sendJson(waiting[1] as ServerResponse, {});
    await closed;
    expect(counts).toEqual({ sent: 3, dropped: 512 });
    await collector.close();
  });

  test("sends a batch once more where the collector closes a connection instead of an answer", async ({
    expect,
  }) => {
    let closings = 1;
    const collector = await openScriptedSource((response) => {
      if (closings > 0) response.socket?.destroy();
      else sendJson(response, {});
      closings -= 1;
    });
    const { exporter, counts, end, logged } = open(collector.url);
    end();
    await exporter.close(50_000);
    expect(counts).toEqual({ sent: 1, dropped: 0 });
    expect(collector.requests).toHaveLength(2);
    expect(logged).toEqual([]);
    await collector.close();
  });

  test("ignores an invalid trace context and starts a trace of its own", async ({ expect }) => {
    const collector = await openScriptedSource((response) => sendJson(response, {}));
    const { exporter, end } = open(collector.url);
    const own = /^00-(?!0af7651916cd43dd)[0-9a-f]{32}-[0-9a-f]{16}-01$/;
    const id = `${traceId}-${clientSpan}`;
    for (const [sent, passed] of [
      [`00-${id}-01`, new RegExp(`^00-${traceId}-[0-9a-f]{16}-01$`)],
      [`00-${id}-00`, new RegExp(`^00-${traceId}-[0-9a-f]{16}-00$`)],
      [`cc-${id}-03-what-comes`, new RegExp(`^00-${traceId}-[0-9a-f]{16}-01$`)],
      [`00-${id}-01-more`, own],
      [`ff-${id}-01`, own],
      [`00-${id.toUpperCase()}-01`, own],
      [`00-${"0".repeat(32)}-${clientSpan}-01`, own],
      [`00-${traceId}-${"0".repeat(16)}-01`, own],
      ["nonsense", own],
      [null, own],
    ] as const) {
      const step = end(sent, "vendor=1");
      expect(step?.headers.traceparent, String(sent)).toMatch(passed);
      expect(step?.headers.tracestate).toBe(passed === own ? undefined : "vendor=1");
    }
    expect(end(`00-${id}-01`, "a\u00e9")?.headers.tracestate).toBeUndefined();
    await exporter.close(1_000);
    // The one that its client does not want is not sent.
    expect(listSpans(collector)).toHaveLength(10);
    exporter.configure(undefined);
    expect(exporter.startRequestSpan(null, null)).toBeUndefined();
    await sleep(0);
    await collector.close();
  });
});
