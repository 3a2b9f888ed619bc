// The law that matters most: what the store finds for a query is what `matches` keeps of everything it holds.
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { matches } from "#src/logql/matches.ts";
import { parse } from "#src/logql/parse.ts";
import type { LogLine } from "#src/model.ts";
import type { LogQuery } from "#src/store.ts";
import { fromMillis } from "#src/time.ts";
import { type Cluster, openCluster } from "../support/cluster.ts";
import { corpus, dynamicDefinition, mappedDefinition, query } from "./corpus.ts";
import { named } from "./named.ts";

const start = Date.UTC(2024, 0, 15, 10);
const rounds = Number(process.env.ROUNDS ?? 4);

describe.each(named())("$name", (server) => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = openCluster(server.url);
  });
  afterAll(() => cluster.close());

  async function read(text: string, over: Partial<LogQuery> = {}): Promise<LogLine[]> {
    const lines: LogLine[] = [];
    const batches = cluster.store.lines(
      {
        sources: [{ id: "app", index: "exact-*", profile: "ecs" }],
        range: { from: fromMillis(start), to: fromMillis(start + 3_600_000) },
        filter: parse(text),
        order: "asc",
        wanted: 100,
        documentLimit: 100_000,
        tieLimit: 100_000,
        ...over,
      },
      AbortSignal.timeout(60_000),
    );
    for await (const batch of batches) lines.push(...batch);
    return lines;
  }

  test("a query finds exactly what matches keeps of a full scan", { timeout: 900_000 }, async () => {
    const seed = Number(process.env.SEED ?? 20_240_115);
    const corpora = fc.sample(corpus, { seed, numRuns: rounds });
    const queries = fc.sample(query, { seed, numRuns: rounds * 150 });
    for (const [round, documents] of corpora.entries()) {
      cluster = openCluster(server.url);
      await cluster.remove("exact-*");
      await cluster.createIndex("exact-a", mappedDefinition(server.product, server.version));
      await cluster.createIndex("exact-b", dynamicDefinition);
      await cluster.write("exact-a", stamped(documents.mapped));
      await cluster.write("exact-b", stamped(documents.dynamic));
      const everything = await read("");
      expect(everything).toHaveLength(documents.mapped.length + documents.dynamic.length);
      for (const text of queries.slice(round * 150, (round + 1) * 150)) {
        const filter = parse(text);
        const found = await read(text).catch((error) => {
          throw new Error(`${server.name}: ${text}: ${error.message}`, { cause: error });
        });
        const wanted = everything.filter((line) => matches(filter, line));
        const missing = wanted.filter((line) => !found.some(({ id }) => id === line.id));
        const extra = found.filter((line) => !wanted.some(({ id }) => id === line.id));
        // Compact: a whole corpus in a failure's text hides what differs.
        expect({ text, missing: missing.map(shown), extra: extra.map(shown) }).toEqual({
          text,
          missing: [],
          extra: [],
        });
        expect(found.map(({ id }) => id)).toEqual(wanted.map(({ id }) => id));
      }
    }
  });
});

const shown = ({ id, json }: LogLine): string => `${id} ${json}`;

/** Documents three to a millisecond. */
function stamped(texts: readonly string[]): [string, string][] {
  return texts.map((text, at) => {
    const time = new Date(start + Math.floor(at / 3)).toISOString();
    return [
      `d${at}`,
      text === "{}" ? `{"@timestamp":"${time}"}` : `{"@timestamp":"${time}",${text.slice(1)}`,
    ];
  });
}
