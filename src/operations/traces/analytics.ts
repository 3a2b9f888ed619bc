// Figures over the spans of one site: its actions, who calls whom, and where its time goes.

import * as z from "zod";
import type { Site, SpanPart } from "../../access/sites.ts";
import { mapInTurns, sortInTurns } from "../../core/async/turns.ts";
import { Refused } from "../../core/errors.ts";
import { type ActionEdge, compare, type Edge, type SlowEvent, spanKinds } from "../../core/rows.ts";
import { printInstant } from "../../core/time.ts";
import type { SpanStore } from "../../store/span-analytics.ts";
import type { SpanSource } from "../../store/spans.ts";
import { encodeActionDigest, encodeEventDigest, hashStatement } from "../../tracing/spans/digest.ts";
import type { Context, Operation } from "../runtime/operation.ts";
import {
  checkRange,
  exampleRange,
  from,
  integer,
  keyword,
  optional,
  siteId,
  textList,
  to,
} from "../runtime/request-body.ts";
import { explainFigures } from "./explain-figures.ts";
import { createNoTracesError, createRequestBudget, resolveRange } from "./read-traces.ts";
import { printRows, toSlowEventRow } from "./row-writer.ts";
import { actionEdgeRows, actionRow, siteEdgeRows, slowEvent, slowEventAction } from "./schema.ts";

const rangeFields = { site_id: siteId, from, to };
const attributeNames = optional(textList());

/** @throws {Refused} for a site without traces */
export function findTracesPart(
  id: string,
  context: Context,
): { readonly site: Site; readonly traces: SpanPart } {
  const site = context.sites.get(id);
  if (site?.traces === undefined) throw createNoTracesError();
  return { site, traces: site.traces };
}

/** What each of these operations asks a store with. */
function buildScope(request: z.output<typeof edgesBody>, context: Context) {
  const { site, traces } = findTracesPart(request.site_id, context);
  const sources: readonly [SpanSource] = [traces.source];
  return {
    store: traces.store,
    traces,
    scope: {
      sources,
      range: resolveRange(site, context.now(), request.from?.instant, request.to?.instant),
      budget: createRequestBudget(context),
    },
  };
}

const explain = async (request: z.output<typeof edgesBody>, context: Context) => {
  const { traces, scope } = buildScope(request, context);
  return explainFigures(traces, scope.range, context);
};

function checkRows<T>(rows: readonly T[], { limits: { rows: limit } }: Context): readonly T[] {
  if (rows.length <= limit) return rows;
  const message = `The answer has more than ${limit} rows; narrow the range or the filters`;
  throw new Refused("result_too_large", message, { limit, wanted: rows.length });
}

// ---- Actions ------------------------------------------------------------------------------------------------

const actionsBody = z
  .object({
    ...rangeFields,
    namespaces: optional(textList()).meta({
      description: "Any of them; absent or empty is all.",
      examples: [["web"]],
    }),
    revision: optional(z.string()).meta({ description: "One deploy only.", examples: ["4f1c2a9"] }),
    action: optional(z.string()).meta({ description: "One action only.", examples: ["GET /checkout"] }),
  })
  .check(checkRange)
  .meta({ examples: [exampleRange, { ...exampleRange, namespaces: ["web"] }] });

/** By namespace and action. */
export const actions: Operation<z.output<typeof actionsBody>, never> = {
  name: "tracing.actions",
  method: "POST",
  path: "/api/v2/tracing/actions",
  access: "token",
  scope: "tracing",
  summary: "Actions with their figures",
  description:
    "One row for each namespace and action of the requests that ended in the range, by their names.",
  request: actionsBody,
  answer: z.array(actionRow),
  sites: (request) => [request.site_id],
  mayBePartial: () => true,
  explain,
  run: async function* (request, context) {
    const { namespaces = [], revision, action } = request;
    const { store, scope } = buildScope(request, context);
    const found = await store.actions({ ...scope, namespaces, revision, action }, context.signal);
    const rows = await sortInTurns(
      checkRows(found, context),
      (a, b) => compare(a.namespace, b.namespace) || compare(a.action, b.action),
      context.signal,
    );
    yield* printRows(rows, (row) => ({
      namespace: row.namespace,
      action: row.action,
      digest: encodeActionDigest(row),
      mean: row.mean,
      throughput: row.count,
      error_rate: computeErrorRate(row),
      has_npo: row.has_npo,
    }));
  },
};

export function computeErrorRate({ count, error_count }: Pick<Edge, "count" | "error_count">): number {
  return count === 0 ? 0 : (100 * error_count) / count;
}

