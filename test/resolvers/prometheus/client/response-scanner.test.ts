// The response scanner reads what JSON.parse reads, wherever chunks are cut, or it reports that it cannot.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  createScanner,
  readResult,
  type SampleSeries,
  UnexpectedFormat,
} from "#resolvers/prometheus/client/response-scanner.ts";

const value = fc.oneof(
  fc.double().map((number) => formatAsGo(number)),
  fc.integer().map(String),
  fc.constantFrom(
    "NaN",
    "+Inf",
    "-Inf",
    "0",
    "-0",
    "1e+21",
    "5e-324",
    "123456789012345",
    "1234567890123456789",
  ),
);
const seconds = fc.integer({ min: 0, max: 4e12 }).map((millis) => millis / 1_000);
const point = fc.tuple(seconds, value);
const text = fc.string({ unit: fc.constantFrom(...'\\"{}[]:,é\n😀ab') });
// Node 24's parser confuses an escaped key with another key, seen before in an object of the same shape, whose characters are
// those of the escape: `"\n"` after a key that is a backslash. So no name has a backslash here.
const name = text.map((drawn) => drawn.replaceAll("\\", "/"));
const labels = fc.dictionary(name, text, { noNullPrototype: true });
const histogram = fc.tuple(
  seconds,
  fc.record({
    count: value,
    sum: value,
    buckets: fc.array(fc.tuple(fc.integer({ min: 0, max: 3 }), value, value, value)),
  }),
);
const matrix = fc.record(
  { metric: labels, values: fc.array(point), histograms: fc.array(histogram) },
  { requiredKeys: ["metric"], noNullPrototype: true },
);
const vector = fc.oneof(
  fc.record({ metric: labels, value: point }, { noNullPrototype: true }),
  fc.record({ metric: labels, histogram }, { noNullPrototype: true }),
);
const answer = fc
  .tuple(fc.oneof(fc.array(matrix), fc.array(vector)), fc.option(fc.array(text), { nil: undefined }))
  .map(([result, warnings]) => ({ status: "success", data: { resultType: "matrix", result }, warnings }));

function formatAsGo(number: number): string {
  if (Number.isNaN(number)) return "NaN";
  return Number.isFinite(number) ? String(number) : number > 0 ? "+Inf" : "-Inf";
}

function scanChunks(bytes: Buffer, cuts: readonly number[]): { series: SampleSeries[]; frame: unknown } {
  const series: SampleSeries[] = [];
  const scanner = createScanner((one) => series.push(one));
  let from = 0;
  for (const cut of [...cuts.toSorted((a, b) => a - b), bytes.length]) {
    if (cut > from && cut <= bytes.length) {
      scanner.push(bytes.subarray(from, cut));
      from = cut;
    }
  }
  return { series, frame: JSON.parse(scanner.end()) };
}

