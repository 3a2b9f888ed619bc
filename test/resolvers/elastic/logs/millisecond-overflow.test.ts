// More lines in a millisecond than a search returns, in one of several indices, over a search server in memory.
import { describe, expect, test } from "vitest";
import { createHeldBytes } from "#src/core/async/held-bytes.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { createFakeSearch } from "../../../support/elastic/fake-cluster.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const mappings = { properties: { "@timestamp": { type: "date" }, message: { type: "text" } } };
const at = (time: number, count: number, message = "m") => ({
  mappings,
  documents: Array.from({ length: count }, () => ({
    "@timestamp": new Date(time).toISOString(),
    message,
  })),
});

/** All lines, at most so many. */
const buildQuery = (limit: number) =>
  ({
    sources: [{ id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined }],
    range: { from: fromMillis(0), to: fromMillis(10_000) },
    filter: parse(""),
    order: "asc",
    expectedLines: limit,
    documentLimit: limit,
    tieLimit: 10_000,
  }) as const;

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
      const query = buildQuery(10_000);
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

  test.each([
    [2_000_000, 3],
    [500_000, 0],
  ])("holds one large millisecond at a time, within %d bytes", async (limitBytes, answered) => {
    const indices = [1_000, 2_000, 3_000].map(
      (time) => [`logs-${time}`, at(time, 1_300, "m".repeat(500))] as const,
    );
    const search = createFakeSearch(Object.fromEntries(indices), "Elasticsearch");
    const fake = await openScriptedSource(search.reply);
    const cluster = openCluster(fake.url);
    const query = { ...buildQuery(1_000_000), held: createHeldBytes(limitBytes) };
    let milliseconds = 0;
    const read = async () => {
      for await (const batch of cluster.store.lines(query, never))
        if (batch.length === 1_300) milliseconds += 1;
    };
    try {
      if (answered > 0) await read();
      else
        await expect(read()).rejects.toMatchObject({
          slug: "result_too_large",
          details: { limit: limitBytes },
        });
      expect(milliseconds).toBe(answered);
    } finally {
      await cluster.close();
      await fake.close();
    }
  });
});
