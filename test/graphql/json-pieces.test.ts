import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { printJsonPieces } from "#src/graphql/json-pieces.ts";

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
const leaf = fc.oneof({ arbitrary: short, weight: 5 }, { arbitrary: long, weight: 1 });
const { tree } = fc.letrec<{ tree: unknown }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    leaf,
    fc.array(tie("tree"), { maxLength: 6 }),
    fc.dictionary(fc.string({ maxLength: 5 }), tie("tree"), { maxKeys: 6 }),
  ),
}));

describe("printJsonPieces", () => {
  test("prints what JSON.stringify prints, for any value", () => {
    const property = fc.property(tree, (value) => {
      const whole = { data: value };
      expect([...printJsonPieces(whole)].join("")).toBe(JSON.stringify(whole));
    });
    fc.assert(property, { numRuns: 200 });
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
});
