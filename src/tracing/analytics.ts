// All that the API asks of spans, from the two primitives of a reader. This is the definition of every figure, and what
// a store falls back to where its source cannot answer natively.
import type { ActionRow, RevisionStats, Span, TraceLocation } from "../core/rows.ts";
import { fromMillis, type Instant, second, type TimeRange } from "../core/time.ts";
import type { SpanReader, SpanScan } from "../store/span-reader.ts";
import type { ActionsQuery, LocateQuery, RevisionQuery, SpanAnalytics } from "../store/store.ts";
import { createDistribution, createFigures, type Figures } from "./duration-stats.ts";
import { listSummaries } from "./listing/listing.ts";
import { findActionEdges, findSiteEdges } from "./service-edges.ts";
import { findSlowEventActions, findSlowEvents } from "./slow-events.ts";
import {
  climb,
  collect,
  entryKey,
  findEntriesWithNpo,
  findNPlusOnes,
  npoThreshold,
} from "./spans/entry-lookup.ts";
import { exceptionsOf } from "./spans/exceptions.ts";
import { ShareSpent, shareOf, watch } from "./spans/read-budget.ts";
import { actionKey, isRequest, type Names, namesOf } from "./spans/requests.ts";
import { tally } from "./spans/span-tally.ts";

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
  const [entries, spans] = await Promise.all([find("entries"), find("exceptions")]);
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

// ---- Actions ------------------------------------------------------------------------------------------------

interface ActionGroup {
  readonly names: Names;
  readonly figures: Figures;
}

async function findActions(
  reader: SpanReader,
  asked: ActionsQuery,
  signal: AbortSignal,
): Promise<readonly ActionRow[]> {
  const groups = new Map<string, ActionGroup>();
  const traces = createTracesOfActions();
  const { budget, spent } = watch(asked.budget);
  const query = { ...asked, budget };
  let requests = 0;
  let counted = false;
  for await (const batch of tally(reader, { ...scanOf(query), by: "request" }, signal)) {
    for (const one of batch) {
      const { span, whole } = one;
      if (!isRequested(query, span)) continue;
      const names = namesOf(span);
      const key = actionKey(names);
      const group = groups.get(key) ?? { names, figures: createFigures() };
      group.figures.addTally(one);
      groups.set(key, group);
      requests += one.spans;
      if (whole) traces.add(key, span);
      else counted = true;
    }
  }
  const proved = new Set<string>();
  const found = { proved, actions: groups.size, requests };
  const isProved =
    counted && requests > fewRequests && (await proveFromCrowds(reader, query, found, spent, signal));
  if (!isProved) {
    if (counted) {
      for await (const batch of reader.scan(scanOf(query), signal)) {
        for (const span of batch) if (isRequested(query, span)) traces.add(actionKey(namesOf(span)), span);
      }
    }
    await proveByTraces(reader, query, traces, proved, signal);
  }
  return [...groups].map(([key, { names, figures }]) => ({
    ...names,
    count: figures.count(),
    error_count: figures.errorCount(),
    mean: figures.mean(),
    has_npo: proved.has(key),
  }));
}

function scanOf({ sources, range, namespaces, revision, action, budget }: ActionsQuery): SpanScan {
  const narrow = {
    revision,
    actions: action === undefined ? undefined : [action],
    namespaces: namespaces.length === 0 ? undefined : namespaces,
  };
  return { sources, range, select: "entries", narrow, bare: true, budget };
}

function isRequested(query: ActionsQuery, span: Span): boolean {
  return isRequest(span) && isAsked(query, namesOf(span)) && isOf(query.revision, span.revision);
}

/** Of so many counted requests the traces are looked at; of more, the index is asked who has many children. */
const fewRequests = 5_000;
/** Traces that are searched for an N+1 at once: an action that is proved to have one needs no more of them. */
const npoChunk = 500;
/** Parents of an action whose children are read first; most that have many children have them of one statement. */
const firstParents = 8;
/** Parents that are looked up at once. */
const mostParents = 4_000;

/** What of a guess may be missing. */
const allowance = 1.25;

