// Cases computed by hand, and laws. `conformance/metrics.ts` compares the same code with an oracle.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Buckets } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { computeGrid } from "#src/metrics/measures.ts";
import {
  type CounterSamples,
  combineCumulative,
  combineIncrements,
  combineObservations,
  combineSamples,
  dropNonFinite,
  estimateFromCounts,
  type Observations,
} from "#src/metrics/samples.ts";
import type { RawSeries } from "../conformance/metrics/fixture.ts";
import { computeExpectedSeries } from "../conformance/metrics/oracle.ts";

const buckets: Buckets = { start: 100, step: 10, count: 4 };
const series = (
  samples: readonly (readonly [number, number])[],
  birth: "zero" | "own" = "own",
): CounterSamples => ({
  times: Float64Array.from(samples, ([time]) => time),
  values: Float64Array.from(samples, ([, value]) => value),
  baseline: birth,
});
const { NaN: none, POSITIVE_INFINITY: infinity } = Number;

describe("combineSamples: gauges", () => {
  const group = [
    series([
      [99, 1_000],
      [100, 1],
      [109, 3],
      [110, 10],
      [139, 5],
      [140, 1_000],
    ]),
    series([
      [105, 8],
      [131, 7],
    ]),
  ];
  test.each([
    ["first", [4.5, 10, none, 6]],
    ["last", [5.5, 10, none, 6]],
    ["mean", [4, 10, none, 6]],
    ["sum", [12, 10, none, 12]],
    ["min", [1, 10, none, 5]],
    ["max", [8, 10, none, 7]],
    ["count", [3, 1, none, 2]],
  ] as const)("combines samples by %s", (combine, expected) => {
    expect([...combineSamples(group, { of: "samples", combine }, buckets)]).toEqual(expected);
  });

  test("interpolates percentiles between order statistics", () => {
    const ten = series(Array.from({ length: 11 }, (_, n) => [100 + n * 0.9, n * 10] as const));
    expect([
      ...combineSamples([ten], { of: "samples", combine: "quantile", quantile: 0.95 }, buckets),
    ]).toEqual([95, none, none, none]);
  });

  test("stays finite when an intermediate sum overflows", () => {
    const huge = Number.MAX_VALUE;
    const two = series([
      [100, huge],
      [101, huge],
      [110, -huge],
    ]);
    for (const combine of ["mean", "last"] as const) {
      expect([...combineSamples([two, two], { of: "samples", combine }, buckets)]).toEqual([
        huge,
        -huge,
        none,
        none,
      ]);
    }
    const swinging = series([100, 101, 102, 103].map((time, n) => [time, n < 2 ? huge : -huge] as const));
    expect(combineSamples([swinging], { of: "samples", combine: "sum" }, buckets)[0]).toBe(0);
  });

  test("ignores NaN and infinite samples", () => {
    const { times, values } = dropNonFinite(
      series([
        [1, 1],
        [2, none],
        [3, infinity],
        [4, -infinity],
        [5, 2],
      ]),
    );
    expect([[...times], [...values]]).toEqual([
      [1, 5],
      [1, 2],
    ]);
  });

  test("combines more samples than a call can take arguments", () => {
    const many = series(Array.from({ length: 300_000 }, (_, n) => [100 + n / 300_000, n] as const));
    expect(combineSamples([many], { of: "samples", combine: "max" }, buckets)[0]).toBe(299_999);
    expect(combineCumulative([many], { of: "cumulative", combine: "max" }, buckets)[0]).toBe(299_999);
  });
});

