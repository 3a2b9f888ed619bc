// Laws for all queries, syntax trees, lines and numbers. fast-check prints the input that violates one.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { runSteps } from "#src/core/async/turns.ts";
import { Unprocessable } from "#src/core/errors.ts";
import { type LogLine, severities } from "#src/core/rows.ts";
import {
  type Compare,
  type Field,
  type Filter,
  lineFields,
  numberPattern,
  operators,
  type Path,
} from "#src/log-query/ast.ts";
import { orderDecimals, parseDecimal } from "#src/log-query/decimal.ts";
import { openBody, readExact, spelling } from "#src/log-query/json-body.ts";
import { compileMatcher, compileSteppedMatcher, matches } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import { print } from "#src/log-query/print.ts";
import { startProcessorTime } from "../support/cpu-time.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { toLogLine } from "./script.ts";

const nowhere = { start: 0, end: 0 };

/** Text mostly of characters that the grammar uses, without NUL and lone surrogates. */
const awkward = fc.string({
  unit: fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom(...'ab01.\\"()[]=!:<>, \t\n-_{}') },
    {
      weight: 1,
      arbitrary: fc.constantFrom("AND", "OR", "attributes", "_int", "_string", "message", "é", "😀"),
    },
    { weight: 1, arbitrary: fc.string({ unit: "binary", minLength: 1, maxLength: 1 }) },
  ),
  maxLength: 12,
});
const text = awkward.map((value) => value.replaceAll("\0", "").toWellFormed());
const number = fc.stringMatching(/^-?\d{1,4}(\.\d{1,3})?(e[+-]?\d{1,2})?$/);

const path: fc.Arbitrary<Path> = fc
  .array(fc.oneof(text, fc.constantFrom("a", "b", "0", "1", "message", "attributes", "x_int", "AND")), {
    minLength: 1,
    maxLength: 4,
  })
  .map(([first = "a", ...others]): Path => [first, ...others])
  .filter((keys) => keys.length > 1 || keys[0] !== "");
const field: fc.Arbitrary<Field> = fc.oneof(
  fc.constantFrom(...lineFields).map((name): Field => ({ kind: "line", name })),
  path.map((keys): Field => ({ kind: "json", path: keys })),
);
const compare: fc.Arbitrary<Compare> = fc
  .tuple(field, fc.constantFrom(...operators), text, number)
  .map(([on, operator, value, digits]) => ({
    kind: "compare",
    field: on,
    operator,
    value: operator.includes(">") || operator.includes("<") ? digits : value,
    span: nowhere,
  }));
const { filter } = fc.letrec<{ filter: Filter }>((tie) => ({
  filter: fc.oneof(
    { depthSize: "small" },
    compare,
    fc
      .tuple(fc.constantFrom("and", "or"), fc.array(tie("filter"), { minLength: 2, maxLength: 4 }))
      .map(([kind, operands]) => group(kind, operands)),
  ),
}));

function group(kind: "and" | "or", [first, second, ...rest]: readonly Filter[]): Filter {
  if (first === undefined || second === undefined) throw new Error("a group has two operands");
  // The parser flattens chains without parentheses; an AND inside an OR never needs them.
  return { kind, operands: [first, second, ...rest], span: nowhere };
}

function withoutSpans(value: Filter): Filter {
  if (value.kind === "all") return value;
  if (value.kind === "compare") return { ...value, span: nowhere };
  return group(value.kind, value.operands.map(withoutSpans));
}

const json = fc.oneof(
  fc.json({ maxDepth: 4 }),
  fc
    .dictionary(fc.constantFrom("a", "b", "0", "message"), fc.jsonValue({ maxDepth: 3 }), { maxKeys: 4 })
    .map((body) => JSON.stringify(body)),
);
const line: fc.Arbitrary<LogLine> = fc
  .record({
    severity: fc.constantFrom(...severities),
    message: fc.option(text, { nil: undefined }),
    hostname: fc.option(text, { nil: undefined }),
    json,
  })
  .map((row) => ({ ...toLogLine({ id: "a", json: row.json }), ...row }));

describe("log query: print and parse", () => {
  test("parse(print(f)) equals f except for spans, in both grammars", () => {
    fc.assert(
      fc.property(filter, (tree) => {
        expect(withoutSpans(parse(print(tree)))).toEqual(tree);
        expect(withoutSpans(parse(print(tree), { legacy: true }))).toEqual(tree);
      }),
      { numRuns: sampleRuns(2_000) },
    );
  });

  test.each([false, true])("parse(print(parse(q))) equals parse(q), legacy %s", (legacy) => {
    const runs = sampleRuns(3_000);
    let read = 0;
    fc.assert(
      fc.property(queryText, (query) => {
        const tree = attempt(query, legacy);
        if (tree === undefined) return;
        read++;
        expect(withoutSpans(parse(print(tree), { legacy }))).toEqual(withoutSpans(tree));
      }),
      { numRuns: runs },
    );
    expect(read).toBeGreaterThan(runs / 10);
  });
});

