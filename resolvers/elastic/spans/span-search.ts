// Searches span documents of one source. Every search carries the tenant filter, reaches only indices whose mapping is
// known, and is complete or an error. A search that meets other indices than its plan has is repeated with a newer plan.

import { z } from "zod";
import { yieldToEventLoop } from "../../../src/core/async/turns.ts";
import { BackendError, createUnsupportedError, Refused } from "../../../src/core/errors.ts";
import type { SpanSource } from "../../../src/store/spans.ts";
import {
  allOf,
  anyOf,
  buildIndicesAggregation,
  buildIndicesQuery,
  matchNone,
  measureQuery,
  not,
  type Query,
  restrictToIndices,
} from "../client/query-dsl.ts";
import { fetchNextPage, readFirstPage, releaseScroll, scrollOptions } from "../client/scroll.ts";
import type { PlacedForm, PlacedForms } from "../layout/form-placement.ts";
import type { EventForm, SpanForm } from "../layout/span-layout.ts";
import { queryLimits } from "../query/filter-compiler.ts";
import { findLossyTime } from "../query/span-times.ts";
import { buildFormQuery } from "../query/span-upper-bounds.ts";
import { compileTenantFilter } from "../query/tenant-filter.ts";
import { refuseMaskedFilter } from "../search/masked-filters.ts";
import {
  acceptShardCount,
  compileOrRefuse,
  createMappingChangedError,
  describeUnreadable,
  isStale,
} from "../search/search.ts";
import { findLastSortValues, type ParsedResponse, parseCompleteResponse } from "../search/search-response.ts";
import {
  aggregateSource,
  countMatches,
  isPlanBehind,
  PlanOutdatedError,
  readPlan,
  readTenantFilter,
  refreshPlan,
  requireTotal,
  type SearchBody,
  type SearchPlan,
  type SpanSearchContext,
  searchSource,
} from "./search-plan.ts";

/** The query that a document of a form has to match, as an upper bound. */
export type Condition<Form> = (placed: PlacedForm<Form>, source: SpanSource) => Query;

/** Documents of a source that are searched for. */
export interface DocumentQuery<Form> {
  readonly source: SpanSource;
  /** The forms that are searched for, of those that the indices may hold. */
  readonly selectForms: (forms: PlacedForms) => readonly PlacedForm<Form>[];
  readonly condition: Condition<Form>;
}

interface SearchOptions {
  /** Documents of the first page. */
  readonly size: number;
  readonly isScroll?: boolean;
  /** Where it is set, no newer plan is made: indices beyond it throw `PlanOutdatedError`. */
  readonly plan?: SearchPlan | undefined;
}

export interface StartedSearch {
  readonly response: ParsedResponse;
  /** The plan that fits all indices of the response. */
  readonly plan: SearchPlan;
  /**
   * The bytes of the page that follows one; pages are asked for in order. Only where `isScroll`, and then all have the size of
   * the first one, or in a view. @throws {BackendError}
   */
  readonly fetchNext: (page: ParsedResponse, size: number, signal: AbortSignal) => Promise<Buffer>;
}

const maxAttempts = 3;

/**
 * The first page of a search in document order, compiled with mappings that fit the indices that it reached.
 * @throws {Refused} `not_supported_by_backend`
 * @throws {PlanOutdatedError}
 * @throws {BackendError} `partial` when mappings change faster than they can be read
 */
export async function startSearch<Form extends SpanForm | EventForm>(
  context: SpanSearchContext,
  query: DocumentQuery<Form>,
  options: SearchOptions,
  signal: AbortSignal,
): Promise<StartedSearch> {
  const { backend, mappingCache, view } = context;
  const { source } = query;
  const fixed = options.plan ?? view?.findPlan(source);
  if (fixed !== undefined) return searchWithPlan(context, query, options, fixed, signal);
  let renewed: SearchPlan | undefined;
  for (let attempt = 1; ; attempt++) {
    const isLast = attempt >= maxAttempts;
    const plan: SearchPlan = renewed ?? (await readPlan(context, source, signal));
    // Checked at the same time as the search, because plans are hardly ever behind.
    const pendingBehind = renewed === undefined ? isPlanBehind(context, source, plan, signal) : undefined;
    // A failure is reported where the result is awaited; until then it must not count as unhandled.
    pendingBehind?.catch(() => undefined);
    const outcome = await attemptSearch(context, query, options, { plan, pendingBehind, isLast }, signal);
    if (outcome.kind === "answered") return outcome.search;
    renewed = outcome.kind === "behind" ? await refreshPlan(context, source, signal) : undefined;
    if (outcome.kind === "behind") continue;
    if (isLast && outcome.response !== undefined) {
      acceptShardCount(backend, source.index, plan.metadata, outcome.response, mappingCache);
      return startSearch(context, query, options, signal);
    }
    if (isLast) throw createMappingChangedError(backend, source.index);
    await mappingCache.refresh(source.index, signal);
  }
}

