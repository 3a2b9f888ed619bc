// Scans a `_search` response for its hits and keeps each `_source` as JSON text. Parsing would lose how numbers are spelled
// (`200.0`, integers beyond 2^53), and a slice costs a third of parsing and printing.
// The scanner reads bytes and slices a latin1 string of the same offsets; it decodes UTF-8 only in slices with a byte over
// 0x7f. It picks the few values that a log line needs in the same pass, where they are plain enough.
import { isAscii } from "node:buffer";
import {
  backslash,
  closeBrace,
  closeBracket,
  colon,
  comma,
  findStringEnd,
  findValueEnd,
  openBrace,
  openBracket,
  quote,
  skipSpace,
} from "./json-bytes.ts";

export interface Hit {
  readonly index: string;
  /** Unique within its index; see `formatHitId`. */
  readonly id: string;
  /** The last sort value as JSON text; undefined if the search was not sorted. */
  readonly sort: string | undefined;
  /** The document's JSON text. */
  readonly source: string;
  /**
   * The scalars at the names of the `NameTree`, as text; numbers keep their spelling. Undefined if only parsing can find
   * them: for a list, an escaped key or a name in two spellings.
   */
  readonly picked: PickedValues | undefined;
}

/** Texts by name. */
export type PickedValues = Map<string, string>;

/** The names to pick, as a tree of object keys. A name is a path whose dots are nesting or part of a key. */
export interface NameTree {
  /** Indexed by the length of the key in bytes. */
  readonly keys: readonly (readonly NameTreeKey[] | undefined)[];
}
interface NameTreeKey {
  readonly bytes: Buffer;
  /** The name that ends at this key, if one does. */
  readonly name: string | undefined;
  /** The names below an object at this key. */
  readonly within: NameTree | undefined;
}

export function buildNameTree(names: Iterable<string>): NameTree {
  return buildTreeKeys("", [...new Set(names)]);
}

/** The tree of the object at `prefix`, which is empty or ends in a dot. */
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

/** The members of a response that show whether it is complete, and its hits in the order of the response. */
export interface SearchResponse {
  readonly timedOut: boolean;
  readonly terminatedEarly: boolean;
  readonly shards: { readonly total: number; readonly failed: number };
  readonly scrollId: string | undefined;
  /** The number of all matching documents, if the response counts them exactly. */
  readonly total: number | undefined;
  /** The indices of the hits. */
  readonly indices: ReadonlySet<string>;
  readonly hits: readonly Hit[];
}

const routingMark = "?routing=";

/**
 * An id that is unique within the index: with custom routing, an `_id` is unique within one shard only. Where either holds the mark
 * between the two, the length of the `_id` tells where it ends.
 */
export function formatHitId(id: string, routing: string | undefined): string {
  if (id.includes(routingMark) || routing?.includes(routingMark) === true)
    return `${id}${routingMark}${routing ?? ""}&id=${id.length}`;
  return routing === undefined ? id : `${id}${routingMark}${routing}`;
}

/**
 * One response that is being scanned. Functions that run for each hit and each member are functions of the module: V8
 * discards the compiled code of closures that are created for each response (src/README.md).
 */
interface ScanState {
  readonly bytes: Buffer;
  /** The same bytes, one character each. */
  readonly latin1: string;
  readonly ascii: boolean;
  readonly names: NameTree;
  /** The offset of the next byte to read. */
  at: number;
  timedOut: boolean;
  terminatedEarly: boolean;
  shards: SearchResponse["shards"] | undefined;
  scrollId: string | undefined;
  total: number | undefined;
  readonly indices: Set<string>;
  hits: Hit[] | undefined;
  /** The index of the previous hit, and its JSON text: most hits repeat it. */
  indexName: string;
  indexJson: string;
  // Members of the current hit.
  index: string | undefined;
  id: string | undefined;
  routing: string | undefined;
  sort: string | undefined;
  source: string | undefined;
  picked: PickedValues | undefined;
}

