// A fake Prometheus on the loopback interface: it knows some metrics, and a test scripts its answers to queries.
import type { IncomingMessage, ServerResponse } from "node:http";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Backend, IO } from "#src/store/backend.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import { testIO } from "../io.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../scripted-http-source.ts";

export interface FakePrometheus extends ScriptedSource {
  /** The queries in the order of their arrival, without those that detect its traits. */
  readonly queries: { readonly query: string; readonly form: URLSearchParams }[];
  open(over?: object, io?: Partial<IO>): Backend;
}

export interface ScriptedAnswers {
  readonly edge?: "closed" | "open";
  /** Names of metrics with the type that targets declare; a name in `_bucket` has the label `le`. */
  readonly metrics?: Readonly<Record<string, string | undefined>>;
  /** Answers query and query_range. Without it, or if it returns false, the result is empty. */
  readonly answer?: (form: URLSearchParams, response: ServerResponse, request: IncomingMessage) => unknown;
  /** Called first, for every request; true if it has answered. */
  readonly intercept?: (response: ServerResponse, request: IncomingMessage) => boolean;
}

export function buildMatrix(result: readonly object[], over: object = {}) {
  return { status: "success", data: { resultType: "matrix", result }, ...over };
}

/** Asks for ones at every full minute, which show the edge of ranges. */
export const edgeProbe = "count_over_time(vector(1)[1m:1m]) + 2 * (absent(vector(NaN)) or vector(0))";
const alignmentProbe = "vector(1)";

export async function openFakePrometheus(answers: ScriptedAnswers = {}): Promise<FakePrometheus> {
  const queries: FakePrometheus["queries"] = [];
  const fake = await openScriptedSource((response, request, body) => {
    if (answers.intercept?.(response, request)) return;
    const form = new URLSearchParams(body);
    const query = form.get("query") ?? "";
    const known = readKnownData(answers, new URL(request.url ?? "", "http://source"), form);
    if (known !== undefined) sendJson(response, { status: "success", data: known });
    else if (query === "") sendJson(response, {}, 404);
    else {
      queries.push({ query, form });
      const { answer } = answers;
      if (answer === undefined || answer(form, response, request) === false)
        sendJson(response, buildMatrix([]));
    }
  });
  return Object.assign(fake, {
    queries,
    open: (over: object = {}, io: Partial<IO> = {}) =>
      prometheus.create("prom", prometheus.parseConfig({ url: fake.url, timeout: "60s", ...over }), {
        ...testIO,
        ...io,
      }),
  });
}

/** The data of all requests but queries; `undefined` for a query. */
function readKnownData(
  { edge = "open", metrics = { g: "gauge", c_total: "counter" } }: ScriptedAnswers,
  { pathname, searchParams }: URL,
  form: URLSearchParams,
): unknown {
  const query = form.get("query");
  if (query === edgeProbe) {
    const ones = [{ metric: {}, value: [1_700_000_040, edge === "closed" ? "2" : "1"] }];
    return { resultType: "vector", result: ones };
  }
  if (query === alignmentProbe) {
    const start = Number(form.get("start"));
    return { resultType: "matrix", result: [{ metric: {}, values: [[start, "1"]] }] };
  }
  if (pathname.endsWith("/label/__name__/values")) {
    return listMatchingNames(Object.keys(metrics), searchParams.get("match[]") ?? "");
  }
  if (pathname.endsWith("/metadata")) {
    const metric = searchParams.get("metric");
    const declared = Object.entries(metrics).filter(
      ([name, type]) => type !== undefined && (metric === null || name === metric),
    );
    return Object.fromEntries(declared.map(([name, type]) => [name, [{ type, help: "", unit: "" }]]));
  }
  return pathname.endsWith("/series") ? [{ __name__: "g", host: "a" }] : undefined;
}

function listMatchingNames(names: readonly string[], match: string): readonly string[] {
  if (/(quantile|vmrange)!=""/.test(match)) return [];
  return match.includes('le!=""') ? names.filter((name) => name.endsWith("_bucket")) : names;
}

const base = Date.UTC(2026, 0, 15, 10);

/** By default the last values of `g` by host in three minutes. */
export function buildSeriesQuery(over: Partial<SeriesQuery> = {}): SeriesQuery {
  return {
    match: { site: "a" },
    metric: "g",
    tags: { host: "*" },
    measure: { of: "samples", combine: "last" },
    buckets: { start: base, step: 60_000, count: 3 },
    lookBack: 86_400_000,
    pointLimit: 1_000,
    ...over,
  };
}
