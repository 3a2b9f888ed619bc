// The state of the shards in a point in time, and whether a later state holds all that an earlier one held. Within a shard each
// write has a higher sequence number than all before it. So if a later state has as many documents up to the earlier one's
// newest number, and the same newest document, then it has the same documents and what lies above; neither replicas that
// refresh at other moments nor numbers that another shard has used can hide a change. Writes at the same time may become
// visible out of order, in a replica most of all. So numbers that are missing among the newest are kept, as far as they are few,
// and the others are counted and added up in short blocks: late documents and deletions do not cancel out.
import { createHash } from "node:crypto";
import { z } from "zod";
import { requireKey } from "../../../src/core/collections.ts";
import { BackendError } from "../../../src/core/errors.ts";
import type { ElasticClient } from "../client/client.ts";
import { type PointInTime, searchPointInTimeJson } from "../client/point-in-time.ts";
import {
  allOf,
  anyOf,
  buildIndicesAggregation,
  buildIndicesQuery,
  matchAll,
  not,
  type Query,
} from "../client/query-dsl.ts";
import { type CountedNumbers, listMissing, recentNumbers } from "./missing-numbers.ts";

export interface ShardState extends RecentState {
  /** At least one. */
  readonly documents: number;
}

/** The newest documents of an index: the newest one, and those whose number is less than `recentNumbers` below it. */
interface RecentState extends NewestDocument {
  /** A digest of the number of documents in each block of numbers, and of the sum of these. */
  readonly recentDigest: string;
  /** How many numbers a block has. */
  readonly blockLength: number;
  /** Numbers among these that no document has, in order: documents may come there late. Undefined where they are many. */
  readonly missing: readonly number[] | undefined;
}

interface NewestDocument {
  /** The highest sequence number, the primary term in which it was given, and the document's id. */
  readonly newest: number;
  readonly term: number;
  readonly id: string;
}

/** Documents up to a sequence number, but for some numbers. */
interface KnownNumbers {
  readonly newest: number;
  readonly missing?: readonly number[] | undefined;
}

/** By index; those without documents are left out. */
export type ShardStates = ReadonlyMap<string, ShardState>;

export interface ShardComparison {
  readonly states: ShardStates;
  /** How many documents `buildAddedQuery` finds. Undefined without earlier states, and where these cannot be compared. */
  readonly added: number | undefined;
  /** The indices of the earlier states whose documents have changed: some are gone, or may be. */
  readonly changed: ReadonlySet<string>;
  /** By index, which documents have not come since. Other indices are new. */
  readonly known: ReadonlyMap<string, KnownNumbers>;
  /** The indices of the earlier states of which documents are missing. */
  readonly behind: ReadonlySet<string>;
}

/** Few enough for one answer; servers refuse one with more than 65,536. */
const maxBlocks = 2_500;

/** Indices whose missing numbers are kept: each adds a clause to the comparison with a later state. */
const maxIndicesWithMissing = 100;

const hitSchema = z.object({
  _index: z.string(),
  _id: z.string(),
  _seq_no: z.number(),
  _primary_term: z.number(),
});
const blockSchema = z.object({
  key: z.number(),
  doc_count: z.number(),
  sum: z.object({ value: z.number() }),
});
const newestSchema = z.object({ hits: z.object({ hits: z.array(hitSchema) }) });
const answerSchema = z.object({
  timed_out: z.literal(false),
  _shards: z.object({ total: z.number(), failed: z.literal(0) }),
  aggregations: z
    .object({
      indices: z.object({
        sum_other_doc_count: z.literal(0),
        buckets: z.array(
          z.object({
            key: z.string(),
            doc_count: z.number(),
            number: z.object({ value: z.number() }).optional(),
            newest: newestSchema.optional(),
            recent: z.object({ buckets: z.array(blockSchema) }).optional(),
          }),
        ),
      }),
    })
    .optional(),
});
type Answer = z.output<typeof answerSchema>;

/** The point in time has other shards than the metadata of its pattern say. */
export class IndicesChangedError extends Error {
  override readonly name = "IndicesChangedError";
}

/**
 * The states of the shards of a point in time, compared with earlier ones of the same shards.
 * @throws {IndicesChangedError} @throws {BackendError}
 */
