// Slow events, and the actions of one, as rollups: a span belongs to the segment in which it ends. Slow events only where no
// attributes are asked for: of a kept group nobody knows which of its spans had them.
import { requireAt } from "../core/collections.ts";
import type { SlowEvent, SlowEventAction } from "../core/rows.ts";
import type { SlowEventActionsQuery, SlowEventsQuery } from "../store/span-analytics.ts";
import { measureText } from "./rollups/duration-figures.ts";
import type { RollupKind } from "./rollups/rollups.ts";
import { findPiece } from "./rollups/segments.ts";
import {
  addEventAction,
  deriveEventKey,
  type EventActions,
  type EventTotals,
  formatEventKey,
  listEventActions,
  rankEvents,
  readSpansOfEvent,
  toEventAction,
} from "./slow-events.ts";
import { readTallies } from "./spans/span-tally.ts";
import { createNormaliser } from "./spans/statement-cache.ts";

interface EventFigures {
  /** Of all spans below requests, nanoseconds. */
  total: bigint;
  readonly events: Map<string, EventTotals>;
}

export const slowEventRollups: RollupKind<SlowEventsQuery, EventFigures, readonly SlowEvent[]> = {
  name: "slow_events",
  key: () => [],
  listSources: ({ sources }) => sources,
  select: "children",
  isLocal: true,
  read: async (reader, { sources, budget }, ranges, signal) => {
    const all: EventFigures[] = [];
    for (const range of ranges) {
      const figures: EventFigures = { total: 0n, events: new Map() };
      const normalise = createNormaliser();
      const scan = { sources, range, select: "children", by: "event", budget } as const;
      for await (const batch of readTallies(reader, scan, signal)) {
        for (const { span, isSingle, spans, total } of batch) {
          const key = deriveEventKey(span, normalise);
          figures.total += total;
          addEvent(figures.events, formatEventKey(key), {
            key,
            count: isSingle ? span.count : spans,
            total,
            attributes: {},
          });
        }
      }
      all.push(figures);
    }
    return all;
  },
  combine: (pieces, { kind, limit }) => {
    const sum = new Map<string, EventTotals>();
    for (const { events } of pieces) {
      for (const [id, event] of events) {
        if (kind === undefined || event.key.kind === kind) addEvent(sum, id, event);
      }
    }
    return rankEvents(
      [...sum.values()],
      limit,
      pieces.reduce((total, piece) => total + piece.total, 0n),
    );
  },
  measure: ({ events }) => [...events.keys()].reduce((bytes, id) => bytes + 2 * measureText(id) + 300, 300),
};

function addEvent(sum: Map<string, EventTotals>, id: string, event: EventTotals): void {
  const known = sum.get(id);
  if (known === undefined) sum.set(id, event);
  else sum.set(id, { ...known, count: known.count + event.count, total: known.total + event.total });
}

export const slowEventActionRollups: RollupKind<
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
    for (const span of spans) {
      const piece = requireAt(pieces, findPiece(ranges, span.end));
      addEventAction(piece, deriveAction(span), toEventAction(span));
    }
    return pieces;
  },
  combine: (pieces) => {
    const sum: EventActions = new Map();
    for (const piece of pieces) for (const { names, of } of piece.values()) addEventAction(sum, names, of);
    return listEventActions(sum);
  },
  measure: (actions) => [...actions.keys()].reduce((bytes, key) => bytes + 2 * measureText(key) + 400, 300),
};
