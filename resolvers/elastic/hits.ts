// Cuts an answer of `_search` into its hits without parsing the documents. A number in `_source` has to reach the
// client as the source spells it (`200.0`, integers beyond 2^53), which a parsed value no longer knows; and a
// slice costs a third of parsing and printing it again. The text is latin1, one character a byte, so that
// positions are cheap; only the slices that hold a byte over 0x7f are decoded as UTF-8.

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
 * @throws {SyntaxError} when the text is not an answer of `_search`
 */
export function cutAnswer(latin1: string, wanted: ReadonlySet<string>): Answer {
  const ascii = !beyondAscii.test(latin1);
  const decode = (slice: string): string => (ascii ? slice : decodeUtf8(slice));
  let at = 0;

  function fail(): never {
    throw new SyntaxError(`not an answer of _search near byte ${at}`);
  }
  function skipSpace(): void {
    for (;;) {
      const code = latin1.charCodeAt(at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
      at++;
    }
  }
  function expect(code: number): void {
    skipSpace();
    if (latin1.charCodeAt(at) !== code) fail();
    at++;
  }
  /** Past a string whose opening quote is at `at`. */
  function skipString(): void {
    let end = at + 1;
    for (;;) {
      end = latin1.indexOf('"', end);
      if (end < 0) fail();
      let slashes = 0;
      while (latin1.charCodeAt(end - 1 - slashes) === backslash) slashes++;
      end++;
      if (slashes % 2 === 0) break;
    }
    at = end;
  }
  function skipValue(): void {
    skipSpace();
    const first = latin1.charCodeAt(at);
    if (first === quote) {
      skipString();
      return;
    }
    if (first === openBrace || first === openBracket) {
      let depth = 0;
      for (;;) {
        const code = latin1.charCodeAt(at);
        if (code === quote) {
          skipString();
          continue;
        }
        at++;
        if (code === openBrace || code === openBracket) depth++;
        else if (code === closeBrace || code === closeBracket) {
          if (--depth === 0) return;
        } else if (Number.isNaN(code)) fail();
      }
    }
    const start = at;
    for (;;) {
      const code = latin1.charCodeAt(at);
      if (
        code === comma ||
        code === closeBrace ||
        code === closeBracket ||
        Number.isNaN(code) ||
        code <= 0x20
      )
        break;
      at++;
    }
    if (at === start) fail();
  }
  function slice(): string {
    skipSpace();
    const start = at;
    skipValue();
    return latin1.slice(start, at);
  }
  /** Calls `member` for each key of an object, positioned before its value, which `member` must pass. */
  function eachMember(member: (key: string) => void): void {
    expect(openBrace);
    skipSpace();
    if (latin1.charCodeAt(at) === closeBrace) {
      at++;
      return;
    }
    for (;;) {
      skipSpace();
      if (latin1.charCodeAt(at) !== quote) fail();
      const start = at;
      skipString();
      const key = latin1.slice(start + 1, at - 1);
      expect(colon);
      member(key);
      skipSpace();
      const next = latin1.charCodeAt(at++);
      if (next === closeBrace) return;
      if (next !== comma) fail();
    }
  }
  function eachElement(element: () => void): void {
    expect(openBracket);
    skipSpace();
    if (latin1.charCodeAt(at) === closeBracket) {
      at++;
      return;
    }
    for (;;) {
      element();
      skipSpace();
      const next = latin1.charCodeAt(at++);
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
    eachMember((key) => {
      const dot = key.indexOf(".");
      const start = at;
      skipValue();
      // An escaped key is taken unread: parsing will tell its name.
      if (wanted.has(dot < 0 ? key : key.slice(0, dot)) || key.includes("\\")) {
        picked += `${picked === "" ? "" : ","}"${key}":${latin1.slice(start, at)}`;
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
    eachMember((key) => {
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

  eachMember((key) => {
    if (key === "timed_out") answer.timedOut = slice() === "true";
    else if (key === "terminated_early") answer.terminatedEarly = slice() === "true";
    else if (key === "_scroll_id") answer.scrollId = text();
    else if (key === "_shards") {
      const value = JSON.parse(decode(slice())) as { total?: unknown; failed?: unknown };
      if (typeof value.total !== "number" || typeof value.failed !== "number") fail();
      shards = { total: value.total, failed: value.failed };
    } else if (key === "hits") {
      hits = [];
      eachMember((inner) => {
        if (inner === "hits") eachElement(readHit);
        else if (inner === "total") {
          const counted = JSON.parse(slice()) as { value?: unknown; relation?: unknown } | null;
          if (counted?.relation === "eq" && typeof counted.value === "number") total = counted.value;
        } else skipValue();
      });
    } else skipValue();
  });
  skipSpace();
  if (at !== latin1.length || shards === undefined || hits === undefined) fail();
  return { ...answer, shards, total, hits };
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: it looks for bytes, not for text
const beyondAscii = /[^\x00-\x7f]/;

function decodeUtf8(latin1: string): string {
  return beyondAscii.test(latin1) ? Buffer.from(latin1, "latin1").toString("utf8") : latin1;
}
