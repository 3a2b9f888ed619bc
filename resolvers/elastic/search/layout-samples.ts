// Reads the first documents of groups of indices, few searches for all groups. Each search is of the whole pattern, since an alias
// may filter what its indices hold, and rights may be for the names in the pattern alone.
import { BackendError } from "../../../src/core/errors.ts";
import type { JsonObject } from "../../../src/core/json/lossless-json.ts";
import type { ElasticClient } from "../client/client.ts";
import { anyOf, matchNone, measureQuery, type Query, restrictToIndices } from "../client/query-dsl.ts";
import type { Hit } from "../document/hit-scanner.ts";
import { parseDocument } from "../layout/line-decoder.ts";
import type { IndexGroup } from "../mapping/mapping.ts";
import { queryLimits } from "../query/filter-compiler.ts";
import { searchComplete } from "./search.ts";

/** Where the documents are. */
export interface SampleContext {
  readonly backend: string;
  readonly client: ElasticClient;
  readonly pattern: string;
  /** The most hits of a search. */
  readonly resultWindow: number;
  readonly signal: AbortSignal;
}

export interface SampledGroup {
  readonly group: IndexGroup;
  /** Finds the documents that count, among those of the group's indices. */
  readonly query: Query;
}

export const sampleSize = 20;
/** A response has the samples of so many groups at most. */
const groupsAtOnce = 8;

/**
 * The sample of each group. Hits are merged in document order, so a response that is not full has all documents of all groups
 * that were asked for. A full one has some samples complete, certainly one if few enough were asked for, and the others are
 * asked for again. @throws {BackendError}
 */
export async function* sampleGroups<Group extends SampledGroup>(
  context: SampleContext,
  groups: readonly Group[],
): AsyncGenerator<readonly [Group, readonly Hit[]]> {
  const { resultWindow } = context;
  const sufficient = Math.min(sampleSize, resultWindow);
  let waiting = groups;
  for (let width = groups.length; waiting.length > 0; ) {
    const { asked, query } = takeSearchable(waiting.slice(0, width));
    const size = Math.min(sampleSize * Math.min(asked.length, groupsAtOnce), resultWindow);
    const hits = await findFirstDocuments(context, query, size);
    const isComplete = (own: readonly Hit[]) => hits.length < size || own.length >= sufficient;
    const samples = new Map([...partitionHits(hits, asked)].filter(([, own]) => isComplete(own)));
    for (const [group, own] of samples) yield [group, own.slice(0, sampleSize)];
    waiting = waiting.filter((group) => !samples.has(group));
    width = Math.min(groupsAtOnce, samples.size > 0 ? groupsAtOnce : Math.ceil(asked.length / 2));
  }
}

/** The hits of each group, all of them where there is one. */
function partitionHits<Group extends SampledGroup>(
  hits: readonly Hit[],
  groups: readonly Group[],
): ReadonlyMap<Group, readonly Hit[]> {
  const [first] = groups;
  if (first !== undefined && groups.length === 1) return new Map([[first, hits]]);
  const owners = new Map(groups.flatMap((one) => one.group.indices.map((index) => [index, one] as const)));
  const byGroup = Map.groupBy(hits, ({ index }) => owners.get(index));
  return new Map(groups.map((one) => [one, byGroup.get(one) ?? []]));
}

/** Queries that together find the documents of these groups. */
export function joinQueries(groups: readonly SampledGroup[]): readonly Query[] {
  const queries: Query[] = [];
  for (let rest = groups; rest.length > 0; ) {
    const { asked, query } = takeSearchable(rest);
    queries.push(query);
    rest = rest.slice(asked.length);
  }
  return queries;
}

/** As many of the first groups as one search can have conditions for, and the query for their documents. */
function takeSearchable<Group extends SampledGroup>(
  groups: readonly Group[],
): { readonly asked: readonly Group[]; readonly query: Query } {
  const queries = restrictToIndices(groups.map(({ group, query }) => ({ query, indices: group.indices })));
  const query = anyOf(queries);
  if (groups.length === 1 || measureQuery(query).clauses <= queryLimits.clauses)
    return { asked: groups, query };
  return takeSearchable(groups.slice(0, Math.ceil(groups.length / 2)));
}

/** Whether one of the queries finds a document. @throws {BackendError} */
export async function hasDocuments(context: SampleContext, queries: readonly Query[]): Promise<boolean> {
  for (const query of queries) {
    if ((await findFirstDocuments(context, query, 1)).length > 0) return true;
  }
  return false;
}

/** In document order, those of all shards in turn. @throws {BackendError} */
export async function findFirstDocuments(
  { backend, client, pattern, signal }: SampleContext,
  query: Query,
  size: number,
): Promise<readonly Hit[]> {
  if (query === matchNone) return [];
  const body = { size, track_total_hits: false, query, sort: ["_doc"] };
  return (await searchComplete(backend, client, pattern, body, signal)).hits;
}

/** The document of a hit; undefined where the index does not keep it. */
export function parseSampled(backend: string, hit: Hit): JsonObject | undefined {
  try {
    return parseDocument(backend, hit);
  } catch (error) {
    if (error instanceof BackendError) return undefined;
    throw error;
  }
}
