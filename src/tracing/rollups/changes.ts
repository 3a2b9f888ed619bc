// Finds what must be counted again since documents were added: the minutes of their spans, for figures of whole traces also the
// minutes of all spans in those traces and in the traces they link to; and the indices that have changed.

import type { Span } from "../../core/rows.ts";
import {
  allTime,
  earlier,
  type Instant,
  later,
  minute,
  nanosPerMilli,
  type TimeRange,
} from "../../core/time.ts";
import type { AddedSpans, SpanReader, SpanSnapshot, SpanSources } from "../../store/spans.ts";
import { createBudgetShare, suppressShareSpent, unlimitedBudget } from "../spans/read-budget.ts";
import { findSegmentStart } from "./segments.ts";

interface ChangesQuery {
  readonly sources: SpanSources;
  /** Whether a span changes the figures of its own segment only. */
  readonly isLocal: boolean;
  readonly added: AddedSpans;
  /** Of the snapshot that has the added documents. */
  readonly reader: SpanReader;
  /** The most added documents to look through. */
  readonly maxAdded: number;
  /** What figures are kept of: minutes outside of it do not matter. */
  readonly kept: Iterable<TimeRange>;
}

/** All lengths of segments are multiples of it. */
const minuteLength = BigInt(minute) * nanosPerMilli;

/** What does not hold any more. */
export interface Changes {
  /** The starts of the minutes that may have changed. */
  readonly minutes: ReadonlySet<Instant>;
  /** As `AddedSpans.changedOrigins`. */
  readonly changedOrigins: ReadonlySet<string>;
}

/**
 * As `ChangesQuery.maxAdded` of a request: more added documents cost as much as reading the segments in memory again. What an
 * index keeps is often too much to read, so more is looked through for it: some seconds.
 */
const maxAddedOfRequest = { memory: 50_000, stored: 200_000 } as const;

/** Traces that are looked up at once. */
const tracesPerLookup = 20_000;

interface RequestChangesQuery extends Pick<ChangesQuery, "sources" | "isLocal" | "reader" | "kept"> {
  readonly added: SpanSnapshot["added"];
  /** Whether an index keeps some of the figures. */
  readonly isStored: boolean;
}

/** As `findChanges`, for a request. Undefined also where nobody knows what was added. */
export async function findChangesForRequest(
  { added, isStored, ...query }: RequestChangesQuery,
  signal: AbortSignal,
): Promise<Changes | undefined> {
  const maxAdded = maxAddedOfRequest[isStored ? "stored" : "memory"];
  return added && findChanges({ ...query, added, maxAdded }, signal);
}

/** Undefined where more was added, or finding the minutes takes too much. */
export async function findChanges(
  { sources, isLocal, added, reader, maxAdded, kept }: ChangesQuery,
  signal: AbortSignal,
): Promise<Changes | undefined> {
  const minutes = new Set<Instant>();
  const changes = { minutes, changedOrigins: added.changedOrigins };
  const within = findHull(kept);
  if (added.documents === 0 || within === undefined) return changes;
  // Of a local kind only late documents are read. Most are newer than all that is kept.
  if (!isLocal && added.documents > maxAdded) return undefined;
  // Apart from the request's budget, all of which is left for one that reads everything in the end.
  const budget = createBudgetShare(unlimitedBudget, isLocal ? maxAdded : 4 * maxAdded);
  const addMinutes = (batch: readonly Span[]): void => {
    for (const { end } of batch) minutes.add(findSegmentStart(end, minuteLength));
  };
  const traceIds = new Set<string>();
  const lookUpTraces = async (): Promise<void> => {
    const of = { by: "trace", traceIds: [...traceIds], select: "all" } as const;
    const query = { sources, of, within: { range: within }, withoutEvents: true, budget };
    traceIds.clear();
    for await (const batch of reader.find(query, signal)) addMinutes(batch);
  };
  const find = async (): Promise<Changes> => {
    for await (const batch of added.read({ range: isLocal ? within : allTime, budget }, signal)) {
      addMinutes(batch);
      if (isLocal) continue;
      for (const { trace_id, links } of batch) {
        traceIds.add(trace_id);
        for (const link of links) traceIds.add(link.trace_id);
      }
      if (traceIds.size >= tracesPerLookup) await lookUpTraces();
    }
    if (traceIds.size > 0) await lookUpTraces();
    return changes;
  };
  return suppressShareSpent(find());
}

/** From the start of the first range to the end of the last one. */
function findHull(ranges: Iterable<TimeRange>): TimeRange | undefined {
  let hull: TimeRange | undefined;
  for (const { from, to } of ranges) {
    hull = hull === undefined ? { from, to } : { from: earlier(hull.from, from), to: later(hull.to, to) };
  }
  return hull;
}
