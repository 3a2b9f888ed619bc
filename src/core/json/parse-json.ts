// JSON.parse, without a fault of V8 (seen in 13.6): where a key with a backslash in it has been parsed before, another key
// that is written with an escape may be taken for it. `{"\\":1}` makes `{"\"":1}` be read as `{"\\":1}`. Texts with such
// keys, which are rare, go to a reader that makes its strings itself.
import { largeJsonChars, parseJsonInTurns, readJson } from "./json-in-turns.ts";

type Reviver = (key: string, value: unknown, context: { readonly source?: string }) => unknown;

/**
 * The value of JSON.parse; `toNumber` makes the value of each number from its text.
 * @throws {SyntaxError}
 */
export function parseJson(text: string, toNumber?: (source: string) => unknown): unknown {
  if (hasEscapedKey(text)) {
    JSON.parse(text); // throws what it throws for any other text
    return readJson(text, toNumber);
  }
  if (toNumber === undefined) return JSON.parse(text);
  const revive: Reviver = (_, value, { source }) =>
    typeof value === "number" && source !== undefined ? toNumber(source) : value;
  return JSON.parse(text, revive as Parameters<typeof JSON.parse>[1]);
}

/** As `parseJson`; large texts with turns of the event loop between. @throws {SyntaxError} */
export async function parseLargeJson(text: string): Promise<unknown> {
  return text.length <= largeJsonChars ? parseJson(text) : await parseJsonInTurns(text);
}

/** As `parseJson`; undefined for a text that is no JSON. */
export function tryParseJson(text: string): unknown {
  try {
    return parseJson(text);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

const stringRest = /[^"\\]*(?:\\.[^"\\]*)*"\s*(:?)/sy;

/** Outside of strings JSON has no backslash, so the first of a string is looked for, and what follows the string's end. */
function hasEscapedKey(text: string): boolean {
  for (let at = text.indexOf("\\"); at !== -1; at = text.indexOf("\\", stringRest.lastIndex)) {
    stringRest.lastIndex = at;
    const rest = stringRest.exec(text);
    if (rest === null) return false; // no JSON
    if (rest[1] === ":") return true;
  }
  return false;
}
