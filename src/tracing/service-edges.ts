// Service edges: who calls whom. Calls are counted and measured on the caller's side, and belong to the range by the caller's
// end. Upstream and downstream come from the same pairs, so that the downstream edges of A equal the upstream edges of B.

import { mapInTurns, takeTurns } from "../core/async/turns.ts";
import type { ActionEdge, Edge, Span } from "../core/rows.ts";
import { allTime } from "../core/time.ts";
import type { ActionEdges, ActionEdgesQuery, EdgesQuery, SiteEdges } from "../store/span-analytics.ts";
import type { SpanReader } from "../store/spans.ts";
import type { Call } from "./call-matching.ts";
import { type Calls, findCalls, listAllSources } from "./calls.ts";
import { createDurationDistribution, type DurationDistribution } from "./duration-stats.ts";
import { loadAncestors } from "./spans/entry-lookup.ts";
import { deriveNames, deriveNamesAbove, isRequest } from "./spans/requests.ts";

/** `SpanAnalytics.siteEdges`. */
export async function findSiteEdges(
  reader: SpanReader,
  query: EdgesQuery,
  signal: AbortSignal,
): Promise<SiteEdges> {
  const { upstream, downstream, internal } = listSiteCalls(await findCalls(reader, query, signal), query);
  return {
    upstream: await groupCalls(upstream, signal),
    downstream: await groupCalls(downstream, signal),
    internal: await groupCalls(internal, signal),
  };
}

/** `SpanAnalytics.actionEdges`. */
export async function findActionEdges(
  reader: SpanReader,
  query: ActionEdgesQuery,
  signal: AbortSignal,
): Promise<ActionEdges> {
  const { upstream, downstream } = await listActionCalls(reader, query, signal);
  return {
    upstream: await groupCalls(upstream, signal),
    downstream: await groupCalls(downstream, signal),
  };
}

/** Calls of one list of edges, and the edge to which each belongs; undefined for one that belongs to none. */
export interface KeyedCalls<Key> {
  readonly calls: readonly Call[];
  readonly deriveKey: (call: Call) => Key | undefined;
}

export type SiteEdgeKey = Pick<Edge, "service">;
export type ActionEdgeKey = Omit<ActionEdge, keyof Omit<Edge, "service">>;

/** The calls of `SpanAnalytics.siteEdges`: received from partners, made to others, and within the site. */
export function listSiteCalls(
  { made, received }: Calls,
  { sources: [{ site }] }: EdgesQuery,
): Readonly<Record<keyof SiteEdges, KeyedCalls<SiteEdgeKey>>> {
  const isInternal = ({ callee }: Call): boolean => callee?.site_id === site;
  const deriveKey = ({ caller, callee }: Call) => {
    const service = callee?.service_name ?? caller.peer;
    return service === undefined ? undefined : { service };
  };
  return {
    upstream: { calls: received, deriveKey: ({ caller }) => ({ service: caller.service_name }) },
    downstream: { calls: made.filter((call) => !isInternal(call)), deriveKey },
    internal: { calls: made.filter(isInternal), deriveKey },
  };
}

/** The calls of `SpanAnalytics.actionEdges`. */
export async function listActionCalls(
  reader: SpanReader,
  query: ActionEdgesQuery,
  signal: AbortSignal,
): Promise<Readonly<Record<keyof ActionEdges, KeyedCalls<ActionEdgeKey>>>> {
  const { made, received } = await findCalls(reader, query, signal);
  const wanted = formatEdgesAction(query);
  // A partner may have an action of the same name.
  const toAction = [...received, ...made].filter(
    ({ callee }) => callee?.site_id === query.sources[0].site && deriveEdgesAction(callee) === wanted,
  );
  const traceIds = await findTracesOfAction(reader, query, made, signal);
  const inTraces = made.filter(({ caller }) => traceIds.has(caller.trace_id));
  const callers = new Set([...inTraces, ...toAction].map(({ caller }) => caller));
  const ancestors = await loadAncestors(reader, listAllSources(query), [...callers], query.budget, signal);
  const fromAction = inTraces.filter(
    ({ caller }) => deriveEdgesAction(ancestors.findEntry(caller)) === wanted,
  );
  return {
    upstream: {
      calls: toAction,
      deriveKey: (call) => deriveUpstreamKey(call, ancestors.findEntry(call.caller)),
    },
    downstream: { calls: fromAction, deriveKey: deriveDownstreamKey },
  };
}

/** Calls of the edges of many actions, and the action to whose edges each belongs, by `formatEdgesAction`. */
interface CallsByAction extends KeyedCalls<ActionEdgeKey> {
  readonly deriveAction: (call: Call) => string | undefined;
}

