// Plans the searches of span documents: which indices a pattern has, and which forms of spans and events they may hold.
// A plan comes from cached mappings. Documents may be newer than these, so a plan is checked for being behind: it is once
// an index holds a form that its mapping, as it was read, excludes, or has a name in a way that only its mapping shows.

import { LRUCache } from "lru-cache";
import { findOriginalSignal } from "../../../src/core/async/concurrency.ts";
import { BackendError, createUnsupportedError } from "../../../src/core/errors.ts";
import { parseJson } from "../../../src/core/json/parse-json.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { Filter } from "../../../src/log-query/ast.ts";
import type { SpanSource } from "../../../src/store/spans.ts";
import type { ElasticClient } from "../client/client.ts";
import { type PointInTime, searchPointInTime } from "../client/point-in-time.ts";
import {
  aggregationOptions,
  allOf,
  anyOf,
  matchAll,
  type Query,
  restrictToIndices,
} from "../client/query-dsl.ts";
import { describeMisspelt, type PlacedForms, placeForms } from "../layout/form-placement.ts";
import { hasUnindexedTemplates } from "../mapping/dynamic-templates.ts";
import type { IndexMetadata } from "../mapping/mapping.ts";
import { buildFormQuery } from "../query/span-upper-bounds.ts";
import { hasUnmappedField, parseTenantFilter } from "../query/tenant-filter.ts";
import type { MappingCache } from "../search/mapping-cache.ts";
import { refuseMaskedTenantFilter } from "../search/masked-filters.ts";
import { refuseRemote } from "../search/remote-clusters.ts";
import {
  compileOrRefuse,
  createMalformedResponseError,
  createMappingRefusedError,
  refuseClosed,
  sendSearch,
} from "../search/search.ts";
import { type ParsedResponse, parseCompleteResponse } from "../search/search-response.ts";

/** The backend, and what is known of the mappings of its spans. */
export interface SpanSearchContext {
  readonly backend: string;
  readonly client: ElasticClient;
  readonly mappingCache: MappingCache;
  /** The forms of indices, by the configured layout. Mappings that were read again and had not changed have the same groups. */
  readonly placedForms: WeakMap<IndexMetadata["groups"], Map<string, PlacedForms>>;
  /** When mappings were read because they might be behind. */
  readonly refreshedAt: WeakMap<IndexMetadata, Millis>;
  /** By the signal of a request: when forms were last found not to be behind. */
  readonly checkedAt: WeakMap<AbortSignal, Map<PlacedForms, Millis>>;
  /** Which fields matter, by the JSON text of the sources: those of the configuration and of what tokens may see. */
  readonly fieldFilters: LRUCache<string, (field: string) => boolean>;
  /** Where it is set, all searches are of these points in time. */
  readonly view?: SpanView | undefined;
}

export type SearchBody = Readonly<Record<string, unknown>> & { readonly query: Query };

/** Points in time of sources, each with the plan of its searches. */
export interface SpanView {
  /** @throws {RangeError} for a source that is not of the view */
  readonly findPoint: (source: SpanSource) => PointInTime;
  readonly findPlan: (source: SpanSource) => SearchPlan;
  /** Orders the documents of a point in time, so that a page can follow another. */
  readonly sort: readonly unknown[];
  /** Only documents that also match this are searched for. */
  readonly buildQuery?: ((point: PointInTime) => Query) | undefined;
  /** Is told the indices of all documents that are returned or aggregated. */
  readonly reportIndex?: ((index: string) => void) | undefined;
}

export interface SearchPlan {
  readonly metadata: IndexMetadata;
  readonly forms: PlacedForms;
}

/** The indices are not those of the plan: every search that was made with it has to be repeated with a new one. */
export class PlanOutdatedError extends Error {
  override readonly name = "PlanOutdatedError";
}

/** The refresh interval of an index: a mapping may be behind its documents by so much. */
const refreshInterval: Millis = 1_000;

export function createSpanSearchContext(
  backend: string,
  client: ElasticClient,
  mappingCache: MappingCache,
): SpanSearchContext {
  return {
    backend,
    client,
    mappingCache,
    placedForms: new WeakMap(),
    refreshedAt: new WeakMap(),
    checkedAt: new WeakMap(),
    fieldFilters: new LRUCache({ max: 1_000 }),
  };
}

