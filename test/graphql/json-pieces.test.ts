import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseLossless } from "#src/core/json/lossless-json.ts";
import { printJsonPieces } from "#src/graphql/json-pieces.ts";
import { sampleRuns } from "../support/law-runs.ts";

const odd = fc.constantFrom<unknown>(
  undefined,
  () => 1,
  Symbol("s"),
  Number.NaN,
  -0,
  new Date(0),
  Object(5),
  Object("x"),
  { toJSON: () => ({ shown: true }) },
  { toJSON: () => undefined },
  Object.create(null),
  "\ud800 lone",
);
const short = fc.oneof(odd, fc.jsonValue({ maxDepth: 1 }), fc.string({ unit: "binary", maxLength: 200 }));
/** Also lists that are longer than what is printed at once. */
const long = fc
  .tuple(short, fc.integer({ min: 1_000, max: 3_000 }))
  .map(([one, count]) => Array(count).fill(one));
/** Texts that end near the end of a piece, or have pairs of surrogates there. */
const longText = fc.oneof(
  fc.integer({ min: 65_530, max: 65_545 }).map((length) => `${"x".repeat(length)}😀`),
  fc.constantFrom("😀".repeat(70_000), `x${"😀".repeat(70_000)}`, "\ud800".repeat(70_000)),
);
const leaf = fc.oneof(
  { arbitrary: short, weight: 8 },
  { arbitrary: longText, weight: 1 },
  { arbitrary: long, weight: 1 },
);
const { tree } = fc.letrec<{ tree: unknown }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    leaf,
    fc.array(tie("tree"), { maxLength: 6 }),
    fc.dictionary(fc.string({ maxLength: 5 }), tie("tree"), { maxKeys: 6 }),
  ),
}));

const print = (value: object): string => [...printJsonPieces(value)].join("");

describe("printJsonPieces", () => {
  test("prints what JSON.stringify prints, for any value", () => {
    const property = fc.property(tree, (value) => {
      const whole = { data: value };
      expect([...printJsonPieces(whole)].join("")).toBe(JSON.stringify(whole));
    });
    fc.assert(property, { numRuns: sampleRuns(200) });
  });

  test("prints megabytes in pieces of some ten thousand characters", () => {
    const rows = Array.from({ length: 50_000 }, (_, n) => ({
      id: `row ${n}`,
      tags: { n, text: "x".repeat(200) },
    }));
    const value = { data: { rows, nested: [{ rows }] } };
    const pieces = [...printJsonPieces(value)];
    expect(pieces.join("")).toBe(JSON.stringify(value));
    expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThan(200_000);
  });

  test("prints values nested deeper than the stack of a recursive printer", () => {
    let nested: unknown = 1;
    for (let depth = 0; depth < 200_000; depth++) nested = [nested];
    expect(print({ data: nested })).toBe(`{"data":${"[".repeat(200_000)}1${"]".repeat(200_000)}}`);
  });

  test("keeps the spelling of numbers that a double cannot hold", () => {
    const rows = Array.from({ length: 5_000 }, () => parseLossless('{"a":9007199254740993,"b":1.50}'));
    const row = '{"a":9007199254740993,"b":1.50}';
    expect(print({ rows })).toBe(`{"rows":[${Array.from({ length: 5_000 }, () => row).join()}]}`);
  });

  test("prints a small result in one piece", () => {
    expect([...printJsonPieces({ data: { viewer: { id: "a" } } })]).toEqual([
      '{"data":{"viewer":{"id":"a"}}}',
    ]);
  });

  test.each([
    ["many rows", Array.from({ length: 20_000 }, (_, at) => ({ at, text: "a".repeat(100) }))],
    ["one long text", ["é".repeat(3_000_000)]],
    [
      "one row of many values",
      [Object.fromEntries(Array.from({ length: 100_000 }, (_, at) => [`k${at}`, at]))],
    ],
    [
      "rows within rows",
      Array.from({ length: 100 }, () => [Array.from({ length: 100 }, () => ["a".repeat(300)])]),
    ],
  ])("prints %s in pieces of at most 128 KiB", (_, rows) => {
    const pieces = [...printJsonPieces({ data: { rows } })];
    expect(pieces.join("")).toBe(JSON.stringify({ data: { rows } }));
    expect(Math.max(...pieces.map((piece) => piece.length))).toBeLessThan(131_072);
    expect(pieces.length).toBeGreaterThan(10);
  });
});