const queryText = fc.oneof(
  fc.string({ unit: "binary", maxLength: 60 }),
  awkward,
  fc
    .array(
      fc.constantFrom(
        ...'()=:"\\!<>[],. ',
        " AND ",
        " OR ",
        "a=1",
        "b!=x",
        '"q r"',
        "attributes.a_int>1",
        "=[x,y]",
        "😀",
      ),
      { maxLength: 16 },
    )
    .map((parts) => parts.join("")),
);

/** The filter, or undefined for a refusal, whose details are checked against the text. */
function attempt(query: string, legacy: boolean): Filter | undefined {
  try {
    return parse(query, { legacy });
  } catch (error) {
    if (!(error instanceof Unprocessable)) throw error;
    if (error.slug === "invalid_log_query") {
      const { start, end } = error.details as { start: number; end: number };
      expect(0 <= start && start <= end && end <= query.length).toBe(true);
    } else if (error.slug === "legacy_log_query_syntax") {
      expect(legacy).toBe(false);
      expect(query).toContain((error.details as { field: string }).field);
    } else expect(error.slug).toBe("log_query_too_complex");
    return undefined;
  }
}

function checkSpans(tree: Filter, from: number, to: number): void {
  if (tree.kind === "all") return;
  expect(from <= tree.span.start && tree.span.start < tree.span.end && tree.span.end <= to).toBe(true);
  if (tree.kind === "compare") return;
  let start = tree.span.start;
  for (const operand of tree.operands) {
    checkSpans(operand, start, tree.span.end);
    if (operand.kind !== "all") start = operand.span.end;
  }
}

test.each([false, true])(
  "parse throws only Unprocessable; spans nest and lie inside the text, legacy %s",
  (legacy) => {
    fc.assert(
      fc.property(queryText, (query) => {
        const tree = attempt(query, legacy);
        if (tree !== undefined) checkSpans(tree, 0, query.length);
      }),
      { numRuns: sampleRuns(5_000) },
    );
  },
);

describe("log query parser: long and hostile queries", () => {
  const size = 65_536;
  const fill = (part: string) => part.repeat(Math.ceil(size / part.length)).slice(0, size);
  test.each([
    ["a", true],
    ["\\", true],
    [".", true],
    ["!", true],
    ["a ", false],
    ["\\ ", false],
    ["a\\ ", false],
    ["a\\ b", false],
    ["a\\\\\\ ", false],
    ["(", false],
    ["()", false],
    [")", false],
    ['"', false],
    ['"\\', false],
    ['"a" ', false],
    ["=", false],
    ["a=", true],
    ["a=[", true],
    ["a=[x,", true],
    ["AND ", false],
    ["a=1 OR ", false],
    ["(a=1 OR ", false],
    ["a.", true],
    ["a\\.", true],
    ["0", true],
    ["\0", false],
    ["\ud800", false],
    ["😀", true],
  ])("parses or refuses repeated %j in linear time", (part, mayParse) => {
    for (const before of ["", 'x="', "x>", "x>1e", "x=[", "attributes."]) {
      const query = (before + fill(part)).slice(0, size);
      const used = startProcessorTime();
      const trees = [attempt(query, false), attempt(query, true)];
      expect(used()).toBeLessThan(500);
      if (before === "" && !mayParse) expect(trees).toEqual([undefined, undefined]);
    }
  });

  test("refuses 10,000 parentheses as too complex, also unbalanced ones", () => {
    for (const query of [`${"(".repeat(10_000)}a${")".repeat(10_000)}`, "(".repeat(10_000)]) {
      expect(() => parse(query)).toThrow(expect.objectContaining({ slug: "log_query_too_complex" }));
    }
  });
});

