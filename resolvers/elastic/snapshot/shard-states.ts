// The state of the shards in a point in time, and whether a later state holds all that an earlier one held. Within a shard each
// write has a higher sequence number than all before it. So if a later state has as many documents up to the earlier one's
// newest number, and the same newest document, then it has the same documents and what lies above; neither replicas that
// refresh at other moments nor numbers that another shard has used can hide a change.
import { z } from "zod";
import { BackendError } from "../../../src/core/errors.ts";
import type { ElasticClient } from "../client/client.ts";
import { type PointInTime, searchPointInTimeJson } from "../client/point-in-time.ts";
import { allOf, anyOf, buildIndicesQuery, matchAll, not, type Query } from "../client/query-dsl.ts";

interface ShardState {
  /** At least one. */
  readonly documents: number;
  /** The highest sequence number, and the primary term in which it was given. */
  readonly newest: number;
  readonly term: number;
}

/** By index; those without documents are left out. */
export type ShardStates = ReadonlyMap<string, ShardState>;

interface ShardComparison {
  readonly states: ShardStates;
  /** How many documents lie above the earlier states. Undefined where these do not hold any more. */
  readonly added: number | undefined;
}

/** The indices that one answer may list. */
const maxIndices = 10_000;

const hitSchema = z.object({ _index: z.string(), _seq_no: z.number(), _primary_term: z.number() });
const hitsSchema = z.object({ hits: z.object({ hits: z.array(hitSchema) }) });
const answerSchema = z.object({
  timed_out: z.literal(false),
  _shards: z.object({ total: z.number(), failed: z.literal(0) }),
  hits: hitsSchema.shape.hits,
  aggregations: z
    .object({
      indices: z.object({
        sum_other_doc_count: z.literal(0),
        buckets: z.array(z.object({ key: z.string(), doc_count: z.number(), newest: hitsSchema.optional() })),
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
  client: ElasticClient,
  point: PointInTime,
  earlier: ShardStates | undefined,
  signal: AbortSignal,
): Promise<ShardComparison> {
  const search = async (body: object): Promise<Answer> => {
    const answer = await searchPointInTimeJson(client, point, { track_total_hits: false, ...body }, signal);
    const { data, error } = answerSchema.safeParse(answer);
    if (data === undefined) {
      throw new BackendError(backend, "partial", "incomplete states of shards", { cause: error });
    }
    if (data._shards.total !== point.shards) throw new IndicesChangedError();
    return data;
  };
  const [all, above, kept] = await Promise.all([
    search({ size: 0, aggs: { indices: { terms: { field: "_index", size: maxIndices } } } }),
    search({ size: 0, query: buildAddedQuery(earlier), aggs: newestByIndex }),
    earlier === undefined ? undefined : search(buildNewestBody(earlier)),
  ]);
  const added = new Map<string, ShardState>();
  for (const { key, doc_count: documents, newest } of listBuckets(above)) {
    const hit = newest?.hits.hits.at(0);
    if (hit === undefined)
      throw new BackendError(backend, "malformed", "an index without its newest document");
    added.set(key, { documents, newest: hit._seq_no, term: hit._primary_term });
  }
  const states = new Map<string, ShardState>();
  for (const { key, doc_count: documents } of listBuckets(all)) {
    const newest = added.get(key) ?? earlier?.get(key);
    if (newest === undefined) throw new BackendError(backend, "malformed", `no newest document of ${key}`);
    states.set(key, { ...newest, documents });
  }
  const holds = kept !== undefined && earlier !== undefined && isHeld(earlier, states, added, kept);
  const total = [...added.values()].reduce((sum, { documents }) => sum + documents, 0);
  return { states, added: holds ? total : undefined };
}

/** Whether all documents of the earlier states are there, and no other ones among them. */
function isHeld(
  earlier: ShardStates,
  states: ShardStates,
  added: ReadonlyMap<string, ShardState>,
  { hits: { hits } }: Answer,
): boolean {
  return [...earlier].every(([index, { documents, newest, term }]) => {
    const below = (states.get(index)?.documents ?? 0) - (added.get(index)?.documents ?? 0);
    const hit = hits.find(({ _index }) => _index === index);
    return below === documents && hit?._seq_no === newest && hit._primary_term === term;
  });
}

function listBuckets({ aggregations }: Answer) {
  return aggregations?.indices.buckets ?? [];
}

const newestByIndex = {
  indices: {
    terms: { field: "_index", size: maxIndices },
    aggs: {
      newest: {
        top_hits: { size: 1, sort: [{ _seq_no: "desc" }], seq_no_primary_term: true, _source: false },
      },
    },
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

/** The newest document of each earlier state. */
function buildNewestBody(earlier: ShardStates): object {
  const newest = [...earlier].map(([index, state]) =>
    allOf([buildIndicesQuery([index]), { term: { _seq_no: state.newest } }]),
  );
  return {
    size: Math.max(newest.length, 1),
    query: anyOf(newest),
    seq_no_primary_term: true,
    _source: false,
    sort: ["_doc"],
  };
}
