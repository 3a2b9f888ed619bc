// The edges of sites and of actions as rollups: a call belongs to the segment in which its caller ends, wherever its callee
// lies.

import { mapInTurns, takeTurns, visitInTurns } from "../../core/async/turns.ts";
import { requireAt } from "../../core/collections.ts";
import type { Edge } from "../../core/rows.ts";
import type { TimeRange } from "../../core/time.ts";
import type { ActionEdges, ActionEdgesQuery, EdgesQuery, SiteEdges } from "../../store/span-analytics.ts";
import type { SpanReader } from "../../store/spans.ts";
import { type Calls, findCalls, listAllSources } from "../calls.ts";
import { formatWorkKey, shareWork } from "../rollup-store/shared-work.ts";
import {
  addSpan,
  calculateMean,
  findPercentile,
  measureFigures,
  measureText,
} from "../rollups/duration-figures.ts";
import { type AnalysisKind, nameGroup, type StoredKind } from "../rollups/figures-kind.ts";
import { findRangeIndex } from "../rollups/segments.ts";
import {
  formatEdgesAction,
  type KeyedCalls,
  listActionCalls,
  listCallsByAction,
  listSiteCalls,
  type SiteEdgeKey,
} from "../service-edges.ts";
import {
  type ActionEdgeFigures,
  actionEdgesCodec,
  addEdges,
  decodeActionEdges,
  type EdgeFigures,
  type EdgesByAction,
  type FiguresBySide,
  findActionEdges,
  findDurations,
  siteEdgesCodec,
} from "./stored-figures.ts";

const siteSides = ["upstream", "downstream", "internal"] as const;
const actionSides = ["upstream", "downstream"] as const;
type SiteEdgeFigures = FiguresBySide<keyof SiteEdges, SiteEdgeKey>;

export const siteEdgeRollups: AnalysisKind<EdgesQuery, SiteEdgeFigures, SiteEdges> &
  StoredKind<EdgesQuery, SiteEdgeFigures> = {
  name: "site_edges",
  // Tells the sources of the site from its partners.
  key: ({ sources }) => [sources.length],
  listSources: listAllSources,
  select: "calls",
  isLocal: false,
  read: async (reader, query, ranges, signal) => {
    const calls = await findSharedCalls(reader, query, signal);
    return addUpBySide(siteSides, listSiteCalls(calls, query), ranges, signal);
  },
  combine: async (pieces) => {
    const list = (side: keyof SiteEdges) => combineEdges(pieces.map((piece) => piece[side]));
    return {
      upstream: await list("upstream"),
      downstream: await list("downstream"),
      internal: await list("internal"),
    };
  },
  measure: (figures) => measureSides(siteSides, figures),
  codec: siteEdgesCodec,
  stored: { chooseGroup: (query) => nameGroup(siteEdgeRollups, query), decode: siteEdgesCodec.decode },
};

/** Both kinds of edges are made of the same calls. */
function findSharedCalls(reader: SpanReader, query: EdgesQuery, signal: AbortSignal): Promise<Calls> {
  const { sources, partners, range } = query;
  const key = formatWorkKey([sources, partners], [range]);
  return shareWork(reader, { name: "calls", key }, () => findCalls(reader, query, signal));
}

/** The edges of each action of a site, as they are kept outside of this process. */
export const edgesByActionRollups: StoredKind<EdgesQuery, EdgesByAction> = {
  name: "action_edges",
  key: ({ sources }) => [sources.length],
  listSources: listAllSources,
  select: "calls",
  isLocal: false,
  read: async (reader, query, ranges, signal) => {
    const calls = await findSharedCalls(reader, query, signal);
    const bySide = await listCallsByAction(reader, calls, query, signal);
    const pieces = ranges.map((): EdgesByAction => new Map());
    for (const side of actionSides) {
      const { calls: ofSide, deriveAction, deriveKey } = bySide[side];
      for await (const chunk of takeTurns(ofSide, signal)) {
        for (const call of chunk) {
          const [action, key] = [deriveAction(call), deriveKey(call)];
          if (action === undefined || key === undefined) continue;
          const edges = findActionEdges(requireAt(pieces, findRangeIndex(ranges, call.caller.end)), action);
          addSpan(findDurations(edges[side], JSON.stringify(key), key), call.caller);
        }
      }
    }
    return pieces;
  },
  codec: actionEdgesCodec,
};

export const actionEdgeRollups: AnalysisKind<ActionEdgesQuery, ActionEdgeFigures, ActionEdges> = {
  name: "action_edges",
  key: ({ sources, service, namespace, action }) => [sources.length, service, namespace, action],
  listSources: listAllSources,
  select: "calls",
  isLocal: false,
  read: async (reader, query, ranges, signal) => {
    const calls = await listActionCalls(reader, query, signal);
    return addUpBySide(actionSides, calls, ranges, signal);
  },
  combine: async (pieces) => {
    const list = (side: keyof ActionEdges) => combineEdges(pieces.map((piece) => piece[side]));
    return { upstream: await list("upstream"), downstream: await list("downstream") };
  },
  measure: (figures) => measureSides(actionSides, figures),
  stored: {
    chooseGroup: (query) => nameGroup(edgesByActionRollups, query),
    decode: (value, query) => decodeActionEdges(value, formatEdgesAction(query)),
  },
};

/** The figures of each range. */
async function addUpBySide<Side extends string, Key extends object>(
  sides: readonly Side[],
  keyedCalls: Readonly<Record<Side, KeyedCalls<Key>>>,
  ranges: readonly TimeRange[],
  signal: AbortSignal,
): Promise<readonly FiguresBySide<Side, Key>[]> {
  const bySide = new Map<Side, readonly EdgeFigures<Key>[]>();
  for (const side of sides) {
    const figures = ranges.map((): EdgeFigures<Key> => new Map());
    const { calls, deriveKey } = keyedCalls[side];
    for await (const chunk of takeTurns(calls, signal)) {
      for (const call of chunk) {
        const key = deriveKey(call);
        if (key === undefined) continue;
        const own = requireAt(figures, findRangeIndex(ranges, call.caller.end));
        addSpan(findDurations(own, JSON.stringify(key), key), call.caller);
      }
    }
    bySide.set(side, figures);
  }
  return ranges.map((_, at) => {
    const entries = [...bySide].map(([side, figures]) => [side, requireAt(figures, at)] as const);
    return Object.fromEntries(entries) as FiguresBySide<Side, Key>;
  });
}

/** One edge for each key of all pieces. */
async function combineEdges<Key extends object>(
  pieces: readonly EdgeFigures<Key>[],
): Promise<readonly (Key & Omit<Edge, "service">)[]> {
  const sum: EdgeFigures<Key> = new Map();
  await visitInTurns(pieces, (piece) => addEdges(sum, piece));
  return mapInTurns(sum.values(), ({ key, durations }) => ({
    ...key,
    count: durations.count,
    error_count: durations.errors,
    mean: calculateMean(durations),
    p_90: findPercentile(durations, 90),
    p_95: findPercentile(durations, 95),
  }));
}

function measureSides<Side extends string, Key>(
  sides: readonly Side[],
  figures: FiguresBySide<Side, Key>,
): number {
  return sides
    .flatMap((side) => [...figures[side]])
    .reduce(
      (bytes, [id, { durations }]) => bytes + 150 + 2 * measureText(id) + measureFigures(durations),
      600,
    );
}
