// What the soak puts into its sources and asks of them: each kind of question, in the shares of a busy day.
import { otel } from "../../test/support/elastic/span-shippers/otel.ts";
import { fill, generateRequestSpans, spansBegun } from "../fixtures/spans.ts";
import type { Call } from "../harness/http-client.ts";

export const token = "soak";
/** The front-end's, and where its reports end. */
const key = "soak-key";
const reportIndex = "soak-reports";

const second = 1_000;
const minute = 60 * second;
const documents = 20_000;
const hosts = 20;
const listing = { pagination: { per_page: 50, order: "DESC" } };
const requests = 1_000;

interface Mix {
  /** OpenMetrics text, for a Prometheus to begin with. */
  readonly series: string;
  readonly fill: (url: string) => Promise<void>;
  /** The site `shop`, of the backends `logs` and `metrics`. */
  readonly site: string;
  readonly calls: (base: string) => readonly Call[];
  /** Follows the lines from now on. */
  readonly tail: (base: string) => Call;
  /** A line of now, for those who follow. */
  readonly writeLine: (url: string) => Promise<void>;
  /** An answered report is in the spool, whatever befalls the source. */
  readonly report: (base: string, n: number) => Call;
  /** How many reports the source holds. */
  readonly delivered: (url: string) => Promise<number>;
}

/** Logs and series of the hour before `began` (ms), spans of the bench's hour. */
export function createTrafficMix(began: number): Mix {
  const from = began - 60 * minute;
  return {
    series: openMetrics(from, began),
    async fill(url) {
      await fillLines(url, from);
      await fill(url, "soak", generateSpans());
    },
    site: `
    logs: { backend: logs, sources: { app: { index: soak-app, layout: ecs } } }
    traces: { backend: logs, index: "${otel.pattern("soak")}", layout: otel }
    metrics: { backend: metrics }
    kubernetes: { backend: metrics }
    frontend: { keys: [${key}], backend: logs, index: ${reportIndex} }`,
    calls: (base) => buildCalls(base, from, began),
    tail: (base) => ({
      url: `${base}/api/v2/logs/lines`,
      method: "POST",
      token,
      accept: "text/event-stream",
      body: JSON.stringify({ site_id: "shop", source_ids: ["app"], query: "", ...listing }),
    }),
    async writeLine(url) {
      const line = { "@timestamp": new Date().toISOString(), message: "a line of now" };
      await post(url, "POST", "/soak-app/_doc", JSON.stringify(line));
    },
    report: (base, n) => ({
      url: `${base}/errors?api_key=${key}`,
      method: "POST",
      body: JSON.stringify({
        timestamp: Math.floor(began / second),
        namespace: "frontend",
        action: "CartPage",
        error: { name: "TypeError", message: `report ${n}`, backtrace: ["at render (app.js:1:7)"] },
      }),
    }),
    async delivered(url) {
      await fetch(`${url}/${reportIndex}/_refresh`, { method: "POST" });
      // Each is a span and the document of its exception.
      const answer = await fetch(`${url}/${reportIndex}/_count?q=_exists_:kind`);
      return ((await answer.json()) as { count?: number }).count ?? 0;
    },
  };
}

// ---- What the sources hold --------------------------------------------------------------------------------------

async function post(url: string, method: string, path: string, body: string): Promise<void> {
  const headers = { "content-type": path.includes("_bulk") ? "application/x-ndjson" : "application/json" };
  const answer = await fetch(`${url}${path}`, { method, headers, body });
  const text = await answer.text();
  if (!answer.ok || text.includes('"errors":true')) throw new Error(`${path}: ${text.slice(0, 500)}`);
}

async function fillLines(url: string, from: number): Promise<void> {
  const keyword = { type: "keyword" };
  const properties = {
    "@timestamp": { type: "date" },
    message: { type: "text" },
    log: { properties: { level: keyword } },
    host: { properties: { name: keyword } },
  };
  const settings = { number_of_replicas: 0 };
  await post(url, "PUT", "/soak-app", JSON.stringify({ settings, mappings: { properties } }));
  for (let at = 0; at < documents; at += 5_000) {
    const lines = Array.from({ length: 5_000 }, (_, offset) => {
      const n = at + offset;
      const document = {
        "@timestamp": new Date(from + (n * 60 * minute) / documents).toISOString(),
        message: `request ${n} was answered`,
        log: { level: n % 10 === 0 ? "error" : "info" },
        host: { name: `web-${n % hosts}` },
      };
      return `{"create":{}}\n${JSON.stringify(document)}\n`;
    });
    await post(url, "POST", "/soak-app/_bulk?refresh=true", lines.join(""));
  }
}

