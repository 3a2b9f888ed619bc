// What the searches for a part's lines ask of the index: compiled once for each state of the mappings, not for each batch.
import { BackendError, createUnsupportedError } from "../../../src/core/errors.ts";
import type { Instant } from "../../../src/core/time.ts";
import type { Filter } from "../../../src/log-query/ast.ts";
import type { LogQuery, LogSource } from "../../../src/store/store.ts";
import type { ElasticClient } from "../client/client.ts";
import type { Product } from "../client/product.ts";
import {
  allOf,
  anyOf,
  buildIndicesQuery,
  matchAll,
  measureQuery,
  not,
  type Query,
} from "../client/query-dsl.ts";
import type { Hit } from "../document/hit-scanner.ts";
import {
  formatGroupKey,
  hasConflictingTimeType,
  haveSameLayouts,
  type LayoutGroup,
} from "../layout/layout-groups.ts";
import type { LogLayout } from "../layout/log-layout.ts";
import { type IndexMetadata, isUnindexed, isUnsortable } from "../mapping/mapping.ts";
import { compileFilter, listUnnarrowedFields, queryLimits } from "../query/filter-compiler.ts";
import {
  buildOutsideNanosQueries,
  createDateColumn,
  createNumberColumn,
  dateNanosRange,
  type TimeColumn,
} from "../query/time-field.ts";
import { hasMaskedField } from "../search/access-restrictions.ts";
import type { MappingCache } from "../search/mapping-cache.ts";
import { buildTenantFilterQuery, refuseClosed, searchComplete } from "../search/search.ts";

/** One part of a source, as a query reads it. */
export interface ReadContext {
  readonly backend: string;
  readonly client: ElasticClient;
  readonly mappingCache: MappingCache;
  readonly source: LogSource;
  readonly layoutGroup: LayoutGroup;
  /** Those that the source had when the reading began, this one included. */
  readonly layoutGroups: readonly LayoutGroup[];
  readonly query: LogQuery;
  /** The source's `where`. */
  readonly tenantFilter: Filter | undefined;
  readonly signal: AbortSignal;
}

/** The indices behind a pattern are parted otherwise than a reader was told. */
export class LayoutsChanged extends Error {
  override readonly name = "Reparted";
}

/** How what is left of the lines is searched for, as long as the mappings stay what they are. */
export interface SearchPlan {
  readonly knowledge: IndexMetadata;
  readonly layout: LogLayout;
  /** The fields of the filter by which the index cannot narrow. */
  readonly listUnnarrowed: () => readonly string[];
  readonly timeColumn: TimeColumn;
  readonly toInstant: (hit: Hit) => Instant;
  readonly buildBody: (from: Instant, to: Instant, scrolled?: boolean) => object;
}

/**
 * Where not to narrow is asked, by the wall alone: the source has refused what the filter asks.
 * @throws {LayoutsChanged} @throws {Refused} where the lines cannot be read exactly
 */
