// Copies of texts. A text that is cut from a response keeps the whole response in memory.
import type { LogLine } from "../../../src/core/rows.ts";

/** Shorter ones are copied by V8 itself when they are cut. */
const leastSliceChars = 13;

// biome-ignore lint/suspicious/noControlCharactersInRegex: what one byte each can hold
const beyondLatin1 = /[^\x00-\xff]/;

/** V8 has no way to ask for a copy of a text; bytes that are decoded again are one. */
export function copyText(text: string): string {
  if (text.length < leastSliceChars) return text;
  const encoding = beyondLatin1.test(text) ? "utf16le" : "latin1";
  return Buffer.from(text, encoding).toString(encoding);
}

/** A slice of a response keeps all of it in memory. */
export function copyLine(line: LogLine): LogLine {
  const { id, message, hostname, group, json } = line;
  return {
    ...line,
    id: copyText(id),
    message: message && copyText(message),
    hostname: hostname && copyText(hostname),
    group: group && copyText(group),
    json: copyText(json),
  };
}