/** A plan that is not behind. @throws {Refused} `not_supported_by_backend` @throws {BackendError} */
export async function planSearch(
  context: SpanSearchContext,
  source: SpanSource,
  signal: AbortSignal,
): Promise<SearchPlan> {
  const plan = await readPlan(context, source, signal);
  if (context.view !== undefined) return plan;
  return (await isPlanBehind(context, source, plan, signal)) ? refreshPlan(context, source, signal) : plan;
}

/** A plan from the cached mappings, which may be behind. Errors as `planSearch`. */
export async function readPlan(
  context: SpanSearchContext,
  source: SpanSource,
  signal: AbortSignal,
): Promise<SearchPlan> {
  const { backend, client, mappingCache, view } = context;
  if (view !== undefined) return view.findPlan(source);
  refuseRemote(backend, source.index);
  const hasTenantFilter = readTenantFilter(backend, source) !== undefined;
  const cached = await mappingCache.read(source.index, hasTenantFilter, signal);
  // An opaque mapping is refused without a search, so nothing else would show that it has become readable.
  const metadata = cached.opaque ? await mappingCache.refresh(source.index, signal) : cached;
  await refuseMaskedTenantFilter(client, source, metadata, signal);
  const plan = await buildPlan(context, source, metadata, signal);
  return hasOnlyUnknownLayouts(plan) && (await hasMatches(context, source, matchAll, signal))
    ? refreshPlan(context, source, signal, true)
    : plan;
}

/**
 * A plan from mappings read now. Refuses a pattern whose documents are all of no known layout: the layout may be another
 * one, or security may hide one of its fields, in the mapping as well. An empty answer would be wrong there.
 * `hasDocuments` says that the pattern is known to have some.
 */
export async function refreshPlan(
  context: SpanSearchContext,
  source: SpanSource,
  signal: AbortSignal,
  hasDocuments = false,
): Promise<SearchPlan> {
  const metadata = await context.mappingCache.refresh(source.index, signal);
  context.refreshedAt.set(metadata, performance.now());
  const plan = await buildPlan(context, source, metadata, signal);
  if (
    hasOnlyUnknownLayouts(plan) &&
    (hasDocuments || (await hasMatches(context, source, matchAll, signal)))
  ) {
    throw createUnsupportedError(context.backend, "an index pattern without spans of a known layout");
  }
  return plan;
}

async function buildPlan(
  { backend, client, mappingCache, placedForms }: SpanSearchContext,
  source: SpanSource,
  metadata: IndexMetadata,
  signal: AbortSignal,
): Promise<SearchPlan> {
  if (metadata.opaque) throw createMappingRefusedError(backend, "a search for spans");
  refuseClosed(backend, metadata);
  const byLayout = placedForms.get(metadata.groups) ?? new Map<string, PlacedForms>();
  placedForms.set(metadata.groups, byLayout);
  const forms =
    byLayout.get(source.layout) ??
    placeForms(metadata, mappingCache.listSpanLayouts(source), await client.detectProduct(signal));
  byLayout.set(source.layout, forms);
  const [misspelt] = forms.misspeltFields;
  if (misspelt !== undefined) throw createUnsupportedError(backend, describeMisspelt(misspelt));
  return { metadata, forms };
}

function hasOnlyUnknownLayouts({ forms: { spans, events, unrecognised } }: SearchPlan): boolean {
  return spans.length === 0 && events.length === 0 && unrecognised.length > 0;
}

/** As `searchSource`, of aggregations; returns the parsed response. */
export async function aggregateSource(
  context: SpanSearchContext,
  source: SpanSource,
  body: SearchBody,
  signal: AbortSignal,
): Promise<unknown> {
  const bytes = await searchSource(context, source, body, signal, aggregationOptions);
  try {
    return parseJson(bytes.toString("utf8"));
  } catch (cause) {
    throw createMalformedResponseError(context.backend, bytes, cause);
  }
}

// ---- Freshness ------------------------------------------------------------------------------------------------

/** Whether there may be documents that the mappings of this plan exclude. */
export async function isPlanBehind(
  context: SpanSearchContext,
  source: SpanSource,
  plan: SearchPlan,
  signal: AbortSignal,
): Promise<boolean> {
  const { metadata, forms } = plan;
  if (await hasNewFormOrMappings(context, source, plan, signal)) return true;
  const tenantFilter = readTenantFilter(context.backend, source);
  const groups = [...forms.spans, ...forms.events].map(({ group }) => group);
  if (tenantFilter === undefined || !hasUnmappedField(tenantFilter, groups)) return false;
  const refreshed = context.refreshedAt.get(metadata);
  return refreshed === undefined || performance.now() - refreshed >= refreshInterval;
}

