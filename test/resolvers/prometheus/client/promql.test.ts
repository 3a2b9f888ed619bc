import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { toMetricsQl } from "#resolvers/prometheus/client/metrics-ql.ts";
import {
  aggregate,
  binary,
  call,
  combineMetrics,
  markNonFinite,
  matchAnyOf,
  matchEqual,
  matchGlob,
  matchNoneOf,
  matchPresent,
  number,
  printDuration,
  printExpression,
  select,
  selectRange,
} from "#resolvers/prometheus/client/promql.ts";
import { matchesPattern } from "#src/metrics/tag-patterns.ts";
import { createEvaluator } from "../../../support/prometheus/promql-evaluator.ts";
import { parseSelectors } from "../../../support/prometheus/promql-selectors.ts";

const hostile = fc.oneof(
  fc.string({ unit: "binary" }),
  fc.string({ unit: fc.constantFrom(..."\\\"'`{}()[]=~!,*.+?|^$\n\r\t\0 ab\u007f\ufffdé") }),
  fc.constantFrom('x"} or vector(1) or {a="', "\\", '\\"', "a\nb", "$(x)", "{{x}}", "#", "a*b"),
);
const label = fc.oneof(
  fc.constantFrom("a", "le", "__name__", "on", "by"),
  hostile.filter((text) => text !== ""),
);

describe("PromQL printing", () => {
  test("prints labels and values so that they parse back unchanged", () => {
    fc.assert(
      fc.property(label, hostile, label, hostile, (forced, tenant, key, value) => {
        const selector = select({ [forced]: tenant }, [matchEqual(key, value)]);
        const query = printExpression(
          aggregate(
            "sum",
            [key],
            call("sum_over_time", selectRange(selector, "open", { from: 60_000, to: 1 })),
          ),
        );
        expect(parseSelectors(query)).toEqual([
          [
            { label: key, operator: "=", value },
            { label: forced, operator: "=", value: tenant },
          ],
        ]);
      }),
    );
  });

  test("prints a glob as a regular expression with the same matches", () => {
    const small = fc.string({ unit: fc.constantFrom(..."ab.*\n(") });
    fc.assert(
      fc.property(small, small, (pattern, value) => {
        fc.pre(pattern !== "" && value !== "");
        const { operator, value: text } = matchGlob("k", pattern);
        const accepts: Record<string, () => boolean> = {
          "=": () => value === text,
          "!=": () => value !== text,
          "=~": () => new RegExp(`^(?:${dotAll(text)})$`, "s").test(value),
        };
        expect(accepts[operator]?.()).toBe(matchesPattern(pattern, value));
      }),
    );
  });

  test("prints matchers for any and none of several values", () => {
    fc.assert(
      fc.property(fc.array(hostile, { minLength: 2 }), hostile, (values, value) => {
        const regex = new RegExp(`^(?:${dotAll(matchAnyOf("k", values).value)})$`, "s");
        expect(regex.test(value)).toBe(values.includes(value));
        expect(matchNoneOf("k", values)).toEqual({ ...matchAnyOf("k", values), operator: "!~" });
      }),
    );
  });

  /** JavaScript has the flag outside of the pattern. */
  function dotAll(text: string): string {
    expect(text).toMatch(/^\(\?s:[\s\S]*\)$/);
    return text.slice(4, -1);
  }

  test("prints every kind of expression", () => {
    const all = select({ site: "a" }, [matchEqual("__name__", "x")]);
    expect(printExpression(selectRange(all, "closed", { from: 60_000, to: 1 }))).toBe(
      '{__name__="x",site="a"}[59s999ms] offset 1ms',
    );
    expect(printExpression(selectRange(all, "open", { from: 60_000, to: 1 }))).toBe(
      '{__name__="x",site="a"}[60s] offset 1ms',
    );
    expect(printExpression(selectRange(all, "open", { from: 60_000, to: 0 }))).toBe(
      '{__name__="x",site="a"}[60s1ms]',
    );
    expect(printExpression(aggregate("sum", ["a", "b.c"], binary(all, "+", number(1))))).toBe(
      'sum by (a,"b.c") (({__name__="x",site="a"} + 1))',
    );
    expect(printExpression(select({}, [matchPresent("a"), matchAnyOf("b", ["x", ""])]))).toBe(
      '{a!="",b=~"(?s:x|)"}',
    );
    // Unescaped it would reach the lexer as broken UTF-8.
    expect(printExpression(select({}, [matchEqual("a", "\ud800")]))).toBe('{a="\\ufffd"}');
    // A server of version 2 has labels of such names, and accepts them unquoted in braces only.
    const keyword = select({ inf: "a" }, [matchPresent("without")]);
    expect(printExpression(aggregate("sum", ["NaN", "Without", "on"], keyword))).toBe(
      'sum by ("NaN","Without",on) ({without!="",inf="a"})',
    );
    expect([86_400_000, 1, 90_061_001].map(printDuration)).toEqual(["86400s", "1ms", "90061s1ms"]);
  });
});

test.each([
  [[1, 2], 0],
  [[1e308, -1e308], 0],
  [[1, Number.POSITIVE_INFINITY], Number.POSITIVE_INFINITY],
  [[Number.NEGATIVE_INFINITY, 5], Number.POSITIVE_INFINITY],
  [[Number.POSITIVE_INFINITY], Number.POSITIVE_INFINITY],
  [[Number.NEGATIVE_INFINITY, 5, Number.POSITIVE_INFINITY], Number.POSITIVE_INFINITY],
])("marks samples %j that are not finite", async (values, expected) => {
  const samples = values.map((value, at) => [60_000 + at, value] as const);
  // Like VictoriaMetrics, without results that are NaN.
  const source = createEvaluator([{ labels: { __name__: "g" }, samples }], "open");
  const found: number[] = [];
  const fold = () => ({
    series: (one: { readonly values: Float64Array }) => void found.push(...one.values),
    result: () => found,
  });
  const over = selectRange(select({}, [matchEqual("__name__", "g")]), "open", { from: 60_000, to: 1 });
  const { signal } = new AbortController();
  expect(await source.query(markNonFinite(over, true), { at: 120_000 }, fold, signal)).toEqual([expected]);
});

test("gives VictoriaMetrics the forms that mean the same to it", () => {
  const several = combineMetrics(["x", "y", "z"], (name) =>
    aggregate("max", ["__name__"], select({ site: "a" }, [name])),
  );
  const seen = call("timestamp", select({ site: "a" }, [matchEqual("__name__", "x")]));
  const both = binary(binary(several, ">", number(0)), "or", seen);
  expect(printExpression(toMetricsQl(both, 300_000))).toBe(
    '((union(max by (__name__) ({__name__="x",site="a"}),union(max by (__name__) ({__name__="y",site="a"}),max by (__name__) ({__name__="z",site="a"}))) > 0) or timestamp({__name__="x",site="a"}[300s]))',
  );
});
