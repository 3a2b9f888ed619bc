// Finds the actions that have a request with an N+1 query. There are two ways: through the traces of the requests, or, for
// very many requests, through the candidate parents that the store lists.

import type { Span } from "../core/rows.ts";
import { allTime } from "../core/time.ts";
import type { Budget, SpanReader, SpanScan, SpanSources } from "../store/spans.ts";
import { findSpans, formatEntryKey, loadAncestors } from "./spans/entry-lookup.ts";
import { findEntriesWithNpo, findNPlusOnes, npoThreshold } from "./spans/n-plus-one.ts";
import { createBudgetShare, releaseAfter, suppressShareSpent } from "./spans/read-budget.ts";
import { type AncestorIndex, deriveNames, formatActionKey } from "./spans/requests.ts";

/** Up to so many requests, their traces are searched. */
const maxRequestsByTraces = 5_000;
/** Traces per search. An action that is known to have an N+1 needs no further traces. */
const tracesPerSearch = 500;
/** The parents of an action whose children are read first: most candidates do have an N+1. */
const firstParentsPerAction = 8;
/** Candidate parents that are looked up first, and at most at once. */
const parentsPerRound = { first: 100, max: 4_000 } as const;
/** Reading a span by its trace costs about so many times as much as the source's search through one query of any time. */
const readingOverSearching = 20;
/** And searching the queries of a request by its trace costs about so many times as much. */
const namingOverSearching = 6;
/** The factor by which an estimate may be too low. */
const estimateMargin = 1.25;

interface NpoSearch {
  readonly sources: SpanSources;
  /** The scan of the requests. */
  readonly scan: SpanScan;
  /** Whether a span of the scan is one of the requests. */
  readonly accepts: (span: Span) => boolean;
  readonly requests: number;
  readonly actions: number;
  /** The traces of the requests that were read one by one. */
  readonly traces: ActionTraces;
  /** Whether the source aggregated some of the requests, so that `traces` lacks theirs. */
  readonly isAggregated: boolean;
  /** What is spent of the budget already. */
  readonly spent: () => number;
}

/** The keys of the actions with an N+1. */
export async function findActionsWithNpo(
  reader: SpanReader,
  search: NpoSearch,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const { scan, accepts, requests, traces, isAggregated } = search;
  const found = new Set<string>();
  if (isAggregated && requests > maxRequestsByTraces) {
    const isDone = await searchCandidates(reader, search, found, signal);
    if (isDone) return found;
  }
  if (isAggregated) {
    for await (const batch of reader.scan(scan, signal)) {
      for (const span of batch) if (accepts(span)) traces.add(formatActionKey(deriveNames(span)), span);
    }
  }
  await searchTraces(reader, search, found, signal);
  return found;
}

// ---- By traces ------------------------------------------------------------------------------------------------

/** The actions of requests, by their traces and entries. */
export interface ActionTraces {
  readonly add: (action: string, entry: Span) => void;
  /** The actions of the requests in a trace. */
  readonly listActions: (traceId: string) => readonly string[];
  /** Several where a request was sent more than once, with other names. */
  readonly findActions: (entryKey: string) => readonly string[];
  readonly listTraceIds: () => readonly string[];
}

/** Counts what it keeps as held by the budget. */
export function createActionTraces({ held }: Budget): ActionTraces {
  const byEntry = createActionSets();
  const byTrace = createActionSets();
  return {
    add: (action, entry) => {
      const added = byEntry.add(formatEntryKey(entry), action) + byTrace.add(entry.trace_id, action);
      if (added > 0) held?.hold(bytesPerKey * added);
    },
    listActions: byTrace.list,
    findActions: byEntry.list,
    listTraceIds: byTrace.listKeys,
  };
}

/** What V8 takes for a key and the first action of it, roughly. */
const bytesPerKey = 150;

interface ActionSets {
  /** Returns how many actions were added: none, or one. */
  readonly add: (key: string, action: string) => number;
  readonly list: (key: string) => readonly string[];
  readonly listKeys: () => readonly string[];
}

/** Actions by keys, of which there may be hundred thousands: most have one action, and no set of their own. */
function createActionSets(): ActionSets {
  const firsts = new Map<string, string>();
  const others = new Map<string, Set<string>>();
  return {
    add: (key, action) => {
      const first = firsts.get(key);
      if (first === undefined) {
        firsts.set(key, action);
        return 1;
      }
      if (first === action || others.get(key)?.has(action) === true) return 0;
      others.set(key, (others.get(key) ?? new Set()).add(action));
      return 1;
    },
    list: (key) => {
      const first = firsts.get(key);
      return first === undefined ? [] : [first, ...(others.get(key) ?? [])];
    },
    listKeys: () => [...firsts.keys()],
  };
}

/** Searches the traces of actions that are not found yet. */
async function searchTraces(
  reader: SpanReader,
  { sources, scan: { budget }, traces }: NpoSearch,
  found: Set<string>,
  signal: AbortSignal,
): Promise<void> {
  const isOpen = (traceId: string): boolean =>
    traces.listActions(traceId).some((action) => !found.has(action));
  const traceIds = traces.listTraceIds();
  for (let start = 0; start < traceIds.length; start += tracesPerSearch) {
    const open = traceIds.slice(start, start + tracesPerSearch).filter(isOpen);
    if (open.length === 0) continue;
    for (const entry of await findEntriesWithNpo(reader, sources, open, budget, signal)) {
      for (const action of traces.findActions(entry)) found.add(action);
    }
  }
}

