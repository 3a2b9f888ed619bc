// The fixed yardstick of a trace: the adapter that anyone writes by hand in an afternoon. One search, JSON.parse, map,
// answer; no layouts, no exactness, no tokens. As `yardstick.ts` it is NEVER to be made faster or slower.
//
// `node bench/baselines/trace.ts SOURCE_URL` prints one JSON line when it listens: {"url"}.
import fastify from "fastify";

interface OtelDocument {
  readonly "@timestamp": string;
  readonly trace_id: string;
  readonly span_id: string;
  readonly parent_span_id?: string;
  readonly name: string;
  readonly kind: string;
  readonly duration: number;
  readonly status?: { readonly code?: string };
  readonly attributes?: Readonly<Record<string, unknown>>;
  readonly resource?: { readonly attributes?: Readonly<Record<string, unknown>> };
}
interface SearchAnswer {
  readonly hits: { readonly hits: readonly { readonly _source: OtelDocument }[] };
}

const sourceUrl = process.argv[2] ?? "";
const app = fastify();

app.post<{ Body: { readonly trace_id: string } }>("/api/v2/tracing/trace", async (request) => {
  const response = await fetch(`${sourceUrl}/bench-traces-*/_search`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      size: 10_000,
      track_total_hits: false,
      query: { term: { trace_id: request.body.trace_id } },
      sort: ["@timestamp"],
    }),
  });
  const answer = (await response.json()) as SearchAnswer;
  return answer.hits.hits.map(({ _source: span }) => {
    const start = Number(span["@timestamp"]);
    return {
      trace_id: span.trace_id,
      span_id: span.span_id,
      parent_span_id: span.parent_span_id ?? "",
      span_name: span.name,
      span_kind: span.kind.toLowerCase(),
      service_name: span.resource?.attributes?.["service.name"] ?? "",
      start_time: new Date(start).toISOString(),
      end_time: new Date(start + span.duration / 1e6).toISOString(),
      duration: span.duration / 1e6,
      status_code: (span.status?.code ?? "Unset").toUpperCase(),
      span_attributes: span.attributes ?? {},
      resource_attributes: span.resource?.attributes ?? {},
    };
  });
});

console.log(JSON.stringify({ url: await app.listen({ host: "127.0.0.1", port: 0 }) }));
process.on("SIGTERM", () => process.exit(0));
