// The fixed yardstick: the adapter that anyone writes by hand in an afternoon, on fastify. One search, JSON.parse,
// map, answer; no paging rule, no verification, no tokens, no failures. Ratios in results.json are against this
// program, so it is NEVER to be made faster or slower: a change here would move every figure ever written down.
//
// `node bench/baselines/logs.ts SOURCE_URL` prints one JSON line when it listens: {"url"}.
import fastify from "fastify";

interface LinesRequest {
  readonly source_ids: readonly [string, ...string[]];
  readonly from: string;
  readonly to: string;
  readonly pagination: { readonly per_page: number };
}
interface EcsDocument {
  readonly "@timestamp": string;
  readonly message?: string;
  readonly log?: { readonly level?: string };
  readonly host?: { readonly name?: string };
  readonly event?: { readonly dataset?: string };
}
interface SearchAnswer {
  readonly hits: { readonly hits: readonly { readonly _id: string; readonly _source: EcsDocument }[] };
}

const sourceUrl = process.argv[2] ?? "";
const app = fastify();

app.get("/livez", () => "ok");

app.post<{ Body: LinesRequest }>("/api/v2/logs/lines", async (request) => {
  const { source_ids, from, to, pagination } = request.body;
  const response = await fetch(`${sourceUrl}/logs-bench/_search`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      size: pagination.per_page,
      track_total_hits: false,
      query: { bool: { filter: [{ range: { "@timestamp": { gte: from, lte: to } } }] } },
      sort: [{ "@timestamp": "desc" }],
    }),
  });
  const answer = (await response.json()) as SearchAnswer;
  return answer.hits.hits.map(({ _id, _source }) => ({
    id: _id,
    timestamp: _source["@timestamp"],
    source_id: source_ids[0],
    severity: _source.log?.level ?? "unknown",
    message: _source.message ?? "",
    hostname: _source.host?.name ?? "",
    group: _source.event?.dataset ?? "",
    json: JSON.stringify(_source),
    attributes: {},
  }));
});

console.log(JSON.stringify({ url: await app.listen({ host: "127.0.0.1", port: 0 }) }));
process.on("SIGTERM", () => process.exit(0));