function* generateSpans() {
  for (let n = 0; n < requests; n += 1) yield* generateRequestSpans(n, requests);
}

function openMetrics(from: number, to: number): string {
  const times = Array.from({ length: (to - from) / (15 * second) + 1 }, (_, n) => from + n * 15 * second);
  const lines: string[] = [];
  const family = (
    name: string,
    type: string,
    labels: readonly string[],
    value: (of: number, at: number) => number,
  ) => {
    lines.push(`# TYPE ${name} ${type}`);
    for (const [of, label] of labels.entries()) {
      const series = `${name}${type === "counter" ? "_total" : ""}{${label}}`;
      for (const [at, time] of times.entries()) lines.push(`${series} ${value(of, at)} ${time / second}`);
    }
  };
  const all = Array.from({ length: hosts }, (_, host) => host);
  family(
    "soak_load",
    "gauge",
    all.map((host) => `host="web-${host}"`),
    (host, at) => (at + host) % 97,
  );
  // Each process begins anew now and then.
  family(
    "soak_requests",
    "counter",
    all.map((host) => `host="web-${host}"`),
    (host, at) => ((at + host * 7) % 100) * 3,
  );
  const pods = all.map((n) => `namespace="shop",pod="web-${n}",uid="u${n}"`);
  family(
    "kube_pod_info",
    "gauge",
    pods.map((pod, n) => `${pod},node="node-${n % 4}"`),
    () => 1,
  );
  family(
    "kube_pod_status_phase",
    "gauge",
    pods.map((pod) => `${pod},phase="Running"`),
    () => 1,
  );
  const containers = all.map((n) => `namespace="shop",pod="web-${n}",container="app",node="node-${n % 4}"`);
  family("container_memory_working_set_bytes", "gauge", containers, (n, at) => 1_000_000 * (n + 1) + at);
  family("container_cpu_usage_seconds", "counter", containers, (n, at) => at * (n + 1));
  return `${lines.join("\n")}\n# EOF\n`;
}

// ---- What is asked ----------------------------------------------------------------------------------------------

function buildCalls(base: string, from: number, to: number): readonly Call[] {
  const range = { from: new Date(from).toISOString(), to: new Date(to).toISOString() };
  const traced = {
    from: new Date(spansBegun).toISOString(),
    to: new Date(spansBegun + 60 * minute).toISOString(),
  };
  const post = (path: string, body: object, accept?: string): Call => ({
    url: `${base}${path}`,
    method: "POST",
    token,
    body: JSON.stringify(body),
    ...(accept !== undefined && { accept }),
  });
  const page = (query: string, per_page: number, accept?: string) =>
    post(
      "/api/v2/logs/lines",
      {
        site_id: "shop",
        source_ids: ["app"],
        query,
        use_expressions: true,
        ...range,
        pagination: { per_page, order: "DESC", cursor: { time: null } },
      },
      accept,
    );
  const series = (name: string, field: string, resolution: string) =>
    post("/api/v2/metrics/timeseries", {
      site_id: "shop",
      ...range,
      resolution,
      select: [{ name, field, tags: { host: "*" } }],
    });
  const traces = (path: string, more: object) => post(`/api/v2/tracing/${path}`, { ...traced, ...more });
  return [
    page("", 100),
    page("", 100),
    page("severity=error", 50),
    page('host.name="web-7"', 200),
    page("", 5_000),
    page('host.name="web-3"', 100, "application/x-ndjson"),
    series("soak_load", "gauge", "MINUTELY"),
    series("soak_requests_total", "counter", "MINUTELY"),
    { url: `${base}/api/v2/metrics/names/shop`, method: "GET", token },
    post("/api/v2/kubernetes/pods", { site_id: "shop", ...range }),
    traces("traces/performance", { site_ids: ["shop"], ...listing }),
    // What the front-end has reported so far.
    post("/api/v2/tracing/traces/errors", { site_ids: ["shop"], from: range.to, ...listing }),
    traces("actions", { site_id: "shop" }),
    traces("trace", { site_ids: ["shop"], trace_id: "1".padStart(32, "0") }),
    post("/graphql", { query: `{ auth { message } }` }),
    post("/graphql", {
      query: `{ logs_lines(site_id: "shop", source_ids: ["app"], query: "", from: "${range.from}", to: "${range.to}", pagination: { per_page: 100, order: DESC }) { id timestamp message } }`,
    }),
  ];
}
