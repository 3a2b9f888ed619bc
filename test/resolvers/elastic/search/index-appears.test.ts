// An index of another layout that appears under a pattern, over a search server in memory.
import { describe, expect, test } from "vitest";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { createFakeSearch } from "../../../support/elastic/fake-cluster.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";

const time = "2026-01-15T10:00:00.000Z";
const text = { type: "text" };
const ecs = {
  mappings: { properties: { "@timestamp": { type: "date" }, message: text } },
  documents: [{ "@timestamp": time, message: "one" }],
};
const otel = {
  mappings: {
    properties: {
      "@timestamp": { type: "date" },
      body: { properties: { text } },
      severity_text: { type: "keyword" },
    },
  },
  documents: [{ "@timestamp": time, body: { text: "two" }, severity_text: "INFO" }],
};

describe("log store", () => {
  test("counts and reads an index that appears under the pattern at once", async () => {
    let search = createFakeSearch({ "logs-1": ecs }, "Elasticsearch");
    const fake = await openScriptedSource((...request) => search.reply(...request));
    const cluster = openCluster(fake.url);
    const query = {
      sources: [{ id: "app", index: "logs-*", layout: "auto", tenantFilter: undefined }],
      range: { from: fromMillis(0), to: fromMillis(Date.UTC(2027, 0)) },
      filter: parse(""),
      order: "asc",
      expectedLines: 2_000_000_000,
      documentLimit: 1_000,
      tieLimit: 1_000,
    } as const;
    const signal = AbortSignal.timeout(30_000);
    const read = async () => {
      const messages: (string | undefined)[] = [];
      for await (const batch of cluster.store.lines(query, signal))
        messages.push(...batch.map(({ message }) => message));
      return messages;
    };
    try {
      expect(await read()).toEqual(["one"]);
      search = createFakeSearch({ "logs-1": ecs, "logs-2": otel }, "Elasticsearch");
      expect(await cluster.store.isWithinLimits?.(query, signal)).toBe(true);
      expect(await read()).toEqual(["one", "two"]);
    } finally {
      await cluster.close();
      await fake.close();
    }
  });
});
