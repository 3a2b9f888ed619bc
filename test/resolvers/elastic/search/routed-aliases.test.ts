// Aliases with routing reach only some shards of an index, so a search that reaches fewer shards than exist may be
// complete. It is incomplete where the pattern matches the indices themselves, some of which the user may not read.
import { describe, expect, test } from "vitest";
import { describeShardProblem } from "#resolvers/elastic/search/search.ts";
import { readIndexMetadata } from "../../../support/elastic/index-metadata.ts";

const index = (shards: number, aliases: object = {}, hidden = false) => ({
  aliases,
  settings: { index: { number_of_shards: String(shards), ...(hidden ? { hidden: "true" } : {}) } },
});
const routed = { "app-routed": { search_routing: "7" } };
const others = { ...routed, "app-all": {} };

describe("shard count", () => {
  test.each([
    ["app-*", { "app-1": index(4, routed), "app-2": index(1) }, 5],
    ["_all", { "app-1": index(4, routed) }, 4],
    ["app-1", { "app-1": index(4, routed) }, 4],
    ["app-routed", { "app-1": index(4, routed) }, 1],
    ["app-r*", { "app-1": index(4, routed) }, 1],
    ["app-routed,app-2", { "app-1": index(4, routed), "app-2": index(3) }, 4],
    ["app-routed,app-all", { "app-1": index(4, others) }, 4],
    ["app-a*", { "app-1": index(4, others) }, 4],
    ["app-*,-app-1", { "app-1": index(4, routed) }, 1],
    ["app-*", { "app-1": index(4, routed, true) }, 1],
    ["app-1", { "app-1": index(4, routed, true) }, 4],
    ["app-*", { "app-1": index(4, { ...routed, "app-all": { is_hidden: true } }, true) }, 1],
    ["<app-{now/d}>", { "app-1": index(4, routed) }, 1],
    ["<app-{now/d}>", { "app-1": index(4) }, 4],
    ["appx1", { "app-1": index(4, { "app.1": { search_routing: "7" } }) }, 4],
  ])("a complete response of %s over %j reaches at least %i shards", (pattern, indices, least) => {
    const knowledge = readIndexMetadata(indices, pattern);
    expect(describeShardProblem(pattern, knowledge, least)).toBeUndefined();
    expect(describeShardProblem(pattern, knowledge, least - 1)).toContain(`reaches ${least - 1} of the`);
  });
});
