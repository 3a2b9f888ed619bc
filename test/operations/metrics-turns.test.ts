// Answers of many series are made in turns of the event loop, and are what they would be without them.
import { describe, expect, test } from "vitest";
import { defaults } from "#src/config/schema.ts";
import { createHeldBytes } from "#src/core/async/held-bytes.ts";
import type { Series } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { list } from "#src/operations/metrics/list.ts";
import { timeseries } from "#src/operations/metrics/timeseries.ts";
import { checkVisual, savedVisual, savedVisualCsv } from "#src/operations/metrics/visuals.ts";
import {
  type Context,
  createEndpoint,
  type Endpoint,
  type RowBatch,
} from "#src/operations/runtime/operation.ts";
import type { MetricStore } from "#src/store/metrics.ts";
import { type PublishedVisuals, readVisual } from "#src/visuals/visual.ts";
import { countTurns } from "../support/event-loop-turns.ts";

const range = { site_id: "shop", from: "2026-01-15T10:00:00Z", to: "2026-01-15T10:10:00Z" };
const selector = { name: "cpu", tags: { host: "*" }, field: "gauge" };

/** Values of as many hosts, in the order of their names. */
function seriesOf(count: number, valuesOf = (host: number) => [host % 7]): readonly Series[] {
  const hosts = Array.from({ length: count }, (_, host) => ({ tags: { host: `h${host}` }, host }));
  return hosts
    .sort((a, b) => (a.tags.host < b.tags.host ? -1 : 1))
    .map(({ tags, host }) => ({ tags, values: Float64Array.from(valuesOf(host)) }));
}

function contextOf(series: readonly Series[], limits: Partial<Context["limits"]> = {}): Context {
  const unexpected = () => Promise.reject(new Error("unexpected"));
  const store: MetricStore = {
    names: unexpected,
    tagKeys: unexpected,
    type: async () => "gauge",
    series: async () => series,
  };
  const metrics = { backend: "prom", match: {}, store };
  return {
    user: "ana",
    sites: new Map([["shop", { id: "shop", retention: 86_400_000, counterDefault: "cumulative", metrics }]]),
    limits: { ...defaults.limits, ...limits },
    now: () => fromMillis(Date.UTC(2026, 0, 16)),
    signal: new AbortController().signal,
  };
}

async function listPieces(endpoint: Endpoint, body: object, context: Context): Promise<RowBatch[]> {
  const result = endpoint.prepare(body).run(context);
  if (!("pieces" in result)) throw new Error("pieces expected");
  const pieces: RowBatch[] = [];
  for await (const piece of result.pieces) pieces.push(piece);
  return pieces;
}

async function answer(endpoint: Endpoint, body: object, context: Context): Promise<string> {
  const pieces = await listPieces(endpoint, { ...range, ...body }, context);
  return pieces.map(({ text }) => text).join("");
}

describe("a list", () => {
  const endpoint = createEndpoint(list);
  const body = { select: [{ id: "a", ...selector }], group_by: [{ Tag: "host" }] };

  test("takes turns with others", async () => {
    const few = contextOf(seriesOf(10));
    const many = contextOf(seriesOf(510));
    const turns = await countTurns(() => answer(endpoint, body, few));
    expect(await countTurns(() => answer(endpoint, body, many))).toBeGreaterThanOrEqual(turns + 500);
  });

  test("of many rows is in the order of their values, then of their ids", async () => {
    const { rows } = JSON.parse(await answer(endpoint, body, contextOf(seriesOf(9_000))));
    expect(rows).toHaveLength(9_000);
    const sorted = rows.toSorted(
      (a: { data: { a: number }; id: string }, b: { data: { a: number }; id: string }) =>
        b.data.a - a.data.a || (a.id < b.id ? -1 : 1),
    );
    expect(rows).toEqual(sorted);
    const best = JSON.parse(await answer(endpoint, { ...body, limit: 5 }, contextOf(seriesOf(9_000))));
    expect(best.rows).toEqual(rows.slice(0, 5));
  });

  test("of too many rows is refused before it is sorted", async () => {
    const refused = answer(endpoint, body, contextOf(seriesOf(30), { rows: 20 }));
    await expect(refused).rejects.toMatchObject({ details: { limit: 20, wanted: 30 } });
    const { rows } = JSON.parse(
      await answer(endpoint, { ...body, limit: 20 }, contextOf(seriesOf(30), { rows: 20 })),
    );
    expect(rows).toHaveLength(20);
  });
});

