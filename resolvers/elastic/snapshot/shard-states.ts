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

interface ShardComparison {
  readonly states: ShardStates;
  /** How many documents lie above the earlier states. Undefined where these do not hold any more. */
  readonly added: number | undefined;
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
  // What was kept is input: more indices than a block length has were not described with it.
  const byBlock = [...Map.groupBy(earlier ?? [], ([, state]) => state.block)].filter(
    ([length, own]) => chooseBlockLength(own.length) <= length,
  );
  const [all, above, ...recentByBlock] = await Promise.all([
    search({ aggs: buildIndicesAggregation({}) }),
    search({ query: buildAddedQuery(earlier), aggs: buildIndicesAggregation(newestNumber) }),
    ...byBlock.map(([block, states]) => {
      const numbers = new Map(states.map(([index, state]) => [index, state.newest]));
      return searchRecent(backend, search, numbers, block);
    }),
  ]);
  const recent = new Map(recentByBlock.flatMap((states) => [...states]));
  const documents = countByIndex(all);
  const added = countByIndex(above);
  const countBelow = (index: string): number => (documents.get(index) ?? 0) - (added.get(index) ?? 0);
  const holds = (index: string): boolean => {
    const [before, now] = [earlier?.get(index), recent.get(index)];
    if (before === undefined || now === undefined) return false;
    return before.documents === countBelow(index) && isSame(before, now);
  };
  const block = chooseBlockLength(documents.size);
  const isKnown = (index: string): boolean =>
    !added.has(index) && holds(index) && earlier?.get(index)?.block === block;
  const changed = [...documents.keys()].filter((index) => !isKnown(index));
  const newest = listNewestNumbers(backend, above);
  for (const index of changed.filter(holds))
    if (!added.has(index)) newest.set(index, requireKey(recent, index).newest);
  const unknown = changed.filter((index) => !newest.has(index));
  if (unknown.length > 0) {
    const query = buildIndicesQuery(unknown);
    const found = listNewestNumbers(
      backend,
      await search({ query, aggs: buildIndicesAggregation(newestNumber) }),
    );
    for (const [index, number] of found) newest.set(index, number);
  }
  const recentOfChanged = await searchRecent(backend, search, newest, block);
  const states = new Map<string, ShardState>();
  for (const [index, count] of documents) {
    const found = recentOfChanged.get(index) ?? recent.get(index);
    if (found === undefined) throw new BackendError(backend, "malformed", `no newest document of ${index}`);
    states.set(index, { ...found, documents: count });
  }
  const isHeld = earlier !== undefined && [...earlier.keys()].every(holds);
  const total = [...added.values()].reduce((sum, count) => sum + count, 0);
  const isBehind = [...(earlier ?? [])].some(([index, before]) => countBelow(index) < before.documents);
  return { states, added: isHeld ? total : undefined, isBehind };
}

function isSame(one: RecentState, other: RecentState): boolean {
  return (
    one.newest === other.newest &&
    one.term === other.term &&
    one.id === other.id &&
    one.recent === other.recent
  );
}

/** By index, the documents up to these numbers, in blocks of so many. */
async function searchRecent(
  backend: string,
  search: (body: object) => Promise<Answer>,
  upTo: ReadonlyMap<string, number>,
  block: number,
): Promise<ReadonlyMap<string, RecentState>> {
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
    listBuckets(answer).map(({ key, recent }) => {
      if (recent === undefined) throw new BackendError(backend, "malformed", "an index without its blocks");
      const counted = recent.buckets.map((block) => [block.key, block.doc_count, block.sum.value]);
      const digest = createHash("sha256").update(JSON.stringify(counted)).digest("base64");
      return [key, { ...requireKey(newest, key), recent: digest, block }] as const;
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

/** The documents that the earlier states do not have. */
export function buildAddedQuery(earlier: ShardStates | undefined): Query {
  if (earlier === undefined || earlier.size === 0) return matchAll;
  const above = [...earlier].map(([index, { newest }]) =>
    allOf([buildIndicesQuery([index]), { range: { _seq_no: { gt: newest } } }]),
  );
  return anyOf([...above, not(buildIndicesQuery([...earlier.keys()]))]);
}
