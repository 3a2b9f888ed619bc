// How rows become pages: whole rows, texts that are cut at a mark, and rows that are longer than a page.
import fc from "fast-check";
import { expect, test } from "vitest";
import { fitRows, maxPageChars } from "#src/mcp/tool-pages.ts";
import { countTurns } from "../support/event-loop-turns.ts";

const mark = /^([\s\S]*)\[characters (\d+) to (\d+) of (\d+); (?:go on with offset (\d+)|this is its end)\]$/;

/** The whole text, read piece by piece; `show` answers what is shown from an offset. */
async function readPieces(show: (offset: number) => Promise<string>): Promise<string> {
  let read = "";
  for (let offset = 0; ; ) {
    const [, part, from, , , next] = mark.exec(await show(offset)) ?? [];
    expect(Number(from)).toBe(read.length);
    read += part;
    if (next === undefined) return read;
    expect(Number(next)).toBeGreaterThan(offset);
    offset = Number(next);
  }
}

test("a text that is cut is whole again from its pieces, and no character is split", async () => {
  await fc.assert(
    fc.asyncProperty(fc.string({ unit: "binary", minLength: 120, maxLength: 600 }), async (text) => {
      fc.pre(text.length > 100);
      const read = await readPieces(async (offset) => {
        const [row] = (await fitRows([{ text }], 1, { maxChars: 100, offset })).rows;
        const { text: shown } = row as { readonly text: string };
        expect(shown.isWellFormed()).toBe(true);
        return shown;
      });
      expect(read).toBe(text);
    }),
  );
});

test("a row that is longer than a page comes as its text, piece by piece", async () => {
  const row = { points: Array.from({ length: 5_000 }, (_, at) => ({ at, value: at / 3 })) };
  const read = await readPieces(async (offset) => {
    const page = await fitRows([row, row], 50, { maxChars: 2_000, offset });
    expect(page.shown).toBeGreaterThan(0);
    expect(JSON.stringify(page.rows).length).toBeLessThanOrEqual(maxPageChars);
    return (page.rows[0] as { readonly row_as_text: string }).row_as_text;
  });
  expect(JSON.parse(read)).toEqual(row);
});

test("numbers keep their spelling", async () => {
  const row = JSON.parse('{"n":1}', (key, value) =>
    key === "n"
      ? (JSON as unknown as { rawJSON: (text: string) => unknown }).rawJSON("12345678901234567890.0")
      : value,
  );
  expect(JSON.stringify((await fitRows([row], 1, { maxChars: 100, offset: 0 })).rows)).toBe(
    '[{"n":12345678901234567890.0}]',
  );
});

test("texts are cut beside keys of any name", async () => {
  const row = { attributes: { rawJSON: "x".repeat(500), text: "y".repeat(500) } };
  const [cut] = (await fitRows([row], 1, { maxChars: 100, offset: 0 })).rows;
  expect(JSON.stringify(cut)).toBe(
    JSON.stringify({
      attributes: {
        rawJSON: `${"x".repeat(100)}[characters 0 to 100 of 500; go on with offset 100]`,
        text: `${"y".repeat(100)}[characters 0 to 100 of 500; go on with offset 100]`,
      },
    }),
  );
});

test("rows with long texts are cut in turns of the event loop", async () => {
  const rows = Array.from({ length: 50 }, (_, n) => ({ n, text: "x".repeat(10_000) }));
  expect(await countTurns(() => fitRows(rows, 50, { maxChars: 100, offset: 0 }))).toBeGreaterThanOrEqual(50);
});
