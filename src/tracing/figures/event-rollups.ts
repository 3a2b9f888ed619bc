// Slow events, and the actions of one, as rollups: a span belongs to the segment in which it ends. Slow events only where no
// attributes are asked for: of a kept group nobody knows which of its spans had them.

import { visitInTurns } from "../../core/async/turns.ts";
import { requireAt } from "../../core/collections.ts";
import type { SlowEvent, SlowEventAction, Span } from "../../core/rows.ts";
import type { TimeRange } from "../../core/time.ts";
import type { SlowEventActionsQuery, SlowEventsQuery } from "../../store/span-analytics.ts";
import type { SpanReader, SpanTally } from "../../store/spans.ts";
import { formatWorkKey, shareWork } from "../rollup-store/shared-work.ts";
import { measureText } from "../rollups/duration-figures.ts";
import { type AnalysisKind, nameGroup, type RollupQuery, type StoredKind } from "../rollups/figures-kind.ts";
import { findRangeIndex } from "../rollups/segments.ts";
import {
  addEventAction,
  deriveEventKey,
  type EventActions,
  type EventTotals,
  formatEventKey,
  listEventActions,
  rankEvents,
  readSpansOfEvent,
  readSpansOfEvents,
  toEventAction,
} from "../slow-events.ts";
import { readTallies } from "../spans/span-tally.ts";
import { createNormaliser } from "../spans/statement-cache.ts";
import {
  type ActionsByEvent,
  addEvent,
  choosePart,
  decodeEventActions,
  type EventFigures,
  eventActionsCodec,
  eventsCodec,
  findEventActions,
  mergeEventActions,
} from "./stored-figures.ts";

export const slowEventRollups: AnalysisKind<SlowEventsQuery, EventFigures, readonly SlowEvent[]> &
  StoredKind<SlowEventsQuery, EventFigures> = {
  name: "slow_events",
  key: () => [],
  listSources: ({ sources }) => sources,
  select: "children",
  isLocal: true,
  read: async (reader, { sources, budget }, ranges, signal) => {
    const all: EventFigures[] = [];
    for (const range of ranges) {
      const figures: EventFigures = { total: 0n, events: new Map() };
      const normalise = shareNormaliser(reader);
      const scan = { sources, range, select: "children", by: "event", budget } as const;
      for await (const batch of readTallies(reader, scan, signal)) {
        const count = ({ span, isSingle, spans, total }: SpanTally) => {
          const key = deriveEventKey(span, normalise);
          figures.total += total;
          addEvent(figures.events, formatEventKey(key), {
            key,
            count: isSingle ? span.count : spans,
            total,
            attributes: {},
          });
        };
        await visitInTurns(batch, count, signal);
      }
      all.push(figures);
    }
    return all;
  },
  combine: async (pieces, { kind, limit }) => {
    const { total, events } = await eventsCodec.merge(pieces);
    return rankEvents(selectKind(events, kind), limit, total);
  },
  codec: eventsCodec,
  stored: { chooseGroup: (query) => nameGroup(slowEventRollups, query), decode: eventsCodec.decode },
  measure: ({ events }) => [...events.keys()].reduce((bytes, id) => bytes + 2 * measureText(id) + 300, 300),
};

function* selectKind(
  events: EventFigures["events"],
  kind: SlowEventsQuery["kind"],
): Generator<readonly [string, EventTotals]> {
  for (const entry of events) if (kind === undefined || entry[1].key.kind === kind) yield entry;
}

/** Statements with values that no rule finds make many slow events, and a request is about one. */
const eventParts = 16;

/** The actions of each slow event, as they are kept outside of this process: by `choosePart` of the event's digest. */
export const actionsByEventRollups: readonly StoredKind<RollupQuery, ActionsByEvent>[] = Array.from(
  { length: eventParts },
  (_, part) => ({
    name: "slow_event_actions",
    key: () => [part],
    listSources: ({ sources }) => sources,
    select: "children",
    isLocal: false,
    read: async (reader, query, ranges, signal) => {
      const all = await readActionsOnce(reader, query, ranges, signal);
      return all.map((events) => {
        return new Map([...events].filter(([digest]) => choosePart(digest, eventParts) === part));
      });
    },
    codec: eventActionsCodec,
  }),
);

/** The kinds above read the same pieces one after another. */
function readActionsOnce(
  reader: SpanReader,
  query: RollupQuery,
  ranges: readonly TimeRange[],
  signal: AbortSignal,
): Promise<readonly ActionsByEvent[]> {
  const key = formatWorkKey([query.sources], ranges);
  const read = () => readActionsByEvent(reader, query, ranges, signal);
  return shareWork(reader, { name: "event actions", key }, read);
}

/** Slow events and their actions name the same statements. */
function shareNormaliser(reader: SpanReader): (statement: string) => string {
  return shareWork(reader, { name: "normaliser", key: "" }, () => createNormaliser(maxSharedStatements));
}

/** About as many as a segment has. */
const maxSharedStatements = 50_000;

async function readActionsByEvent(
  reader: SpanReader,
  query: RollupQuery,
  ranges: readonly TimeRange[],
  signal: AbortSignal,
): Promise<readonly ActionsByEvent[]> {
  const { spans, deriveDigest, deriveAction } = await readSpansOfEvents(
    reader,
    query,
    shareNormaliser(reader),
    signal,
  );
  const pieces = ranges.map((): ActionsByEvent => new Map());
  const add = (span: Span) => {
    const piece = requireAt(pieces, findRangeIndex(ranges, span.end));
    addEventAction(findEventActions(piece, deriveDigest(span)), deriveAction(span), toEventAction(span));
  };
  await visitInTurns(spans, add, signal);
  return pieces;
}

export const slowEventActionRollups: AnalysisKind<
  SlowEventActionsQuery,
  EventActions,
  readonly SlowEventAction[]
> = {
  name: "slow_event_actions",
  key: ({ digest }) => [digest],
  listSources: ({ sources }) => sources,
  select: "children",
  isLocal: false,
  read: async (reader, query, ranges, signal) => {
    const { spans, deriveAction } = await readSpansOfEvent(reader, query, signal);
    const pieces = ranges.map((): EventActions => new Map());
    const add = (span: Span) => {
      const piece = requireAt(pieces, findRangeIndex(ranges, span.end));
      addEventAction(piece, deriveAction(span), toEventAction(span));
    };
    await visitInTurns(spans, add, signal);
    return pieces;
  },
  combine: (pieces) => listEventActions(mergeEventActions(pieces)),
  stored: {
    chooseGroup: (query) =>
      nameGroup(requireAt(actionsByEventRollups, choosePart(query.digest, eventParts)), query),
    decode: (value, { digest }) => decodeEventActions(value, digest),
  },
  measure: (actions) => [...actions.keys()].reduce((bytes, key) => bytes + 2 * measureText(key) + 400, 300),
};