// ---- By candidate parents -------------------------------------------------------------------------------------

/**
 * Searches the parents that may have an N+1, in the traces of the requests or whenever they were. Returns false where the
 * store cannot list them, or where reading the traces costs less. As long as these can be read, their part of the budget is
 * not touched.
 */
async function searchCandidates(
  reader: SpanReader,
  search: NpoSearch,
  found: Set<string>,
  signal: AbortSignal,
): Promise<boolean> {
  if (reader.findNPlusOneParents === undefined) return false;
  const { budget } = search.scan;
  const left = budget.limit - search.spent();
  const cost = await estimateCostOfTraces(reader, search, signal);
  const costOfTraces = cost !== undefined && cost < left ? cost : undefined;
  const share = costOfTraces === undefined ? budget : createBudgetShare(budget, left - costOfTraces);
  const searching = async (): Promise<boolean> => {
    const parents = await listCandidates(reader, search, costOfTraces, share, signal);
    if (parents === undefined) return false;
    await searchParents(reader, search, parents, share, found, signal);
    return true;
  };
  return (await suppressShareSpent(searching())) ?? false;
}

/**
 * Parents that may have an N+1. Undefined where the store cannot list them, or where reading the traces costs less;
 * `costOfTraces` is undefined where these are too many to be read.
 */
async function listCandidates(
  reader: SpanReader,
  { sources, requests, scan }: NpoSearch,
  costOfTraces: number | undefined,
  budget: Budget,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  const searched = { sources, select: "statements", budget } as const;
  const all = (await reader.count?.({ ...searched, range: allTime }, signal)) ?? 0;
  const canName = requests * namingOverSearching <= all;
  const traceIds = canName ? await reader.findTraceIds?.({ ...scan, budget }, signal) : undefined;
  const canRead = costOfTraces !== undefined && costOfTraces * readingOverSearching <= all;
  if (traceIds === undefined && canRead) return undefined;
  const query = { sources, least: npoThreshold, traceIds, budget };
  const parents = await reader.findNPlusOneParents?.(query, signal);
  // Each parent costs at least a look-up, and so does the request above it.
  const isTooMany = costOfTraces !== undefined && parents !== undefined && parents.length > requests;
  return isTooMany ? undefined : parents;
}

/** About how many spans are read for the traces of the requests; undefined where the source cannot tell. */
async function estimateCostOfTraces(
  reader: SpanReader,
  { sources, requests, scan: { range, budget } }: NpoSearch,
  signal: AbortSignal,
): Promise<number | undefined> {
  const statements = await reader.count?.({ sources, range, select: "statements", budget }, signal);
  return statements === undefined ? undefined : (requests + statements) * estimateMargin;
}

/**
 * Searches candidate parents in growing rounds. The request of each is looked up before its children, so that no children
 * are read for actions that are found already.
 */
async function searchParents(
  reader: SpanReader,
  search: NpoSearch,
  parents: readonly string[],
  budget: Budget,
  found: Set<string>,
  signal: AbortSignal,
): Promise<void> {
  for (
    let start = 0, size: number = parentsPerRound.first;
    start < parents.length && found.size < search.actions;
  ) {
    const spanIds = parents.slice(start, start + size);
    await releaseAfter(budget, (own) => searchRound(reader, search, spanIds, own, found, signal));
    start += size;
    size = Math.min(size * 16, parentsPerRound.max);
  }
}

async function searchRound(
  reader: SpanReader,
  search: NpoSearch,
  spanIds: readonly string[],
  budget: Budget,
  found: Set<string>,
  signal: AbortSignal,
): Promise<void> {
  const { sources } = search;
  const of = { by: "id", spanIds } as const;
  const spans = await findSpans(reader, { sources, of, withoutEvents: true, budget }, signal);
  const ancestors = await loadAncestors(reader, sources, spans, budget, signal);
  const findAction = (span: Span): string | undefined => findSelectedAction(search, ancestors, span);
  const parentsByAction = Map.groupBy(spans, findAction);
  for await (const children of readChildren(reader, search, parentsByAction, budget, found, signal)) {
    for (const span of await findNPlusOnes(children, signal)) {
      const action = findAction(span);
      if (action !== undefined) found.add(action);
    }
  }
}

/** The action of the request above a span, if it is one of the requests. */
function findSelectedAction(
  { scan: { range }, accepts }: NpoSearch,
  ancestors: AncestorIndex,
  span: Span,
): string | undefined {
  const entry = ancestors.findEntry(span);
  if (entry === undefined || entry.end < range.from || entry.end > range.to) return undefined;
  return accepts(entry) ? formatActionKey(deriveNames(entry)) : undefined;
}

/** The children of a few parents of each action that is not in `found`, then of four times as many, and so on. */
async function* readChildren(
  reader: SpanReader,
  { sources }: NpoSearch,
  parentsByAction: ReadonlyMap<string | undefined, readonly Span[]>,
  budget: Budget,
  found: ReadonlySet<string>,
  signal: AbortSignal,
): AsyncGenerator<readonly Span[]> {
  for (let from = 0, count = firstParentsPerAction; ; from += count, count *= 4) {
    const parents: Span[] = [];
    for (const [action, own] of parentsByAction) {
      if (action !== undefined && !found.has(action)) parents.push(...own.slice(from, from + count));
    }
    if (parents.length === 0) return;
    const spanIds = [...new Set(parents.map(({ span_id }) => span_id))];
    const of = { by: "parent", spanIds } as const;
    yield await findSpans(reader, { sources, of, withoutEvents: true, budget }, signal);
  }
}