/** What is known of the actions; those that are proved to have an N+1 are added. */
interface Found {
  readonly proved: Set<string>;
  readonly actions: number;
  readonly requests: number;
}

/**
 * Proves the actions with an N+1 from the only spans that may have so many children, whenever these were; false where
 * nobody knows them, or where reading the traces of the requests is the cheaper way. As long as that way is open, so
 * much of the budget is left for it.
 */
async function proveFromCrowds(
  reader: SpanReader,
  query: ActionsQuery,
  found: Found,
  spent: () => number,
  signal: AbortSignal,
): Promise<boolean> {
  const { sources, range, budget } = query;
  const crowds = await reader.crowds?.({ sources, least: npoThreshold, budget }, signal);
  if (crowds === undefined) return false;
  const statements = await reader.count?.({ sources, range, select: "statements", budget }, signal);
  const left = budget.limit - spent();
  const ofTraces = statements === undefined ? left : (found.requests + statements) * allowance;
  // Parents are looked up one by one, and so are the requests above them.
  if (ofTraces < left && crowds.length > found.requests) return false;
  const own = ofTraces < left ? shareOf(budget, left - ofTraces) : budget;
  try {
    await proveByParents(reader, { ...query, budget: own }, crowds, found, signal);
    return true;
  } catch (error) {
    if (error instanceof ShareSpent) return false;
    throw error;
  }
}

interface TracesOfActions {
  readonly add: (action: string, entry: Span) => void;
  readonly actionsOf: (traceId: string) => ReadonlySet<string>;
  readonly actionOf: (entryKey: string) => string | undefined;
  readonly traceIds: () => readonly string[];
}

function createTracesOfActions(): TracesOfActions {
  const byEntry = new Map<string, string>();
  const byTrace = new Map<string, Set<string>>();
  return {
    add: (action, entry) => {
      byEntry.set(entryKey(entry), action);
      byTrace.set(entry.trace_id, (byTrace.get(entry.trace_id) ?? new Set()).add(action));
    },
    actionsOf: (traceId) => byTrace.get(traceId) ?? new Set(),
    actionOf: (key) => byEntry.get(key),
    traceIds: () => [...byTrace.keys()],
  };
}

/** The actions with an N+1, from the traces of their requests. */
async function proveByTraces(
  reader: SpanReader,
  { sources, budget }: ActionsQuery,
  traces: TracesOfActions,
  proved: Set<string>,
  signal: AbortSignal,
): Promise<void> {
  const isOpen = (traceId: string): boolean =>
    [...traces.actionsOf(traceId)].some((action) => !proved.has(action));
  const traceIds = traces.traceIds();
  for (let start = 0; start < traceIds.length; start += npoChunk) {
    const open = traceIds.slice(start, start + npoChunk).filter(isOpen);
    if (open.length === 0) continue;
    for (const entry of await findEntriesWithNpo(reader, sources, open, budget, signal)) {
      const action = traces.actionOf(entry);
      if (action !== undefined) proved.add(action);
    }
  }
}

/**
 * The same, from the only spans that can have so many children: first a few, which prove most of what there is. Whose
 * requests they belong to is looked up before their children are, so that of an action that is proved none are read.
 */
async function proveByParents(
  reader: SpanReader,
  query: ActionsQuery,
  parents: readonly string[],
  { proved, actions }: Found,
  signal: AbortSignal,
): Promise<void> {
  const { sources, range, budget } = query;
  const find = (by: "id" | "parent", spanIds: readonly string[]) =>
    collect(reader.find({ sources, of: { by, spanIds }, bare: true, budget }, signal));
  for (let start = 0, size = 100; start < parents.length && proved.size < actions; ) {
    const spans = await find("id", parents.slice(start, start + size));
    const family = await climb(reader, sources, spans, budget, signal);
    const actionOf = (span: Span): string | undefined => {
      const entry = family.entryOf(span);
      if (entry === undefined || entry.end < range.from || entry.end > range.to) return undefined;
      return isRequested(query, entry) ? actionKey(namesOf(entry)) : undefined;
    };
    const open = Map.groupBy(spans, actionOf);
    open.delete(undefined);
    for (let from = 0, few = firstParents; ; from += few, few *= 4) {
      for (const [action = "", own] of open)
        if (proved.has(action) || own.length <= from) open.delete(action);
      if (open.size === 0) break;
      const asked = [...open.values()].flatMap((own) => own.slice(from, from + few));
      const children = await find("parent", [...new Set(asked.map(({ span_id }) => span_id))]);
      for (const span of findNPlusOnes(children)) {
        const action = actionOf(span);
        if (action !== undefined) proved.add(action);
      }
    }
    start += size;
    size = Math.min(size * 16, mostParents);
  }
}

