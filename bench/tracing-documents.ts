// The spans of the benches, which look like those of a collector: requests of many actions, some with an N+1, a large
// trace, and thirty days of requests. Written to a server in the form of `otel`.
import { otel } from "../test/support/shippers.ts";

export const spansBegun = Date.UTC(2026, 0, 15, 11);

export const hour = 3_600_000;
export const largeTrace = "f".repeat(32);
export const largeSpans = 5_000;
/** A request has eight spans: itself, a step, and six queries, which are one statement in every 20th action. */
export const spansOfRequest = 8;
export const actions = 200;
const hex = (n: number, digits: number): string => n.toString(16).padStart(digits, "0");

interface Document {
  readonly trace: string;
  readonly id: string;
  readonly parent?: string;
  readonly name: string;
  readonly kind: string;
  readonly at: number;
  readonly micros: number;
  readonly failed?: boolean;
  readonly attributes?: object;
}

function print({ trace, id, parent, name, kind, at, micros, failed, attributes }: Document): string {
  return JSON.stringify({
    "@timestamp": `${Math.floor(at)}.${Math.round((at % 1) * 1e6)}`,
    data_stream: { type: "traces", dataset: "generic.otel", namespace: "default" },
    ...{ trace_id: trace, span_id: id, parent_span_id: parent, name, kind, duration: micros * 1_000 },
    status: { code: failed ? "Error" : "Unset" },
    attributes: attributes ?? {},
    resource: { attributes: { "service.name": "shop-web", "service.version": "3f9c", "host.name": "web-1" } },
    scope: { name: "bench", version: "1" },
  });
}

export function* requestSpans(n: number, requests: number): Generator<Document> {
  const trace = hex(n + 1, 32);
  const id = (at: number): string => hex(n * spansOfRequest + at + 1, 16);
  const at = spansBegun + (n / requests) * hour;
  const action = (n * 7) % actions;
  const micros = 5_000 + ((n * 7_919) % 200_000);
  yield {
    ...{ trace, id: id(0), name: `GET /${action}`, kind: "Server", at, micros, failed: n % 50 === 0 },
    attributes: { "appsignal.action_name": `Action${action}#show`, "http.request.method": "GET" },
  };
  yield { trace, id: id(1), parent: id(0), name: "load", kind: "Internal", at: at + 1, micros: 3_000 };
  for (let query = 0; query < spansOfRequest - 2; query++) {
    // Two under the step and four under the request are never five of one parent; in the loop all are under the step.
    const loop = action % 20 === 0;
    const parent = loop || query < 2 ? id(1) : id(0);
    const table = loop ? "items" : `table${query}`;
    yield {
      ...{
        trace,
        id: id(2 + query),
        parent,
        name: "query",
        kind: "Client",
        at: at + 1 + query / 4,
        micros: 200,
      },
      attributes: { "db.system.name": "mysql", "db.query.text": `SELECT * FROM ${table} WHERE id = ?` },
    };
  }
}

/** Of thirty days, of which one is asked for: five queries under each request, of which only one action's are alike. */
export const various = { days: 30, queries: 5, actions: 20 } as const;

function* variousSpans(n: number, requests: number): Generator<Document> {
  const trace = `e${hex(n + 1, 31)}`;
  const id = (at: number): string => hex(2 ** 44 + n * (various.queries + 1) + at, 16);
  const at = spansBegun - (n / requests) * various.days * 24 * hour;
  const action = n % various.actions;
  yield {
    ...{ trace, id: id(0), name: `GET /${action}`, kind: "Server", at, micros: 20_000 },
    attributes: { "appsignal.action_name": `Various${action}#show` },
  };
  for (let query = 0; query < various.queries; query++) {
    const table = action === 0 ? "items" : `table${query}`;
    yield {
      ...{
        trace,
        id: id(1 + query),
        parent: id(0),
        name: "query",
        kind: "Client",
        at: at + query,
        micros: 200,
      },
      attributes: { "db.system.name": "mysql", "db.query.text": `SELECT * FROM ${table} WHERE id = ?` },
    };
  }
}

function* largeTraceSpans(): Generator<Document> {
  const id = (n: number): string => hex(2 ** 40 + n, 16);
  for (let n = 0; n < largeSpans; n++) {
    yield {
      ...{ trace: largeTrace, id: id(n), name: n === 0 ? "GET /large" : `step ${n % 40}` },
      // Long before the hour of the actions.
      ...{ kind: n === 0 ? "Server" : "Internal", at: spansBegun - 10 * hour + n / 10, micros: 900 },
      ...(n === 0 ? {} : { parent: id(Math.floor((n - 1) / 8)) }),
      attributes: { "code.function.name": `Step${n % 40}#run`, "http.route": "/large", size: n },
    };
  }
}

export async function fill(url: string, prefix: string, documents: Iterable<Document>): Promise<void> {
  const ask = async (
    method: string,
    path: string,
    body: string,
    type = "application/json",
  ): Promise<void> => {
    const answer = await fetch(url + path, { method, body, headers: { "content-type": type } });
    const text = await answer.text();
    if (!answer.ok || text.includes('"errors":true'))
      throw new Error(`${method} ${path}: ${text.slice(0, 500)}`);
  };
  const [index = "", logs = ""] = Object.keys(otel.indices(prefix));
  for (const [name, definition] of Object.entries(otel.indices(prefix))) {
    await ask("PUT", `/${name}`, JSON.stringify(definition));
  }
  await ask("PUT", `/${index},${logs}/_settings`, JSON.stringify({ index: { refresh_interval: "-1" } }));
  let lines: string[] = [];
  const flush = async (): Promise<void> => {
    await ask("POST", `/${index}/_bulk`, `${lines.join("\n")}\n`, "application/x-ndjson");
    lines = [];
  };
  for (const document of documents) {
    lines.push('{"create":{}}', print(document));
    if (lines.length >= 10_000) await flush();
  }
  if (lines.length > 0) await flush();
  await ask("POST", `/${index},${logs}/_refresh`, "");
  await ask("POST", `/${index}/_forcemerge?max_num_segments=1`, "");
}

export function* benchSpans(requests: number): Generator<Document> {
  yield* largeTraceSpans();
  for (let n = 0; n < requests; n++) yield* requestSpans(n, requests);
}

export function* spansOfDays(requests: number): Generator<Document> {
  for (let n = 0; n < requests; n++) yield* variousSpans(n, requests);
}
