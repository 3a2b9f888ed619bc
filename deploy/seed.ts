// Writes a few ECS log lines of the last hour, as Filebeat would, for docker-compose.yml.
//   node seed.ts http://elasticsearch:9200=shop http://opensearch:9200=blog
// It runs alone in a container, so it has nothing but Node.

const messages = [
  ["info", "GET /products/17 200 in 31 ms"],
  ["info", "GET /cart 200 in 12 ms"],
  ["warn", "payment provider answered after 2.4 s"],
  ["error", "could not send the order confirmation: 421 try again later"],
  ["debug", "cache miss for user 4711"],
] as const;
const lines = 60;

// What ECS needs of a mapping, the same for both products: names as keywords, the message as text.
const template = (site: string) => ({
  index_patterns: [`logs-${site}-*`],
  priority: 500,
  data_stream: {},
  template: {
    settings: { number_of_replicas: 0 },
    mappings: {
      dynamic_templates: [
        { names: { match_mapping_type: "string", mapping: { type: "keyword", ignore_above: 1024 } } },
      ],
      properties: {
        "@timestamp": { type: "date" },
        message: { type: "text" },
        http: { properties: { response: { properties: { status_code: { type: "long" } } } } },
      },
    },
  },
});

async function send(method: string, url: string, body: string): Promise<void> {
  const headers = {
    "Content-Type": url.endsWith("/_bulk?refresh=true") ? "application/x-ndjson" : "application/json",
  };
  const answer = await fetch(url, { method, headers, body, signal: AbortSignal.timeout(30_000) });
  const text = await answer.text();
  if (!answer.ok || text.includes('"errors":true'))
    throw new Error(`${method} ${url}: ${answer.status} ${text}`);
}

for (const target of process.argv.slice(2)) {
  const split = target.lastIndexOf("=");
  const [url, site] = [target.slice(0, split), target.slice(split + 1)];
  await send("PUT", `${url}/_index_template/readout-${site}`, JSON.stringify(template(site)));
  const now = Date.now();
  const documents = Array.from({ length: lines }, (_, index) => {
    const [level, message] = messages[index % messages.length] ?? messages[0];
    return {
      "@timestamp": new Date(now - index * 60_000).toISOString(),
      message,
      log: { level },
      service: { name: site },
      host: { name: `${site}-${1 + (index % 2)}` },
      ...(level === "info" && { http: { response: { status_code: 200 } } }),
    };
  });
  const bulk = documents.flatMap((document) => ['{"create":{}}', JSON.stringify(document)]).join("\n");
  await send("POST", `${url}/logs-${site}-default/_bulk?refresh=true`, `${bulk}\n`);
  console.log(`${lines} lines written for ${site} to ${url}`);
}
