// Cuts an answer of `_search` into its hits without parsing the documents. A number in `_source` has to reach the
// client as the source spells it (`200.0`, integers beyond 2^53), which a parsed value no longer knows; and a
// slice costs a third of parsing and printing it again. What is looked at are the bytes, and what is sliced is the same as
// latin1, one character a byte; only the slices that hold a byte over 0x7f are decoded as UTF-8.
import { isAscii } from "node:buffer";

export interface Hit {
  readonly index: string;
  readonly id: string;
  /** The last sort value as its JSON text, `undefined` where the search had no sort. */
  readonly sort: string | undefined;
  /** The document's JSON text. */
  readonly source: string;
  /** The document reduced to the members that were asked for, as JSON text: enough to read a few names. */
  readonly picked: string;
}

/** The parts of an answer that decide whether it is whole, and its hits in the answer's order. */
export interface Answer {
  readonly timedOut: boolean;
  readonly terminatedEarly: boolean;
  readonly shards: { readonly total: number; readonly failed: number };
  readonly scrollId: string | undefined;
  /** How many documents match in all, where the answer counts them exactly. */
  readonly total: number | undefined;
  readonly hits: readonly Hit[];
}

const quote = 0x22;
const backslash = 0x5c;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const comma = 0x2c;
const colon = 0x3a;

/**
 * `wanted` are first segments of names: `log` picks the members `log` and `log.level`.
 * @throws {SyntaxError} when the bytes are not an answer of `_search`
 */
export function cutAnswer(bytes: Buffer, wanted: ReadonlySet<string>): Answer {
  const latin1 = bytes.toString("latin1");
  const ascii = isAscii(bytes);
  const decode = (slice: string): string => (ascii ? slice : decodeUtf8(slice));
  /** What keys that may be wanted begin with, as they are or escaped: most others need no slice to be told from them. */
  const initials = new Set([backslash, ...Array.from(wanted, (name) => Buffer.from(name).at(0))]);
  let at = 0;

  function fail(): never {
    throw new SyntaxError(`not an answer of _search near byte ${at}`);
  }
  function skipSpace(): void {
    for (;;) {
      const byte = bytes[at];
      if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return;
      at++;
    }
  }
  function expect(byte: number): void {
    skipSpace();
    if (bytes[at] !== byte) fail();
    at++;
  }
  /** Past a string whose opening quote is at `at`. */
  function skipString(): void {
    at = endOfString(bytes, at);
    if (at > bytes.length) fail();
  }
  function skipValue(): void {
    skipSpace();
    const end = endOfValue(bytes, at);
    if (end === at || end > bytes.length) fail();
    at = end;
  }
  function slice(): string {
    skipSpace();
    const start = at;
    skipValue();
    return latin1.slice(start, at);
  }
  /**
   * Calls `member` for each key of an object, its quotes before `start` and at `end`, and positioned before its value,
   * which `member` must pass.
   */
  function eachMember(member: (start: number, end: number) => void): void {
    expect(openBrace);
    skipSpace();
    if (bytes[at] === closeBrace) {
      at++;
      return;
    }
    for (;;) {
      skipSpace();
      if (bytes[at] !== quote) fail();
      const start = at + 1;
      skipString();
      const end = at - 1;
      expect(colon);
      member(start, end);
      skipSpace();
      const next = bytes[at++];
      if (next === closeBrace) return;
      if (next !== comma) fail();
    }
  }
  function eachElement(element: () => void): void {
    expect(openBracket);
    skipSpace();
    if (bytes[at] === closeBracket) {
      at++;
      return;
    }
    for (;;) {
      element();
      skipSpace();
      const next = bytes[at++];
      if (next === closeBracket) return;
      if (next !== comma) fail();
    }
  }
  function text(): string {
    const json = slice();
    if (json.charCodeAt(0) === quote && !json.includes("\\")) return decode(json.slice(1, -1));
    const value: unknown = JSON.parse(decode(json));
    return typeof value === "string" ? value : fail();
  }

  const answer = { timedOut: false, terminatedEarly: false, scrollId: undefined as string | undefined };
  let shards: { total: number; failed: number } | undefined;
  let hits: Hit[] | undefined;
  let total: number | undefined;

  /** The members of the document at `at` that are wanted, which are parsed by the caller. */
  function pick(): string {
    let picked = "";
    skipSpace();
    eachMember((start, end) => {
      const value = at;
      skipValue();
      if (!initials.has(bytes[start])) return;
      const key = latin1.slice(start, end);
      const dot = key.indexOf(".");
      // An escaped key is taken unread: parsing will tell its name.
      if (wanted.has(decode(dot < 0 ? key : key.slice(0, dot))) || key.includes("\\")) {
        picked += `${picked === "" ? "" : ","}"${key}":${latin1.slice(value, at)}`;
      }
    });
    return decode(`{${picked}}`);
  }
  function readHit(): void {
    let index: string | undefined;
    let id: string | undefined;
    let sort: string | undefined;
    let source: string | undefined;
    let picked = "";
    eachMember((start, end) => {
      const key = latin1.slice(start, end);
      if (key === "_index") index = text();
      else if (key === "_id") id = text();
      else if (key === "_source") {
        skipSpace();
        const start = at;
        picked = pick();
        source = decode(latin1.slice(start, at));
      } else if (key === "sort") {
        eachElement(() => {
          sort = slice();
        });
      } else skipValue();
    });
    if (index === undefined || id === undefined || source === undefined) fail();
    hits?.push({ index, id, sort, source, picked });
  }

  eachMember((start, end) => {
    const key = latin1.slice(start, end);
    if (key === "timed_out") answer.timedOut = slice() === "true";
    else if (key === "terminated_early") answer.terminatedEarly = slice() === "true";
    else if (key === "_scroll_id") answer.scrollId = text();
    else if (key === "_shards") {
      const value = JSON.parse(decode(slice())) as { total?: unknown; failed?: unknown };
      if (typeof value.total !== "number" || typeof value.failed !== "number") fail();
      shards = { total: value.total, failed: value.failed };
    } else if (key === "hits") {
      hits = [];
      eachMember((start, end) => {
        const inner = latin1.slice(start, end);
        if (inner === "hits") eachElement(readHit);
        else if (inner === "total") {
          const counted = JSON.parse(slice()) as { value?: unknown; relation?: unknown } | null;
          if (counted?.relation === "eq" && typeof counted.value === "number") total = counted.value;
        } else skipValue();
      });
    } else skipValue();
  });
  skipSpace();
  if (at !== bytes.length || shards === undefined || hits === undefined) fail();
  return { ...answer, shards, total, hits };
}