describe("combineIncrements and combineCumulative", () => {
  test.each([
    [
      "the sample before the range counts",
      series([
        [95, 10],
        [102, 14],
        [118, 20],
      ]),
      [4, 6, none, none],
    ],
    [
      "a growth over a gap lies in the later bucket",
      series([
        [101, 10],
        [131, 70],
      ]),
      [0, none, none, 60],
    ],
    [
      "a restart has grown from 0",
      series([
        [95, 10],
        [102, 14],
        [104, 3],
        [112, 5],
      ]),
      [7, 2, none, none],
    ],
    [
      "two restarts in one bucket",
      series([
        [95, 10],
        [102, 14],
        [104, 3],
        [106, 2],
        [108, 9],
      ]),
      [16, none, none, none],
    ],
    [
      "a restart between two buckets",
      series([
        [95, 10],
        [102, 14],
        [112, 5],
      ]),
      [4, 5, none, none],
    ],
    [
      "a restart just before the range",
      series([
        [92, 50],
        [95, 10],
        [102, 14],
      ]),
      [4, none, none, none],
    ],
    [
      "a new series of a known metric",
      series(
        [
          [112, 5],
          [113, 9],
        ],
        "zero",
      ),
      [none, 9, none, none],
    ],
    [
      "the first series of a metric, or one that comes back",
      series([
        [112, 5],
        [113, 9],
      ]),
      [none, 4, none, none],
    ],
    [
      "edges: before, at and after",
      series([
        [99, 1],
        [100, 2],
        [101, 4],
        [109, 8],
        [110, 16],
      ]),
      [7, 8, none, none],
    ],
    ["nothing", series([]), [none, none, none, none]],
  ] as const)("computes increments: %s", (_, one, expected) => {
    expect([...combineIncrements([one], buckets)]).toEqual(expected);
  });

  test("sums the increments of series", () => {
    const group = [
      series([
        [95, 100],
        [102, 1],
      ]),
      series([
        [95, 5],
        [103, 8],
        [121, 9],
      ]),
    ];
    expect([...combineIncrements(group, buckets)]).toEqual([4, none, 1, none]);
  });

  test("computes increments of fractions in one subtraction", () => {
    const tenths = series(Array.from({ length: 90 }, (_, n) => [100 + n / 10, n / 10] as const));
    expect(combineIncrements([tenths], buckets)[0]).toBe(8.9);
  });

  const group = [
    series([
      [90, 500],
      [101, 100],
      [104, 110],
      [112, 4],
      [113, 6],
    ]),
    series([
      [105, 20],
      [135, 25],
    ]),
  ];
  test.each([
    // The first: 100, 110, then 4 and 2 more. It is carried on after 113. The second begins with 20.
    ["last", [130, 136, none, 141]],
    ["first", [120, 134, none, 141]],
    ["min", [120, 134, none, 141]],
    ["max", [130, 136, none, 141]],
    ["mean", [125, 135, none, 141]],
  ] as const)("combines cumulative values by %s", (combine, expected) => {
    expect([...combineCumulative(group, { of: "cumulative", combine }, buckets)]).toEqual(expected);
  });

  const walk = fc.array(fc.tuple(fc.integer({ min: 1, max: 400_000 }), fc.nat(50)), {
    minLength: 1,
    maxLength: 60,
  });
  const counterOf = (steps: readonly (readonly [number, number])[], from: number): CounterSamples => {
    let time = from;
    return series(
      steps.map(([wait, value]) => {
        time += wait;
        return [time, value] as const;
      }),
      steps.length % 2 === 0 ? "zero" : "own",
    );
  };

  test("increments of minutes sum to the increment of the hour, with restarts and new series", () => {
    const law = fc.property(
      fc.array(walk, { minLength: 1, maxLength: 3 }),
      fc.integer({ min: -2, max: 2 }),
      (steps, at) => {
        const from = at * 3_600_000;
        const range = { from: fromMillis(from), to: fromMillis(from + 2 * 3_600_000 - 1) };
        const group = steps.map((one) => counterOf(one, from - 200_000));
        const minutes = combineIncrements(group, computeGrid(range, "MINUTELY"));
        const hours = combineIncrements(group, computeGrid(range, "HOURLY"));
        for (const [hour, value] of hours.entries()) {
          const some = minutes.slice(hour * 60, hour * 60 + 60).filter((one) => !Number.isNaN(one));
          expect(some.length === 0 ? none : some.reduce((a, b) => a + b, 0)).toBe(value);
        }
      },
    );
    fc.assert(law);
  });

  test("the cumulative value is the first value plus all increments", () => {
    const law = fc.property(walk, (steps) => {
      const one = counterOf(steps, 0);
      const grid = computeGrid({ from: fromMillis(0), to: fromMillis(one.times.at(-1) ?? 0) }, "MINUTELY");
      const last = combineCumulative([one], { of: "cumulative", combine: "last" }, grid).at(-1);
      const grown = combineIncrements([{ ...one, baseline: "zero" }], grid).filter(
        (value) => !Number.isNaN(value),
      );
      expect(grown.reduce((a, b) => a + b, 0)).toBe(last);
    });
    fc.assert(law);
  });
});

