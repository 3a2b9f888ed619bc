// Requests by action and revision as rollups: a request belongs to the segment in which it ends, wherever the spans below it lie.
// The source adds requests up as well, so that figures pay only where an index keeps nearly all of the range.

import { createPause, takeTurns, yieldToEventLoop } from "../../core/async/turns.ts";
import { requireAt } from "../../core/collections.ts";
import type { ActionRow, RevisionStats, Span } from "../../core/rows.ts";
import { earlier, type Instant, later, type TimeRange } from "../../core/time.ts";
import type { ActionsQuery, RevisionQuery, RevisionsQuery } from "../../store/span-analytics.ts";
import type { SpanReader, SpanScan } from "../../store/spans.ts";
import { createActionTraces, findActionsWithNpo } from "../n-plus-one-actions.ts";
import {
  addFigures,
  addSpan,
  calculateMean,
  createDurationFigures,
  findPercentile,
  measureFigures,
  measureText,
} from "../rollups/duration-figures.ts";
import { type AnalysisKind, nameGroup, type RollupQuery, type StoredKind } from "../rollups/figures-kind.ts";
import { findRangeIndex } from "../rollups/segments.ts";
import { trackBudget } from "../spans/read-budget.ts";
import { deriveNames, formatActionKey, isRequest } from "../spans/requests.ts";
import {
  decodeRequests,
  findRequestsPart,
  listPartKeys,
  type RequestFigures,
  type RequestsByAction,
  type RequestsByPart,
  readRevision,
  requestsCodec,
} from "./stored-figures.ts";

/** All requests of a site, as they are kept outside of this process too. */
export const requestRollups: StoredKind<RollupQuery, RequestsByPart> = {
  name: "actions",
  key: () => [],
  listSources: ({ sources }) => sources,
  select: "entries",
  // A call far from its request may make an N+1 of it.
  isLocal: false,
  read: async (reader, query, ranges, signal) => {
    const { budget, spent } = trackBudget(query.budget);
    const tracked = { ...query, budget };
    const traces = createActionTraces(budget);
    /** By the key of the action among `traces`: those of each piece and revision are searched apart. */
    const byTracesKey = new Map<string, RequestFigures>();
    const pieces = await readRequests(reader, tracked, ranges, signal, (span, piece, figures) => {
      const key = JSON.stringify([piece, span.revision ?? null, figures.names]);
      byTracesKey.set(key, figures);
      traces.add(key, span);
    });
    const search = {
      sources: query.sources,
      scan: buildScan(tracked),
      accepts: isRequest,
      traces,
      spent,
      // All of them were read one by one.
      requests: 0,
      actions: byTracesKey.size,
      isAggregated: false,
    };
    for (const key of await findActionsWithNpo(reader, search, signal)) {
      const figures = byTracesKey.get(key);
      if (figures !== undefined) figures.hasNpo = true;
    }
    return pieces;
  },
  codec: requestsCodec,
};

function buildScan({ sources, range, budget }: RollupQuery): SpanScan {
  return { sources, range, select: "entries", withoutEvents: true, budget };
}

/** The figures of each range, without N+1. `note` is told of each request and the figures to which it was added. */
async function readRequests(
  reader: SpanReader,
  query: RollupQuery,
  ranges: readonly TimeRange[],
  signal: AbortSignal,
  note: (span: Span, piece: number, figures: RequestFigures) => void = () => undefined,
): Promise<readonly RequestsByPart[]> {
  const pieces = ranges.map((): RequestsByPart => new Map());
  for await (const batch of reader.scan(buildScan(query), signal)) {
    for await (const chunk of takeTurns(batch, signal)) {
      for (const span of chunk) {
        if (!isRequest(span)) continue;
        const piece = findRangeIndex(ranges, span.end);
        note(span, piece, addRequest(requireAt(pieces, piece), span));
      }
    }
  }
  return pieces;
}

/** The figures to which the request was added. */
function addRequest(piece: RequestsByPart, span: Span): RequestFigures {
  const names = deriveNames(span);
  const actionKey = formatActionKey(names);
  const actions = findRequestsPart(piece, span.revision, actionKey);
  const { end } = span;
  const figures = actions.get(actionKey) ?? {
    names,
    durations: createDurationFigures(),
    hasNpo: false,
    first: end,
    last: end,
  };
  actions.set(actionKey, figures);
  addSpan(figures.durations, span);
  figures.first = earlier(figures.first, end);
  figures.last = later(figures.last, end);
  return figures;
}

type RequestKind<Query extends RollupQuery, Answer> = AnalysisKind<Query, RequestsByPart, Answer>;

/** What the answers over requests share. */
const answered = {
  ...requestRollups,
  canBeTallied: true,
  measure: (figures: RequestsByPart) =>
    [...figures.values()]
      .flatMap((actions) => [...actions])
      .reduce((bytes, [key, { durations }]) => bytes + 2 * measureText(key) + measureFigures(durations), 400),
} as const;

/** All kinds answer from the same stored figures. */
const chooseGroup = (query: RollupQuery) => nameGroup(requestRollups, query);

