// Responses whose documents are all going to be parsed. They are parsed in chunks while they are consumed: parsing all of a
// response at once would block other requests, and the documents would live so long that garbage collection costs as much.

import { runSteps, type Steps, takeSteps, yieldToEventLoop } from "../../../src/core/async/turns.ts";
import { closeBracket, openBracket, quote } from "../../../src/core/json/json-bytes.ts";
import { parseExactIntegers } from "../../../src/core/json/lossless-json.ts";
import type { AttributeValue } from "../../../src/core/rows.ts";
import { isValueObject } from "../document/flatten.ts";
import { formatHitId, type Hit, type SearchResponse, scanSearchResponse } from "../document/hit-scanner.ts";
import { createMalformedResponseError, noPickedFields, requireComplete } from "./search.ts";

export interface ParsedHit {
  readonly index: string;
  readonly id: string;
  readonly document: AttributeValue;
}
export interface ParsedResponse extends Omit<SearchResponse, "hits"> {
  /** The number of documents. */
  readonly count: number;
  /** Its length, uncompressed. */
  readonly bytes: number;
  /** The documents in the order of the response, integers exact. @throws {SyntaxError} where a document is not JSON */
  readonly chunks: () => Iterable<readonly ParsedHit[]>;
}

/** Bytes that are parsed at once: about a millisecond, or two when decoded as spans. */
const chunkBytes = 100_000;

/** As `readCompleteResponse`, for a search that asked for `size` documents. @throws {BackendError} */
export async function parseCompleteResponse(
  backend: string,
  bytes: Buffer,
  size: number,
  counted = false,
): Promise<ParsedResponse> {
  await yieldToEventLoop();
  let response: ParsedResponse;
  try {
    response = await takeSteps(parseResponse(bytes, size));
  } catch (cause) {
    throw createMalformedResponseError(backend, bytes, cause);
  }
  requireComplete(backend, response, counted);
  return response;
}

/** @throws {SyntaxError} where the bytes are not a response of `_search` */
export function* parseResponse(bytes: Buffer, size: number): Steps<ParsedResponse> {
  return splitResponse(bytes, size) ?? (yield* scanResponse(bytes));
}

const sortKey = Buffer.from('"sort":[');

/** The sort values of the last document of a response, which come after all else of it; undefined without any. */
export function findLastSortValues(bytes: Buffer): readonly unknown[] | undefined {
  const begin = bytes.lastIndexOf(sortKey) + sortKey.length - 1;
  const end = bytes.indexOf("]", begin);
  if (begin < sortKey.length - 1 || end < 0) return undefined;
  try {
    const values: unknown = JSON.parse(bytes.toString("utf8", begin, end + 1));
    return Array.isArray(values) ? values : undefined;
  } catch {
    return undefined;
  }
}

// ---- The usual form ---------------------------------------------------------------------------------

const opening = Buffer.from('"hits":[{"_index":"');
const beforeHit = '"hits":['.length;
const between = Buffer.from('},{"_index":"');
const beforeName = between.length;
const onlyHit = Buffer.from('{"_index":"","_id":"","_source":{}}');

/**
 * Splits a response at the text with which all products begin a hit. A document may hold the same text, so the result counts
 * only if there are as many hits as there must be. Each chunk has to be JSON by itself, which a chunk that ends within a
 * document is not. Undefined for any other response.
 */
