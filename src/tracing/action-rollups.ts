// Requests by action and revision as rollups: a request belongs to the segment in which it ends, wherever the spans below it lie.
// The source adds requests up as well, so that figures pay only where an index keeps nearly all of the range.
import { requireAt } from "../core/collections.ts";
import type { ActionRow, RevisionStats, Span } from "../core/rows.ts";
import type { Instant, TimeRange } from "../core/time.ts";
import type { ActionsQuery, RevisionQuery } from "../store/span-analytics.ts";
import type { SpanReader } from "../store/spans.ts";
import { takeTurns } from "./calls.ts";
import { createActionTraces, findActionsWithNpo } from "./n-plus-one-actions.ts";
import {
  addFigures,
  addSpan,
  calculateMean,
  createDurationFigures,
  findPercentile,
  measureFigures,
  measureText,
} from "./rollups/duration-figures.ts";
import { nameGroup, type RollupKind, type RollupQuery, type StorableKind } from "./rollups/rollups.ts";
import { findPiece } from "./rollups/segments.ts";
import { trackBudget } from "./spans/read-budget.ts";
import { deriveNames, formatActionKey, isRequest } from "./spans/requests.ts";
import {
  decodeRequests,
  formatRevisionKey,
  type RequestFigures,
  type RequestsByRevision,
  requestsCodec,
} from "./stored-figures.ts";

/** All requests of a site, as they are kept outside of this process too. */
export const requestRollups: StorableKind<RollupQuery, RequestsByRevision> = {
  name: "actions",
  key: () => [],
  listSources: ({ sources }) => sources,
  select: "entries",
  // A call far from its request may make an N+1 of it.
  isLocal: false,
  read: readRequests,
  codec: requestsCodec,
};

async function readRequests(
  reader: SpanReader,
  { sources, range, budget: whole }: RollupQuery,
  ranges: readonly TimeRange[],
  signal: AbortSignal,
): Promise<readonly RequestsByRevision[]> {
  const { budget, spent } = trackBudget(whole);
  const pieces = ranges.map((): RequestsByRevision => new Map());
  const traces = createActionTraces();
  /** By the key of the action among `traces`: those of each piece and revision are searched apart. */
  const byTracesKey = new Map<string, RequestFigures>();
  let requests = 0;
  const scan = { sources, range, select: "entries", withoutEvents: true, budget } as const;
  for await (const batch of reader.scan(scan, signal)) {
    for await (const chunk of takeTurns(batch, signal)) {
      for (const span of chunk) {
        if (!isRequest(span)) continue;
        const piece = findPiece(ranges, span.end);
        const figures = addRequest(requireAt(pieces, piece), span);
        const key = JSON.stringify([piece, span.revision ?? null, figures.names]);
        byTracesKey.set(key, figures);
        traces.add(key, span);
        requests += 1;
      }
    }
  }
  const search = { sources, scan, accepts: isRequest, requests, actions: byTracesKey.size, traces, spent };
  for (const key of await findActionsWithNpo(reader, { ...search, isAggregated: false }, signal)) {
    const figures = byTracesKey.get(key);
    if (figures !== undefined) figures.hasNpo = true;
  }
  return pieces;
}

/** The figures to which the request was added. */
function addRequest(piece: RequestsByRevision, span: Span): RequestFigures {
  const revisionKey = formatRevisionKey(span.revision);
  const actions = piece.get(revisionKey) ?? new Map<string, RequestFigures>();
  piece.set(revisionKey, actions);
  const names = deriveNames(span);
  const actionKey = formatActionKey(names);
  const { end } = span;
  const figures = actions.get(actionKey) ?? {
    ...{ names, durations: createDurationFigures(), hasNpo: false },
    ...{ first: end, last: end },
  };
  actions.set(actionKey, figures);
  addSpan(figures.durations, span);
  if (end < figures.first) figures.first = end;
  if (end > figures.last) figures.last = end;
  return figures;
}

type RequestKind<Query extends RollupQuery, Answer> = RollupKind<Query, RequestsByRevision, Answer>;

/** What the answers over requests share. */
const answered = {
  ...requestRollups,
  isAddedUp: true,
  measure: (figures: RequestsByRevision) =>
    [...figures.values()]
      .flatMap((actions) => [...actions])
      .reduce((bytes, [key, { durations }]) => bytes + 2 * measureText(key) + measureFigures(durations), 400),
} as const;

export const actionRollups: RequestKind<ActionsQuery, readonly ActionRow[]> = {
  ...answered,
  combine: (pieces, { namespaces, action, revision }) => {
    const rows = new Map<string, SummedRow>();
    for (const [key, { names, durations, hasNpo }] of listRequests(pieces, revision)) {
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
    nameGroup: (query) => nameGroup(requestRollups, query),
    decode: (value, { revision }) =>
      revision === undefined ? requestsCodec.decode(value) : decodeRequests(value, revision),
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

export const revisionRollups: RequestKind<RevisionQuery, RevisionStats | undefined> = {
  ...answered,
  combine: (pieces, { revision }) => {
    const durations = createDurationFigures();
    const namespaces = new Set<string>();
    let ends: { readonly first: Instant; readonly last: Instant } | undefined;
    for (const [, { names, durations: own, first, last }] of listRequests(pieces, revision)) {
      addFigures(durations, own);
      namespaces.add(names.namespace);
      ends = {
        first: ends !== undefined && ends.first < first ? ends.first : first,
        last: ends !== undefined && ends.last > last ? ends.last : last,
      };
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
  },
  stored: {
    nameGroup: (query) => nameGroup(requestRollups, query),
    decode: (value, { revision }) => decodeRequests(value, revision),
  },
};

/** The figures of all pieces with the keys of their actions; of all revisions where none is named. */
function* listRequests(
  pieces: readonly RequestsByRevision[],
  revision: string | undefined,
): Generator<readonly [string, RequestFigures]> {
  for (const piece of pieces) {
    const parts = revision === undefined ? piece.values() : [piece.get(formatRevisionKey(revision)) ?? []];
    for (const actions of parts) yield* actions;
  }
}
