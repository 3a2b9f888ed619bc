// One trace: its spans by id, the spans of a trace that filters choose, and where it belongs.

import * as z from "zod";
import { mapAtOnce } from "../../core/async/concurrency.ts";
import { takeSteps } from "../../core/async/turns.ts";
import { compare, type TraceLocation } from "../../core/rows.ts";
import type { ListingQuery } from "../../store/span-analytics.ts";
import { deduplicateRows } from "../../tracing/analytics.ts";
import { deriveIncidentNumber } from "../../tracing/spans/digest.ts";
import { buildTraceDetail } from "../../tracing/trace-detail.ts";
import type { Context, Operation, RowBatch } from "../runtime/operation.ts";
import { listPage, toListingPage } from "./listing-page.ts";
import { detailBody, siteIds, traceId } from "./query-schema.ts";
import { createRequestBudget, groupByStore, readTrace } from "./read-traces.ts";
import { printSpans } from "./row-writer.ts";
import { span, traceLocation } from "./schema.ts";

const lookupBody = z
  .object({ site_ids: siteIds, trace_id: traceId })
  .meta({ examples: [{ site_ids: ["demo-shop"], trace_id: "5b8efff798038103d269b633813fc60c" }] });
type LookupRequest = z.output<typeof lookupBody>;
type DetailRequest = z.output<typeof detailBody>;

/** Every span of the trace that the sites hold, the root first. */
export const trace: Operation<LookupRequest, never> = {
  name: "tracing.trace",
  method: "POST",
  path: "/api/v2/tracing/trace",
  access: "token",
  scope: "tracing",
  summary: "Every span of a trace",
  description:
    "The root first, then by start and span id. Only spans of the requested sites are seen; an unknown trace has none.",
  request: lookupBody,
  answer: z.array(span),
  sites: (request) => request.site_ids,
  run: async function* ({ site_ids, trace_id }, context) {
    const spans = await readTrace(site_ids, trace_id, createRequestBudget(context), context);
    yield* printSpans(await takeSteps(buildTraceDetail(spans), context.signal));
  },
};

export const performanceTrace: Operation<DetailRequest, never> = {
  name: "tracing.trace_performance",
  method: "POST",
  path: "/api/v2/tracing/trace/performance",
  access: "token",
  scope: "tracing",
  summary: "Every span of a request's trace",
  description:
    "The trace of the first row that the listing with these filters has, or the one of `trace_id`; filters never cut its spans.",
  request: detailBody,
  answer: z.array(span),
  sites: (request) => request.site_ids,
  run: (request, context) => printChosenTrace(request, "requests", context),
};

/** The span of the first exception that the filters accept comes first. */
export const errorTrace: Operation<DetailRequest, never> = {
  name: "tracing.trace_error",
  method: "POST",
  path: "/api/v2/tracing/trace/error",
  access: "token",
  scope: "tracing",
  summary: "Every span of an error's trace",
  description:
    "As for requests, of traces with an exception; the span of the first exception that the filters accept comes first.",
  request: detailBody,
  answer: z.array(span),
  sites: (request) => request.site_ids,
  run: (request, context) => printChosenTrace(request, "errors", context),
};

/** Filters choose a trace and never cut its spans: that of the first row of the listing that they make. */
async function* printChosenTrace(
  request: DetailRequest,
  candidates: ListingQuery["candidates"],
  context: Context,
): AsyncGenerator<RowBatch> {
  const budget = createRequestBudget(context);
  const [row] = await listPage(
    request,
    candidates,
    { ...toListingPage(request), perPage: 1 },
    budget,
    context,
  );
  if (row === undefined) return;
  const spans = await readTrace(request.site_ids, row.trace_id, budget, context);
  const detail = buildTraceDetail(spans, candidates === "errors" ? row : undefined);
  yield* printSpans(await takeSteps(detail, context.signal));
}

interface Location {
  readonly performance: TraceLocation["performance"];
  readonly errors: readonly {
    readonly site_id: string;
    readonly incident_number: number;
    readonly exception_name: string;
  }[];
}

/** Where a trace belongs; both lists are sorted, each entry once. */
export const locator: Operation<LookupRequest, Location> = {
  name: "tracing.locator",
  method: "POST",
  path: "/api/v2/tracing/locator",
  access: "token",
  scope: "tracing",
  summary: "Where a trace belongs",
  description: "The actions and the errors that the sites have of a trace, over their whole retention.",
  request: lookupBody,
  answer: traceLocation,
  sites: (request) => request.site_ids,
  run: async ({ site_ids, trace_id }, context) => {
    const budget = createRequestBudget(context);
    const found = await mapAtOnce(
      groupByStore(site_ids, context),
      ({ store, sources }, signal) => store.locate({ sources, traceId: trace_id, budget }, signal),
      context.signal,
    );
    const errors = found.flatMap((location) =>
      location.errors.map(({ site_id, digest, exception_name }) => {
        return { site_id, incident_number: deriveIncidentNumber(site_id, digest), exception_name };
      }),
    );
    return {
      performance: sortDistinct(found.flatMap(({ performance }) => performance)),
      errors: sortDistinct(errors),
    };
  },
};

function sortDistinct<T>(rows: readonly T[]): readonly T[] {
  return deduplicateRows(rows).toSorted((a, b) => compare(JSON.stringify(a), JSON.stringify(b)));
}
