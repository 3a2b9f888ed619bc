// Reads the list of a response, such as all series of a metric, while it arrives: the elements that are complete are parsed
// together, and the text around them shows whether the response is.
import {
  backslash,
  closeBrace,
  closeBracket,
  comma,
  openBrace,
  openBracket,
  quote,
} from "../../../src/core/json/json-bytes.ts";
import { parseJson } from "../../../src/core/json/parse-json.ts";

interface ListScanner {
  /** @throws {SyntaxError} */
  push(chunk: Buffer): void;
  /** The response without the elements, as JSON text; all of it where its data are no list. @throws {SyntaxError} if it is truncated */
  end(): string;
}

interface ScanState {
  readonly take: (elements: readonly unknown[]) => void;
  part: "head" | "list" | "tail";
  /** The text around the elements. As latin1, since a chunk may end inside a character. */
  frame: string;
  /** The chunks of elements that are not complete yet. */
  rest: Buffer[];
  /** Whether an element has to follow. */
  afterComma: boolean;
  /** How many containers of the element are open. */
  depth: number;
  inString: boolean;
  /** Whether the next byte belongs to an escape. */
  escaped: boolean;
}

/** In a text of JSON this is nothing but the key. */
const listOpening = /"data"[ \t\n\r]*:[ \t\n\r]*\[/;
/** What precedes the data is a few words. */
const headLimit = 1 << 20;

export function createListScanner(take: (elements: readonly unknown[]) => void): ListScanner {
  const scan: ScanState = {
    take,
    part: "head",
    frame: "",
    rest: [],
    afterComma: false,
    depth: 0,
    inString: false,
    escaped: false,
  };
  return {
    push(chunk) {
      if (scan.part === "list") readElements(scan, chunk);
      else {
        scan.frame += chunk.toString("latin1");
        if (scan.part === "head") findList(scan);
      }
    },
    end() {
      if (scan.part === "list") throw new SyntaxError("the answer ends in its list");
      return Buffer.from(scan.frame, "latin1").toString("utf8");
    },
  };
}

function findList(scan: ScanState): void {
  if (scan.frame.length > headLimit) return;
  const found = listOpening.exec(scan.frame);
  if (found === null) return;
  const start = found.index + found[0].length;
  const elements = Buffer.from(scan.frame.slice(start), "latin1");
  scan.frame = scan.frame.slice(0, start);
  scan.part = "list";
  readElements(scan, elements);
}

function readElements(scan: ScanState, chunk: Buffer): void {
  const { end, lastComma } = walkElements(scan, chunk);
  const complete = end ?? lastComma;
  if (complete === undefined) {
    scan.rest.push(chunk);
    return;
  }
  const text = Buffer.concat([...scan.rest, chunk.subarray(0, complete)]).toString("utf8");
  const elements = parseJson(`[${text}]`) as readonly unknown[];
  if (elements.length === 0 && (scan.afterComma || end === undefined))
    throw new SyntaxError("a list with nothing between its commas");
  scan.take(elements);
  scan.afterComma = true;
  if (end === undefined) scan.rest = [chunk.subarray(complete + 1)];
  else {
    scan.rest = [];
    scan.part = "tail";
    scan.frame += chunk.toString("latin1", end);
  }
}

/** Where the list ends in the chunk, if it does, and the last comma between two elements before. */
function walkElements(
  scan: ScanState,
  chunk: Buffer,
): { readonly end: number | undefined; readonly lastComma: number | undefined } {
  const { length } = chunk;
  let { depth } = scan;
  let lastComma: number | undefined;
  for (let at = scan.inString ? skipString(scan, chunk, 0) : 0; at < length; at++) {
    const byte = chunk[at];
    if (byte === quote) at = skipString(scan, chunk, at + 1) - 1;
    else if (byte === openBrace || byte === openBracket) depth++;
    else if (byte === closeBrace || byte === closeBracket) {
      if (depth-- === 0) return { end: at, lastComma };
    } else if (byte === comma && depth === 0) lastComma = at;
  }
  scan.depth = depth;
  return { end: undefined, lastComma };
}

/** The offset behind the string in which the offset lies; the length of the chunk where it goes on. */
function skipString(scan: ScanState, chunk: Buffer, start: number): number {
  const { length } = chunk;
  let at = scan.escaped ? start + 1 : start;
  for (; at < length && chunk[at] !== quote; at++) if (chunk[at] === backslash) at++;
  scan.inString = at >= length;
  scan.escaped = at > length;
  return Math.min(at + 1, length);
}
