// A tail over the Elasticsearch store and a fake server on loopback. Documents become searchable late, the server fails
// in several ways, and polling stops without tails. Time runs fifty times as fast.
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { defaults } from "#src/config/schema.ts";
import { createHeldLedger } from "#src/core/async/held-bytes.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { createTailRegistry, createTailSlots } from "#src/tail/tail-registry.ts";
import { testIO } from "../support/io.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../support/scripted-http-source.ts";
import { ana, base, readEvents } from "./harness.ts";

const speed = 50;
const mapped = {
  "logs-1": {
    mappings: { properties: { "@timestamp": { type: "date" }, message: { type: "text" } } },
    settings: { index: { number_of_shards: "1", version: { created: "8190899" } } },
  },
};

let fake: ScriptedSource | undefined;
afterEach(() => fake?.close());

/** The part of a search body that the fake server supports. */
interface Search {
  readonly size: number;
  readonly query: {
    readonly bool: {
      readonly filter: readonly {
        readonly range?: Record<string, { readonly gte: string; readonly lte: string }>;
      }[];
    };
  };
}

test("a tail over Elasticsearch delivers late documents and survives a failing source", async () => {
  const begin = performance.now();
  const now = () => base + Math.floor((performance.now() - begin) * speed);
  const held: { readonly id: string; readonly time: number; readonly visible: number }[] = [];
  let failure: "none" | "overloaded" | "partial" | "gone" = "none";
  fake = await openScriptedSource((response, request, body) => {
    const path = request.url ?? "";
    if (path === "/") return sendJson(response, { version: { number: "8.19.8" } });
    if (!path.includes("/_search")) return sendJson(response, mapped);
    if (failure === "overloaded") return sendJson(response, { error: "busy" }, 503);
    if (failure === "gone") return response.destroy();
    const { size, query }: Search = JSON.parse(body);
    const { gte, lte } = query.bool.filter.find(({ range }) => range)?.range?.["@timestamp"] ?? {
      gte: "",
      lte: "",
    };
    const hits = held
      .filter(({ time, visible }) => visible <= now() && time >= Date.parse(gte) && time <= Date.parse(lte))
      .sort((a, b) => a.time - b.time)
      .slice(0, size)
      .map(({ id, time }) => ({
        _index: "logs-1",
        _id: id,
        sort: [time],
        _source: { "@timestamp": new Date(time).toISOString(), message: id },
      }));
    const failed = failure === "partial" ? 1 : 0;
    const shards = { total: 1, successful: 1 - failed, skipped: 0, failed };
    sendJson(response, { took: 1, timed_out: false, _shards: shards, hits: { hits } });
  });
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
  const store = backend.stores.logs;
  if (store === undefined) throw new Error("no log store");
  const tails = createTailRegistry({
    limits: { ...defaults.limits, tail: { ...defaults.limits.tail, lateness: 20_000 } },
    slots: createTailSlots(),
    held: createHeldLedger(),
    now: () => fromMillis(now()),
    pause: (length, signal) => sleep(length / speed, undefined, { signal }).catch(() => {}),
    log: () => {},
  });
  const gone = new AbortController();
  const sources = [{ id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined }] as const;
  const chunks = await tails.open(
    { store, sources, filter: parse(""), from: fromMillis(base), to: undefined },
    {
      principal: ana,
      lastEventId: undefined,
      clientGone: gone.signal,
      takePlace: () => () => {},
      onClose: () => {},
    },
  );
  let text = "";
  const reading = (async () => {
    for (let next = await chunks.next(); next.done !== true; next = await chunks.next()) text += next.value;
  })().catch(() => {});
  // Loading the client may take many of these accelerated seconds.
  const start = now();

  for (let n = 0; n < 400; n += 1) {
    const time = start + n * 100;
    held.push({ id: `l${n}`, time, visible: time + ((n * 7_919) % 15_000) });
  }
  const told = () => readEvents(text).flatMap(({ event, data }) => (event === "retry" ? [data.error] : []));
  for (const [kind, sentence] of [
    ["overloaded", "A data source is overloaded"],
    ["partial", "A data source answered only in part"],
    ["gone", "A data source cannot be reached"],
  ] as const) {
    await sleep(4_000 / speed);
    failure = kind;
    await expect.poll(told).toContain(sentence);
    failure = "none";
  }
  const lines = () => readEvents(text).flatMap(({ event, data }) => (event === "line" ? [data.message] : []));
  await expect.poll(() => lines().length).toBeGreaterThanOrEqual(400);
  expect(lines().toSorted()).toEqual(held.map(({ id }) => id).sort());
  gone.abort(new Error("left"));
  await reading;
  await sleep(50);
  const asked = fake.requests.length;
  await sleep(5_000 / speed);
  expect(fake.requests.length).toBe(asked);
  await backend.close();
});
