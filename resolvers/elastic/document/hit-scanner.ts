// Scans a `_search` response for its hits and keeps each `_source` as JSON text. Parsing would lose how numbers are spelled
// (`200.0`, integers beyond 2^53), and a slice costs a third of parsing and printing.
// The scanner reads bytes and slices latin1 strings of parts of them; it decodes UTF-8 only in slices with a byte over
// 0x7f. It picks the few values that a log line needs in the same pass, where they are plain enough.
import { isAscii } from "node:buffer";
import type { Steps } from "../../../src/core/async/turns.ts";
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
} from "../../../src/core/json/json-bytes.ts";

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
  /** The bytes from `windowStart` to `windowEnd`, one character each. */
  window: string;
  windowStart: number;
  windowEnd: number;
  /** Whether all of the window is ASCII. */
  ascii: boolean;
  /** The length of the previous document. */
  documentBytes: number;
  readonly names: NameTree;
  /** The offset of the next byte to read. */
  at: number;
  /** Where the next step begins. */
  stepEnd: number;
  /** The offsets of the current member's key, without its quotes. */
  keyStart: number;
  keyEnd: number;
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

/** What is read in one step: some milliseconds. A document is read in one, whatever its length. */
const bytesPerStep = 524_288;

/** Scans the bytes in steps. @throws {SyntaxError} They are no `_search` response. */
export function* scanSearchResponse(bytes: Buffer, names: NameTree): Steps<SearchResponse> {
  const state: ScanState = {
    bytes,
    window: "",
    windowStart: 0,
    windowEnd: 0,
    ascii: true,
    documentBytes: 0,
    names,
    at: 0,
    stepEnd: bytesPerStep,
    keyStart: 0,
    keyEnd: 0,
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
  for (let more = enterObject(state); more; more = nextMember(state)) {
    if (isKey(state, "hits")) yield* scanHits(state);
    else scanResponseMember(state);
  }
  state.at = skipSpace(bytes, state.at);
  const { timedOut, terminatedEarly, shards, scrollId, total, indices, hits } = state;
  if (state.at !== bytes.length || shards === undefined || hits === undefined) failScan(state);
  return { timedOut, terminatedEarly, shards, scrollId, total, indices, hits };
}

// ---- Members of the response --------------------------------------------------------------------------------------

function scanResponseMember(state: ScanState): void {
  if (isKey(state, "timed_out")) state.timedOut = sliceValue(state) === "true";
  else if (isKey(state, "terminated_early")) state.terminatedEarly = sliceValue(state) === "true";
  else if (isKey(state, "_scroll_id")) state.scrollId = parseString(state, sliceValue(state));
  else if (isKey(state, "_shards")) {
    const value = JSON.parse(decodeSlice(state, sliceValue(state))) as {
      total?: unknown;
      failed?: unknown;
    };
    if (typeof value.total !== "number" || typeof value.failed !== "number") failScan(state);
    state.shards = { total: value.total, failed: value.failed };
  } else skipValue(state);
}

/** The object of the hits and of their number. */
function* scanHits(state: ScanState): Steps<void> {
  state.hits = [];
  for (let more = enterObject(state); more; more = nextMember(state)) {
    if (isKey(state, "hits")) yield* scanHitList(state);
    else if (isKey(state, "total")) {
      const counted = JSON.parse(sliceValue(state)) as { value?: unknown; relation?: unknown } | null;
      if (counted?.relation === "eq" && typeof counted.value === "number") state.total = counted.value;
    } else skipValue(state);
  }
}

function* scanHitList(state: ScanState): Steps<void> {
  for (let more = enterArray(state); more; more = nextElement(state)) {
    scanHit(state);
    if (state.at < state.stepEnd) continue;
    yield;
    state.stepEnd = state.at + bytesPerStep;
  }
}

function scanHit(state: ScanState): void {
  state.index = state.id = state.routing = state.sort = state.source = undefined;
  for (let more = enterObject(state); more; more = nextMember(state)) scanHitMember(state);
  const { index, id, routing, sort, source, picked } = state;
  if (index === undefined || id === undefined || source === undefined) failScan(state);
  state.hits?.push({ index, id: formatHitId(id, routing), sort, source, picked });
}

function scanHitMember(state: ScanState): void {
  if (isKey(state, "_source")) {
    const begin = state.at;
    openDocument(state);
    state.picked = new Map();
    if (state.names.keys.length === 0) skipValue(state);
    else state.at = pickValues(state, begin, state.names);
    state.source = decodeSlice(state, sliceBytes(state, begin, state.at));
    state.documentBytes = state.at - begin;
  } else if (isKey(state, "_id")) state.id = parseString(state, sliceValue(state));
  else if (isKey(state, "_routing")) state.routing = parseString(state, sliceValue(state));
  else if (isKey(state, "_index")) {
    const json = sliceValue(state);
    if (json !== state.indexJson) {
      state.indexName = parseString(state, json);
      state.indexJson = json;
      state.indices.add(state.indexName);
    }
    state.index = state.indexName;
  } else if (isKey(state, "sort")) {
    for (let more = enterArray(state); more; more = nextElement(state)) state.sort = sliceValue(state);
  } else skipValue(state);
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
  const json = sliceBytes(state, start, end);
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
  return sliceBytes(state, start, state.at);
}

/**
 * What a window has at least. Most slices lie in the same one, and a slice of it costs far less than one of the bytes. Node holds
 * texts of a megabyte outside of V8's heap, whose limit many smaller ones would reach.
 */
const windowBytes = 1_048_576;

function sliceBytes(state: ScanState, start: number, end: number): string {
  if (start < state.windowStart || end > state.windowEnd) moveWindow(state, start, end);
  return state.window.slice(start - state.windowStart, end - state.windowStart);
}

function moveWindow(state: ScanState, start: number, end: number): void {
  const part = state.bytes.subarray(start, Math.max(end, start + windowBytes));
  state.window = part.toString("latin1");
  state.windowStart = start;
  state.windowEnd = start + part.length;
  state.ascii = isAscii(part);
}

/** Has the window hold the document here, if it is about as long as the one before: then its values are slices of its text. */
function openDocument(state: ScanState): void {
  const { at, bytes, windowEnd, documentBytes } = state;
  const end = at + Math.ceil(documentBytes * 1.25);
  if (end > windowEnd && windowEnd < bytes.length) moveWindow(state, at, end);
}

/** Whether the object has a member: its key is the current one then, and its value comes next. */
function enterObject(state: ScanState): boolean {
  expectByte(state, openBrace);
  return hasFirst(state, closeBrace) && readKey(state);
}

/** As `enterObject`, behind the value of a member. */
function nextMember(state: ScanState): boolean {
  return hasNext(state, closeBrace) && readKey(state);
}

/** Whether the array has an element, which comes next then. */
function enterArray(state: ScanState): boolean {
  expectByte(state, openBracket);
  return hasFirst(state, closeBracket);
}

function nextElement(state: ScanState): boolean {
  return hasNext(state, closeBracket);
}

function hasFirst(state: ScanState, close: number): boolean {
  state.at = skipSpace(state.bytes, state.at);
  if (state.bytes[state.at] !== close) return true;
  state.at++;
  return false;
}

function hasNext(state: ScanState, close: number): boolean {
  state.at = skipSpace(state.bytes, state.at);
  const next = state.bytes[state.at++];
  if (next === close) return false;
  if (next !== comma) failScan(state);
  return true;
}

function readKey(state: ScanState): true {
  const { bytes } = state;
  const quoted = skipSpace(bytes, state.at);
  state.at = quoted;
  if (bytes[quoted] !== quote) failScan(state);
  state.at = findStringEnd(bytes, quoted);
  if (state.at > bytes.length) failScan(state);
  state.keyStart = quoted + 1;
  state.keyEnd = state.at - 1;
  expectByte(state, colon);
  state.at = skipSpace(bytes, state.at);
  return true;
}

/** Whether the current key is this one, which is ASCII. */
function isKey({ bytes, keyStart, keyEnd }: ScanState, key: string): boolean {
  const { length } = key;
  if (keyEnd - keyStart !== length) return false;
  for (let at = 0; at < length; at++) if (bytes[keyStart + at] !== key.charCodeAt(at)) return false;
  return true;
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
