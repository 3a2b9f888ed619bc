// The points of a chart are grouped by their times. There may be millions of them.
import { expect, test } from "vitest";
import type { Site } from "#src/access/sites.ts";
import { metricResolvers } from "#src/graphql/existing-clients/metric-fields.ts";
import type { Session } from "#src/operations/runtime/session.ts";
import { countTurns } from "../../support/event-loop-turns.ts";

interface Point {
  readonly timestamp: string;
  readonly value: number;
}

/** What the field `timeseries` returns where the operation answers with these series. */
function readPoints(
  series: readonly { readonly id: string; readonly data: readonly Point[] }[],
  gone: AbortSignal,
) {
  const named = series.map((one) => ({ ...one, name: "load", field: "gauge", tags: {} }));
  const session = {
    gone,
    runLink: async () => ({ from: "2026-01-15T12:00:00Z", to: "2026-01-15T13:00:00Z" }),
    runOperation: async () => ({ series: named, resolution: "MINUTELY" }),
  } as unknown as Session;
  const { timeseries } = metricResolvers.Metrics as unknown as {
    timeseries(parent: object, args: object, context: object): Promise<{ readonly points: unknown }>;
  };
  const site = { id: "shop", metrics: {} } as unknown as Site;
  const args = { query: [{ name: "load", fields: [{ field: "GAUGE" }] }] };
  return timeseries({ site }, args, { readout: session });
}

const never = new AbortController().signal;
const pointsOf = (minutes: readonly number[]): readonly Point[] =>
  minutes.map((minute) => ({ timestamp: new Date(minute * 60_000).toISOString(), value: minute }));

test("the values of all series at a time are one point, in the order of time", async () => {
  const { points } = await readPoints(
    [
      { id: "a", data: pointsOf([2, 3]) },
      { id: "b", data: pointsOf([1, 2]) },
    ],
    never,
  );
  expect(points).toEqual([
    { timestamp: 60, values: [{ key: "b", value: 1 }] },
    {
      timestamp: 120,
      values: [
        { key: "a", value: 2 },
        { key: "b", value: 2 },
      ],
    },
    { timestamp: 180, values: [{ key: "a", value: 3 }] },
  ]);
});

test("other work goes on within a long series, and grouping ends once the client has gone", async () => {
  const series = [{ id: "a", data: pointsOf(Array.from({ length: 100 }, (_, minute) => minute)) }];
  expect(await countTurns(() => readPoints(series, never))).toBeGreaterThanOrEqual(100);
  const stop = new AbortController();
  const gone = new Error("gone");
  await countTurns(async () => {
    const read = readPoints(series, stop.signal);
    setImmediate(() => stop.abort(gone));
    await expect(read).rejects.toBe(gone);
  });
});
