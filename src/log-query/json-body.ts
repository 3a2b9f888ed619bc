// The structured body of a line, read twice at most and only as far as a question needs. JSON.parse is fast but makes
// doubles of numbers, and the language compares numbers by their text. Rounding is monotone, so two doubles that
// differ decide a comparison; only where they are equal (or a substring is asked for) is the text read again, by the
// slower reader below that keeps the spelling of numbers.
import { parseJson } from "../core/json/parse-json.ts";

/** The key of a number's text: a symbol, which no body can contain. */
export const spelling = Symbol("spelling");

/** A number as the source spells it. */
interface NumberText {
  readonly [spelling]: string;
}

export function isNumberText(value: unknown): value is NumberText {
  return typeof value === "object" && value !== null && spelling in value;
}

/** Lazy; each reading happens at most once. A text that is no JSON is an empty object. */
export interface Body {
  /** As JSON.parse answers it. */
  readonly plain: () => unknown;
  /** Objects are `Map`s and numbers are `NumberText`. Only for a text that is JSON, which `plain` finds out. */
  readonly exact: () => unknown;
}

export function openBody(text: string): Body {
  let plain: unknown;
  let exact: unknown;
  return {
    plain: () => {
      if (plain === undefined) plain = readPlain(text);
      return plain;
    },
    exact: () => {
      if (exact === undefined) exact = readExact(text);
      return exact;
    },
  };
}

function readPlain(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return {};
  }
}

/**
 * Reads JSON that JSON.parse has accepted, so it checks nothing. Without recursion: bodies come from outside and may
 * be nested deeper than the stack. The last of two equal keys counts, as with JSON.parse.
 */
export function readExact(text: string): unknown {
  let root: unknown;
  let key: string | undefined;
  const open: (unknown[] | Map<string, unknown>)[] = [];
  const put = (value: unknown): void => {
    const parent = open[open.length - 1];
    if (parent === undefined) root = value;
    else if (Array.isArray(parent)) parent.push(value);
    else if (key !== undefined) {
      parent.set(key, value);
      key = undefined;
    }
  };
  let position = 0;
  while (position < text.length) {
    const character = text[position];
    switch (character) {
      case "{":
      case "[": {
        const container = character === "{" ? new Map<string, unknown>() : [];
        put(container);
        open.push(container);
        position++;
        break;
      }
      case "}":
      case "]":
        open.pop();
        position++;
        break;
      case '"': {
        const end = findStringEnd(text, position);
        const string = decodeString(text.slice(position, end));
        if (key === undefined && open[open.length - 1] instanceof Map) key = string;
        else put(string);
        position = end;
        break;
      }
      case "t":
      case "f":
        put(character === "t");
        position += character === "t" ? 4 : 5;
        break;
      case "n":
        put(null);
        position += 4;
        break;
      case ",":
      case ":":
      case " ":
      case "\t":
      case "\n":
      case "\r":
        position++;
        break;
      default: {
        const end = findNumberEnd(text, position);
        put({ [spelling]: text.slice(position, end) } satisfies NumberText);
        position = end;
      }
    }
  }
  return root;
}

function findStringEnd(text: string, start: number): number {
  for (let quote = text.indexOf('"', start + 1); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    let before = quote;
    while (text[before - 1] === "\\") before--;
    if ((quote - before) % 2 === 0) return quote + 1;
  }
  return text.length;
}

function decodeString(quoted: string): string {
  if (!quoted.includes("\\")) return quoted.slice(1, -1);
  const value: unknown = JSON.parse(quoted);
  return typeof value === "string" ? value : "";
}

function findNumberEnd(text: string, start: number): number {
  let end = start + 1;
  while (end < text.length && "0123456789+-.eE".includes(text[end] ?? "")) end++;
  return end;
}