export async function compareShards(
  backend: string,
  client: Pick<ElasticClient, "sendJson">,
  point: PointInTime,
  earlier: ShardStates | undefined,
  signal: AbortSignal,
): Promise<ShardComparison> {
  const search = async (body: object): Promise<Answer> => {
    const answer = await searchPointInTimeJson(
      client,
      point,
      { size: 0, track_total_hits: false, ...body },
      signal,
    );
    const { data, error } = answerSchema.safeParse(answer);
    if (data === undefined) {
      throw new BackendError(backend, "partial", "incomplete states of shards", { cause: error });
    }
    if (data._shards.total !== point.shards) throw new IndicesChangedError();
    return data;
  };
  const context = { backend, search };
  const counts = await countSince(context, earlier ?? new Map());
  const states = await describeStates(context, counts);
  const changes = describeChanges(counts);
  return { states, ...changes, added: earlier && changes.added };
}

interface ComparisonContext {
  readonly backend: string;
  readonly search: (body: object) => Promise<Answer>;
}

/** What there is now, by index. */
interface CountsSince {
  readonly earlier: ShardStates;
  readonly documents: ReadonlyMap<string, number>;
  /** Documents above the earlier newest number, and the newest number of these. */
  readonly above: ReadonlyMap<string, number>;
  readonly newestAbove: ReadonlyMap<string, number>;
  /** Documents with numbers that were missing. */
  readonly late: ReadonlyMap<string, number>;
  /** The other documents of the last numbers up to the earlier newest one. */
  readonly recent: ReadonlyMap<string, RecentDocuments>;
  /** Whether these were asked for of all indices. */
  readonly isComplete: boolean;
}

async function countSince(context: ComparisonContext, earlier: ShardStates): Promise<CountsSince> {
  const { backend, search } = context;
  // What was kept is input: more indices than a block length has were not described with it.
  const byBlock = [...Map.groupBy(earlier, ([, state]) => state.blockLength)].filter(
    ([length, own]) => chooseBlockLength(own.length) <= length,
  );
  const newest = new Map([...earlier].map(([index, state]) => [index, { newest: state.newest }]));
  const gaps = [...earlier].flatMap(([index, { missing = [] }]): readonly Query[] =>
    missing.length === 0 ? [] : [allOf([buildIndicesQuery([index]), buildNumbersQuery(missing)])],
  );
  const [all, above, late, ...recentByBlock] = await Promise.all([
    search({ aggs: buildIndicesAggregation({}) }),
    search({ query: buildAddedQuery(newest), aggs: buildIndicesAggregation(newestNumber) }),
    gaps.length === 0 ? undefined : search({ query: anyOf(gaps), aggs: buildIndicesAggregation({}) }),
    ...byBlock.map(([length, states]) => searchRecent(context, new Map(states), length)),
  ]);
  return {
    earlier,
    documents: countByIndex(all),
    above: countByIndex(above),
    newestAbove: listNewestNumbers(backend, above),
    late: late === undefined ? new Map() : countByIndex(late),
    recent: new Map(recentByBlock.flatMap((found) => [...found])),
    isComplete: byBlock.reduce((sum, [, own]) => sum + own.length, 0) === earlier.size,
  };
}

/** Documents with numbers that the earlier state had. */
function countKept({ documents, above, late }: CountsSince, index: string): number {
  return (documents.get(index) ?? 0) - (above.get(index) ?? 0) - (late.get(index) ?? 0);
}

function keepsRecent({ earlier, recent }: CountsSince, index: string): boolean {
  const [before, now] = [earlier.get(index), recent.get(index)?.state];
  return before !== undefined && now !== undefined && isSame(before, now);
}

/**
 * Whether documents up to the earlier newest number can have come with missing numbers only: none has come among the newest, or the
 * missing ones are known. A number is given again only by another primary that has not seen it, and then all numbers above it too,
 * that of the newest document among them.
 */
function canOnlyFillGaps(counts: CountsSince, index: string): boolean {
  const [before, now] = [counts.earlier.get(index), counts.recent.get(index)?.state];
  if (keepsRecent(counts, index)) return true;
  return before?.missing !== undefined && now !== undefined && isSameDocument(before, now);
}

