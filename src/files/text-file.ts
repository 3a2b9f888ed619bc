// Reads a text file, and keeps what is not UTF-8 apart from what is.
import { isUtf8 } from "node:buffer";
import { readFileSync } from "node:fs";

/** What no UTF-8 holds. The usual replacement, U+FFFD, may be the writer's own. */
const undecoded = "\uDC80";

/** In a line that is not UTF-8, a lone surrogate stands for what cannot be read. Throws what the file system throws. */
export function readTextFile(path: string): string {
  const bytes = readFileSync(path);
  if (isUtf8(bytes)) return bytes.toString("utf8");
  // No character of UTF-8 but the line feed has its byte.
  const lines = bytes.toString("latin1").split("\n");
  return lines.map((line) => decodeLine(Buffer.from(line, "latin1"))).join("\n");
}

function decodeLine(bytes: Buffer): string {
  const text = bytes.toString("utf8");
  return isUtf8(bytes) ? text : text.replaceAll("\uFFFD", undecoded);
}
