// Explains a trace listing: what its query means and which filters the index can narrow by.
import { type Compare, listComparisons } from "../../log-query/ast.ts";
import type { ListingQuery, TraceField, TraceFilter } from "../../store/span-analytics.ts";
import { decodeDigestNames, derivePushdown, listRequiredLeaves } from "../../tracing/listing/pushdown.ts";
import { printTraceQuery } from "../../tracing/listing/trace-query.ts";
import { printTimeRange } from "../runtime/explain.ts";
import type { Context } from "../runtime/operation.ts";
import { toListingPage } from "./listing-page.ts";
import type { TracesQuery } from "./query-schema.ts";
import { buildFilter, listSpanParts, resolveRanges } from "./read-traces.ts";

/** What is read for a listing, and by which filter its rows are chosen. */
export function explainListing(
  request: TracesQuery,
  candidates: ListingQuery["candidates"],
  context: Context,
) {
  const { by, order, perPage } = toListingPage(request);
  const filter = buildFilter(request);
  const required = listRequiredLeaves(filter.query);
  return {
    query: request.query ?? "",
    means: printTraceQuery(filter.query),
    candidates,
    by,
    order,
    per_page: perPage,
    document_limit: context.limits.documents,
    filters: explainFilters(filter, candidates),
    leaves: listComparisons(filter.query).map((leaf) => {
      const isRequired = required.includes(leaf) && !isBackgroundNamespace(leaf);
      const why = isRequired ? explainNarrowing(leaf.field) : verifiedReasons[leaf.field.kind];
      return { leaf: printTraceQuery(leaf), by: isRequired ? "candidates" : "documents", why };
    }),
    sources: resolveRanges(request, context).flatMap(({ ids, range }) =>
      listSpanParts(ids, context).map(({ backend, source: { site, index, layout } }) => {
        return { site_id: site, backend, index, layout, range: printTimeRange(range) };
      }),
    ),
    notes: [
      "requests are chosen on the documents; the index narrows what is read as far as it surely can",
      ...(by === "duration" ? ["by duration the whole range may have to be looked at"] : []),
    ],
  };
}

/** A trace's row is one of its requests, chosen among all that the filters accept: no index knows which. */
const verifiedReasons: Readonly<Record<TraceField["kind"], string>> = {
  tag: "a tag is that of the trace's row, and attributes of several names may be one tag",
  row: "the field is that of the trace's row, and is made of several fields of its span",
  any: "a bare word may be in the action or in any tag of the trace's row",
};

/** Of a leaf without which there is no row. */
function explainNarrowing(field: TraceField): string {
  if (field.kind === "row" && (field.name === "trace_id" || field.name === "span_id"))
    return "only the trace that it names is read; rows are verified";
  return narrowing.why;
}

/** What no attribute names is of this namespace too, and no index knows what an entry lacks in every form. */
const backgroundNamespace = "background";

function isBackgroundNamespace({ field, value }: Compare<TraceField>): boolean {
  return field.kind === "row" && field.name === "namespace" && value === backgroundNamespace;
}

const narrowing = {
  by: "candidates",
  why: "the index narrows what is read where the field is mapped; rows are verified",
};

/** Which of a listing's own filters make a source send less, as `src/tracing/listing/pushdown.ts` says. */
function explainFilters(filter: TraceFilter, candidates: ListingQuery["candidates"]) {
  const { namespace, action, minDuration, digests } = filter;
  const { errors } = derivePushdown(filter);
  const ofDigests =
    candidates === "errors" && errors !== undefined
      ? { by: "candidates", why: "the index narrows which exceptions are read; rows are verified" }
      : decodeDigestNames(digests) === undefined
        ? { by: "documents", why: "a digest that exceptions carry themselves does not tell whose they are" }
        : {
            by: "candidates",
            why: "a digest of ours tells the action, by which the index narrows; rows are verified",
          };
  const ofBackground = { by: "documents", why: "entries of most kinds that no attribute names are of it" };
  const asked = [
    {
      filter: "namespace",
      value: namespace,
      told: namespace === backgroundNamespace ? ofBackground : narrowing,
    },
    { filter: "action_name", value: action, told: narrowing },
    { filter: "duration", value: minDuration, told: narrowing },
    { filter: "digests", value: digests, told: ofDigests },
  ];
  return asked.flatMap(({ filter, value, told }) => (value === undefined ? [] : [{ filter, ...told }]));
}
