// The state of the shards in a point in time, and whether a later state holds all that an earlier one held. Within a shard each
// write has a higher sequence number than all before it. So if a later state has as many documents up to the earlier one's
// newest number, and the same newest document, then it has the same documents and what lies above; neither replicas that
// refresh at other moments nor numbers that another shard has used can hide a change. Writes at the same time may become
// visible out of order, so the newest numbers are counted and added up too, in short blocks: late documents and deletions do not
// cancel out.
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

interface ShardState extends RecentState {
  /** At least one. */
  readonly documents: number;
}

/** The newest documents of an index: the newest one, and those with a number of at most `recentNumbers` less. */
interface RecentState extends NewestDocument {
  /** A digest of the number of documents in each block of numbers, and of the sum of these. */
  readonly recent: string;
  /** How many numbers a block has. */
  readonly block: number;
}

interface NewestDocument {
  /** The highest sequence number, the primary term in which it was given, and the document's id. */
  readonly newest: number;
  readonly term: number;
  readonly id: string;
}

/** By index; those without documents are left out. */
export type ShardStates = ReadonlyMap<string, ShardState>;

export interface ShardComparison {
  readonly states: ShardStates;
  /** How many documents `buildAddedQuery` finds. Undefined without earlier states, and where these cannot be compared. */
  readonly added: number | undefined;
  /** The indices of the earlier states whose documents have changed: some are gone, or came late, or may have. */
  readonly changed: ReadonlySet<string>;
  /** The sequence number up to which no document has come since, by index. Other indices are new. */
  readonly knownUpTo: ReadonlyMap<string, number>;
  /** Whether documents of the earlier states are missing. */
  readonly isBehind: boolean;
}

/**
 * A document becomes visible at most so many numbers late: more than a server works on at the same time, and few enough to
 * add up for each request. Their sum is exact in floating point.
 */
const recentNumbers = 50_000;

/** Few enough for one answer; servers refuse one with more than 65,536. */
const maxBlocks = 2_500;

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
  /** The newest documents up to the earlier newest number. */
  readonly recent: ReadonlyMap<string, RecentDocuments>;
  /** Whether these were asked for of all indices. */
  readonly isComplete: boolean;
}

async function countSince(context: ComparisonContext, earlier: ShardStates): Promise<CountsSince> {
  const { backend, search } = context;
  // What was kept is input: more indices than a block length has were not described with it.
  const byBlock = [...Map.groupBy(earlier, ([, state]) => state.block)].filter(
    ([length, own]) => chooseBlockLength(own.length) <= length,
  );
  const newest = listNewestOf(earlier);
  const [all, above, ...recentByBlock] = await Promise.all([
    search({ aggs: buildIndicesAggregation({}) }),
    search({ query: buildAddedQuery(newest), aggs: buildIndicesAggregation(newestNumber) }),
    ...byBlock.map(([block, states]) => searchRecent(context, listNewestOf(states), block)),
  ]);
  return {
    earlier,
    documents: countByIndex(all),
    above: countByIndex(above),
    newestAbove: listNewestNumbers(backend, above),
    recent: new Map(recentByBlock.flatMap((found) => [...found])),
    isComplete: byBlock.reduce((sum, [, own]) => sum + own.length, 0) === earlier.size,
  };
}

function listNewestOf(states: Iterable<readonly [string, ShardState]>): ReadonlyMap<string, number> {
  return new Map([...states].map(([index, { newest }]) => [index, newest]));
}

function countBelow({ documents, above }: CountsSince, index: string): number {
  return (documents.get(index) ?? 0) - (above.get(index) ?? 0);
}

function keepsRecent({ earlier, recent }: CountsSince, index: string): boolean {
  const [before, now] = [earlier.get(index), recent.get(index)?.state];
  return before !== undefined && now !== undefined && isSame(before, now);
}

/** Whether all earlier documents of an index are there, and no others up to their newest number. */
function holds(counts: CountsSince, index: string): boolean {
  return keepsRecent(counts, index) && counts.earlier.get(index)?.documents === countBelow(counts, index);
}

