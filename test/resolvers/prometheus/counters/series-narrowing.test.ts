import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { printSelector, select } from "#resolvers/prometheus/client/promql.ts";
import { chunkSeries, narrowToSeries } from "#resolvers/prometheus/counters/series-narrowing.ts";

const metric = select({ tenant: "shop" }, []);
/** What VictoriaMetrics takes as one expression, by its default. */
const expressionBytes = 16_384;

/** Series of pods, whose labels have values of these lengths. */
function generateSeries(lengths: Readonly<Record<string, number>>, count: number) {
  return Array.from({ length: count }, (_, at) =>
    Object.fromEntries(Object.entries(lengths).map(([key, length]) => [key, `${at}-`.padEnd(length, "x.")])),
  );
}

describe("a selector that is narrowed to series", () => {
  test("has room beside another in an expression, whatever the labels", () => {
    const lengths = fc.dictionary(fc.stringMatching(/^[a-z]{1,8}$/), fc.oneof(fc.nat(60), fc.nat(4_000)), {
      maxKeys: 6,
    });
    fc.assert(
      fc.property(lengths, fc.nat(150), (lengths, count) => {
        const series = generateSeries(lengths, count);
        const chunks = chunkSeries(series);
        expect(chunks.flat()).toEqual(series);
        for (const chunk of [series, ...chunks])
          expect(2 * Buffer.byteLength(printSelector(narrowToSeries(metric, chunk)))).toBeLessThan(
            expressionBytes,
          );
      }),
    );
  });

  test("matches one of the labels of each chunk at least", () => {
    const series = generateSeries({ pod: 253, container_id: 90, uid: 36 }, 250);
    for (const chunk of chunkSeries(series))
      expect(printSelector(narrowToSeries(metric, chunk))).toMatch(/(?:pod|container_id|uid)=~?"/);
  });

  test("matches all labels of few series", () => {
    const series = generateSeries({ pod: 4, path: 3 }, 2);
    expect(printSelector(narrowToSeries(metric, series))).toBe(
      '{pod=~"(?s:0-x\\\\.|1-x\\\\.)",path=~"(?s:0-x|1-x)",tenant="shop"}',
    );
  });
});
