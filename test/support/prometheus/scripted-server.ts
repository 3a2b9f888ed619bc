// A fake Prometheus on loopback: it knows some metrics and answers queries as a test tells it to.
import type { IncomingMessage, ServerResponse } from "node:http";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Backend, IO, SeriesQuery } from "#src/store/store.ts";
import { testIO } from "../elastic/test-index.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../scripted-http-source.ts";

export interface FakePrometheus extends ScriptedSource {
  /** The queries asked, in the order of their arrival, but for the probes of its habits. */
  readonly queries: { readonly query: string; readonly form: URLSearchParams }[];
  open(over?: object, io?: Partial<IO>): Backend;
}

export interface ScriptedAnswers {
  readonly edge?: "closed" | "open";
  /** Names of metrics with the type that targets told; a name in `_bucket` has the label `le`. */
  readonly metrics?: Readonly<Record<string, string | undefined>>;
  /** Answers query and query_range; without it, and where it returns false, nothing is found. */
  readonly answer?: (form: URLSearchParams, response: ServerResponse, request: IncomingMessage) => unknown;
  /** Comes first, for every request; a response it has answered is left alone. */
  readonly intercept?: (response: ServerResponse, request: IncomingMessage) => boolean;
}

export const buildMatrix = (result: readonly object[], over: object = {}) => ({
  status: "success",
  data: { resultType: "matrix", result },
  ...over,
});

const probe = "count_over_time(vector(1)[1m:1m])";

export async function openFakePrometheus({
  edge = "open",
  metrics = { g: "gauge", c_total: "counter" },
  answer,
  intercept,
}: ScriptedAnswers = {}): Promise<FakePrometheus> {
  const queries: FakePrometheus["queries"] = [];
  const fake = await openScriptedSource((response, request, body) => {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://source");
    const form = new URLSearchParams(body);
    const query = form.get("query") ?? "";
    const data = (value: unknown) => sendJson(response, { status: "success", data: value });
    if (intercept?.(response, request)) return;
    if (query === probe) {
      const ones = [{ metric: {}, value: [1_700_000_040, edge === "closed" ? "2" : "1"] }];
      data({ resultType: "vector", result: ones });
    } else if (query === "vector(1)") {
      data({ resultType: "matrix", result: [{ metric: {}, values: [[Number(form.get("start")), "1"]] }] });
    } else if (pathname.endsWith("/label/__name__/values")) {
      const match = searchParams.get("match[]") ?? "";
      const quantiles = match.includes('quantile!=""');
      const bounds = match.includes('le!=""') && !quantiles;
      data(Object.keys(metrics).filter((name) => !quantiles && (!bounds || name.endsWith("_bucket"))));
    } else if (pathname.endsWith("/metadata")) {
      const metric = searchParams.get("metric") ?? "";
      data(
        metrics[metric] === undefined ? {} : { [metric]: [{ type: metrics[metric], help: "", unit: "" }] },
      );
    } else if (pathname.endsWith("/series")) {
      data([{ __name__: "g", host: "a" }]);
    } else if (query !== "") {
      queries.push({ query, form });
      if (answer === undefined || answer(form, response, request) === false)
        sendJson(response, buildMatrix([]));
    } else sendJson(response, {}, 404);
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

const base = Date.UTC(2026, 0, 15, 10);

/** The last values of `g` by host in three minutes, but for what is said otherwise. */
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
