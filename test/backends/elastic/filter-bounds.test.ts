// Each bound of a compiled filter by itself: every hit of `lower` satisfies the filter, and every line that satisfies it is
// a hit of `upper`. Responses of the store would not show it, since every line is verified before it is answered.
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describeProduct } from "#resolvers/elastic/client/product.ts";
import type { Query } from "#resolvers/elastic/client/query-dsl.ts";
import { logLayouts } from "#resolvers/elastic/layout/log-layout.ts";
import type { IndexGroup } from "#resolvers/elastic/mapping/mapping.ts";
import { compileBounds } from "#resolvers/elastic/query/filter-compiler.ts";
import { requireKey } from "#src/core/collections.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { matches } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import { type Corpus, corpus, dynamicDefinition, mappedDefinition, query } from "../../exactness/corpus.ts";
import { readIndexMetadata } from "../../support/elastic/index-metadata.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { never } from "../../support/signals.ts";
import { onServers } from "../selected-servers.ts";

const seed = Number(process.env.SEED ?? 20_240_116);
const rounds = Number(process.env.ROUNDS ?? 3);
const each = 120;
const start = Date.UTC(2024, 0, 15, 10);

const ecs = requireKey(logLayouts, "ecs");

onServers((server) => {
  const product = describeProduct(
    server.product === "elasticsearch" ? "Elasticsearch" : "OpenSearch",
    server.version,
  );
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = openCluster(server.url);
    await cluster.remove("bounds-*");
  });
  afterAll(async () => {
    await cluster.remove("bounds-*");
    await cluster.close();
  });

  /** Reads all lines by the store without a filter, which compiles nothing. */
  async function scan(pattern: string): Promise<LogLine[]> {
    const found: LogLine[] = [];
    const range = { from: fromMillis(start), to: fromMillis(start + 3_600_000) };
    const limits = { expectedLines: 1_000, documentLimit: 10_000, tieLimit: 10_000 };
    const sources = [{ id: "app", index: pattern, layout: "ecs", tenantFilter: undefined }] as const;
    const lines = cluster.store.lines({ sources, range, filter: parse(""), order: "asc", ...limits }, never);
    for await (const batch of lines) found.push(...batch);
    return found;
  }
  async function findHits(indices: readonly string[], filter: Query): Promise<ReadonlySet<string>> {
    const body = { size: 1_000, _source: false, query: { bool: { filter: [filter] } } };
    const path = `/${indices.join(",")}/_search?allow_partial_search_results=false`;
    const answer = await cluster.request("POST", path, JSON.stringify(body));
    const found = (answer as { hits: { hits: { _index: string; _id: string }[] } }).hits.hits;
    return new Set(found.map(({ _index, _id }) => `${_index}/${_id}`));
  }

  /** Fills two indices and returns their lines and mappings. */
  async function load(round: number, documents: Corpus) {
    // New names: the store may remember a mapping by the old ones.
    const indices = [`bounds-${round}-a`, `bounds-${round}-b`] as const;
    await cluster.createIndex(indices[0], mappedDefinition(server.product, server.version));
    await cluster.createIndex(indices[1], dynamicDefinition);
    await cluster.write(indices[0], addTimes(documents.mapped));
    await cluster.write(indices[1], addTimes(documents.dynamic));
    const lines = await scan(`bounds-${round}-*`);
    expect(lines).toHaveLength(documents.mapped.length + documents.dynamic.length);
    const { groups } = readIndexMetadata(await cluster.request("GET", `/bounds-${round}-*`));
    return { lines, groups };
  }

  /** Checks both bounds in one group. Returns whether each of them excludes something. */
  async function checkBounds(text: string, group: IndexGroup, lines: readonly LogLine[]) {
    const filter = parse(text);
    const { lower, upper } = compileBounds(filter, group, ecs, product);
    const [certain, possible] = await Promise.all([
      findHits(group.indices, lower),
      findHits(group.indices, upper),
    ]);
    const own = lines.filter(({ id }) => group.indices.some((index) => id.startsWith(`${index}/`)));
    const wrong = own.filter((line) => certain.has(line.id) && !matches(filter, line));
    const missing = own.filter((line) => !possible.has(line.id) && matches(filter, line));
    expect({ text, wrong: wrong.map(printLine), missing: missing.map(printLine) }).toEqual({
      text,
      wrong: [],
      missing: [],
    });
    return { hasCertain: certain.size > 0, isNarrowed: possible.size < own.length };
  }

  test("compiles a lower bound within the meaning and an upper bound around it", {
    timeout: 900_000,
  }, async () => {
    const queries = fc.sample(query, { seed, numRuns: rounds * each });
    const checked = { lower: 0, narrowed: 0 };
    for (const [round, documents] of fc.sample(corpus, { seed, numRuns: rounds }).entries()) {
      const { lines, groups } = await load(round, documents);
      for (const text of queries.slice(round * each, (round + 1) * each)) {
        for (const group of groups) {
          const { hasCertain, isNarrowed } = await checkBounds(text, group, lines);
          if (hasCertain) checked.lower += 1;
          if (isNarrowed) checked.narrowed += 1;
        }
      }
    }
    // Bounds that exclude nothing would pass as well.
    expect(checked.lower).toBeGreaterThan((rounds * each) / 20);
    expect(checked.narrowed).toBeGreaterThan((rounds * each) / 4);
  });
});

const printLine = ({ id, json }: LogLine): string => `${id} ${json}`;

function addTimes(texts: readonly string[]): [string, string][] {
  return texts.map((text, at) => {
    const time = `"@timestamp":"${new Date(start + at).toISOString()}"`;
    return [`d${at}`, text === "{}" ? `{${time}}` : `{${time},${text.slice(1)}`];
  });
}
