// All that the API asks of spans, from the two primitives of a reader. This is the definition of every figure, and what
// a store falls back to where its source cannot answer natively.
import type { ActionRow, RevisionStats, Span, TraceLocation } from "../core/rows.ts";
import { fromMillis, type Instant, second, type TimeRange } from "../core/time.ts";
import type { ActionsQuery, LocateQuery, RevisionQuery, SpanAnalytics } from "../store/span-analytics.ts";
import type { SpanReader, SpanScan } from "../store/spans.ts";
import { createDurationDistribution, createDurationStats, type DurationStats } from "./duration-stats.ts";
import { listSummaries } from "./listing/listing.ts";
import { findActionEdges, findSiteEdges } from "./service-edges.ts";
import { findSlowEventActions, findSlowEvents } from "./slow-events.ts";
import {
  findEntriesWithNpo,
  findNPlusOnes,
  formatEntryKey,
  loadAncestors,
  npoThreshold,
  readAllSpans,
} from "./spans/entry-lookup.ts";
import { listExceptions } from "./spans/exceptions.ts";
import { BudgetShareSpent, createBudgetShare, trackBudget } from "./spans/read-budget.ts";
import { type ActionNames, deriveNames, formatActionKey, isRequest } from "./spans/requests.ts";
import { readTallies } from "./spans/span-tally.ts";

export function createSpanAnalytics(reader: SpanReader): SpanAnalytics {
  return {
    summaries: (query, signal) => listSummaries(reader, query, signal),
    locate: (query, signal) => locateTrace(reader, query, signal),
    actions: (query, signal) => findActions(reader, query, signal),
    siteEdges: (query, signal) => findSiteEdges(reader, query, signal),
    actionEdges: (query, signal) => findActionEdges(reader, query, signal),
    slowEvents: (query, signal) => findSlowEvents(reader, query, signal),
    slowEventActions: (query, signal) => findSlowEventActions(reader, query, signal),
    revisionStats: (query, signal) => findRevisionStats(reader, query, signal),
  };
}

async function locateTrace(
  reader: SpanReader,
  { sources, traceId, budget }: LocateQuery,
  signal: AbortSignal,
): Promise<TraceLocation> {
  const find = (select: "entries" | "exceptions") =>
    readAllSpans(reader.find({ sources, of: { by: "trace", traceIds: [traceId], select }, budget }, signal));
  const [entries, spans] = await Promise.all([find("entries"), find("exceptions")]);
  const family = await loadAncestors(reader, sources, spans, budget, signal);
  const performance = entries.filter(isRequest).map((span) => {
    const { namespace, action: action_name } = deriveNames(span);
    return { site_id: span.site_id, namespace, action_name };
  });
  const errors = spans.flatMap((span) =>
    listExceptions(span, deriveNames(family.findEntry(span) ?? span)).map(({ digest, name }) => {
      return { site_id: span.site_id, digest, exception_name: name };
    }),
  );
  return { performance: deduplicateRows(performance), errors: deduplicateRows(errors) };
}

/** Each once, in the order of their first. */
export function deduplicateRows<T>(rows: readonly T[]): readonly T[] {
  return [...new Map(rows.map((row) => [JSON.stringify(row), row])).values()];
}

// ---- Actions ------------------------------------------------------------------------------------------------

interface ActionGroup {
  readonly names: ActionNames;
  readonly figures: DurationStats;
}