describe("matches(filter, line)", () => {
  const trees = fc.tuple(filter, filter, line);

  test("evaluates `and`, `or` and `all`", () => {
    fc.assert(
      fc.property(trees, ([one, two, row]) => {
        expect(matches(group("and", [one, two]), row)).toBe(matches(one, row) && matches(two, row));
        expect(matches(group("or", [one, two]), row)).toBe(matches(one, row) || matches(two, row));
        expect(matches({ kind: "all" }, row)).toBe(true);
      }),
      { numRuns: sampleRuns(1_000) },
    );
  });

  test("evaluates a negative operator as the negation of its positive one", () => {
    fc.assert(
      fc.property(field, text, line, (on, value, row) => {
        for (const [operator, negative] of [
          ["=", "!="],
          [":", "!:"],
        ] as const) {
          const leaf: Compare = { kind: "compare", field: on, operator, value, span: nowhere };
          expect(matches({ ...leaf, operator: negative }, row)).toBe(!matches(leaf, row));
        }
      }),
      { numRuns: sampleRuns(1_000) },
    );
  });

  test("gives the same result in steps, where a line is long", () => {
    const padding = " ".repeat(1_100_000);
    fc.assert(
      fc.property(filter, line, (tree, row) => {
        const long = { ...row, json: row.json + padding };
        const found = compileSteppedMatcher(tree)(long);
        expect(typeof found === "boolean" ? found : runSteps(found)).toBe(matches(tree, row));
      }),
      { numRuns: sampleRuns(100) },
    );
  });

  test("gives the same result for a printed and parsed filter", () => {
    fc.assert(
      fc.property(filter, fc.array(line, { maxLength: 5 }), (tree, rows) => {
        const again = compileMatcher(parse(print(tree)));
        expect(rows.map(again)).toEqual(rows.map(compileMatcher(tree)));
      }),
      { numRuns: sampleRuns(500) },
    );
  });

  // An independent, slow implementation of the contract's rules for paths, on bodies that JSON.stringify preserves.
  test("finds the values of a path as the contract defines them", () => {
    const body = fc.letrec<{ node: unknown }>((tie) => ({
      node: fc.oneof(
        { depthSize: "medium" },
        fc.constantFrom<unknown>("x", "y", "1", 1, 2.5, true, null),
        fc.array(tie("node"), { maxLength: 3 }),
        fc.dictionary(fc.constantFrom("a", "b", "0", "1"), tie("node"), { maxKeys: 3 }),
      ),
    })).node;
    const keys = fc.array(fc.constantFrom("a", "b", "0", "1", "01"), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(
        body,
        keys,
        fc.constantFrom("x", "y", "1", "2.5", "true", "null", ""),
        (tree, [first = "a", ...others], value) => {
          const row = toLogLine({ id: "a", json: JSON.stringify({ a: tree, b: [tree] }) });
          const values = valuesAt(JSON.parse(row.json), [first, ...others]);
          const leaf = (operator: Compare["operator"]): Compare => ({
            kind: "compare",
            field: { kind: "json", path: [first, ...others] },
            operator,
            value,
            span: nowhere,
          });
          expect(matches(leaf("="), row)).toBe(values.includes(value));
          expect(matches(leaf(":"), row)).toBe(values.some((text) => text.includes(value)));
          const numbers = values.filter((text) => numberPattern.test(text)).map(Number);
          if (numberPattern.test(value))
            expect(matches(leaf(">"), row)).toBe(numbers.some((one) => one > Number(value)));
        },
      ),
      { numRuns: sampleRuns(5_000) },
    );
  });

  function valuesAt(node: unknown, keys: readonly string[]): string[] {
    const [key, ...rest] = keys;
    if (Array.isArray(node)) {
      return key !== undefined && /^(0|[1-9]\d*)$/.test(key)
        ? valuesAt(node[Number(key)], rest)
        : node.flatMap((element) => valuesAt(element, keys));
    }
    if (key === undefined) {
      return node === null || node === undefined || typeof node === "object" ? [] : [String(node)];
    }
    if (typeof node !== "object" || node === null || !Object.hasOwn(node, key)) return [];
    return valuesAt((node as Record<string, unknown>)[key], rest);
  }
});