describe("the response scanner", () => {
  test("reads the same as the parser, wherever chunks are cut", () => {
    fc.assert(
      fc.property(answer, fc.array(fc.nat(2_000), { maxLength: 20 }), (value, cuts) => {
        const expected: SampleSeries[] = [];
        readResult(value.data.result, (one) => expected.push(one));
        const { series, frame } = scanChunks(Buffer.from(JSON.stringify(value)), cuts);
        expect(series).toEqual(expected);
        expect(frame).toEqual(JSON.parse(JSON.stringify({ ...value, data: { ...value.data, result: [] } })));
      }),
    );
  });

  test("keeps earlier series unchanged while later ones are read", () => {
    const lengths = [1_023, 2, 61, 5_000, 0, 12_000, 16_384, 1, 40_000, 3];
    const result = lengths.map((length, host) => ({
      metric: { host: String(host) },
      values: Array.from({ length }, (_, at) => [1_700_000_000 + at, String(host * 100_000 + at)]),
    }));
    const bytes = Buffer.from(JSON.stringify({ status: "success", data: { resultType: "matrix", result } }));
    const cuts = Array.from({ length: Math.floor(bytes.length / 65_536) }, (_, cut) => (cut + 1) * 65_536);
    const { series } = scanChunks(bytes, cuts);
    expect(series.map(({ times }) => times.length)).toEqual(lengths);
    for (const [host, { times, values }] of series.entries()) {
      expect(times.every((time, at) => time === (1_700_000_000 + at) * 1_000)).toBe(true);
      expect(values.every((value, at) => value === host * 100_000 + at)).toBe(true);
    }
  });

  test("reads a series that starts at the end of a chunk and fills the next", () => {
    const label = (length: number) => ({ metric: { a: "x".repeat(length) }, values: [[1, "2"]] });
    for (const length of [200, 300, 600, 5_000]) {
      const result = [label(10), label(length), label(20)];
      const bytes = Buffer.from(JSON.stringify({ status: "success", data: { result } }));
      for (const cut of [80, 100, 130, 200]) {
        const { series } = scanChunks(bytes, [cut, cut + 257, cut + 600]);
        expect(series.map(({ labels }) => labels.a?.length)).toEqual([10, length, 20]);
      }
    }
  });

  test("reads a response byte by byte", () => {
    const bytes = Buffer.from(
      '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"é\\"]}"},"values":[[1700000000.001,"1.5"],[1700000001,"NaN"]]}]}}\n',
    );
    const { series } = scanChunks(bytes, [...bytes.keys()]);
    expect(series).toEqual([
      {
        labels: { a: 'é"]}' },
        times: Float64Array.of(1_700_000_000_001, 1_700_000_001_000),
        values: Float64Array.of(1.5, Number.NaN),
        histograms: [],
      },
    ]);
  });

  const opening = '{"status":"success","data":{"resultType":"matrix","result":[';
  test.each([
    ["another key first", `${opening}{"values":[[1,"1"]],"metric":{}}]}}`],
    ["white space", `${opening} {"metric":{}}]}}`],
    ["a number without quotes", `${opening}{"metric":{},"values":[[1,1]]}]}}`],
    ["a word for a number", `${opening}{"metric":{},"values":[[1,"many"]]}]}}`],
    ["no comma", `${opening}{"metric":{},"values":[[1,"1"][2,"2"]]}]}}`],
    ["a label that is a number", `${opening}{"metric":{"a":1},"values":[]}]}}`],
    ["a scalar", '{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}'],
    ["no result at all", '{"status":"success"}'],
  ])("rejects %s as an unexpected format", (_name, json) => {
    expect(() => scanChunks(Buffer.from(json), [])).toThrow(UnexpectedFormat);
  });

  test("rejects a truncated response, wherever it is cut", () => {
    const whole = `${opening}{"metric":{"a":"b"},"values":[[1,"1"],[2,"2"]]}],"x":"y"}}`;
    for (let end = 0; end < whole.length; end++) {
      expect(() => scanChunks(Buffer.from(whole.slice(0, end)), [])).toThrow();
    }
  });
});

test("keeps any label name, scanned or parsed", () => {
  const result = '[{"metric":{"__proto__":"a","constructor":"b"},"values":[[1,"2"]]}]';
  const found = [...scanChunks(Buffer.from(`{"status":"success","data":{"result":${result}}}`), []).series];
  readResult(JSON.parse(result), (one) => found.push(one));
  expect(found.map(({ labels }) => Object.entries(labels))).toEqual([
    [
      ["__proto__", "a"],
      ["constructor", "b"],
    ],
    [
      ["__proto__", "a"],
      ["constructor", "b"],
    ],
  ]);
});

describe("the zero bucket of a native histogram", () => {
  const bucketsOf = (buckets: readonly (readonly [number, string, string, string])[]) => {
    const found: SampleSeries[] = [];
    const histogram = [1_700_000_000, { count: "9", sum: "1", buckets }] as const;
    readResult([{ metric: {}, histogram }], (one) => found.push(one));
    return found[0]?.histograms[0]?.buckets.map(({ lower, upper }) => [lower, upper]);
  };
  test("starts at zero if no bucket lies below it", () => {
    const around = [3, "-0.001", "0.001", "4"] as const;
    expect(bucketsOf([around, [0, "1", "2", "5"]])).toEqual([
      [0, 0.001],
      [1, 2],
    ]);
    expect(bucketsOf([around, [1, "-2", "-1", "5"]])).toEqual([
      [-2, -1],
      [-0.001, 0.001],
    ]);
    // A histogram with custom bounds has no such bucket.
    expect(bucketsOf([[0, "-Inf", "0.5", "9"]])).toEqual([[Number.NEGATIVE_INFINITY, 0.5]]);
  });
});
