// A span store over the span stores of several backends. Every question is answered by its definition in `src/tracing`, over
// the spans of all of them: a trace is put together from its spans wherever they lie.
//
// A span that several backends hold is one span, as during a migration that writes to two clusters. Counts of one source do
// not show copies, so nothing is counted at the sources.
import { isNonEmpty } from "../core/collections.ts";
import { mergeConcurrent } from "../core/concurrency.ts";
import { compare, type Span } from "../core/rows.ts";
import type { SpanStore } from "../store/span-analytics.ts";
import type { SpanReader, SpanSource, SpanSources } from "../store/spans.ts";
import { createSpanAnalytics } from "../tracing/analytics.ts";

/** One place of a source's spans. */
export interface SpanPlace {
  readonly store: SpanStore;
  /** As the backend reads it. */
  readonly source: SpanSource;
}

/** `listPlaces` knows each source that a query may name: those of sites in one backend may be partners of others. */
export function createFederatedSpans(listPlaces: ListPlaces): SpanStore {
  const reader = createFederatedReader((sources) => groupByStore(sources.flatMap(listPlaces)));
  return { ...reader, ...createSpanAnalytics(reader) };
}

type ListPlaces = (source: SpanSource) => readonly SpanPlace[];

interface StoreSources {
  readonly store: SpanStore;
  readonly sources: SpanSources;
}

/** What each backend is asked for. */
function groupByStore(places: readonly SpanPlace[]): readonly StoreSources[] {
  return [...Map.groupBy(places, ({ store }) => store)].flatMap(([store, own]) => {
    const sources = own.map(({ source }) => source);
    return isNonEmpty(sources) ? [{ store, sources }] : [];
  });
}

type Divide = (sources: SpanSources) => readonly StoreSources[];

function createFederatedReader(divide: Divide): SpanReader {
  return {
    scan: (query, signal) =>
      readSpans(divide(query.sources), signal, ({ store, sources }, own) =>
        store.scan({ ...query, sources }, own),
      ),
    find: (query, signal) =>
      readSpans(divide(query.sources), signal, ({ store, sources }, own) =>
        store.find({ ...query, sources }, own),
      ),
    findSplitPoint: async (query, signal) => {
      const found = await Promise.all(
        divide(query.sources).map(({ store, sources }) =>
          store.findSplitPoint?.({ ...query, sources }, signal),
        ),
      );
      const known = found.filter((value) => value !== undefined).sort(compare);
      return query.order === "asc" ? known[0] : known.at(-1);
    },
    findTraceIdsWithExceptions: async (query, signal) => {
      const lists = await Promise.all(
        divide(query.sources).map(({ store, sources }) =>
          store.findTraceIdsWithExceptions?.({ ...query, sources }, signal),
        ),
      );
      return lists.every((list) => list !== undefined) ? [...new Set(lists.flat())] : undefined;
    },
    count: async (query, signal) => {
      const counts = await Promise.all(
        divide(query.sources).map(({ store, sources }) => store.count?.({ ...query, sources }, signal)),
      );
      return counts.every((count) => count !== undefined)
        ? counts.reduce((sum, count) => sum + count, 0)
        : undefined;
    },
  };
}

/** Reads all backends at the same time. One that fails fails the answer, and the others are given up. */
async function* readSpans(
  parts: readonly StoreSources[],
  signal: AbortSignal,
  read: (part: StoreSources, signal: AbortSignal) => AsyncIterable<readonly Span[]>,
): AsyncGenerator<readonly Span[]> {
  const [only] = parts;
  if (only !== undefined && parts.length === 1) {
    yield* read(only, signal);
    return;
  }
  signal.throwIfAborted();
  const leaving = new AbortController();
  const limited = AbortSignal.any([signal, leaving.signal]);
  const isCopy = createCopyTest(parts.length);
  const readPart = async function* (part: StoreSources, at: number): AsyncGenerator<readonly Span[]> {
    for await (const spans of read(part, limited)) {
      const own = spans.filter((span) => !isCopy(at, span));
      if (own.length > 0) yield own;
    }
  };
  try {
    yield* mergeConcurrent(
      parts.map((part, at) => () => readPart(part, at)),
      parts.length,
    );
  } finally {
    leaving.abort(new Error("the caller stopped reading"));
  }
}

/**
 * Returns a test of whether another backend has returned the span already. A backend that returns a span several times, since
 * it counts documents, has it as often in the answer, whichever backend is faster.
 */
function createCopyTest(backends: number): (backend: number, span: Span) => boolean {
  const seen = Array.from({ length: backends }, () => new Map<string, number>());
  return (backend, { site_id, trace_id, span_id, span_kind, start }) => {
    const key = `${site_id} ${trace_id}${span_id}${span_kind}${start}`;
    const count = (seen[backend]?.get(key) ?? 0) + 1;
    seen[backend]?.set(key, count);
    return seen.some((other, at) => at !== backend && (other.get(key) ?? 0) >= count);
  };
}
