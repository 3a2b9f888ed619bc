// What stands against snapshots of some indices, as `check` says it and as requests find it.
import { expect, test } from "vitest";
import { describeProduct } from "../../../../resolvers/elastic/client/product.ts";
import { opaqueMetadata } from "../../../../resolvers/elastic/mapping/mapping.ts";
import { findSnapshotObstacle } from "../../../../resolvers/elastic/snapshot/snapshot.ts";

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

test("an alias that leaves out shards, and too many shards", () => {
  expect(findSnapshotObstacle(current, [{ ...ofShards(3), minShards: 1 }])).toContain("leaves out shards");
  expect(findSnapshotObstacle(current, [ofShards(16, 2, 16)])).toBeUndefined();
  expect(findSnapshotObstacle(current, [ofShards(17)])).toContain("more than 16 shards");
  expect(findSnapshotObstacle(current, [ofShards(10), ofShards(7)])).toContain("more than 16 shards");
});
