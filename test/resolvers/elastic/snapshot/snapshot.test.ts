// What stands against snapshots of some indices, as `check` says it and as requests find it.
import { expect, test } from "vitest";
import { BackendError, type Failure } from "#src/core/errors.ts";
import type { ElasticClient } from "../../../../resolvers/elastic/client/client.ts";
import { describeProduct } from "../../../../resolvers/elastic/client/product.ts";
import { opaqueMetadata } from "../../../../resolvers/elastic/mapping/mapping.ts";
import { findSnapshotObstacle, openSnapshot } from "../../../../resolvers/elastic/snapshot/snapshot.ts";

const ofShards = (...numbers: readonly number[]) => {
  const shards = numbers.reduce((sum, one) => sum + one, 0);
  const shardsByIndex = new Map(numbers.map((one, at) => [`i${at}`, one] as const));
  return { ...opaqueMetadata, opaque: false, shards, minShards: shards, shardsByIndex };
};
const current = describeProduct("Elasticsearch", "8.19.0");

test.each([
  ["Elasticsearch", "7.11.2", "no points in time"],
  ["Elasticsearch", "7.12.0", undefined],
  ["OpenSearch", "2.3.0", "no points in time"],
  ["OpenSearch", "2.4.0", undefined],
  ["OpenSearch", "7.10.2", "another product"],
  ["OpenSearch", "unknown", undefined],
] as const)("%s %s", (name, version, obstacle) => {
  const found = findSnapshotObstacle(describeProduct(name, version), [ofShards(1)]);
  if (obstacle === undefined) expect(found).toBeUndefined();
  else expect(found).toContain(obstacle);
});

const denied = new BackendError("elk", "denied", "status 403", { status: 403 });
const fail = (failure: Failure, status: number, message = "") =>
  new BackendError("elk", failure, message, { status });
// As OpenSearch 2.19 words it.
const above =
  "Trying to create too many Point In Time contexts. Must be less than or equal to: [300]. This limit can be set by changing the [search.max_open_pit_context] setting.";

test.each([
  ["403", denied, undefined],
  ["404", fail("rejected", 404), undefined],
  ["429 for too many points in time", fail("overloaded", 429, above), undefined],
  ["429", fail("overloaded", 429, "circuit_breaking_exception"), "overloaded"],
  ["500", fail("rejected", 500), "rejected"],
  ["503", fail("overloaded", 503), "overloaded"],
  ["504", fail("timeout", 504), "timeout"],
])("a point in time that is answered with %s", async (_, error, failure) => {
  const client = { detectProduct: async () => current, sendJson: () => Promise.reject(error) };
  const sources = { patterns: new Map([["i*", ofShards(1)]]), isRead: () => true };
  const { signal } = new AbortController();
  const opening = openSnapshot("elk", client as unknown as ElasticClient, sources, undefined, signal);
  if (failure === undefined) expect(await opening).toBeUndefined();
  else await expect(opening).rejects.toMatchObject({ failure });
});

test("an alias that leaves out shards, and too many shards", () => {
  expect(findSnapshotObstacle(current, [{ ...ofShards(3), minShards: 1 }])).toContain("leaves out shards");
  expect(findSnapshotObstacle(current, [ofShards(16, 2, 16)])).toBeUndefined();
  expect(findSnapshotObstacle(current, [ofShards(17)])).toContain("more than 16 shards");
  expect(findSnapshotObstacle(current, [ofShards(10), ofShards(7)])).toContain("more than 16 shards");
});
