// Live tails and exports on real servers: documents that arrive during a tail, an index with a long refresh interval, and a
// client that reconnects. The expected lines follow from what was written.
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Principal } from "#src/access/auth.ts";
import { defaults } from "#src/config/schema.ts";
import { createHeldLedger } from "#src/core/async/held-bytes.ts";
import { fromMillis, now } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { ndjson } from "#src/operations/logs/export.ts";
import { lines } from "#src/operations/logs/lines.ts";
import type { Context } from "#src/operations/runtime/operation.ts";
import { createTailRegistry, createTailSlots } from "#src/tail/tail-registry.ts";
import { filebeat, printDocument } from "../../support/elastic/filebeat.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { never } from "../../support/signals.ts";
import { readEvents } from "../../tail/harness.ts";
import { onServers } from "../selected-servers.ts";

/** Far longer than documents take to become searchable, even on a busy machine. */
const lateness = 24_000;
const ana: Principal = {
  user: "ana",
  token: "ana",
  account: "ana",
  maySee: () => true,
  hasScope: () => true,
};

onServers((server) => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = openCluster(server.url);
    await cluster.remove("tail-*");
  });
  afterAll(async () => {
    await cluster.remove("tail-*");
    await cluster.close();
  });

  function follow(index: string) {
    const tails = createTailRegistry({
      limits: { ...defaults.limits, tail: { ...defaults.limits.tail, lateness } },
      slots: createTailSlots(),
      held: createHeldLedger(),
      now,
      pause: (length, signal) => delay(length, undefined, { signal }).catch(() => {}),
      log: () => {},
    });
    return async (query: string, from: number, resume?: string) => {
      const gone = new AbortController();
      const chunks = await tails.open(
        {
          store: cluster.store,
          sources: [{ id: "app", index, layout: "ecs", tenantFilter: undefined }],
          filter: parse(query),
          from: fromMillis(from),
          to: undefined,
        },
        {
          principal: ana,
          lastEventId: resume,
          clientGone: gone.signal,
          takePlace: () => () => {},
          onClose: () => {},
        },
      );
      let text = "";
      const reading = (async () => {
        for (let next = await chunks.next(); next.done !== true; next = await chunks.next())
          text += next.value;
      })().catch(() => {});
      return {
        lines: () =>
          readEvents(text).flatMap(({ event, data }) => (event === "line" ? [String(data.message)] : [])),
        lastId: () =>
          text
            .match(/^id: (.*)$/gm)
            ?.at(-1)
            ?.slice(4),
        leave: async () => {
          gone.abort(new Error("left"));
          await reading;
        },
      };
    };
  }

  test("tails late lines once per connection over a slow refresh and a reconnect", async () => {
    const { settings, mappings } = filebeat;
    await cluster.createIndex("tail-live-1", { settings: { ...settings, refresh_interval: "3s" }, mappings });
    const open = follow("tail-live-*");
    const begin = Date.now();
    const written: { readonly message: string; readonly red: boolean }[] = [];
    /** Documents are up to 2 s old when written, and searchable up to 3 s later. */
    const write = async (round: number): Promise<void> => {
      const body = Array.from({ length: 40 }, (_, n) => {
        const late = (n * 487) % 2_000;
        const time = Math.max(begin, Date.now() - late);
        const red = n % 3 === 0;
        const message = `${red ? "red" : "blue"} ${round}-${n}`;
        written.push({ message, red });
        // Some share a millisecond, and an index appears in the middle.
        const index = round >= 5 ? "tail-live-2" : "tail-live-1";
        return `${JSON.stringify({ create: { _index: index } })}\n${printDocument({ time: new Date(time).toISOString(), message, json: "{}" })}\n`;
      });
      await cluster.request("POST", "/_bulk", body.join(""));
    };
    const complete = await open("", begin);
    const red = await open("message:red", begin);
    const first = await open("", begin);
    for (let round = 0; round < 4; round += 1) await Promise.all([write(round), delay(1_000)]);
    await first.leave();
    await cluster.createIndex("tail-live-2", { settings: { ...settings, refresh_interval: "3s" }, mappings });
    for (let round = 4; round < 7; round += 1) await Promise.all([write(round), delay(1_000)]);
    const second = await open("", begin, first.lastId());
    for (let round = 7; round < 9; round += 1) await Promise.all([write(round), delay(1_000)]);
    const all = written.map(({ message }) => message).sort();
    const arrived = () => [complete, red].map((client) => client.lines().length);
    const awaited = [all.length, written.filter((line) => line.red).length];
    await expect.poll(() => arrived(), { timeout: 2 * lateness }).toEqual(awaited);
    // The tail reads its complete lateness window again, and must not repeat a line.
    await delay(lateness / 4 + 3_000);
    expect(complete.lines().toSorted()).toEqual(all);
    expect(red.lines().toSorted()).toEqual(written.flatMap((line) => (line.red ? line.message : [])).sort());
    expect(second.lines().length).toBe(new Set(second.lines()).size);
    expect(first.lines().length).toBeGreaterThan(0);
    expect([...new Set([...first.lines(), ...second.lines()])].sort()).toEqual(all);
    for (const client of [complete, red, second]) await client.leave();
  });

  test("exports the concatenation of all pages", async () => {
    await cluster.createIndex("tail-export", filebeat);
    const day = Date.UTC(2024, 0, 15);
    const times = Array.from(
      { length: 4_000 },
      (_, n) => day + (n < 2_500 ? n : 10_000 + Math.floor(n / 700)),
    );
    await cluster.write(
      "tail-export",
      times.map((time, n) => [
        `n${n}`,
        printDocument({ time: new Date(time).toISOString(), message: `line ${n}`, json: `{"n":${n}.0}` }),
      ]),
    );
    const source = { id: "app", index: "tail-export", layout: "ecs", tenantFilter: undefined };
    const logs = { backend: "elk", store: cluster.store, sources: new Map([["app", source]]) };
    const context: Context = {
      user: "ana",
      sites: new Map([["shop", { id: "shop", retention: 0, counterDefault: "cumulative", logs }]]),
      limits: { ...defaults.limits, documents: 10_000 },
      now: () => fromMillis(day),
      signal: never,
    };
    const request = (time: string | null) =>
      lines.request.parse({
        site_id: "shop",
        source_ids: ["app"],
        query: "n>=10",
        from: "2024-01-15T00:00:00Z",
        to: "2024-01-15T23:59:59Z",
        pagination: { per_page: 999, order: "DESC", cursor: { time } },
      });
    const pages: { readonly timestamp: string }[] = [];
    for (let cursor: string | null = null; ; ) {
      const answer = lines.run(request(cursor), context);
      if (!(Symbol.asyncIterator in answer)) throw new Error("expected rows");
      const page: { readonly timestamp: string }[] = [];
      for await (const { text } of answer) page.push(...JSON.parse(`[${text}]`));
      pages.push(...page);
      if (page.length < 999) break;
      cursor = page.at(-1)?.timestamp ?? null;
    }
    expect(pages).toHaveLength(3_990);
    const exported = ndjson.run(request(null), context);
    if (!("pieces" in exported)) throw new Error("expected pieces");
    let text = "";
    for await (const piece of exported.pieces) text += piece.text;
    expect(text).toBe(pages.map((row) => `${JSON.stringify(row)}\n`).join(""));
    const refused = ndjson.run(request(null), { ...context, limits: { ...context.limits, export: 1_000 } });
    if (!("pieces" in refused)) throw new Error("expected pieces");
    await expect(refused.pieces[Symbol.asyncIterator]().next()).rejects.toMatchObject({
      slug: "result_too_large",
    });
  });
});
