// Cuts an answer of `_search` into its hits without parsing the documents. A number in `_source` has to reach the
// client as the source spells it (`200.0`, integers beyond 2^53), which a parsed value no longer knows; and a
// slice costs a third of parsing and printing it again. What is looked at are the bytes, and what is sliced is the same as
// latin1, one character a byte; only the slices that hold a byte over 0x7f are decoded as UTF-8. The few values that a
// line needs are picked in the same pass; a document in which they lie in no plain way has to be parsed for them.
import { isAscii } from "node:buffer";

export interface Hit {
  readonly index: string;
  /** Unique in its index: see `formatHitId`. */
  readonly id: string;
  /** The last sort value as its JSON text, `undefined` where the search had no sort. */
  readonly sort: string | undefined;
  /** The document's JSON text. */
  readonly source: string;
  /**
   * The scalars that the document has at the names that were asked for, as texts, a number's as it is spelled. Undefined
   * where only parsing tells them: a list, an escaped key or a name in two spellings may be among them.
   */
  readonly picked: PickedValues | undefined;
}

/** By name. */
export type PickedValues = Map<string, string>;

/** Names to be picked, as keys of an object. A name is a path whose dots may be nesting or part of a key. */
export interface NameTree {
  /** By the length of the key in bytes. */
  readonly keys: readonly (readonly NameTreeKey[] | undefined)[];
}
interface NameTreeKey {
  readonly bytes: Buffer;
  /** The whole name that ends here. */
  readonly name: string | undefined;
  /** What is wanted of an object that lies here. */
  readonly within: NameTree | undefined;
}

export function buildNameTree(names: Iterable<string>): NameTree {
  return buildTreeKeys("", [...new Set(names)]);
}

/** What is wanted of the object at a prefix, which is empty or ends in a dot. */
function buildTreeKeys(prefix: string, names: readonly string[]): NameTree {
  const texts = new Set<string>();
  for (const name of names) {
    const rest = name.slice(prefix.length);
    for (let dot = rest.indexOf("."); dot >= 0; dot = rest.indexOf(".", dot + 1))
      texts.add(rest.slice(0, dot));
    texts.add(rest);
  }
  const keys: NameTreeKey[][] = [];
  for (const text of texts) {
    const bytes = Buffer.from(text);
    const name = prefix + text;
    const below = names.filter((other) => other.startsWith(`${name}.`));
    const key = {
      bytes,
      name: names.includes(name) ? name : undefined,
      within: below.length === 0 ? undefined : buildTreeKeys(`${name}.`, below),
    };
    keys[bytes.length] = [...(keys[bytes.length] ?? []), key];
  }
  return { keys };
}

