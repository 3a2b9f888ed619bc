// All that the API asks of spans, from the two primitives of a reader. This is the definition of every figure, and what
// a store falls back to where its source cannot answer natively.
import type { ActionRow, RevisionStats, TraceLocation } from "../model.ts";
import type { ActionsQuery, LocateQuery, RevisionQuery, SpanAnalytics, SpanReader } from "../store.ts";
import { findActionEdges, findSiteEdges } from "./edges.ts";
import { findSlowEventActions, findSlowEvents } from "./events.ts";
import { exceptionsOf } from "./exception.ts";
import { createFigures, type Figures } from "./figures.ts";
import { listSummaries } from "./listing.ts";
import { climb, collect, entryKey, findEntriesWithNpo } from "./lookup.ts";
import { isRequest, type Names, namesOf } from "./request.ts";

export function analyticsOver(reader: SpanReader): SpanAnalytics {
  return {
    summaries: (query, signal) => listSummaries(reader, query, signal),
    locate: (query, signal) => locate(reader, query, signal),
    actions: (query, signal) => findActions(reader, query, signal),
    siteEdges: (query, signal) => findSiteEdges(reader, query, signal),
    actionEdges: (query, signal) => findActionEdges(reader, query, signal),
    slowEvents: (query, signal) => findSlowEvents(reader, query, signal),
    slowEventActions: (query, signal) => findSlowEventActions(reader, query, signal),
    revisionStats: (query, signal) => findRevision(reader, query, signal),
  };
}

async function locate(
  reader: SpanReader,
  { sources, traceId, budget }: LocateQuery,
  signal: AbortSignal,
): Promise<TraceLocation> {
  const find = (select: "entries" | "exceptions") =>
    collect(reader.find({ sources, of: { by: "trace", traceIds: [traceId], select }, budget }, signal));
  const entries = await find("entries");
  const spans = await find("exceptions");
  const family = await climb(reader, sources, spans, budget, signal);
  const performance = entries.filter(isRequest).map((span) => {
    const { namespace, action: action_name } = namesOf(span);
    return { site_id: span.site_id, namespace, action_name };
  });
  const errors = spans.flatMap((span) =>
    exceptionsOf(span, namesOf(family.entryOf(span) ?? span)).map(({ digest, name }) => {
      return { site_id: span.site_id, digest, exception_name: name };
    }),
  );
  return { performance: distinct(performance), errors: distinct(errors) };
}

/** Each once, in the order of their first. */
export function distinct<T>(rows: readonly T[]): readonly T[] {
  return [...new Map(rows.map((row) => [JSON.stringify(row), row])).values()];
}

/** Traces that are searched for an N+1 at once: an action that is proved to have one needs no more of them. */
const npoChunk = 500;

async function findActions(
  reader: SpanReader,
  query: ActionsQuery,
  signal: AbortSignal,
): Promise<readonly ActionRow[]> {
  const { sources, range, namespaces, revision, action, budget } = query;
  const groups = new Map<string, { readonly names: Names; readonly figures: Figures }>();
  const groupOfEntry = new Map<string, string>();
  const groupsOfTrace = new Map<string, Set<string>>();
  const narrow = { revision, action, namespaces: namespaces.length === 0 ? undefined : namespaces };
  for await (const batch of reader.scan({ sources, range, select: "entries", narrow, budget }, signal)) {
    for (const span of batch) {
      const names = namesOf(span);
      if (!isRequest(span) || !isAsked(query, names) || !isOf(revision, span.revision)) continue;
      const key = JSON.stringify(names);
      const group = groups.get(key) ?? { names, figures: createFigures() };
      group.figures.add(span);
      groups.set(key, group);
      groupOfEntry.set(entryKey(span), key);
      groupsOfTrace.set(span.trace_id, (groupsOfTrace.get(span.trace_id) ?? new Set()).add(key));
    }
  }
  const proved = new Set<string | undefined>();
  const isOpen = (traceId: string): boolean =>
    [...(groupsOfTrace.get(traceId) ?? [])].some((key) => !proved.has(key));
  const traceIds = [...groupsOfTrace.keys()];
  for (let start = 0; start < traceIds.length; start += npoChunk) {
    const open = traceIds.slice(start, start + npoChunk).filter(isOpen);
    if (open.length === 0) continue;
    const found = await findEntriesWithNpo(reader, sources, open, budget, signal);
    for (const entry of found) proved.add(groupOfEntry.get(entry));
  }
  return [...groups].map(([key, { names, figures }]) => ({
    ...names,
    count: figures.count(),
    error_count: figures.errorCount(),
    mean: figures.mean(),
    has_npo: proved.has(key),
  }));
}

function isAsked({ namespaces, action }: ActionsQuery, names: Names): boolean {
  if (namespaces.length > 0 && !namespaces.includes(names.namespace)) return false;
  return isOf(action, names.action);
}

function isOf(asked: string | undefined, text: string | undefined): boolean {
  return asked === undefined || asked === text;
}

async function findRevision(
  reader: SpanReader,
  { sources, range, revision, budget }: RevisionQuery,
  signal: AbortSignal,
): Promise<RevisionStats | undefined> {
  const figures = createFigures();
  const namespaces = new Set<string>();
  let seen: Pick<RevisionStats, "first_seen" | "last_seen"> | undefined;
  const scan = { sources, range, select: "entries", narrow: { revision }, budget } as const;
  for await (const batch of reader.scan(scan, signal)) {
    for (const span of batch) {
      if (!isRequest(span) || span.revision !== revision) continue;
      figures.add(span);
      namespaces.add(namesOf(span).namespace);
      seen = {
        first_seen: seen === undefined || span.end < seen.first_seen ? span.end : seen.first_seen,
        last_seen: seen === undefined || span.end > seen.last_seen ? span.end : seen.last_seen,
      };
    }
  }
  if (seen === undefined) return undefined;
  return {
    ...seen,
    count: figures.count(),
    error_count: figures.errorCount(),
    mean: figures.mean(),
    p_90: figures.percentile(90),
    p_95: figures.percentile(95),
    namespaces: [...namespaces].sort(),
  };
}
