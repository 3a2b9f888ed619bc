// Builds query requests. Besides the expression and its time they hold parameters that keep Thanos, Mimir and
// VictoriaMetrics from partial answers, downsampled data and moved ranges.
import type { Millis } from "../../../src/core/time.ts";
import { type Expression, printDuration, printExpression, printSelector, type Selector } from "./promql.ts";
import type { QueryRange } from "./range-alignment.ts";
import type { ApiRequest } from "./transport.ts";

/** One time, or `start`, `start + step`, … `end`: at most 11,000 times. Milliseconds since 1970. */
export type EvaluationTime = { readonly at: Millis } | QueryRange;

/** How far back the newest sample of a live series may lie: the servers' own default. */
export const lookbackDelta: Millis = 300_000;

export function buildQueryRequest(expression: Expression, time: EvaluationTime, timeout: Millis): ApiRequest {
  const form = new URLSearchParams({ query: printExpression(expression) });
  if ("at" in time) form.set("time", printSeconds(time.at));
  else {
    form.set("start", printSeconds(time.start));
    form.set("end", printSeconds(time.end));
    form.set("step", printDuration(time.step));
  }
  form.set("timeout", printDuration(timeout));
  // For instant selectors on servers that are configured with a shorter look-back. Prometheus 2.42, Cortex and
  // VictoriaMetrics ignore it.
  form.set("lookback_delta", printDuration(lookbackDelta));
  // By default Thanos may answer in part, with status 200, or from downsampled data. A resolution of 0 should mean the
  // same as 1 ms, but its query frontend drops a zero, and the querier may have another default.
  form.set("partial_response", "false");
  form.set("max_source_resolution", "1ms");
  // With its cache VictoriaMetrics moves the start and the end of ranges of 50 steps and more.
  form.set("nocache", "1");
  // With `-search.maxStepForPointsAdjustment` it repeats older values for those of the last seconds.
  form.set("latency_offset", "1ms");
  return { method: "POST", path: "at" in time ? "/api/v1/query" : "/api/v1/query_range", form };
}

export function printSeconds(millis: Millis): string {
  return (millis / 1_000).toFixed(3);
}

/** All that is kept. Without a start VictoriaMetrics looks at the last five minutes, and so it does with 0. */
const allTimes = { start: "1" };

export function formatMatchParameters(selector: Selector): string {
  return new URLSearchParams({ "match[]": printSelector(selector), ...allTimes }).toString();
}
