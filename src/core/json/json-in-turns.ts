// Parses large texts, such as request bodies, with turns of the event loop between: JSON.parse takes a tenth of a second for a megabyte of
// brackets or of keys, in which nobody else is answered. Containers under way stand on a stack of their own, so that any
// depth is read. Values, duplicate keys and positions of errors are those of JSON.parse.
import { yieldToEventLoop } from "../async/turns.ts";

/** Up to here JSON.parse takes no more than some milliseconds, whatever the text holds. */
export const largeJsonChars = 100_000;

/** What is parsed in one turn: a few milliseconds where every character opens an array. */
const charsPerTurn = 8_192;

/** The text is no JSON. */
export class JsonSyntaxError extends SyntaxError {
  override readonly name = "JsonSyntaxError";
  /** Where reading stopped, in UTF-16 units. */
  readonly position: number;
  constructor(position: number) {
    super(`no JSON at position ${position}`);
    this.position = position;
  }
}

/**
 * An array or object whose end has not come yet; `key` is that of the value that comes next. An array is made with its first
 * value: V8 gives an empty one room for 17 as soon as it is filled, and half a million of them fit into a body.
 */
type OpenContainer =
  | { readonly kind: "array"; value: unknown[] | undefined }
  | { readonly kind: "object"; readonly value: Record<string, unknown>; key: string };

interface ReaderState {
  readonly text: string;
  readonly toNumber: (source: string) => unknown;
  position: number;
  readonly open: OpenContainer[];
  /** What was read last. */
  value: unknown;
}

/** Stands for a value whose parts are still to be read. */
const unfinished = Symbol("unfinished");

/** `toNumber` makes the value of a number from its text. @throws {JsonSyntaxError} */
export async function parseJsonInTurns(
  text: string,
  toNumber: (source: string) => unknown = Number,
): Promise<unknown> {
  const state = openReader(text, toNumber);
  while (!readOn(state, state.position + charsPerTurn)) await yieldToEventLoop();
  return state.value;
}

/** As `parseJsonInTurns`, in one turn. @throws {JsonSyntaxError} */
export function readJson(text: string, toNumber: (source: string) => unknown = Number): unknown {
  const state = openReader(text, toNumber);
  readOn(state, Number.POSITIVE_INFINITY);
  return state.value;
}

function openReader(text: string, toNumber: (source: string) => unknown): ReaderState {
  return { text, toNumber, position: 0, open: [], value: unfinished };
}

/** Reads until the text ends, or until this position. Returns whether it has ended: `value` is that of the text then. */
function readOn(state: ReaderState, until: number): boolean {
  while (state.position < until) {
    if (state.value === unfinished) state.value = readValue(state);
    else {
      const container = state.open.at(-1);
      if (container === undefined) {
        skipBlanks(state);
        if (state.position < state.text.length) throw new JsonSyntaxError(state.position);
        return true;
      }
      state.value = addValue(state, container, state.value);
    }
  }
  return false;
}

/** A scalar or an empty container; `unfinished` where a container has opened, whose first value comes next. */
function readValue(state: ReaderState): unknown {
  skipBlanks(state);
  const { text, position } = state;
  switch (text[position]) {
    case "[": {
      state.position += 1;
      skipBlanks(state);
      if (consume(state, "]")) return [];
      state.open.push({ kind: "array", value: undefined });
      return unfinished;
    }
    case "{": {
      state.position += 1;
      skipBlanks(state);
      if (consume(state, "}")) return {};
      state.open.push({ kind: "object", value: {}, key: readKey(state) });
      return unfinished;
    }
    case '"':
      return readString(state);
    case "t":
      return readWord(state, "true", true);
    case "f":
      return readWord(state, "false", false);
    case "n":
      return readWord(state, "null", null);
    default:
      return readNumber(state);
  }
}

