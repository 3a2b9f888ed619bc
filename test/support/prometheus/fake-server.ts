// A small Prometheus in memory: written series behind the HTTP API, for the expressions that Readout prints. It parses
// their text; an unknown expression fails the test.
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Expression, Matcher, Selector } from "#resolvers/prometheus/client/promql.ts";
import { sendJson } from "../scripted-http-source.ts";
import type { WrittenSeries } from "./kubernetes-exporters.ts";
import { createEvaluator } from "./promql-evaluator.ts";
import { edgeProbe } from "./scripted-server.ts";

const aggregations = /^(?:sum|avg|min|max|count|group)$/;

/** Parses what `printExpression` prints. @throws {SyntaxError} */
function parsePromql(text: string): Expression {
  let at = 0;
  const fail = (): never => {
    throw new SyntaxError(`not understood at ${at}: ${text}`);
  };
  /** Takes the next token if it has this form. */
  const take = (pattern: RegExp): string | undefined => {
    const sticky = new RegExp(`\\s*(${pattern.source})`, "y");
    sticky.lastIndex = at;
    const found = sticky.exec(text);
    if (found !== null) at = sticky.lastIndex;
    return found?.[1];
  };
  const need = (pattern: RegExp): string => take(pattern) ?? fail();

  function selector(): Selector {
    const matchers: Matcher[] = [];
    while (take(/\}/) === undefined) {
      const label = need(/\w+/);
      const operator = need(/=~|!~|!=|=/) as Matcher["operator"];
      matchers.push({ label, operator, value: JSON.parse(need(/"(?:[^"\\]|\\.)*"/)) });
      take(/,/);
    }
    return { kind: "selector", matchers } as unknown as Selector;
  }
  const duration = (): number => {
    const [, seconds = "0", millis = "0"] = /^(?:(\d+)s)?(?:(\d+)ms)?$/.exec(need(/\w+/)) ?? fail();
    return Number(seconds) * 1_000 + Number(millis);
  };
  function expression(): Expression {
    if (take(/\{/) !== undefined) {
      const of = selector();
      if (take(/\[/) === undefined) return of;
      const length = duration();
      need(/\]/);
      return { kind: "range", of, length, offset: take(/offset/) === undefined ? 0 : duration() };
    }
    if (take(/\(/) !== undefined) {
      const left = expression();
      const operator = need(/==|!=|[-+*/<>]|or|unless|and/) as "or";
      const matched = take(/(?:on|ignoring)\b/);
      const labels = matched === undefined ? [] : (need(/\([^)]*\)/).match(/\w+/g) ?? []);
      const right = expression();
      need(/\)/);
      return { kind: "binary", operator, left, right, ...(matched !== undefined && { [matched]: labels }) };
    }
    const number = take(/-?\d+(?:\.\d+)?(?:e[-+]?\d+)?/);
    if (number !== undefined) return { kind: "number", value: Number(number) };
    const name = need(/\w+/);
    const by = take(/by/) === undefined ? [] : (need(/\([^)]*\)/).match(/\w+/g) ?? []);
    need(/\(/);
    const parts: Expression[] = [];
    do parts.push(expression());
    while (take(/,/) !== undefined);
    need(/\)/);
    const [of = fail()] = parts;
    return aggregations.test(name)
      ? { kind: "aggregate", operator: name as "sum", by, of }
      : { kind: "call", function: name, arguments: parts };
  }
  const read = expression();
  return at === text.length ? read : fail();
}

export function createFakePrometheus(
  series: readonly WrittenSeries[],
  types: Readonly<Record<string, string>>,
) {
  const source = createEvaluator(series, "open");
  const never = new AbortController().signal;

  async function evaluate(form: URLSearchParams): Promise<object> {
    const expression = parsePromql(form.get("query") ?? "");
    const millis = (name: string): number => Math.round(Number(form.get(name)) * 1_000);
    const ranged = form.has("start");
    const step = form.get("step") ?? "";
    const [, seconds = "0", rest = "0"] = /^(?:(\d+)s)?(?:(\d+)ms)?$/.exec(step) ?? [];
    const moments = ranged
      ? { start: millis("start"), end: millis("end"), step: Number(seconds) * 1_000 + Number(rest) }
      : { at: millis("time") };
    const result: object[] = [];
    const fold = () => ({
      series: ({ labels, times, values }: { labels: object; times: Float64Array; values: Float64Array }) => {
        const samples = [...times].map((time, n) => [time / 1_000, String(values[n])]);
        result.push({ metric: labels, ...(ranged ? { values: samples } : { value: samples[0] }) });
      },
      result: () => undefined,
    });
    await source.query(expression, moments, fold, never);
    return { resultType: ranged ? "matrix" : "vector", result };
  }

  const labelSets = (match: string): readonly object[] => {
    const expression = parsePromql(match);
    return expression.kind === "selector" ? source.select(expression).map(({ labels }) => labels) : [];
  };

  async function answer(path: string, search: URLSearchParams, body: string): Promise<object | undefined> {
    const form = new URLSearchParams(body);
    if (path.endsWith("/values")) {
      const names = labelSets(search.get("match[]") ?? "").map((labels) => Object(labels).__name__);
      return [...new Set(names)].sort();
    }
    if (path.endsWith("/series")) return labelSets(search.get("match[]") ?? "");
    if (path.endsWith("/metadata")) {
      const metric = search.get("metric");
      const declared = Object.entries(types).filter(([name]) => metric === null || name === metric);
      return Object.fromEntries(declared.map(([name, type]) => [name, [{ type, help: "", unit: "" }]]));
    }
    if (path.endsWith("/buildinfo")) return { version: "3.5.0" };
    if (form.get("query") === edgeProbe) {
      return { resultType: "vector", result: [{ metric: {}, value: [1_700_000_040, "1"] }] };
    }
    if (form.get("query") === "vector(1)") {
      return { resultType: "matrix", result: [{ metric: {}, values: [[Number(form.get("start")), "1"]] }] };
    }
    return /\/query(_range)?$/.test(path) ? evaluate(form) : undefined;
  }

  return (response: ServerResponse, request: IncomingMessage, body: string): void => {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://source");
    answer(pathname, searchParams, body).then(
      (data) =>
        data === undefined ? sendJson(response, {}, 404) : sendJson(response, { status: "success", data }),
      (error: unknown) =>
        sendJson(response, { status: "error", errorType: "bad_data", error: String(error) }, 400),
    );
  };
}