export async function compileSearchPlan(
  reading: ReadContext,
  whole: IndexMetadata,
  narrows: boolean,
): Promise<SearchPlan> {
  const {
    backend,
    client,
    mappingCache: catalog,
    source,
    layoutGroup: part,
    layoutGroups: parts,
    query,
    tenantFilter,
    signal,
  } = reading;
  refuseClosed(backend, whole);
  const renewed = await catalog.readLayoutGroups(source, whole, signal);
  const own = renewed.find((candidate) => formatGroupKey(candidate) === formatGroupKey(part));
  if (own === undefined || !haveSameLayouts(parts, renewed)) throw new LayoutsChanged();
  const { layout, groups } = own;
  const knowledge: IndexMetadata = { ...whole, groups };
  const product = await client.detectProduct(signal);
  const filtered = compileFilter(query.filter, knowledge, layout, product);
  const walled = buildTenantFilterQuery(backend, tenantFilter, knowledge);
  const both = allOf([walled, filtered]);
  const isBlind = await hasMaskedField(filtered, client, source.index, whole, signal);
  const narrowed = !narrows || isBlind || measureQuery(both).clauses > queryLimits.allClauses ? walled : both;
  if (groups.some((group) => group.sourceMode === "cut")) {
    throw createUnsupportedError(backend, "documents whose _source is not kept whole");
  }
  // An index that is not known may hold any part's lines: every reader has to meet it.
  const ownIndices = buildIndicesQuery(groups.flatMap(({ indices }) => indices));
  const unknown = not(buildIndicesQuery([...whole.indices]));
  const within = renewed.length === 1 ? matchAll : anyOf([ownIndices, unknown]);
  const isNumbered = hasConflictingTimeType(own, renewed);
  const clock = await chooseTimeColumn(reading, own, product, knowledge.opaque, within, isNumbered);
  const sort = clock.buildSort(query.order);
  // A range of dates cannot be asked of numbers, so each is asked where it belongs, and none of what is not known.
  const bounded = (range: Query): readonly Query[] =>
    isNumbered
      ? [anyOf([allOf([ownIndices, range]), unknown])]
      : [range, ...(within === matchAll ? [] : [within])];
  return {
    knowledge: whole,
    layout: layout,
    listUnnarrowed: () => listUnnarrowedFields(query.filter, knowledge, layout, product),
    timeColumn: clock,
    toInstant: (hit) => readSortInstant(backend, hit, clock),
    buildBody: (from, to, scrolled = false) => ({
      // A scroll refuses to go without its total.
      ...(scrolled ? {} : { track_total_hits: false }),
      query: { bool: { filter: [...bounded(clock.buildRangeQuery(from, to)), narrowed] } },
      // Equal times make OpenSearch 2 lose hits of a scroll that is sorted by them alone (seen on 2.19); document
      // order loses none, and the time still comes along as the last sort value.
      sort: scrolled ? ["_doc", sort] : [sort],
    }),
  };
}

/** By what the part's lines are bounded and sorted. @throws {Refused} where that is not exact */
async function chooseTimeColumn(
  { backend, client, source, query, signal }: ReadContext,
  { time, unit, groups }: LayoutGroup,
  { searchesDocValues: searchesColumns }: Product,
  opaque: boolean,
  within: Query,
  isNumbered: boolean,
): Promise<TimeColumn> {
  if (groups.some((group) => isUnsortable(group, time))) {
    throw createUnsupportedError(backend, `lines whose ${time} has no doc_values`);
  }
  if (!searchesColumns && groups.some((group) => isUnindexed(group, time))) {
    throw createUnsupportedError(backend, `lines whose ${time} is not indexed, on this version`);
  }
  if (unit !== undefined) return createNumberColumn(time, unit);
  const types = new Set(groups.flatMap((group) => group.fields.get(time)?.type ?? []));
  const millis = types.delete("date") || opaque;
  const nanos = types.delete("date_nanos") || opaque;
  if (types.size > 0)
    throw createUnsupportedError(backend, `lines whose ${time} is of type ${[...types].join(", ")}`);
  if (nanos && isNumbered)
    throw createUnsupportedError(backend, `lines whose ${time} is date_nanos here and long there`);
  const { from, to } = query.range;
  if (millis && nanos && (from < dateNanosRange.from || to > dateNanosRange.to)) {
    // Such a range can be asked only as far as nanoseconds reach, which is all of it where nothing lies beyond.
    const beyond = anyOf(buildOutsideNanosQueries(time));
    const body = { size: 1, track_total_hits: false, query: allOf([within, beyond]) };
    const { hits } = await searchComplete(backend, client, source.index, body, signal);
    const feature = "times before 1970 or after 2262 where some indices map the time as date_nanos";
    if (hits.length > 0) throw createUnsupportedError(backend, feature);
  }
  return createDateColumn(time, nanos);
}

function readSortInstant(backend: string, hit: Hit, clock: TimeColumn): Instant {
  if (hit.sort === undefined || !/^-?\d+$/.test(hit.sort)) {
    throw new BackendError(backend, "malformed", `a hit of ${hit.index} without a time to sort by`);
  }
  return clock.toInstant(hit.sort);
}