/** Whether all earlier documents of an index are there, and no others with their numbers. */
function holds(counts: CountsSince, index: string): boolean {
  return keepsRecent(counts, index) && counts.earlier.get(index)?.documents === countKept(counts, index);
}

async function describeStates(context: ComparisonContext, counts: CountsSince): Promise<ShardStates> {
  const { earlier, documents, above, newestAbove, late, recent } = counts;
  const blockLength = chooseBlockLength(documents.size);
  const states = new Map<string, ShardState>();
  for (const [index, state] of earlier) {
    const isUnchanged = !above.has(index) && !late.has(index) && holds(counts, index);
    if (isUnchanged && state.blockLength === blockLength) states.set(index, state);
  }
  const others = [...documents.keys()].filter((index) => !states.has(index));
  const newest = new Map(newestAbove);
  for (const index of others)
    if (!above.has(index) && holds(counts, index)) newest.set(index, requireKey(recent, index).state.newest);
  const unknown = others.filter((index) => !newest.has(index));
  if (unknown.length > 0) {
    const query = buildIndicesQuery(unknown);
    const answer = await context.search({ query, aggs: buildIndicesAggregation(newestNumber) });
    for (const [index, number] of listNewestNumbers(context.backend, answer)) newest.set(index, number);
  }
  const upTo = new Map([...newest].map(([index, number]) => [index, { newest: number }]));
  const found = await searchRecent(context, upTo, blockLength);
  const kept = [...states.values()].filter((state) => state.missing?.length).length;
  const findPresent = (query: Query) => findPresentNumbers(context, query);
  const missing = await listMissing(found, maxIndicesWithMissing - kept, findPresent);
  for (const index of others) {
    const own = found.get(index);
    if (own === undefined)
      throw new BackendError(context.backend, "malformed", `no newest document of ${index}`);
    const state = { ...own.state, missing: missing.get(index) };
    states.set(index, { ...state, documents: requireKey(documents, index) });
  }
  return states;
}

function describeChanges(counts: CountsSince): Omit<ShardComparison, "states"> {
  const { earlier, above, late, recent, isComplete } = counts;
  const known = new Map<string, KnownNumbers>(earlier);
  let added = [...above.values(), ...late.values()].reduce((sum, count) => sum + count, 0);
  const changed = [...earlier].filter(([index]) => !holds(counts, index));
  let hasLater = false;
  for (const [index, { newest, documents }] of changed) {
    if (canOnlyFillGaps(counts, index)) {
      // More documents than before up to the newest known number. They are not among the listed missing ones, so nobody can say
      // which they are.
      hasLater ||= countKept(counts, index) > documents;
      continue;
    }
    known.set(index, { newest: newest - recentNumbers });
    added += recent.get(index)?.documents ?? 0;
  }
  return {
    added: isComplete && !hasLater ? added : undefined,
    changed: new Set(changed.map(([index]) => index)),
    known,
    behind: new Set(
      changed.flatMap(([index, { documents }]) => (countKept(counts, index) < documents ? [index] : [])),
    ),
  };
}

function isSame(one: RecentState, other: RecentDocuments["state"]): boolean {
  return isSameDocument(one, other) && one.recentDigest === other.recentDigest;
}

function isSameDocument(one: NewestDocument, other: NewestDocument): boolean {
  return one.newest === other.newest && one.term === other.term && one.id === other.id;
}

interface RecentDocuments extends CountedNumbers {
  readonly state: Omit<RecentState, "missing">;
}