async function describeStates(context: ComparisonContext, counts: CountsSince): Promise<ShardStates> {
  const { earlier, documents, above, newestAbove, recent } = counts;
  const block = chooseBlockLength(documents.size);
  const isKnown = (index: string): boolean =>
    !above.has(index) && holds(counts, index) && earlier.get(index)?.block === block;
  const others = [...documents.keys()].filter((index) => !isKnown(index));
  const newest = new Map(newestAbove);
  for (const index of others)
    if (!above.has(index) && holds(counts, index)) newest.set(index, requireKey(recent, index).state.newest);
  const unknown = others.filter((index) => !newest.has(index));
  if (unknown.length > 0) {
    const query = buildIndicesQuery(unknown);
    const answer = await context.search({ query, aggs: buildIndicesAggregation(newestNumber) });
    for (const [index, number] of listNewestNumbers(context.backend, answer)) newest.set(index, number);
  }
  const recentOfOthers = await searchRecent(context, newest, block);
  const states = new Map<string, ShardState>();
  for (const [index, count] of documents) {
    const found = recentOfOthers.get(index) ?? recent.get(index);
    if (found === undefined)
      throw new BackendError(context.backend, "malformed", `no newest document of ${index}`);
    states.set(index, { ...found.state, documents: count });
  }
  return states;
}

function describeChanges(counts: CountsSince): Omit<ShardComparison, "states"> {
  const { earlier, above, recent, isComplete } = counts;
  const knownUpTo = new Map(listNewestOf(earlier));
  let added = [...above.values()].reduce((sum, count) => sum + count, 0);
  const changed = [...earlier].filter(([index]) => !holds(counts, index));
  for (const [index, { newest }] of changed) {
    // Otherwise nothing has come among the newest, and no document becomes visible later than that.
    if (keepsRecent(counts, index)) continue;
    knownUpTo.set(index, newest - recentNumbers);
    added += recent.get(index)?.documents ?? 0;
  }
  const hasLater = changed.some(
    ([index, before]) => keepsRecent(counts, index) && countBelow(counts, index) > before.documents,
  );
  return {
    added: isComplete && !hasLater ? added : undefined,
    changed: new Set(changed.map(([index]) => index)),
    knownUpTo,
    isBehind: changed.some(([index, before]) => countBelow(counts, index) < before.documents),
  };
}

function isSame(one: RecentState, other: RecentState): boolean {
  return (
    one.newest === other.newest &&
    one.term === other.term &&
    one.id === other.id &&
    one.recent === other.recent
  );
}

interface RecentDocuments {
  readonly state: RecentState;
  readonly documents: number;
}

/** By index, the documents up to these numbers, in blocks of so many. */
async function searchRecent(
  { backend, search }: ComparisonContext,
  upTo: ReadonlyMap<string, number>,
  block: number,
): Promise<ReadonlyMap<string, RecentDocuments>> {
  if (upTo.size === 0) return new Map();
  const ranges = [...upTo].map(([index, newest]) =>
    allOf([buildIndicesQuery([index]), { range: { _seq_no: { gt: newest - recentNumbers, lte: newest } } }]),
  );
  const blocks = {
    histogram: { field: "_seq_no", interval: block, min_doc_count: 1 },
    aggs: { sum: { sum: { field: "_seq_no" } } },
  };
  const answer = await search({
    query: anyOf(ranges),
    aggs: buildIndicesAggregation({ ...newestDocument, recent: blocks }),
  });
  const newest = listNewest(backend, answer);
  return new Map(
    listBuckets(answer).map(({ key, doc_count: documents, recent }) => {
      if (recent === undefined) throw new BackendError(backend, "malformed", "an index without its blocks");
      const counted = recent.buckets.map((block) => [block.key, block.doc_count, block.sum.value]);
      const digest = createHash("sha256").update(JSON.stringify(counted)).digest("base64");
      const state: RecentState = { ...requireKey(newest, key), recent: digest, block };
      return [key, { state, documents }] as const;
    }),
  );
}

/**
 * The length of the blocks of numbers that are counted by themselves, a power of two: the shortest of which so many indices have
 * few enough. States are compared in blocks of their own length. Indices of one length are never too many for it: when the last of
 * them was described, the others were there.
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

/** The documents above these numbers, and all of other indices. */
export function buildAddedQuery(knownUpTo: ShardComparison["knownUpTo"]): Query {
  if (knownUpTo.size === 0) return matchAll;
  const above = [...knownUpTo].map(([index, number]) =>
    allOf([buildIndicesQuery([index]), { range: { _seq_no: { gt: number } } }]),
  );
  return anyOf([...above, not(buildIndicesQuery([...knownUpTo.keys()]))]);
}
