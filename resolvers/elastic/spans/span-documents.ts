// The documents of one source of spans that satisfy a condition, each with the form that it has. Every search carries the
// wall, reaches only indices whose mapping is known, and is whole or an error. Document order and a scroll bring each
// document once on every server; how many there are is known, and spent from the budget, before the first is read.
import { z } from "zod";
import { BackendError, createUnsupportedError, Refused } from "../../../src/core/errors.ts";
import type { AttributeValue } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { Filter } from "../../../src/log-query/ast.ts";
import type { Budget, SpanSource } from "../../../src/store/spans.ts";
import { yieldToEventLoop } from "../../http/waiting.ts";
import type { ElasticClient } from "../client/client.ts";
import {
  addSharedQuery,
  allOf,
  anyOf,
  buildIndicesQuery,
  matchAll,
  matchNone,
  measureQuery,
  not,
  type Query,
  type SharedQueries,
} from "../client/query-dsl.ts";
import { fetchNextPage, releaseScroll, requireCompleteScroll, scrollOptions } from "../client/scroll.ts";
import { describeMisspelt, type PlacedForm, type PlacedForms, placeForms } from "../layout/form-placement.ts";
import type { EventForm, SpanForm } from "../layout/span-layout.ts";
import type { IndexMetadata } from "../mapping/mapping.ts";
import { queryLimits } from "../query/filter-compiler.ts";
import { buildFormQuery, describeTimeProblem } from "../query/span-upper-bounds.ts";
import { compileTenantFilter, hasUnmappedField, parseTenantFilter } from "../query/tenant-filter.ts";
import { refuseMaskedFilter, refuseMaskedTenantFilter } from "../search/access-restrictions.ts";
import type { MappingCache } from "../search/mapping-cache.ts";
import {
  acceptShardCount,
  isStale,
  mappingChangedError,
  refuseClosed,
  refuseRemote,
  rejectInexactTenantFilter,
  searchJson,
  sendSearch,
} from "../search/search.ts";
import { type ParsedHit, type ParsedResponse, parseCompleteResponse } from "../search/search-response.ts";

interface FoundDocument<Form> {
  readonly index: string;
  /** Unique in its index. */
  readonly id: string;
  readonly document: AttributeValue;
  readonly form: Form;
}
/** What the documents of a form have to satisfy, as an upper bound. */
export type Condition<Form> = (placed: PlacedForm<Form>, source: SpanSource) => Query;

export interface SpanDocuments {
  /** @throws {Refused} `not_supported_by_backend` where the source cannot be read exactly */
  readLayout(source: SpanSource, signal: AbortSignal): Promise<PlacedForms>;
  /** @throws {Refused} @throws {BackendError} */
  readSpans(
    source: SpanSource,
    condition: Condition<SpanForm>,
    budget: Budget,
    signal: AbortSignal,
    options?: ReadOptions,
  ): AsyncGenerator<readonly FoundDocument<SpanForm>[]>;
  /** The same of events that lie in documents of their own. */
  readEvents(
    source: SpanSource,
    condition: Condition<EventForm>,
    budget: Budget,
    signal: AbortSignal,
  ): AsyncGenerator<readonly FoundDocument<EventForm>[]>;
  /** Both by one search; undefined, and nothing spent, where they are more than one answer holds. */
  readInOneSearch(
    source: SpanSource,
    readSpans: Condition<SpanForm>,
    readEvents: Condition<EventForm>,
    budget: Budget,
    signal: AbortSignal,
  ): Promise<AsyncIterable<readonly FoundDocument<SpanForm | EventForm>[]> | undefined>;
  /** A signal of the same reading that may end earlier: what is known for the one holds for the other. */
  combineSignals(signal: AbortSignal, earlier: AbortSignal): AbortSignal;
  /**
   * What the mappings of a source say now. What is asked with one plan is about the same documents: whoever meets
   * indices that it does not know throws `PlanOutdatedError`, before anything was read.
   */
  planSearch(source: SpanSource, signal: AbortSignal): Promise<SearchPlan>;
  refreshMappings(source: SpanSource, signal: AbortSignal): Promise<void>;
  /** Aggregations over the documents of some of the plan's forms. @throws {PlanOutdatedError} @throws {BackendError} */
  aggregate<Form extends SpanForm | EventForm>(
    source: SpanSource,
    planSearch: SearchPlan,
    forms: readonly PlacedForm<Form>[],
    condition: Condition<Form>,
    body: object,
    signal: AbortSignal,
  ): Promise<AggregationResult>;
  /** How many documents `spans` or `events` would read. */
  countSpans(source: SpanSource, condition: Condition<SpanForm>, signal: AbortSignal): Promise<number>;
  countEvents(source: SpanSource, condition: Condition<EventForm>, signal: AbortSignal): Promise<number>;
}

