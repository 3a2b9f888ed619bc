// The log store of Elasticsearch and OpenSearch. A source is read as one stream for each layout group of its indices, and
// the streams of all groups and sources are merged. When the layouts behind a pattern change during the read, what is left
// of the range is read again with the new groups.
import { zip } from "../../../src/core/collections.ts";
import { BackendError, Refused } from "../../../src/core/errors.ts";
import { computeRest, limitTies, mergeStreams } from "../../../src/core/line-order.ts";
import { createLineCounts, type LineCounts } from "../../../src/core/line-tally.ts";
import type { LogLine } from "../../../src/core/rows.ts";
import { floorToMilli, type TimeRange } from "../../../src/core/time.ts";
import type { LineCountQuery, LogQuery, LogSource, LogStore } from "../../../src/store/logs.ts";
import type { ElasticClient } from "../client/client.ts";
import { isRemote } from "../client/query-dsl.ts";
import type { LayoutGroup } from "../layout/layout-groups.ts";
import type { IndexMetadata } from "../mapping/mapping.ts";
import { parseTenantFilter } from "../query/tenant-filter.ts";
import type { MappingCache } from "../search/mapping-cache.ts";
import { requireReadableGroups } from "../search/masked-filters.ts";
import { refuseRemote, refuseUnsearchable } from "../search/remote-clusters.ts";
import { compileOrRefuse, createMappingChangedError } from "../search/search.ts";
import { explainSource } from "./explain.ts";
import { streamGroup } from "./group-pages.ts";
import { batchSizes, createGroupReader, type ReadBudget } from "./group-reader.ts";
import { addGroupCounts } from "./line-counts.ts";
import { countCandidates } from "./page-estimate.ts";
import { LayoutsChanged, type ReadContext } from "./search-plan.ts";

/** How often a read may start again because the layouts behind its pattern changed. */
const maxRestarts = 3;

interface StoreContext {
  readonly backend: string;
  readonly client: ElasticClient;
  readonly mappingCache: MappingCache;
}

export function createLogStore(backend: string, client: ElasticClient, mappingCache: MappingCache): LogStore {
  const store: StoreContext = { backend, client, mappingCache };
  return {
    lines(query, signal) {
      const budget = query.budget ?? { documents: 0 };
      const own: LogQuery = { ...query, expectedShare: (query.expectedShare ?? 1) / query.sources.length };
      const streams = query.sources.map((source) => readSource(store, source, own, budget, signal));
      return limitTies(mergeStreams(streams, query.order), query.tieLimit);
    },
    isWithinLimits: (query, signal) =>
      restartOnNewLayouts(backend, () => estimateWithinLimits(store, query, signal)),
    count: (query, signal) => restartOnNewLayouts(backend, () => countSource(store, query, signal)),
    explain: (query, signal) =>
      Promise.all(
        query.sources.map((source) => explainSource(source, query.filter, client, mappingCache, signal)),
      ),
  };
}

async function estimateWithinLimits(
  store: StoreContext,
  query: LogQuery,
  signal: AbortSignal,
): Promise<boolean> {
  const { sources, documentLimit, tieLimit } = query;
  const groupsBySource = await Promise.all(sources.map((source) => readGroups(store, source, signal)));
  const readers = zip(sources, groupsBySource).flatMap(([source, found]) =>
    found.groups.map((group) =>
      createGroupReader(createReadContext(store, source, group, found, query, signal), { documents: 0 }),
    ),
  );
  const limit = Math.min(documentLimit, tieLimit);
  // The last search of a reader may go beyond the page. A caller who expects more than any limit allows reads everything.
  const overread = query.expectedLines > limit ? 0 : batchSizes.most * readers.length;
  const room = limit - overread;
  const counts = await Promise.all(readers.map((reader) => countCandidates(reader, room)));
  const counted = query.budget ?? { documents: 0 };
  for (const count of [overread, ...counts]) counted.documents += count;
  if (counted.documents <= limit) return true;
  const opaque = zip(sources, groupsBySource).filter(([, { metadata }]) => metadata.opaque);
  await Promise.all(opaque.map(([source]) => requireStillOpaque(store, source, signal)));
  return false;
}

