// Cuts an answer of `_search` into its hits without parsing the documents. A number in `_source` has to reach the
// client as the source spells it (`200.0`, integers beyond 2^53), which a parsed value no longer knows; and a
// slice costs a third of parsing and printing it again. What is looked at are the bytes, and what is sliced is the same as
// latin1, one character a byte; only the slices that hold a byte over 0x7f are decoded as UTF-8. The few values that a
// line needs are picked in the same pass; a document in which they lie in no plain way has to be parsed for them.
import { isAscii } from "node:buffer";

export interface Hit {
  readonly index: string;
  /** Unique in its index: see `identify`. */
  readonly id: string;
  /** The last sort value as its JSON text, `undefined` where the search had no sort. */
  readonly sort: string | undefined;
  /** The document's JSON text. */
  readonly source: string;
  /**
   * The scalars that the document has at the names that were asked for, as texts, a number's as it is spelled. Undefined
   * where only parsing tells them: a list, an escaped key or a name in two spellings may be among them.
   */
  readonly picked: Picked | undefined;
}

/** By name. */
export type Picked = Map<string, string>;

/** Names to be picked, as keys of an object. A name is a path whose dots may be nesting or part of a key. */
export interface Names {
  /** By the length of the key in bytes. */
  readonly keys: readonly (readonly Key[] | undefined)[];
}
interface Key {
  readonly bytes: Buffer;
  /** The whole name that ends here. */
  readonly name: string | undefined;
  /** What is wanted of an object that lies here. */
  readonly within: Names | undefined;
}

export function namesOf(names: Iterable<string>): Names {
  return keysBelow("", [...new Set(names)]);
}

/** What is wanted of the object at a prefix, which is empty or ends in a dot. */
function keysBelow(prefix: string, names: readonly string[]): Names {
  const texts = new Set<string>();
  for (const name of names) {
    const rest = name.slice(prefix.length);
    for (let dot = rest.indexOf("."); dot >= 0; dot = rest.indexOf(".", dot + 1))
      texts.add(rest.slice(0, dot));
    texts.add(rest);
  }
  const keys: Key[][] = [];
  for (const text of texts) {
    const bytes = Buffer.from(text);
    const name = prefix + text;
    const below = names.filter((other) => other.startsWith(`${name}.`));
    const key = {
      bytes,
      name: names.includes(name) ? name : undefined,
      within: below.length === 0 ? undefined : keysBelow(`${name}.`, below),
    };
    keys[bytes.length] = [...(keys[bytes.length] ?? []), key];
  }
  return { keys };
}

/** The parts of an answer that decide whether it is whole, and its hits in the answer's order. */
export interface Answer {
  readonly timedOut: boolean;
  readonly terminatedEarly: boolean;
  readonly shards: { readonly total: number; readonly failed: number };
  readonly scrollId: string | undefined;
  /** How many documents match in all, where the answer counts them exactly. */
  readonly total: number | undefined;
  /** Those in which its hits lie. */
  readonly indices: ReadonlySet<string>;
  readonly hits: readonly Hit[];
}

/** With custom routing an `_id` is unique in one shard only: another routing has another document of that `_id`. */
export function identify(id: string, routing: string | undefined): string {
  return routing === undefined ? id : `${id}?routing=${routing}`;
}

const quote = 0x22;
const backslash = 0x5c;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const comma = 0x2c;
const colon = 0x3a;

