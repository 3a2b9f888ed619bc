// Few lines of large responses: what is kept of them must not keep the responses.
import { expect, test } from "vitest";
import { copyText } from "#resolvers/elastic/document/copied-text.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { findCollector } from "../../../support/garbage.ts";
import { openScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const metadata = {
  "logs-1": {
    mappings: { properties: { "@timestamp": { type: "date" }, message: { type: "text" } } },
    settings: { index: { number_of_shards: "1", version: { created: "8190899" } } },
  },
};

const pages = 60;
const hitsPerPage = 1_000;
const responseChars = 2_000_000;

/** Of each response one document is a line that is asked for. */
function printPage(page: number): string {
  const filler = "x".repeat(responseChars / hitsPerPage);
  const hits = Array.from({ length: page < pages ? hitsPerPage : 0 }, (_, n) => {
    const message = `${n === 500 ? "wanted" : "other"} line ${page}-${n} ${filler}`;
    return { _index: "logs-1", _id: `${page}-${n}`, _source: { message }, sort: [1_000] };
  });
  const total = { value: pages * hitsPerPage, relation: "eq" };
  return JSON.stringify({
    _scroll_id: "s",
    timed_out: false,
    _shards: { total: 1, failed: 0 },
    hits: { total, hits },
  });
}

function measureMemory(): number {
  findCollector()();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

test("lines that are few of a response do not hold it", async () => {
  let page = 0;
  const source = await openScriptedSource((response, request, body) => {
    if (request.url === "/") return sendJson(response, { version: { number: "8.19.8" } });
    if (request.url?.includes("scroll") && request.method !== "DELETE")
      return sendJson(response, printPage(page++));
    if (!request.url?.includes("_search")) return sendJson(response, metadata);
    const { size } = JSON.parse(body) as { size?: number };
    const hits = { hits: Array.from({ length: size ?? 0 }, (_, n) => toHit(n)) };
    sendJson(response, { timed_out: false, _shards: { total: 1, failed: 0 }, hits });
  });
  const toHit = (n: number) => ({ _index: "logs-1", _id: `a${n}`, _source: { message: "m" }, sort: [1_000] });
  const cluster = openCluster(source.url);
  const query = {
    sources: [{ id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined }],
    range: { from: fromMillis(1_000), to: fromMillis(1_000) },
    filter: parse("message:wanted"),
    order: "asc",
    expectedLines: 100,
    documentLimit: 1_000_000,
    tieLimit: 1_000_000,
  } as const;
  try {
    const before = measureMemory();
    const lines: LogLine[] = [];
    for await (const batch of cluster.store.lines(query, never)) lines.push(...batch);
    expect(lines).toHaveLength(pages);
    await expect.poll(() => measureMemory() - before).toBeLessThan((pages * responseChars) / 2);
    expect(lines[0]?.message).toMatch(/^wanted line 0-500 x+$/);
  } finally {
    await cluster.close();
    await source.close();
  }
}, 120_000);

test.each([
  "",
  "short",
  "thirteen char",
  "größer als dreizehn",
  "語 and \u{1f600}, a lone \ud800 and \udc00",
])("a copy is the same text: %j", (text) => {
  expect(copyText(text)).toBe(text);
});
