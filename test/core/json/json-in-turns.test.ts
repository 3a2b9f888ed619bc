// Large bodies are parsed in turns; whatever they hold, the value and the place of an error are those of JSON.parse.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { JsonSyntaxError, parseJsonInTurns } from "#src/core/json/json-in-turns.ts";
import { parseLossless, parseNumberLossless } from "#src/core/json/lossless-json.ts";
import { countTurns } from "../../support/event-loop-turns.ts";
import { sampleRuns } from "../../support/law-runs.ts";

/** The value of JSON.parse, or where it stopped. */
function parseAtOnce(text: string): { value: unknown } | { position: number | undefined } {
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    const { message } = error as SyntaxError;
    if (message === "Unexpected end of JSON input") return { position: text.length };
    // V8 quotes short texts instead of naming the position.
    const position = / at position (\d+)/.exec(message)?.[1];
    return { position: position === undefined ? undefined : Number(position) };
  }
}

async function parseInTurns(text: string): Promise<{ value: unknown } | { position: number }> {
  try {
    return { value: await parseJsonInTurns(text) };
  } catch (error) {
    expect(error).toBeInstanceOf(JsonSyntaxError);
    // Whoever catches what JSON.parse throws catches this too.
    expect(error).toBeInstanceOf(SyntaxError);
    return { position: (error as JsonSyntaxError).position };
  }
}

async function expectEqual(text: string): Promise<void> {
  const expected = parseAtOnce(text);
  const found = await parseInTurns(text);
  if ("value" in expected || expected.position !== undefined) expect(found, text).toEqual(expected);
  else expect(found, text).toHaveProperty("position");
}

describe("a body that is parsed in turns", () => {
  test("has the value of JSON.parse, for any value and any blanks", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.json({ maxDepth: 6 }),
        fc.constantFrom(undefined, 1, "\t", "\n\r"),
        async (text, indent) => {
          await expectEqual(JSON.stringify(JSON.parse(text), null, indent));
        },
      ),
      { numRuns: sampleRuns(500) },
    );
  });

  test("keeps the spelling of numbers where it is asked to, as parseLossless does", async () => {
    const numbers = ["200.0", "1e5", "-0", "12345678901234567890", "0.1", "7", "1E-7", "0.0000001"];
    const text = `{"a":[${numbers.join()}],"at":"12:30:20.000Z"}`;
    const value = await parseJsonInTurns(text, parseNumberLossless);
    expect(JSON.stringify(value)).toBe(text);
    expect(JSON.stringify(parseLossless(text))).toBe(text);
  });

  test("keeps the order of keys, the last of equal ones, and `__proto__` as a key", async () => {
    const text = '{"b":1,"a":2,"b":[3],"__proto__":{"x":1},"7":0}';
    const value = await parseJsonInTurns(text);
    expect(JSON.stringify(value)).toBe('{"7":0,"b":[3],"a":2,"__proto__":{"x":1}}');
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
  });

  test.each([
    "",
    " ",
    "[",
    "[1,",
    "[1,]",
    "{",
    '{"a"',
    '{"a":',
    '{"a":1,}',
    "{1}",
    "tru",
    "trux",
    "nul",
    "01",
    "-",
    "-x",
    "1.",
    "1.x",
    "1e",
    "1e+",
    "1e+x",
    "1 2",
    "[1 2]",
    '"a',
    '"a\\',
    '"a\\x"',
    '"\\u12"',
    '"\\u12g4"',
    '"\n"',
    "\u00a01",
    "[1}",
    '{"a" 1}',
    ".5",
    "+1",
    "NaN",
    '"\\ud800"',
    "-0",
    "1E400",
  ])("ends at the same place: %j", async (text) => {
    // V8 names the position of long texts only.
    for (const before of ["", `[${" ".repeat(100)}`]) await expectEqual(before + text);
  });

  test("ends at the same place wherever a text is cut or changed", async () => {
    const character = fc.constantFrom(...'[]{}:,"\\0123.eE+-tfnul \n\u0000ä');
    await fc.assert(
      fc.asyncProperty(
        fc.json(),
        fc.nat(),
        fc.array(character, { maxLength: 3 }),
        fc.nat(3),
        async (json, at, put, cut) => {
          const text = `${" ".repeat(60)}${json}`;
          const place = at % (text.length + 1);
          await expectEqual(text.slice(0, place) + put.join("") + text.slice(place + cut));
        },
      ),
      { numRuns: sampleRuns(2_000) },
    );
  });

  test("lets other work run while a megabyte is parsed", async () => {
    for (const text of [
      `${"[".repeat(500_000)}${"]".repeat(500_000)}`,
      `[${Array(340_000).fill("{}").join()}]`,
      `{${Array.from({ length: 80_000 }, (_, n) => `"k${n}":1`).join()}}`,
    ]) {
      expect(await countTurns(() => parseJsonInTurns(text))).toBeGreaterThan(25);
    }
  });
});
