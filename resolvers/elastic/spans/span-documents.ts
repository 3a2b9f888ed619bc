// Reads the documents of one source of spans that match a condition, each with the form that it may have. Sorting by
// `_doc` and a scroll return each document once on every server. Their number is known and taken from the budget before the
// first is read.

import { combineSignals } from "../../../src/core/async/concurrency.ts";
import { yieldToEventLoop } from "../../../src/core/async/turns.ts";
import { requireKey } from "../../../src/core/collections.ts";
import { BackendError } from "../../../src/core/errors.ts";
import type { AttributeValue } from "../../../src/core/rows.ts";
import type { Budget, SnapshotVersion, SpanSource } from "../../../src/store/spans.ts";
import type { ElasticClient } from "../client/client.ts";
import { matchNone } from "../client/query-dsl.ts";
import { releaseScroll, requireCompleteScroll } from "../client/scroll.ts";
import { createFieldFilter } from "../layout/field-filter.ts";
import type { PlacedForm, PlacedForms } from "../layout/form-placement.ts";
import type { EventForm, SpanForm } from "../layout/span-layout.ts";
import type { MappingCache } from "../search/mapping-cache.ts";
import { chooseFirstSize, choosePageSize, recordPageHitSize, reducePageSize } from "../search/page-size.ts";
import { createMappingChangedError, isStale } from "../search/search.ts";
import { type ParsedHit, type ParsedResponse, parseCompleteResponse } from "../search/search-response.ts";
import { IndicesChangedError } from "../snapshot/shard-states.ts";
import {
  type AddedDocuments,
  describeIndices,
  keepsIndices,
  openSnapshot,
  type Snapshot,
  type SnapshotSources,
} from "../snapshot/snapshot.ts";
import {
  createSpanSearchContext,
  formatSource,
  isPlanBehind,
  planSearch,
  refreshPlan,
  requireTotal,
  type SearchPlan,
  type SpanSearchContext,
  type SpanView,
} from "./search-plan.ts";
import {
  type AggregationBody,
  type AggregationQuery,
  type AggregationResult,
  aggregate,
  type Condition,
  countDocuments,
  type DocumentQuery,
  type StartedSearch,
  startSearch,
} from "./span-search.ts";

export interface FoundDocument<Form> {
  readonly index: string;
  /** Unique in its index. */
  readonly id: string;
  readonly document: AttributeValue;
  readonly form: Form;
}
/** A document comes once for each form that its index may hold; batches are never empty. */
type DocumentBatches<Form> = AsyncGenerator<readonly FoundDocument<Form>[]>;

/**
 * The span documents of one backend. Each method throws `Refused` `not_supported_by_backend` where a source cannot be read
 * exactly, and `BackendError`.
 */
export interface SpanDocuments {
  /** The forms that the indices of the source may hold, by mappings that are not behind. */
  readForms(source: SpanSource, signal: AbortSignal): Promise<PlacedForms>;
  /** The candidates among documents that are spans, in no order. @throws {Refused} `result_too_large` by the budget */
  readSpans(read: SpanRead, budget: Budget, signal: AbortSignal): DocumentBatches<SpanForm>;
  /** The candidates among documents that are separate events. Errors as `readSpans`. */
  readEvents(
    source: SpanSource,
    condition: Condition<EventForm>,
    budget: Budget,
    signal: AbortSignal,
  ): DocumentBatches<EventForm>;
  /** Both kinds by one search. Undefined, and nothing spent, where they exceed one response. */
  readInOneSearch(
    source: SpanSource,
    spanCondition: Condition<SpanForm>,
    eventCondition: Condition<EventForm>,
    budget: Budget,
    signal: AbortSignal,
  ): Promise<DocumentBatches<SpanForm | EventForm> | undefined>;
  /**
   * A plan by the current mappings. All searches with one plan are about the same indices: one that meets others throws
   * `PlanOutdatedError`, before anything is read.
   */
  planSearch(source: SpanSource, signal: AbortSignal): Promise<SearchPlan>;
  /** Reads the mappings again, for the next plan. */
  refreshMappings(source: SpanSource, signal: AbortSignal): Promise<void>;
  /** Runs one search with aggregations; `body` overrides `size: 0`. @throws {PlanOutdatedError} */
  aggregate<Form extends SpanForm | EventForm>(
    query: AggregationQuery<Form>,
    body: AggregationBody,
    signal: AbortSignal,
  ): Promise<AggregationResult>;
  /** How many documents `readSpans` would read. */
  countSpans(source: SpanSource, condition: Condition<SpanForm>, signal: AbortSignal): Promise<number>;
  /** How many documents `readEvents` would read. */
  countEvents(source: SpanSource, condition: Condition<EventForm>, signal: AbortSignal): Promise<number>;
  /** The documents of the sources at one moment. Undefined where they cannot be held. */
  openSnapshot(
    sources: readonly SpanSource[],
    since: SnapshotVersion | undefined,
    signal: AbortSignal,
  ): Promise<DocumentSnapshot | undefined>;
}