export const actionRollups: RequestKind<ActionsQuery, readonly ActionRow[]> = {
  ...answered,
  // For parents with an N+1.
  extraSearch: "statements",
  combine: async (pieces, { namespaces, action, revision }) => {
    const rows = new Map<string, SummedRow>();
    const parts = selectParts(pieces, revision);
    for await (const [key, { names, durations, hasNpo }] of listInTurns(parts, () => 1)) {
      if (namespaces.length > 0 && !namespaces.includes(names.namespace)) continue;
      if (action !== undefined && action !== names.action) continue;
      const row = rows.get(key) ?? { names, count: 0, errors: 0, total: 0n, hasNpo: false };
      rows.set(key, row);
      row.count += durations.count;
      row.errors += durations.errors;
      row.total += durations.total;
      row.hasNpo ||= hasNpo;
    }
    return [...rows.values()].map(({ names, count, errors, total, hasNpo }) => {
      const mean = calculateMean({ count, total });
      return { ...names, count, error_count: errors, mean, has_npo: hasNpo };
    });
  },
  stored: {
    chooseGroup,
    decode: (value, { revision }) =>
      revision === undefined ? requestsCodec.decode(value) : decodeRequests(value, [revision]),
  },
};

interface SummedRow {
  readonly names: RequestFigures["names"];
  count: number;
  errors: number;
  /** Nanoseconds. */
  total: bigint;
  hasNpo: boolean;
}

/** What is kept in memory knows of no N+1, and is no answer for actions. */
const answeredByRevision = {
  ...answered,
  name: "revision_stats",
  isLocal: true,
  read: (reader: SpanReader, query: RollupQuery, ranges: readonly TimeRange[], signal: AbortSignal) =>
    readRequests(reader, query, ranges, signal),
} as const;

export const revisionRollups: RequestKind<RevisionQuery, RevisionStats | undefined> = {
  ...answeredByRevision,
  combine: (pieces, { revision }) => combineRevision(selectParts(pieces, revision)),
  stored: {
    chooseGroup,
    decode: (value, { revision }) => decodeRequests(value, [revision]),
  },
};

export const revisionsRollups: RequestKind<RevisionsQuery, ReadonlyMap<string, RevisionStats>> = {
  ...answeredByRevision,
  combine: async (pieces, { revisions }) => {
    const found = new Map<string, RevisionStats>();
    const parts =
      revisions === undefined
        ? await groupByRevision(pieces)
        : new Map(revisions.map((revision) => [revision, selectParts(pieces, revision)]));
    for (const [revision, own] of parts) {
      const stats = await combineRevision(own);
      if (stats !== undefined) found.set(revision, stats);
      await yieldToEventLoop();
    }
    return found;
  },
  stored: {
    chooseGroup,
    decode: (value, { revisions }) =>
      revisions === undefined ? requestsCodec.decode(value) : decodeRequests(value, revisions),
  },
};

async function combineRevision(parts: Parts): Promise<RevisionStats | undefined> {
  const durations = createDurationFigures();
  const namespaces = new Set<string>();
  let ends: { readonly first: Instant; readonly last: Instant } | undefined;
  const requests = listInTurns(parts, ({ durations: { lengths } }) => lengths.size);
  for await (const [, { names, durations: own, first, last }] of requests) {
    addFigures(durations, own);
    namespaces.add(names.namespace);
    ends = { first: earlier(ends?.first ?? first, first), last: later(ends?.last ?? last, last) };
  }
  if (ends === undefined) return undefined;
  return {
    first_seen: ends.first,
    last_seen: ends.last,
    count: durations.count,
    error_count: durations.errors,
    mean: calculateMean(durations),
    p_90: findPercentile(durations, 90),
    p_95: findPercentile(durations, 95),
    namespaces: [...namespaces].sort(),
  };
}

/** Figures by action, of a part of the requests of a revision in one piece. */
type Parts = readonly RequestsByAction[];

/** Those of a revision, or of all requests. */
function selectParts(pieces: readonly RequestsByPart[], revision: string | undefined): Parts {
  if (revision === undefined) return pieces.flatMap((piece) => [...piece.values()]);
  const keys = listPartKeys(revision);
  return pieces.flatMap((piece) => keys.flatMap((key) => piece.get(key) ?? []));
}

/** Without the requests that name no revision; an empty text is no name. */
async function groupByRevision(pieces: readonly RequestsByPart[]): Promise<ReadonlyMap<string, Parts>> {
  const pause = createPause();
  const groups = new Map<string, RequestsByAction[]>();
  for (const [key, actions] of pieces.flatMap((piece) => [...piece])) {
    const revision = readRevision(key);
    if (revision === undefined || revision === "") continue;
    const known = groups.get(revision);
    if (known === undefined) groups.set(revision, [actions]);
    else known.push(actions);
    await pause();
  }
  return groups;
}

/** What is added up in one turn. */
const workPerTurn = 20_000;

/** The figures with the keys of their actions. `measure` tells how much work they are. */
async function* listInTurns(
  parts: Parts,
  measure: (figures: RequestFigures) => number,
): AsyncGenerator<readonly [string, RequestFigures]> {
  let work = 0;
  for (const actions of parts) {
    for (const entry of actions) {
      yield entry;
      work += 1 + measure(entry[1]);
      if (work < workPerTurn) continue;
      work = 0;
      await yieldToEventLoop();
    }
  }
}
