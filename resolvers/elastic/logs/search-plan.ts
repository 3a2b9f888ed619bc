// How the searches of one layout group look: the conditions beside the time range, the time field, and the sort. Compiled once
// for each state of the mappings and not for each page.
import { BackendError, createUnsupportedError } from "../../../src/core/errors.ts";
import { endOfMilli, type Instant, type TimeRange } from "../../../src/core/time.ts";
import type { Filter } from "../../../src/log-query/ast.ts";
import type { LogQuery, LogSource } from "../../../src/store/logs.ts";
import type { ElasticClient } from "../client/client.ts";
import { type Product, unknownVersion } from "../client/product.ts";
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
import { type IndexGroup, type IndexMetadata, isUnindexed, isUnsortable } from "../mapping/mapping.ts";
import { compileFilter, listUnnarrowedFields, queryLimits } from "../query/filter-compiler.ts";
import { buildTenantQuery } from "../query/tenant-filter.ts";
import {
  buildOutsideNanosQueries,
  createDateColumn,
  createNumberColumn,
  dateNanosRange,
  type TimeColumn,
} from "../query/time-field.ts";
import type { MappingCache } from "../search/mapping-cache.ts";
import { hasMaskedField } from "../search/masked-filters.ts";
import {
  buildTenantSupersetQuery,
  compileOrRefuse,
  describeUnreadable,
  hasMatch,
  refuseClosed,
} from "../search/search.ts";
import { explainUnnarrowed } from "./explain.ts";

/** What reading one layout group of a source needs. */
export interface ReadContext {
  readonly backend: string;
  readonly client: ElasticClient;
  readonly mappingCache: MappingCache;
  readonly source: LogSource;
  readonly layoutGroup: LayoutGroup;
  /** All groups that the source had when the read began, this one included. */
  readonly layoutGroups: readonly LayoutGroup[];
  /** The state of the mappings that they were found in. */
  readonly initialMetadata: IndexMetadata;
  readonly query: LogQuery;
  readonly tenantFilter: Filter | undefined;
  readonly signal: AbortSignal;
}

/** The indices behind a pattern are grouped differently than when the read began. */
export class LayoutsChanged extends Error {
  override readonly name = "LayoutsChanged";
  readonly pattern: string;

  constructor(pattern: string) {
    super(`the layouts behind ${pattern} changed`);
    this.pattern = pattern;
  }
}

export interface SearchPlan {
  readonly backend: string;
  /** The state of the mappings that the plan was compiled with. */
  readonly metadata: IndexMetadata;
  readonly layout: LogLayout;
  /** The groups of indices with this layout. */
  readonly groups: readonly IndexGroup[];
  /** Whether the layout of an index was not known from its documents. */
  readonly isUnseen: LayoutGroup["isUnseen"];
  readonly product: Product;
  readonly timeColumn: TimeColumn;
  readonly sort: object;
  /** The milliseconds that the query names. */
  readonly moments: LogQuery["moments"];
  /** Tenant filter and query filter, as far as the index answers them. */
  readonly filter: Query;
  readonly indices: IndexScope;
  /** The fields of the filter by which the index cannot narrow. */
  readonly listUnnarrowed: () => readonly string[];
  /** What is in the way of that. */
  readonly listObstacles: () => readonly string[];
}

/** The indices that the searches of a group have to reach. */
interface IndexScope {
  readonly own: Query;
  /** Indices that the mapping does not know may hold lines of any group, so every group searches them. */
  readonly unknown: Query;
  /** Both; everything where the source has one group. */
  readonly both: Query;
  /** The time is a number here and a date in other groups: a range of one is rejected by the other. */
  readonly hasConflictingTime: boolean;
}

/**
 * Compiles the plan for one state of the mappings. Without `pushesFilter` only the tenant filter is sent, since the backend has
 * rejected the query's.
 * @throws {LayoutsChanged} @throws {Refused} where the lines cannot be read exactly
 */
