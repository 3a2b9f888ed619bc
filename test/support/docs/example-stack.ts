// The stack in front of which the pages' commands run: a small Elasticsearch with two days of Filebeat's lines, and a
// small Prometheus with two metrics. In the pages they are http://127.0.0.1:9200 and http://127.0.0.1:9090.
import { createFakeSearch, type FakeIndex } from "../elastic/fake-cluster.ts";
import { openFakePrometheus } from "../prometheus/scripted-server.ts";
import { openScriptedSource, sendJson } from "../scripted-http-source.ts";

export interface Stack {
  /** A text of a page with the addresses of this stack. */
  place(text: string): string;
  unplace(text: string): string;
  close(): Promise<void>;
}

const keyword = { type: "keyword", ignore_above: 1024 };
const mappings = {
  properties: {
    "@timestamp": { type: "date" },
    ecs: { properties: { version: keyword } },
    log: { properties: { level: keyword } },
    host: { properties: { name: keyword } },
    event: { properties: { dataset: keyword } },
    service: { properties: { name: keyword } },
    http: { properties: { response: { properties: { status_code: { type: "long" } } } } },
    message: { type: "text" },
  },
};

/** A line every ten seconds for two hours, until now. */
function listDocuments(): FakeIndex["documents"] {
  const end = Date.now();
  return Array.from({ length: 720 }, (_, n) => ({
    "@timestamp": new Date(end - (720 - n) * 10_000).toISOString(),
    ecs: { version: "8.0.0" },
    log: { level: n % 4 === 0 ? "error" : "info" },
    host: { name: `web-${n % 3}` },
    event: { dataset: "nginx.access" },
    service: { name: "shop" },
    http: { response: { status_code: n % 8 === 0 ? 503 : 200 } },
    message: n % 12 === 0 ? "upstream timeout" : "GET /cart",
  }));
}

export async function openStack(): Promise<Stack> {
  const names = ["filebeat-8.19.8-2026.11.24", "filebeat-8.19.8-2026.11.25", "metricbeat-8.19.8-2026.11.25"];
  const documents = listDocuments();
  const indices = {
    [names[0] ?? ""]: { mappings, documents: documents.slice(0, 300) },
    [names[1] ?? ""]: { mappings, documents: documents.slice(300) },
    [names[2] ?? ""]: { mappings, documents: [] },
  };
  const search = createFakeSearch(indices, "Elasticsearch");
  const elastic = await openScriptedSource((response, request, body) => {
    if (!request.url?.startsWith("/_resolve/")) return search.reply(response, request, body);
    const found = names.map((name) => ({ name, attributes: ["open"] }));
    return sendJson(response, { indices: found, aliases: [], data_streams: [] });
  });
  const prometheus = await openFakePrometheus({
    metrics: { http_requests_total: "counter", process_resident_memory_bytes: "gauge" },
  });
  const places = [
    ["http://127.0.0.1:9200", elastic.url],
    ["http://127.0.0.1:9090", prometheus.url],
    // A page's server listens on any free port.
    ["listen: 127.0.0.1:8080", "listen: 127.0.0.1:0"],
  ] as const;
  return {
    place: (text) => places.reduce((now, [shown, real]) => now.replaceAll(shown, real), text),
    unplace: (text) => places.reduce((now, [shown, real]) => now.replaceAll(real, shown), text),
    async close() {
      await Promise.all([elastic.close(), prometheus.close()]);
    },
  };
}