function splitResponse(bytes: Buffer, size: number): ParsedResponse | undefined {
  const begin = bytes.indexOf(opening) + beforeHit;
  const end = bytes.lastIndexOf("]}");
  if (begin < beforeHit || end < begin) return undefined;
  const head = scanHead(bytes, begin, end);
  if (head === undefined) return undefined;
  const indices = new Set<string>();
  let count = 0;
  let [name, nameEnd] = [0, 0];
  for (let at = begin - 2; at >= 0 && at < end; at = bytes.indexOf(between, nameEnd)) {
    const start = at + beforeName;
    const length = nameEnd - name;
    // Most hits are of the same index as the one before.
    if (count === 0 || bytes.compare(bytes, name, nameEnd, start, start + length) !== 0) {
      [name, nameEnd] = [start, bytes.indexOf(quote, start) + 1];
      if (nameEnd === 0) return undefined;
      indices.add(bytes.toString("utf8", name, nameEnd - 1));
    } else [name, nameEnd] = [start, start + length];
    count += 1;
  }
  if (count !== Math.min(size, head.total ?? size)) return undefined;
  return {
    ...head,
    indices,
    count,
    bytes: bytes.length,
    chunks: () => parseChunks(bytes, begin, end, indices, count),
  };
}

function* parseChunks(
  bytes: Buffer,
  begin: number,
  end: number,
  indices: ReadonlySet<string>,
  count: number,
): Generator<readonly ParsedHit[]> {
  let read = 0;
  for (let at = begin; at < end; ) {
    const next = bytes.indexOf(between, at + chunkBytes);
    const chunkEnd = next < 0 || next > end ? end : next + 1;
    const values = parseExactIntegers(decodeList(bytes, at, chunkEnd));
    const hits = (Array.isArray(values) ? values : failMalformed()).map(readHit);
    if (!hits.every(({ index }) => indices.has(index))) failMalformed();
    read += hits.length;
    yield hits;
    at = chunkEnd + 1;
  }
  if (read !== count) failMalformed();
}

/**
 * Decodes bytes as a list. The brackets are written into the buffer and taken back, since adding them to the text would copy
 * all of it.
 */
function decodeList(bytes: Buffer, start: number, end: number): string {
  const [before, behind] = [bytes.readUInt8(start - 1), bytes.readUInt8(end)];
  bytes[start - 1] = openBracket;
  bytes[end] = closeBracket;
  const text = bytes.toString("utf8", start - 1, end + 1);
  bytes[start - 1] = before;
  bytes[end] = behind;
  return text;
}

/** Scans what surrounds the hits, with one empty hit in their place. Undefined where that is not a response. */
function scanHead(
  bytes: Buffer,
  begin: number,
  end: number,
): Omit<SearchResponse, "hits" | "indices"> | undefined {
  const withoutHits = Buffer.concat([bytes.subarray(0, begin), onlyHit, bytes.subarray(end)]);
  try {
    const { hits, indices, ...head } = runSteps(scanSearchResponse(withoutHits, noPickedFields.pickedNames));
    return hits.length === 1 && indices.has("") ? head : undefined;
  } catch {
    return undefined;
  }
}

function readHit(hit: AttributeValue): ParsedHit {
  if (!isValueObject(hit)) failMalformed();
  const { _index: index, _id: id, _routing: routing, _source: document } = hit;
  if (typeof index !== "string" || typeof id !== "string" || !isValueObject(document)) failMalformed();
  return { index, id: formatHitId(id, typeof routing === "string" ? routing : undefined), document };
}

function failMalformed(): never {
  throw new SyntaxError("not a response of _search");
}

// ---- Any other form ------------------------------------------------------------------------------------------------

function* scanResponse(bytes: Buffer): Steps<ParsedResponse> {
  const { hits, ...head } = yield* scanSearchResponse(bytes, noPickedFields.pickedNames);
  return { ...head, count: hits.length, bytes: bytes.length, chunks: () => parseHits(hits) };
}

function* parseHits(hits: readonly Hit[]): Generator<readonly ParsedHit[]> {
  let chunk: ParsedHit[] = [];
  let chars = 0;
  for (const { index, id, source } of hits) {
    chunk.push({ index, id, document: parseExactIntegers(source) });
    chars += source.length;
    if (chars < chunkBytes) continue;
    yield chunk;
    chunk = [];
    chars = 0;
  }
  if (chunk.length > 0) yield chunk;
}
