// The span store of Elasticsearch and OpenSearch: the reads of the contract over one or several sites, and all analytics by
// their definition over these. Queries narrow what is read; whether a span matches is decided on the decoded span.

import { mergeConcurrent } from "../../../src/core/concurrency.ts";
import { compare } from "../../../src/core/rows.ts";
import type { SpanStore } from "../../../src/store/span-analytics.ts";
import type { Budget, SpanReader, SpanSources } from "../../../src/store/spans.ts";
import { createSpanAnalytics } from "../../../src/tracing/analytics.ts";
import type { ElasticClient } from "../client/client.ts";
import type { MappingCache } from "../search/mapping-cache.ts";
import { combineHints, countCandidates, findSplitPoint, listTraceIdsWithExceptions } from "./index-hints.ts";
import { findNPlusOneParents } from "./n-plus-one.ts";
import { createSeenSpans } from "./seen-spans.ts";
import type { ReadContext } from "./span-assembly.ts";
import { createSpanDocuments, type SpanDocuments } from "./span-documents.ts";
import { findInSite } from "./span-lookup.ts";
import { scanSite, tallySite } from "./span-scan.ts";

export function createSpanStore(
  backend: string,
  client: ElasticClient,
  mappingCache: MappingCache,
): SpanStore {
  const reader = createSpanReader(createSpanDocuments(backend, client, mappingCache));
  return { ...reader, ...createSpanAnalytics(reader) };
}

function createSpanReader(documents: SpanDocuments): SpanReader {
  return {
    scan: (query, signal) => readSites(documents, query, signal, (context) => scanSite(query, context)),
    tally: (query, signal) => readSites(documents, query, signal, (context) => tallySite(query, context)),
    find: (query, signal) => readSites(documents, query, signal, (context) => findInSite(query, context)),
    findNPlusOneParents: async (query, signal) => {
      const [source, ...others] = query.sources;
      return others.length > 0 ? undefined : findNPlusOneParents(documents, source, query, signal);
    },
    findSplitPoint: async (query, signal) => {
      const found = await Promise.all(
        query.sources.map((source) => findSplitPoint(documents, source, query, signal)),
      );
      const known = found.filter((value) => value !== undefined).sort(compare);
      return query.order === "asc" ? known[0] : known.at(-1);
    },
    findTraceIdsWithExceptions: async (query, signal) => {
      const lists = combineHints(
        await Promise.all(
          query.sources.map((source) => listTraceIdsWithExceptions(documents, source, query, signal)),
        ),
      );
      return lists && [...new Set(lists.flat())];
    },
    count: async (query, signal) => {
      const counts = combineHints(
        await Promise.all(query.sources.map((source) => countCandidates(documents, source, query, signal))),
      );
      return counts?.reduce((sum, count) => sum + count, 0);
    },
  };
}

/** Reads the sites at the same time. The sources of one site are read together, because they may share documents. */
async function* readSites<T>(
  documents: SpanDocuments,
  { sources, budget }: { readonly sources: SpanSources; readonly budget: Budget },
  signal: AbortSignal,
  read: (context: ReadContext) => AsyncGenerator<T>,
): AsyncGenerator<T> {
  signal.throwIfAborted();
  const leaving = new AbortController();
  const limited = documents.combineSignals(signal, leaving.signal);
  const contexts = [...Map.groupBy(sources, ({ site }) => site).values()].map((own): ReadContext => {
    return { documents, sources: own, budget, signal: limited, seen: createSeenSpans() };
  });
  try {
    yield* mergeConcurrent(contexts.map((context) => () => read(context)));
  } finally {
    leaving.abort(new Error("the caller stopped reading"));
  }
}
