// Requests by action: their number, failures, mean duration, and whether any has an N+1 query.

import { mapInTurns } from "../core/async/turns.ts";
import type { ActionRow, Span } from "../core/rows.ts";
import type { ActionsQuery } from "../store/span-analytics.ts";
import type { SpanReader, SpanScan } from "../store/spans.ts";
import { createDurationStats, type DurationStats } from "./duration-stats.ts";
import { type ActionTraces, createActionTraces, findActionsWithNpo } from "./n-plus-one-actions.ts";
import { trackBudget } from "./spans/read-budget.ts";
import { type ActionNames, deriveNames, formatActionKey, isRequest } from "./spans/requests.ts";
import { readTallies } from "./spans/span-tally.ts";

interface ActionGroup {
  readonly names: ActionNames;
  readonly stats: DurationStats;
}

/** `SpanAnalytics.actions`: a row for each action, in the order in which the first request of each is read. */
export async function findActions(
  reader: SpanReader,
  query: ActionsQuery,
  signal: AbortSignal,
): Promise<readonly ActionRow[]> {
  const { budget, spent } = trackBudget(query.budget);
  const tracked = { ...query, budget };
  const tally = await tallyActions(reader, tracked, signal);
  const scan = buildEntryScan(tracked);
  const accepts = (span: Span): boolean => isSelectedRequest(tracked, span);
  const search = { ...tally, sources: query.sources, scan, accepts, actions: tally.groups.size, spent };
  const withNpo = await findActionsWithNpo(reader, search, signal);
  const toRow = ([key, { names, stats }]: readonly [string, ActionGroup]): ActionRow => ({
    ...names,
    count: stats.count(),
    error_count: stats.errorCount(),
    mean: stats.mean(),
    has_npo: withNpo.has(key),
  });
  return mapInTurns(tally.groups, toRow, signal);
}

interface ActionTally {
  /** By the key of the action. */
  readonly groups: ReadonlyMap<string, ActionGroup>;
  readonly requests: number;
  /** Of the requests that were read one by one. */
  readonly traces: ActionTraces;
  /** Whether the store aggregated some of the requests, whose traces are not known. */
  readonly isAggregated: boolean;
}

async function tallyActions(
  reader: SpanReader,
  query: ActionsQuery,
  signal: AbortSignal,
): Promise<ActionTally> {
  const groups = new Map<string, ActionGroup>();
  const traces = createActionTraces(query.budget);
  let requests = 0;
  let isAggregated = false;
  for await (const batch of readTallies(reader, { ...buildEntryScan(query), by: "request" }, signal)) {
    for (const tally of batch) {
      const { span, isSingle } = tally;
      if (!isSelectedRequest(query, span)) continue;
      const names = deriveNames(span);
      const key = formatActionKey(names);
      const group = groups.get(key) ?? { names, stats: createDurationStats() };
      group.stats.addTally(tally);
      groups.set(key, group);
      requests += tally.spans;
      if (isSingle) traces.add(key, span);
      else isAggregated = true;
    }
  }
  return { groups, requests, traces, isAggregated };
}

function buildEntryScan({ sources, range, namespaces, revision, action, budget }: ActionsQuery): SpanScan {
  const pushdown = {
    revision,
    actions: action === undefined ? undefined : [action],
    namespaces: namespaces.length === 0 ? undefined : namespaces,
  };
  return { sources, range, select: "entries", pushdown, withoutEvents: true, budget };
}

function isSelectedRequest({ namespaces, action, revision }: ActionsQuery, span: Span): boolean {
  if (!isRequest(span)) return false;
  const names = deriveNames(span);
  return (
    (namespaces.length === 0 || namespaces.includes(names.namespace)) &&
    (action === undefined || names.action === action) &&
    (revision === undefined || span.revision === revision)
  );
}
