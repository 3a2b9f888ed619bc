// Parses the response of `GET /<pattern>`, which has tens of megabytes where hundreds of indices have a thousand fields each. Most
// of it is the same mapping over and over, which is found by its bytes and parsed once.
import { hash } from "node:crypto";
import type { Steps } from "../../../src/core/async/turns.ts";
import {
  closeBrace,
  colon,
  comma,
  findStringEnd,
  findValueEnd,
  openBrace,
  quote,
  skipSpace,
} from "../../../src/core/json/json-bytes.ts";
import { parseJson } from "../../../src/core/json/parse-json.ts";

/** What is read in one step: one to some milliseconds. */
const bytesPerStep = 262_144;

interface Cursor {
  readonly bytes: Buffer;
  at: number;
  /** Where the next step begins. */
  stepEnd: number;
  /** The text of a mapping as last seen, and its value. */
  lastText: Buffer;
  lastMapping: unknown;
  /** By the digests of their texts. */
  readonly mappings: Map<string, unknown>;
}

/** The value of the response. Indices whose mappings have the same bytes share the same object. @throws {SyntaxError} */
export function* parseMappings(bytes: Buffer): Steps<Readonly<Record<string, unknown>>> {
  const cursor: Cursor = {
    bytes,
    at: 0,
    stepEnd: bytesPerStep,
    lastText: Buffer.alloc(0),
    lastMapping: undefined,
    mappings: new Map(),
  };
  const indices: [string, unknown][] = [];
  for (const index of readKeys(cursor)) {
    const members: [string, unknown][] = [];
    for (const key of readKeys(cursor)) {
      members.push([key, key === "mappings" ? readMapping(cursor) : parseJson(takeValue(cursor).toString())]);
      if (cursor.at < cursor.stepEnd) continue;
      yield;
      cursor.stepEnd = cursor.at + bytesPerStep;
    }
    indices.push([index, Object.fromEntries(members)]);
  }
  if (skipSpace(bytes, cursor.at) !== bytes.length) failMalformed(cursor);
  return Object.fromEntries(indices);
}

/** The digest of a response. Equal ones say the same. */
export function* digestResponse(bytes: Buffer): Steps<string> {
  const digests: string[] = [];
  for (let at = 0; at < bytes.length; at += bytesPerStep) {
    if (at > 0) yield;
    digests.push(digest(bytes.subarray(at, at + bytesPerStep)));
  }
  return digest(Buffer.from(digests.join()));
}

function digest(bytes: Buffer): string {
  return hash("sha256", bytes, "base64");
}

function readMapping(cursor: Cursor): unknown {
  const { bytes, lastText, mappings } = cursor;
  const start = skipSpace(bytes, cursor.at);
  // A whole object ends where it ends, whatever follows.
  if (lastText.length > 0 && lastText.equals(bytes.subarray(start, start + lastText.length))) {
    cursor.at = start + lastText.length;
    return cursor.lastMapping;
  }
  const text = takeValue(cursor);
  const key = digest(text);
  const mapping = mappings.get(key) ?? parseJson(text.toString());
  mappings.set(key, mapping);
  if (text[0] === openBrace) [cursor.lastText, cursor.lastMapping] = [text, mapping];
  return mapping;
}

/** The keys of the next object. The cursor is before the value of each, which is to be read before the next key. */
function* readKeys(cursor: Cursor): Generator<string> {
  const { bytes } = cursor;
  expectByte(cursor, openBrace);
  for (let isFirst = true; ; isFirst = false) {
    cursor.at = skipSpace(bytes, cursor.at);
    if (bytes[cursor.at] === closeBrace) break;
    if (!isFirst) expectByte(cursor, comma);
    const start = skipSpace(bytes, cursor.at);
    const end = findStringEnd(bytes, start);
    if (bytes[start] !== quote || end > bytes.length) failMalformed(cursor);
    cursor.at = end;
    expectByte(cursor, colon);
    yield String(parseJson(bytes.toString("utf8", start, end)));
  }
  cursor.at += 1;
}

/** The text of the next value. */
function takeValue(cursor: Cursor): Buffer {
  const { bytes } = cursor;
  const start = skipSpace(bytes, cursor.at);
  const end = findValueEnd(bytes, start);
  if (end > bytes.length) failMalformed(cursor);
  cursor.at = end;
  return bytes.subarray(start, end);
}

function expectByte(cursor: Cursor, byte: number): void {
  const at = skipSpace(cursor.bytes, cursor.at);
  if (cursor.bytes[at] !== byte) failMalformed(cursor);
  cursor.at = at + 1;
}

function failMalformed({ at }: Cursor): never {
  throw new SyntaxError(`no mappings at byte ${at}`);
}
