// Service edges: who calls whom. Calls are counted and measured on the caller's side, and belong to the range by the caller's
// end. Upstream and downstream come from the same pairs, so that the downstream edges of A equal the upstream edges of B.

import { isNonEmpty } from "../core/collections.ts";
import type { ActionEdge, Edge, Span } from "../core/rows.ts";
import type { ActionEdges, ActionEdgesQuery, EdgesQuery, SiteEdges } from "../store/span-analytics.ts";
import type { SpanId, SpanReader, SpanSource, SpanSources } from "../store/spans.ts";
import { createDurationDistribution, type DurationDistribution } from "./duration-stats.ts";
import { loadAncestors, readAllSpans } from "./spans/entry-lookup.ts";
import { deriveNames, deriveNamesAbove, formatSpanKey, isCalleeSide, isRequest } from "./spans/requests.ts";

/** A caller and one request that it made, or a caller whose callee has no visible spans. */
interface Call {
  readonly caller: Span;
  readonly callee?: Span;
  readonly isLinked: boolean;
}
interface Calls {
  /** By the site. */
  readonly made: readonly Call[];
  /** From the site's partners. */
  readonly received: readonly Call[];
}

/** `SpanAnalytics.siteEdges`. */
export async function findSiteEdges(
  reader: SpanReader,
  query: EdgesQuery,
  signal: AbortSignal,
): Promise<SiteEdges> {
  const { made, received } = await findCalls(reader, query, signal);
  const { site } = query.sources[0];
  const isInternal = ({ callee }: Call): boolean => callee?.site_id === site;
  const deriveCallee = ({ caller, callee }: Call) => {
    const service = callee?.service_name ?? caller.peer;
    return service === undefined ? undefined : { service };
  };
  const external = made.filter((call) => !isInternal(call));
  return {
    upstream: groupCalls(received, ({ caller }) => ({ service: caller.service_name })),
    downstream: groupCalls(external, deriveCallee),
    internal: groupCalls(made.filter(isInternal), deriveCallee),
  };
}