async function findActions(
  reader: SpanReader,
  asked: ActionsQuery,
  signal: AbortSignal,
): Promise<readonly ActionRow[]> {
  const groups = new Map<string, ActionGroup>();
  const traces = createActionTraces();
  const { budget, spent } = trackBudget(asked.budget);
  const query = { ...asked, budget };
  let requests = 0;
  let counted = false;
  for await (const batch of readTallies(reader, { ...buildEntryScan(query), by: "request" }, signal)) {
    for (const one of batch) {
      const { span, isSingle: whole } = one;
      if (!isRequested(query, span)) continue;
      const names = deriveNames(span);
      const key = formatActionKey(names);
      const group = groups.get(key) ?? { names, figures: createDurationStats() };
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
    counted &&
    requests > maxRequestsByTraces &&
    (await proveFromCandidateParents(reader, query, found, spent, signal));
  if (!isProved) {
    if (counted) {
      for await (const batch of reader.scan(buildEntryScan(query), signal)) {
        for (const span of batch)
          if (isRequested(query, span)) traces.add(formatActionKey(deriveNames(span)), span);
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

function buildEntryScan({ sources, range, namespaces, revision, action, budget }: ActionsQuery): SpanScan {
  const pushdown = {
    revision,
    actions: action === undefined ? undefined : [action],
    namespaces: namespaces.length === 0 ? undefined : namespaces,
  };
  return { sources, range, select: "entries", pushdown: pushdown, withoutEvents: true, budget };
}

function isRequested(query: ActionsQuery, span: Span): boolean {
  return (
    isRequest(span) &&
    isSelectedAction(query, deriveNames(span)) &&
    isUnsetOrEqual(query.revision, span.revision)
  );
}

/** Of so many counted requests the traces are looked at; of more, the index is asked who has many children. */
const maxRequestsByTraces = 5_000;
/** Traces that are searched for an N+1 at once: an action that is proved to have one needs no more of them. */
const tracesPerNpoSearch = 500;
/** Parents of an action whose children are read first; most that have many children have them of one statement. */
const firstParentsPerAction = 8;
/** Parents that are looked up at once. */
const maxParentsPerRound = 4_000;

/** What of a guess may be missing. */
const estimateMargin = 1.25;

/** What is known of the actions; those that are proved to have an N+1 are added. */
interface NpoProgress {
  readonly proved: Set<string>;
  readonly actions: number;
  readonly requests: number;
}

/**
 * Proves the actions with an N+1 from the only spans that may have so many children, whenever these were; false where
 * nobody knows them, or where reading the traces of the requests is the cheaper way. As long as that way is open, so
 * much of the budget is left for it.
 */
async function proveFromCandidateParents(
  reader: SpanReader,
  query: ActionsQuery,
  found: NpoProgress,
  spent: () => number,
  signal: AbortSignal,
): Promise<boolean> {
  const { sources, range, budget } = query;
  const crowds = await reader.findNPlusOneParents?.({ sources, least: npoThreshold, budget }, signal);
  if (crowds === undefined) return false;
  const statements = await reader.count?.({ sources, range, select: "statements", budget }, signal);
  const left = budget.limit - spent();
  const ofTraces = statements === undefined ? left : (found.requests + statements) * estimateMargin;
  // Parents are looked up one by one, and so are the requests above them.
  if (ofTraces < left && crowds.length > found.requests) return false;
  const own = ofTraces < left ? createBudgetShare(budget, left - ofTraces) : budget;
  try {
    await proveByParents(reader, { ...query, budget: own }, crowds, found, signal);
    return true;
  } catch (error) {
    if (error instanceof BudgetShareSpent) return false;
    throw error;
  }
}

interface ActionTraces {
  readonly add: (action: string, entry: Span) => void;
  readonly listActions: (traceId: string) => ReadonlySet<string>;
  readonly findAction: (entryKey: string) => string | undefined;
  readonly listTraceIds: () => readonly string[];
}

function createActionTraces(): ActionTraces {
  const byEntry = new Map<string, string>();
  const byTrace = new Map<string, Set<string>>();
  return {
    add: (action, entry) => {
      byEntry.set(formatEntryKey(entry), action);
      byTrace.set(entry.trace_id, (byTrace.get(entry.trace_id) ?? new Set()).add(action));
    },
    listActions: (traceId) => byTrace.get(traceId) ?? new Set(),
    findAction: (key) => byEntry.get(key),
    listTraceIds: () => [...byTrace.keys()],
  };
}

/** The actions with an N+1, from the traces of their requests. */
async function proveByTraces(
  reader: SpanReader,
  { sources, budget }: ActionsQuery,
  traces: ActionTraces,
  proved: Set<string>,
  signal: AbortSignal,
): Promise<void> {
  const isOpen = (traceId: string): boolean =>
    [...traces.listActions(traceId)].some((action) => !proved.has(action));
  const traceIds = traces.listTraceIds();
  for (let start = 0; start < traceIds.length; start += tracesPerNpoSearch) {
    const open = traceIds.slice(start, start + tracesPerNpoSearch).filter(isOpen);
    if (open.length === 0) continue;
    for (const entry of await findEntriesWithNpo(reader, sources, open, budget, signal)) {
      const action = traces.findAction(entry);
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
  { proved, actions }: NpoProgress,
  signal: AbortSignal,
): Promise<void> {
  const { sources, range, budget } = query;
  const find = (by: "id" | "parent", spanIds: readonly string[]) =>
    readAllSpans(reader.find({ sources, of: { by, spanIds }, withoutEvents: true, budget }, signal));
  for (let start = 0, size = 100; start < parents.length && proved.size < actions; ) {
    const spans = await find("id", parents.slice(start, start + size));
    const family = await loadAncestors(reader, sources, spans, budget, signal);
    const actionOf = (span: Span): string | undefined => {
      const entry = family.findEntry(span);
      if (entry === undefined || entry.end < range.from || entry.end > range.to) return undefined;
      return isRequested(query, entry) ? formatActionKey(deriveNames(entry)) : undefined;
    };
    const open = Map.groupBy(spans, actionOf);
    open.delete(undefined);
    for (let from = 0, few = firstParentsPerAction; ; from += few, few *= 4) {
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
    size = Math.min(size * 16, maxParentsPerRound);
  }
}

function isSelectedAction({ namespaces, action }: ActionsQuery, names: ActionNames): boolean {
  if (namespaces.length > 0 && !namespaces.includes(names.namespace)) return false;
  return isUnsetOrEqual(action, names.action);
}

function isUnsetOrEqual(asked: string | undefined, text: string | undefined): boolean {
  return asked === undefined || asked === text;
}

// ---- Deploys ------------------------------------------------------------------------------------------------

async function findRevisionStats(
  reader: SpanReader,
  { sources, range, revision, budget }: RevisionQuery,
  signal: AbortSignal,
): Promise<RevisionStats | undefined> {
  const figures = createDurationDistribution();
  const namespaces = new Set<string>();
  const ends: Instant[] = [];
  let counted = false;
  const scan = {
    sources,
    range,
    select: "entries",
    pushdown: { revision },
    withoutEvents: true,
    budget,
  } as const;
  const isOne = (span: Span): boolean => isRequest(span) && span.revision === revision;
  for await (const batch of readTallies(reader, { ...scan, by: "deploy" }, signal)) {
    for (const one of batch) {
      const { span, isSingle: whole } = one;
      if (!isOne(span)) continue;
      figures.addTally(one);
      namespaces.add(deriveNames(span).namespace);
      if (whole) widenRange(ends, span.end);
      else counted = true;
    }
  }
  if (counted) {
    for (const order of ["asc", "desc"] as const) {
      const end = await findOutermostEnd(reader, scan, order, isOne, signal);
      if (end !== undefined) widenRange(ends, end);
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

function widenRange(ends: Instant[], end: Instant): void {
  const [first = end, last = end] = ends;
  ends[0] = end < first ? end : first;
  ends[1] = end > last ? end : last;
}

/** So far down a source is asked where to cut. */
const maxSplitPointRank = 10_000;
const minWindow: bigint = fromMillis(second);
const windowGrowth = 4n;

/**
 * The first or the last end of a scan's spans: read from the edge of the range on, as far as the source says. Where more
 * spans than it is asked for begin there and none ends (long requests, many at once), on in windows that grow.
 */
async function findOutermostEnd(
  reader: SpanReader,
  scan: SpanScan,
  order: "asc" | "desc",
  accepts: (span: Span) => boolean,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  const { from, to } = scan.range;
  let size = 0n;
  for (let nth = 16; ; nth *= 16) {
    if (nth <= maxSplitPointRank) {
      const cut = await reader.findSplitPoint?.({ ...scan, by: "time", order, nth }, signal);
      size = cut === undefined ? to - from : order === "asc" ? cut - from : to - cut;
    } else size = size * windowGrowth > minWindow ? size * windowGrowth : minWindow;
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