/** The documents of some sources at one moment. */
export interface DocumentSnapshot extends Pick<Snapshot, "version" | "behindIndices" | "close"> {
  /** The documents of the shards with one number each, with the sources that have such shards. `reportIndex` as in a view. */
  readonly listShards: (reportIndex?: SpanView["reportIndex"]) => readonly ShardDocuments[];
  /** Those that an earlier snapshot did not have. Undefined where anything else has changed. */
  readonly added: AddedShards | undefined;
  /** The same of some of its sources, since an earlier version of these. @throws {BackendError} */
  readonly select: (
    sources: readonly SpanSource[],
    since: SnapshotVersion | undefined,
    signal: AbortSignal,
  ) => Promise<Pick<DocumentSnapshot, "version" | "added" | "behindIndices">>;
}

export interface AddedShards extends Pick<AddedDocuments, "documents" | "changedIndices"> {
  readonly shards: readonly ShardDocuments[];
}

export interface ShardDocuments {
  readonly documents: SpanDocuments;
  readonly sources: readonly SpanSource[];
}

interface SpanRead {
  readonly source: SpanSource;
  readonly condition: Condition<SpanForm>;
  /** Where it is set, only indices of this plan are read: others throw `PlanOutdatedError`. */
  readonly plan?: SearchPlan | undefined;
  /** The documents are expected to exceed one response, so that the scroll begins at once. */
  readonly exceedsFirstSearch?: boolean | undefined;
}

/** Whether an aggregation query matches any document, which is searched for only where the query may match. */
export async function hasDocuments<Form extends SpanForm | EventForm>(
  documents: SpanDocuments,
  query: AggregationQuery<Form>,
  signal: AbortSignal,
): Promise<boolean> {
  const { source, forms, condition } = query;
  if (forms.every((placed) => condition(placed, source) === matchNone)) return false;
  return (await documents.aggregate(query, { track_total_hits: true }, signal)).total > 0;
}

export function createSpanDocuments(
  backend: string,
  client: ElasticClient,
  mappingCache: MappingCache,
): SpanDocuments {
  return createDocumentsOf(createSpanSearchContext(backend, client, mappingCache));
}

function createDocumentsOf(context: SpanSearchContext): SpanDocuments {
  const { mappingCache } = context;
  return {
    openSnapshot: (sources, since, signal) => openSpanSnapshot(context, sources, since, signal),
    readForms: async (source, signal) => (await planSearch(context, source, signal)).forms,
    planSearch: (source, signal) => planSearch(context, source, signal),
    refreshMappings: async ({ index }, signal) => void (await mappingCache.refresh(index, signal)),
    aggregate: (query, body, signal) => aggregate(context, query, body, signal),
    readSpans: ({ source, condition, ...options }, budget, signal) =>
      readDocuments(context, { source, condition, selectForms: selectSpanForms }, options, budget, signal),
    readEvents: (source, condition, budget, signal) =>
      readDocuments(context, { source, condition, selectForms: selectEventForms }, {}, budget, signal),
    readInOneSearch: (source, spanCondition, eventCondition, budget, signal) =>
      readInOneSearch(context, source, spanCondition, eventCondition, budget, signal),
    countSpans: (source, condition, signal) =>
      countDocuments(context, { source, condition, selectForms: selectSpanForms }, signal),
    countEvents: (source, condition, signal) =>
      countDocuments(context, { source, condition, selectForms: selectEventForms }, signal),
  };
}