/** The calls of `SpanAnalytics.actionEdges`, of all actions of the site. */
export async function listCallsByAction(
  reader: SpanReader,
  { made, received }: Calls,
  query: EdgesQuery,
  signal: AbortSignal,
): Promise<Readonly<Record<keyof ActionEdges, CallsByAction>>> {
  const toSite = [...received, ...made].filter(({ callee }) => callee?.site_id === query.sources[0].site);
  const callers = new Set([...made, ...toSite].map(({ caller }) => caller));
  const ancestors = await loadAncestors(reader, listAllSources(query), [...callers], query.budget, signal);
  return {
    upstream: {
      calls: toSite,
      deriveAction: ({ callee }) => deriveEdgesAction(callee),
      deriveKey: (call) => deriveUpstreamKey(call, ancestors.findEntry(call.caller)),
    },
    downstream: {
      calls: made,
      deriveAction: ({ caller }) => deriveEdgesAction(ancestors.findEntry(caller)),
      deriveKey: deriveDownstreamKey,
    },
  };
}

/** The key of a call's edge at the called action; `entry` is the one above the caller. */
function deriveUpstreamKey(call: Call, entry: Span | undefined): ActionEdgeKey {
  const service = (entry ?? call.caller).service_name;
  return { service, ...deriveNamesAbove(entry), ...deriveEdgeKinds(call) };
}

/** The key of a call's edge at the calling action. */
function deriveDownstreamKey(call: Call): ActionEdgeKey | undefined {
  const { caller, callee } = call;
  if (callee !== undefined) {
    return { service: callee.service_name, ...deriveNames(callee), ...deriveEdgeKinds(call) };
  }
  return caller.peer === undefined ? undefined : { service: caller.peer, ...deriveEdgeKinds(call) };
}

/** The action whose edges a request has, by `formatEdgesAction`; undefined for what is no request. */
function deriveEdgesAction(entry: Span | undefined): string | undefined {
  if (entry === undefined || !isRequest(entry)) return undefined;
  return formatEdgesAction({ service: entry.service_name, ...deriveNames(entry) });
}

/** Identifies an action among those with edges. Service and namespace are compared as the API joins them. */
export function formatEdgesAction({
  service,
  namespace,
  action,
}: Pick<ActionEdgesQuery, "service" | "namespace" | "action">): string {
  return JSON.stringify([`${service}/${namespace}`, action]);
}

/** The traces of these calls in which the action has a request, so that no other caller's ancestors are read. */
async function findTracesOfAction(
  reader: SpanReader,
  query: ActionEdgesQuery,
  calls: readonly Call[],
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const { sources, budget, action } = query;
  const traceIds = [...new Set(calls.map(({ caller }) => caller.trace_id))];
  const of = { by: "trace", traceIds, select: "entries" } as const;
  const within = { range: allTime, pushdown: { actions: [action] } };
  const wanted = formatEdgesAction(query);
  const found = new Set<string>();
  for await (const batch of reader.find({ sources, of, within, withoutEvents: true, budget }, signal)) {
    for (const span of batch) if (deriveEdgesAction(span) === wanted) found.add(span.trace_id);
  }
  return found;
}

type EdgeKinds = Pick<ActionEdge, "span_kind" | "peer_span_kind" | "edge_type">;

function deriveEdgeKinds({ caller, callee, isLinked }: Call): EdgeKinds {
  const kinds = [caller.span_kind, callee?.span_kind];
  const isAsync = isLinked || kinds.includes("producer") || kinds.includes("consumer");
  return {
    span_kind: caller.span_kind,
    peer_span_kind: callee?.span_kind,
    edge_type: isAsync ? "ASYNC" : "SYNC",
  };
}

/** One edge per key. Calls without a key are left out. */
async function groupCalls<K extends object>(
  { calls, deriveKey }: KeyedCalls<K>,
  signal: AbortSignal,
): Promise<readonly (K & Omit<Edge, "service">)[]> {
  const groups = new Map<string, { readonly key: K; readonly durations: DurationDistribution }>();
  for await (const chunk of takeTurns(calls, signal)) {
    for (const call of chunk) {
      const key = deriveKey(call);
      if (key === undefined) continue;
      const id = JSON.stringify(key);
      const group = groups.get(id) ?? { key, durations: createDurationDistribution() };
      group.durations.add(call.caller);
      groups.set(id, group);
    }
  }
  const toEdge = ({ key, durations }: { readonly key: K; readonly durations: DurationDistribution }) => ({
    ...key,
    count: durations.count(),
    error_count: durations.errorCount(),
    mean: durations.mean(),
    p_90: durations.percentile(90),
    p_95: durations.percentile(95),
  });
  return mapInTurns(groups.values(), toEdge, signal);
}