/** @throws {LayoutsChanged} */
async function countSource(
  store: StoreContext,
  { source, range, filter, step, grouping, hasGroupBuckets = false }: LineCountQuery,
  signal: AbortSignal,
): Promise<LineCounts | undefined> {
  const found = await readGroups(store, source, signal);
  const limits = { expectedLines: 1, documentLimit: 0, tieLimit: 0 };
  const query: LogQuery = { sources: [source], range, filter, order: "asc", ...limits };
  const counts = createLineCounts(hasGroupBuckets && grouping !== undefined);
  for (const group of found.groups) {
    const context = createReadContext(store, source, group, found, query, signal);
    const reader = createGroupReader(context, { documents: 0 }, grouping);
    if (!(await addGroupCounts(reader, step, counts))) return undefined;
  }
  return counts;
}

/**
 * Without mappings a query reads every document of its range, and may be refused for that. The refusal is final only where the
 * mappings still may not be read. @throws {BackendError}
 */
async function requireStillOpaque(
  { backend, mappingCache }: StoreContext,
  { index }: LogSource,
  signal: AbortSignal,
): Promise<void> {
  const { opaque } = await mappingCache.refresh(index, signal);
  if (!opaque)
    throw new BackendError(backend, "denied", `the mappings of ${index} were refused for a moment`);
}

function createReadContext(
  store: StoreContext,
  source: LogSource,
  layoutGroup: LayoutGroup,
  { groups: layoutGroups, metadata: initialMetadata }: SourceGroups,
  query: LogQuery,
  signal: AbortSignal,
): ReadContext {
  const { tenantFilter: text } = source;
  const tenantFilter =
    text === undefined ? undefined : compileOrRefuse(store.backend, () => parseTenantFilter(text));
  return { ...store, source, layoutGroup, layoutGroups, initialMetadata, query, tenantFilter, signal };
}

/** How a source is read now, by which state of its mappings. */
interface SourceGroups {
  readonly groups: readonly LayoutGroup[];
  readonly metadata: IndexMetadata;
}

async function readGroups(
  store: StoreContext,
  source: LogSource,
  signal: AbortSignal,
): Promise<SourceGroups> {
  const { backend, client, mappingCache } = store;
  if (isRemote(source.index)) {
    if (source.tenantFilter === undefined) refuseUnsearchable(backend, source.index);
    else refuseRemote(backend, source.index);
  }
  const metadata = await mappingCache.read(source.index, source.tenantFilter !== undefined, signal);
  const groups = await mappingCache.readLayoutGroups(source, metadata, signal);
  try {
    await requireReadableGroups(client, source, metadata, groups, signal);
  } catch (error) {
    if (metadata.opaque && error instanceof Refused) await requireStillOpaque(store, source, signal);
    throw error;
  }
  return { groups, metadata };
}

/** Reads the lines of all layout groups of a source, with new groups for what is left when they change. */
async function* readSource(
  store: StoreContext,
  source: LogSource,
  query: LogQuery,
  budget: ReadBudget,
  signal: AbortSignal,
): AsyncGenerator<readonly LogLine[]> {
  let range: TimeRange | undefined = query.range;
  for (let attempt = 0; range !== undefined; attempt++) {
    const found = await readGroups(store, source, signal);
    const rest: LogQuery = { ...query, range };
    const openContext = (group: LayoutGroup) => (own: AbortSignal) =>
      createReadContext(store, source, group, found, rest, own);
    const streams = found.groups.map((group) => streamGroup(openContext(group), budget, signal));
    try {
      for await (const lines of mergeStreams(streams, query.order)) {
        yield lines;
        const last = lines.at(-1);
        if (last !== undefined) range = computeRest(floorToMilli(last.time), rest.range, query.order, false);
      }
      return;
    } catch (error) {
      if (found.metadata.opaque && error instanceof Refused) await requireStillOpaque(store, source, signal);
      requireRestartable(store.backend, error, attempt);
    }
  }
}

/** Starts again as long as layouts change, a few times. @throws {BackendError} */
async function restartOnNewLayouts<T>(backend: string, work: () => Promise<T>): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      requireRestartable(backend, error, attempt);
    }
  }
}

function requireRestartable(backend: string, error: unknown, attempt: number): void {
  if (!(error instanceof LayoutsChanged)) throw error;
  if (attempt === maxRestarts) throw createMappingChangedError(backend, error.pattern);
}