export async function compileSearchPlan(
  context: ReadContext,
  metadata: IndexMetadata,
  pushesFilter: boolean,
): Promise<SearchPlan> {
  const { backend, client, query } = context;
  refuseClosed(backend, metadata);
  const { group, groups } = await findCurrentGroup(context, metadata);
  const { layout } = group;
  const ownMetadata: IndexMetadata = { ...metadata, groups: group.groups };
  const product = await client.detectProduct(context.signal);
  const filter = await compileConditions(context, metadata, ownMetadata, layout, product, pushesFilter);
  const unreadable = group.groups.map(describeUnreadable).find((feature) => feature !== undefined);
  if (unreadable !== undefined) throw createUnsupportedError(backend, unreadable);
  const indices = buildIndexScope(metadata, group, groups);
  const timeColumn = await chooseTimeColumn(context, group, product, metadata, indices);
  return {
    backend,
    metadata,
    layout,
    groups: group.groups,
    isUnseen: group.isUnseen,
    product,
    timeColumn,
    sort: timeColumn.buildSort(query.order),
    moments: query.moments,
    filter,
    indices,
    listUnnarrowed: () => listUnnarrowedFields(query.filter, ownMetadata, layout, product),
    listObstacles: () => explainUnnarrowed(query.filter, group.groups, layout, product),
  };
}

/** The group of the context in the present state of the mappings, and all groups of the source. @throws {LayoutsChanged} */
async function findCurrentGroup(
  { mappingCache, source, layoutGroup, layoutGroups, initialMetadata, signal }: ReadContext,
  metadata: IndexMetadata,
): Promise<{ readonly group: LayoutGroup; readonly groups: readonly LayoutGroup[] }> {
  if (metadata === initialMetadata) return { group: layoutGroup, groups: layoutGroups };
  const groups = await mappingCache.readLayoutGroups(source, metadata, signal);
  const group = groups.find((candidate) => formatGroupKey(candidate) === formatGroupKey(layoutGroup));
  if (group === undefined || !haveSameLayouts(layoutGroups, groups)) throw new LayoutsChanged(source.index);
  return { group, groups };
}

/** The tenant filter, with the query's where the index may answer it and the request stays small enough. */
async function compileConditions(
  { backend, client, source, query, tenantFilter, signal }: ReadContext,
  metadata: IndexMetadata,
  ownMetadata: IndexMetadata,
  layout: LogLayout,
  product: Product,
  pushesFilter: boolean,
): Promise<Query> {
  const filtered = await compileFilter(query.filter, ownMetadata, layout, product, signal);
  const tenant = buildTenantSupersetQuery(backend, tenantFilter, ownMetadata);
  const both = allOf([tenant, filtered]);
  const isMasked = await hasMaskedField(client, source.index, metadata, filtered, signal);
  const isTooLarge = measureQuery(both).clauses > queryLimits.allClauses;
  return !pushesFilter || isMasked || isTooLarge ? tenant : both;
}

function buildIndexScope(
  metadata: IndexMetadata,
  group: LayoutGroup,
  groups: readonly LayoutGroup[],
): IndexScope {
  const own = buildIndicesQuery(group.groups.flatMap(({ indices }) => indices));
  const unknown = not(buildIndicesQuery([...metadata.indices]));
  const both = groups.length === 1 ? matchAll : anyOf([own, unknown]);
  return { own, unknown, both, hasConflictingTime: hasConflictingTimeType(group, groups) };
}

/**
 * The body of a search for the lines of a range, without its `size`. With `excludesEarlier` it finds no document that has
 * another time before the range, and so lies in an earlier one.
 */
export function buildSearchBody(plan: SearchPlan, range: TimeRange, excludesEarlier: boolean): object {
  return { track_total_hits: false, query: buildLinesQuery(plan, range, excludesEarlier), sort: [plan.sort] };
}

/**
 * The same for a scroll, which always counts its total. Equal times make OpenSearch 2 lose hits of a scroll that is sorted by
 * time alone (seen on 2.19). Document order loses none, and the time still comes along as the last sort value.
 */
export function buildScrollBody(plan: SearchPlan, range: TimeRange): object {
  return { query: buildLinesQuery(plan, range, true), sort: ["_doc", plan.sort] };
}

