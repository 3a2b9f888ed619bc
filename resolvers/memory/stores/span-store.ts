// Spans in arrays, and every question answered by the definition of `src/tracing`. It is the oracle that other stores
// are compared with, so it prefers being plainly right over being fast.

import { createPause } from "../../../src/core/async/turns.ts";
import { findLowerBound } from "../../../src/core/collections.ts";
import { compare, type Span } from "../../../src/core/rows.ts";
import type { Instant } from "../../../src/core/time.ts";
import type { SpanStore } from "../../../src/store/span-analytics.ts";
import type { Budget, SpanLookup, SpanReader, SpanSource, SpanSources } from "../../../src/store/spans.ts";
import { createSpanAnalytics } from "../../../src/tracing/analytics.ts";
import { formatSpanKey, isCalleeSide } from "../../../src/tracing/spans/requests.ts";
import { isInSelection } from "../../../src/tracing/spans/selection.ts";
import { readConfiguredNames } from "../../../src/tracing/spans/site-attributes.ts";

/** A span before a source has claimed it: its site, and what its attributes mean there, depend on who asks. */
export type StoredSpan = Omit<Span, "site_id" | "namespace" | "action" | "tags">;

export interface MemorySpans extends SpanStore {
  /** Adds spans to an index, in any order. They must not change afterwards. */
  readonly add: (index: string, spans: readonly StoredSpan[]) => void;
  /** Forgets the index's spans that ended before this instant. */
  readonly forget: (index: string, before: Instant) => void;
  /** The names of the indices that hold or held spans. */
  readonly indices: () => readonly string[];
  readonly newest: (index: string) => Instant | undefined;
}

const batchSize = 500;

interface SpanState {
  /** By end. Arrays are replaced, never changed: a reader keeps the one that it began with. */
  readonly indices: Map<string, readonly StoredSpan[]>;
  /** The same spans by trace, grouped anew when they have changed and somebody asks. */
  readonly traces: Map<string, ReadonlyMap<string, readonly StoredSpan[]>>;
}

export function createMemorySpans(): MemorySpans {
  const state: SpanState = { indices: new Map(), traces: new Map() };
  const { indices } = state;
  const reader: SpanReader = {
    scan: ({ sources, range, select, budget }, signal) => {
      const accepts = (span: StoredSpan): boolean =>
        span.end >= range.from && span.end <= range.to && isInSelection(select, span);
      return selectSpans(sources, (index) => indices.get(index) ?? [], accepts, budget, signal);
    },
    find: ({ sources, of, budget }, signal) => {
      const { traceIds, accepts } = planLookup(of);
      const candidates = (index: string): Iterable<StoredSpan> =>
        traceIds === undefined ? (indices.get(index) ?? []) : listSpansOfTraces(state, index, traceIds);
      return selectSpans(sources, candidates, accepts, budget, signal);
    },
  };
  return {
    ...reader,
    ...createSpanAnalytics(reader),
    add: (index, spans) => {
      const added = sortByEnd(spans);
      const [first] = added;
      if (first === undefined) return;
      const held = indices.get(index) ?? [];
      // Nearly all come in order: only late ones are sorted among those that end no earlier.
      const from = findLowerBound(held, ({ end }) => end > first.end);
      const rest = from === held.length ? added : sortByEnd([...held.slice(from), ...added]);
      replaceSpans(state, index, [...held.slice(0, from), ...rest]);
    },
    forget: (index, before) => {
      const held = indices.get(index) ?? [];
      const from = findLowerBound(held, ({ end }) => end >= before);
      if (from > 0) replaceSpans(state, index, held.slice(from));
    },
    indices: () => [...indices.keys()],
    newest: (index) => indices.get(index)?.at(-1)?.end,
  };
}

function sortByEnd(spans: readonly StoredSpan[]): readonly StoredSpan[] {
  return spans.toSorted((a, b) => compare(a.end, b.end));
}

