// An index that is deleted during a read, over a search server in memory. Its lines would be missing silently, even where
// the next search cannot reveal it.
import { describe, expect, test } from "vitest";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { createFakeSearch, type FakeIndex } from "../../../support/elastic/fake-cluster.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";
import { readSettledCount } from "../../../support/waits.ts";

const held = (from: number) => ({
  mappings: { properties: { "@timestamp": { type: "date" }, message: { type: "text" } } },
  documents: Array.from({ length: 3_000 }, (_, n) => ({
    "@timestamp": new Date(from + n).toISOString(),
    message: "m",
  })),
});
const old = held(1_000);
const young = held(1_001);
const coming = held(1_000_000);

const cases: [string, Readonly<Record<string, FakeIndex>>, boolean][] = [
  ["while another appears", { "logs-2": young, "logs-3": coming }, false],
  ["and another reader noticed it first", { "logs-2": young }, true],
  ["and recreated with other documents", { "logs-1": { ...old, uuid: "other" }, "logs-2": young }, false],
];
describe("log store", () => {
  test.each(cases)(
    "fails the read with `partial` when an index is deleted %s",
    async (_, left, otherReads) => {
      let search = createFakeSearch({ "logs-1": old, "logs-2": young }, "Elasticsearch");
      const fake = await openScriptedSource((...request) => search.reply(...request));
      const cluster = openCluster(fake.url);
      const read = (expectedLines: number) =>
        cluster.store.lines(
          {
            sources: [{ id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined }],
            range: { from: fromMillis(0), to: fromMillis(100_000) },
            filter: parse(""),
            order: "asc",
            expectedLines,
            documentLimit: 100_000,
            tieLimit: 10_000,
          },
          never,
        );
      try {
        const reading = read(2_000_000_000)[Symbol.asyncIterator]();
        await reading.next();
        // Let the prefetched search complete first.
        await readSettledCount(() => fake.requests.length);
        search = createFakeSearch(left, "Elasticsearch");
        if (otherReads) for await (const _ of read(10)) break;
        const rest = async () => {
          for (let next = await reading.next(); next.done !== true; next = await reading.next());
        };
        await expect(rest()).rejects.toMatchObject({
          failure: "partial",
          message: "index logs-1 of logs-* was deleted or recreated during the read",
        });
      } finally {
        await cluster.close();
        await fake.close();
      }
    },
  );
});
