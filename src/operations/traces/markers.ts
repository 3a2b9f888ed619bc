// Markers of deploys, as existing clients ask for them: the revisions that requests of a site name, each with its first and
// last sight in a range.
import type { SpanPart } from "../../access/sites.ts";
import { compare, type Span } from "../../core/rows.ts";
import type { Instant, TimeRange } from "../../core/time.ts";
import type { ListingQuery } from "../../store/span-analytics.ts";
import type { Budget } from "../../store/spans.ts";
import { deriveNames, isRequest } from "../../tracing/spans/requests.ts";
import type { Context } from "../runtime/operation.ts";
import { buildNamesFilter } from "./incidents.ts";
import { createRequestBudget, resolveRange } from "./read-traces.ts";

export interface DeployMarker {
  readonly revision: string;
  readonly first: Instant;
  readonly last: Instant;
  /** Requests of the range. */
  readonly requests: number;
}

/**
 * The deploys of a range, newest first: revisions whose first request of the retention lies in it. Empty for a site without
 * traces. Reads every request of the range, within the bound on documents.
 */
export async function listDeployMarkers(
  site: string,
  range: TimeRange,
  namespaces: readonly string[],
  context: Context,
): Promise<readonly DeployMarker[]> {
  const traces = context.sites.get(site)?.traces;
  if (traces === undefined || range.from > range.to) return [];
  const found: Sights = new Map();
  const budget = createRequestBudget(context);
  const pushdown = namespaces.length === 0 ? {} : { namespaces };
  const scan = { sources: [traces.source], range, select: "entries", pushdown, budget } as const;
  for await (const batch of traces.store.scan({ ...scan, withoutEvents: true }, context.signal)) {
    for (const span of batch) {
      if (!isRequest(span)) continue;
      if (namespaces.length === 0 || namespaces.includes(deriveNames(span).namespace))
        addRequest(found, span);
    }
  }
  const markers = [...found].map(([revision, seen]) => ({ revision, ...seen }));
  const isNew: boolean[] = [];
  for (const { revision } of markers)
    isNew.push(!(await hasEarlierRequest(traces, revision, range, namespaces, budget, context)));
  return markers
    .filter((_, index) => isNew[index])
    .toSorted((a, b) => compare(b.first, a.first) || compare(a.revision, b.revision));
}

/** Whether the revision answered requests between the retention bound and the range: then it was not deployed in the range. */
async function hasEarlierRequest(
  { store, source }: SpanPart,
  revision: string,
  range: TimeRange,
  namespaces: readonly string[],
  budget: Budget,
  context: Context,
): Promise<boolean> {
  const site = context.sites.get(source.site);
  if (site === undefined) return false;
  const { from } = resolveRange({}, site, context.now());
  const to = (range.from - 1n) as Instant;
  if (from > to) return false;
  const listing: ListingQuery = {
    sources: [source],
    candidates: "requests",
    range: { from, to },
    by: "time",
    order: "desc",
    filter: buildNamesFilter({ namespaces, revision }),
    expectedRows: 1,
    tieLimit: Number.POSITIVE_INFINITY,
    budget,
  };
  for await (const batch of store.summaries(listing, context.signal)) if (batch.length > 0) return true;
  return false;
}

type Sights = Map<string, { first: Instant; last: Instant; requests: number }>;

function addRequest(found: Sights, { revision = "", end }: Span): void {
  if (revision === "") return;
  const known = found.get(revision);
  if (known === undefined) {
    found.set(revision, { first: end, last: end, requests: 1 });
    return;
  }
  if (end < known.first) known.first = end;
  if (end > known.last) known.last = end;
  known.requests += 1;
}
