// Exports send the next search before the last response is decoded. Each search covers a limited window of the range, and
// asks for a limited size in bytes.
import fc from "fast-check";
import { afterEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { elastic } from "#resolvers/elastic/elastic.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis, parseInstant, toMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogQuery } from "#src/store/logs.ts";
import { testIO } from "../../../support/io.ts";
import { sampleRuns } from "../../../support/law-runs.ts";
import {
  openScriptedSource,
  type Responder,
  type ScriptedSource,
  sendJson,
} from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const index = {
  "logs-1": {
    mappings: { properties: { "@timestamp": { type: "date" }, message: { type: "text" } } },
    settings: { index: { number_of_shards: "1", version: { created: "8190899" } } },
  },
};

/** The part of a search body that these tests look at. */
const range = z.object({ "@timestamp": z.object({ gte: z.string(), lte: z.string() }) });
const search = z.object({
  size: z.number(),
  query: z.object({ bool: z.object({ filter: z.array(z.looseObject({ range: range.optional() })) }) }),
  sort: z.tuple([z.object({ "@timestamp": z.looseObject({ order: z.enum(["asc", "desc"]) }) })]),
});

interface Asked {
  readonly size: number;
  readonly order: "asc" | "desc";
  /** Inclusive milliseconds. */
  readonly from: number;
  readonly to: number;
}
function readSearch(body: string): Asked {
  const { size, query, sort } = search.parse(JSON.parse(body));
  const bounds = query.bool.filter.find((one) => one.range !== undefined)?.range?.["@timestamp"];
  const millis = (text: string | undefined) => toMillis(parseInstant(text ?? "") ?? fromMillis(0));
  return { size, order: sort[0]["@timestamp"].order, from: millis(bounds?.gte), to: millis(bounds?.lte) };
}

/** Answers a search over lines at these milliseconds, with ascending ids. */
function find(times: readonly number[], body: string, text = ""): string {
  const { size, order, from, to } = readSearch(body);
  const found = times
    .map((at, n) => ({ at, id: `l${n}` }))
    .filter(({ at }) => at >= from && at <= to)
    .sort((a, b) => (order === "asc" ? a.at - b.at : b.at - a.at))
    .slice(0, size)
    .map(({ at, id }) => ({ _index: "logs-1", _id: id, _source: { message: id + text }, sort: [at] }));
  return JSON.stringify({ timed_out: false, _shards: { total: 1, failed: 0 }, hits: { hits: found } });
}

let fake: ScriptedSource | undefined;
afterEach(async () => {
  await fake?.close();
  fake = undefined;
});

/** `reply` answers the nth search, counted from 0. */
async function serve(reply: (n: number, ...asked: Parameters<Responder>) => void): Promise<ScriptedSource> {
  let searches = 0;
  fake = await openScriptedSource((response, request, body) => {
    if (request.url === "/") sendJson(response, { version: { number: "8.19.8" } });
    else if (request.url?.includes("/_search")) reply(searches++, response, request, body);
    else sendJson(response, index);
  });
  return fake;
}

async function* read(url: string, order: "asc" | "desc"): AsyncGenerator<readonly LogLine[]> {
  const backend = elastic.create("elk", elastic.parseConfig({ url, timeout: "60s" }), testIO);
  const query: LogQuery = {
    sources: [{ id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined }],
    range: { from: fromMillis(0), to: fromMillis(1_000_000) },
    filter: parse(""),
    order,
    expectedLines: 2_000_000_000,
    documentLimit: 1_000_000,
    tieLimit: 1_000_000,
  };
  try {
    yield* backend.stores.logs?.lines(query, never) ?? [];
  } finally {
    await backend.close();
  }
}

/** The ids in the order of the contract. */
function sortIds(times: readonly number[], order: "asc" | "desc"): readonly string[] {
  return times
    .map((at, n) => ({ at, id: `logs-1/l${n}` }))
    .sort((a, b) => (a.at - b.at || (a.id < b.id ? -1 : 1)) * (order === "asc" ? 1 : -1))
    .map(({ id }) => id);
}

async function readIds(url: string, order: "asc" | "desc"): Promise<readonly string[]> {
  const ids: string[] = [];
  for await (const batch of read(url, order)) ids.push(...batch.map(({ id }) => id));
  return ids;
}

const listSearches = ({ requests: asked }: ScriptedSource) =>
  asked.filter(({ path }) => path.includes("/_search"));
const times = Array.from({ length: 5_000 }, (_, n) => Math.floor(n / (1 + (n % 7))));

describe("log export", () => {
  test.each(["asc", "desc"] as const)(
    "reads every line once and sends no search twice, %s",
    async (order) => {
      const source = await serve((_, response, __, body) => sendJson(response, find(times, body)));
      expect(await readIds(source.url, order)).toEqual(sortIds(times, order));
      const bodies = listSearches(source).map(({ body }) => body);
      expect(new Set(bodies).size).toBe(bodies.length);
    },
  );

  test("reads bursts with long gaps and many lines per millisecond", async () => {
    const bursts = fc.array(
      fc.record({
        gap: fc.oneof(fc.integer({ min: 0, max: 20 }), fc.integer({ min: 1_000, max: 100_000 })),
        lines: fc.oneof(fc.integer({ min: 1, max: 30 }), fc.integer({ min: 200, max: 1_500 })),
        /** The number of lines in one millisecond. */
        tied: fc.oneof(fc.constant(1), fc.integer({ min: 2, max: 400 })),
      }),
      { maxLength: 8 },
    );
    await fc.assert(
      fc.asyncProperty(bursts, fc.constantFrom("asc", "desc"), async (drawn, order) => {
        let now = 0;
        const times = drawn.flatMap(({ gap, lines, tied }) => {
          const begin = now + gap;
          now = begin + Math.floor((lines - 1) / tied);
          return Array.from({ length: lines }, (_, n) => begin + Math.floor(n / tied));
        });
        const source = await serve((_, response, __, body) => sendJson(response, find(times, body)));
        try {
          expect(await readIds(source.url, order)).toEqual(sortIds(times, order));
        } finally {
          await source.close();
        }
      }),
      { numRuns: sampleRuns(15, { share: 4, least: 4 }) },
    );
  });

  test.each(["asc", "desc"] as const)(
    "searches ranges whose documents grow linearly with the lines, %s",
    async (order) => {
      const times = Array.from({ length: 20_000 }, (_, n) => n * 7);
      const source = await serve((_, response, __, body) => sendJson(response, find(times, body)));
      expect(await readIds(source.url, order)).toHaveLength(times.length);
      const [, ...later] = listSearches(source).map(({ body }) => readSearch(body));
      const within = later.map(({ from, to }) => times.filter((at) => at >= from && at <= to).length);
      // Without an end, each of the twenty searches would cover half of all lines on average.
      expect(later.length).toBeGreaterThan(15);
      expect(within.reduce((sum, count) => sum + count)).toBeLessThan(times.length * 9);
    },
  );

  test.each([
    ["a megabyte of large lines", 2_000, 1_200, 700, 900],
    ["a thousand small ones", 3_000, 20, 1_024, 1_024],
    ["a megabyte of larger ones", 1_300, 12_000, 80, 90],
    ["four of the largest", 40, 400_000, 4, 4],
  ])("limits a search to about %s", async (_, count, characters, least, most) => {
    const text = "x".repeat(characters);
    const times = Array.from({ length: count }, (_, n) => n);
    const source = await serve((_, response, __, body) => sendJson(response, find(times, body, text)));
    expect(await readIds(source.url, "asc")).toHaveLength(times.length);
    const [first, ...later] = listSearches(source).map(({ body }) => readSearch(body));
    // Of what size the lines are is not known before the first response.
    expect(first?.size).toBe(32);
    expect(later.length).toBeGreaterThan(0);
    for (const { size } of later) {
      expect(size).toBeGreaterThanOrEqual(least);
      expect(size).toBeLessThanOrEqual(most);
    }
  });

  test("aborts the prefetched search when the reader leaves", async () => {
    const source = await serve((n, response, _, body) => {
      if (n < 2) sendJson(response, find(times, body));
    });
    const lines = read(source.url, "asc");
    await lines.next();
    // The second page is read ahead, and the third search is sent before it is decoded.
    await expect.poll(() => listSearches(source).length).toBe(3);
    await lines.return(undefined);
    await expect.poll(() => source.left).toBe(1);
  });

  test("reports the failure of a prefetched search in its turn", async () => {
    const source = await serve((n, response, _, body) => {
      if (n === 0) sendJson(response, find(times, body));
      else sendJson(response, {}, 403);
    });
    const lines = read(source.url, "asc");
    const { value } = await lines.next();
    expect(value?.length).toBeGreaterThan(20);
    await expect(lines.next()).rejects.toMatchObject({ failure: "denied" });
  });

  const starting = {
    error: {
      root_cause: [],
      type: "search_phase_execution_exception",
      reason:
        "Search rejected due to missing shards [[logs-2][0]]. Consider using `allow_partial_search_results`",
      failed_shards: [],
    },
    status: 503,
  };

  test("waits for the shards of an index that appears during the read", async () => {
    let here = false;
    let refused = 0;
    const source = await openScriptedSource((response, request, body) => {
      if (request.url === "/") sendJson(response, { version: { number: "8.19.8" } });
      else if (!request.url?.includes("/_search")) {
        sendJson(response, here ? { ...index, "logs-2": index["logs-1"] } : index);
      } else if (here && refused < 3) {
        refused += 1;
        sendJson(response, starting, 503);
      } else sendJson(response, find(times, body).replace('"total":1', `"total":${here ? 2 : 1}`));
    });
    fake = source;
    const ids: string[] = [];
    for await (const batch of read(source.url, "asc")) {
      here = true;
      ids.push(...batch.map(({ id }) => id));
    }
    expect(ids).toEqual(sortIds(times, "asc"));
    expect(refused).toBe(3);
  });

  test("fails at once when shards do not answer from the start", async () => {
    const source = await serve((_, response) => sendJson(response, starting, 503));
    await expect(readIds(source.url, "asc")).rejects.toMatchObject({ failure: "overloaded" });
    // The guard's own retry, and no more.
    expect(listSearches(source).length).toBe(2);
  });

  test("reports progress for each search without lines", async () => {
    const source = await serve((_, response, __, body) => sendJson(response, find(times, body)));
    const backend = elastic.create("elk", elastic.parseConfig({ url: source.url }), testIO);
    let progressCalls = 0;
    let documents = 0;
    const query: LogQuery = {
      sources: [{ id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined }],
      range: { from: fromMillis(0), to: fromMillis(1_000_000) },
      filter: parse("nowhere=x"),
      order: "asc",
      expectedLines: 2_000_000_000,
      documentLimit: 1_000_000,
      tieLimit: 1_000_000,
      progressed: (count) => {
        progressCalls += 1;
        documents += count;
      },
    };
    for await (const _ of backend.stores.logs?.lines(query, never) ?? []) throw new Error("a line");
    await backend.close();
    expect(progressCalls).toBeGreaterThan(3);
    expect(documents).toBe(times.length);
  });
});