/** @throws {SyntaxError} when the bytes are not an answer of `_search` */
export function cutAnswer(bytes: Buffer, wanted: Names): Answer {
  const latin1 = bytes.toString("latin1");
  const ascii = isAscii(bytes);
  const decode = (slice: string): string => (ascii ? slice : decodeUtf8(slice));
  let at = 0;

  function fail(): never {
    throw new SyntaxError(`not an answer of _search near byte ${at}`);
  }
  function expect(byte: number): void {
    at = pastSpace(bytes, at);
    if (bytes[at] !== byte) fail();
    at++;
  }
  /** Past a string whose opening quote is at `at`. */
  function skipString(): void {
    at = endOfString(bytes, at);
    if (at > bytes.length) fail();
  }
  function skipValue(): void {
    at = pastSpace(bytes, at);
    const end = endOfValue(bytes, at);
    if (end === at || end > bytes.length) fail();
    at = end;
  }
  function slice(): string {
    at = pastSpace(bytes, at);
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
    at = pastSpace(bytes, at);
    if (bytes[at] === closeBrace) {
      at++;
      return;
    }
    for (;;) {
      at = pastSpace(bytes, at);
      if (bytes[at] !== quote) fail();
      const start = at + 1;
      skipString();
      const end = at - 1;
      expect(colon);
      at = pastSpace(bytes, at);
      member(start, end);
      at = pastSpace(bytes, at);
      const next = bytes[at++];
      if (next === closeBrace) return;
      if (next !== comma) fail();
    }
  }
  function eachElement(element: () => void): void {
    expect(openBracket);
    at = pastSpace(bytes, at);
    if (bytes[at] === closeBracket) {
      at++;
      return;
    }
    for (;;) {
      element();
      at = pastSpace(bytes, at);
      const next = bytes[at++];
      if (next === closeBracket) return;
      if (next !== comma) fail();
    }
  }
  function is(key: string, start: number, end: number): boolean {
    return end - start === key.length && latin1.startsWith(key, start);
  }
  /** The string of a JSON text. */
  function unquote(json: string): string {
    if (json.charCodeAt(0) === quote && !special.test(json)) return decode(json.slice(1, -1));
    const value: unknown = JSON.parse(decode(json));
    return typeof value === "string" ? value : fail();
  }

  const answer = { timedOut: false, terminatedEarly: false, scrollId: undefined as string | undefined };
  let shards: { total: number; failed: number } | undefined;
  let hits: Hit[] | undefined;
  let total: number | undefined;

  let picked: Map<string, string> | undefined;

  /**
   * The end of the object at `start`, whose wanted values come into `picked`, which is given up where only parsing tells
   * them. It sees every byte of every document, hence its own loop.
   */
  function pick(start: number, { keys }: Names): number {
    if (bytes[start] !== openBrace) fail();
    let here = pastSpace(bytes, start + 1);
    if (bytes[here] === closeBrace) return here + 1;
    for (;;) {
      if (bytes[here] !== quote) fail();
      const begin = here + 1;
      const end = endOfString(bytes, here) - 1;
      here = pastSpace(bytes, end + 1);
      if (bytes[here] !== colon) fail();
      here = pastSpace(bytes, here + 1);
      const key = keyAt(bytes, begin, keys[end - begin]);
      if (key?.within !== undefined && bytes[here] === openBrace) here = pick(here, key.within);
      else {
        const value = here;
        here = endOfValue(bytes, value);
        if (here === value || here > bytes.length) fail();
        if (key !== undefined) take(key.name, value, here);
        else if (hasEscape(bytes, begin, end)) picked = undefined;
      }
      here = pastSpace(bytes, here);
      const next = bytes[here];
      if (next === closeBrace) return here + 1;
      if (next !== comma) fail();
      here = pastSpace(bytes, here + 1);
    }
  }
  function take(name: string | undefined, start: number, end: number): void {
    const first = bytes[start];
    // An array stands for its elements, which may be objects.
    if (first === openBracket) picked = undefined;
    if (picked === undefined || name === undefined || first === openBrace) return;
    const json = latin1.slice(start, end);
    if (json === "null") return;
    if (picked.has(name) || (first !== quote && !scalar.test(json))) picked = undefined;
    else picked.set(name, first === quote ? unquote(json) : json);
  }

  const indices = new Set<string>();
  let [indexName, indexJson] = ["", ""];
  let index: string | undefined;
  let id: string | undefined;
  let routing: string | undefined;
  let sort: string | undefined;
  let source: string | undefined;
  function readSort(): void {
    sort = slice();
  }
  function readMember(start: number, end: number): void {
    if (is("_source", start, end)) {
      const begin = at;
      picked = new Map();
      if (wanted.keys.length === 0) skipValue();
      else at = pick(at, wanted);
      source = decode(latin1.slice(begin, at));
    } else if (is("_id", start, end)) id = unquote(slice());
    else if (is("_routing", start, end)) routing = unquote(slice());
    else if (is("_index", start, end)) {
      const json = slice();
      // Most hits are of the same index as the one before.
      if (json !== indexJson) {
        [indexName, indexJson] = [unquote(json), json];
        indices.add(indexName);
      }
      index = indexName;
    } else if (is("sort", start, end)) eachElement(readSort);
    else skipValue();
  }
  function readHit(): void {
    index = id = routing = sort = source = undefined;
    eachMember(readMember);
    if (index === undefined || id === undefined || source === undefined) fail();
    hits?.push({ index, id: identify(id, routing), sort, source, picked });
  }

  eachMember((start, end) => {
    const key = latin1.slice(start, end);
    if (key === "timed_out") answer.timedOut = slice() === "true";
    else if (key === "terminated_early") answer.terminatedEarly = slice() === "true";
    else if (key === "_scroll_id") answer.scrollId = unquote(slice());
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
  at = pastSpace(bytes, at);
  if (at !== bytes.length || shards === undefined || hits === undefined) fail();
  return { ...answer, shards, total, indices, hits };
}

/** The sort value with which an answer ends, as all products print it, where it has one. */
export function lastSort(bytes: Buffer): string | undefined {
  return /"sort":\[(-?\d{1,19})\]\}\]\}\}$/.exec(
    bytes.toString("latin1", Math.max(0, bytes.length - 64)),
  )?.[1];
}

/** Which of the keys stands at `start`; they have its length. */
function keyAt(bytes: Buffer, start: number, keys: readonly Key[] | undefined): Key | undefined {
  if (keys === undefined) return undefined;
  for (const key of keys) {
    const text = key.bytes;
    let at = 0;
    while (at < text.length && bytes[start + at] === text[at]) at++;
    if (at === text.length) return key;
  }
  return undefined;
}

/** Only parsing tells what such a key is. */
function hasEscape(bytes: Buffer, start: number, end: number): boolean {
  for (let at = start; at < end; at++) if (bytes[at] === backslash) return true;
  return false;
}

function pastSpace(bytes: Buffer, start: number): number {
  let at = start;
  for (;;) {
    const byte = bytes[at];
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return at;
    at++;
  }
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

// biome-ignore lint/suspicious/noControlCharactersInRegex: what only parsing tells, or refuses
const special = /[\\\x00-\x1f]/;
const scalar = /^(?:true|false|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/;

// biome-ignore lint/suspicious/noControlCharactersInRegex: it looks for bytes, not for text
const beyondAscii = /[^\x00-\x7f]/;

function decodeUtf8(latin1: string): string {
  return beyondAscii.test(latin1) ? Buffer.from(latin1, "latin1").toString("utf8") : latin1;
}
