// The span store of Elasticsearch and OpenSearch: the reads of the contract over one or several sites, and all analytics by
// their definition over these. Queries narrow what is read; whether a span matches is decided on the decoded span.

import { combineSignals, mapSources, mergeConcurrent } from "../../../src/core/async/concurrency.ts";
import { isNonEmpty } from "../../../src/core/collections.ts";
import { compare } from "../../../src/core/rows.ts";
import type { SpanStore } from "../../../src/store/span-analytics.ts";
import type {
  AddedSpans,
  Budget,
  SpanReader,
  SpanScan,
  SpanSnapshot,
  SpanSource,
  SpanSources,
} from "../../../src/store/spans.ts";
import { createRollupAnalytics } from "../../../src/tracing/figures/rollup-analytics.ts";
import type { RollupCache } from "../../../src/tracing/rollups/rollup-cache.ts";
import type { ElasticClient } from "../client/client.ts";
import type { MappingCache } from "../search/mapping-cache.ts";
import { parseVersion } from "../snapshot/snapshot.ts";
import {
  combineHints,
  countCandidates,
  findSplitPoint,
  listCandidateTraceIds,
  listTraceIdsWithExceptions,
} from "./index-hints.ts";
import { findNPlusOneParents } from "./n-plus-one.ts";
import { formatSource } from "./search-plan.ts";
import { createSeenSpans } from "./seen-spans.ts";
import type { ReadContext } from "./span-assembly.ts";
import {
  type AddedShards,
  createSpanDocuments,
  type DocumentSnapshot,
  type ShardDocuments,
  type SpanDocuments,
} from "./span-documents.ts";
import { findInSite } from "./span-lookup.ts";
import { scanSite, tallySite } from "./span-scan.ts";

export function createSpanStore(
  backend: string,
  client: ElasticClient,
  mappingCache: MappingCache,
  rollups: RollupCache,
): SpanStore {
  const reader = createSpanReader(createSpanDocuments(backend, client, mappingCache), client.view);
  return { ...reader, ...createRollupAnalytics(reader, rollups) };
}

function createSpanReader(documents: SpanDocuments, view: string): SpanReader {
  return {
    parseVersion: (text) => parseVersion(text, view),
    scan: (query, signal) => readSites(documents, query, signal, (context) => scanSite(query, context)),
    tally: (query, signal) => readSites(documents, query, signal, (context) => tallySite(query, context)),
    find: (query, signal) => readSites(documents, query, signal, (context) => findInSite(query, context)),
    findNPlusOneParents: async (query, signal) => {
      const [source, ...others] = query.sources;
      return others.length > 0 ? undefined : findNPlusOneParents(documents, source, query, signal);
    },
    findSplitPoint: async (query, signal) => {
      const found = await mapSources(
        query.sources,
        (source, own) => findSplitPoint(documents, source, query, own),
        signal,
      );
      const known = found.filter((value) => value !== undefined).sort(compare);
      return query.order === "asc" ? known[0] : known.at(-1);
    },
    findTraceIdsWithExceptions: async (query, signal) => {
      const lists = await mapSources(
        query.sources,
        (source, own) => listTraceIdsWithExceptions(documents, source, query, own),
        signal,
      );
      const known = combineHints(lists);
      return known && [...new Set(known.flat())];
    },
    findTraceIds: async (query, signal) => {
      const [source, ...others] = query.sources;
      return others.length > 0 ? undefined : listCandidateTraceIds(documents, source, query, signal);
    },
    openSnapshot: async (sources, since, signal) => {
      const snapshot = await documents.openSnapshot(sources, since, signal);
      return snapshot && createSpanSnapshot(snapshot);
    },
    count: (query, signal) => countInShards([{ documents, sources: query.sources }], query, signal),
  };
}

function createSpanSnapshot({
  listShards,
  added,
  behindIndices,
  select,
  ...rest
}: DocumentSnapshot): SpanSnapshot {
  return {
    reader: createShardReader(listShards()),
    trackOrigins: (report) => createShardReader(listShards(report)),
    ...rest,
    added: added && createAddedSpans(added),
    behindOrigins: behindIndices,
    select: async (sources, since, signal) => {
      const { version, ...found } = await select(sources, since, signal);
      const own = found.added && createAddedSpans(found.added);
      return { version, added: own, behindOrigins: found.behindIndices };
    },
  };
}

function createShardReader(shards: readonly ShardDocuments[]): SpanReader {
  return {
    scan: (query, signal) => readShards(shards, query, signal, (context) => scanSite(query, context)),
    tally: (query, signal) => readShards(shards, query, signal, (context) => tallySite(query, context)),
    find: (query, signal) => readShards(shards, query, signal, (context) => findInSite(query, context)),
    count: (query, signal) => countInShards(shards, query, signal),
  };
}

/** Undefined where an index does not know. */
async function countInShards(
  shards: readonly ShardDocuments[],
  query: SpanScan,
  signal: AbortSignal,
): Promise<number | undefined> {
  const reads = shards.flatMap((shard) =>
    query.sources.filter(createHeldTest(shard)).map((source) => ({ documents: shard.documents, source })),
  );
  const counts = await mapSources(
    reads,
    ({ documents, source }, own) => countCandidates(documents, source, query, own),
    signal,
  );
  return combineHints(counts)?.reduce((sum, count) => sum + count, 0);
}

function createAddedSpans({ documents, changedIndices, shards }: AddedShards): AddedSpans {
  return {
    documents,
    changedOrigins: changedIndices,
    read: (query, signal) => {
      const sources = [...new Set(shards.flatMap((shard) => shard.sources))];
      if (!isNonEmpty(sources)) return readNothing();
      const scan = { ...query, sources, select: "all", withoutEvents: true } as const;
      return readShards(shards, scan, signal, (context) => scanSite(scan, context));
    },
  };
}

async function* readNothing(): AsyncGenerator<never> {}

/** Returns a test of whether a shard holds a source. */
function createHeldTest({ sources }: ShardDocuments): (source: SpanSource) => boolean {
  const keys = new Set(sources.map(formatSource));
  return (source) => keys.has(formatSource(source));
}

/** Reads the sites at the same time. */
function readSites<T>(
  documents: SpanDocuments,
  query: { readonly sources: SpanSources; readonly budget: Budget },
  signal: AbortSignal,
  read: (context: ReadContext) => AsyncGenerator<T>,
): AsyncGenerator<T> {
  return readShards([{ documents, sources: query.sources }], query, signal, read);
}

/**
 * Reads the sites in all these shards at the same time. The sources of one site are read together, because they may share
 * documents, and so may shards, where an exporter sent a document twice.
 */
async function* readShards<T>(
  shards: readonly ShardDocuments[],
  { sources, budget }: { readonly sources: SpanSources; readonly budget: Budget },
  signal: AbortSignal,
  read: (context: ReadContext) => AsyncGenerator<T>,
): AsyncGenerator<T> {
  signal.throwIfAborted();
  const leaving = new AbortController();
  const limited = combineSignals(signal, leaving.signal);
  const sites = [...Map.groupBy(sources, ({ site }) => site).values()];
  const places = shards.map((shard) => ({ documents: shard.documents, holds: createHeldTest(shard) }));
  const contexts = sites.flatMap((own) => {
    const seen = createSeenSpans();
    return places.map(({ documents, holds }): ReadContext => {
      return { documents, sources: own.filter(holds), budget, signal: limited, seen };
    });
  });
  try {
    yield* mergeConcurrent(contexts.map((context) => () => read(context)));
  } finally {
    leaving.abort(new Error("the caller stopped reading"));
  }
}
