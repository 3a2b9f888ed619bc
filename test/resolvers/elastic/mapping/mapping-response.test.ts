// The response of `GET /<pattern>` is cut and parsed in steps, and has the value of JSON.parse.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { readIndexMetadata } from "#resolvers/elastic/mapping/index-metadata.ts";
import { parseMappings } from "#resolvers/elastic/mapping/mapping-response.ts";
import { runSteps } from "#src/core/async/turns.ts";
import { countSteps } from "../../../support/event-loop-turns.ts";

const parse = (text: string) => runSteps(parseMappings(Buffer.from(text)));

/** Mappings of this many indices; those of one number are equal. */
function buildIndices(
  count: number,
  number: (index: number) => number,
): Record<string, { mappings: object }> {
  const build = (index: number) => {
    const names = Array.from({ length: 500 }, (_, n) => `field_${number(index)}_${n}`);
    return { mappings: { properties: Object.fromEntries(names.map((name) => [name, { type: "keyword" }])) } };
  };
  return Object.fromEntries(Array.from({ length: count }, (_, n) => [`logs-${n}`, build(n)]));
}

describe("parseMappings", () => {
  test("has the value of JSON.parse, for any indices and any blanks", () => {
    const mappings = fc.oneof(fc.jsonValue(), fc.constantFrom({}, { a: 1 }, { a: 1, b: "}" }, { a: 11 }));
    const definition = fc.dictionary(fc.oneof(fc.string(), fc.constant("mappings")), mappings, {
      maxKeys: 4,
    });
    const indices = fc.dictionary(fc.string({ unit: "binary" }), definition, { maxKeys: 4 });
    fc.assert(
      fc.property(indices, fc.constantFrom(undefined, 1, "\t", "\n\r"), (value, indent) => {
        const text = JSON.stringify(value, null, indent);
        expect(JSON.stringify(parse(text))).toBe(JSON.stringify(JSON.parse(text)));
      }),
    );
  });

  test("gives indices with equal mappings the same object", () => {
    const found = parse(JSON.stringify(buildIndices(4, (index) => index % 2)));
    const [first, second, third] = Object.values(found) as readonly { mappings: object }[];
    expect(third?.mappings).toBe(first?.mappings);
    expect(second?.mappings).not.toBe(first?.mappings);
  });

  test("refuses a response that is cut off, wherever, or goes on", () => {
    const text = '{"a":{"aliases":{},"mappings":{"x":[1,"]"]}},"b":{"mappings":{"x":[1,"]"]}}}';
    for (let length = 0; length < text.length; length += 1)
      expect(() => parse(text.slice(0, length))).toThrow(SyntaxError);
    for (const other of ["[]", "null", `${text}{}`, '{"a":[]}', '{,"a":{}}', '{"a":{},}', '{"a":{"b":1}{}}'])
      expect(() => parse(other)).toThrow(SyntaxError);
  });

  test("pauses while many mappings are read, whether they are equal or not", () => {
    for (const number of [() => 0, (index: number) => index]) {
      const indices = buildIndices(100, number);
      const bytes = Buffer.from(JSON.stringify(indices));
      expect(countSteps(parseMappings(bytes))).toBeGreaterThanOrEqual(Math.floor(bytes.length / 300_000));
    }
    expect(
      countSteps(
        readIndexMetadata(
          buildIndices(100, (index) => index),
          "*",
        ),
      ),
    ).toBeGreaterThanOrEqual(20);
  });
});
