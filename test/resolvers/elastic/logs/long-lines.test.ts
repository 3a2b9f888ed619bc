// Lines of hundreds of kilobytes, as applications log bodies of requests.
import { afterEach, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { countTurns } from "../../../support/event-loop-turns.ts";
import { testIO } from "../../../support/io.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

let fake: ScriptedSource | undefined;
afterEach(async () => {
  await fake?.close();
});

/** Serves one line with this message. */
async function serveLine(message: string): Promise<string> {
  fake = await openScriptedSource((response, { url = "" }) => {
    if (url === "/") return sendJson(response, { version: { number: "8.19.8" } });
    if (!url.includes("/_search")) {
      const properties = { "@timestamp": { type: "date" }, message: { type: "text" } };
      const settings = { index: { number_of_shards: "1", version: { created: "8190899" } } };
      return sendJson(response, { "logs-1": { mappings: { properties }, settings } });
    }
    const hits = [{ _index: "logs-1", _id: "a", _source: { message }, sort: [500] }];
    return sendJson(response, { timed_out: false, _shards: { total: 1, failed: 0 }, hits: { hits } });
  });
  return fake.url;
}

test("a filter of many comparisons lets other work run while it looks at one line", async () => {
  const url = await serveLine(`${"lorem ipsum ".repeat(30_000)} end`);
  const backend = elastic.create("elk", elastic.parseConfig({ url, timeout: "60s" }), testIO);
  try {
    const comparisons = Array.from({ length: 400 }, (_, n) => `message:mx${n}`);
    const query = {
      sources: [{ id: "s", index: "logs-1", layout: "ecs", tenantFilter: undefined }] as const,
      filter: parse([...comparisons, 'message:" end"'].join(" OR ")),
      order: "desc" as const,
      range: { from: fromMillis(0), to: fromMillis(1_000) },
      expectedLines: 1,
      documentLimit: 1_000,
      tieLimit: 1_000,
    };
    const found: string[] = [];
    const turns = await countTurns(async () => {
      for await (const lines of backend.stores.logs?.lines(query, never) ?? [])
        found.push(...lines.map(({ id }) => id));
    });
    expect(found).toHaveLength(1);
    expect(turns).toBeGreaterThanOrEqual(190);
  } finally {
    await backend.close();
  }
});
