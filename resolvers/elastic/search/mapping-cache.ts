// Remembers the mappings behind each pattern and the layouts found in them, so that a query takes one request. Readers notice
// new indices by themselves and ask for a refresh. Only a fresh mapping shows that an index was deleted and recreated under its
// name, so the age of a copy is limited, and strictly so where a tenant filter depends on it.

import { setImmediate } from "node:timers/promises";
import { LRUCache } from "lru-cache";
import { awaitShared } from "../../../src/core/async/concurrency.ts";
import { runInUnownedTurns } from "../../../src/core/async/turns.ts";
import { BackendError } from "../../../src/core/errors.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { CustomLayouts, IO } from "../../../src/store/backend.ts";
import type { LogSource } from "../../../src/store/logs.ts";
import type { SpanSource } from "../../../src/store/spans.ts";
import { sleep } from "../../http/waiting.ts";
import type { ElasticClient } from "../client/client.ts";
import { isRemote } from "../client/query-dsl.ts";
import { type LayoutGroup, partitionByLayout } from "../layout/layout-groups.ts";
import { type LogLayout, logLayouts } from "../layout/log-layout.ts";
import { type SpanLayout, spanLayouts } from "../layout/span-layout.ts";
import type { IndexMetadata } from "../mapping/mapping.ts";
import { type Detection, detectLayouts, type SampleVerdict } from "./layout-detection.ts";
import { hasDocuments } from "./layout-samples.ts";
import { loadIndexMetadata, type ReadMappings } from "./mapping-loader.ts";

export interface MappingCache {
  /**
   * The metadata of the indices behind a pattern. A copy may be served stale while a fresh one is fetched; for a tenant filter
   * it is at most seconds old. @throws {BackendError}
   */
  read(pattern: string, hasTenantFilter: boolean, signal: AbortSignal): Promise<IndexMetadata>;
  /**
   * Reads the mappings again, once for all who ask at the same time: what was asked of the server before them may have been answered
   * before them. @throws {BackendError}
   */
  refresh(pattern: string, signal: AbortSignal): Promise<IndexMetadata>;
  /** Remembers a shard count that differs from that of the indices, as of routed aliases, and is no sign of a change. */
  acceptShardCount(pattern: string, shards: number): void;
  findAcceptedShardCount(pattern: string): number | undefined;
  /** The indices of a log source, grouped by layout; for `auto` a few documents may be read. @throws {BackendError} */
  readLayoutGroups(
    source: LogSource,
    metadata: IndexMetadata,
    signal: AbortSignal,
  ): Promise<readonly LayoutGroup[]>;
  /** The same with what led to it, and what `auto` could only guess. @throws {BackendError} */
  detectLayouts(source: LogSource, metadata: IndexMetadata, signal: AbortSignal): Promise<Detection>;
  /** The layouts that the documents of a span source may have. The mapping of each index decides which it has. */
  listSpanLayouts(source: SpanSource): readonly SpanLayout[];
}

const freshFor: Millis = 30_000;
/** No older copy is served: only the mapping shows that an index was recreated under its name. */
const servedFor: Millis = 300_000;
const servedToTenantFilters: Millis = 5_000;
/** A right that was refused may be given again at any moment, and without mappings a query reads all of its range. */
const opaqueServedFor: Millis = 5_000;
/** The pause before a pattern whose mappings were refused for the first time is asked for again. */
const refusalPause: Millis = 300;
/** For how long a failure is repeated to others instead of sending another request. */
const failureLifetime: Millis = 1_000;

