// What a store sends to its source carries the client's request, whatever signals it makes on the way.
import { afterEach, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { combineSignals, noteClientRequest, noteSameRequest } from "#src/core/async/concurrency.ts";
import { createReadProgress } from "#src/core/async/read-progress.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { testIO } from "../support/io.ts";
import { buildSeriesQuery, openFakePrometheus } from "../support/prometheus/scripted-server.ts";
import { openScriptedSource, sendJson } from "../support/scripted-http-source.ts";

const cleanup: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of cleanup.splice(0)) await close();
});

/** The signal of a request, by way of one that follows it, and what is known of its progress. */
function startClientRequest() {
  const { signal } = new AbortController();
  const progress = createReadProgress();
  noteClientRequest(signal, { account: "ana", progress });
  const following = new AbortController();
  noteSameRequest(following.signal, signal);
  return { signal: combineSignals(following.signal, new AbortController().signal), progress };
}

test("searches for log lines", async () => {
  const mappings = { properties: { "@timestamp": { type: "date" }, message: { type: "text" } } };
  const settings = { index: { number_of_shards: "1", version: { created: "8190899" } } };
  const source = await openScriptedSource((response, { url }) => {
    if (url === "/") return sendJson(response, { version: { number: "8.19.8" } });
    if (!url?.includes("_search")) return sendJson(response, { "logs-1": { mappings, settings } });
    sendJson(response, {
      took: 1,
      timed_out: false,
      _shards: { total: 1, successful: 1, skipped: 0, failed: 0 },
      hits: { hits: [] },
    });
  });
  const backend = elastic.create("elk", elastic.parseConfig({ url: source.url }), testIO);
  cleanup.push(backend.close, source.close);
  const read = async () => {
    const { signal, progress } = startClientRequest();
    const sent = source.requests.length;
    const lines = backend.stores.logs?.lines(
      {
        sources: [{ id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined }],
        range: { from: fromMillis(0), to: fromMillis(10_000) },
        filter: parse(""),
        order: "asc",
        expectedLines: 10,
        documentLimit: 100,
        tieLimit: 100,
      },
      signal,
    );
    for await (const _ of lines ?? []);
    return { answered: progress.answered, sent: source.requests.length - sent };
  };
  // The first one reads what all share.
  await read();
  expect(await read()).toEqual({ answered: 1, sent: 1 });
});

test("queries for series", async () => {
  const source = await openFakePrometheus();
  const backend = source.open();
  cleanup.push(backend.close, source.close);
  const read = async () => {
    const { signal, progress } = startClientRequest();
    const sent = source.requests.length;
    await backend.stores.metrics?.series(buildSeriesQuery(), signal);
    return { answered: progress.answered, sent: source.requests.length - sent };
  };
  await read();
  const { answered, sent } = await read();
  expect(answered).toBe(sent);
  expect(sent).toBeGreaterThan(0);
});