describe("series over time", () => {
  const endpoint = createEndpoint(timeseries);
  const body = { resolution: "MINUTELY", select: [selector] };
  const gaps = (host: number) =>
    Array.from({ length: 10 }, (_, at) => (at % 3 === 0 ? Number.NaN : host + at));

  test("take turns with others", async () => {
    const few = contextOf(seriesOf(10, gaps));
    const many = contextOf(seriesOf(210, gaps));
    const turns = await countTurns(() => answer(endpoint, body, few));
    // The id of each is made, its points are counted, and it is printed.
    expect(await countTurns(() => answer(endpoint, body, many))).toBeGreaterThanOrEqual(turns + 3 * 200);
  });

  test.each([
    [undefined, 6],
    [true, 10],
  ])("are the same where there are many, draw_null_as_zero: %s", async (draw_null_as_zero, points) => {
    const filled = { ...body, select: [{ ...selector, draw_null_as_zero }] };
    const { series } = JSON.parse(await answer(endpoint, filled, contextOf(seriesOf(5_000, gaps))));
    const ids = series.map(({ id }: { id: string }) => id);
    expect(ids).toHaveLength(5_000);
    expect(ids).toEqual(ids.toSorted());
    const second = series.find(({ tags }: Series) => tags.host === "h1");
    expect(second).toMatchObject({ id: "cpu|host=h1|gauge", min: points === 10 ? 0 : 2, max: 9 });
    expect(second.data).toHaveLength(points);
  });
});

describe("the table of a visual", () => {
  const [json, csv] = [createEndpoint(savedVisual), createEndpoint(savedVisualCsv)];
  const id = "AAAAAAAAAAAAAAAAAAAAAA";
  const { site_id: site, ...times } = range;
  const file = { id, title: "CPU", type: "line", site, ...times, resolution: "MINUTELY", select: [selector] };
  const visual = readVisual(JSON.stringify(file), "visual.yaml", checkVisual);

  /** With one answer that all share. */
  function publish(series: readonly Series[]): Context {
    let shared: ReturnType<PublishedVisuals["shareAnswer"]> | undefined;
    const shareAnswer: PublishedVisuals["shareAnswer"] = (_, compute) =>
      (shared ??= compute(new AbortController().signal));
    return { ...contextOf(series), visuals: { find: () => visual, shareAnswer } };
  }

  /** Each host begins at another minute, and has gaps. */
  const gaps = (host: number) =>
    Array.from({ length: 10 }, (_, at) => (at < host % 4 || (at + host) % 5 === 0 ? Number.NaN : host + at));

  test("of many columns is printed in pieces, each value in the line of its time", async () => {
    const context = publish(seriesOf(6_000, gaps));
    const pieces = await listPieces(csv, { id }, context);
    for (const { text } of pieces) expect(text.split(",").length).toBeLessThan(30_000);
    const [header = [], ...lines] = pieces
      .flatMap(({ text }) => text.split("\r\n").slice(0, -1))
      .map((line) => line.split(","));
    expect(pieces.reduce((sum, { count }) => sum + count, 0)).toBe(11);
    const { series } = JSON.parse((await listPieces(json, { id }, context)).map(({ text }) => text).join(""));
    expect(header).toEqual(["timestamp", ...series.map((one: { id: string }) => one.id)]);
    type Point = { readonly timestamp: string; readonly value: number };
    const points = series.map(({ data }: { data: readonly Point[] }) =>
      data.map(({ timestamp, value }) => `${timestamp} ${value}`),
    );
    const found = series.map((_: unknown, column: number) =>
      lines.flatMap((line) => (line[column + 1] === "" ? [] : [`${line[0]} ${line[column + 1]}`])),
    );
    expect(found).toEqual(points);
  });

  test("is made once for all who ask for it", async () => {
    const context = publish(seriesOf(3_000, gaps));
    const ask = () => listPieces(csv, { id }, context);
    const first = await ask();
    expect(await countTurns(async () => expect(await ask()).toEqual(first))).toBeLessThan(3);
  });

  test("is held by none of those who ask for it", async () => {
    const published = publish(seriesOf(30, gaps));
    const full = { ...published, held: createHeldBytes(0) };
    expect(await listPieces(json, { id }, full)).toEqual(await listPieces(json, { id }, published));
  });

  test("takes turns with others, also while its answer is printed", async () => {
    const context = publish(seriesOf(6_000, gaps));
    const answered = await countTurns(() => listPieces(json, { id }, context));
    const printed = (await listPieces(json, { id }, context)).length;
    expect(answered).toBeGreaterThanOrEqual(3 * 6_000 + printed - 1);
  });
});