// ---- Edges --------------------------------------------------------------------------------------------------

const edgesBody = z
  .object(rangeFields)
  .check(checkRange)
  .meta({ examples: [exampleRange] });
const actionEdgesBody = z
  .object({
    ...rangeFields,
    namespace: z
      .string()
      // The slash is in brackets so that it needs no escape, which generators of clients would escape again.
      .regex(/^.+[/].+$/s, "expected a service and a namespace, as in shop/web")
      .meta({
        description: "The action's service and namespace, with a slash between.",
        examples: ["shop/web"],
      }),
    action: z.string().meta({ description: "The action's name.", examples: ["GET /checkout"] }),
  })
  .check(checkRange)
  .meta({ examples: [{ ...exampleRange, namespace: "shop/web", action: "GET /checkout" }] });

/**
 * Every other site that the token may see and that shares a backend with this one, and the store that reads all of them: that
 * of several backends where one of the sites has several.
 */
export function selectPartners(
  site: string,
  traces: SpanPart,
  context: Pick<Context, "sites">,
): { readonly partners: readonly SpanSource[]; readonly store: SpanStore } {
  const own = listBackends(traces);
  const parts = [...context.sites.values()].flatMap(({ id, traces }) =>
    id !== site && traces !== undefined && listBackends(traces).some((name) => own.includes(name))
      ? [traces]
      : [],
  );
  const spread = [traces, ...parts].find(({ backends }) => backends !== undefined);
  return { partners: parts.map(({ source }) => source), store: (spread ?? traces).store };
}

function listBackends({ backend, backends = [backend] }: SpanPart): readonly string[] {
  return backends;
}

type EdgesBySide<S extends string> = Readonly<Record<S, readonly unknown[]>>;

export const siteEdges: Operation<
  z.output<typeof edgesBody>,
  EdgesBySide<"upstream" | "downstream" | "internal">
> = {
  name: "tracing.site_edges",
  method: "POST",
  path: "/api/v2/tracing/site_edges",
  access: "token",
  scope: "tracing",
  summary: "Who calls a site, and whom it calls",
  description: "By service, measured on the caller's side, by the end of the caller's span.",
  request: edgesBody,
  answer: siteEdgeRows,
  sites: (request) => [request.site_id],
  mayBePartial: () => true,
  explain,
  run: async (request, context) => {
    const { traces, scope } = buildScope(request, context);
    const { partners, store } = selectPartners(request.site_id, traces, context);
    const { upstream, downstream, internal } = await store.siteEdges({ ...scope, partners }, context.signal);
    checkRows([...upstream, ...downstream, ...internal], context);
    const list = async (edges: readonly Edge[]) =>
      mapInTurns(await sortInTurns(edges, compareEdges, context.signal), toEdgeRow, context.signal);
    return {
      upstream: await list(upstream),
      downstream: await list(downstream),
      internal: await list(internal),
    };
  },
};

export const actionEdges: Operation<
  z.output<typeof actionEdgesBody>,
  EdgesBySide<"upstream" | "downstream">
> = {
  name: "tracing.action_edges",
  method: "POST",
  path: "/api/v2/tracing/action_edges",
  access: "token",
  scope: "tracing",
  summary: "Who calls an action, and whom it calls",
  description: "By service, namespace, action, kinds and type, measured on the caller's side.",
  request: actionEdgesBody,
  answer: actionEdgeRows,
  sites: (request) => [request.site_id],
  mayBePartial: () => true,
  explain,
  run: async (request, context) => {
    const { traces, scope } = buildScope(request, context);
    const { partners, store } = selectPartners(request.site_id, traces, context);
    const slash = request.namespace.lastIndexOf("/");
    const asked = {
      service: request.namespace.slice(0, slash),
      namespace: request.namespace.slice(slash + 1),
      action: request.action,
      partners,
    };
    const { upstream, downstream } = await store.actionEdges({ ...scope, ...asked }, context.signal);
    checkRows([...upstream, ...downstream], context);
    const list = async (edges: readonly ActionEdge[]) =>
      mapInTurns(
        await sortInTurns(edges, compareActionEdges, context.signal),
        toActionEdgeRow,
        context.signal,
      );
    return { upstream: await list(upstream), downstream: await list(downstream) };
  },
};

function compareEdges(a: Edge, b: Edge): number {
  return compare(b.count, a.count) || compare(a.service, b.service);
}

function compareActionEdges(a: ActionEdge, b: ActionEdge): number {
  return (
    compareEdges(a, b) ||
    compare(a.namespace ?? "", b.namespace ?? "") ||
    compare(a.action ?? "", b.action ?? "") ||
    compare(a.span_kind, b.span_kind) ||
    compare(a.peer_span_kind ?? "", b.peer_span_kind ?? "") ||
    compare(a.edge_type, b.edge_type)
  );
}