/** The first page of a search with this plan only. Errors as `startSearch`. */
async function searchWithPlan<Form extends SpanForm | EventForm>(
  context: SpanSearchContext,
  query: DocumentQuery<Form>,
  options: SearchOptions,
  plan: SearchPlan,
  signal: AbortSignal,
): Promise<StartedSearch> {
  const { backend, view } = context;
  const attempt = { plan, pendingBehind: undefined, isLast: view !== undefined };
  const outcome = await attemptSearch(context, query, options, attempt, signal);
  if (outcome.kind === "answered") return outcome.search;
  throw view === undefined ? new PlanOutdatedError() : createMappingChangedError(backend, query.source.index);
}

interface Attempt {
  readonly plan: SearchPlan;
  /** Whether the plan is behind, if that is not known to be false. */
  readonly pendingBehind: Promise<boolean> | undefined;
  /** A rejected search is an error then, and no reason to try another plan. */
  readonly isLast: boolean;
}

type AttemptOutcome =
  | { readonly kind: "answered"; readonly search: StartedSearch }
  | { readonly kind: "behind" }
  /** The search reached other indices than the plan has; without a response it was rejected. */
  | { readonly kind: "stale"; readonly response: ParsedResponse | undefined };

async function attemptSearch<Form extends SpanForm | EventForm>(
  context: SpanSearchContext,
  query: DocumentQuery<Form>,
  { size, isScroll = false }: SearchOptions,
  { plan, pendingBehind, isLast }: Attempt,
  signal: AbortSignal,
): Promise<AttemptOutcome> {
  const { backend, client } = context;
  const { index } = query.source;
  // A query may name thousands of ids, and many searches begin at the same moment.
  await yieldToEventLoop();
  const compiled = tryCompile(() => compileQuery(context, query, plan));
  // Newer mappings may allow what these refuse. A scroll is not opened before, because nobody would read or close it.
  if ((isScroll || compiled instanceof Refused) && (await pendingBehind)) return { kind: "behind" };
  if (compiled instanceof Refused) throw compiled;
  await refuseMaskedFilter(client, index, plan.metadata, compiled, signal);
  await refuseUnreadable(context, query.source, query.selectForms(plan.forms), query.condition, signal);
  const asked = Math.min(size, plan.metadata.resultWindow);
  const sort = context.view?.sort ?? ["_doc"];
  const body = { size: asked, track_total_hits: true, query: compiled, sort };
  const parameters = isScroll && context.view === undefined ? scrollOptions : {};
  const search = searchSource(context, query.source, body, signal, parameters).catch((error: unknown) => {
    // An index that the mapping does not have may also reject what was compiled without it.
    if (isLast || !(error instanceof BackendError) || error.failure !== "rejected") throw error;
    return undefined;
  });
  const [bytes, isBehind] = await Promise.all([search, pendingBehind]);
  if (isBehind) return { kind: "behind" };
  const response =
    bytes && (await readFirstPage(client, bytes, () => parseCompleteResponse(backend, bytes, asked)));
  if (bytes !== undefined && response !== undefined && fitsPlan(context, query.source, plan, response)) {
    const fetchNext = createPager(context, query.source, body, bytes);
    return { kind: "answered", search: { response, plan, fetchNext } };
  }
  releaseScroll(client, response?.scrollId);
  return { kind: "stale", response };
}

/** Whether a response comes from the indices of the plan, and of a view from all its shards. */
function fitsPlan(
  { mappingCache, view }: SpanSearchContext,
  source: SpanSource,
  { metadata }: SearchPlan,
  response: ParsedResponse,
): boolean {
  if (view === undefined)
    return !isStale(metadata, response, mappingCache.findAcceptedShardCount(source.index));
  const { total } = response.shards;
  return total === view.findPoint(source).shards && !isStale(metadata, response, total);
}