interface CacheState {
  readonly backend: string;
  readonly client: ElasticClient;
  readonly io: Pick<IO, "recordCacheLookup">;
  readonly customLayouts: CustomLayouts<LogLayout, SpanLayout> | undefined;
  readonly metadata: LRUCache<string, IndexMetadata>;
  /** The mappings of each pattern that are being read. */
  readonly loading: Map<string, Promise<unknown>>;
  readonly failures: Map<string, { readonly at: Millis; readonly error: unknown }>;
  readonly acceptedShards: Map<string, number>;
  /** The indices behind each pattern, as last read. */
  readonly indices: Map<string, string>;
  /** What the last response about each pattern said: most are the same as the one before. */
  readonly responses: Map<string, ReadMappings>;
  /** Patterns whose mappings were refused twice and never read. */
  readonly refused: Set<string>;
  /** The detections for one state of the mappings, by tenant filter. */
  readonly detections: WeakMap<IndexMetadata, Map<string | undefined, Detection>>;
  readonly samples: LRUCache<string, SampleVerdict>;
}

export function createMappingCache(
  backend: string,
  client: ElasticClient,
  io: Pick<IO, "recordCacheLookup">,
  customLayouts?: CustomLayouts<LogLayout, SpanLayout>,
): MappingCache {
  const state: CacheState = {
    backend,
    client,
    io,
    customLayouts,
    metadata: new LRUCache<string, IndexMetadata>({
      max: 1_000,
      ttl: freshFor,
      allowStale: true,
      noDeleteOnFetchRejection: true,
      fetchMethod: (pattern) => loadUnlessFailed(state, pattern),
    }),
    loading: new Map(),
    failures: new Map(),
    acceptedShards: new Map(),
    indices: new Map(),
    responses: new Map(),
    refused: new Set(),
    detections: new WeakMap(),
    samples: new LRUCache<string, SampleVerdict>({ max: 1_000 }),
  };
  return {
    async read(pattern, hasTenantFilter, signal) {
      const maxAge = hasTenantFilter ? servedToTenantFilters : servedFor;
      const metadata = await fetchMetadata(state, pattern, signal, maxAge);
      if (metadata.opaque && !hasTenantFilter) return fetchMetadata(state, pattern, signal, opaqueServedFor);
      // Without a search, nothing else would show that a closed index is open again or deleted, or a mapping readable.
      const isServed = metadata.closed.length === 0 && !metadata.opaque;
      return isServed ? metadata : fetchMetadata(state, pattern, signal, 0);
    },
    refresh: (pattern, signal) => fetchMetadata(state, pattern, signal, 0),
    acceptShardCount: (pattern, shards) => void state.acceptedShards.set(pattern, shards),
    findAcceptedShardCount: (pattern) => state.acceptedShards.get(pattern),
    readLayoutGroups: async (source, metadata, signal) =>
      (await detectSource(state, source, metadata, signal)).layoutGroups,
    detectLayouts: (source, metadata, signal) => detectSource(state, source, metadata, signal),
    listSpanLayouts: ({ layout }) =>
      layout === "auto"
        ? [...spanLayouts.values()]
        : [findLayout(layout, spanLayouts, customLayouts?.traces)],
  };
}

async function loadUnlessFailed(state: CacheState, pattern: string): Promise<IndexMetadata> {
  const { failures, loading } = state;
  const failed = failures.get(pattern);
  if (failed !== undefined && performance.now() - failed.at < failureLifetime) throw failed.error;
  const loaded = load(state, pattern);
  loading.set(pattern, loaded);
  try {
    const metadata = await loaded;
    failures.delete(pattern);
    return metadata;
  } catch (error) {
    failures.set(pattern, { at: performance.now(), error });
    throw error;
  } finally {
    if (loading.get(pattern) === loaded) loading.delete(pattern);
  }
}

async function load(state: CacheState, pattern: string): Promise<IndexMetadata> {
  const { backend, client, acceptedShards, indices, responses } = state;
  // No caller's signal, since others wait for the same response. The client's own deadline bounds it.
  const { signal } = new AbortController();
  const loaded = await runInUnownedTurns(() =>
    loadIndexMetadata(backend, client, pattern, responses, signal),
  );
  const metadata = loaded.opaque ? await confirmOpaque(state, pattern, loaded, signal) : loaded;
  if (metadata.opaque) return metadata;
  // An accepted shard count holds for the same indices only.
  const current = JSON.stringify([...metadata.uuids]);
  if (indices.get(pattern) !== current) acceptedShards.delete(pattern);
  indices.set(pattern, current);
  return metadata;
}