/** `SpanAnalytics.actionEdges`. */
export async function findActionEdges(
  reader: SpanReader,
  query: ActionEdgesQuery,
  signal: AbortSignal,
): Promise<ActionEdges> {
  const { made, received } = await findCalls(reader, query, signal);
  const isOfAction = (request: Span): boolean => {
    const { namespace, action } = deriveNames(request);
    // Compared as the API joins them: both may contain slashes, so that `a/b` and `c` equal `a` and `b/c`.
    const isOfService = `${request.service_name}/${namespace}` === `${query.service}/${query.namespace}`;
    return isOfService && action === query.action;
  };
  // A partner may have an action of the same name.
  const toAction = [...received, ...made].filter(
    ({ callee }) => callee?.site_id === query.sources[0].site && isOfAction(callee),
  );
  const callers = new Set([...made, ...toAction].map(({ caller }) => caller));
  const ancestors = await loadAncestors(reader, listAllSources(query), [...callers], query.budget, signal);
  const fromAction = made.filter(({ caller }) => {
    const entry = ancestors.findEntry(caller);
    return entry !== undefined && isRequest(entry) && isOfAction(entry);
  });
  return {
    upstream: groupCalls(toAction, (call) => {
      const entry = ancestors.findEntry(call.caller);
      const service = (entry ?? call.caller).service_name;
      return { service, ...deriveNamesAbove(entry), ...deriveEdgeKinds(call) };
    }),
    downstream: groupCalls(fromAction, (call) => {
      const { caller, callee } = call;
      if (callee !== undefined) {
        return { service: callee.service_name, ...deriveNames(callee), ...deriveEdgeKinds(call) };
      }
      return caller.peer === undefined ? undefined : { service: caller.peer, ...deriveEdgeKinds(call) };
    }),
  };
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

function listAllSources({ sources, partners }: EdgesQuery): SpanSources {
  return [...sources, ...partners];
}

// ---- Calls ----------------------------------------------------------------------------------------------------

async function findCalls(reader: SpanReader, query: EdgesQuery, signal: AbortSignal): Promise<Calls> {
  const { sources, partners, range, budget } = query;
  const { site } = sources[0];
  const all = listAllSources(query);
  const scan = { sources: all, range, select: "calls", withoutEvents: true, budget } as const;
  const callers = deduplicateSpans(await readAllSpans(reader.scan(scan, signal)), site);
  const own = callers.filter(({ site_id }) => site_id === site);
  const others = callers.filter(({ site_id }) => site_id !== site);
  const calleesOfOwn = await readCallees(reader, query, all, own, signal);
  const calleesOfOthers = await readCallees(reader, query, sources, others, signal);
  const callersOfSite = new Set(matchCalls(others, calleesOfOthers).map(({ caller }) => caller));
  const otherCallees = await readCallees(reader, query, partners, [...callersOfSite], signal);
  const made = matchCalls(own, calleesOfOwn);
  const answered = new Set(made.map(({ caller }) => caller));
  const unanswered = own.filter((caller) => !answered.has(caller));
  return {
    made: [...made, ...unanswered.map((caller) => ({ caller, isLinked: false }))],
    received: matchCalls(others, calleesOfOthers, otherCallees),
  };
}

/** The requests in these sources that the callers made. */
async function readCallees(
  reader: SpanReader,
  query: EdgesQuery,
  sources: readonly SpanSource[],
  callers: readonly Span[],
  signal: AbortSignal,
): Promise<readonly Span[]> {
  if (callers.length === 0 || !isNonEmpty(sources)) return [];
  const ids = new Map<string, SpanId>();
  for (const { trace_id, span_id } of callers) {
    const id = { trace_id, span_id };
    ids.set(formatSpanKey(id), id);
  }
  const of = { by: "caller", spans: [...ids.values()] } as const;
  const lookup = { sources, of, withoutEvents: true, budget: query.budget };
  const callees = await readAllSpans(reader.find(lookup, signal));
  return deduplicateSpans(callees.filter(isRequest), query.sources[0].site);
}

/** Sites may hold the same documents. Keeps one span of each: the site's own, else that of the first partner by id. */
function deduplicateSpans(spans: readonly Span[], site: string): readonly Span[] {
  const kept = new Map<string, Span>();
  for (const span of spans) {
    const key = `${formatSpanKey(span)} ${span.span_kind} ${span.start}`;
    const other = kept.get(key);
    const isPreferred = other === undefined || span.site_id === site;
    if (isPreferred || (other.site_id !== site && span.site_id < other.site_id)) kept.set(key, span);
  }
  return [...kept.values()];
}

/**
 * Each pair of a caller and a callee that is its other side, names it as its parent or links to it, once. `otherCallees` are
 * not paired, but may be the other sides of callers as well.
 */
function matchCalls(
  callers: readonly Span[],
  callees: readonly Span[],
  otherCallees: readonly Span[] = [],
): readonly Required<Call>[] {
  const callersByKey = Map.groupBy(callers, formatSpanKey);
  const isOtherSide = (callee: Span): boolean =>
    isCalleeSide(callee) && callersByKey.has(formatSpanKey(callee));
  const sharedKeys = new Set([...callees, ...otherCallees].filter(isOtherSide).map(formatSpanKey));
  const listCallers = (key: string): readonly Span[] => callersByKey.get(key) ?? [];
  const findParents = (callee: Span): readonly Span[] => {
    const { trace_id, parent_span_id: span_id } = callee;
    if (isOtherSide(callee)) return listCallers(formatSpanKey(callee));
    if (span_id === undefined) return [];
    const parent = formatSpanKey({ trace_id, span_id });
    // Where both sides share an id, spans that name it as their parent are below the called side.
    return sharedKeys.has(parent) ? [] : listCallers(parent);
  };
  return callees.flatMap((callee) => {
    const linked = new Set(callee.links.flatMap((link) => listCallers(formatSpanKey(link))));
    const both = new Set([...findParents(callee), ...linked]);
    return [...both].map((caller) => ({ caller, callee, isLinked: linked.has(caller) }));
  });
}

/** One edge per key. Calls without a key are left out. */
function groupCalls<K extends object>(
  calls: readonly Call[],
  deriveKey: (call: Call) => K | undefined,
): readonly (K & Omit<Edge, "service">)[] {
  const groups = new Map<string, { readonly key: K; readonly durations: DurationDistribution }>();
  for (const call of calls) {
    const key = deriveKey(call);
    if (key === undefined) continue;
    const id = JSON.stringify(key);
    const group = groups.get(id) ?? { key, durations: createDurationDistribution() };
    group.durations.add(call.caller);
    groups.set(id, group);
  }
  return [...groups.values()].map(({ key, durations }) => ({
    ...key,
    count: durations.count(),
    error_count: durations.errorCount(),
    mean: durations.mean(),
    p_90: durations.percentile(90),
    p_95: durations.percentile(95),
  }));
}