// The two loops that see every byte keep to locals, which halves what they cost.

/** Behind the string whose opening quote is at `start`; beyond the bytes where it does not end. */
function endOfString(bytes: Buffer, start: number): number {
  const length = bytes.length;
  for (let at = start + 1; at < length; at++) {
    const byte = bytes[at];
    if (byte === quote) return at + 1;
    if (byte === backslash) at++;
  }
  return length + 1;
}

/** Behind the value that begins at `start`, which itself where there is none; beyond the bytes where it does not end. */
function endOfValue(bytes: Buffer, start: number): number {
  const length = bytes.length;
  const first = bytes[start];
  if (first === quote) return endOfString(bytes, start);
  let at = start;
  if (first === openBrace || first === openBracket) {
    let depth = 0;
    while (at < length) {
      const byte = bytes[at];
      if (byte === quote) {
        at = endOfString(bytes, at);
        continue;
      }
      at++;
      if (byte === openBrace || byte === openBracket) depth++;
      else if ((byte === closeBrace || byte === closeBracket) && --depth === 0) return at;
    }
    return length + 1;
  }
  while (at < length) {
    const byte = bytes[at] ?? 0;
    if (byte === comma || byte === closeBrace || byte === closeBracket || byte <= 0x20) break;
    at++;
  }
  return at;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: it looks for bytes, not for text
const beyondAscii = /[^\x00-\x7f]/;

function decodeUtf8(latin1: string): string {
  return beyondAscii.test(latin1) ? Buffer.from(latin1, "latin1").toString("utf8") : latin1;
}