/**
 * Tells a right that the credentials lack from one that is refused for a moment. A pattern whose mappings were read before is
 * not read without them, and a first refusal is not believed before a second. @throws {BackendError}
 */
async function confirmOpaque(
  { backend, client, indices, refused, responses }: CacheState,
  pattern: string,
  opaque: IndexMetadata,
  signal: AbortSignal,
): Promise<IndexMetadata> {
  if ((indices.get(pattern) ?? noIndices) !== noIndices) {
    throw new BackendError(backend, "denied", `the mappings of ${pattern}, read before, are refused now`);
  }
  if (refused.has(pattern) || isRemote(pattern)) return opaque;
  await sleep(refusalPause, signal);
  const metadata = await loadIndexMetadata(backend, client, pattern, responses, signal);
  if (metadata.opaque) refused.add(pattern);
  return metadata;
}

const noIndices = "[]";

async function fetchMetadata(
  { backend, metadata: cache, loading, io }: CacheState,
  pattern: string,
  signal: AbortSignal,
  maxAge: Millis,
): Promise<IndexMetadata> {
  const earlier = loading.get(pattern);
  if (maxAge === 0 && earlier !== undefined) await awaitShared(waitUntilKept(earlier), signal);
  const remaining = cache.getRemainingTTL(pattern);
  // The cache reads its clock now and then, so that a new copy may seem to live longer than it was given.
  const forceRefresh = maxAge === 0 || remaining <= freshFor - maxAge;
  // A hit is a fresh copy. One that is served stale causes a request as a missing one does.
  io.recordCacheLookup("mappings", !forceRefresh && remaining > 0);
  const metadata = await awaitShared(
    cache.fetch(pattern, { forceRefresh, allowStale: !forceRefresh }),
    signal,
  );
  if (metadata === undefined) throw new BackendError(backend, "unreachable", `no mappings of ${pattern}`);
  return metadata;
}

/** Until the cache has what was loaded, or knows that it failed: some microtasks later. */
async function waitUntilKept(loaded: Promise<unknown>): Promise<void> {
  await Promise.allSettled([loaded]);
  await setImmediate();
}

/**
 * The layout groups of a source: by its configured layout, or detected once for each state of the mappings, and again when an
 * index has its first documents.
 */
async function detectSource(
  { backend, client, customLayouts, detections, samples }: CacheState,
  source: LogSource,
  metadata: IndexMetadata,
  signal: AbortSignal,
): Promise<Detection> {
  const { layout: name, tenantFilter } = source;
  if (name !== "auto") {
    const layout = findLayout(name, logLayouts, customLayouts?.logs);
    const layoutGroups = partitionByLayout(() => layout, metadata, layout);
    return { layoutGroups, unseen: [], guesses: [], shown: new Set() };
  }
  const byFilter = detections.get(metadata) ?? new Map<string | undefined, Detection>();
  const known = byFilter.get(tenantFilter);
  const { resultWindow } = metadata;
  const context = { backend, client, pattern: source.index, resultWindow, signal };
  if (known !== undefined && !(await hasDocuments(context, known.unseen))) return known;
  const detection = await detectLayouts(context, tenantFilter, metadata, samples);
  detections.set(metadata, byFilter.set(tenantFilter, detection));
  return detection;
}

/** Throws where the name is unknown, which the check of the configuration excludes. */
function findLayout<Layout>(
  name: string,
  builtIn: ReadonlyMap<string, Layout>,
  custom: ReadonlyMap<string, Layout> | undefined,
): Layout {
  const layout = builtIn.get(name) ?? custom?.get(name);
  if (layout === undefined) throw new Error(`no layout ${name}`);
  return layout;
}
