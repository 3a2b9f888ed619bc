// A span store over the span stores of several backends. Every question is answered by its definition in `src/tracing`, over
// the spans of all of them: a trace is put together from its spans wherever they lie.
//
// A span that several backends hold is one span, as during a migration that writes to two clusters. Counts of one source do
// not show copies, so nothing is counted at the sources.
import { hash } from "node:crypto";
import { combineSignals, mapAtOnce, mergeConcurrent } from "../core/async/concurrency.ts";
import { isNonEmpty, requireAt, requireKey } from "../core/collections.ts";
import { compare, type Span } from "../core/rows.ts";
import type { SpanAnalytics, SpanStore } from "../store/span-analytics.ts";
import type { SpanReader, SpanSource, SpanSources } from "../store/spans.ts";
import { createSpanAnalytics } from "../tracing/analytics.ts";
import { openFederatedSnapshot, parseFederatedVersion, type SourcesInBackend } from "./federated-snapshot.ts";

/** One place of a source's spans. */
export interface SpanPlace {
  readonly backend: string;
  readonly store: SpanStore;
  /** As the backend reads it. */
  readonly source: SpanSource;
}

/**
 * `listPlaces` knows each source that a query may name: those of sites in one backend may be partners of others. Figures of
 * snapshots can be kept where `findStore` knows the stores of all places by the names of their backends.
 */
interface PlacedSpans {
  readonly listPlaces: (source: SpanSource) => readonly SpanPlace[];
  readonly findStore?: (backend: string) => SpanStore | undefined;
}

export function createFederatedSpans(
  placed: PlacedSpans,
  createAnalytics: (reader: SpanReader) => SpanAnalytics = createSpanAnalytics,
): SpanStore {
  const reader = createPlacedReader(placed);
  return { ...reader, ...createAnalytics(reader) };
}

function createPlacedReader({ listPlaces, findStore }: PlacedSpans): SpanReader {
  const divide: Divide = (sources) => groupByBackend(sources.flatMap(listPlaces));
  const reader = createFederatedReader(divide);
  if (findStore === undefined) return reader;
  const joinReaders = (readers: ReadonlyMap<string, SpanReader>) =>
    createFederatedReader((sources) =>
      divide(sources).map((part) => ({ ...part, reader: requireKey(readers, part.backend) })),
    );
  return {
    ...reader,
    openSnapshot: (sources, since, signal) =>
      openFederatedSnapshot({ divide, joinReaders }, sources, since, signal),
    parseVersion: (text) => parseFederatedVersion(text, findStore),
  };
}

/** What each backend is asked for. */
function groupByBackend(places: readonly SpanPlace[]): readonly SourcesInBackend[] {
  return [...Map.groupBy(places, ({ backend }) => backend)].flatMap(([backend, own]) => {
    const sources = own.map(({ source }) => source);
    const [first] = own;
    return first !== undefined && isNonEmpty(sources) ? [{ backend, reader: first.store, sources }] : [];
  });
}

type Divide = (sources: SpanSources) => readonly SourcesInBackend[];

function createFederatedReader(divide: Divide): SpanReader {
  return {
    scan: (query, signal) =>
      readSpans(divide(query.sources), signal, ({ reader, sources }, own) =>
        reader.scan({ ...query, sources }, own),
      ),
    find: (query, signal) =>
      readSpans(divide(query.sources), signal, ({ reader, sources }, own) =>
        reader.find({ ...query, sources }, own),
      ),
    findSplitPoint: async (query, signal) => {
      const found = await mapAtOnce(
        divide(query.sources),
        async ({ reader, sources }, own) => reader.findSplitPoint?.({ ...query, sources }, own),
        signal,
      );
      const known = found.filter((value) => value !== undefined).sort(compare);
      return query.order === "asc" ? known[0] : known.at(-1);
    },
    findTraceIdsWithExceptions: async (query, signal) => {
      const lists = await mapAtOnce(
        divide(query.sources),
        async ({ reader, sources }, own) => reader.findTraceIdsWithExceptions?.({ ...query, sources }, own),
        signal,
      );
      return lists.every((list) => list !== undefined) ? [...new Set(lists.flat())] : undefined;
    },
    count: async (query, signal) => {
      const counts = await mapAtOnce(
        divide(query.sources),
        async ({ reader, sources }, own) => reader.count?.({ ...query, sources }, own),
        signal,
      );
      return counts.every((count) => count !== undefined)
        ? counts.reduce((sum, count) => sum + count, 0)
        : undefined;
    },
  };
}

/** Reads all backends at the same time. One that fails fails the answer, and the others are given up. */
async function* readSpans(
  parts: readonly SourcesInBackend[],
  signal: AbortSignal,
  read: (part: SourcesInBackend, signal: AbortSignal) => AsyncIterable<readonly Span[]>,
): AsyncGenerator<readonly Span[]> {
  const [only] = parts;
  if (only !== undefined && parts.length === 1) {
    yield* read(only, signal);
    return;
  }
  signal.throwIfAborted();
  const leaving = new AbortController();
  const limited = combineSignals(signal, leaving.signal);
  const isCopy = createCopyTest(parts.length);
  const readPart = async function* (part: SourcesInBackend, at: number): AsyncGenerator<readonly Span[]> {
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
 * Returns a test of whether another backend has returned the span already. Spans with other times are others: a span was sent
 * twice, and no part of a range may depend on which backend is faster. A backend that returns a span several times, since
 * it counts documents, has it as often in the answer.
 */
function createCopyTest(backends: number): (backend: number, span: Span) => boolean {
  /** Of a span that came once, its backend; otherwise how often each backend has returned it. */
  const seen = new Map<string, number | number[]>();
  return (backend, span) => {
    const digest = digestSpan(span);
    const before = seen.get(digest);
    if (before === undefined) {
      seen.set(digest, backend);
      return false;
    }
    const counts =
      typeof before === "number"
        ? Array.from({ length: backends }, (_, at) => (at === before ? 1 : 0))
        : before;
    const count = requireAt(counts, backend) + 1;
    counts[backend] = count;
    seen.set(digest, counts);
    return counts.some((other, at) => at !== backend && other >= count);
  };
}

/** A digest takes a quarter of the memory of what it is of, and holds no text of the answer that the span came in. */
function digestSpan({ site_id, trace_id, span_id, span_kind, start, end }: Span): string {
  const text = JSON.stringify([site_id, trace_id, span_id, span_kind, `${start}`, `${end}`]);
  return hash("sha256", text, "binary");
}
