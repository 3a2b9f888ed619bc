// What is written into a cell of a CSV: formulas are defused wherever a spreadsheet would find them.
import { describe, expect, test } from "vitest";
import { printCsv } from "#src/operations/runtime/csv.ts";

describe("a cell", () => {
  test.each([
    ["=1+1", "'=1+1"],
    ["+1", "'+1"],
    ["-1", "'-1"],
    ["@SUM(A1)", "'@SUM(A1)"],
    ["\uff1d1", "'\uff1d1"],
    // Blanks of every kind, which an import trims.
    [" =1", "' =1"],
    ["\u00a0=1", "'\u00a0=1"],
    ["\u3000\u2003+1", "'\u3000\u2003+1"],
    ["\u2028=1", "'\u2028=1"],
    // A byte order mark, and what takes no room.
    ["\ufeff=1", "'\ufeff=1"],
    ["\u200b-1", "'\u200b-1"],
    ["\u202e@x", "'\u202e@x"],
    ["\u00ad=1", "'\u00ad=1"],
    ["\ue000=1", "'\ue000=1"],
    // Control characters.
    ["\0=1", "'\0=1"],
    ["\x01\x1f=1", "'\x01\x1f=1"],
    ["\x7f=1", "'\x7f=1"],
    ["\x85=1", "'\x85=1"],
    ["\v\f =1", "'\v\f =1"],
    ["\t1", "'\t1"],
    ["\ud800=1", "'\ud800=1"],
  ])("begins with an apostrophe where it is a formula: %j", (text, expected) => {
    expect(printCsv([[text]])).toBe(`${expected}\r\n`);
  });

  test.each(["a=1", " a-b", "1", "\ufeffa", "'=1", "", " ", "é=1"])(
    "stays as it is otherwise: %j",
    (text) => {
      expect(printCsv([[text]])).toBe(`${text}\r\n`);
    },
  );

  test("is quoted and defused where it needs both", () => {
    expect(printCsv([["\n=1"], [' ="a",b']])).toBe(`"'\n=1"\r\n"' =""a"",b"\r\n`);
  });

  test("of a number stays a number", () => {
    expect(printCsv([[-1, undefined, 2.5]])).toBe("-1,,2.5\r\n");
  });
});
