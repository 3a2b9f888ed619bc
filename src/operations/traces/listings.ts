// The listings of traces: POST /api/v2/tracing/traces/performance and …/errors.

import * as z from "zod";
import type { ListingQuery } from "../../store/span-analytics.ts";
import type { Context, Operation, RowBatch } from "../runtime/operation.ts";
import { explainListing } from "./explain-listing.ts";
import { isFirstPage, listPage, toListingPage } from "./listing-page.ts";
import { listingBody } from "./query-schema.ts";
import { createRequestBudget } from "./read-traces.ts";
import { printRows, toSummaryRow } from "./row-writer.ts";
import { traceSummary } from "./schema.ts";

type ListingRequest = z.output<typeof listingBody>;

export const performanceTraces: Operation<ListingRequest, never> = {
  name: "tracing.traces_performance",
  method: "POST",
  path: "/api/v2/tracing/traces/performance",
  access: "token",
  scope: "tracing",
  summary: "Requests, newest or longest first",
  description:
    "One row for each trace of a site: its root if the filters accept it, else its first entry that they accept.",
  request: listingBody,
  answer: z.array(traceSummary),
  sites: (request) => request.site_ids,
  mayBePartial: isFirstPage,
  run: (request, context) => printListing(request, "requests", context),
  explain: async (request, context) => explainListing(request, "requests", context),
};

export const errorTraces: Operation<ListingRequest, never> = {
  name: "tracing.traces_errors",
  method: "POST",
  path: "/api/v2/tracing/traces/errors",
  access: "token",
  scope: "tracing",
  summary: "Traces with an exception",
  description:
    "One row for each trace of a site that has an exception event; `span_id` is the span of the first one that the filters accept.",
  request: listingBody,
  answer: z.array(traceSummary),
  sites: (request) => request.site_ids,
  mayBePartial: isFirstPage,
  run: (request, context) => printListing(request, "errors", context),
  explain: async (request, context) => explainListing(request, "errors", context),
};

async function* printListing(
  request: ListingRequest,
  candidates: ListingQuery["candidates"],
  context: Context,
): AsyncGenerator<RowBatch> {
  const rows = await listPage(
    request,
    candidates,
    toListingPage(request),
    createRequestBudget(context),
    context,
  );
  yield* printRows(rows, toSummaryRow);
}