describe("combineObservations", () => {
  const histogram = (
    times: readonly number[],
    count: readonly number[],
    sum: readonly number[],
    parts: Readonly<Record<string, readonly number[]>> = {},
  ): Observations => {
    const samples = (values: readonly number[]) =>
      series(values.map((value, n) => [times[n] ?? 0, value] as const));
    return {
      count: samples(count),
      sum: samples(sum),
      buckets: [
        ...Object.entries(parts).map(([bound, values]) => ({
          bound: Number(bound),
          samples: samples(values),
        })),
        { bound: infinity, samples: samples(count) },
      ],
    };
  };
  const observe = (group: readonly Observations[], combine: "count" | "mean" | "min" | "max") => [
    ...combineObservations(group, { of: "observations", combine }, buckets),
  ];

  test("computes count and mean; a bucket without observations has count 0 and no mean", () => {
    const group = [
      histogram([95, 105, 115, 125], [10, 14, 14, 20], [1, 3, 3, 6]),
      histogram([95, 105], [0, 1], [0, 8]),
    ];
    expect(observe(group, "count")).toEqual([5, 0, 6, none]);
    expect(observe(group, "mean")).toEqual([2, none, 0.5, none]);
  });

  test("restarts the sum with the count, not with a falling sum", () => {
    const group = [histogram([95, 105, 115, 125], [10, 14, 16, 3], [50, 30, 28, 29])];
    expect(observe(group, "mean")).toEqual([-5, -1, 29 / 3, none]);
  });

  test("restarts all buckets with the count", () => {
    const group = [histogram([95, 105], [100, 50], [0, 0], { 1: [5, 6], 2: [90, 44] })];
    const counts = [
      { bound: 1, count: 6 },
      { bound: 2, count: 44 },
      { bound: infinity, count: 50 },
    ];
    const quantile = { of: "observations", combine: "quantile", quantile: 0.5 } as const;
    expect(combineObservations(group, quantile, buckets)[0]).toBe(estimateFromCounts(counts, quantile));
    expect(combineObservations(group, quantile, buckets)[0]).toBe(1 + 19 / 38);
  });

  const counts = (...all: readonly (readonly [number, number])[]) =>
    all.map(([bound, count]) => ({ bound, count }));
  test.each([
    ["within its bucket, in proportion", counts([1, 2], [2, 6], [infinity, 10]), 0.5, 1.75],
    ["at a bound", counts([1, 5], [2, 9], [infinity, 10]), 0.9, 2],
    ["from 0 where the least bound is positive", counts([4, 10], [infinity, 10]), 0.5, 2],
    ["at the least bound where it is not positive", counts([-4, 10], [infinity, 10]), 0.5, -4],
    ["at the greatest finite bound where it lies above", counts([1, 1], [2, 2], [infinity, 10]), 0.9, 2],
    ["over bounds that fall", counts([1, 6], [2, 4], [4, 8], [infinity, 8]), 0.9, 2 + (2 * 1.2) / 2],
    ["min: lower bound of the least that has any", counts([1, 0], [2, 0], [4, 3], [infinity, 3]), "min", 2],
    ["min: 0", counts([1, 1], [infinity, 3]), "min", 0],
    ["min: above all finite bounds", counts([1, 0], [2, 0], [infinity, 3]), "min", 2],
    [
      "max: upper bound of the greatest that has any",
      counts([1, 1], [2, 3], [4, 3], [infinity, 3]),
      "max",
      2,
    ],
    ["max: above all finite bounds", counts([1, 1], [2, 3], [infinity, 4]), "max", 2],
    ["nothing recorded", counts([1, 0], [infinity, 0]), 0.9, none],
    ["no finite bound", counts([infinity, 4]), 0.9, none],
    ["no infinite bound", counts([1, 2], [2, 4]), 0.9, none],
    ["no bounds", [], "max", none],
  ] as const)("estimates %s", (_, all, wanted, expected) => {
    const measure =
      typeof wanted === "number"
        ? ({ of: "observations", combine: "quantile", quantile: wanted } as const)
        : ({ of: "observations", combine: wanted } as const);
    const estimate = estimateFromCounts(all, measure);
    if (Number.isNaN(expected)) expect(estimate).toBeNaN();
    else expect(estimate).toBeCloseTo(expected, 12);
  });

  /** What one histogram of its own bounds records in each of the buckets; `undefined` where it has no sample. */
  const recorded = fc.record({
    bounds: fc.subarray([-1, 0, 0.5, 2, 4]),
    values: fc.array(
      fc.option(fc.array(fc.constantFrom(-2, 0, 0.3, 1, 3, 9), { maxLength: 4 }), { nil: undefined }),
      {
        minLength: buckets.count,
        maxLength: buckets.count,
      },
    ),
  });
  type Recorded = typeof recorded extends fc.Arbitrary<infer T> ? T : never;

  /** The series of its parts, the first of them the count. */
  const writeParts = ({ bounds, values }: Recorded, n: number): readonly RawSeries[] => {
    const labels = { tenant: "shop", n: String(n) };
    const write = (limit: number): RawSeries["samples"] => {
      let count = 10 * n;
      return [undefined, ...values].flatMap((some, at) => {
        if (some === undefined && at > 0) return [];
        count += (some ?? []).filter((value) => value <= limit).length;
        return [[buckets.start + (at - 1) * buckets.step, count] as const];
      });
    };
    return [
      { suffix: "_count", labels, samples: write(infinity) },
      ...[...bounds, infinity].map((bound): RawSeries => {
        const le = bound === infinity ? "+Inf" : String(bound);
        return { suffix: "_bucket", labels: { ...labels, le }, samples: write(bound) };
      }),
    ];
  };
  const observeParts = ([count, ...parts]: readonly RawSeries[]): Observations => ({
    count: series(count?.samples ?? []),
    sum: series([]),
    buckets: parts.map(({ labels, samples }) => ({
      bound: Number(labels.le?.replace("+Inf", "Infinity")),
      samples: series(samples),
    })),
  });

  test.each(["min", "max", 0.25, 0.5, 0.9] as const)(
    "estimates %s of histograms of different bounds as the definition does, whichever have samples",
    (wanted) => {
      const measure =
        typeof wanted === "number"
          ? ({ of: "observations", combine: "quantile", quantile: wanted } as const)
          : ({ of: "observations", combine: wanted } as const);
      const metric = "waits_seconds";
      const law = fc.property(fc.array(recorded, { minLength: 1, maxLength: 3 }), (histograms) => {
        const all = histograms.map(writeParts);
        const estimated = combineObservations(all.map(observeParts), measure, buckets);
        const query = { match: {}, metric, tags: {}, measure, buckets, lookBack: 10, pointLimit: 100 };
        const [expected] = computeExpectedSeries(
          [{ metric, kind: "histogram", series: all.flat() }],
          "shop",
          query,
        );
        const round = (value: number) => Number(value.toPrecision(12));
        expect([...estimated].map(round)).toEqual((expected?.values ?? [none, none, none, none]).map(round));
      });
      fc.assert(law);
    },
  );

  test("estimates a bucket from its own samples alone, so that overlapping ranges agree", () => {
    const law = fc.property(
      fc.array(recorded, { minLength: 1, maxLength: 3 }),
      fc.nat(buckets.count - 1),
      (histograms, bucket) => {
        const group = histograms.map((one, n) => observeParts(writeParts(one, n)));
        const part = { ...buckets, start: buckets.start + bucket * buckets.step, count: 1 };
        for (const combine of ["min", "max"] as const) {
          const measure = { of: "observations", combine } as const;
          expect(combineObservations(group, measure, part)[0]).toBe(
            combineObservations(group, measure, buckets)[bucket],
          );
        }
      },
    );
    fc.assert(law);
  });
});