/** Undefined also where indices come and go, or mappings change, faster than the snapshot can be opened. */
async function openSpanSnapshot(
  context: SpanSearchContext,
  sources: readonly SpanSource[],
  since: SnapshotVersion | undefined,
  signal: AbortSignal,
): Promise<DocumentSnapshot | undefined> {
  for (let attempt = 1; attempt <= maxSnapshotAttempts; attempt++) {
    const plans = new Map<string, SearchPlan>();
    for (const source of sources) plans.set(formatSource(source), await planSearch(context, source, signal));
    const opened = await openPlannedSnapshot(context, sources, plans, since, signal);
    if (opened !== "behind") return opened;
    for (const source of sources) await refreshPlan(context, source, signal);
  }
  return undefined;
}

const maxSnapshotAttempts = 2;

/** The plans come before the points in time, so these may show that a plan is behind. */
async function openPlannedSnapshot(
  context: SpanSearchContext,
  sources: readonly SpanSource[],
  plans: ReadonlyMap<string, SearchPlan>,
  since: SnapshotVersion | undefined,
  signal: AbortSignal,
): Promise<DocumentSnapshot | "behind" | undefined> {
  const findPlan = (source: SpanSource): SearchPlan => requireKey(plans, formatSource(source));
  const patterns = new Map(sources.map((source) => [source.index, findPlan(source).metadata] as const));
  // Plans of one pattern are made one after the other, and it may have changed in between. Mappings that were read again and had
  // not changed have the same groups.
  if (sources.some((source) => patterns.get(source.index)?.groups !== findPlan(source).metadata.groups))
    return "behind";
  const of = { patterns, isRead: findFieldFilter(context, sources) };
  const opening = openSnapshot(context.backend, context.client, of, since, signal);
  const snapshot = await opening.catch((error: unknown) => {
    if (error instanceof IndicesChangedError) return "behind" as const;
    throw error;
  });
  if (snapshot === undefined || snapshot === "behind") return snapshot;
  const createViews = (
    { buildQuery, reportIndex }: Pick<SpanView, "buildQuery" | "reportIndex">,
    wanted = sources,
  ) =>
    [...Map.groupBy(snapshot.points, ({ shard }) => shard).values()].map((points) => {
      const byPattern = new Map(points.map((point) => [point.pattern, point]));
      const findPoint = ({ index }: SpanSource) => requireKey(byPattern, index);
      const view: SpanView = { findPoint, findPlan, sort: snapshotSort, buildQuery, reportIndex };
      // What was checked before the points in time were opened does not hold for them.
      const own: SpanSearchContext = { ...context, view, checkedAt: new WeakMap() };
      const held = wanted.filter(({ index }) => byPattern.has(index));
      return { context: own, shard: { documents: createDocumentsOf(own), sources: held } };
    });
  try {
    const views = createViews({});
    const checks = views.flatMap(({ context: own, shard }) =>
      shard.sources.map((source) => () => isPlanBehind(own, source, findPlan(source), signal)),
    );
    let isOutdated = !(await arePlansCurrent(context, of, signal));
    for (const check of checks) isOutdated ||= await check();
    if (isOutdated) {
      snapshot.close();
      return "behind";
    }
    const { version, behindIndices, close } = snapshot;
    const selectHeld = (of: ReturnType<typeof createViews>) =>
      of.map(({ shard }) => shard).filter((shard) => shard.sources.length > 0);
    const toShards = (
      added: AddedDocuments | undefined,
      wanted: readonly SpanSource[],
    ): AddedShards | undefined => added && { ...added, shards: selectHeld(createViews(added, wanted)) };
    return {
      version,
      behindIndices,
      close,
      listShards: (reportIndex) =>
        selectHeld(reportIndex === undefined ? views : createViews({ reportIndex })),
      added: toShards(snapshot.added, sources),
      select: async (wanted, earlier, own) => {
        const selected = new Map(wanted.map(({ index }) => [index, requireKey(patterns, index)]));
        const part = { patterns: selected, isRead: findFieldFilter(context, wanted) };
        const found = await snapshot.select(part, earlier, own);
        return { ...found, added: toShards(found.added, wanted) };
      },
    };
  } catch (error) {
    snapshot.close();
    throw error;
  }
}