/** The documents that may be lines of a range. `excludesEarlier` as for `buildSearchBody`. */
export function buildLinesQuery(
  { timeColumn, indices, moments, filter }: SearchPlan,
  { from, to }: TimeRange,
  excludesEarlier: boolean,
): Query {
  const named = moments?.map((start) => timeColumn.buildRangeQuery(start, endOfMilli(start)));
  const touching = allOf([
    timeColumn.buildRangeQuery(from, to),
    named === undefined ? matchAll : anyOf(named),
  ]);
  const inRange = excludesEarlier ? allOf([touching, not(timeColumn.buildBeforeQuery(from))]) : touching;
  const { own, unknown, both, hasConflictingTime } = indices;
  const conditions = hasConflictingTime
    ? [anyOf([allOf([own, inRange]), unknown])]
    : [inRange, ...(both === matchAll ? [] : [both])];
  return { bool: { filter: [...conditions, filter] } };
}

/** The field that bounds and sorts the lines of a group. @throws {Refused} where that is not exact */
async function chooseTimeColumn(
  context: ReadContext,
  { time, unit, groups }: LayoutGroup,
  { searchesDocValues, version }: Product,
  { opaque: isOpaque, groups: allGroups }: IndexMetadata,
  indices: IndexScope,
): Promise<TimeColumn> {
  const { backend } = context;
  if (groups.some((group) => isUnsortable(group, time))) {
    throw createUnsupportedError(backend, `lines whose ${time} has no doc_values`);
  }
  if (!searchesDocValues && groups.some((group) => isUnindexed(group, time))) {
    // The right to read the version may be refused for a moment only.
    if (version === unknownVersion)
      throw new BackendError(backend, "denied", `${time} is not indexed, and the version may not be read`);
    throw createUnsupportedError(backend, `lines whose ${time} is not indexed, on this version`);
  }
  if (unit !== undefined) {
    const isAlsoDate = groups.some((group) => group.dateNames.has(time) && !isUnindexed(group, time));
    return createNumberColumn(time, unit, isAlsoDate);
  }
  const types = new Set(groups.flatMap((group) => group.fields.get(time)?.type ?? []));
  const hasMillis = types.delete("date") || isOpaque;
  types.delete("date_nanos");
  if (types.size > 0)
    throw createUnsupportedError(backend, `lines whose ${time} is of type ${[...types].join(", ")}`);
  // The indices of other layouts parse the bounds too.
  const hasNanos = isOpaque || allGroups.some((group) => findTimeType(group, time) === "date_nanos");
  if (hasNanos && indices.hasConflictingTime)
    throw createUnsupportedError(backend, `lines whose ${time} is date_nanos here and long there`);
  if (hasMillis && hasNanos) await refuseTimesBeyondNanos(context, time, indices, allGroups);
  return createDateColumn(time, hasNanos);
}

/** The type of a time field, an alias resolved. */
function findTimeType({ fields }: IndexGroup, time: string): string | undefined {
  return fields.get(fields.get(time)?.aliasOf ?? time)?.type;
}

/**
 * A range over both types reaches only as far as nanoseconds do, which is exact as long as no line of the tenant lies beyond.
 * @throws {Refused}
 */
async function refuseTimesBeyondNanos(
  { backend, client, source, query, signal }: ReadContext,
  time: string,
  indices: IndexScope,
  groups: readonly IndexGroup[],
): Promise<void> {
  const { from, to } = query.range;
  if (from >= dateNanosRange.from && to <= dateNanosRange.to) return;
  const beyond = anyOf(buildOutsideNanosQueries(time));
  const tenant = compileOrRefuse(backend, () => buildTenantQuery(source.tenantFilter, groups));
  const conditions = allOf([indices.both, beyond, tenant]);
  const feature = "times before 1970 or after 2262 where some indices map the time as date_nanos";
  if (await hasMatch(backend, client, source.index, conditions, signal))
    throw createUnsupportedError(backend, feature);
}

/** The time that a hit was sorted by. @throws {BackendError} where it has none */
export function readInstant({ backend, timeColumn }: SearchPlan, hit: Hit): Instant {
  if (hit.sort === undefined || !/^-?\d+$/.test(hit.sort)) {
    throw new BackendError(backend, "malformed", `a hit of ${hit.index} has no time to sort by`);
  }
  return timeColumn.toInstant(hit.sort);
}