/** By index, the last documents up to these numbers that are not missing, in blocks of so many. */
async function searchRecent(
  { backend, search }: ComparisonContext,
  upTo: ReadonlyMap<string, KnownNumbers>,
  blockLength: number,
): Promise<ReadonlyMap<string, RecentDocuments>> {
  if (upTo.size === 0) return new Map();
  const ranges = [...upTo].map(([index, { newest, missing = [] }]) => {
    const range = { range: { _seq_no: { gt: newest - recentNumbers, lte: newest } } };
    const others = missing.length === 0 ? [] : [not(buildNumbersQuery(missing))];
    return allOf([buildIndicesQuery([index]), range, ...others]);
  });
  const answer = await search({
    query: anyOf(ranges),
    aggs: buildIndicesAggregation({ ...newestDocument, recent: countBlocks(blockLength) }),
  });
  const newest = listNewest(backend, answer);
  return new Map(
    listBuckets(answer).map(({ key, doc_count: documents, recent }) => {
      if (recent === undefined) throw new BackendError(backend, "malformed", "an index without its blocks");
      const counted = recent.buckets.map((block) => [block.key, block.doc_count, block.sum.value]);
      const digest = createHash("sha256").update(JSON.stringify(counted)).digest("base64");
      const blocks = new Map(recent.buckets.map((block) => [block.key, block.doc_count]));
      return [
        key,
        { state: { ...requireKey(newest, key), recentDigest: digest, blockLength }, documents, blocks },
      ] as const;
    }),
  );
}

function countBlocks(length: number): object {
  return {
    histogram: { field: "_seq_no", interval: length, min_doc_count: 1 },
    aggs: { sum: { sum: { field: "_seq_no" } } },
  };
}

/** Those of the numbers of a query that documents have, by index. */
async function findPresentNumbers(
  { backend, search }: ComparisonContext,
  query: Query,
): Promise<ReadonlyMap<string, ReadonlySet<number>>> {
  const answer = await search({ query, aggs: buildIndicesAggregation({ recent: countBlocks(1) }) });
  return new Map(
    listBuckets(answer).map(({ key, recent }) => {
      if (recent === undefined) throw new BackendError(backend, "malformed", "an index without its numbers");
      return [key, new Set(recent.buckets.map((one) => one.key))] as const;
    }),
  );
}

/**
 * Returns the shortest power of two with which all blocks of so many indices are at most `maxBlocks`. A kept state is compared in
 * the block length that it was made with. Indices with one block length are never too many for it: the length was chosen when all of
 * them were there.
 */
function chooseBlockLength(indices: number): number {
  return 2 ** Math.ceil(Math.log2((indices * recentNumbers) / maxBlocks));
}

function listNewest(backend: string, answer: Answer): ReadonlyMap<string, NewestDocument> {
  return new Map(
    listBuckets(answer).map(({ key, newest }) => {
      const hit = newest?.hits.hits.at(0);
      if (hit === undefined) {
        throw new BackendError(backend, "malformed", "an index without its newest document");
      }
      return [key, { newest: hit._seq_no, term: hit._primary_term, id: hit._id }] as const;
    }),
  );
}

function listNewestNumbers(backend: string, answer: Answer): Map<string, number> {
  return new Map(
    listBuckets(answer).map(({ key, number }) => {
      if (number === undefined) {
        throw new BackendError(backend, "malformed", "an index without its newest number");
      }
      return [key, number.value] as const;
    }),
  );
}

function countByIndex(answer: Answer): ReadonlyMap<string, number> {
  return new Map(listBuckets(answer).map(({ key, doc_count }) => [key, doc_count]));
}

function listBuckets({ aggregations }: Answer) {
  return aggregations?.indices.buckets ?? [];
}

/** Of all documents that match: the document itself takes the source far longer to find. Below 2^53, so exact. */
const newestNumber = { number: { max: { field: "_seq_no" } } };
const newestDocument = {
  newest: {
    top_hits: { size: 1, sort: [{ _seq_no: "desc" }], seq_no_primary_term: true, _source: false },
  },
};

function buildNumbersQuery(numbers: readonly number[]): Query {
  return { terms: { _seq_no: numbers } };
}

/** The documents above these numbers and those with missing ones, and all of other indices. */
export function buildAddedQuery(known: ShardComparison["known"]): Query {
  if (known.size === 0) return matchAll;
  const added = [...known].map(([index, { newest, missing = [] }]) => {
    const late = missing.length === 0 ? [] : [buildNumbersQuery(missing)];
    return allOf([buildIndicesQuery([index]), anyOf([{ range: { _seq_no: { gt: newest } } }, ...late])]);
  });
  return anyOf([...added, not(buildIndicesQuery([...known.keys()]))]);
}