/** Adds a value to the innermost container: the container where it ends here, `unfinished` where another value follows. */
function addValue(state: ReaderState, container: OpenContainer, value: unknown): unknown {
  if (container.kind === "array") {
    if (container.value === undefined) container.value = [value];
    else container.value.push(value);
  } else if (container.key === "__proto__") {
    const property = { value, writable: true, enumerable: true, configurable: true };
    Object.defineProperty(container.value, container.key, property);
  } else container.value[container.key] = value;
  skipBlanks(state);
  if (consume(state, ",")) {
    if (container.kind === "object") container.key = readKey(state);
    return unfinished;
  }
  if (!consume(state, container.kind === "array" ? "]" : "}")) throw new JsonSyntaxError(state.position);
  state.open.pop();
  return container.value;
}

function readKey(state: ReaderState): string {
  skipBlanks(state);
  if (state.text[state.position] !== '"') throw new JsonSyntaxError(state.position);
  const key = readString(state);
  skipBlanks(state);
  if (!consume(state, ":")) throw new JsonSyntaxError(state.position);
  return key;
}

const [quote, backslash, letterU, firstPlain] = [0x22, 0x5c, 0x75, 0x20];

/** By character codes: a text of a megabyte, or of escapes alone, then takes some milliseconds. */
function readString(state: ReaderState): string {
  const { text, position: start } = state;
  let hasEscapes = false;
  for (let at = start + 1; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === quote) {
      state.position = at + 1;
      return hasEscapes ? JSON.parse(text.slice(start, at + 1)) : text.slice(start + 1, at);
    }
    if (code < firstPlain) throw new JsonSyntaxError(at);
    if (code !== backslash) continue;
    hasEscapes = true;
    at = findEscapeEnd(text, at);
  }
  throw new JsonSyntaxError(text.length);
}

/** The last character of the escape that begins here. */
function findEscapeEnd(text: string, start: number): number {
  const code = text.charCodeAt(start + 1);
  if (code !== letterU) {
    if (start + 1 < text.length && '"\\/bfnrt'.includes(text.charAt(start + 1))) return start + 1;
    throw new JsonSyntaxError(start + 1);
  }
  for (let at = start + 2; at < start + 6; at += 1) {
    if (!isHexDigit(text.charCodeAt(at))) throw new JsonSyntaxError(at);
  }
  return start + 5;
}

/** False for NaN, which stands for the end of the text. */
function isHexDigit(code: number): boolean {
  const lower = code | 0x20;
  return (code >= 0x30 && code <= 0x39) || (lower >= 0x61 && lower <= 0x66);
}

const number = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
/** As far as a number goes that then breaks off. */
const brokenNumber = /(?:-?(?:0|[1-9]\d*)(?:(?:\.\d+)?[eE][+-]?|\.)|-)?/y;

function readNumber(state: ReaderState): unknown {
  const { text, position } = state;
  number.lastIndex = position;
  const found = number.exec(text)?.[0] ?? "";
  const next = text[position + found.length] ?? "";
  if (found === "" || /[.eE\d]/.test(next)) {
    brokenNumber.lastIndex = position;
    throw new JsonSyntaxError(position + Math.max(found.length, brokenNumber.exec(text)?.[0].length ?? 0));
  }
  state.position += found.length;
  return state.toNumber(found);
}

function readWord<Value>(state: ReaderState, word: string, value: Value): Value {
  for (const [at, character] of [...word].entries()) {
    if (state.text[state.position + at] !== character) throw new JsonSyntaxError(state.position + at);
  }
  state.position += word.length;
  return value;
}

const blanks = /[ \t\n\r]*/y;

function skipBlanks(state: ReaderState): void {
  // Most values have none before them.
  if (state.text.charCodeAt(state.position) > 0x20) return;
  blanks.lastIndex = state.position;
  state.position += blanks.exec(state.text)?.[0].length ?? 0;
}

function consume(state: ReaderState, character: string): boolean {
  if (state.text[state.position] !== character) return false;
  state.position += 1;
  return true;
}
