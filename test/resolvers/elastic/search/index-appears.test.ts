// An index of another layout that appears under a pattern, over a search server in memory.
import { describe, expect, test } from "vitest";
import { requireAt } from "#src/core/collections.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { createFakeSearch } from "../../../support/elastic/fake-cluster.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

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

const limits = { expectedLines: 2_000_000_000, documentLimit: 1_000, tieLimit: 1_000 } as const;
const range = { from: fromMillis(0), to: fromMillis(Date.UTC(2027, 0)) };

describe("log store", () => {
  test("names the pattern whose layouts change too often, not the first of the query", async () => {
    const still = createFakeSearch({ "still-1": ecs }, "Elasticsearch");
    const restless = [{ "restless-1": ecs }, { "restless-1": ecs, "restless-2": otel }].map((indices) =>
      createFakeSearch(indices, "Elasticsearch"),
    );
    let counts = 0;
    const fake = await openScriptedSource((response, request, text) => {
      if (!request.url?.includes("restless-")) return still.reply(response, request, text);
      // Each search over a range finds other indices than the mapping had; those for samples have no range.
      if (text.includes('"range"')) counts += 1;
      requireAt(restless, counts % 2).reply(response, request, text);
    });
    const cluster = openCluster(fake.url);
    const common = { id: "app", layout: "auto", tenantFilter: undefined };
    const sources = [
      { ...common, index: "still-*" },
      { ...common, index: "restless-*" },
    ] as const;
    const query = { sources, range, filter: parse(""), order: "asc", ...limits } as const;
    try {
      await expect(cluster.store.isWithinLimits?.(query, never)).rejects.toThrow(
        "the indices of restless-* change faster than their mappings can be read",
      );
    } finally {
      await cluster.close();
      await fake.close();
    }
  });

  test("counts and reads an index that appears under the pattern at once", async () => {
    let search = createFakeSearch({ "logs-1": ecs }, "Elasticsearch");
    const fake = await openScriptedSource((...request) => search.reply(...request));
    const cluster = openCluster(fake.url);
    const query = {
      sources: [{ id: "app", index: "logs-*", layout: "auto", tenantFilter: undefined }],
      range,
      filter: parse(""),
      order: "asc",
      ...limits,
    } as const;
    const signal = new AbortController().signal;
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
