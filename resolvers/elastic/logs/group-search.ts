// The searches of one layout group: which plan they follow, and when the mappings are read again. A response is used only if
// the plan knew every index that it came from. An export sends its next search before the last response is decoded.
import { BackendError, isRejection } from "../../../src/core/errors.ts";
import { computeRest } from "../../../src/core/line-order.ts";
import { floorToMilli, type TimeRange } from "../../../src/core/time.ts";
import { listComparisons } from "../../../src/log-query/ast.ts";
import { readFirstPage } from "../client/scroll.ts";
import { findLastSort, type SearchResponse } from "../document/hit-scanner.ts";
import { chooseFreshness, type Freshness } from "../query/filter-compiler.ts";
import { hasUnmappedField } from "../query/tenant-filter.ts";
import { recordHitSize } from "../search/hit-size.ts";
import {
  acceptShardCount,
  createMappingChangedError,
  isStale,
  type ReachedIndices,
  readCompleteResponse,
  requireSameIndices,
  retryUntilShardsStarted,
  sendSearch,
} from "../search/search.ts";
import type { GroupReader } from "./group-reader.ts";
import { buildSearchBody, compileSearchPlan, type SearchPlan } from "./search-plan.ts";

export interface PlannedResponse<Response extends ReachedIndices = SearchResponse> {
  readonly plan: SearchPlan;
  readonly response: Response;
}

/** How often the mappings are read again for one search. */
const maxRefreshes = 2;

/**
 * Runs a search until its response fits a plan that knows all indices behind it. @throws {LayoutsChanged} @throws {Refused}
 * @throws {BackendError}
 */
export async function searchPlanned<Response extends ReachedIndices>(
  reader: GroupReader,
  search: (plan: SearchPlan) => Promise<Response>,
): Promise<PlannedResponse<Response>> {
  const { backend, mappingCache, source, signal } = reader.context;
  for (let attempt = 0; ; attempt++) {
    const plan = await planSearch(reader);
    const { metadata } = plan;
    // Another reader may have noticed the change before.
    requireSameIndices(backend, source.index, reader.lastMetadata, metadata);
    const result = await search(plan).catch(returnRejected);
    if (result instanceof BackendError) {
      if (attempt === maxRefreshes || (attempt > 0 && !isRejection(result))) throw result;
      // An index that the mapping did not know may reject what was compiled without it. A cluster may also reject expensive
      // queries, which the product shows from then on. A failure (500) says nothing of the query, which is sent once more.
      reader.isFilterPushedDown = attempt === 0;
      // A document that the range finds by another of its times may have one that cannot be sorted by.
      reader.hasSeveralTimes ||= plan.timeColumn.sortsNanos;
    } else {
      const isUnseen = hasUnseenIndex(plan, result);
      if (!isUnseen && !isStale(metadata, result, mappingCache.findAcceptedShardCount(source.index))) {
        return { plan, response: result };
      }
      if (attempt === maxRefreshes) {
        if (isUnseen) throw createMappingChangedError(backend, source.index);
        acceptShardCount(backend, source.index, metadata, result, mappingCache);
        return { plan, response: result };
      }
    }
    await mappingCache.refresh(source.index, signal);
  }
}

/** Whether a response came from an index that had no documents when its layout was chosen, which they may contradict. */
export function hasUnseenIndex({ isUnseen }: SearchPlan, { indices }: ReachedIndices): boolean {
  return [...indices].some(isUnseen);
}

function returnRejected(error: unknown): BackendError {
  if (error instanceof BackendError && error.failure === "rejected") return error;
  throw error;
}

async function planSearch(reader: GroupReader): Promise<SearchPlan> {
  const { mappingCache, source, tenantFilter, signal } = reader.context;
  let metadata = await mappingCache.read(source.index, tenantFilter !== undefined, signal);
  if (!reader.hasChosenFreshness) {
    const hasUnmapped = tenantFilter !== undefined && hasUnmappedField(tenantFilter, metadata.groups);
    const freshness = reader.window !== undefined || hasUnmapped ? "now" : await chooseOwnFreshness(reader);
    if (freshness === "now") metadata = await mappingCache.refresh(source.index, signal);
    if (freshness === "recent") metadata = await mappingCache.read(source.index, true, signal);
    reader.hasChosenFreshness = true;
  }
  if (reader.plan?.metadata !== metadata) {
    reader.plan = await compileSearchPlan(reader.context, metadata, reader.isFilterPushedDown);
  }
  return reader.plan;
}

