// Frontends that move ranges. A range is sent in a form that none of them moves, and its values are those of the requested
// range, also if the only sample lies at an end that would be moved.
import fc from "fast-check";
import { afterEach, describe, expect, test } from "vitest";
import { call, matchEqual, select, selectRange } from "#resolvers/prometheus/client/promql.ts";
import {
  alignRange,
  detectAlignment,
  type QueryRange,
} from "#resolvers/prometheus/client/range-alignment.ts";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import { printMillis } from "#src/core/time.ts";
import type { Backend } from "#src/store/backend.ts";
import { testIO } from "../../../support/io.ts";
import { openFakeServer } from "../../../support/prometheus/fake-thanos.ts";
import type { ScriptedSource } from "../../../support/scripted-http-source.ts";

const signal = new AbortController().signal;
const minute = 60_000;
const base = Date.UTC(2026, 0, 15, 10);

const aligned = ({ start, end, step }: QueryRange): QueryRange => ({
  start: start - (start % step),
  end: end - (end % step),
  step,
});
const since =
  (oldest: number) =>
  ({ start, end, step }: QueryRange): QueryRange | undefined =>
    end < oldest ? undefined : { start: Math.max(start, oldest), end, step };

let source: ScriptedSource | undefined;
let backend: Backend | undefined;
afterEach(async () => {
  await backend?.close();
  await source?.close();
});

describe("the only sample, in the last minute of a range, is found", () => {
  const series = [
    { labels: { __name__: "g_bytes" }, samples: [[base + 9 * minute + 1_000, 7]] as [number, number][] },
  ];
  // The start is no full minute, as for a list without resolution.
  test.each([
    ["if ranges are not moved", undefined, base],
    ["if ranges are aligned to the step", aligned, base + 17_000],
    ["if ranges begin 90.123 s late at the earliest", since(base + 90_123), base, base + 90_123],
  ])("%s", async (_, move, start, oldest?: number) => {
    source = await openFakeServer(series, move);
    backend = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), {
      ...testIO,
      now: () => (BigInt(base + 20 * minute) * 1_000_000n) as ReturnType<typeof testIO.now>,
    });
    const found = await backend.stores.metrics?.series(
      {
        match: {},
        metric: "g_bytes",
        tags: {},
        measure: { of: "samples", combine: "last" },
        buckets: { start, step: minute, count: 10 },
        lookBack: 86_400_000,
        pointLimit: 1_000,
      },
      signal,
    );
    const at = Math.floor((base + 9 * minute + 1_000 - start) / minute);
    const limitations = (await backend.inspections.metrics?.({}, signal))?.limitations.filter((one) =>
      /before/.test(one),
    );
    expect(limitations).toEqual(oldest === undefined ? [] : [expect.stringContaining(printMillis(oldest))]);
    expect(found?.map(({ values }) => [...values.entries()].filter(([, value]) => value === 7))).toEqual([
      [[at, 7]],
    ]);
  });
});

test("finds the first sample of a metric if a frontend truncates the step", async () => {
  const second = 1_000;
  // Passes the step on as seconds, which the next server converts to nanoseconds.
  const inSeconds = (range: QueryRange): QueryRange => ({
    ...range,
    step: Math.floor(Math.trunc((range.step / second) * 1e9) / 1e6),
  });
  const samples = [3, 5, 9].map((value, at): [number, number] => [base + (at + 30) * 5 * minute, value]);
  source = await openFakeServer([{ labels: { __name__: "jobs_total", host: "a" }, samples }], inSeconds);
  backend = prometheus.create("prom", prometheus.parseConfig({ url: source.url }), testIO);
  const found = await backend.stores.metrics?.series(
    {
      match: {},
      metric: "jobs_total",
      tags: { host: "*" },
      measure: { of: "increment" },
      // A five hundredth of the range is 66.6 s.
      buckets: { start: base, step: 15 * minute, count: 37 },
      lookBack: 86_400_000,
      pointLimit: 1_000,
    },
    signal,
  );
  expect(found?.map(({ values }) => values[10])).toEqual([6]);
});

test("alignRange builds a range that is not moved, and loses no time", () => {
  const buildMaximum = (offset: number) =>
    call(
      "max_over_time",
      selectRange(select({}, [matchEqual("__name__", "g")]), "open", { from: 10 + offset, to: offset }),
    );
  const time = fc.integer({ min: 1_000, max: 100_000 });
  fc.assert(
    fc.property(
      time,
      time,
      fc.integer({ min: 1, max: 500 }),
      fc.option(time),
      (start, length, step, from) => {
        const range = { start, end: start + Math.floor(length / step) * step, step };
        const oldest = from ?? undefined;
        const move = oldest === undefined ? aligned : since(oldest);
        const query = alignRange(buildMaximum(1), range, { oldest, aligned: oldest === undefined });
        const times = listTimes(range).filter((one) => one >= (oldest ?? 0));
        expect(query === undefined ? [] : listTimes(query.range).map((one) => one - query.shift)).toEqual(
          times,
        );
        if (query === undefined) return;
        expect(move(query.range)).toEqual(query.range);
        expect(query.expression).toEqual(buildMaximum(1 + query.shift));
      },
    ),
  );
});

function listTimes({ start, end, step }: QueryRange): readonly number[] {
  return Array.from({ length: (end - start) / step + 1 }, (_, at) => start + at * step);
}

test("detectAlignment recognises clipped and aligned ranges", () => {
  expect(detectAlignment(1_000, 1_000)).toEqual({ oldest: undefined, aligned: false });
  expect(detectAlignment(1_000, 0)).toEqual({ oldest: undefined, aligned: true });
  expect(detectAlignment(1_000, base)).toEqual({ oldest: base, aligned: false });
});
