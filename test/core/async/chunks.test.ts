import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createUtf8Check, joinChunks } from "#src/core/async/chunks.ts";
import { countTurns } from "../../support/event-loop-turns.ts";
import { sampleRuns } from "../../support/law-runs.ts";

function accepts(bytes: Buffer, cuts: readonly number[]): boolean {
  const check = createUtf8Check();
  let start = 0;
  for (const end of [...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length]) {
    if (!check.push(bytes.subarray(start, end))) return false;
    start = end;
  }
  return check.end();
}

/** The platform's own strict decoder. */
function isDecodable(bytes: Buffer): boolean {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}

const cuts = fc.array(fc.nat(64), { maxLength: 8 });
const texts = fc.string({ unit: fc.constantFrom("a", "é", "漢", "🎉", "\u0000"), maxLength: 12 });
const pieces = fc.constantFrom(
  [0x61],
  [0xc3, 0xa9],
  [0xc3],
  [0xa9],
  [0xe6, 0xbc, 0xa2],
  [0xe6, 0xbc],
  [0xf0, 0x9f, 0x8e, 0x89],
  [0xf0, 0x9f, 0x8e],
  [0xed, 0xa0, 0x80],
  [0xc0, 0x80],
  [0xf5, 0x80, 0x80, 0x80],
  [0xff],
  [0xe9],
);

describe("the check of an answer's UTF-8", () => {
  test("accepts every text, wherever its chunks end", () => {
    fc.assert(fc.property(texts, cuts, (text, cuts) => accepts(Buffer.from(text), cuts)));
  });

  test("accepts what a strict decoder decodes, and nothing else", () => {
    const law = fc.property(fc.array(pieces, { maxLength: 8 }), cuts, (pieces, cuts) => {
      const bytes = Buffer.from(pieces.flat());
      expect(accepts(bytes, cuts)).toBe(isDecodable(bytes));
    });
    fc.assert(law, { numRuns: sampleRuns(2_000) });
  });
});

test("chunks are joined with turns of the event loop between", async () => {
  const chunks = Array.from({ length: 160 }, (_, n) => Buffer.alloc(65_536, n));
  let joined: Buffer = Buffer.alloc(0);
  const turns = await countTurns(async () => {
    joined = await joinChunks(chunks, new AbortController().signal);
  });
  expect(joined.equals(Buffer.concat(chunks))).toBe(true);
  expect(turns).toBeGreaterThanOrEqual(9);
});