/** Fetches the pages that follow a first one: by its scroll, or in a view by the position of the last document. */
function createPager(
  context: SpanSearchContext,
  source: SpanSource,
  body: SearchBody,
  firstBytes: Buffer,
): StartedSearch["fetchNext"] {
  const { backend, client, view } = context;
  if (view === undefined) return (page, _, signal) => fetchNextPage(backend, client, page, signal);
  let last = findLastSortValues(firstBytes);
  return async (_, size, signal) => {
    if (last === undefined) throw new BackendError(backend, "malformed", "a document without sort values");
    // Whoever counts again visits all that match, for each page.
    const next = { ...body, size, track_total_hits: false, search_after: last };
    const bytes = await searchSource(context, source, next, signal);
    last = findLastSortValues(bytes);
    return bytes;
  };
}

/** How many documents a search would return. Errors as `startSearch`. */
export async function countDocuments<Form extends SpanForm | EventForm>(
  context: SpanSearchContext,
  query: DocumentQuery<Form>,
  signal: AbortSignal,
): Promise<number> {
  const { response } = await startSearch(context, query, { size: 0 }, signal);
  return requireTotal(context.backend, response);
}

// ---- Compilation ----------------------------------------------------------------------------------------------

function compileQuery<Form extends SpanForm | EventForm>(
  context: SpanSearchContext,
  { source, selectForms, condition }: DocumentQuery<Form>,
  { metadata, forms }: SearchPlan,
): Query {
  return anyOf([
    compileFormsQuery(context, source, selectForms(forms), condition),
    // Documents of an index that is newer than the plan are never used, but show that it exists.
    not(buildIndicesQuery([...metadata.indices])),
  ]);
}

/** Groups with equal queries share one clause: a pattern of daily indices has one, not hundreds. */
function compileFormsQuery<Form extends SpanForm | EventForm>(
  { backend }: SpanSearchContext,
  source: SpanSource,
  forms: readonly PlacedForm<Form>[],
  condition: Condition<Form>,
): Query {
  const tenantFilter = readTenantFilter(backend, source);
  const queries = forms.map((placed) => {
    const filters =
      tenantFilter === undefined
        ? []
        : [compileOrRefuse(backend, () => compileTenantFilter(tenantFilter, placed.group))];
    const query = allOf([...filters, buildFormQuery(placed), condition(placed, source)]);
    return { query, indices: placed.group.indices };
  });
  const compiled = anyOf(restrictToIndices(queries.filter(({ query }) => query !== matchNone)));
  if (measureQuery(compiled).clauses > queryLimits.allClauses)
    throw createUnsupportedError(backend, "a pattern of this many indices with different mappings");
  return compiled;
}

/** Why documents of a form cannot be read from their `_source`; undefined if they can. */
function describeUnreadableForm(placed: PlacedForm<SpanForm | EventForm>): string | undefined {
  const feature = describeUnreadable(placed.group);
  if (feature !== undefined) return feature;
  const lossy = findLossyTime(placed);
  return lossy === undefined ? undefined : `documents whose ${lossy} is rebuilt from a field of type float`;
}

/**
 * Refuses a search that may find documents of indices whose `_source` cannot be read. Without such documents the others are
 * the whole answer.
 */
async function refuseUnreadable<Form extends SpanForm | EventForm>(
  context: SpanSearchContext,
  source: SpanSource,
  forms: readonly PlacedForm<Form>[],
  condition: Condition<Form>,
  signal: AbortSignal,
): Promise<void> {
  const { backend } = context;
  const unreadable = forms.filter((placed) => describeUnreadableForm(placed) !== undefined);
  const [reason] = unreadable.map(describeUnreadableForm);
  if (reason === undefined) return;
  const query = compileFormsQuery(context, source, unreadable, condition);
  if (query === matchNone) return;
  if ((await countMatches(context, source, query, signal)) > 0) throw createUnsupportedError(backend, reason);
}

function tryCompile(compile: () => Query): Query | Refused {
  try {
    return compile();
  } catch (error) {
    if (error instanceof Refused) return error;
    throw error;
  }
}

