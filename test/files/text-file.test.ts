// Bytes that are not UTF-8 are told from a replacement character that the writer of a file has put there.
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { readTextFile } from "#src/files/text-file.ts";

test.each([
  ["", ""],
  ["a\uFEFF\uFFFD€😀\n", "a\uFEFF\uFFFD€😀\n"],
  [Buffer.from("a: \uFFFD\nb: \xfcber\n\nc: €", "latin1"), "a: \uDC80\nb: \uDC80ber\n\nc: \uDC80"],
  [
    Buffer.concat([Buffer.from("a: \uFFFD\r\n"), Buffer.from([0xe2, 0x82, 0x0a]), Buffer.from("c: €")]),
    "a: \uFFFD\r\n\uDC80\nc: €",
  ],
])("a file is read as the text that it is, but for what is none", (content, text) => {
  const file = join(mkdtempSync(join(tmpdir(), "readout-")), "file");
  writeFileSync(file, content);
  expect(readTextFile(file)).toBe(text);
});
