// Edges: who calls whom, counted and measured on the caller's side and by the caller's end. Both directions are made
// of the same pairs, so that what A sees downstream of itself is what B sees upstream.
import type { ActionEdge, Edge, Span } from "../core/rows.ts";
import type { ActionEdges, ActionEdgesQuery, EdgesQuery, SiteEdges } from "../store/span-analytics.ts";
import type { SpanId, SpanReader, SpanSource } from "../store/spans.ts";
import { createDurationDistribution, type DurationDistribution } from "./duration-stats.ts";
import { loadAncestors, readAllSpans } from "./spans/entry-lookup.ts";
import { deriveNames, deriveNamesAbove, formatSpanKey, isCalleeSide, isRequest } from "./spans/requests.ts";

/** A caller and one request that it made; or a caller whose callee has no spans that can be seen. */
interface Call {
  readonly caller: Span;
  readonly callee?: Span;
  readonly linked: boolean;
}
interface Calls {
  /** Made by the site, and by its partners to the site. */
  readonly made: readonly Call[];
  readonly received: readonly Call[];
}

/** `siteEdges` of the contract. */
export async function findSiteEdges(
  reader: SpanReader,
  query: EdgesQuery,
  signal: AbortSignal,
): Promise<SiteEdges> {
  const { made, received: taken } = await findCalls(reader, query, signal);
  const site = query.sources[0].site;
  const isInternal = ({ callee }: Call): boolean => callee?.site_id === site;
  const byCallee = ({ caller, callee }: Call) => {
    const service = callee?.service_name ?? caller.peer;
    return service === undefined ? undefined : { service };
  };
  return {
    upstream: groupCalls(taken, ({ caller }) => ({ service: caller.service_name })),
    downstream: groupCalls(
      made.filter((call) => !isInternal(call)),
      byCallee,
    ),
    internal: groupCalls(made.filter(isInternal), byCallee),
  };
}

/** `actionEdges` of the contract. */
export async function findActionEdges(
  reader: SpanReader,
  query: ActionEdgesQuery,
  signal: AbortSignal,
): Promise<ActionEdges> {
  const { made, received: taken } = await findCalls(reader, query, signal);
  const isAsked = (request: Span): boolean => {
    const { namespace, action } = deriveNames(request);
    // Both may have slashes in them, and the API joins them by one: nobody can tell `a/b` and `c` from `a` and `b/c`.
    const isOne = `${request.service_name}/${namespace}` === `${query.service}/${query.namespace}`;
    return isOne && action === query.action;
  };
  // A partner may have an action of the same name.
  const toIt = [...taken, ...made].filter(
    ({ callee }) => callee?.site_id === query.sources[0].site && isAsked(callee),
  );
  const callers = new Set([...made, ...toIt].map(({ caller }) => caller));
  const family = await loadAncestors(reader, listAllSources(query), [...callers], query.budget, signal);
  const fromIt = made.filter(({ caller }) => {
    const entry = family.findEntry(caller);
    return entry !== undefined && isRequest(entry) && isAsked(entry);
  });
  return {
    upstream: groupCalls(toIt, (call) => {
      const entry = family.findEntry(call.caller);
      const service = (entry ?? call.caller).service_name;
      return { service, ...deriveNamesAbove(entry), ...deriveEdgeKinds(call) };
    }),
    downstream: groupCalls(fromIt, (call) => {
      const { caller, callee } = call;
      if (callee !== undefined) {
        return { service: callee.service_name, ...deriveNames(callee), ...deriveEdgeKinds(call) };
      }
      return caller.peer === undefined ? undefined : { service: caller.peer, ...deriveEdgeKinds(call) };
    }),
  };
}

type EdgeKinds = Pick<ActionEdge, "span_kind" | "peer_span_kind" | "edge_type">;

function deriveEdgeKinds({ caller, callee, linked }: Call): EdgeKinds {
  const kinds = [caller.span_kind, callee?.span_kind];
  const isAsync = linked || kinds.includes("producer") || kinds.includes("consumer");
  return {
    span_kind: caller.span_kind,
    peer_span_kind: callee?.span_kind,
    edge_type: isAsync ? "ASYNC" : "SYNC",
  };
}

function listAllSources({ sources, partners }: EdgesQuery): readonly [SpanSource, ...SpanSource[]] {
  return [...sources, ...partners];
}

