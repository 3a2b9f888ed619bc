// The explanation of a query against its reading on a real server: a leaf that the index decides reads only documents that are
// kept, and one that the index cannot narrow reads all.
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { listComparisons } from "#src/log-query/ast.ts";
import { matches } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogQuery } from "#src/store/logs.ts";
import { runWithRecorder } from "#src/telemetry/request-recorder.ts";
import { corpus, dynamicDefinition, mappedDefinition, query } from "../../exactness/corpus.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { never } from "../../support/signals.ts";
import { onServers } from "../selected-servers.ts";

const seed = Number(process.env.SEED ?? 20_240_117);
const start = Date.UTC(2024, 0, 15, 10);

onServers((server) => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = openCluster(server.url);
    await cluster.remove("explain-*");
    const [documents] = fc.sample(corpus, { seed, numRuns: 1 });
    await cluster.createIndex("explain-a", mappedDefinition(server.product, server.version));
    await cluster.createIndex("explain-b", dynamicDefinition);
    await cluster.write("explain-a", addTimes(documents?.mapped ?? []));
    await cluster.write("explain-b", addTimes(documents?.dynamic ?? []));
  });
  afterAll(async () => {
    await cluster.remove("explain-*");
    await cluster.close();
  });

  const buildQuery = (text: string, index: string): LogQuery => ({
    sources: [{ id: "app", index, layout: "ecs", tenantFilter: undefined }],
    range: { from: fromMillis(start), to: fromMillis(start + 3_600_000) },
    filter: parse(text),
    order: "asc",
    expectedLines: 1_000,
    documentLimit: 10_000,
    tieLimit: 10_000,
  });
  async function read(query: LogQuery) {
    const counts = { documents: 0, kept: 0 };
    const recorder = {
      recordRequest: () => {},
      recordSamples: () => {},
      recordDocuments: (part: { documents: number; kept?: number }) => {
        counts.documents += part.documents;
        counts.kept += part.kept ?? 0;
      },
    };
    const lines: LogLine[] = [];
    const signal = new AbortController().signal;
    await runWithRecorder(recorder, async () => {
      for await (const batch of cluster.store.lines(query, signal)) lines.push(...batch);
    });
    return { lines, counts };
  }

  /** Checks one query against all lines of an index. Returns how its only leaf is decided; undefined with several leaves. */
  async function checkQuery(text: string, index: string, everything: readonly LogLine[]) {
    const query = buildQuery(text, index);
    if (listComparisons(query.filter).length !== 1) return undefined;
    const [plan] = (await cluster.store.explain?.(query, never)) ?? [];
    expect(plan).toMatchObject({ layout: "ecs", indices: [index] });
    const [leaf] = plan?.leaves ?? [];
    const { lines, counts } = await read(query);
    const matching = everything.filter((line) => matches(query.filter, line)).length;
    expect([text, lines.length, counts.kept]).toEqual([text, matching, matching]);
    if (leaf?.by === "index") expect([text, counts.documents]).toEqual([text, matching]);
    if (leaf?.by === "documents") expect([text, counts.documents]).toEqual([text, everything.length]);
    return leaf?.by ?? "documents";
  }

  test("reads as many documents as the explanation predicts", { timeout: 600_000 }, async () => {
    const checked = { index: 0, candidates: 0, documents: 0 };
    for (const index of ["explain-a", "explain-b"]) {
      const { lines: everything } = await read(buildQuery("", index));
      expect(everything.length).toBeGreaterThan(10);
      for (const text of fc.sample(query, { seed, numRuns: 300 })) {
        const by = await checkQuery(text, index, everything);
        if (by !== undefined) checked[by] += 1;
      }
    }
    for (const [by, count] of Object.entries(checked)) expect([by, count > 0]).toEqual([by, true]);
  });
});

function addTimes(texts: readonly string[]): [string, string][] {
  return texts.map((text, at) => {
    const time = `"@timestamp":"${new Date(start + at).toISOString()}"`;
    return [`d${at}`, text === "{}" ? `{${time}}` : `{${time},${text.slice(1)}`];
  });
}
