// Whether a later state of shards holds an earlier one: what comes late, goes, or gets the number of another is never missed.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { searchPointInTimeJson } from "../../../../resolvers/elastic/client/point-in-time.ts";
import { buildIndicesAggregation, type Query } from "../../../../resolvers/elastic/client/query-dsl.ts";
import {
  buildAddedQuery,
  compareShards,
  type ShardStates,
} from "../../../../resolvers/elastic/snapshot/shard-states.ts";
import { createFakeShards, type ShardDocument } from "../../../support/elastic/fake-shards.ts";
import { sampleRuns } from "../../../support/law-runs.ts";

const { signal } = new AbortController();

function compareDocuments(documents: readonly ShardDocument[], earlier?: ShardStates) {
  const { client, point } = createFakeShards(documents);
  return compareShards("es", client, point, earlier, signal);
}

const list = (numbers: readonly number[], index = "a", term = 1): readonly ShardDocument[] =>
  numbers.map((number) => ({ index, number, term }));

async function compareLists(before: readonly ShardDocument[], after: readonly ShardDocument[]) {
  const { states } = await compareDocuments(before);
  const { added, changed, known } = await compareDocuments(after, states);
  return { added, changed: [...changed], found: await countDocuments(after, buildAddedQuery(known)) };
}

async function countDocuments(documents: readonly ShardDocument[], query: Query): Promise<number> {
  const { client, point } = createFakeShards(documents);
  const body = { size: 0, track_total_hits: false, query, aggs: buildIndicesAggregation({}) };
  const answer = answerSchema.parse(await searchPointInTimeJson(client, point, body, signal));
  return answer.aggregations.indices.buckets.reduce((sum, { doc_count }) => sum + doc_count, 0);
}

const answerSchema = z.object({
  aggregations: z.object({ indices: z.object({ buckets: z.array(z.object({ doc_count: z.number() })) }) }),
});

