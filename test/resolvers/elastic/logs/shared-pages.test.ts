// Pages of lines that several sources share. Each of them may have all lines of a page, and most have a part: so each is asked for
// its part at first, and the rest of those that have more.
import fc from "fast-check";
import { afterEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { fromMillis, parseInstant, toMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogSource } from "#src/store/logs.ts";
import { testIO } from "../../../support/io.ts";
import { sampleRuns } from "../../../support/law-runs.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const search = z.object({
  size: z.number(),
  query: z.object({
    bool: z.object({
      filter: z.array(
        z.looseObject({
          range: z.object({ "@timestamp": z.object({ gte: z.string(), lte: z.string() }) }).optional(),
        }),
      ),
    }),
  }),
});

interface Asked {
  readonly index: string;
  readonly size: number;
}

let fake: ScriptedSource | undefined;
afterEach(async () => {
  await fake?.close();
  fake = undefined;
});

/** Serves an index for each list of milliseconds, newest first, and notes what each is asked for. */
async function serve(indices: readonly (readonly number[])[]): Promise<{ url: string; asked: Asked[] }> {
  const asked: Asked[] = [];
  fake = await openScriptedSource((response, request, body) => {
    if (request.url === "/") return sendJson(response, { version: { number: "8.19.8" } });
    const [, name = ""] = /^\/(logs-\d+)/.exec(request.url ?? "") ?? [];
    if (!request.url?.includes("/_search")) {
      const properties = { "@timestamp": { type: "date" }, message: { type: "text" } };
      const settings = { index: { number_of_shards: "1", version: { created: "8190899" } } };
      return sendJson(response, { [name]: { mappings: { properties }, settings } });
    }
    const { size, query } = search.parse(JSON.parse(body));
    asked.push({ index: name, size });
    const bounds = query.bool.filter.find(({ range }) => range !== undefined)?.range?.["@timestamp"];
    const [from, to] = [bounds?.gte, bounds?.lte].map((text) =>
      toMillis(parseInstant(text ?? "") ?? fromMillis(0)),
    );
    const hits = (indices[Number(name.slice(5))] ?? [])
      .map((at, n) => ({ _index: name, _id: `l${n}`, _source: { message: "m" }, sort: [at] }))
      .filter(({ sort: [at = 0] }) => at >= (from ?? 0) && at <= (to ?? 0))
      .sort((a, b) => (b.sort[0] ?? 0) - (a.sort[0] ?? 0))
      .slice(0, size);
    return sendJson(response, { timed_out: false, _shards: { total: 1, failed: 0 }, hits: { hits } });
  });
  return { url: fake.url, asked };
}

/** The first lines of all indices, each a source, as a request for a page reads them; `most` where it reads on. */
async function readPage(
  url: string,
  count: number,
  expectedLines: number,
  most: number = expectedLines,
): Promise<readonly string[]> {
  const backend = elastic.create("elk", elastic.parseConfig({ url, timeout: "60s" }), testIO);
  const toSource = (n: number): LogSource => ({
    id: `s${n}`,
    index: `logs-${n}`,
    layout: "ecs",
    tenantFilter: undefined,
  });
  const others = Array.from({ length: count - 1 }, (_, n) => toSource(n + 1));
  const query = {
    sources: [toSource(0), ...others] as const,
    filter: parse(""),
    order: "desc" as const,
    expectedLines,
    range: { from: fromMillis(0), to: fromMillis(10_000_000) },
    documentLimit: 1_000_000,
    tieLimit: 10_000,
  };
  const read: string[] = [];
  try {
    for await (const batch of backend.stores.logs?.lines(query, never) ?? []) {
      read.push(...batch.map(({ id, source_id }) => `${source_id} ${id}`));
      if (read.length >= most) break;
    }
  } finally {
    await backend.close();
  }
  return read.slice(0, most);
}

/** What the contract has: by time, then by source, then by id, all from the last. */
function sortAll(indices: readonly (readonly number[])[], most: number): readonly string[] {
  return indices
    .flatMap((times, n) => times.map((at, m) => ({ at, key: `s${n} logs-${n}/l${m}` })))
    .sort((a, b) => b.at - a.at || (a.key < b.key ? 1 : -1))
    .slice(0, most)
    .map(({ key }) => key);
}

const spread = (count: number, lines: number) =>
  Array.from({ length: count }, (_, n) => Array.from({ length: lines }, (_, m) => (m * count + n) * 10));

describe("a page that several sources share", () => {
  test.each([
    // Sources, lines of the page, and the most that is asked of a source where all have as many lines.
    [1, 100, 101],
    [3, 100, 101],
    [10, 100, 21],
    [2, 1_000, 3 * 191],
    [50, 1_000, 35],
  ])("of %i sources and %i lines asks each for at most %i", async (count, lines, most) => {
    const indices = spread(count, 2_000);
    const { url, asked } = await serve(indices);
    expect(await readPage(url, count, lines)).toEqual(sortAll(indices, lines));
    for (let n = 0; n < count; n += 1) {
      const own = asked.filter(({ index }) => index === `logs-${n}`);
      expect(own.reduce((sum, { size }) => sum + size, 0)).toBeLessThanOrEqual(most);
    }
  });

  test("costs a source that has all of its lines one request more", async () => {
    const indices = spread(10, 500).map((times, n) => times.map((at) => (n === 4 ? at + 100_000 : at)));
    const { url, asked } = await serve(indices);
    expect(await readPage(url, 10, 100)).toEqual(sortAll(indices, 100));
    expect(asked.filter(({ index }) => index === "logs-4")).toHaveLength(2);
    expect(asked).toHaveLength(11);
  });

  test.each([
    // Where times are of whole seconds, all that a small search finds may be of one of them.
    [50, 20, 4],
    [20, 100, 15],
  ])(
    "of %i sources and %i lines, %i in each second, costs at most half as much again as all for each",
    async (count, lines, ties) => {
      const indices = Array.from({ length: count }, () =>
        Array.from({ length: 600 }, (_, m) => Math.floor(m / ties) * 1_000),
      );
      const { url, asked } = await serve(indices);
      expect(await readPage(url, count, lines)).toEqual(sortAll(indices, lines));
      const all = asked.reduce((sum, { size }) => sum + size, 0);
      expect(all).toBeLessThanOrEqual(1.5 * count * (lines + 1 + ties));
    },
  );

  test("is read on in full searches by whoever wants more than was expected", async () => {
    const indices = spread(1, 6_000);
    const { url, asked } = await serve(indices);
    expect(await readPage(url, 1, 1_000, 6_000)).toEqual(sortAll(indices, 6_000));
    expect(asked.length).toBeLessThan(6 + 5_000 / 200);
  });

  test("has all lines in their order, however they are spread", async () => {
    const times = fc.array(fc.integer({ min: 0, max: 400 }), { maxLength: 400 });
    const cases = fc.record({
      indices: fc.array(times, { minLength: 1, maxLength: 12 }),
      lines: fc.constantFrom(1, 20, 100, 300, 1_000),
    });
    await fc.assert(
      fc.asyncProperty(cases, async ({ indices, lines }) => {
        const { url } = await serve(indices);
        try {
          expect(await readPage(url, indices.length, lines)).toEqual(sortAll(indices, lines));
        } finally {
          await fake?.close();
          fake = undefined;
        }
      }),
      { numRuns: sampleRuns(60) },
    );
  });
});