describe("log query numbers", () => {
  const decimal = fc.oneof(
    number,
    fc.stringMatching(/^-?0{0,3}\d{1,25}(\.\d{1,25})?([eE][+-]?0{0,2}\d{1,2})?$/),
    fc.constantFrom(
      "0",
      "-0",
      "0.0e5",
      "1",
      "1.0",
      "10e-1",
      "0.1e1",
      "00100e-2",
      "-1",
      "99999999999999999999e-20",
    ),
  );

  /** The value times 10^200: an integer for every exponent above. */
  function scaled(value: string): bigint {
    const [, sign = "", whole = "", fraction = "", exponent = "0"] =
      /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(value) ?? [];
    const magnitude = BigInt(whole + fraction) * 10n ** BigInt(200 + Number(exponent) - fraction.length);
    return sign === "-" ? -magnitude : magnitude;
  }

  function compareDecimals(left: string, right: string): number | undefined {
    const one = parseDecimal(left);
    const two = parseDecimal(right);
    return one === undefined || two === undefined ? undefined : orderDecimals(one, two);
  }

  test("compare decimals as exact integers", () => {
    fc.assert(
      fc.property(decimal, decimal, (one, two) => {
        const [left, right] = [scaled(one), scaled(two)];
        expect(Math.sign(compareDecimals(one, two) ?? Number.NaN) + 0).toBe(
          left < right ? -1 : left > right ? 1 : 0,
        );
      }),
      { numRuns: sampleRuns(10_000) },
    );
  });

  test.each([
    ["1e999999999", "1e999999998", 1],
    ["-1e999999999", "1", -1],
    ["1e-999999999", "0", 1],
    ["1e99999999999999999999", "1e99999999999999999998", 1],
    ["10e99999999999999999999", "1e100000000000000000000", 0],
    ["0e99999999999999999999", "0", 0],
    ["1e999999999999999", "10e999999999999998", 0],
    ["1e10000000000000000", "0.001e10000000000000003", 0],
    ["1e9999999999999999", "0.01e10000000000000000", 1],
    ["1e-10000000000000000", "1000e-9999999999999999", -1],
    ["1e00000000000000000000000002", "100", 0],
    [`1e${"9".repeat(1_000_000)}`, "1e999", 1],
    [`1e-${"9".repeat(1_000_000)}`, `1e${"9".repeat(20)}`, -1],
    ["1e-99999999999999999999", "1e-5", -1],
    ["0.1000000000000000055511151231257827", "0.1", 1],
    ["9007199254740993", "9007199254740992", 1],
  ])("compare %s with %s as %i", (left, right, order) => {
    expect(Math.sign(compareDecimals(left, right) ?? Number.NaN)).toBe(order);
    expect(Math.sign(compareDecimals(right, left) ?? Number.NaN) + 0).toBe(0 - order);
  });

  test.each(["", " 1", "1 ", "+1", ".5", "5.", "1e", "0x1", "NaN", "Infinity", "1\n", "١", "--1", "1,0"])(
    "%j is no number",
    (value) => {
      expect(compareDecimals(value, "1")).toBeUndefined();
    },
  );

  test("compare long numbers in linear time", () => {
    const used = startProcessorTime();
    for (const long of [
      `${"0".repeat(65_000)}1`,
      `1${"0".repeat(65_000)}1e-5`,
      `1e${"9".repeat(65_000)}`,
      "1".repeat(65_000),
    ]) {
      expect(compareDecimals(long, "-1")).toBeGreaterThan(0);
      expect(compareDecimals(`${long}x`, "-1")).toBeUndefined();
    }
    expect(used()).toBeLessThan(1_000);
  });

  test("compare numbers of a body by their text where doubles are equal", () => {
    fc.assert(
      fc.property(
        fc.stringMatching(/^-?(0|[1-9]\d{0,20})(\.\d{1,20})?([eE][+-]?\d{1,2})?$/),
        decimal,
        fc.constantFrom(">", ">=", "<", "<=", "=", "!=", ":", "!:"),
        (left, right, operator) => {
          const filter = (value: string): Compare => ({
            kind: "compare",
            field: { kind: "json", path: ["n"] },
            operator,
            value,
            span: nowhere,
          });
          for (const value of [left, right]) {
            const asNumber = matches(filter(value), toLogLine({ id: "a", json: `{"n":${left}}` }));
            const asText = matches(filter(value), toLogLine({ id: "a", json: `{"n":"${left}"}` }));
            expect(asNumber).toBe(asText);
          }
        },
      ),
      { numRuns: sampleRuns(3_000) },
    );
  });

  test("the lossless JSON reader equals JSON.parse but keeps the text of numbers", () => {
    const undo = (node: unknown): unknown => {
      if (node instanceof Map) return Object.fromEntries([...node].map(([key, value]) => [key, undo(value)]));
      if (Array.isArray(node)) return node.map(undo);
      if (typeof node === "object" && node !== null && spelling in node) return Number(node[spelling]);
      return node;
    };
    fc.assert(
      fc.property(fc.json({ maxDepth: 6 }), fc.constantFrom(undefined, 1, "\t"), (source, indent) => {
        const spaced = JSON.stringify(JSON.parse(source), null, indent);
        expect(undo(readExact(spaced))).toEqual(JSON.parse(spaced));
      }),
      { numRuns: sampleRuns(1_000) },
    );
    expect(openBody('{"a":1.0}').exact()).toEqual(new Map([["a", { [spelling]: "1.0" }]]));
  });
});
