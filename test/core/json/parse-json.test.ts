// V8 takes some keys for others that it has seen; what is parsed here is read as it is written.
import fc from "fast-check";
import { expect, test } from "vitest";
import { readJson } from "#src/core/json/json-in-turns.ts";
import { parseExactIntegers, parseLossless } from "#src/core/json/lossless-json.ts";
import { parseJson, parseLargeJson } from "#src/core/json/parse-json.ts";
import { matches } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import { countTurns } from "../../support/event-loop-turns.ts";
import { sampleRuns } from "../../support/law-runs.ts";

const key = fc.string({ unit: fc.constantFrom(...'ab\\"\n:u0'), maxLength: 3 });
const { value } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    fc.constantFrom<unknown>(1, "", 'a\\"b":', null, true, 2.5),
    fc.array(tie("value"), { maxLength: 2 }),
    fc.dictionary(key, tie("value"), { maxKeys: 3, noNullPrototype: true }),
  ),
}));

test.each([
  ["parseJson", parseJson],
  ["parseLossless", parseLossless],
  ["parseExactIntegers", parseExactIntegers],
  ["readJson", readJson],
])("%s reads back what was printed, whatever was read before", (_, read) => {
  const texts = new Set<string>();
  fc.assert(
    fc.property(value, (one) => {
      const text = JSON.stringify(one);
      texts.add(text);
      expect(JSON.stringify(read(text))).toBe(text);
    }),
    { numRuns: sampleRuns(20_000) },
  );
  expect(texts.size).toBeGreaterThan(500);
});

test("a filter finds a key with a quote after one with a backslash", () => {
  const lineOf = (json: string) => ({ json, message: "", severity: "info" }) as never;
  expect(matches(parse("\\\\=1"), lineOf('{"q":0,"\\\\":1}'))).toBe(true);
  expect(matches(parse('\\"=1'), lineOf('{"q":0,"\\"":1}'))).toBe(true);
});

test("numbers are made from their text, also beside such keys", () => {
  const text = '{"\\"":[200.0,12345678901234567890,7]}';
  expect(JSON.stringify(parseLossless(text))).toBe(text);
  expect(parseExactIntegers(text)).toEqual({ '"': [200, 12345678901234567890n, 7] });
});

test.each(["1.0", "-0", "1e3", " 12345678901234567890", "1.5"])(
  "the number %s keeps its spelling alone",
  (text) => {
    expect(JSON.stringify(parseLossless(text))).toBe(text.trim());
  },
);

test.each(['{"\\"":1', '{"\\x":1}', '{"\\"":1,}', '"\\', '{"\\":'])(
  "refuses %s as JSON.parse does",
  (text) => {
    let message = "";
    try {
      JSON.parse(text);
    } catch (error) {
      message = (error as Error).message;
    }
    expect(message).not.toBe("");
    expect(() => parseJson(text)).toThrow(message);
  },
);

test("large texts are parsed with turns of the event loop between, and fail as others do", async () => {
  const text = JSON.stringify(Array.from({ length: 20_000 }, (_, n) => ({ name: `n${n}`, values: [n] })));
  let value: unknown;
  const turns = await countTurns(async () => {
    value = await parseLargeJson(text);
  });
  expect(turns).toBeGreaterThan(25);
  expect(JSON.stringify(value)).toBe(text);
  await expect(parseLargeJson(`${text},`)).rejects.toThrow(SyntaxError);
  await expect(parseLargeJson("[1,")).rejects.toThrow(SyntaxError);
});