/** The parts of an answer that decide whether it is whole, and its hits in the answer's order. */
export interface SearchResponse {
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
export function formatHitId(id: string, routing: string | undefined): string {
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

/**
 * An answer that is being cut. What runs for each hit and each member of a document is a function of the module, because
 * V8 would forget what it has compiled for closures that are made for each answer (src/README.md).
 */
interface ScanState {
  readonly bytes: Buffer;
  /** The same, a character for each byte. */
  readonly latin1: string;
  readonly ascii: boolean;
  readonly names: NameTree;
  /** Up to where it is read. */
  at: number;
  timedOut: boolean;
  terminatedEarly: boolean;
  shards: SearchResponse["shards"] | undefined;
  scrollId: string | undefined;
  total: number | undefined;
  readonly indices: Set<string>;
  hits: Hit[] | undefined;
  /** The index of the hit before, and its JSON text: most hits are of the same one. */
  indexName: string;
  indexJson: string;
  /** Of the hit that is being read. */
  index: string | undefined;
  id: string | undefined;
  routing: string | undefined;
  sort: string | undefined;
  source: string | undefined;
  picked: PickedValues | undefined;
}

/** @throws {SyntaxError} when the bytes are not an answer of `_search` */
export function scanSearchResponse(bytes: Buffer, wanted: NameTree): SearchResponse {
  const cutting: ScanState = {
    bytes,
    latin1: bytes.toString("latin1"),
    ascii: isAscii(bytes),
    names: wanted,
    at: 0,
    timedOut: false,
    terminatedEarly: false,
    shards: undefined,
    scrollId: undefined,
    total: undefined,
    indices: new Set(),
    hits: undefined,
    indexName: "",
    indexJson: "",
    index: undefined,
    id: undefined,
    routing: undefined,
    sort: undefined,
    source: undefined,
    picked: undefined,
  };
  visitMembers(cutting, scanResponseMember);
  cutting.at = skipSpace(bytes, cutting.at);
  const { timedOut, terminatedEarly, shards, scrollId, total, indices, hits } = cutting;
  if (cutting.at !== bytes.length || shards === undefined || hits === undefined) failScan(cutting);
  return { timedOut, terminatedEarly, shards, scrollId, total, indices, hits };
}

// ---- What an answer consists of -----------------------------------------------------------------------------------

function scanResponseMember(cutting: ScanState, start: number, end: number): void {
  if (isKey(cutting, "timed_out", start, end)) cutting.timedOut = sliceValue(cutting) === "true";
  else if (isKey(cutting, "terminated_early", start, end))
    cutting.terminatedEarly = sliceValue(cutting) === "true";
  else if (isKey(cutting, "_scroll_id", start, end))
    cutting.scrollId = parseString(cutting, sliceValue(cutting));
  else if (isKey(cutting, "_shards", start, end)) {
    const value = JSON.parse(decodeSlice(cutting, sliceValue(cutting))) as {
      total?: unknown;
      failed?: unknown;
    };
    if (typeof value.total !== "number" || typeof value.failed !== "number") failScan(cutting);
    cutting.shards = { total: value.total, failed: value.failed };
  } else if (isKey(cutting, "hits", start, end)) {
    cutting.hits = [];
    visitMembers(cutting, scanHitsMember);
  } else skipValue(cutting);
}

function scanHitsMember(cutting: ScanState, start: number, end: number): void {
  if (isKey(cutting, "hits", start, end)) visitElements(cutting, scanHit);
  else if (isKey(cutting, "total", start, end)) {
    const counted = JSON.parse(sliceValue(cutting)) as { value?: unknown; relation?: unknown } | null;
    if (counted?.relation === "eq" && typeof counted.value === "number") cutting.total = counted.value;
  } else skipValue(cutting);
}

function scanHit(cutting: ScanState): void {
  cutting.index = cutting.id = cutting.routing = cutting.sort = cutting.source = undefined;
  visitMembers(cutting, scanHitMember);
  const { index, id, routing, sort, source, picked } = cutting;
  if (index === undefined || id === undefined || source === undefined) failScan(cutting);
  cutting.hits?.push({ index, id: formatHitId(id, routing), sort, source, picked });
}

function scanHitMember(cutting: ScanState, start: number, end: number): void {
  if (isKey(cutting, "_source", start, end)) {
    const begin = cutting.at;
    cutting.picked = new Map();
    if (cutting.names.keys.length === 0) skipValue(cutting);
    else cutting.at = pickValues(cutting, begin, cutting.names);
    cutting.source = decodeSlice(cutting, cutting.latin1.slice(begin, cutting.at));
  } else if (isKey(cutting, "_id", start, end)) cutting.id = parseString(cutting, sliceValue(cutting));
  else if (isKey(cutting, "_routing", start, end))
    cutting.routing = parseString(cutting, sliceValue(cutting));
  else if (isKey(cutting, "_index", start, end)) {
    const json = sliceValue(cutting);
    if (json !== cutting.indexJson) {
      cutting.indexName = parseString(cutting, json);
      cutting.indexJson = json;
      cutting.indices.add(cutting.indexName);
    }
    cutting.index = cutting.indexName;
  } else if (isKey(cutting, "sort", start, end)) visitElements(cutting, scanSortValue);
  else skipValue(cutting);
}

function scanSortValue(cutting: ScanState): void {
  cutting.sort = sliceValue(cutting);
}

// ---- A document ---------------------------------------------------------------------------------------------------

/**
 * The end of the object at `start`, whose wanted values come into `pickedNames`, which is given up where only parsing tells
 * them. It sees every byte of every document, hence its own loop.
 */
function pickValues(cutting: ScanState, start: number, { keys }: NameTree): number {
  const { bytes } = cutting;
  if (bytes[start] !== openBrace) failScan(cutting);
  let here = skipSpace(bytes, start + 1);
  if (bytes[here] === closeBrace) return here + 1;
  for (;;) {
    if (bytes[here] !== quote) failScan(cutting);
    const begin = here + 1;
    const end = findStringEnd(bytes, here) - 1;
    here = skipSpace(bytes, end + 1);
    if (bytes[here] !== colon) failScan(cutting);
    here = skipSpace(bytes, here + 1);
    const key = findKeyAt(bytes, begin, keys[end - begin]);
    if (key?.within !== undefined && bytes[here] === openBrace) here = pickValues(cutting, here, key.within);
    else {
      const value = here;
      here = findValueEnd(bytes, value);
      if (here === value || here > bytes.length) failScan(cutting);
      if (key !== undefined) takeValue(cutting, key.name, value, here);
      else if (hasEscape(bytes, begin, end)) cutting.picked = undefined;
    }
    here = skipSpace(bytes, here);
    const next = bytes[here];
    if (next === closeBrace) return here + 1;
    if (next !== comma) failScan(cutting);
    here = skipSpace(bytes, here + 1);
  }
}

function takeValue(cutting: ScanState, name: string | undefined, start: number, end: number): void {
  const first = cutting.bytes[start];
  // An array stands for its elements, which may be objects.
  if (first === openBracket) cutting.picked = undefined;
  const { picked } = cutting;
  if (picked === undefined || name === undefined || first === openBrace) return;
  const json = cutting.latin1.slice(start, end);
  if (json === "null") return;
  if (picked.has(name) || (first !== quote && !scalarPattern.test(json))) cutting.picked = undefined;
  else picked.set(name, first === quote ? parseString(cutting, json) : json);
}

// ---- JSON ---------------------------------------------------------------------------------------------------------

function failScan({ at }: ScanState): never {
  throw new SyntaxError(`not an answer of _search near byte ${at}`);
}

function expectByte(cutting: ScanState, byte: number): void {
  cutting.at = skipSpace(cutting.bytes, cutting.at);
  if (cutting.bytes[cutting.at] !== byte) failScan(cutting);
  cutting.at++;
}

function skipValue(cutting: ScanState): void {
  const { bytes } = cutting;
  cutting.at = skipSpace(bytes, cutting.at);
  const end = findValueEnd(bytes, cutting.at);
  if (end === cutting.at || end > bytes.length) failScan(cutting);
  cutting.at = end;
}

/** The JSON text of the value that begins here, which is passed. */
function sliceValue(cutting: ScanState): string {
  const start = skipSpace(cutting.bytes, cutting.at);
  skipValue(cutting);
  return cutting.latin1.slice(start, cutting.at);
}

/**
 * Calls `member` for each key of an object, its quotes before `start` and at `end`, and positioned before its value,
 * which `member` must pass.
 */
function visitMembers(
  cutting: ScanState,
  member: (cutting: ScanState, start: number, end: number) => void,
): void {
  const { bytes } = cutting;
  expectByte(cutting, openBrace);
  cutting.at = skipSpace(bytes, cutting.at);
  if (bytes[cutting.at] === closeBrace) {
    cutting.at++;
    return;
  }
  for (;;) {
    cutting.at = skipSpace(bytes, cutting.at);
    if (bytes[cutting.at] !== quote) failScan(cutting);
    const start = cutting.at + 1;
    cutting.at = findStringEnd(bytes, cutting.at);
    if (cutting.at > bytes.length) failScan(cutting);
    const end = cutting.at - 1;
    expectByte(cutting, colon);
    cutting.at = skipSpace(bytes, cutting.at);
    member(cutting, start, end);
    cutting.at = skipSpace(bytes, cutting.at);
    const next = bytes[cutting.at++];
    if (next === closeBrace) return;
    if (next !== comma) failScan(cutting);
  }
}

function visitElements(cutting: ScanState, element: (cutting: ScanState) => void): void {
  const { bytes } = cutting;
  expectByte(cutting, openBracket);
  cutting.at = skipSpace(bytes, cutting.at);
  if (bytes[cutting.at] === closeBracket) {
    cutting.at++;
    return;
  }
  for (;;) {
    element(cutting);
    cutting.at = skipSpace(bytes, cutting.at);
    const next = bytes[cutting.at++];
    if (next === closeBracket) return;
    if (next !== comma) failScan(cutting);
  }
}

function isKey({ latin1 }: ScanState, key: string, start: number, end: number): boolean {
  return end - start === key.length && latin1.startsWith(key, start);
}

/** The string of a JSON text. */
function parseString(cutting: ScanState, json: string): string {
  if (json.charCodeAt(0) === quote && !escapeOrControl.test(json))
    return decodeSlice(cutting, json.slice(1, -1));
  const value: unknown = JSON.parse(decodeSlice(cutting, json));
  return typeof value === "string" ? value : failScan(cutting);
}

function decodeSlice({ ascii }: ScanState, slice: string): string {
  return ascii ? slice : decodeUtf8(slice);
}

/** The sort value with which an answer ends, as all products print it, where it has one. */
export function findLastSort(bytes: Buffer): string | undefined {
  return /"sort":\[(-?\d{1,19})\]\}\]\}\}$/.exec(
    bytes.toString("latin1", Math.max(0, bytes.length - 64)),
  )?.[1];
}

