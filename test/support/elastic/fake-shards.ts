// A point in time of one shard of each of some indices, for what the states of shards are asked by. It rejects what it does not
// know.
import { z } from "zod";
import type { ElasticClient } from "../../../resolvers/elastic/client/client.ts";
import type { PointInTime } from "../../../resolvers/elastic/client/point-in-time.ts";
import type { Query } from "../../../resolvers/elastic/client/query-dsl.ts";

export interface ShardDocument {
  readonly index: string;
  /** Its sequence number. */
  readonly number: number;
  /** The primary term in which it was given. */
  readonly term: number;
  readonly id?: string;
}

const recentSchema = z.strictObject({
  histogram: z.strictObject({
    field: z.literal("_seq_no"),
    interval: z.number().positive(),
    min_doc_count: z.literal(1),
  }),
  aggs: z.strictObject({ sum: z.strictObject({ sum: z.strictObject({ field: z.literal("_seq_no") }) }) }),
});
const numberSchema = z.strictObject({ max: z.strictObject({ field: z.literal("_seq_no") }) });
const searchSchema = z.strictObject({
  size: z.literal(0),
  track_total_hits: z.literal(false),
  query: z.record(z.string(), z.unknown()).default({ match_all: {} }),
  aggs: z.strictObject({
    indices: z.strictObject({
      terms: z.strictObject({ field: z.literal("_index"), size: z.number() }),
      aggs: z.strictObject({ number: numberSchema, newest: z.unknown(), recent: recentSchema }).partial(),
    }),
  }),
  pit: z.unknown(),
});

export function createFakeShards(documents: readonly ShardDocument[]): {
  readonly client: Pick<ElasticClient, "sendJson">;
  readonly point: PointInTime;
} {
  const shards = new Set(documents.map(({ index }) => index)).size;
  const paths = { open: "_pit", close: { path: "_pit", isList: false } } as const;
  return {
    point: { pattern: "*", shard: 0, shards, id: "point", paths },
    client: {
      sendJson: async ({ body }) => {
        const { query, aggs } = searchSchema.parse(JSON.parse(String(body)));
        const found = documents.filter(compileQuery(query));
        const { recent, number } = aggs.indices.aggs;
        const buckets = [...Map.groupBy(found, ({ index }) => index)].map(([key, own]) => ({
          key,
          doc_count: own.length,
          ...(number !== undefined && { number: { value: Math.max(...own.map((one) => one.number)) } }),
          ...("newest" in aggs.indices.aggs && { newest: describeNewest(own) }),
          ...(recent !== undefined && { recent: { buckets: listBlocks(own, recent.histogram.interval) } }),
        }));
        return {
          timed_out: false,
          _shards: { total: shards, failed: 0 },
          hits: { hits: [] },
          aggregations: { indices: { sum_other_doc_count: 0, buckets } },
        };
      },
    },
  };
}

function listBlocks(documents: readonly ShardDocument[], interval: number): readonly object[] {
  const blocks = Map.groupBy(documents, ({ number }) => Math.floor(number / interval) * interval);
  return [...blocks]
    .sort(([a], [b]) => a - b)
    .map(([key, own]) => {
      return { key, doc_count: own.length, sum: { value: own.reduce((sum, { number }) => sum + number, 0) } };
    });
}

function describeNewest(documents: readonly ShardDocument[]): object {
  const [newest] = documents.toSorted((a, b) => b.number - a.number);
  const hits = newest && [
    {
      _index: newest.index,
      _id: newest.id ?? "",
      _seq_no: newest.number,
      _primary_term: newest.term,
    },
  ];
  return { hits: { hits: hits ?? [] } };
}

type DocumentTest = (document: ShardDocument) => boolean;

/** Compiles a query once for all documents: to parse a clause takes far longer than to test it. */
function compileQuery(query: Query): DocumentTest {
  return querySchema.parse(query);
}

const clauses = z.array(
  z.record(z.string(), z.unknown()).transform((query): DocumentTest => compileQuery(query)),
);
const querySchema = z.union([
  z.strictObject({ match_all: z.strictObject({}) }).transform((): DocumentTest => () => true),
  z.strictObject({ terms: z.strictObject({ _index: z.array(z.string()) }) }).transform(
    ({ terms }): DocumentTest =>
      ({ index }) =>
        terms._index.includes(index),
  ),
  z.strictObject({ terms: z.strictObject({ _seq_no: z.array(z.number()) }) }).transform(
    ({ terms }): DocumentTest =>
      ({ number }) =>
        terms._seq_no.includes(number),
  ),
  z
    .strictObject({
      range: z.strictObject({ _seq_no: z.strictObject({ gt: z.number(), lte: z.number() }).partial() }),
    })
    .transform(
      ({
        range: {
          _seq_no: { gt = -1, lte = Number.POSITIVE_INFINITY },
        },
      }): DocumentTest =>
        ({ number }) =>
          number > gt && number <= lte,
    ),
  z.strictObject({ bool: z.strictObject({ filter: clauses }) }).transform(
    ({ bool }): DocumentTest =>
      (document) =>
        bool.filter.every((test) => test(document)),
  ),
  z.strictObject({ bool: z.strictObject({ should: clauses, minimum_should_match: z.literal(1) }) }).transform(
    ({ bool }): DocumentTest =>
      (document) =>
        bool.should.some((test) => test(document)),
  ),
  z.strictObject({ bool: z.strictObject({ must_not: clauses }) }).transform(
    ({ bool }): DocumentTest =>
      (document) =>
        !bool.must_not.some((test) => test(document)),
  ),
]);
