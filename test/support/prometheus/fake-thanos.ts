// A fake server on the loopback interface, over written series, without metadata: a Prometheus, or a Thanos, which refuses
// invalid values of its own parameters and adds restarts up before it evaluates `resets` and other functions.

import type { Expression, Matcher, Selector } from "#resolvers/prometheus/client/promql.ts";
import type { EvaluationTime } from "#resolvers/prometheus/client/query-request.ts";
import type { QueryRange } from "#resolvers/prometheus/client/range-alignment.ts";
import type { SampleSeries } from "#resolvers/prometheus/client/response-scanner.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../scripted-http-source.ts";
import type { WrittenSeries } from "./kubernetes-exporters.ts";
import { createEvaluator } from "./promql-evaluator.ts";
import { parseSelectors } from "./promql-selectors.ts";
import { edgeProbe } from "./scripted-server.ts";

const never = new AbortController().signal;

/** With `stores` it lists its stores. */
export const openFakeThanos = (
  series: readonly WrittenSeries[],
  stores?: () => object,
): Promise<ScriptedSource> => openScriptedFake(series, true, undefined, stores);
/** A Prometheus over written series; `openFakePrometheus` has scripted answers. `move` changes ranges as a frontend does. */
export const openFakeServer = (series: readonly WrittenSeries[], move?: Move): Promise<ScriptedSource> =>
  openScriptedFake(series, false, move);

/** `undefined` if nothing is left of the range. */
type Move = (range: QueryRange) => QueryRange | undefined;

async function openScriptedFake(
  series: readonly WrittenSeries[],
  isThanos: boolean,
  move: Move = (range) => range,
  stores?: () => object,
): Promise<ScriptedSource> {
  const held = createEvaluator(series, "open", isThanos);
  async function answer(path: string, form: URLSearchParams): Promise<unknown> {
    if (path.endsWith("/label/__name__/values")) {
      const found = held.select(parseSelector(form.get("match[]") ?? ""));
      return [...new Set(found.map(({ labels }) => labels.__name__))];
    }
    if (path.endsWith("/series"))
      return held.select(parseSelector(form.get("match[]") ?? "")).map((one) => one.labels);
    const query = form.get("query") ?? "";
    if (query === edgeProbe) return buildVector([{ metric: {}, value: [0, "1"] }]);
    const millis = (name: string): number => Math.round(Number(form.get(name)) * 1_000);
    const ranged = path.endsWith("/query_range");
    const moments: EvaluationTime | undefined = ranged
      ? move({ start: millis("start"), end: millis("end"), step: parseDuration(form.get("step") ?? "") })
      : { at: millis("time") };
    if (moments === undefined) return buildMatrix([]);
    if (query === "vector(1)" && "start" in moments)
      return buildMatrix([{ metric: {}, values: [[moments.start / 1_000, "1"]] }]);
    const expression = parseQuery(query);
    const found = await held.query(expression, moments, createGatherer, never);
    const points = ({ times, values }: SampleSeries): [number, string][] =>
      [...times].map((time, at) => [time / 1_000, printValue(values[at] ?? Number.NaN)]);
    if (ranged || expression.kind === "range") {
      return buildMatrix(found.map((one) => ({ metric: one.labels, values: points(one) })));
    }
    return buildVector(found.map((one) => ({ metric: one.labels, value: points(one)[0] })));
  }
  return openScriptedSource(async (response, request, body) => {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://source");
    const form = body === "" ? searchParams : new URLSearchParams(body);
    const dedup = form.get("dedup");
    if (isThanos && dedup !== null && !/^(?:true|false)$/.test(dedup)) {
      const error = `'dedup' parameter: strconv.ParseBool: parsing "${dedup}": invalid syntax`;
      sendJson(response, { status: "error", errorType: "bad_data", error }, 400);
    } else if (/\/(?:query|query_range|series|values)$/.test(pathname)) {
      await answer(pathname, form).then(
        (data) => sendJson(response, { status: "success", data }),
        (error) => sendJson(response, { status: "error", errorType: "execution", error: String(error) }, 422),
      );
    } else if (pathname.endsWith("/stores") && stores !== undefined) {
      sendJson(response, { status: "success", data: stores() });
    } else sendJson(response, "404 page not found", 404);
  });
}

const buildVector = (result: readonly object[]) => ({ resultType: "vector", result });
const buildMatrix = (result: readonly object[]) => ({ resultType: "matrix", result });
const printValue = (value: number): string =>
  Number.isFinite(value) ? String(value) : Number.isNaN(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";

function createGatherer() {
  const found: SampleSeries[] = [];
  return { series: (one: SampleSeries) => void found.push(one), result: () => found };
}

// ---- Parsing -------------------------------------------------------------------------------------------------------

/** Parses the forms that the program prints. @throws {SyntaxError} for any other form */
function parseQuery(query: string): Expression {
  let at = 0;
  const take = (pattern: RegExp): string[] | undefined => {
    const found = new RegExp(pattern.source, "y");
    found.lastIndex = at;
    const groups = found.exec(query);
    if (groups !== null) at = found.lastIndex;
    return groups?.map((group) => group ?? "");
  };
  const need = (pattern: RegExp): string[] => {
    const found = take(pattern);
    if (found === undefined) throw new SyntaxError(`${pattern} expected at ${at} of ${query}`);
    return found;
  };
  const expression = (): Expression => {
    if (take(/\(/)) {
      const left = expression();
      const [, operator = ""] = need(/ (\+|-|\*|\/|<|>|==|!=|or|unless|and) /);
      const [, matched = "", labels = ""] = take(/(on|ignoring) \(([^)]*)\) /) ?? [];
      const right = expression();
      need(/\)/);
      const sides = { left, right, ...(matched !== "" && { [matched]: labels.split(",") }) };
      return { kind: "binary", operator: operator as "+", ...sides };
    }
    const aggregated = take(/(sum|avg|min|max|count|group)(?: by \(([^)]*)\) )?\(/);
    if (aggregated !== undefined) {
      const [, operator = "", by = ""] = aggregated;
      const of = expression();
      need(/\)/);
      return { kind: "aggregate", operator: operator as "sum", by: by === "" ? [] : by.split(","), of };
    }
    const [, name] = take(/(\w+)\(/) ?? [];
    if (name !== undefined) {
      const argument = expression();
      need(/\)/);
      return { kind: "call", function: name, arguments: [argument] };
    }
    const [value] = take(/\d+(?:e-\d+)?/) ?? [];
    if (value !== undefined) return { kind: "number", value: Number(value) };
    const of = parseSelector(need(/\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}/)[0] ?? "");
    const [, length] = take(/\[(\w+)\]/) ?? [];
    if (length === undefined) return of;
    const [, offset = ""] = take(/ offset (\w+)/) ?? [];
    return { kind: "range", of, length: parseDuration(length), offset: parseDuration(offset) };
  };
  const whole = expression();
  need(/$/);
  return whole;
}

function parseSelector(text: string): Selector {
  const [matchers] = parseSelectors(text);
  return { kind: "selector", matchers: matchers as readonly Matcher[] } as Selector;
}

function parseDuration(text: string): number {
  const [, seconds = 0, millis = 0] = /^(?:(\d+)s)?(?:(\d+)ms)?$/.exec(text) ?? [];
  return Number(seconds) * 1_000 + Number(millis);
}