describe("shard states", () => {
  // All documents of an index that has lost its newest one may be among them.
  test.each<[string, readonly ShardDocument[], readonly ShardDocument[], number, (readonly string[])?]>([
    ["the same documents", list([0, 1, 2]), list([0, 1, 2]), 0],
    ["new documents", list([0, 1, 2]), list([0, 1, 2, 5, 6]), 2],
    ["a new index", list([0, 1]), [...list([0, 1]), ...list([0, 1, 2], "b")], 3],
    ["a deleted document", list([0, 1, 2]), list([0, 2]), 0, ["a"]],
    ["one deleted long ago", list([0, 90_000, 90_001]), list([90_000, 90_001, 90_002]), 1, ["a"]],
    ["the newest deleted", list([0, 1, 2]), list([0, 1]), 2, ["a"]],
    ["an updated document", list([0, 1, 2]), list([0, 2, 3]), 1, ["a"]],
    ["one of two indices", [...list([0]), ...list([0, 1], "b")], [...list([0]), ...list([0], "b")], 1, ["b"]],
    ["an index without documents", [...list([0]), ...list([0], "b")], list([0]), 0, ["b"]],
    ["a document that comes late", list([0, 1, 3]), list([0, 1, 2, 3]), 1],
    ["one that comes late and a new one", list([0, 1, 3]), list([0, 1, 2, 3, 5]), 2],
    ["a late document for a deleted one", list([0, 1, 3]), list([0, 2, 3]), 1, ["a"]],
    [
      "a late document for one deleted long ago",
      list([0, 90_000, 90_002]),
      list([90_000, 90_001, 90_002]),
      3,
      ["a"],
    ],
    ["a document of another primary", list([0, 1]), [...list([0]), ...list([1], "a", 2)], 2, ["a"]],
    [
      "an index that was made again with as many documents",
      [{ index: "a", number: 0, term: 1, id: "x" }],
      [{ index: "a", number: 0, term: 1, id: "y" }],
      1,
      ["a"],
    ],
    ["two late documents for two of other blocks", list([0, 40, 99]), list([1, 39, 99]), 2, ["a"]],
    ["two late documents for two of one block with equal sums", list([0, 3, 9]), list([1, 2, 9]), 2, ["a"]],
    [
      "a late document among many missing ones",
      list([0, 1_000, 3_000]),
      list([0, 1_000, 2_000, 3_000]),
      4,
      ["a"],
    ],
    // Left: two of one block, where a block is not known by number.
    ["two for two of equal sums among many missing ones", list([0, 3, 3_000]), list([1, 2, 3_000]), 0],
  ])("tells %s", async (_, before, after, added, changed = []) => {
    expect(await compareLists(before, after)).toEqual({ added, changed, found: added });
  });

  test("keeps the missing numbers of a hundred indices, so that queries have few clauses", async () => {
    const nameOf = (index: number): string => `spans-${index}`;
    const documents = Array.from({ length: 120 }, (_, index) => list([0, 2], nameOf(index))).flat();
    const { states } = await compareDocuments(documents);
    const countKept = (of: ShardStates): number =>
      [...of.values()].filter(({ missing }) => missing?.length).length;
    expect(countKept(states)).toBe(100);
    const later = await compareDocuments([...documents, ...list([0, 2], "next")], states);
    expect([later.added, countKept(later.states)]).toEqual([2, 100]);
  });

  test("cannot tell of a document that comes later than any can", async () => {
    const before = list([90_000, 90_001]);
    const { added, changed } = await compareLists(before, [...list([7]), ...before]);
    expect([added, changed]).toEqual([undefined, ["a"]]);
  });

  test("holds again after the newest document is gone and nothing has come", async () => {
    const { states } = await compareDocuments(list([0, 1, 2]));
    const { states: later, changed } = await compareDocuments(list([0, 1]), states);
    expect(changed).toEqual(new Set(["a"]));
    const again = await compareDocuments(list([0, 1]), later);
    expect([again.added, again.changed.size]).toEqual([0, 0]);
  });

  test("hold while indices come and go, however long the blocks of so many are", async () => {
    const nameOf = (index: number): string => `spans-${index}`;
    const listTo = (last: number, first = 0) =>
      Array.from({ length: last - first + 1 }, (_, at) => list([0, 7, 70_000], nameOf(first + at))).flat();
    let { states } = await compareDocuments(listTo(0));
    for (let last = 1; last < 70; last += 1) {
      const compared = await compareDocuments(listTo(last), states);
      expect(compared.added).toBe(3);
      states = compared.states;
    }
    expect(new Set([...states.values()].map(({ blockLength }) => blockLength))).toEqual(new Set([2_048]));
    // Whoever knows that the first ones were deleted asks for the others.
    const left = new Map([...states].slice(60));
    const fewer = await compareDocuments(listTo(69, 60), left);
    expect(fewer.added).toBe(0);
    expect(new Set([...fewer.states.values()].map(({ blockLength }) => blockLength))).toEqual(new Set([256]));
    expect((await compareDocuments(listTo(69, 60), fewer.states)).added).toBe(0);
    const late = [...listTo(69, 60), ...list([69_000], nameOf(65))];
    for (const earlier of [left, fewer.states])
      expect((await compareDocuments(late, earlier)).changed).toEqual(new Set([nameOf(65)]));
  });

  test("of more indices than their blocks are for do not hold", async () => {
    const documents = ["a", "b", "c"].flatMap((index) => list([0, 1], index));
    const { states } = await compareDocuments(documents);
    const shorter = new Map([...states].map(([index, state]) => [index, { ...state, blockLength: 32 }]));
    expect((await compareDocuments(documents, states)).added).toBe(0);
    expect((await compareDocuments(documents, shorter)).added).toBeUndefined();
  });

  test("names the indices that lose documents, and counts those that come, late ones too", async () => {
    // Two indices have blocks of 64 numbers.
    const number = fc.oneof(
      fc.nat(8),
      fc.nat(8).map((n) => n + 60),
    );
    const documents = fc.uniqueArray(fc.tuple(fc.constantFrom("a", "b"), number), {
      selector: ([index, number]) => `${index} ${number}`,
      minLength: 1,
    });
    const toDocuments = (pairs: readonly (readonly [string, number])[]) =>
      pairs.map(([index, number]) => ({ index, number, term: 1 }));
    const keyOf = ({ index, number }: ShardDocument) => `${index} ${number}`;
    const property = fc.asyncProperty(documents, documents, async (one, other) => {
      const [before, after] = [toDocuments(one), toDocuments(other)];
      const [keysBefore, keysAfter] = [new Set(before.map(keyOf)), new Set(after.map(keyOf))];
      const changed = new Set(before.filter((own) => !keysAfter.has(keyOf(own))).map(({ index }) => index));
      const found = await compareLists(before, after);
      expect(new Set(found.changed)).toEqual(changed);
      // All of an index that has lost its newest one may have come.
      const newest = new Map(
        before.toSorted((one, other) => one.number - other.number).map((own) => [own.index, own]),
      );
      const begun = new Set(
        [...newest].filter(([, own]) => !keysAfter.has(keyOf(own))).map(([index]) => index),
      );
      const isAdded = (own: ShardDocument) => begun.has(own.index) || !keysBefore.has(keyOf(own));
      expect(found.added).toBe(after.filter(isAdded).length);
      expect(found.found).toBe(found.added);
    });
    await fc.assert(property, { numRuns: sampleRuns(500) });
  });
});
