// More lines in a millisecond than a search returns, in one of several indices, over a search server in memory.
import { describe, expect, test } from "vitest";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { createFakeSearch } from "../../../support/elastic/fake-cluster.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";

const mappings = { properties: { "@timestamp": { type: "date" }, message: { type: "text" } } };
const at = (time: number, count: number) => ({
  mappings,
  documents: Array.from({ length: count }, () => ({
    "@timestamp": new Date(time).toISOString(),
    message: "m",
  })),
});

describe("log store", () => {
  test.each(["Elasticsearch", "OpenSearch"] as const)(
    "reads a large millisecond of one index among several, %s",
    async (product) => {
      const indices = { "logs-1": at(1_000, 3), "logs-2": at(2_000, 1_300), "logs-3": at(3_000, 3) };
      const search = createFakeSearch(indices, product);
      const lost = new AbortController();
      let asked = 0;
      const fake = await openScriptedSource((...request) => {
        asked += 1;
        if (asked > 30) lost.abort(new Error("asks again and again"));
        search.reply(...request);
      });
      const cluster = openCluster(fake.url);
      const query = {
        sources: [{ id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined }],
        range: { from: fromMillis(0), to: fromMillis(10_000) },
        filter: parse(""),
        order: "asc",
        ...{ expectedLines: 10_000, documentLimit: 10_000, tieLimit: 10_000 },
      } as const;
      try {
        const ids: string[] = [];
        for await (const batch of cluster.store.lines(query, lost.signal))
          ids.push(...batch.map(({ id }) => id));
        expect(new Set(ids).size).toBe(1_306);
        expect(ids).toHaveLength(1_306);
      } finally {
        await cluster.close();
        await fake.close();
      }
    },
  );
});