/** Which of the keys stands at `start`; they have its length. */
function findKeyAt(
  bytes: Buffer,
  start: number,
  keys: readonly NameTreeKey[] | undefined,
): NameTreeKey | undefined {
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

function skipSpace(bytes: Buffer, start: number): number {
  let at = start;
  for (;;) {
    const byte = bytes[at];
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return at;
    at++;
  }
}

// The two loops that see every byte keep to locals, which halves what they cost.

/** Behind the string whose opening quote is at `start`; beyond the bytes where it does not end. */
function findStringEnd(bytes: Buffer, start: number): number {
  const length = bytes.length;
  for (let at = start + 1; at < length; at++) {
    const byte = bytes[at];
    if (byte === quote) return at + 1;
    if (byte === backslash) at++;
  }
  return length + 1;
}

/** Behind the value that begins at `start`, which itself where there is none; beyond the bytes where it does not end. */
function findValueEnd(bytes: Buffer, start: number): number {
  const length = bytes.length;
  const first = bytes[start];
  if (first === quote) return findStringEnd(bytes, start);
  let at = start;
  if (first === openBrace || first === openBracket) {
    let depth = 0;
    while (at < length) {
      const byte = bytes[at];
      if (byte === quote) {
        at = findStringEnd(bytes, at);
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
const escapeOrControl = /[\\\x00-\x1f]/;
const scalarPattern = /^(?:true|false|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/;

// biome-ignore lint/suspicious/noControlCharactersInRegex: it looks for bytes, not for text
const beyondAscii = /[^\x00-\x7f]/;

function decodeUtf8(latin1: string): string {
  return beyondAscii.test(latin1) ? Buffer.from(latin1, "latin1").toString("utf8") : latin1;
}
