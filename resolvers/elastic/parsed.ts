// The answers of searches whose documents are all going to be parsed. One JSON.parse over an answer costs as much as over
// its documents alone, so it is not cut first, unless it is large enough to hold up others, or holds a number that only
// an exact parse, document by document, can tell.
import type { Value } from "../../src/model.ts";
import { turn } from "../http.ts";
import { isJson, mayHoldLongInteger } from "./flat.ts";
import { type Answer, cutAnswer } from "./hits.ts";
import { nothingPicked, requireWhole, unreadable } from "./search.ts";

export interface ParsedHit {
  readonly index: string;
  readonly id: string;
  /** The document, or in `text` one that is still to be parsed. */
  readonly document: Value;
  readonly text: string | undefined;
}
export type ParsedAnswer = Omit<Answer, "hits"> & { readonly hits: readonly ParsedHit[] };

/** Some 30 ms of parsing. */
const mostAtOnce = 8 * 1_048_576;

/** As `wholeAnswer`. @throws {BackendError} */
export async function wholeParsed(backend: string, bytes: Buffer, counted = false): Promise<ParsedAnswer> {
  await turn();
  let answer: ParsedAnswer;
  try {
    answer = parseAnswer(bytes);
  } catch (cause) {
    throw unreadable(backend, bytes, cause);
  }
  requireWhole(backend, answer, counted);
  return answer;
}

/** @throws {SyntaxError} when the bytes are not an answer of `_search` */
export function parseAnswer(bytes: Buffer): ParsedAnswer {
  const text = bytes.length > mostAtOnce ? undefined : bytes.toString();
  if (text !== undefined && !mayHoldLongInteger(text)) return readAnswer(JSON.parse(text));
  const { hits, ...rest } = cutAnswer(bytes, nothingPicked.picked);
  return {
    ...rest,
    hits: hits.map(({ index, id, source: text }) => ({ index, id, document: null, text })),
  };
}

function readAnswer(answer: Value): ParsedAnswer {
  const { timed_out, terminated_early, _scroll_id, _shards, hits } = object(answer);
  const { total: shards, failed } = object(_shards);
  const { total, hits: found } = object(hits);
  if (typeof shards !== "number" || typeof failed !== "number" || !Array.isArray(found)) fail();
  const counted = isJson(total) && total.relation === "eq" ? total.value : undefined;
  return {
    timedOut: timed_out === true,
    terminatedEarly: terminated_early === true,
    shards: { total: shards, failed },
    scrollId: typeof _scroll_id === "string" ? _scroll_id : undefined,
    total: typeof counted === "number" ? counted : undefined,
    hits: found.map(readHit),
  };
}

function readHit(hit: Value): ParsedHit {
  const { _index: index, _id: id, _source: document } = object(hit);
  if (typeof index !== "string" || typeof id !== "string" || !isJson(document)) fail();
  return { index, id, document, text: undefined };
}

function object(value: Value | undefined): { readonly [key: string]: Value | undefined } {
  return isJson(value) ? value : fail();
}

function fail(): never {
  throw new SyntaxError("not an answer of _search");
}