function replaceSpans({ indices, traces }: SpanState, index: string, spans: readonly StoredSpan[]): void {
  indices.set(index, spans);
  traces.delete(index);
}

function* listSpansOfTraces(state: SpanState, index: string, ids: Iterable<string>): Generator<StoredSpan> {
  const byTrace = groupByTrace(state, index);
  for (const id of ids) yield* byTrace.get(id) ?? [];
}

function groupByTrace(
  { indices, traces }: SpanState,
  index: string,
): ReadonlyMap<string, readonly StoredSpan[]> {
  const known = traces.get(index);
  if (known !== undefined) return known;
  const grouped = Map.groupBy(indices.get(index) ?? [], ({ trace_id }) => trace_id);
  traces.set(index, grouped);
  return grouped;
}

/** The accepted candidates of each index, as the spans of its source. */
async function* selectSpans(
  sources: SpanSources,
  candidates: (index: string) => Iterable<StoredSpan>,
  accepts: (span: StoredSpan) => boolean,
  budget: Budget,
  signal: AbortSignal,
): AsyncGenerator<readonly Span[]> {
  signal.throwIfAborted();
  let batch: Span[] = [];
  const pause = createPause(signal);
  for (const [source, index] of listIndices(sources)) {
    for (const span of candidates(index)) {
      const paused = pause();
      if (paused !== undefined) await paused;
      if (!accepts(span)) continue;
      budget.spend(1);
      batch.push({ ...span, site_id: source.site, ...readConfiguredNames(span.span_attributes, source) });
      if (batch.length < batchSize) continue;
      yield batch;
      signal.throwIfAborted();
      batch = [];
    }
  }
  if (batch.length > 0) yield batch;
}

/** Each index of each site once: what two sources of one site hold in common is answered once. */
function listIndices(sources: SpanSources): readonly (readonly [SpanSource, string])[] {
  const pairs = sources.flatMap((source) =>
    source.index.split(",").map((index) => [`${source.site} ${index}`, [source, index] as const] as const),
  );
  return [...new Map(pairs.toReversed()).values()].toReversed();
}

function isCalledBy(span: StoredSpan, callers: ReadonlySet<string>): boolean {
  const { trace_id, parent_span_id: span_id, links } = span;
  const isChild = span_id !== undefined && callers.has(formatSpanKey({ trace_id, span_id }));
  if (isChild && isInSelection("calls", span)) return true;
  if (!isInSelection("entries", span)) return false;
  return (
    isChild ||
    (isCalleeSide(span) && callers.has(formatSpanKey(span))) ||
    links.some((link) => callers.has(formatSpanKey(link)))
  );
}

/** Which spans are looked up, and of which traces alone they can be; absent where of any. */
function planLookup(of: SpanLookup["of"]): {
  readonly traceIds?: Iterable<string>;
  readonly accepts: (span: StoredSpan) => boolean;
} {
  switch (of.by) {
    case "trace":
      return { traceIds: of.traceIds, accepts: (span) => isInSelection(of.select, span) };
    case "span": {
      const sought = new Set(of.spans.map(formatSpanKey));
      const traceIds = new Set(of.spans.map(({ trace_id }) => trace_id));
      return { traceIds, accepts: (span) => sought.has(formatSpanKey(span)) };
    }
    case "id": {
      const ids = new Set(of.spanIds);
      return { accepts: ({ span_id }) => ids.has(span_id) };
    }
    case "caller": {
      const callers = new Set(of.spans.map(formatSpanKey));
      return { accepts: (span) => isCalledBy(span, callers) };
    }
    case "parent": {
      const parents = new Set(of.spanIds);
      return {
        accepts: (span) =>
          span.parent_span_id !== undefined &&
          parents.has(span.parent_span_id) &&
          isInSelection("statements", span),
      };
    }
    default:
      return of satisfies never;
  }
}
