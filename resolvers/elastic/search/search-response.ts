// The answers of searches whose documents are all going to be parsed. That is done a part at a time, while they are read:
// all documents of an answer at once would hold up others, and live so long that collecting them costs as much as parsing.
import type { AttributeValue } from "../../../src/core/rows.ts";
import { yieldToEventLoop } from "../../http/guard.ts";
import { isValueObject, parseExactIntegers } from "../document/flatten.ts";
import { formatHitId, type Hit, type SearchResponse, scanSearchResponse } from "../document/hit-scanner.ts";
import { malformedResponseError, noPickedFields, requireComplete } from "./search.ts";

export interface ParsedHit {
  readonly index: string;
  readonly id: string;
  readonly document: AttributeValue;
}
export interface ParsedResponse extends Omit<SearchResponse, "hits"> {
  /** How many documents it holds. */
  readonly count: number;
  /** In the answer's order, integers exact. @throws {SyntaxError} where a document is no JSON */
  readonly chunks: () => Iterable<readonly ParsedHit[]>;
}

/** Bytes of documents that are parsed at once: a millisecond, read as spans two. */
const chunkBytes = 100_000;

/** As `readCompleteResponse`; the search asked for `size` documents. @throws {BackendError} */
export async function parseCompleteResponse(
  backend: string,
  bytes: Buffer,
  size: number,
  counted = false,
): Promise<ParsedResponse> {
  await yieldToEventLoop();
  let answer: ParsedResponse;
  try {
    answer = parseResponse(bytes, size);
  } catch (cause) {
    throw malformedResponseError(backend, bytes, cause);
  }
  requireComplete(backend, answer, counted);
  return answer;
}

/** @throws {SyntaxError} when the bytes are not an answer of `_search` */
export function parseResponse(bytes: Buffer, size: number): ParsedResponse {
  return splitResponse(bytes, size) ?? scanResponse(bytes);
}

// ---- as all products print it ---------------------------------------------------------------------------------

const opening = Buffer.from('"hits":[{"_index":"');
const beforeHit = '"hits":['.length;
const between = Buffer.from('},{"_index":"');
const beforeName = between.length;
const quote = 0x22;
const [opensList, closesList] = [0x5b, 0x5d];
const onlyHit = Buffer.from('{"_index":"","_id":"","_source":{}}');

/**
 * An answer whose hits are told from each other by how they begin. A document may hold the same text, so this is only
 * believed of an answer that has as many as it must have, and each part of it has to be JSON by itself: no part that ends
 * within a document is. Undefined of any other answer.
 */
function splitResponse(bytes: Buffer, size: number): ParsedResponse | undefined {
  const begin = bytes.indexOf(opening) + beforeHit;
  const end = bytes.lastIndexOf("]}");
  if (begin < beforeHit || end < begin) return undefined;
  const head = scanHead(bytes, begin, end);
  if (head?.total === undefined) return undefined;
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
  if (count !== Math.min(size, head.total)) return undefined;

  function* parts(): Generator<readonly ParsedHit[]> {
    let read = 0;
    for (let at = begin; at < end; ) {
      const next = bytes.indexOf(between, at + chunkBytes);
      const behind = next < 0 || next > end ? end : next + 1;
      const values = parseExactIntegers(decodeList(bytes, at, behind));
      const hits = (Array.isArray(values) ? values : []).map(readHit);
      if (!hits.every(({ index }) => indices.has(index))) failMalformed();
      read += hits.length;
      yield hits;
      at = behind + 1;
    }
    if (read !== count) failMalformed();
  }
  return { ...head, indices, count, chunks: parts };
}

/** The bytes in brackets, which are put in their place for as long: around their text they would make another of all of it. */
function decodeList(bytes: Buffer, start: number, end: number): string {
  const [before, behind] = [bytes[start - 1] ?? 0, bytes[end] ?? 0];
  bytes[start - 1] = opensList;
  bytes[end] = closesList;
  const text = bytes.toString("utf8", start - 1, end + 1);
  bytes[start - 1] = before;
  bytes[end] = behind;
  return text;
}

/** What surrounds the hits, read as an answer with one of no index in their place; undefined where that is none. */
function scanHead(
  bytes: Buffer,
  begin: number,
  end: number,
): Omit<SearchResponse, "hits" | "indices"> | undefined {
  const alone = Buffer.concat([bytes.subarray(0, begin), onlyHit, bytes.subarray(end)]);
  try {
    const { hits, indices, ...head } = scanSearchResponse(alone, noPickedFields.pickedNames);
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
  throw new SyntaxError("not an answer of _search");
}

// ---- any other ------------------------------------------------------------------------------------------------

function scanResponse(bytes: Buffer): ParsedResponse {
  const { hits, ...head } = scanSearchResponse(bytes, noPickedFields.pickedNames);
  return { ...head, count: hits.length, chunks: () => parseHits(hits) };
}

function* parseHits(hits: readonly Hit[]): Generator<readonly ParsedHit[]> {
  let part: ParsedHit[] = [];
  let chars = 0;
  for (const { index, id, source } of hits) {
    part.push({ index, id, document: parseExactIntegers(source) });
    chars += source.length;
    if (chars < chunkBytes) continue;
    yield part;
    part = [];
    chars = 0;
  }
  if (part.length > 0) yield part;
}