/**
 * What most look-ups find comes with the first search; what is more comes by a scroll of smaller parts, and what is too
 * large to be held, such as errors with the source around each line of their stacks, by one of the smallest.
 */
const searchSizes = { first: 5_000, scrolled: 1_000, heavy: 50 } as const;
const maxAttempts = 3;
/** How soon a server lets new documents be found: mappings that may be behind need not be newer. */
const refreshInterval: Millis = 1_000;

interface ReadOptions {
  readonly plan?: SearchPlan | undefined;
  /** More than one answer holds, as far as is known: no search is spent to find out. */
  readonly exceedsFirstSearch?: boolean | undefined;
}

export interface SearchPlan {
  readonly knowledge: IndexMetadata;
  readonly layout: PlacedForms;
}
/** The indices are not those of the plan: whatever was asked with it has to be asked again with a new one. */
export class PlanOutdatedError extends Error {
  override readonly name = "Outdated";
}

export interface AggregationResult {
  readonly total: number;
  readonly hits: readonly { readonly sort: readonly unknown[] }[];
  readonly aggregations: Readonly<Record<string, unknown>>;
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

export function createSpanDocuments(
  backend: string,
  client: ElasticClient,
  catalog: MappingCache,
): SpanDocuments {
  const layouts = new WeakMap<IndexMetadata, Map<string, PlacedForms>>();
  /** When mappings were read because they might be behind. */
  const refreshed = new WeakMap<IndexMetadata, Millis>();
  /** When the layouts of a reading were last found not to have grown. */
  const probed = new WeakMap<AbortSignal, Map<PlacedForms, Millis>>();
  /** The signal of the reading that another was made of. */
  const readings = new WeakMap<AbortSignal, AbortSignal>();

  function within(signal: AbortSignal, earlier: AbortSignal): AbortSignal {
    const both = AbortSignal.any([signal, earlier]);
    readings.set(both, readingOf(signal));
    return both;
  }

  function readingOf(signal: AbortSignal): AbortSignal {
    return readings.get(signal) ?? signal;
  }

  async function planSearch(source: SpanSource, signal: AbortSignal): Promise<SearchPlan> {
    const plan = await knownPlan(source, signal);
    return (await isBehind(source, plan, signal)) ? renewedPlan(source, signal) : plan;
  }

  async function knownPlan(source: SpanSource, signal: AbortSignal): Promise<SearchPlan> {
    refuseRemote(backend, source.index);
    const found = await catalog.read(source.index, wallOf(source) !== undefined, signal);
    // What may not be read is refused without a search, so nothing else would show that it may be read by now.
    const known = found.opaque ? await catalog.refresh(source.index, signal) : found;
    await refuseMaskedTenantFilter(backend, client, source, known, signal);
    const plan = await placed(source, known, signal);
    return hasOnlyUnknownLayouts(plan) && (await holds(source, matchAll, signal))
      ? renewedPlan(source, signal, true)
      : plan;
  }

  /**
   * Where there are documents and all of them are strange, an empty answer would be a short one: the layout may be another,
   * or security may hide a field of it from this user, in the mapping as well. `filled` says that there are some.
   */
  async function renewedPlan(source: SpanSource, signal: AbortSignal, filled = false): Promise<SearchPlan> {
    const renewed = await catalog.refresh(source.index, signal);
    refreshed.set(renewed, performance.now());
    const plan = await placed(source, renewed, signal);
    if (hasOnlyUnknownLayouts(plan) && (filled || (await holds(source, matchAll, signal))))
      throw createUnsupportedError(backend, "an index pattern without spans of a known layout");
    return plan;
  }

  /** Whether there may be documents that these mappings do not tell of. */
  async function isBehind(
    source: SpanSource,
    { knowledge, layout }: SearchPlan,
    signal: AbortSignal,
  ): Promise<boolean> {
    if (await hasGrownFor(source, layout, signal)) return true;
    const tenantFilter = wallOf(source);
    const groups = [...layout.spans, ...layout.events].map(({ group }) => group);
    if (tenantFilter === undefined || !hasUnmappedField(tenantFilter, groups)) return false;
    const since = refreshed.get(knowledge);
    return since === undefined || performance.now() - since >= refreshInterval;
  }

  async function placed(
    source: SpanSource,
    knowledge: IndexMetadata,
    signal: AbortSignal,
  ): Promise<SearchPlan> {
    if (knowledge.opaque)
      throw createUnsupportedError(backend, "spans in an index whose mapping may not be read");
    refuseClosed(backend, knowledge);
    const known = layouts.get(knowledge) ?? new Map<string, PlacedForms>();
    layouts.set(knowledge, known);
    const layout =
      known.get(source.layout) ??
      placeForms(knowledge, catalog.listSpanLayouts(source), await client.detectProduct(signal));
    known.set(source.layout, layout);
    const [misspelt] = layout.misspeltFields;
    if (misspelt !== undefined) throw createUnsupportedError(backend, describeMisspelt(misspelt));
    return { knowledge, layout };
  }

  /** Asked once for all searches of one reading, which has one signal, while what was found can be no older. */
  async function hasGrownFor(source: SpanSource, layout: PlacedForms, signal: AbortSignal): Promise<boolean> {
    const reading = readingOf(signal);
    const known = probed.get(reading)?.get(layout);
    if (known !== undefined && performance.now() - known < refreshInterval) return false;
    const asked = performance.now();
    if (await hasGrown(source, layout, signal)) return true;
    probed.set(reading, (probed.get(reading) ?? new Map()).set(layout, asked));
    return false;
  }

  /**
   * Whether an index has come to hold what its mapping, as it was read, says that it cannot. Asked without the wall,
   * whose names may be new as well, and so by a search of its own: one that returns documents carries the wall.
   */
  async function hasGrown(
    source: SpanSource,
    { possibleForms: growing }: PlacedForms,
    signal: AbortSignal,
  ): Promise<boolean> {
    if (growing.length === 0) return false;
    const parts: SharedQueries = new Map();
    for (const placed of growing) addSharedQuery(parts, buildFormQuery(placed), placed.group.indices);
    const query = anyOf(
      [...parts.values()].map((part) => allOf([buildIndicesQuery(part.indices), part.query])),
    );
    return holds(source, query, signal);
  }

  async function holds(source: SpanSource, query: Query, signal: AbortSignal): Promise<boolean> {
    const counted = JSON.stringify({ size: 0, track_total_hits: true, query });
    const bytes = await sendSearch(client, source.index, counted, signal);
    return totalOf(await parseCompleteResponse(backend, bytes, 0)) > 0;
  }

  function wallOf({ where }: SpanSource): Filter | undefined {
    return where === undefined
      ? undefined
      : rejectInexactTenantFilter(backend, () => parseTenantFilter(where));
  }

  /** Groups whose queries are equal are asked as one: a pattern of daily indices is one part, not hundreds. */
  function compile<Form extends SpanForm | EventForm>(
    source: SpanSource,
    { knowledge }: SearchPlan,
    forms: readonly PlacedForm<Form>[],
    condition: Condition<Form>,
  ): Query {
    return anyOf([
      compileKnown(source, forms, condition),
      // Documents of an index that appeared since are never used, but tell that it is there.
      not(buildIndicesQuery([...knowledge.indices])),
    ]);
  }

  function compileKnown<Form extends SpanForm | EventForm>(
    source: SpanSource,
    forms: readonly PlacedForm<Form>[],
    condition: Condition<Form>,
  ): Query {
    const tenantFilter = wallOf(source);
    const parts: SharedQueries = new Map();
    for (const placed of forms) {
      requireReadable(placed);
      const walled =
        tenantFilter === undefined
          ? []
          : [rejectInexactTenantFilter(backend, () => compileTenantFilter(tenantFilter, placed.group))];
      const query = allOf([...walled, buildFormQuery(placed), condition(placed, source)]);
      if (query === matchNone) continue;
      addSharedQuery(parts, query, placed.group.indices);
    }
    const compiled = anyOf(
      [...parts.values()].map(({ query, indices }) => allOf([buildIndicesQuery(indices), query])),
    );
    if (measureQuery(compiled).clauses > queryLimits.allClauses)
      throw createUnsupportedError(backend, "a pattern of this many indices with different mappings");
    return compiled;
  }

  function requireReadable(placed: PlacedForm<SpanForm | EventForm>): void {
    if (placed.group.sourceMode === "cut")
      throw createUnsupportedError(backend, "documents whose _source is not kept whole");
    const { form } = placed;
    const reason = form.holds === "span" ? describeTimeProblem({ ...placed, form }) : undefined;
    if (reason !== undefined) throw createUnsupportedError(backend, `spans whose ${reason}`);
  }

  /** The first answer, compiled with mappings that fit what it reached. */
  async function begin<Form extends SpanForm | EventForm>(
    source: SpanSource,
    formsOf: (layout: PlacedForms) => readonly PlacedForm<Form>[],
    condition: Condition<Form>,
    size: number,
    options: Partial<typeof scrollOptions>,
    signal: AbortSignal,
    fixed?: SearchPlan,
  ): Promise<{ readonly answer: ParsedResponse; readonly plan: SearchPlan }> {
    let renewed: SearchPlan | undefined;
    for (let attempt = 1; ; attempt++) {
      const plan: SearchPlan = fixed ?? renewed ?? (await knownPlan(source, signal));
      // Asked at the same time: hardly ever is anything behind. But a scroll that nobody reads would stay open.
      const pending =
        fixed !== undefined || renewed !== undefined ? undefined : isBehind(source, plan, signal);
      // It may fail before anybody waits for it; it is met when it is waited for.
      pending?.catch(() => undefined);
      const query = tryCompile(() => compile(source, plan, formsOf(plan.layout), condition));
      if ((options.scroll !== undefined || query instanceof Refused) && (await pending)) {
        renewed = await renewedPlan(source, signal);
        continue;
      }
      if (query instanceof Refused) throw query;
      await refuseMaskedFilter(backend, query, client, source.index, plan.knowledge, signal);
      renewed = undefined;
      const body = JSON.stringify({ size, track_total_hits: true, query, sort: ["_doc"] });
      const last = attempt >= maxAttempts && fixed === undefined;
      const search = sendSearch(client, source.index, body, signal, options).catch((error: unknown) => {
        // An index that the mapping did not know may also refuse what was compiled without it.
        if (last || !(error instanceof BackendError) || error.failure !== "rejected") throw error;
        return undefined;
      });
      const [bytes, behind] = await Promise.all([search, pending]);
      if (behind) {
        renewed = await renewedPlan(source, signal);
        continue;
      }
      const answer = bytes && (await parseCompleteResponse(backend, bytes, size));
      if (
        answer !== undefined &&
        !isStale(plan.knowledge, answer, catalog.findAcceptedShardCount(source.index))
      ) {
        return { answer, plan };
      }
      releaseScroll(client, answer?.scrollId);
      if (fixed !== undefined) throw new PlanOutdatedError();
      if (last && answer !== undefined) {
        acceptShardCount(backend, source.index, plan.knowledge, answer, catalog);
        return begin(source, formsOf, condition, size, options, signal);
      }
      if (last) throw mappingChangedError(backend, source.index);
      await catalog.refresh(source.index, signal);
    }
  }

  async function* read<Form extends SpanForm | EventForm>(
    source: SpanSource,
    formsOf: (layout: PlacedForms) => readonly PlacedForm<Form>[],
    condition: Condition<Form>,
    budget: Budget,
    signal: AbortSignal,
    { plan: fixed, exceedsFirstSearch: many }: ReadOptions = {},
  ): AsyncGenerator<readonly FoundDocument<Form>[]> {
    let total = 0;
    let size: number = searchSizes.scrolled;
    if (!many) {
      const first = await begin(source, formsOf, condition, searchSizes.first, {}, signal, fixed).catch(
        suppressTooLarge,
      );
      if (first === undefined) size = searchSizes.heavy;
      else {
        total = totalOf(first.answer);
        budget.spend(total);
        if (total <= first.answer.count) {
          yield* parsed(source, first.plan, formsOf, first.answer);
          return;
        }
      }
    }
    const leaving = new AbortController();
    const limited = within(signal, leaving.signal);
    const next = async (answer: ParsedResponse) =>
      parseCompleteResponse(
        backend,
        await fetchNextPage(backend, client, answer, limited),
        Math.min(size, promised - got),
        true,
      );
    let { answer, plan } = await begin(source, formsOf, condition, size, scrollOptions, limited, fixed);
    const promised = totalOf(answer);
    if (promised > total) budget.spend(promised - total);
    let got = 0;
    let pending: Promise<ParsedResponse> | undefined;
    try {
      while (answer.count > 0) {
        got += answer.count;
        if (isStale(plan.knowledge, answer, answer.shards.total))
          throw mappingChangedError(backend, source.index);
        pending = got < promised ? next(answer) : undefined;
        // It may fail while the caller is busy; it is met when its turn comes.
        pending?.catch(() => undefined);
        yield* parsed(source, plan, formsOf, answer);
        if (pending === undefined) break;
        answer = await pending;
      }
      requireCompleteScroll(backend, got, promised);
    } finally {
      leaving.abort(new Error("no more documents wanted"));
      releaseScroll(client, answer.scrollId);
    }
  }

  async function few(
    source: SpanSource,
    spans: Condition<SpanForm>,
    events: Condition<EventForm>,
    budget: Budget,
    signal: AbortSignal,
  ): Promise<AsyncIterable<readonly FoundDocument<SpanForm | EventForm>[]> | undefined> {
    const formsOf = ({ spans, events }: PlacedForms): readonly PlacedForm<SpanForm | EventForm>[] => [
      ...spans,
      ...events,
    ];
    const condition: Condition<SpanForm | EventForm> = ({ form, ...placed }, own) =>
      form.holds === "span" ? spans({ ...placed, form }, own) : events({ ...placed, form }, own);
    const begun = await begin(source, formsOf, condition, searchSizes.first, {}, signal).catch(
      suppressTooLarge,
    );
    if (begun === undefined) return undefined;
    const { answer, plan } = begun;
    const total = totalOf(answer);
    if (total > answer.count) return undefined;
    budget.spend(total);
    return parsed(source, plan, formsOf, answer);
  }

  function totalOf({ total }: ParsedResponse): number {
    if (total === undefined) throw new BackendError(backend, "malformed", "a search without its exact total");
    return total;
  }

  /** Each document once for every form that its index may hold; the reader tells which of them it has. */
  async function* parsed<Form extends SpanForm | EventForm>(
    source: SpanSource,
    { layout }: SearchPlan,
    formsOf: (layout: PlacedForms) => readonly PlacedForm<Form>[],
    answer: ParsedResponse,
  ): AsyncGenerator<readonly FoundDocument<Form>[]> {
    const forms = groupFormsByIndex(formsOf(layout));
    let first = true;
    for (const part of partsOf(source, answer)) {
      if (!first) await yieldToEventLoop();
      first = false;
      const found: FoundDocument<Form>[] = [];
      for (const { index, id, document } of part) {
        for (const form of forms.get(index) ?? []) found.push({ index, id, document, form });
      }
      if (found.length > 0) yield found;
    }
  }

  function* partsOf(source: SpanSource, { chunks: parts }: ParsedResponse): Generator<readonly ParsedHit[]> {
    try {
      yield* parts();
    } catch (cause) {
      throw new BackendError(backend, "malformed", `documents of ${source.index} that are not JSON`, {
        cause,
      });
    }
  }

  async function aggregate<Form extends SpanForm | EventForm>(
    source: SpanSource,
    plan: SearchPlan,
    forms: readonly PlacedForm<Form>[],
    condition: Condition<Form>,
    body: object,
    signal: AbortSignal,
  ): Promise<AggregationResult> {
    const query = compileKnown(source, forms, condition);
    await refuseMaskedFilter(backend, query, client, source.index, plan.knowledge, signal);
    const answer = await searchJson(backend, client, source.index, { size: 0, query, ...body }, signal);
    const { data, error } = aggregationSchema.safeParse(answer);
    if (data === undefined) {
      throw new BackendError(backend, "malformed", "an answer that is none of _search", error);
    }
    const { total, failed } = data._shards;
    const counted = data.hits.total?.relation ?? "eq";
    // Not `terminated_early`: OpenSearch 3 says so of whole aggregations that it took from the terms of the index, and
    // nothing that we send ends a search early.
    if (data.timed_out || failed > 0 || counted !== "eq") {
      throw new BackendError(backend, "partial", "aggregations that are not whole");
    }
    const { shards } = plan.knowledge;
    // Of more shards than are known not all are asked.
    if (total > shards || (total < shards && total !== catalog.findAcceptedShardCount(source.index)))
      throw new PlanOutdatedError();
    return { total: data.hits.total?.value ?? 0, hits: data.hits.hits, aggregations: data.aggregations };
  }

  async function count<Form extends SpanForm | EventForm>(
    source: SpanSource,
    formsOf: (layout: PlacedForms) => readonly PlacedForm<Form>[],
    condition: Condition<Form>,
    signal: AbortSignal,
  ): Promise<number> {
    return totalOf((await begin(source, formsOf, condition, 0, {}, signal)).answer);
  }

  return {
    readLayout: async (source, signal) => (await planSearch(source, signal)).layout,
    planSearch: planSearch,
    refreshMappings: async (source, signal) => void (await catalog.refresh(source.index, signal)),
    aggregate,
    readInOneSearch: few,
    combineSignals: within,
    readSpans: (source, condition, budget, signal, options) =>
      read(source, listSpanForms, condition, budget, signal, options),
    readEvents: (source, condition, budget, signal) =>
      read(source, listEventForms, condition, budget, signal),
    countSpans: (source, condition, signal) => count(source, listSpanForms, condition, signal),
    countEvents: (source, condition, signal) => count(source, listEventForms, condition, signal),
  };
}

/** What mappings refuse that are behind, newer ones may allow. */
function tryCompile<T>(make: () => T): T | Refused {
  try {
    return make();
  } catch (error) {
    if (error instanceof Refused) return error;
    throw error;
  }
}

/** Of an answer that is larger than may be held there is none: fewer documents at once may fit. */
function suppressTooLarge(error: unknown): undefined {
  if (error instanceof BackendError && error.cause instanceof RangeError) return undefined;
  throw error;
}

const listSpanForms = (layout: PlacedForms): readonly PlacedForm<SpanForm>[] => layout.spans;
const listEventForms = (layout: PlacedForms): readonly PlacedForm<EventForm>[] => layout.events;

/** Whether all that the indices may hold is of no known layout. */
function hasOnlyUnknownLayouts({ layout: { spans, events, unrecognised: strange } }: SearchPlan): boolean {
  return spans.length === 0 && events.length === 0 && strange.length > 0;
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