async function findCalls(reader: SpanReader, query: EdgesQuery, signal: AbortSignal): Promise<Calls> {
  const { sources, partners, range, budget } = query;
  const site = sources[0].site;
  const scanned = await readAllSpans(
    reader.scan(
      { sources: listAllSources(query), range, select: "calls", withoutEvents: true, budget },
      signal,
    ),
  );
  const callers = deduplicateSpans(scanned, site);
  const own = callers.filter(({ site_id }) => site_id === site);
  const others = callers.filter(({ site_id }) => site_id !== site);
  const called = async (spans: readonly Span[], [first, ...rest]: readonly SpanSource[]): Promise<Span[]> => {
    if (spans.length === 0 || first === undefined) return [];
    const ids = new Map<string, SpanId>();
    for (const { trace_id, span_id } of spans) {
      const id = { trace_id, span_id };
      ids.set(formatSpanKey(id), id);
    }
    const of = { by: "caller", spans: [...ids.values()] } as const;
    const callees = await readAllSpans(
      reader.find({ sources: [first, ...rest], of, withoutEvents: true, budget }, signal),
    );
    return deduplicateSpans(callees.filter(isRequest), site);
  };
  const calleesOfOwn = await called(own, listAllSources(query));
  const calleesOfOthers = await called(others, sources);
  const callersOfIt = new Set(matchCalls(others, calleesOfOthers).map(({ caller }) => caller));
  const besideIt = await called([...callersOfIt], partners);
  const made = matchCalls(own, calleesOfOwn);
  const paired = new Set(made.map(({ caller }) => caller));
  const unanswered = own.filter((caller) => !paired.has(caller));
  return {
    made: [...made, ...unanswered.map((caller) => ({ caller, linked: false }))],
    received: matchCalls(others, calleesOfOthers, besideIt),
  };
}

/** Sites may hold the same documents. A span is one even so: the site's own, else that of the first partner by id. */
function deduplicateSpans(spans: readonly Span[], site: string): Span[] {
  const held = new Map<string, Span>();
  for (const span of spans) {
    const key = `${formatSpanKey(span)} ${span.span_kind} ${span.start}`;
    const other = held.get(key);
    const isOther = other === undefined || span.site_id === site;
    if (isOther || (other.site_id !== site && span.site_id < other.site_id)) held.set(key, span);
  }
  return [...held.values()];
}

/**
 * Every pair of a caller and a callee that is its other side, names it as its parent or links to it, once. What other
 * callees the callers have, `partial` those that count, may be their other sides as well.
 */
function matchCalls(
  callers: readonly Span[],
  callees: readonly Span[],
  beside: readonly Span[] = [],
): readonly Required<Call>[] {
  const byId = Map.groupBy(callers, formatSpanKey);
  const isShared = (callee: Span): boolean => isCalleeSide(callee) && byId.has(formatSpanKey(callee));
  const shared = new Set([...callees, ...beside].filter(isShared).map(formatSpanKey));
  // Where both sides have one id, both name the parent of the call, and what names that id is below the side called.
  const callerIdOf = (callee: Span): string | undefined => {
    const { trace_id, parent_span_id: span_id } = callee;
    if (isShared(callee)) return formatSpanKey(callee);
    const parent = span_id === undefined ? undefined : formatSpanKey({ trace_id, span_id });
    return parent === undefined || shared.has(parent) ? undefined : parent;
  };
  return callees.flatMap((callee) => {
    const parents = byId.get(callerIdOf(callee) ?? "") ?? [];
    const linked = new Set(callee.links.flatMap((link) => byId.get(formatSpanKey(link)) ?? []));
    const both = new Set([...parents, ...linked]);
    return [...both].map((caller) => ({ caller, callee, linked: linked.has(caller) }));
  });
}

/** One row per key; calls without a key are none. */
function groupCalls<K extends object>(
  calls: readonly Call[],
  keyOf: (call: Call) => K | undefined,
): readonly (K & Omit<Edge, "service">)[] {
  const groups = new Map<string, { readonly key: K; readonly figures: DurationDistribution }>();
  for (const call of calls) {
    const key = keyOf(call);
    if (key === undefined) continue;
    const id = JSON.stringify(key);
    const found = groups.get(id) ?? { key, figures: createDurationDistribution() };
    found.figures.add(call.caller);
    groups.set(id, found);
  }
  return [...groups.values()].map(({ key, figures }) => ({
    ...key,
    count: figures.count(),
    error_count: figures.errorCount(),
    mean: figures.mean(),
    p_90: figures.percentile(90),
    p_95: figures.percentile(95),
  }));
}