// ---- Aggregation ----------------------------------------------------------------------------------------------

/** Documents of some of a plan's forms that are aggregated. */
export interface AggregationQuery<Form> {
  readonly source: SpanSource;
  readonly plan: SearchPlan;
  readonly forms: readonly PlacedForm<Form>[];
  readonly condition: Condition<Form>;
}

export interface AggregationResult {
  /** Matching documents; 0 where the request does not track them. */
  readonly total: number;
  readonly hits: readonly { readonly sort: readonly unknown[] }[];
  /** Parses an aggregation. Servers leave all out where no shard was searched. @throws {BackendError} It is malformed. */
  readonly readAggregation: <T>(name: string, schema: z.ZodType<T>) => T;
}

const aggregationSchema = z.object({
  timed_out: z.boolean(),
  _shards: z.object({ total: z.number(), failed: z.number() }),
  hits: z.object({
    total: z.object({ value: z.number(), relation: z.string() }).optional(),
    hits: z.array(z.object({ sort: z.array(z.unknown()).default([]) })),
  }),
  aggregations: z.record(z.string(), z.unknown()).default({}),
});

/** The rest of a search. */
export interface AggregationBody {
  readonly aggs?: object;
  readonly [option: string]: unknown;
}

const countedSchema = z.object({
  indices: z.object({
    sum_other_doc_count: z.literal(0),
    buckets: z.array(z.object({ key: z.string() })),
  }),
});

function listCountedIndices(
  backend: string,
  aggregations: Readonly<Record<string, unknown>>,
): readonly string[] {
  const { data, error } = countedSchema.safeParse(aggregations);
  if (data === undefined)
    throw new BackendError(backend, "partial", "an aggregation without its indices", { cause: error });
  return data.indices.buckets.map(({ key }) => key);
}

/** Runs one search with aggregations. `body` overrides `size: 0`. @throws {PlanOutdatedError} @throws {BackendError} */
export async function aggregate<Form extends SpanForm | EventForm>(
  context: SpanSearchContext,
  { source, plan, forms, condition }: AggregationQuery<Form>,
  { aggs, ...body }: AggregationBody,
  signal: AbortSignal,
): Promise<AggregationResult> {
  const { backend, client, mappingCache, view } = context;
  const { index } = source;
  const query = compileFormsQuery(context, source, forms, condition);
  await refuseMaskedFilter(client, index, plan.metadata, query, signal);
  await refuseUnreadable(context, source, forms, condition, signal);
  const all = view?.reportIndex === undefined ? aggs : { ...aggs, ...buildIndicesAggregation() };
  const answer = await aggregateSource(context, source, { size: 0, query, ...body, aggs: all }, signal);
  const { data, error } = aggregationSchema.safeParse(answer);
  if (data === undefined) {
    throw new BackendError(backend, "malformed", "an answer that is not a _search response", {
      cause: error,
    });
  }
  const { total: shards, failed } = data._shards;
  const { total } = data.hits;
  // `terminated_early` is not checked: OpenSearch 3 sets it on complete aggregations that it took from the terms of the
  // index, and no request of ours ends a search early.
  if (data.timed_out || failed > 0 || (total !== undefined && total.relation !== "eq")) {
    throw new BackendError(backend, "partial", "incomplete aggregations");
  }
  if (total === undefined && body.track_total_hits === true)
    throw new BackendError(backend, "malformed", "an aggregation without its total");
  const known = view?.findPoint(source).shards ?? plan.metadata.shards;
  const accepted = view === undefined ? mappingCache.findAcceptedShardCount(index) : undefined;
  // Fewer shards than planned may be those of an accepted count; more shards were not all planned for.
  if (shards > known || (shards < known && shards !== accepted)) throw new PlanOutdatedError();
  if (view?.reportIndex !== undefined)
    listCountedIndices(backend, data.aggregations).forEach(view.reportIndex);
  return {
    total: total?.value ?? 0,
    hits: data.hits.hits,
    readAggregation(name, schema) {
      const found = schema.safeParse(data.aggregations[name]);
      if (found.success) return found.data;
      const { error: cause } = found;
      throw new BackendError(backend, "malformed", `the aggregation ${name} cannot be read`, { cause });
    },
  };
}
