// Builds single spans for tests. Times are milliseconds after `base`.
import type { Span, TraceSummary } from "#src/core/rows.ts";
import { fromMillis, type Instant } from "#src/core/time.ts";
import type { ListingQuery } from "#src/store/span-analytics.ts";
import type { Budget, SpanSource } from "#src/store/spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createArrayReader } from "../conformance/trace-fixture.ts";

export const base = Date.UTC(2026, 0, 15, 10);
export const at = (millis: number): Instant =>
  (fromMillis(base) + BigInt(Math.round(millis * 1e6))) as Instant;
export const range = { from: at(0), to: at(1_000) };

export function createSource(site: string): SpanSource {
  return {
    site,
    index: site,
    layout: "auto",
    tenantFilter: undefined,
    tagPrefixes: ["appsignal.tag."],
    namespaceAttribute: "appsignal.namespace",
    actionAttribute: "appsignal.action_name",
  };
}

/** `from` and `to` are milliseconds after `base`. Without `entry`, the span is an entry as the contract says. */
export function createSpan(
  over: Partial<Omit<Span, "start" | "end">> & { from?: number; to?: number } = {},
): Span {
  const { from = 0, to = 10, ...rest } = over;
  const kind = over.span_kind ?? "internal";
  return {
    site_id: "shop",
    trace_id: "t1",
    span_id: "s1",
    start: at(from),
    end: at(to),
    service_name: "web",
    span_name: "work",
    span_kind: kind,
    status_code: "OK",
    resource_attributes: {},
    span_attributes: {},
    events: [],
    links: [],
    entry: over.parent_span_id === undefined || kind === "server" || kind === "consumer",
    tags: {},
    count: 1,
    report: false,
    ...rest,
  };
}

export function createException(millis: number, type: string, digest?: string): Span["events"][number] {
  return {
    name: "exception",
    time: at(millis),
    attributes: {
      "exception.type": type,
      ...(digest === undefined ? {} : { "appsignal.incident_digest": digest }),
    },
  };
}

export const createTestBudget = (): Budget => createBudget(10_000);
export const signal = new AbortController().signal;

/** The listing of requests in `range` of the sites `shop` and `stock`, oldest first. */
export async function listRows(
  spans: readonly Span[],
  over: Partial<ListingQuery> = {},
): Promise<TraceSummary[]> {
  const query: ListingQuery = {
    sources: [createSource("shop"), createSource("stock")],
    candidates: "requests",
    range,
    filter: { query: { kind: "all" } },
    by: "time",
    order: "asc",
    expectedRows: 100,
    tieLimit: 100,
    budget: createTestBudget(),
    ...over,
  };
  const batches = createSpanAnalytics(createArrayReader(spans)).summaries(query, signal);
  return (await Array.fromAsync(batches)).flat();
}