async function chooseOwnFreshness({ context, grouping }: GroupReader): Promise<Freshness> {
  const { query, layoutGroup, client, signal } = context;
  const { filter } = query;
  const compared = filter.kind === "all" ? [] : listComparisons(filter).map(({ field }) => field);
  const fields = grouping === undefined ? compared : [...compared, grouping];
  return chooseFreshness(fields, layoutGroup, await client.detectProduct(signal));
}

/** Sends one search and scans its response. @throws {BackendError} @throws {Refused} */
export async function search(
  reader: GroupReader,
  plan: SearchPlan,
  body: object,
  options: Readonly<Record<string, string>> = {},
): Promise<SearchResponse> {
  const { backend, client } = reader.context;
  const bytes = await sendSearchBody(reader, JSON.stringify(body), options);
  return readFirstPage(client, bytes, () => readCompleteResponse(backend, bytes, plan.layout));
}

function sendSearchBody(
  { context, window, hasResponse }: GroupReader,
  body: string,
  options: Readonly<Record<string, string>> = {},
): Promise<Buffer> {
  const { client, source, signal } = context;
  const sendOnce = () => sendSearch(client, source.index, body, signal, options);
  // An export under way waits for a new index; a caller who has received nothing yet is better off with an error.
  return hasResponse && window !== undefined ? retryUntilShardsStarted(sendOnce, signal) : sendOnce();
}

/**
 * Searches the next page, of `range` within `rest`. An export also sends the search that will probably follow, so that the
 * backend works while this response is decoded. Its response is used only if that very search is asked for next.
 */
export async function searchPage(
  reader: GroupReader,
  plan: SearchPlan,
  range: TimeRange,
  rest: TimeRange,
  size: number,
): Promise<SearchResponse> {
  const { window, prefetched, context } = reader;
  const body = printPageSearch(reader, plan, range, size);
  const pending = prefetched?.body === body ? prefetched.bytes : sendSearchBody(reader, body);
  reader.prefetched = undefined;
  const bytes = await pending;
  reader.hasResponse = true;
  const sendAhead = () => sendNextPageAhead(reader, plan, range, rest, body, bytes);
  const isSentAtOnce = window?.knowsHitSize === true;
  if (isSentAtOnce) sendAhead();
  const response = await readCompleteResponse(context.backend, bytes, plan.layout);
  recordResponseHitSize(reader, bytes, response);
  if (!isSentAtOnce) sendAhead();
  return response;
}

function recordResponseHitSize(reader: GroupReader, bytes: Buffer, { hits }: SearchResponse): void {
  if (hits.length === 0) return;
  const { client, source } = reader.context;
  const bytesPerHit = bytes.length / hits.length;
  reader.bytesPerHit = bytesPerHit;
  reader.window?.recordHitSize(bytesPerHit);
  recordHitSize(client, source.index, bytesPerHit);
}

function sendNextPageAhead(
  reader: GroupReader,
  plan: SearchPlan,
  range: TimeRange,
  rest: TimeRange,
  sentBody: string,
  bytes: Buffer,
): void {
  const { window, context } = reader;
  const lastSort = findLastSort(bytes);
  if (window === undefined || lastSort === undefined) return;
  const milli = floorToMilli(plan.timeColumn.toInstant(lastSort));
  window.recordProgress(range, milli);
  const next = computeRest(milli, rest, context.query.order, true);
  if (next === undefined) return;
  const body = printPageSearch(reader, plan, window.clipRange(next), window.size);
  if (body === sentBody) return;
  reader.prefetched = { body, bytes: sendSearchBody(reader, body) };
  // A failure is reported when its page is asked for.
  reader.prefetched.bytes.catch(() => undefined);
}

function printPageSearch(
  { hasSeveralTimes }: GroupReader,
  plan: SearchPlan,
  range: TimeRange,
  size: number,
): string {
  const body = buildSearchBody(plan, range, hasSeveralTimes);
  return JSON.stringify({ ...body, size: Math.min(size, plan.metadata.resultWindow) });
}
