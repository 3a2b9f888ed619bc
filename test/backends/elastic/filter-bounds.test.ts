// Each bound of a compiled filter by itself: what the index finds for `lower` satisfies the filter, and what satisfies it
// is found for `upper`. Answers alone would not show it, since every line is verified before it is answered.
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describeProduct } from "#resolvers/elastic/client/product.ts";
import type { Query } from "#resolvers/elastic/client/query-dsl.ts";
import { logLayouts } from "#resolvers/elastic/layout/log-layout.ts";
import { readIndexMetadata } from "#resolvers/elastic/mapping/index-metadata.ts";
import { compileBounds } from "#resolvers/elastic/query/filter-compiler.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { matches } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import { corpus, dynamicDefinition, mappedDefinition, query } from "../../exactness/corpus.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { onServers } from "../selected-servers.ts";

const seed = Number(process.env.SEED ?? 20_240_116);
const rounds = Number(process.env.ROUNDS ?? 3);
const each = 120;
const start = Date.UTC(2024, 0, 15, 10);

onServers((server) => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = openCluster(server.url);
    await cluster.remove("bounds-*");
  });
  afterAll(async () => {
    await cluster.remove("bounds-*");
    await cluster.close();
  });

  /** By the store without a filter, which compiles nothing. */
  async function scan(pattern: string): Promise<LogLine[]> {
    const found: LogLine[] = [];
    const range = { from: fromMillis(start), to: fromMillis(start + 3_600_000) };
    const limits = { expectedLines: 1_000, documentLimit: 10_000, tieLimit: 10_000 };
    const sources = [{ id: "app", index: pattern, layout: "ecs" }] as const;
    const lines = cluster.store.lines(
      { sources, range, filter: parse(""), order: "asc", ...limits },
      AbortSignal.timeout(60_000),
    );
    for await (const batch of lines) found.push(...batch);
    return found;
  }
  async function hits(indices: readonly string[], filter: Query): Promise<ReadonlySet<string>> {
    const body = { size: 1_000, _source: false, query: { bool: { filter: [filter] } } };
    const path = `/${indices.join(",")}/_search?allow_partial_search_results=false`;
    const answer = await cluster.request("POST", path, JSON.stringify(body));
    const found = (answer as { hits: { hits: { _index: string; _id: string }[] } }).hits.hits;
    return new Set(found.map(({ _index, _id }) => `${_index}/${_id}`));
  }

  test("compiles a lower bound within the meaning and an upper bound around it", {
    timeout: 900_000,
  }, async () => {
    const ecs = logLayouts.get("ecs");
    if (ecs === undefined) throw new Error("no profile ecs");
    const product = describeProduct(
      server.product === "elasticsearch" ? "Elasticsearch" : "OpenSearch",
      server.version,
    );
    const queries = fc.sample(query, { seed, numRuns: rounds * each });
    const told = { lower: 0, narrowed: 0 };
    for (const [round, documents] of fc.sample(corpus, { seed, numRuns: rounds }).entries()) {
      // New names: the store may remember a mapping by the old ones.
      const indices = [`bounds-${round}-a`, `bounds-${round}-b`] as const;
      await cluster.createIndex(indices[0], mappedDefinition(server.product, server.version));
      await cluster.createIndex(indices[1], dynamicDefinition);
      await cluster.write(indices[0], stamped(documents.mapped));
      await cluster.write(indices[1], stamped(documents.dynamic));
      const lines = await scan(`bounds-${round}-*`);
      expect(lines).toHaveLength(documents.mapped.length + documents.dynamic.length);
      const { groups } = readIndexMetadata(await cluster.request("GET", `/bounds-${round}-*`));
      for (const text of queries.slice(round * each, (round + 1) * each)) {
        const filter = parse(text);
        for (const group of groups) {
          const { lower, upper } = compileBounds(filter, group, ecs, product);
          const [sure, possible] = await Promise.all([
            hits(group.indices, lower),
            hits(group.indices, upper),
          ]);
          const own = lines.filter(({ id }) => group.indices.some((index) => id.startsWith(`${index}/`)));
          const wrong = own.filter((line) => sure.has(line.id) && !matches(filter, line));
          const lost = own.filter((line) => !possible.has(line.id) && matches(filter, line));
          expect({ text, wrong: wrong.map(shown), lost: lost.map(shown) }).toEqual({
            text,
            wrong: [],
            lost: [],
          });
          if (sure.size > 0) told.lower += 1;
          if (possible.size < own.length) told.narrowed += 1;
        }
      }
    }
    // Bounds that say nothing would hold as well.
    expect(told.lower).toBeGreaterThan((rounds * each) / 20);
    expect(told.narrowed).toBeGreaterThan((rounds * each) / 4);
  });
});

const shown = ({ id, json }: LogLine): string => `${id} ${json}`;

function stamped(texts: readonly string[]): [string, string][] {
  return texts.map((text, at) => {
    const time = `"@timestamp":"${new Date(start + at).toISOString()}"`;
    return [`d${at}`, text === "{}" ? `{${time}}` : `{${time},${text.slice(1)}`];
  });
}
