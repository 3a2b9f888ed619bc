// What documents that were added since figures were made may have changed: the minutes of their spans, and for figures of whole
// traces also the minutes of all spans in their traces, and in the traces they link to.

import type { Span } from "../../core/rows.ts";
import { type Instant, minute, nanosPerMilli, type TimeRange } from "../../core/time.ts";
import type { AddedSpans, SpanReader, SpanSources } from "../../store/spans.ts";
import { createBudgetShare, suppressShareSpent, unlimitedBudget } from "../spans/read-budget.ts";
import { findSegment } from "./segments.ts";

interface Changes {
  readonly sources: SpanSources;
  /** Whether a span changes the figures of its own segment only. */
  readonly isLocal: boolean;
  readonly added: AddedSpans;
  /** Of the snapshot that has the added documents. */
  readonly reader: SpanReader;
  /** Documents that may have been added. */
  readonly maxAdded: number;
  /** Only minutes in this range matter. */
  readonly within?: TimeRange | undefined;
}

/** All lengths of segments are multiples of it. */
const minuteLength = BigInt(minute) * nanosPerMilli;

/** As `Changes.maxAdded` of a request: more added documents cost as much as reading the segments again. */
export const maxAddedOfRequest = 50_000;

/** Traces that are looked up at once. */
const tracesPerLookup = 20_000;

/** The starts of the minutes that may have changed. Undefined where more was added, or finding them takes too much. */
export async function findChangedMinutes(
  { sources, isLocal, added, reader, maxAdded, within }: Changes,
  signal: AbortSignal,
): Promise<ReadonlySet<Instant> | undefined> {
  const changed = new Set<Instant>();
  if (added.documents > maxAdded) return undefined;
  if (added.documents === 0) return changed;
  // Of its own: a request that reads all in the end has the whole of its budget for that.
  const share = createBudgetShare(unlimitedBudget, 4 * maxAdded);
  const addMinutes = (batch: readonly Span[]): void => {
    for (const { end } of batch) changed.add(findSegment(end, minuteLength));
  };
  const traceIds = new Set<string>();
  const lookUpTraces = async (): Promise<void> => {
    const of = { by: "trace", traceIds: [...traceIds], select: "all" } as const;
    const query = { sources, of, within: within && { range: within }, withoutEvents: true, budget: share };
    traceIds.clear();
    for await (const batch of reader.find(query, signal)) addMinutes(batch);
  };
  const find = async (): Promise<ReadonlySet<Instant>> => {
    for await (const batch of added.read(share, signal)) {
      addMinutes(batch);
      if (isLocal) continue;
      for (const { trace_id, links } of batch) {
        traceIds.add(trace_id);
        for (const link of links) traceIds.add(link.trace_id);
      }
      if (traceIds.size >= tracesPerLookup) await lookUpTraces();
    }
    if (traceIds.size > 0) await lookUpTraces();
    return changed;
  };
  return suppressShareSpent(find());
}