function isAsked({ namespaces, action }: ActionsQuery, names: Names): boolean {
  if (namespaces.length > 0 && !namespaces.includes(names.namespace)) return false;
  return isOf(action, names.action);
}

function isOf(asked: string | undefined, text: string | undefined): boolean {
  return asked === undefined || asked === text;
}

// ---- Deploys ------------------------------------------------------------------------------------------------

async function findRevision(
  reader: SpanReader,
  { sources, range, revision, budget }: RevisionQuery,
  signal: AbortSignal,
): Promise<RevisionStats | undefined> {
  const figures = createDistribution();
  const namespaces = new Set<string>();
  const ends: Instant[] = [];
  let counted = false;
  const scan = { sources, range, select: "entries", narrow: { revision }, bare: true, budget } as const;
  const isOne = (span: Span): boolean => isRequest(span) && span.revision === revision;
  for await (const batch of tally(reader, { ...scan, by: "deploy" }, signal)) {
    for (const one of batch) {
      const { span, whole } = one;
      if (!isOne(span)) continue;
      figures.addTally(one);
      namespaces.add(namesOf(span).namespace);
      if (whole) widen(ends, span.end);
      else counted = true;
    }
  }
  if (counted) {
    for (const order of ["asc", "desc"] as const) {
      const end = await findOutermost(reader, scan, order, isOne, signal);
      if (end !== undefined) widen(ends, end);
    }
  }
  const [first_seen, last_seen] = ends;
  if (first_seen === undefined || last_seen === undefined) return undefined;
  return {
    first_seen,
    last_seen,
    count: figures.count(),
    error_count: figures.errorCount(),
    mean: figures.mean(),
    p_90: figures.percentile(90),
    p_95: figures.percentile(95),
    namespaces: [...namespaces].sort(),
  };
}

function widen(ends: Instant[], end: Instant): void {
  const [first = end, last = end] = ends;
  ends[0] = end < first ? end : first;
  ends[1] = end > last ? end : last;
}

/** So far down a source is asked where to cut. */
const mostFromSource = 10_000;
const leastWindow: bigint = fromMillis(second);
const growth = 4n;

/**
 * The first or the last end of a scan's spans: read from the edge of the range on, as far as the source says. Where more
 * spans than it is asked for begin there and none ends (long requests, many at once), on in windows that grow.
 */
async function findOutermost(
  reader: SpanReader,
  scan: SpanScan,
  order: "asc" | "desc",
  accepts: (span: Span) => boolean,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  const { from, to } = scan.range;
  let size = 0n;
  for (let nth = 16; ; nth *= 16) {
    if (nth <= mostFromSource) {
      const cut = await reader.milestone?.({ ...scan, by: "time", order, nth }, signal);
      size = cut === undefined ? to - from : order === "asc" ? cut - from : to - cut;
    } else size = size * growth > leastWindow ? size * growth : leastWindow;
    if (size < 0n) size = 0n;
    const isWhole = size >= to - from;
    const window = order === "asc" ? { from, to: from + size } : { from: to - size, to };
    const range = isWhole ? scan.range : (window as TimeRange);
    let outermost: Instant | undefined;
    for await (const batch of reader.scan({ ...scan, range }, signal)) {
      for (const span of batch) {
        if (!accepts(span)) continue;
        const isFurther =
          outermost === undefined || (order === "asc" ? span.end < outermost : span.end > outermost);
        if (isFurther) outermost = span.end;
      }
    }
    if (outermost !== undefined || isWhole) return outermost;
  }
}
