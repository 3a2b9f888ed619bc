// Wide buckets are asked for one by one, with the answer of one query for all of them.
import fc from "fast-check";
import { expect, test } from "vitest";
import { aggregate, call, matchEqual, select } from "#resolvers/prometheus/client/promql.ts";
import { createSeriesReader } from "#resolvers/prometheus/counters/series-reader.ts";
import { readSparseGrid } from "#resolvers/prometheus/counters/sparse-grid.ts";
import { sampleRuns } from "../../../support/law-runs.ts";
import { createRecordingClient } from "../../../support/prometheus/promql-evaluator.ts";

const signal = new AbortController().signal;
const day = 86_400_000;
const start = Date.UTC(2026, 0, 15);
const sizes = { get: () => undefined, set: () => undefined };
const all = () => true;

const samples = fc.uniqueArray(fc.tuple(fc.nat(6 * 48), fc.nat(9)), {
  selector: ([at]) => at,
  maxLength: 40,
});

async function open(written: readonly (readonly [number, number])[][], sent: string[]) {
  const series = written.map((one, n) => ({
    labels: { __name__: "x", n: String(n), path: `/${n % 2}` },
    samples: one.toSorted(([a], [b]) => a - b).map(([at, value]) => [start + at * 1_800_000, value] as const),
  }));
  const client = createRecordingClient(series, "open", sent);
  return createSeriesReader("prom", client, await client.readTraits(signal), sizes, signal);
}

test("equals the grid that is read at once", async () => {
  const property = fc.asyncProperty(fc.array(samples, { maxLength: 5 }), async (written) => {
    const sent: string[] = [];
    const reader = await open(written, sent);
    const buckets = { start, step: day, count: 6 };
    const lasts = call(
      "last_over_time",
      reader.selectRange(select({}, [matchEqual("__name__", "x")]), { from: day / 4, to: 1 }),
    );
    const sorted = (found: readonly { labels: object; values: Float64Array }[]) =>
      found.map(({ labels, values }) => JSON.stringify([labels, ...values])).sort();
    for (const expression of [lasts, aggregate("sum", ["path"], lasts)]) {
      const whole = await reader.readGrid(expression, buckets, 1_000);
      expect(sorted(await readSparseGrid(reader, expression, buckets, 1_000, all))).toEqual(sorted(whole));
    }
    expect(sent).toHaveLength(14);
  });
  await fc.assert(property, { numRuns: sampleRuns(100) });
});

test("refuses more series than the limit, also where each bucket has others", async () => {
  const reader = await open(
    Array.from({ length: 6 }, (_, n) => [[n * 48, 1] as const]),
    [],
  );
  const lasts = call(
    "last_over_time",
    reader.selectRange(select({}, [matchEqual("__name__", "x")]), { from: day, to: 1 }),
  );
  const read = (limit: number) => readSparseGrid(reader, lasts, { start, step: day, count: 6 }, limit, all);
  await expect(read(35)).rejects.toMatchObject({ slug: "result_too_large" });
  expect(await read(36)).toHaveLength(6);
});