function toEdgeRow({ service, count, error_count, mean, p_90, p_95 }: Edge) {
  return { service, count, error_count, mean, p_90, p_95 };
}

function toActionEdgeRow(edge: ActionEdge) {
  const { service, namespace = null, action = null, span_kind, peer_span_kind = null, edge_type } = edge;
  const { count, error_count, mean, p_90, p_95 } = edge;
  return {
    service,
    namespace,
    action,
    span_kind,
    peer_span_kind,
    edge_type,
    count,
    error_count,
    mean,
    p_90,
    p_95,
  };
}

// ---- Slow events --------------------------------------------------------------------------------------------

const slowEventsBody = z
  .object({
    ...rangeFields,
    span_kind: optional(
      keyword(...spanKinds).meta({
        id: "SpanKind",
        description: "Which side of a call a span is.",
        examples: ["server"],
      }),
    ).meta({ description: "One kind of span only." }),
    wanted_attributes: attributeNames.meta({
      description: "Names of attributes: all must be there, and their values are answered.",
      examples: [["db.system.name"]],
    }),
    excluded_attributes: attributeNames.meta({
      description: "Names of attributes: none may be there.",
      examples: [["http.route"]],
    }),
    limit: optional(integer(1, 10_000)).meta({
      description: "Most rows. The default is 100.",
      examples: [10],
    }),
  })
  .check(checkRange)
  .meta({ examples: [exampleRange, { ...exampleRange, span_kind: "client", limit: 10 }] });

/** Greatest impact first. */
export const slowEvents: Operation<z.output<typeof slowEventsBody>, never> = {
  name: "tracing.slow_events",
  method: "POST",
  path: "/api/v2/tracing/slow_events",
  access: "token",
  scope: "tracing",
  summary: "Where the time of requests goes",
  description: "Spans within requests, grouped by service, kind, name and statement, greatest impact first.",
  request: slowEventsBody,
  answer: z.array(slowEvent),
  sites: (request) => [request.site_id],
  mayBePartial: () => true,
  explain,
  run: async function* (request, context) {
    const { span_kind: kind, limit = 100 } = request;
    const { wanted_attributes: wanted = [], excluded_attributes: excluded = [] } = request;
    const { store, scope } = buildScope(request, context);
    const found = await store.slowEvents(
      { ...scope, kind, requiredAttributes: wanted, excludedAttributes: excluded, limit },
      context.signal,
    );
    const digested = await mapInTurns(found, addDigest, context.signal);
    const rows = await sortInTurns(
      digested,
      (a, b) => compare(b.impact, a.impact) || compare(a.digest, b.digest),
      context.signal,
    );
    yield* printRows(rows, toSlowEventRow);
  },
};

export function addDigest(event: SlowEvent): SlowEvent & { readonly digest: string } {
  const statement = event.statement === undefined ? undefined : hashStatement(event.statement);
  return { ...event, digest: encodeEventDigest({ ...event, statement }) };
}

const slowEventActionsBody = z
  .object({
    ...rangeFields,
    digest: z.string().meta({ description: "The `digest` of a slow event.", examples: ["c2hvcDpjbGllbnQ"] }),
  })
  .check(checkRange)
  .meta({ examples: [{ ...exampleRange, digest: "c2hvcDpjbGllbnQ" }] });

/** Most spans first. */
export const slowEventActions: Operation<z.output<typeof slowEventActionsBody>, never> = {
  name: "tracing.slow_event_actions",
  method: "POST",
  path: "/api/v2/tracing/slow_events/actions",
  access: "token",
  scope: "tracing",
  summary: "The actions in which a slow event happens",
  description: "Most spans first.",
  request: slowEventActionsBody,
  answer: z.array(slowEventAction),
  sites: (request) => [request.site_id],
  mayBePartial: () => true,
  explain,
  run: async function* (request, context) {
    const { store, scope } = buildScope(request, context);
    const found = await store.slowEventActions({ ...scope, digest: request.digest }, context.signal);
    const rows = await sortInTurns(
      checkRows(found, context),
      (a, b) =>
        compare(b.count, a.count) ||
        compare(a.namespace, b.namespace) ||
        compare(a.action_name, b.action_name),
      context.signal,
    );
    yield* printRows(rows, ({ action_name, namespace, count, trace_id, start_time }) => ({
      action_name,
      namespace,
      count,
      trace_id,
      start_time: printInstant(start_time),
    }));
  },
};