/**
 * Whether a new form or the mappings show that the plan does not hold, asked once for all searches of one request as long as
 * the result cannot have changed.
 */
async function hasNewFormOrMappings(
  context: SpanSearchContext,
  source: SpanSource,
  plan: SearchPlan,
  signal: AbortSignal,
): Promise<boolean> {
  const { forms } = plan;
  const { checkedAt } = context;
  const request = findOriginalSignal(signal);
  const checked = checkedAt.get(request)?.get(forms);
  if (checked !== undefined && performance.now() - checked < refreshInterval) return false;
  const now = performance.now();
  const [isFormNew, areMappingsNew] = await Promise.all([
    hasNewForm(context, source, forms, signal),
    haveMappingsChanged(context, source, plan, signal),
  ]);
  if (isFormNew || areMappingsNew) return true;
  checkedAt.set(request, (checkedAt.get(request) ?? new Map()).set(forms, now));
  return false;
}

/**
 * Whether an index holds a form that its mapping, as it was read, excludes. The search carries no tenant filter, because
 * the filter's own fields may be new as well; it returns a count only. Every search for documents carries the filter.
 */
async function hasNewForm(
  context: SpanSearchContext,
  source: SpanSource,
  { possibleForms }: PlacedForms,
  signal: AbortSignal,
): Promise<boolean> {
  if (possibleForms.length === 0) return false;
  const queries = possibleForms.map((placed) => ({
    query: buildFormQuery(placed),
    indices: placed.group.indices,
  }));
  const query = anyOf(restrictToIndices(queries));
  return hasMatches(context, source, query, signal);
}

/**
 * Whether the mappings have changed, as far as no search shows it. Where templates hide new names from `exists`, they are read
 * for the request. Elsewhere they are of the last seconds: an index may have been set to map no new names.
 */
async function haveMappingsChanged(
  { mappingCache, view }: SpanSearchContext,
  { index }: SpanSource,
  { metadata, forms: { spans, events, possibleForms } }: SearchPlan,
  signal: AbortSignal,
): Promise<boolean> {
  // Whoever opens a view compares its mappings.
  if (view !== undefined) return false;
  const mayHideNames = [...spans, ...events, ...possibleForms].some(({ group, listsIgnored }) =>
    hasUnindexedTemplates(group, listsIgnored),
  );
  const { groups } = await (mayHideNames
    ? mappingCache.refresh(index, signal)
    : mappingCache.read(index, true, signal));
  return groups !== metadata.groups;
}

async function hasMatches(
  context: SpanSearchContext,
  source: SpanSource,
  query: Query,
  signal: AbortSignal,
): Promise<boolean> {
  return (await countMatches(context, source, query, signal)) > 0;
}

/** The number of documents that match. @throws {BackendError} */
export async function countMatches(
  context: SpanSearchContext,
  source: SpanSource,
  query: Query,
  signal: AbortSignal,
): Promise<number> {
  const { backend } = context;
  const bytes = await searchSource(context, source, { size: 0, track_total_hits: true, query }, signal);
  return requireTotal(backend, await parseCompleteResponse(backend, bytes, 0));
}

/** Sends a search of the source, or of its point in time in a view. Errors as `sendSearch`. */
export function searchSource(
  { client, view }: SpanSearchContext,
  source: SpanSource,
  body: SearchBody,
  signal: AbortSignal,
  parameters: Readonly<Record<string, string>> = {},
): Promise<Buffer> {
  if (view === undefined) return sendSearch(client, source.index, JSON.stringify(body), signal, parameters);
  const point = view.findPoint(source);
  const query = view.buildQuery === undefined ? body.query : allOf([body.query, view.buildQuery(point)]);
  return searchPointInTime(client, point, { ...body, query }, signal, parameters);
}

// ---- Shared with the searches ---------------------------------------------------------------------------------

/** The configured tenant filter, if the source has one. @throws {Refused} where it cannot be exact */
export function readTenantFilter(backend: string, { tenantFilter }: SpanSource): Filter | undefined {
  return tenantFilter === undefined
    ? undefined
    : compileOrRefuse(backend, () => parseTenantFilter(tenantFilter));
}

/** The exact number of matching documents. @throws {BackendError} `malformed` without one */
export function requireTotal(backend: string, { total }: ParsedResponse): number {
  if (total === undefined)
    throw new BackendError(backend, "malformed", "a search response without an exact total");
  return total;
}

/** Identifies a source: equal ones have one plan. */
export function formatSource(source: SpanSource): string {
  return JSON.stringify(source);
}
