// A cluster with `search.allow_expensive_queries` off, which rejects wildcards and regular expressions, as a small search server in memory.
import { afterEach, describe, expect, test, vi } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogQuery, LogSource } from "#src/store/logs.ts";
import { createFakeSearch } from "../../../support/elastic/fake-cluster.ts";
import { testIO } from "../../../support/io.ts";
import { openScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

const at = "2026-01-15T10:00:00.000Z";
const properties = {
  "@timestamp": { type: "date" },
  message: { type: "text" },
  log: { properties: { level: { type: "keyword" } } },
  tenant: { type: "keyword" },
};
const documents = [
  { "@timestamp": at, tenant: "a", message: "a boot", log: { level: "error" } },
  { "@timestamp": at, tenant: "a", message: "no match", log: { level: "error" } },
  { "@timestamp": at, tenant: "b", message: "a boot", log: { level: "error" } },
];

const range = { from: fromMillis(0), to: fromMillis(Date.UTC(2027, 0)) };
const limits = { expectedLines: 100_000, documentLimit: 10_000, tieLimit: 10_000 };

/** A cluster that rejects expensive queries with this message. */
async function serve(words: string) {
  const search = createFakeSearch({ "logs-1": { documents, mappings: { properties } } }, "OpenSearch");
  let refused = 0;
  const fake = await openScriptedSource((response, request, text) => {
    if (!/"(?:wildcard|regexp)"/.test(text)) return search.reply(response, request, text);
    refused += 1;
    sendJson(response, { error: words }, 400);
  });
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
  opened.push(fake, backend);
  const { logs } = backend.stores;
  if (logs === undefined) throw new Error("logs expected");
  const buildQuery = (text: string, source: Partial<LogSource>): LogQuery => ({
    sources: [{ id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined, ...source }],
    range,
    ...limits,
    filter: parse(text),
    order: "asc",
  });
  return {
    fake,
    refused: () => refused,
    async read(text: string, source: Partial<LogSource> = {}) {
      const messages: (string | undefined)[] = [];
      for await (const batch of logs.lines(buildQuery(text, source), never))
        messages.push(...batch.map(({ message }) => message));
      return messages;
    },
    fits: (text: string, source: Partial<LogSource> = {}) =>
      logs.isWithinLimits?.(buildQuery(text, source), never),
  };
}

const rejection =
  "[wildcard] queries cannot be executed when 'search.allow_expensive_queries' is set to false.";

describe("log store, cluster without expensive queries", () => {
  test.each([rejection, "in other words"])(
    "falls back to reading and verifying within the tenant filter: %s",
    async (words) => {
      const { fake, read, fits } = await serve(words);
      expect(await read("message:boo", { tenantFilter: "tenant=a" })).toEqual(["a boot"]);
      expect(await fits("message:boo", { tenantFilter: "tenant=a" })).toBe(true);
      // No search counts a line of the other tenant.
      const asked = fake.requests.filter(({ path }) => path.includes("_search")).map(({ body }) => body);
      expect(asked.every((body) => body.includes('{"term":{"tenant":"a"}}'))).toBe(true);
    },
  );

  test.each([rejection, "in other words"])("finds severities: %s", async (words) => {
    const { fake, read, refused } = await serve(words);
    expect(await read("severity=error tenant=b")).toEqual(["a boot"]);
    expect(await read("severity=warn")).toEqual([]);
    expect(await read("severity!=warn tenant=b")).toEqual(["a boot"]);
    if (words !== rejection) return;
    expect(refused()).toBe(1);
    const asked = fake.requests.map(({ body }) => body).join("");
    expect(asked).toContain('{"value":"warn","case_insensitive":true}');
  });

  test("retries expensive queries only every five minutes and keeps the other filters pushed down", async () => {
    vi.useFakeTimers({ toFake: ["performance"] });
    try {
      const { fake, refused, read, fits } = await serve(rejection);
      expect(await fits("message:boo tenant=b")).toBe(true);
      expect(await read("message:boo tenant=b")).toEqual(["a boot"]);
      expect(await read("message:boo tenant=a")).toEqual(["a boot"]);
      expect(refused()).toBe(1);
      expect(fake.requests.at(-1)?.body).toContain('"term":{"tenant":"a"}');
      // A negated comparison, and one within a word: no line is let through or missed.
      expect(await read("message!:boo")).toEqual(["no match"]);
      expect(await read("log.level:rro message:match")).toEqual(["no match"]);
      expect(refused()).toBe(1);
      vi.advanceTimersByTime(300_001);
      expect(await read("message:boo tenant=b")).toEqual(["a boot"]);
      expect(refused()).toBe(2);
    } finally {
      vi.useRealTimers();
    }
  });
});