/** The same filter for the same sources, so that digests of mappings are known. */
function findFieldFilter(
  { fieldFilters, mappingCache }: SpanSearchContext,
  sources: readonly SpanSource[],
): SnapshotSources["isRead"] {
  const key = JSON.stringify(sources);
  const known = fieldFilters.get(key);
  if (known !== undefined) return known;
  const filter = createFieldFilter(sources, (source) => mappingCache.listSpanLayouts(source));
  fieldFilters.set(key, filter);
  return filter;
}

/**
 * Whether the mappings are those of the plans. They are read anew: cached ones would show an index that was deleted and made
 * again as the one that it was.
 */
async function arePlansCurrent(
  { mappingCache }: SpanSearchContext,
  { patterns, isRead }: SnapshotSources,
  signal: AbortSignal,
): Promise<boolean> {
  for (const [pattern, metadata] of patterns) {
    const now = await mappingCache.refresh(pattern, signal);
    const isSame = keepsIndices(describeIndices(metadata, isRead), describeIndices(now, isRead));
    if (now.indices.size !== metadata.indices.size || !isSame) return false;
  }
  return true;
}

/** Unique within a point in time: numbers are unique within a shard, and it has one shard of each index. */
const snapshotSort = [{ _seq_no: "asc" }, { _index: "asc" }];

function selectSpanForms({ spans }: PlacedForms): readonly PlacedForm<SpanForm>[] {
  return spans;
}

function selectEventForms({ events }: PlacedForms): readonly PlacedForm<EventForm>[] {
  return events;
}

function selectAllForms({ spans, events }: PlacedForms): readonly PlacedForm<SpanForm | EventForm>[] {
  return [...spans, ...events];
}

async function* readDocuments<Form extends SpanForm | EventForm>(
  context: SpanSearchContext,
  query: DocumentQuery<Form>,
  { plan, exceedsFirstSearch = false }: Pick<SpanRead, "plan" | "exceedsFirstSearch">,
  budget: Budget,
  signal: AbortSignal,
): DocumentBatches<Form> {
  const { backend, client, view } = context;
  const { index } = query.source;
  const scroll = (size: number, spent = 0) =>
    scrollDocuments(context, query, { size, plan, spent }, budget, signal);
  if (exceedsFirstSearch) return yield* scroll(choosePageSize(client, index));
  const first = await startFitting(context, query, { size: chooseFirstSize(client, index), plan }, signal);
  if (typeof first === "number") return yield* scroll(first);
  const { response } = first;
  const total = requireTotal(backend, response);
  budget.spend(total);
  if (total <= response.count) {
    budget.reportRead?.(total);
    return yield* expandForms(context, query, first.plan, response);
  }
  const size = choosePageSize(client, index, response);
  // In a view a page can follow any other; a scroll begins anew.
  if (view === undefined) return yield* scroll(size, total);
  yield* readPages(context, query, first, { size, spent: total }, budget, signal);
}

/** The first page of a search; where it exceeds what a response may have, how many documents to ask for instead. */
async function startFitting<Form extends SpanForm | EventForm>(
  context: SpanSearchContext,
  query: DocumentQuery<Form>,
  options: Parameters<typeof startSearch>[2],
  signal: AbortSignal,
): Promise<StartedSearch | number> {
  const { client } = context;
  const { index } = query.source;
  try {
    const started = await startSearch(context, query, options, signal);
    recordPageHitSize(client, index, options.size, started.response);
    return started;
  } catch (error) {
    return reducePageSize(client, index, options.size, error);
  }
}

/** Reads by a scroll, in pages of `size` documents or fewer. `spent` documents are taken from the budget already. */
async function* scrollDocuments<Form extends SpanForm | EventForm>(
  context: SpanSearchContext,
  query: DocumentQuery<Form>,
  { size, plan, spent }: PageOptions & { readonly plan: SearchPlan | undefined },
  budget: Budget,
  signal: AbortSignal,
): DocumentBatches<Form> {
  const started = await startFitting(context, query, { size, isScroll: true, plan }, signal);
  if (typeof started === "number")
    return yield* scrollDocuments(context, query, { size: started, plan, spent }, budget, signal);
  yield* readPages(context, query, started, { size, spent }, budget, signal);
}

interface PageOptions {
  /** Documents of a page. */
  readonly size: number;
  readonly spent: number;
}

