// Which names and indices a pattern reaches.
import { expect, test } from "vitest";
import { explainIneffectiveExclusions, listReached } from "#resolvers/elastic/mapping/index-patterns.ts";

test.each<[string, readonly string[]]>([
  ["logs-*,-logs-a-x", ["logs-a-x"]],
  ["logs-*,-logs-b,-logs-a-x", ["logs-b", "logs-a-x"]],
  ["logs-*,-logs-a-x,logs-a-x", []],
  ["logs-*,-*logs-a-x,-logs-b*,-plain", []],
])("explainIneffectiveExclusions: of %s these data streams stay: %j", (index, kept) => {
  // Backing indices of Elasticsearch have the day in their names, those of OpenSearch do not.
  const indices = [".ds-logs-a-x-2026.01.31-000001", ".ds-logs-b-000002", "plain-1"];
  const formatProblem = (name: string) =>
    `-${name} does not take the data stream out of the pattern; -*${name} does`;
  expect(explainIneffectiveExclusions(index, indices)).toEqual(kept.map(formatProblem));
});

const index = {
  name: "o-7",
  own: "shrink-x-o-7",
  aliases: ["o-7", "all"],
  isStream: false,
  indices: ["shrink-x-o-7"],
};
const stream = {
  name: "o-s",
  own: "o-s",
  aliases: ["all-s"],
  isStream: true,
  indices: [".ds-o-s-1", ".ds-o-s-2"],
};

// As seen on servers: `test/backends/elastic/index-names.test.ts`.
test.each<[string, readonly string[]]>([
  ["o-*", ["shrink-x-o-7", ".ds-o-s-1", ".ds-o-s-2"]],
  ["shrink-*", ["shrink-x-o-7"]],
  ["o-7", ["shrink-x-o-7"]],
  ["all", ["shrink-x-o-7"]],
  ["o-*,-o-7", ["shrink-x-o-7", ".ds-o-s-1", ".ds-o-s-2"]],
  ["o-*,-o-7*", [".ds-o-s-1", ".ds-o-s-2"]],
  ["o-*,-al*", []],
  ["o-*,-shrink-x-o-7", [".ds-o-s-1", ".ds-o-s-2"]],
  ["o-*,-o-s", ["shrink-x-o-7", ".ds-o-s-1", ".ds-o-s-2"]],
  ["o-*,-*o-s", ["shrink-x-o-7"]],
  ["o-*,-.ds-o-s-1", ["shrink-x-o-7", ".ds-o-s-2"]],
  ["o-*,-o-*,all*", ["shrink-x-o-7", ".ds-o-s-1", ".ds-o-s-2"]],
  ["x-*", []],
  // Without a star before it, an exclusion is the name of an index that is not there.
  ["all,-shrink-x-o-7", ["shrink-x-o-7"]],
  ["all,none-*,-shrink-x-o-7", []],
])("listReached: %s reaches %j", (pattern, reached) => {
  expect([index, stream].flatMap((one) => listReached(pattern, one))).toEqual(reached);
});