/** @throws {SyntaxError} The bytes are no `_search` response. */
export function scanSearchResponse(bytes: Buffer, names: NameTree): SearchResponse {
  const state: ScanState = {
    bytes,
    latin1: bytes.toString("latin1"),
    ascii: isAscii(bytes),
    names,
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
  visitMembers(state, scanResponseMember);
  state.at = skipSpace(bytes, state.at);
  const { timedOut, terminatedEarly, shards, scrollId, total, indices, hits } = state;
  if (state.at !== bytes.length || shards === undefined || hits === undefined) failScan(state);
  return { timedOut, terminatedEarly, shards, scrollId, total, indices, hits };
}

// ---- Members of the response --------------------------------------------------------------------------------------

function scanResponseMember(state: ScanState, start: number, end: number): void {
  if (isKey(state, "timed_out", start, end)) state.timedOut = sliceValue(state) === "true";
  else if (isKey(state, "terminated_early", start, end)) state.terminatedEarly = sliceValue(state) === "true";
  else if (isKey(state, "_scroll_id", start, end)) state.scrollId = parseString(state, sliceValue(state));
  else if (isKey(state, "_shards", start, end)) {
    const value = JSON.parse(decodeSlice(state, sliceValue(state))) as {
      total?: unknown;
      failed?: unknown;
    };
    if (typeof value.total !== "number" || typeof value.failed !== "number") failScan(state);
    state.shards = { total: value.total, failed: value.failed };
  } else if (isKey(state, "hits", start, end)) {
    state.hits = [];
    visitMembers(state, scanHitsMember);
  } else skipValue(state);
}

function scanHitsMember(state: ScanState, start: number, end: number): void {
  if (isKey(state, "hits", start, end)) visitElements(state, scanHit);
  else if (isKey(state, "total", start, end)) {
    const counted = JSON.parse(sliceValue(state)) as { value?: unknown; relation?: unknown } | null;
    if (counted?.relation === "eq" && typeof counted.value === "number") state.total = counted.value;
  } else skipValue(state);
}

function scanHit(state: ScanState): void {
  state.index = state.id = state.routing = state.sort = state.source = undefined;
  visitMembers(state, scanHitMember);
  const { index, id, routing, sort, source, picked } = state;
  if (index === undefined || id === undefined || source === undefined) failScan(state);
  state.hits?.push({ index, id: formatHitId(id, routing), sort, source, picked });
}

function scanHitMember(state: ScanState, start: number, end: number): void {
  if (isKey(state, "_source", start, end)) {
    const begin = state.at;
    state.picked = new Map();
    if (state.names.keys.length === 0) skipValue(state);
    else state.at = pickValues(state, begin, state.names);
    state.source = decodeSlice(state, state.latin1.slice(begin, state.at));
  } else if (isKey(state, "_id", start, end)) state.id = parseString(state, sliceValue(state));
  else if (isKey(state, "_routing", start, end)) state.routing = parseString(state, sliceValue(state));
  else if (isKey(state, "_index", start, end)) {
    const json = sliceValue(state);
    if (json !== state.indexJson) {
      state.indexName = parseString(state, json);
      state.indexJson = json;
      state.indices.add(state.indexName);
    }
    state.index = state.indexName;
  } else if (isKey(state, "sort", start, end)) visitElements(state, scanSortValue);
  else skipValue(state);
}

function scanSortValue(state: ScanState): void {
  state.sort = sliceValue(state);
}

// ---- A document ---------------------------------------------------------------------------------------------------

/**
 * Picks the values of the object at `start` into `state.picked` and returns where the object ends. Sets `state.picked` to
 * undefined if only parsing can find the values. It sees every byte of every document, hence its own loop.
 */
function pickValues(state: ScanState, start: number, { keys }: NameTree): number {
  const { bytes } = state;
  if (bytes[start] !== openBrace) failScan(state);
  let here = skipSpace(bytes, start + 1);
  if (bytes[here] === closeBrace) return here + 1;
  for (;;) {
    if (bytes[here] !== quote) failScan(state);
    const begin = here + 1;
    const end = findStringEnd(bytes, here) - 1;
    here = skipSpace(bytes, end + 1);
    if (bytes[here] !== colon) failScan(state);
    here = skipSpace(bytes, here + 1);
    const key = findKeyAt(bytes, begin, keys[end - begin]);
    if (key === undefined && hasEscape(bytes, begin, end)) state.picked = undefined;
    here = skipSpace(bytes, pickMember(state, here, key));
    const next = bytes[here];
    if (next === closeBrace) return here + 1;
    if (next !== comma) failScan(state);
    here = skipSpace(bytes, here + 1);
  }
}

/** Picks what the tree wants of the value at `start` and returns where the value ends. */
function pickMember(state: ScanState, start: number, key: NameTreeKey | undefined): number {
  const { bytes } = state;
  if (key?.within !== undefined && bytes[start] === openBrace) return pickValues(state, start, key.within);
  const end = findValueEnd(bytes, start);
  if (end === start || end > bytes.length) failScan(state);
  if (key !== undefined) takeValue(state, key.name, start, end);
  return end;
}

function takeValue(state: ScanState, name: string | undefined, start: number, end: number): void {
  const first = state.bytes[start];
  // An array counts as its elements, which may be objects.
  if (first === openBracket) state.picked = undefined;
  const { picked } = state;
  if (picked === undefined || name === undefined || first === openBrace) return;
  const json = state.latin1.slice(start, end);
  if (json === "null") return;
  if (picked.has(name) || (first !== quote && !scalarPattern.test(json))) state.picked = undefined;
  else picked.set(name, first === quote ? parseString(state, json) : json);
}

// ---- JSON ---------------------------------------------------------------------------------------------------------

function failScan({ at }: ScanState): never {
  throw new SyntaxError(`not a _search response near byte ${at}`);
}

function expectByte(state: ScanState, byte: number): void {
  state.at = skipSpace(state.bytes, state.at);
  if (state.bytes[state.at] !== byte) failScan(state);
  state.at++;
}

function skipValue(state: ScanState): void {
  const { bytes } = state;
  state.at = skipSpace(bytes, state.at);
  const end = findValueEnd(bytes, state.at);
  if (end === state.at || end > bytes.length) failScan(state);
  state.at = end;
}

/** The JSON text of the next value; advances behind it. */
function sliceValue(state: ScanState): string {
  const start = skipSpace(state.bytes, state.at);
  skipValue(state);
  return state.latin1.slice(start, state.at);
}

/**
 * Calls `member` for each key of the object, which lies in the bytes from `start` to `end` without its quotes. `state.at` is
 * at the value, and `member` must advance behind it.
 */
function visitMembers(
  state: ScanState,
  member: (state: ScanState, start: number, end: number) => void,
): void {
  const { bytes } = state;
  expectByte(state, openBrace);
  state.at = skipSpace(bytes, state.at);
  if (bytes[state.at] === closeBrace) {
    state.at++;
    return;
  }
  for (;;) {
    state.at = skipSpace(bytes, state.at);
    if (bytes[state.at] !== quote) failScan(state);
    const start = state.at + 1;
    state.at = findStringEnd(bytes, state.at);
    if (state.at > bytes.length) failScan(state);
    const end = state.at - 1;
    expectByte(state, colon);
    state.at = skipSpace(bytes, state.at);
    member(state, start, end);
    state.at = skipSpace(bytes, state.at);
    const next = bytes[state.at++];
    if (next === closeBrace) return;
    if (next !== comma) failScan(state);
  }
}

function visitElements(state: ScanState, element: (state: ScanState) => void): void {
  const { bytes } = state;
  expectByte(state, openBracket);
  state.at = skipSpace(bytes, state.at);
  if (bytes[state.at] === closeBracket) {
    state.at++;
    return;
  }
  for (;;) {
    element(state);
    state.at = skipSpace(bytes, state.at);
    const next = bytes[state.at++];
    if (next === closeBracket) return;
    if (next !== comma) failScan(state);
  }
}

function isKey({ latin1 }: ScanState, key: string, start: number, end: number): boolean {
  return end - start === key.length && latin1.startsWith(key, start);
}

/** The string that a JSON text holds. @throws {SyntaxError} It is no string. */
function parseString(state: ScanState, json: string): string {
  if (json.charCodeAt(0) === quote && !escapeOrControl.test(json))
    return decodeSlice(state, json.slice(1, -1));
  const value: unknown = JSON.parse(decodeSlice(state, json));
  return typeof value === "string" ? value : failScan(state);
}

function decodeSlice({ ascii }: ScanState, slice: string): string {
  return ascii ? slice : decodeUtf8(slice);
}

/** The sort value of the last hit, read from the end of the response; undefined if it has none. */
export function findLastSort(bytes: Buffer): string | undefined {
  return /"sort":\[(-?\d{1,19})\]\}\]\}\}$/.exec(
    bytes.toString("latin1", Math.max(0, bytes.length - 64)),
  )?.[1];
}

/** The key at `start`; all `keys` have its length. */
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

/** Whether only parsing can tell what the key is. */
function hasEscape(bytes: Buffer, start: number, end: number): boolean {
  for (let at = start; at < end; at++) if (bytes[at] === backslash) return true;
  return false;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: strings with these need a parser, which may refuse them
const escapeOrControl = /[\\\x00-\x1f]/;
const scalarPattern = /^(?:true|false|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/;

// biome-ignore lint/suspicious/noControlCharactersInRegex: each character stands for a byte
const beyondAscii = /[^\x00-\x7f]/;

function decodeUtf8(latin1: string): string {
  return beyondAscii.test(latin1) ? Buffer.from(latin1, "latin1").toString("utf8") : latin1;
}
