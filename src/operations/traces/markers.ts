// Markers of deploys, as existing clients ask for them: the revisions that requests of a site name, each with its first and
// last sight in a range.
import type { SpanPart } from "../../access/sites.ts";
import { mapConcurrent } from "../../core/async/concurrency.ts";
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
 * traces. Of all namespaces, they are counted as the figures of deploys are; of some, each request of the range is read.
 */
export async function listDeployMarkers(
  site: string,
  range: TimeRange,
  namespaces: readonly string[],
  context: Context,
): Promise<readonly DeployMarker[]> {
  const traces = context.sites.get(site)?.traces;
  if (traces === undefined || range.from > range.to) return [];
  const budget = createRequestBudget(context);
  const found =
    namespaces.length === 0
      ? await countRevisions(traces, range, budget, context)
      : await readRevisions(traces, range, namespaces, budget, context);
  const markers = [...found].map(([revision, seen]) => ({ revision, ...seen }));
  const isNew = await mapConcurrent(
    markers,
    maxLookups,
    async ({ revision }) => !(await hasEarlierRequest(traces, revision, range, namespaces, budget, context)),
    context.signal,
  );
  return markers
    .filter((_, index) => isNew[index])
    .toSorted((a, b) => compare(b.first, a.first) || compare(a.revision, b.revision));
}

const maxLookups = 4;

async function countRevisions(
  { store, source }: SpanPart,
  range: TimeRange,
  budget: Budget,
  { signal }: Context,
): Promise<Sights> {
  const stats = await store.statsOfRevisions({ sources: [source], range, budget }, signal);
  return new Map(
    [...stats].map(([revision, { first_seen: first, last_seen: last, count: requests }]) => [
      revision,
      { first, last, requests },
    ]),
  );
}

async function readRevisions(
  { store, source }: SpanPart,
  range: TimeRange,
  namespaces: readonly string[],
  budget: Budget,
  { signal }: Context,
): Promise<Sights> {
  const found: Sights = new Map();
  const scan = { sources: [source], range, select: "entries", pushdown: { namespaces }, budget } as const;
  for await (const batch of store.scan({ ...scan, withoutEvents: true }, signal)) {
    for (const span of batch)
      if (isRequest(span) && namespaces.includes(deriveNames(span).namespace)) addRequest(found, span);
  }
  return found;
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
  const { from } = resolveRange(site, context.now());
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