/** The first page and all that follow it. `spent` documents are taken from the budget already. */
async function* readPages<Form extends SpanForm | EventForm>(
  context: SpanSearchContext,
  query: DocumentQuery<Form>,
  { plan, response: first, fetchNext }: StartedSearch,
  { size: firstSize, spent }: PageOptions,
  budget: Budget,
  signal: AbortSignal,
): DocumentBatches<Form> {
  const { backend, client } = context;
  let size = Math.min(firstSize, plan.metadata.resultWindow);
  const leaving = new AbortController();
  const limited = combineSignals(signal, leaving.signal);
  let response = first;
  let read = 0;
  try {
    const total = requireTotal(backend, first);
    if (total > spent) budget.spend(total - spent);
    const readNextPage = async (page: ParsedResponse): Promise<ParsedResponse> => {
      try {
        const bytes = await fetchNext(page, size, limited);
        return await parseCompleteResponse(backend, bytes, Math.min(size, total - read), true);
      } catch (error) {
        // The page of a view can be asked for again, and one of a scroll cannot.
        if (context.view === undefined) throw error;
        size = reducePageSize(client, query.source.index, size, error);
        return readNextPage(page);
      }
    };
    while (response.count > 0) {
      read += response.count;
      budget.reportRead?.(response.count);
      if (isStale(plan.metadata, response, response.shards.total))
        throw createMappingChangedError(backend, query.source.index);
      const pending = read < total ? readNextPage(response) : undefined;
      // A failure is reported once the caller asks for the page; until then it must not count as unhandled.
      pending?.catch(() => undefined);
      yield* expandForms(context, query, plan, response);
      if (pending === undefined) break;
      response = await pending;
    }
    requireCompleteScroll(backend, read, total);
  } finally {
    leaving.abort(new Error("the caller stopped reading"));
    releaseScroll(client, response.scrollId);
  }
}

async function readInOneSearch(
  context: SpanSearchContext,
  source: SpanSource,
  spanCondition: Condition<SpanForm>,
  eventCondition: Condition<EventForm>,
  budget: Budget,
  signal: AbortSignal,
): Promise<DocumentBatches<SpanForm | EventForm> | undefined> {
  const condition: Condition<SpanForm | EventForm> = ({ form, ...placed }, own) =>
    form.holds === "span"
      ? spanCondition({ ...placed, form }, own)
      : eventCondition({ ...placed, form }, own);
  const query = { source, condition, selectForms: selectAllForms };
  const size = chooseFirstSize(context.client, source.index);
  const started = await startFitting(context, query, { size }, signal);
  if (typeof started === "number") return undefined;
  const { response, plan } = started;
  const total = requireTotal(context.backend, response);
  if (total > response.count) return undefined;
  budget.spend(total);
  budget.reportRead?.(total);
  return expandForms(context, query, plan, response);
}

/** Each document once for every form that its index may hold. The decoder decides which of them it has. */
async function* expandForms<Form extends SpanForm | EventForm>(
  { backend, view }: SpanSearchContext,
  { source, selectForms }: DocumentQuery<Form>,
  plan: SearchPlan,
  response: ParsedResponse,
): DocumentBatches<Form> {
  if (view?.reportIndex !== undefined) response.indices.forEach(view.reportIndex);
  const forms = groupFormsByIndex(selectForms(plan.forms));
  let isFirst = true;
  for (const chunk of parseChunks(backend, source, response)) {
    if (!isFirst) await yieldToEventLoop();
    isFirst = false;
    const found: FoundDocument<Form>[] = [];
    for (const { index, id, document } of chunk) {
      for (const form of forms.get(index) ?? []) found.push({ index, id, document, form });
    }
    if (found.length > 0) yield found;
  }
}

function* parseChunks(
  backend: string,
  { index }: SpanSource,
  { chunks }: ParsedResponse,
): Generator<readonly ParsedHit[]> {
  try {
    yield* chunks();
  } catch (cause) {
    throw new BackendError(backend, "malformed", `documents of ${index} that are not JSON`, { cause });
  }
}

function groupFormsByIndex<Form>(placed: readonly PlacedForm<Form>[]): ReadonlyMap<string, readonly Form[]> {
  const forms = new Map<string, Form[]>();
  for (const { group, form } of placed) {
    for (const index of group.indices) {
      const known = forms.get(index);
      if (known === undefined) forms.set(index, [form]);
      else known.push(form);
    }
  }
  return forms;
}
