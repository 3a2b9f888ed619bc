// A list is read while it arrives as JSON.parse reads it, wherever chunks are cut.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createListScanner } from "#resolvers/prometheus/client/list-scanner.ts";

/** The elements that are taken, and the text around them, of a text that arrives in these chunks. */
function scan(bytes: Buffer, cuts: readonly number[] = []): { elements: unknown[]; frame: unknown } {
  const elements: unknown[] = [];
  const scanner = createListScanner((taken) => elements.push(...taken));
  let start = 0;
  for (const end of [...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length]) {
    scanner.push(bytes.subarray(start, end));
    start = end;
  }
  return { elements, frame: JSON.parse(scanner.end()) };
}

const text = fc.string({ unit: fc.constantFrom(...'\\"{}[]:,é\n😀ab') });
const element = fc.oneof(fc.dictionary(text, text), text, fc.jsonValue());

describe("the scanner of lists", () => {
  test("takes the elements of JSON.parse", () => {
    const lists = fc.array(element, { maxLength: 8 });
    const cuts = fc.array(fc.nat(), { maxLength: 8 });
    fc.assert(
      fc.property(lists, cuts, fc.constantFrom(undefined, 1, "\t"), (data, cuts, indent) => {
        const whole = JSON.stringify({ status: "success", data, warnings: ["é"] }, null, indent);
        const found = scan(Buffer.from(whole), cuts);
        expect(JSON.stringify(found.elements)).toBe(JSON.stringify(JSON.parse(JSON.stringify(data))));
        expect(found.frame).toEqual({ status: "success", data: [], warnings: ["é"] });
      }),
    );
  });

  test.each([{ status: "success", data: null }, { status: "error" }, { data: { a: 1 } }])(
    "leaves other responses as they are: %j",
    (response) => {
      expect(scan(Buffer.from(JSON.stringify(response)), [7])).toEqual({ elements: [], frame: response });
    },
  );

  test("refuses what is no JSON or ends too early, wherever chunks are cut", () => {
    const whole = '{"data":["a",{"b":"]"}],"x":1}';
    const broken = ["[,1]", "[1,]", "[1,,2]", "[,]", "[1 2]", "[}", "[{]}"].map((list) => `{"data":${list}}`);
    const short = Array.from({ length: whole.length }, (_, length) => whole.slice(0, length));
    for (const text of [...broken, ...short]) {
      for (let cut = 0; cut <= text.length; cut += 1)
        expect(() => scan(Buffer.from(text), [cut]), text).toThrow(SyntaxError);
    }
  });

  test("takes elements before the list has ended", () => {
    let taken = 0;
    const scanner = createListScanner((elements) => {
      taken += elements.length;
    });
    scanner.push(Buffer.from('{"data":["a","b","c'));
    expect(taken).toBe(2);
  });
});
